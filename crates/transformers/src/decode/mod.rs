//! Sequences from a model: greedy and beam search, as `transformers` 5 does them.

mod beam;
mod greedy;
mod options;
mod rules;

pub use options::{EarlyStopping, GenerationOptions};

use crate::{
    batch::Batch,
    error::Result,
    seq2seq::{Memory, Seq2Seq},
};

/// A generated sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The tokens after the decoder's start token, up to and with the end token where there is one.
    pub tokens: Vec<u32>,
    /// Beam search: the log-probability of the sequence divided by its length to the power of the length penalty.
    /// Greedy search: the sum of the log-probabilities of its tokens, after the rules (forced tokens, n-grams,
    /// least length) were applied; no length penalty.
    pub score: f32,
}

/// Generates for every input: answer `i` has `num-return-sequences` hypotheses for input `i`, best first.
///
/// Inputs do not influence each other: a batch gives what its members give alone, up to the rounding of sums.
///
/// # Errors
/// [`Error::Options`](crate::Error::Options) where the options cannot be used, [`Error::Batch`](crate::Error::Batch)
/// where an input or a sequence is longer than the model has positions for, or a tensor error.
pub fn generate(
    model: &dyn Seq2Seq,
    input: &Batch,
    options: &GenerationOptions,
) -> Result<Vec<Vec<Hypothesis>>> {
    generate_from(model, &model.encode(input)?, options)
}

/// [`generate`] for inputs that have been encoded.
///
/// # Errors
/// As for `generate`.
pub fn generate_from(
    model: &dyn Seq2Seq,
    memory: &Memory,
    options: &GenerationOptions,
) -> Result<Vec<Vec<Hypothesis>>> {
    let settings =
        options.or(model.generation_defaults()).settings(model.special_tokens(), model.vocab_size())?;
    if settings.num_beams == 1 {
        greedy::search(model, memory, &settings)
    } else {
        beam::search(model, memory, &settings)
    }
}

/// The logarithm of the sum of the exponentials of `scores`.
fn log_sum_exp(scores: &[f32]) -> f32 {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = scores.iter().map(|score| f64::from((score - max).exp())).sum();
    max + sum.ln() as f32
}

#[cfg(test)]
mod tests {
    use super::log_sum_exp;

    #[test]
    fn the_sum_of_exponentials_stays_in_range() {
        // ln(e^1000 + e^1000) = 1000 + ln 2
        assert!((log_sum_exp(&[1000.0, 1000.0]) - 1_000.693_1).abs() < 1e-3);
        assert_eq!(log_sum_exp(&[f32::NEG_INFINITY, 0.0]), 0.0);
    }
}
