//! What a sequence may not continue with, by the options.

use super::options::GenerationSettings;

/// The rules of one generation, applied to the scores of every next token.
#[derive(Debug)]
pub(crate) struct Rules<'a> {
    settings: &'a GenerationSettings,
    eos: &'a [u32],
}

impl<'a> Rules<'a> {
    pub(crate) fn new(settings: &'a GenerationSettings, eos: &'a [u32]) -> Self {
        Self { settings, eos }
    }

    /// Sets the score of each token that may not follow to minus infinity. `tokens` is the sequence so far, the
    /// decoder's start token first. The order is that of `transformers`: a later rule wins over an earlier one.
    pub(crate) fn apply(&self, tokens: &[u32], scores: &mut [f32]) {
        let new = tokens.len() - 1;
        let mut ban = |token: u32| {
            if let Some(score) = scores.get_mut(token as usize) {
                *score = f32::NEG_INFINITY;
            }
        };
        let size = self.settings.no_repeat_ngram_size;
        if size > 0 && tokens.len() + 1 >= size {
            let prefix = &tokens[tokens.len() + 1 - size..];
            for seen in tokens.windows(size).filter(|seen| seen.starts_with(prefix)) {
                ban(seen[size - 1]);
            }
        }
        if new < self.settings.min_new_tokens {
            self.eos.iter().copied().for_each(&mut ban);
        }
        if let Some(bos) = self.settings.forced_bos.filter(|_| new == 0) {
            force(bos, scores);
        }
        if let Some(eos) = self.settings.forced_eos.filter(|_| new + 1 == self.settings.max_new_tokens) {
            force(eos, scores);
        }
    }

    /// Whether a sequence of `length` new tokens that ends with `token` is complete.
    pub(crate) fn ends(&self, token: u32, length: usize) -> bool {
        length >= self.settings.max_new_tokens || self.eos.contains(&token)
    }
}

/// Leaves `token` as the one that can follow, with probability 1.
fn force(token: u32, scores: &mut [f32]) {
    scores.fill(f32::NEG_INFINITY);
    if let Some(score) = scores.get_mut(token as usize) {
        *score = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;
    use crate::{
        decode::{GenerationOptions, options::GenerationSettings},
        tokens::SpecialTokens,
    };

    fn settings(options: GenerationOptions) -> GenerationSettings {
        let tokens = SpecialTokens { pad: 0, eos: vec![1], bos: None, decoder_start: 0 };
        options.settings(&tokens, 6).unwrap()
    }

    /// The tokens that may follow.
    fn allowed(options: GenerationOptions, tokens: &[u32]) -> Vec<usize> {
        let settings = settings(options);
        let mut scores = [-1.0f32; 6];
        Rules::new(&settings, &[1]).apply(tokens, &mut scores);
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
}
