//! The operations of every kind of reasoner.

use std::path::Path;

use sporran_config::Document;
use sporran_kilt::{
    kb::KnowledgeBase,
    korc::{Question, Version},
    observe::Observer,
};
use sporran_training::{
    Variables,
    session::{Trained, model_card},
};

use super::Reasoner;
use crate::Result;

/// The options of a kind of reasoner.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait ReasonerKind {
    /// The model's folder.
    fn model(&self) -> &Path;

    /// Reports wrong values and missing files besides the model. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);

    /// Trains the model and saves it. A stopped training resumes from its checkpoints.
    ///
    /// # Errors
    /// Errors of files, model or training, and an error for kinds that are not trained.
    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained>;

    /// Loads the model over a knowledge base. `shown` is the version of the questions that a prompt shows.
    ///
    /// # Errors
    /// Errors of the model's files; [`Error::Kind`](crate::Error::Kind) for a model of another kind.
    fn open<'a>(&self, kb: &'a KnowledgeBase, shown: Version) -> Result<Box<dyn Reasoner + 'a>>;
}

/// The inputs of a training.
pub struct QuestionTraining<'a> {
    /// The knowledge base.
    pub kb: &'a KnowledgeBase,
    /// The training questions.
    pub questions: &'a [Question],
    /// The validation questions, for the threshold and the best weights. May be empty.
    pub valid: &'a [Question],
    /// The largest number of answers to a question.
    pub max_answers: usize,
    /// The seed of all random choices.
    pub seed: u64,
    /// The name of the config, for the card of the model.
    pub config: &'a str,
    /// The folder of the checkpoints.
    pub folder: &'a Path,
}

impl QuestionTraining<'_> {
    /// The content of `model.toml` in the folder of the trained model.
    #[must_use]
    pub fn card(&self, variables: &Variables) -> String {
        model_card("reasoner", variables, self.config, self.seed)
    }
}
