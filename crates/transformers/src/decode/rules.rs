//! Logits processors: the tokens with which a sequence may not continue.
//!
//! The order is that of `transformers`, where a later rule wins over an earlier one: repetition penalty, n-grams, the
//! source's n-grams, bad words, least length, the constraint, forced tokens, suppressed tokens, and last the sum of probabilities.

use rayon::prelude::*;
use sporran_checkpoint::SpecialTokens;

use super::{constraint::Constraint, scores::log_sum_exp, settings::GenerationSettings, sink::TokenSink};

/// The rules of the generation for one input, applied to the scores of every next token.
#[derive(Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) settings: &'a GenerationSettings,
    pub(crate) special: &'a SpecialTokens,
    /// The number of the input, by which the constraint and the sink know it.
    pub(crate) input: usize,
    pub(crate) prompt: &'a [u32],
    /// The source tokens, where they are known.
    pub(crate) source: Option<&'a [u32]>,
    pub(crate) constraint: Option<&'a dyn Constraint>,
    pub(crate) sink: Option<&'a dyn TokenSink>,
    /// The most new tokens of a sequence: as many as the options and the model's positions allow.
    pub(crate) limit: usize,
}

impl<'a> Rules<'a> {
    /// The rules of input 0 without a source, a constraint and a sink. After `prompt` the model has positions for `room` new
    /// tokens.
    pub(crate) fn new(
        settings: &'a GenerationSettings,
        special: &'a SpecialTokens,
        prompt: &'a [u32],
        room: usize,
    ) -> Self {
        let wanted = settings.max_length.map(|length| length.saturating_sub(prompt.len()));
        let limit = wanted.unwrap_or(settings.max_new_tokens).min(room);
        Self { settings, special, input: 0, prompt, source: None, constraint: None, sink: None, limit }
    }

    /// The fewest new tokens of a sequence.
    fn least(&self) -> usize {
        let least = self.settings.min_length.map(|length| length.saturating_sub(self.prompt.len()));
        least.unwrap_or(self.settings.min_new_tokens)
    }

    /// Whether a sequence counts only with its end token.
    pub(crate) fn complete_only(&self) -> bool {
        self.constraint.is_some_and(Constraint::complete_only)
    }

    /// Passes a step of the search to the sink. Returns whether the sink ends the search.
    pub(crate) fn sink_ends(&self, token: Option<u32>) -> bool {
        self.sink.is_some_and(|sink| sink.token(self.input, token).is_break())
    }

