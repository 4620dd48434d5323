//! The trait of the trainings of the stage's encoders.

use std::path::Path;

use sporran_config::Document;
use sporran_kilt::observe::Observer;
use sporran_training::session::{ContrastTraining, Trained};

use crate::Result;

/// The options of a kind of encoder training that makes a reranker, on queries with positive and negative passages.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait ContrastTrainingKind {
    /// Reports wrong values and missing folders. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);

    /// The folder of the trained model.
    fn model(&self) -> &Path;

    /// Trains the encoder and writes its folder. A stopped training resumes from its newest checkpoint. The validation score
    /// is the mean reciprocal rank among the passages of a query.
    ///
    /// # Errors
    /// Errors of the initial encoder's folder, the training and the file system.
    fn train(&self, training: ContrastTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained>;
}
