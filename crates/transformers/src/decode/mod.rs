//! Sequences from a model: greedy search, beam search, diverse beam search and sampling, as `transformers` does them.
//!
//! A search drives [`Sequences`] of any model. [`generate`] and [`generate_from`] are the searches
//! for encoder-decoders; [`search`] is for everything else.

mod beam;
mod constraint;
mod groups;
mod growing;
mod options;
mod rag;
mod rules;
mod running;
mod sample;
mod scores;
mod sequences;
mod settings;
mod sink;
mod trie;

pub use constraint::{Constraint, Inputs};
pub use options::{EarlyStopping, GenerationOptions};
pub use rag::{RagDecoding, generate_rag_sequence, generate_rag_token, log_probabilities};
pub use running::{Event, FinishReason, Outcome, RequestId, RunningBatch};
use sequences::Decoder;
pub use sequences::Sequences;
pub use sink::TokenSink;
pub use trie::{Node, Trie, TrieBuilder, TrieConstraint, TrieCounts};

use sporran_checkpoint::{Error, Result, SpecialTokens};

use crate::{
    batch::Batch,
    seq2seq::{Memory, Seq2Seq},
};
use rules::Rules;

/// A generated sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The tokens after the decoder's start token (or a causal model's prompt), up to and with the end token where
    /// there is one.
    pub tokens: Vec<u32>,
    /// Beam search: the log-probability of the sequence divided by its length to the power of the length penalty.
    /// Greedy search and sampling: the sum of the log-probabilities of its tokens, after the rules (forced tokens,
    /// n-grams, least length, temperature and the like) were applied; no length penalty.
    pub score: f32,
}

/// Generates for every input: answer `i` has `num-return-sequences` hypotheses for input `i`, best first (in the order
/// of drawing where they are drawn without beams).
///
/// Inputs are independent: a batch gives the results of its single members, up to the rounding of sums. Samples depend on
/// the seed and the input's tokens, not on its position in the batch.
///
/// # Errors
/// [`Error::Options`] where the options cannot be used, [`Error::Batch`] where an input or a sequence is longer than
/// the model has positions for, or a tensor error.
pub fn generate(
    model: &dyn Seq2Seq,
    input: &Batch,
    options: &GenerationOptions,
) -> Result<Vec<Vec<Hypothesis>>> {
    let sources = input.rows()?;
    let inputs = Inputs { sources: Some(&sources), ..Inputs::default() };
    generate_with(model, &model.encode(input)?, options, &inputs)
}

/// [`generate`] for encoded inputs. Sampling is seeded by an input's index.
///
/// # Errors
/// As for `generate`, and [`Error::Options`] for an `encoder-no-repeat-ngram-size`, which needs the source's tokens.
pub fn generate_from(
    model: &dyn Seq2Seq,
    memory: &Memory,
    options: &GenerationOptions,
) -> Result<Vec<Vec<Hypothesis>>> {
    generate_with(model, memory, options, &Inputs::default())
}

/// [`generate`] for encoded inputs, with further facts about them, such as a constraint.
///
/// # Errors
/// As for `generate_from`.
pub fn generate_with(
    model: &dyn Seq2Seq,
    memory: &Memory,
    options: &GenerationOptions,
    inputs: &Inputs<'_>,
) -> Result<Vec<Vec<Hypothesis>>> {
    let options = options.or(model.generation_defaults());
    search(&mut Decoder::new(model, memory), model.special_tokens(), &options, inputs)
}

/// Generates sequences according to `options`; unset options have their defaults.
///
/// # Errors
/// As for [`generate_from`], and errors of `sequences`.
pub fn search(
    sequences: &mut dyn Sequences,
    special: &SpecialTokens,
    options: &GenerationOptions,
    inputs: &Inputs<'_>,
) -> Result<Vec<Vec<Hypothesis>>> {
    let count = sequences.inputs();
    let longest = (0..count).map(|input| sequences.prompt(input).len()).max().unwrap_or(0);
    let settings = options.settings(special, sequences.vocab_size(), longest)?;
    match inputs.sources {
        Some(sources) if sources.len() != count => {
            let found = sources.len().to_string();
            return Err(Error::Batch { expected: format!("the sources of {count} inputs"), found });
        }
        None if settings.encoder_no_repeat_ngram_size > 0 => {
            return Err(Error::Options {
                option: "encoder-no-repeat-ngram-size",
                expected: "0 where the tokens of the sources are not known".into(),
                found: settings.encoder_no_repeat_ngram_size.to_string(),
            });
        }
        _ => {}
    }
    let prompts: Vec<Vec<u32>> = (0..count).map(|input| sequences.prompt(input).to_vec()).collect();
    let rooms: Vec<usize> = (0..count).map(|input| sequences.room(input)).collect();
    if let Some(full) = rooms.iter().position(|room| *room == 0) {
        return Err(no_room(&prompts[full], &format!(" in input {full}")));
    }
    let rules: Vec<Rules<'_>> = (0..count)
        .map(|input| Rules {
            input,
            source: inputs.sources.map(|sources| sources[input].as_slice()),
            constraint: inputs.constraint,
            sink: inputs.sink,
            ..Rules::new(&settings, special, &prompts[input], rooms[input])
        })
        .collect();
    let found = match (settings.num_beams, settings.num_beam_groups) {
        (1, _) => growing::search(sequences, &rules),
        (beams, 1) => beam::search(sequences, &rules, beams),
        (beams, _) => groups::search(sequences, &rules, beams),
    }?;
    let ended = rooms.iter().zip(&found).enumerate().filter(|(input, (room, found))| {
        let best = found.first().map_or(&[][..], |best| &best.tokens);
        let wanted = settings.max_length.map(|length| length.saturating_sub(prompts[*input].len()));
        let is_whole = best.last().is_some_and(|last| special.eos.contains(last));
        best.len() == **room && **room < wanted.unwrap_or(settings.max_new_tokens) && !is_whole
    });
    match ended.count() {
        0 => {}
        count => tracing::warn!("{count} outputs end at the model's last position, before their end token"),
    }
    Ok(found)
}

/// The error of a prompt after which the model has no position; `which` names its input.
fn no_room(prompt: &[u32], which: &str) -> Error {
    let found = format!("{}{which}", prompt.len());
    Error::Batch { expected: "fewer tokens than the model has positions".into(), found }
}
