//! The interface of the options of every kind of tagger.

use std::path::Path;

use sporran_config::Document;
use sporran_kilt::observe::Observer;
use sporran_training::session::Trained;

use crate::{Annotated, Result};

/// The options of a kind of tagger.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait TaggerKind {
    /// Reports wrong values and missing files, without loading a model. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);

    /// Trains a tagger and saves it. A stopped training resumes from its newest checkpoint.
    ///
    /// # Errors
    /// Errors of the initial model's files or of the training.
    fn train(&self, training: &TaggerTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained>;
}

/// The inputs and outputs of a training that do not depend on the kind of tagger.
#[derive(Clone, Copy)]
pub struct TaggerTraining<'a> {
    /// The training documents.
    pub documents: &'a [Annotated],
    /// The validation documents. Their F1 decides which weights are saved; without them, the last ones are.
    pub validation: &'a [Annotated],
    /// The seed of all random choices.
    pub seed: u64,
    /// The folder of the checkpoints.
    pub checkpoints: &'a Path,
    /// The folder of the trained tagger.
    pub model: &'a Path,
}
