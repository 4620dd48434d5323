//! Resolves generation options into settings.

use sporran_checkpoint::{Error, Result, SpecialTokens};

use super::options::{EarlyStopping, GenerationOptions};

/// [`GenerationOptions`] with every value present and checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GenerationSettings {
    /// For the longest prompt, where `max_length` says it.
    pub(crate) max_new_tokens: usize,
    /// For the longest prompt, where `min_length` says it.
    pub(crate) min_new_tokens: usize,
    /// The most tokens of a sequence with its prompt, where this is the bound and not `max_new_tokens`.
    pub(crate) max_length: Option<usize>,
    /// The fewest tokens of a sequence with its prompt, where this is the bound and not `min_new_tokens`.
    pub(crate) min_length: Option<usize>,
    pub(crate) num_beams: usize,
    pub(crate) num_beam_groups: usize,
    pub(crate) diversity_penalty: f32,
    pub(crate) length_penalty: f64,
    pub(crate) early_stopping: EarlyStopping,
    pub(crate) num_return_sequences: usize,
    pub(crate) sampling: Option<Sampling>,
    pub(crate) repetition_penalty: f32,
    pub(crate) no_repeat_ngram_size: usize,
    pub(crate) encoder_no_repeat_ngram_size: usize,
    pub(crate) bad_words: Vec<Vec<u32>>,
    pub(crate) suppress_tokens: Vec<u32>,
    pub(crate) begin_suppress_tokens: Vec<u32>,
    pub(crate) forced_bos: Option<u32>,
    pub(crate) forced_eos: Option<u32>,
    pub(crate) renormalises: bool,
}

/// The settings of sampling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sampling {
    pub(crate) temperature: f32,
    /// 0 for all.
    pub(crate) top_k: usize,
    pub(crate) top_p: f32,
    pub(crate) min_p: f32,
    pub(crate) seed: u64,
    /// The fewest tokens that `top_k`, `top_p` and `min_p` keep. With beams, enough to continue if every end token is sampled.
    pub(crate) least: usize,
}

fn wrong<T>(option: &'static str, expected: impl Into<String>, found: impl ToString) -> Result<T> {
    Err(Error::Options { option, expected: expected.into(), found: found.to_string() })
}

/// An option that must be above 0.
fn positive(option: &'static str, value: Option<f64>, default: f64) -> Result<f32> {
    match value.unwrap_or(default) {
        value if value.is_finite() && value as f32 > 0.0 => Ok(value as f32),
        value => wrong(option, "a finite number above 0", value),
    }
}

