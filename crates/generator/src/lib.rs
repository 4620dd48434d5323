//! Generators: from a query and its passages to an answer.
//!
//! Everything here answers [`Generator::generate`]. [`Seq2SeqGenerator`] writes the passages before the input into one
//! text and lets an encoder-decoder answer it, as KILT's BART + DPR does; without passages it answers from memory.
//! [`FidGenerator`] encodes passages apart and decodes from all of them; [`RagGenerator`] answers with each passage and
//! marginalises over them. [`Verifier`] labels evidence and checks claims. [`ByDataset`] asks one of several by the query's dataset.

mod by_dataset;
mod error;
mod fid;
mod passages;
mod prompt;
mod rag;
mod seq2seq;
mod text;
mod verifier;

pub use by_dataset::ByDataset;
pub use error::{Error, Result};
pub use fid::{FidGenerator, FidOptions};
pub use prompt::{Order, Prompt, PromptOptions};
pub use rag::{RagGenerator, RagSequenceOptions, RagTokenOptions};
pub use seq2seq::{Seq2SeqGenerator, Seq2SeqOptions};
use sporran_kilt::{Passage, Query};
pub use text::{GeneratedText, ModelOptions, TextGenerator};
pub use verifier::{
    Aggregate, Label, LabelOrder, Labeller, Matcher, SelectionOptions, Unit, UnitKind, Verdict, Verifier,
    VerifierOptions, token_pair, units, verdict,
};

/// Answers queries.
pub trait Generator: Send + Sync {
    /// Generation `i` answers `requests[i]`. A request's answer does not depend on the requests beside it.
    ///
    /// # Errors
    /// An [`Error`] where the model or its tokenizer fails.
    fn generate(&self, requests: &[Request<'_>]) -> Result<Vec<Generation>>;

    /// How many passages of a request it reads at most.
    fn passages(&self) -> usize;
}

/// A query with the passages that may help.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is asked.
    pub query: &'a Query,
    /// Best first; none for an answer from memory.
    pub passages: &'a [Candidate<'a>],
}

/// A passage with the score of the stage that proposed it.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The passage.
    pub passage: &'a Passage,
    /// Higher is better.
    pub score: f32,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// The answer's text, trimmed.
    pub text: String,
    /// The score of the sequence, as `GenerationOptions` defines it.
    pub score: f32,
    /// Further answers with their scores, best first.
    pub alternatives: Vec<(String, f32)>,
    /// Which of the request's passages were used as evidence, best first.
    pub evidence: Vec<usize>,
}
