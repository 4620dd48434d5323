//! The inputs of a reranker training, and the run of its objective.

use std::path::Path;

use candle_core::DType;
use sporran_kilt::{Passage, Query, observe::Observer};
use sporran_training::{
    Objective, TrainingOptions, TunedEncoder,
    session::{Evaluate, TrainingSession},
};

use super::CombineOptions;
use crate::{Computing, Result, passage_text};

/// A query with passages and their relevance.
#[derive(Clone, Debug, PartialEq)]
pub struct GradedQuery {
    /// The query, such as a dialogue with one turn in each line.
    pub query: Query,
    /// The passages. The ids are the indices.
    pub passages: Vec<Passage>,
    /// The relevance of each passage, from 0 to 1.
    pub targets: Vec<f32>,
}

impl GradedQuery {
    /// The text of the query, then the texts of the passages with their titles.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.query.text.clone()).chain(self.passages.iter().map(passage_text))
    }

    /// Each turn of the query, then the texts of the passages with their titles.
    pub(super) fn turns_and_passages(&self) -> impl Iterator<Item = String> {
        self.query.text.lines().map(str::to_owned).chain(self.passages.iter().map(passage_text))
    }
}

/// A training of a reranker without its kind.
#[derive(Clone, Copy, Debug)]
pub struct RerankerSession<'a> {
    /// The training data.
    pub queries: &'a [GradedQuery],
    /// Every n-th query is held out for validation, and the best weights are kept. 0 trains on all queries and keeps the
    /// last weights.
    pub validation_every: usize,
    /// The smallest target of a relevant passage in the validation score.
    pub threshold: f64,
    /// The similarities of `[combine]`.
    pub combine: &'a CombineOptions,
    /// The seed of new weights and of the training.
    pub seed: u64,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The empty folder of the reranker.
    pub model: &'a Path,
    /// The precision, device and batch size of the similarities.
    pub computing: Computing,
}

impl RerankerSession<'_> {
    /// Trains with this objective and writes the best weights into the folder of the model. Returns the number of steps.
    pub(super) fn run<O: Objective>(
        &self,
        objective: &O,
        encoder: &TunedEncoder,
        options: &TrainingOptions,
        evaluate: Option<Evaluate<'_>>,
        extra_files: &[(String, Vec<u8>)],
        observe: &mut Observer<'_>,
    ) -> Result<u64> {
        let session = TrainingSession {
            variables: encoder.variables(),
            options,
            folder: self.checkpoints.to_path_buf(),
            model: self.model,
            dtype: DType::F32,
            extra_files,
            score: "map@5",
        };
        Ok(session.run(objective, evaluate, observe)?.steps)
    }
}