impl GenerationOptions {
    /// The resolved settings: every option with its value. A sequence begins with `prompt` tokens (the longest of a batch).
    /// Lengths include them; numbers of new tokens do not.
    ///
    /// # Errors
    /// [`Error::Options`] where a value, or two values together, cannot be used.
    pub(crate) fn settings(
        &self,
        tokens: &SpecialTokens,
        vocabulary: usize,
        prompt: usize,
    ) -> Result<GenerationSettings> {
        let new = |length: usize| length.saturating_sub(prompt);
        let max_new_tokens = self.max_new_tokens.or(self.max_length.map(new)).unwrap_or(20);
        if max_new_tokens == 0 {
            let option = if self.max_new_tokens.is_some() { "max-new-tokens" } else { "max-length" };
            return wrong(option, "room for at least one new token", 0);
        }
        let min_new_tokens = self.min_new_tokens.or(self.min_length.map(new)).unwrap_or(0);
        if min_new_tokens > max_new_tokens {
            let option = if self.min_new_tokens.is_some() { "min-new-tokens" } else { "min-length" };
            return wrong(
                option,
                format!("at most the {max_new_tokens} tokens of the upper bound"),
                min_new_tokens,
            );
        }
        let num_beams = self.num_beams.unwrap_or(1);
        // Each step keeps (1 + end tokens) candidates for every beam, all different.
        let most = vocabulary / (1 + tokens.eos.len()).max(2);
        if num_beams == 0 || num_beams > most {
            return wrong("num-beams", format!("1 to {most}"), num_beams);
        }
        let sampling = self.sampling(num_beams, tokens.eos.len())?;
        let num_return_sequences = self.num_return_sequences.unwrap_or(1);
        let drawn = sampling.is_some() && num_beams == 1;
        if num_return_sequences == 0 || (!drawn && num_return_sequences > num_beams) {
            return wrong(
                "num-return-sequences",
                format!("1 to num-beams, {num_beams}"),
                num_return_sequences,
            );
        }
        let length_penalty = self.length_penalty.unwrap_or(1.0);
        if !length_penalty.is_finite() {
            return wrong("length-penalty", "a finite number", length_penalty);
        }
        let (num_beam_groups, diversity_penalty) = self.groups(num_beams, sampling.is_some())?;
        let settings = GenerationSettings {
            max_new_tokens,
            min_new_tokens,
            max_length: self.max_length.filter(|_| self.max_new_tokens.is_none()),
            min_length: self.min_length.filter(|_| self.min_new_tokens.is_none()),
            num_beams,
            num_beam_groups,
            diversity_penalty,
            length_penalty,
            early_stopping: self.early_stopping.unwrap_or(EarlyStopping::No),
            num_return_sequences,
            sampling,
            repetition_penalty: positive("repetition-penalty", self.repetition_penalty, 1.0)?,
            no_repeat_ngram_size: self.no_repeat_ngram_size.unwrap_or(0),
            encoder_no_repeat_ngram_size: self.encoder_no_repeat_ngram_size.unwrap_or(0),
            bad_words: self.bad_words(tokens)?,
            suppress_tokens: self.suppress_tokens.clone().unwrap_or_default(),
            begin_suppress_tokens: self.begin_suppress_tokens.clone().unwrap_or_default(),
            forced_bos: self.forced_bos_token_id,
            forced_eos: self.forced_eos_token_id,
            renormalises: self.renormalize_logits.unwrap_or(false),
        };
        let ids: [(&'static str, Vec<u32>); 5] = [
            ("forced-bos-token-id", settings.forced_bos.into_iter().collect()),
            ("forced-eos-token-id", settings.forced_eos.into_iter().collect()),
            ("suppress-tokens", settings.suppress_tokens.clone()),
            ("begin-suppress-tokens", settings.begin_suppress_tokens.clone()),
            ("bad-words-ids", settings.bad_words.concat()),
        ];
        for (option, ids) in ids {
            if let Some(id) = ids.into_iter().find(|id| *id as usize >= vocabulary) {
                return wrong(option, format!("token ids below {vocabulary}"), id);
            }
        }
        Ok(settings)
    }

    fn sampling(&self, num_beams: usize, ends: usize) -> Result<Option<Sampling>> {
        if !self.do_sample.unwrap_or(false) {
            return Ok(None);
        }
        if let Some(set) = &self.unsupported_sampling {
            let expected = format!("false with the folder's {set}, which is not supported");
            return wrong("do-sample", expected, true);
        }
        let top_p = self.top_p.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&top_p) {
            return wrong("top-p", "0 to 1", top_p);
        }
        let min_p = self.min_p.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&min_p) {
            return wrong("min-p", "0 to 1", min_p);
        }
        let least = if num_beams > 1 { 1 + ends } else { 1 };
        let top_k = self.top_k.unwrap_or(50);
        Ok(Some(Sampling {
            temperature: positive("temperature", self.temperature, 1.0)?,
            top_k: if top_k == 0 { 0 } else { top_k.max(least) },
            top_p: top_p as f32,
            min_p: min_p as f32,
            seed: self.seed.unwrap_or(0),
            least,
        }))
    }

    /// The number of groups and the diversity penalty.
    fn groups(&self, num_beams: usize, sampling: bool) -> Result<(usize, f32)> {
        let groups = self.num_beam_groups.unwrap_or(1);
        if groups == 0 || !num_beams.is_multiple_of(groups) {
            return wrong("num-beam-groups", format!("a divisor of num-beams, {num_beams}"), groups);
        }
        let penalty = self.diversity_penalty.unwrap_or(0.0);
        if groups > 1 && sampling {
            return wrong("num-beam-groups", "1 where tokens are drawn (do-sample)", groups);
        }
        // Without a penalty all groups would find the same sequences; without groups a penalty has no effect.
        if (groups > 1) != (penalty > 0.0) || !penalty.is_finite() {
            let expected = if groups > 1 { "a finite number above 0" } else { "0 for one group of beams" };
            return wrong("diversity-penalty", expected, penalty);
        }
        Ok((groups, penalty as f32))
    }

    /// The bad words, but for the end tokens, which must stay possible.
    fn bad_words(&self, tokens: &SpecialTokens) -> Result<Vec<Vec<u32>>> {
        let words = self.bad_words_ids.clone().unwrap_or_default();
        if words.iter().any(Vec::is_empty) {
            return wrong("bad-words-ids", "at least one token in every word", "an empty word");
        }
        Ok(words.into_iter().filter(|word| !tokens.eos.iter().any(|end| word == &[*end])).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::{GenerationOptions, Sampling};
    use sporran_checkpoint::SpecialTokens;

    fn tokens() -> SpecialTokens {
        SpecialTokens { pad: 0, eos: vec![1], bos: None, decoder_start: 0 }
    }

    fn none() -> GenerationOptions {
        GenerationOptions::default()
    }

    fn refused(options: GenerationOptions) -> String {
        options.settings(&tokens(), 10, 1).unwrap_err().to_string()
    }

    #[test]
    fn values_that_cannot_be_used_are_refused() {
        assert!(refused(GenerationOptions { num_beams: Some(6), ..none() }).contains("1 to 5"));
        assert!(
            refused(GenerationOptions { num_return_sequences: Some(2), ..none() }).contains("num-beams, 1")
        );
        assert!(refused(GenerationOptions { max_length: Some(1), ..none() }).contains("max-length"));
        assert!(refused(GenerationOptions { min_new_tokens: Some(21), ..none() }).contains("20 tokens"));
        assert!(refused(GenerationOptions { forced_bos_token_id: Some(10), ..none() }).contains("below 10"));
        assert!(refused(GenerationOptions { length_penalty: Some(f64::NAN), ..none() }).contains("finite"));
        let zero = GenerationOptions { repetition_penalty: Some(0.0), ..none() };
        assert!(refused(zero).contains("`repetition-penalty`: expected a finite number above 0, found 0"));
        let words = |word| GenerationOptions { bad_words_ids: Some(vec![word]), ..none() };
        assert!(refused(words(vec![])).contains("an empty word"));
        assert!(refused(words(vec![2, 10])).contains("bad-words-ids"));
    }

    #[test]
    fn groups_share_the_beams_and_go_with_a_penalty() {
        let groups = |num_beams, num_beam_groups, diversity_penalty| GenerationOptions {
            num_beams: Some(num_beams),
            num_beam_groups: Some(num_beam_groups),
            diversity_penalty: Some(diversity_penalty),
            ..none()
        };
        assert!(refused(groups(4, 3, 0.5)).contains("a divisor of num-beams, 4"));
        assert!(refused(groups(4, 2, 0.0)).contains("diversity-penalty"));
        assert!(refused(groups(4, 1, 0.5)).contains("one group"));
        assert!(refused(GenerationOptions { do_sample: Some(true), ..groups(4, 2, 0.5) }).contains("drawn"));
        assert!(groups(4, 2, 0.5).settings(&tokens(), 10, 1).is_ok());
    }

    #[test]
    fn sampling_draws_from_fifty_tokens_and_with_beams_from_two_at_least() {
        let draws = |options: GenerationOptions| {
            let options = GenerationOptions { do_sample: Some(true), ..options };
            options.settings(&tokens(), 10, 1).unwrap().sampling.unwrap()
        };
        let expected = Sampling { temperature: 1.0, top_k: 50, top_p: 1.0, min_p: 0.0, seed: 0, least: 1 };
        assert_eq!(draws(none()), expected);
        let beams = draws(GenerationOptions { num_beams: Some(3), top_k: Some(1), ..none() });
        assert_eq!((beams.top_k, beams.least), (2, 2));
        // Without beams, any number of sequences can be sampled.
        assert_eq!(draws(GenerationOptions { num_return_sequences: Some(7), ..none() }), expected);
        let cold = GenerationOptions { do_sample: Some(true), temperature: Some(0.0), ..none() };
        assert!(refused(cold).contains("temperature"));
        let much = GenerationOptions { do_sample: Some(true), top_p: Some(1.5), ..none() };
        assert!(refused(much).contains("0 to 1"));
    }

    #[test]
    fn an_end_token_is_no_bad_word() {
        let options = GenerationOptions { bad_words_ids: Some(vec![vec![1], vec![1, 2]]), ..none() };
        assert_eq!(options.settings(&tokens(), 10, 1).unwrap().bad_words, [vec![1, 2]]);
    }
}
