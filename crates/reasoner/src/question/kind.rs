//! The operations of every kind of reasoner.

use std::{path::Path, sync::Arc};

use sporran_config::Document;
use sporran_kilt::{Passage, PassageStore, Query, kb::KnowledgeBase, korc::Question, observe::Observer};
use sporran_training::{
    LiveIndex, Variables,
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

    /// Whether [`Self::train`] makes a model.
    fn is_trained(&self) -> bool {
        true
    }

    /// Trains the model and saves it. A stopped training resumes from its checkpoints.
    ///
    /// # Errors
    /// Errors of files, model or training, and an error for kinds that are not trained.
    fn train(&self, training: &QuestionTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained>;

    /// Whether a training reads the test questions, without their answers.
    fn reads_tests(&self) -> bool {
        false
    }

    /// The folder of the initial question encoder, if a training also trains that of the retriever. Its
    /// [`QuestionTraining::live`] is then set, and [`QuestionTraining::passages`] is not.
    fn question_encoder(&self) -> Option<&Path> {
        None
    }

    /// Whether the kind reads retrieved passages, so that it needs [`Background::passages`].
    fn reads_passages(&self) -> bool {
        false
    }

    /// Loads the model over background knowledge.
    ///
    /// # Errors
    /// Errors of the model's files; [`Error::Kind`](crate::Error::Kind) for a model of another kind.
    fn open<'a>(&self, background: Background<'a>) -> Result<Box<dyn Reasoner + 'a>>;
}

/// Finds passages for questions. The caller of a reasoner has it over a store and a retriever.
pub trait PassageFinder: Send + Sync {
    /// The best passages of each question with their scores, best first, at most `count`.
    ///
    /// # Errors
    /// Errors of the retriever.
    fn find(&self, questions: &[Question], count: usize) -> Result<Vec<Vec<(Passage, f32)>>>;
}

/// A retriever whose question encoder is trained with a reasoner.
#[derive(Clone, Copy)]
pub struct LivePassages<'a> {
    /// The index.
    pub index: &'a dyn LiveIndex,
    /// Its passages.
    pub store: &'a Arc<PassageStore>,
    /// The query of a question.
    pub query: &'a (dyn Fn(&Question) -> Query + Sync),
}

/// Reads a file of questions for demonstrations, in the form in which the tests are asked.
pub type ReadQuestions<'a> = &'a (dyn Fn(&Path) -> Result<Vec<Question>> + Sync);

/// What a reasoner knows besides its model.
#[derive(Clone, Copy)]
pub struct Background<'a> {
    /// The knowledge base.
    pub kb: &'a KnowledgeBase,
    /// The passages of a text collection; `None` without one.
    pub passages: Option<&'a dyn PassageFinder>,
    /// Reads other questions.
    pub read: ReadQuestions<'a>,
}

/// The inputs of a training.
#[derive(Clone, Copy)]
pub struct QuestionTraining<'a> {
    /// The knowledge base.
    pub kb: &'a KnowledgeBase,
    /// The passages of a text collection; `None` without one.
    pub passages: Option<&'a dyn PassageFinder>,
    /// The retriever of a kind with [`ReasonerKind::question_encoder`]; else `None`.
    pub live: Option<LivePassages<'a>>,
    /// The training questions.
    pub questions: &'a [Question],
    /// The validation questions, for the threshold and the best weights. May be empty.
    pub valid: &'a [Question],
    /// The test questions, for a kind with [`ReasonerKind::reads_tests`]; else empty. Their answers are not to be read.
    pub tests: &'a [Question],
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
