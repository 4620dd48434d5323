//! Prompts that a decoder-only model continues, as [`Sequences`] of a search.

use sporran_checkpoint::{Error, Result, SpecialTokens};

use super::{CausalCache, CausalLm};
use crate::{
    batch::Batch,
    decode::{GenerationOptions, Hypothesis, Inputs, Sequences, TokenSink, search},
};

/// The sequences of a decoder-only model.
struct Prompts<'a> {
    model: &'a dyn CausalLm,
    prompts: &'a [Vec<u32>],
    inputs: usize,
    cache: CausalCache,
}

impl Sequences for Prompts<'_> {
    fn inputs(&self) -> usize {
        self.inputs
    }

    fn prompt(&self, input: usize) -> &[u32] {
        &self.prompts[input]
    }

    fn room(&self, input: usize) -> usize {
        room(self.model, &self.prompts[input])
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn begin(&mut self) -> Result<Vec<f32>> {
        let batch = Batch::new(self.prompts, self.model.special_tokens().pad, self.model.device())?;
        self.model.begin(&batch, &mut self.cache)
    }

    fn next(&mut self, tokens: &[u32]) -> Result<Vec<f32>> {
        self.model.decode(tokens, tokens.len(), &mut self.cache)
    }

    fn reorder(&mut self, rows: &[u32]) -> Result<()> {
        self.cache.select(rows)
    }

    fn keep(&mut self, inputs: &[u32], rows: &[u32]) -> Result<()> {
        self.inputs = inputs.len();
        self.cache.select(rows)
    }
}

/// The number of positions that a model has for new tokens after a prompt.
pub(crate) fn room(model: &dyn CausalLm, prompt: &[u32]) -> usize {
    if !model.has_learned_positions() {
        return usize::MAX;
    }
    // The last token is not read.
    (model.max_length() + 1).saturating_sub(prompt.len())
}

/// The special tokens of a model, to whose end tokens `stops` are added.
pub(crate) fn ending_at(special: &SpecialTokens, stops: &[u32]) -> SpecialTokens {
    let mut ending = special.clone();
    ending.eos.extend(stops.iter().filter(|stop| !special.eos.contains(stop)));
    ending
}

/// Checks that a search has one sequence for each prompt.
///
/// # Errors
/// [`Error::Options`] with the option that asks for more.
pub(crate) fn check_one_row(options: &GenerationOptions) -> Result<()> {
    for (option, value) in [
        ("num-beams", options.num_beams),
        ("num-beam-groups", options.num_beam_groups),
        ("num-return-sequences", options.num_return_sequences),
    ] {
        if let Some(found) = value.filter(|value| *value > 1) {
            return Err(Error::Options {
                option,
                expected: "1 with the engine `candle`, whose models read one sequence at a time".into(),
                found: found.to_string(),
            });
        }
    }
    Ok(())
}

/// Continues every prompt: answer `i` has `num-return-sequences` hypotheses for prompt `i`, best first, without the
/// prompt. Prompts of different lengths do not influence each other.
///
/// # Errors
/// [`Error::Options`](sporran_checkpoint::Error::Options) where the options cannot be used,
/// [`Error::Batch`](sporran_checkpoint::Error::Batch) where a prompt is empty or a sequence is longer than the model has positions
/// for, or a tensor error.
pub fn generate_causal(
    model: &dyn CausalLm,
    prompts: &[Vec<u32>],
    options: &GenerationOptions,
) -> Result<Vec<Vec<Hypothesis>>> {
    generate_causal_until(model, prompts, options, &[], None)
}

/// [`generate_causal`], where each of `stops` ends a sequence as the model's own end token does, and a sink receives the
/// tokens.
///
/// # Errors
/// As for `generate_causal`.
pub fn generate_causal_until(
    model: &dyn CausalLm,
    prompts: &[Vec<u32>],
    options: &GenerationOptions,
    stops: &[u32],
    sink: Option<&dyn TokenSink>,
) -> Result<Vec<Vec<Hypothesis>>> {
    let special = ending_at(model.special_tokens(), stops);
    let options = options.or(model.generation_defaults());
    if model.most_rows() == Some(1) {
        check_one_row(&options)?;
    }
    let inputs = Inputs { sources: Some(prompts), sink, ..Inputs::default() };
    let cache = CausalCache::new();
    let mut sequences = Prompts { model, prompts, inputs: prompts.len(), cache };
    search(&mut sequences, &special, &options, &inputs)
}