    /// The tokens of a sequence that are new.
    fn new_tokens<'t>(&self, tokens: &'t [u32]) -> &'t [u32] {
        &tokens[self.prompt.len()..]
    }

    /// Applies the rules to the unnormalised scores of the token after `tokens`.
    pub(crate) fn apply(&self, tokens: &[u32], scores: &mut [f32]) {
        self.apply_from(&[tokens], scores, &[0.0]);
    }

    /// The logarithm of the sum of the exponentials of each row, and the rules applied to log-probabilities, which
    /// are the scores minus that number. Only rules change scores.
    pub(crate) fn apply_normalised(&self, sequences: &[&[u32]], scores: &mut [f32]) -> Vec<f32> {
        let vocabulary = scores.len() / sequences.len();
        let normalisers: Vec<f32> = scores.par_chunks_exact(vocabulary).map(log_sum_exp).collect();
        self.apply_from(sequences, scores, &normalisers);
        normalisers
    }

    /// The numbers to subtract from rows that the rules have changed: `normalisers`, or where the settings say so, those that
    /// make the rest of each row sum to 1 again. A row without a possible token keeps its own.
    pub(crate) fn renormalised(&self, scores: &[f32], normalisers: Vec<f32>) -> Vec<f32> {
        if !self.settings.renormalises {
            return normalisers;
        }
        let vocabulary = scores.len() / normalisers.len();
        let rows = scores.par_chunks_exact(vocabulary).zip(normalisers);
        let again = |(row, before)| match log_sum_exp(row) {
            f32::NEG_INFINITY => before,
            sum => sum,
        };
        rows.map(again).collect()
    }

    /// Applies the rules to scores less `zeros`. Row `i` belongs to sequence `i`.
    pub(crate) fn apply_from(&self, sequences: &[&[u32]], scores: &mut [f32], zeros: &[f32]) {
        let vocabulary = scores.len() / sequences.len();
        let rows = || sequences.iter().zip(zeros);
        for ((tokens, zero), scores) in rows().zip(scores.chunks_exact_mut(vocabulary)) {
            self.penalise(tokens, scores, *zero);
            self.ban(tokens, scores);
        }
        if let Some(constraint) = self.constraint {
            self.constrain(constraint, sequences, scores, zeros);
        }
        for ((tokens, zero), scores) in rows().zip(scores.chunks_exact_mut(vocabulary)) {
            self.force((self.new_tokens(tokens).len(), tokens.len()), scores, *zero);
        }
    }

    fn penalise(&self, tokens: &[u32], scores: &mut [f32], zero: f32) {
        let penalty = self.settings.repetition_penalty;
        if penalty == 1.0 {
            return;
        }
        let mut seen = tokens.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for token in seen {
            if let Some(score) = scores.get_mut(token as usize) {
                let value = *score - zero;
                *score = if value < 0.0 { value * penalty } else { value / penalty } + zero;
            }
        }
    }

    fn ban(&self, tokens: &[u32], scores: &mut [f32]) {
        let mut ban = |token: u32| {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = f32::NEG_INFINITY;
            }
        };
        let settings = self.settings;
        followers(tokens, tokens, settings.no_repeat_ngram_size, &mut ban);
        if let Some(source) = self.source {
            followers(source, tokens, settings.encoder_no_repeat_ngram_size, &mut ban);
        }
        for word in &settings.bad_words {
            if let [start @ .., last] = word.as_slice()
                && tokens.ends_with(start)
            {
                ban(*last);
            }
        }
        if self.new_tokens(tokens).len() < self.least() {
            self.special.eos.iter().copied().for_each(ban);
        }
    }

    /// Leaves only the tokens that the constraint allows. If the rules before it have banned all of those in every
    /// sequence of the input, the constraint wins, and the allowed tokens share all probability.
    fn constrain(
        &self,
        constraint: &dyn Constraint,
        sequences: &[&[u32]],
        scores: &mut [f32],
        zeros: &[f32],
    ) {
        let vocabulary = scores.len() / sequences.len();
        let allowed: Vec<Vec<u32>> = sequences
            .iter()
            .map(|tokens| {
                let mut allowed = Vec::new();
                constraint.allowed(self.input, self.new_tokens(tokens), &mut allowed);
                allowed.retain(|token| (*token as usize) < vocabulary);
                allowed
            })
            .collect();
        let mut possible = false;
        for (allowed, scores) in allowed.iter().zip(scores.chunks_exact_mut(vocabulary)) {
            let kept: Vec<f32> = allowed.iter().map(|token| scores[*token as usize]).collect();
            possible |= kept.iter().any(|score| *score > f32::NEG_INFINITY);
            scores.fill(f32::NEG_INFINITY);
            for (token, score) in allowed.iter().zip(kept) {
                scores[*token as usize] = score;
            }
        }
        if !possible {
            for ((allowed, zero), scores) in
                allowed.iter().zip(zeros).zip(scores.chunks_exact_mut(vocabulary))
            {
                allowed.iter().for_each(|token| scores[*token as usize] = *zero);
            }
        }
    }

    /// `new` of the `length` tokens of the sequence are new.
    fn force(&self, (new, length): (usize, usize), scores: &mut [f32], zero: f32) {
        let settings = self.settings;
        let force = |token: u32, scores: &mut [f32]| {
            scores.fill(f32::NEG_INFINITY);
            if let Some(score) = scores.get_mut(token as usize) {
                *score = zero;
            }
        };
        // A causal model's prompt takes the place of an encoder-decoder's first token.
        if let Some(bos) = settings.forced_bos.filter(|_| length == 1) {
            force(bos, scores);
        }
        if let Some(eos) = settings.forced_eos.filter(|_| new + 1 == self.limit) {
            force(eos, scores);
        }
        let first = if settings.forced_bos.is_some() && length == new + 1 { 1 } else { 0 };
        let at_first = settings.begin_suppress_tokens.iter().filter(|_| new == first);
        for token in settings.suppress_tokens.iter().chain(at_first) {
            if let Some(score) = scores.get_mut(*token as usize) {
                *score = f32::NEG_INFINITY;
            }
        }
    }

    /// Whether a sequence with `length` new tokens that ends with `token` is complete.
    pub(crate) fn ends(&self, token: u32, length: usize) -> bool {
        length >= self.limit || self.special.eos.contains(&token)
    }

    /// Whether a sequence that is over may be returned.
    pub(crate) fn counts(&self, last: u32) -> bool {
        !self.complete_only() || self.special.eos.contains(&last)
    }
}

/// Calls `ban` with each token of `text` that follows an occurrence of the last `size - 1` tokens of `tokens`.
fn followers(text: &[u32], tokens: &[u32], size: usize, ban: &mut impl FnMut(u32)) {
    if size > 0 && tokens.len() + 1 >= size {
        let prefix = &tokens[tokens.len() + 1 - size..];
        for seen in text.windows(size).filter(|seen| seen.starts_with(prefix)) {
            ban(seen[size - 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;
    use crate::decode::{Constraint, GenerationOptions, Inputs};
    use sporran_checkpoint::SpecialTokens;

    fn special() -> SpecialTokens {
        SpecialTokens { pad: 0, eos: vec![1], bos: None, decoder_start: 0 }
    }

    /// The scores of six next tokens, all -1 before the rules.
    fn applied(options: GenerationOptions, inputs: Inputs<'_>, tokens: &[u32]) -> Vec<f32> {
        let special = special();
        let settings = options.settings(&special, 6, 1).unwrap();
        let mut scores = vec![-1.0f32; 6];
        let source = inputs.sources.map(|sources| sources[0].as_slice());
        let rules = Rules::new(&settings, &special, &[0], usize::MAX);
        Rules { source, constraint: inputs.constraint, ..rules }.apply(tokens, &mut scores);
        scores
    }

    /// The tokens that may follow.
    fn allowed(options: GenerationOptions, tokens: &[u32]) -> Vec<usize> {
        possible(&applied(options, Inputs::default(), tokens))
    }

    fn possible(scores: &[f32]) -> Vec<usize> {
        (0..6).filter(|i| scores[*i] > f32::NEG_INFINITY).collect()
    }

    #[test]
    fn no_run_of_tokens_comes_twice() {
        let bigrams = || GenerationOptions { no_repeat_ngram_size: Some(2), ..Default::default() };
        // 3 was followed by 4 and by 5.
        assert_eq!(allowed(bigrams(), &[0, 3, 4, 3, 5, 3]), [0, 1, 2, 3]);
        assert_eq!(allowed(bigrams(), &[0, 3]), [0, 1, 2, 3, 4, 5]);
        let single = GenerationOptions { no_repeat_ngram_size: Some(1), ..Default::default() };
        assert_eq!(allowed(single, &[0, 3]), [1, 2, 4, 5]);
    }

    #[test]
    fn no_run_of_the_sources_tokens_comes() {
        let options = GenerationOptions { encoder_no_repeat_ngram_size: Some(2), ..Default::default() };
        let sources = [vec![3, 4, 3, 5, 1]];
        let inputs = Inputs { sources: Some(&sources), ..Inputs::default() };
        assert_eq!(possible(&applied(options, inputs, &[0, 3])), [0, 1, 2, 3]);
    }

    #[test]
    fn no_sequence_ends_before_its_least_length() {
        let least = || GenerationOptions { min_new_tokens: Some(2), ..Default::default() };
        assert_eq!(allowed(least(), &[0, 3]), [0, 2, 3, 4, 5]);
        assert_eq!(allowed(least(), &[0, 3, 3]), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn forced_tokens_win_over_the_other_rules() {
        let forced = || GenerationOptions {
            forced_bos_token_id: Some(4),
            forced_eos_token_id: Some(1),
            max_new_tokens: Some(3),
            min_new_tokens: Some(3),
            ..Default::default()
        };
        assert_eq!(allowed(forced(), &[0]), [4]);
        assert_eq!(allowed(forced(), &[0, 4]), [0, 2, 3, 4, 5]);
        assert_eq!(allowed(forced(), &[0, 4, 2]), [1]);
    }

    #[test]
    fn repeated_tokens_are_penalised() {
        let options = GenerationOptions { repetition_penalty: Some(2.0), ..Default::default() };
        // The start token is also in the sequence; a negative score is multiplied.
        assert_eq!(applied(options, Inputs::default(), &[0, 3, 3]), [-2.0, -1.0, -1.0, -2.0, -1.0, -1.0]);
    }

    #[test]
    fn bad_words_and_suppressed_tokens_are_not_generated() {
        let bad = || GenerationOptions {
            bad_words_ids: Some(vec![vec![5], vec![2, 3]]),
            suppress_tokens: Some(vec![4]),
            begin_suppress_tokens: Some(vec![1]),
            ..Default::default()
        };
        assert_eq!(allowed(bad(), &[0]), [0, 2, 3]);
        assert_eq!(allowed(bad(), &[0, 2]), [0, 1, 2]);
        // With a forced first token, the beginning is the token after it.
        let forced = || GenerationOptions { forced_bos_token_id: Some(1), ..bad() };
        assert_eq!(allowed(forced(), &[0]), [1]);
        assert_eq!(allowed(forced(), &[0, 1]), [0, 2, 3]);
        assert_eq!(allowed(forced(), &[0, 1, 3]), [0, 1, 2, 3]);
    }

    struct Only(&'static [u32]);

    impl Constraint for Only {
        fn allowed(&self, _: usize, tokens: &[u32], allowed: &mut Vec<u32>) {
            assert_eq!(tokens, [2]);
            allowed.extend_from_slice(self.0);
        }
    }

    #[test]
    fn a_constraint_leaves_what_it_allows_and_wins_where_nothing_would_be_left() {
        let options = || GenerationOptions { bad_words_ids: Some(vec![vec![5]]), ..Default::default() };
        let scores = |allowed| {
            let only = Only(allowed);
            let inputs = Inputs { constraint: Some(&only), ..Inputs::default() };
            applied(options(), inputs, &[0, 2])
        };
        assert_eq!(possible(&scores(&[3, 5])), [3]);
        let forced = scores(&[5]);
        assert_eq!((possible(&forced), forced[5]), (vec![5], 0.0));
        assert_eq!(possible(&scores(&[])), [0usize; 0]);
    }
}
