//! Models for questions that need a document and a knowledge base (KoRC). They answer with sets of entities.
//! Each answer shows the name in the document where it starts, and the triples that lead to it.

mod embed;
mod encoding;
mod kind;
mod kinds;
mod layers;
mod model;
mod normalisation;
mod options;
mod part;
mod path;
mod registry;
mod session;
mod train;
mod transfer;

use sporran_kilt::{
    Passage,
    kb::{EntityId, Triple},
    korc::Question,
};

pub use encoding::{EncodedQuestion, LinkedName, Linker, QuestionReader};
pub use kind::{Background, LivePassages, PassageFinder, QuestionTraining, ReadQuestions, ReasonerKind};
pub use kinds::check_trained;
pub use model::{Parts, QuestionKind, QuestionModel, Vectors, chosen};
pub use options::{
    Edges, EmbedOptions, EmbedStarOptions, EncoderShape, ObjectiveOptions, Reading, Topic, TransferOptions,
};
pub use part::linked_part;
pub use path::heaviest;
pub use registry::ReasonerOptions;
pub use train::{QuestionExample, QuestionObjective, tune};

use crate::{Error, Result, korc::Numbers, rules::Step};

/// A question with its document.
#[derive(Clone, Copy, Debug)]
pub struct QuestionInput<'a> {
    /// The question.
    pub question: &'a str,
    /// The document.
    pub document: &'a str,
    /// The bytes at the document's end that stay where it is cut.
    pub kept: usize,
    /// The ids of the question's entities, which the document hides. Only models with [`Topic::Given`] read them.
    pub topics: &'a [String],
}

impl<'a> QuestionInput<'a> {
    /// The document without its kept end, and that end.
    ///
    /// # Errors
    /// [`Error::Argument`] for an end that does not begin at a character of the document.
    fn document_parts(&self) -> Result<(&'a str, &'a str)> {
        let at = self.document.len().checked_sub(self.kept);
        at.and_then(|at| self.document.split_at_checked(at)).ok_or_else(|| {
            let (bytes, kept) = (self.document.len(), self.kept);
            Error::Argument(format!(
                "kept: expected the bytes of whole characters of the {bytes} bytes of the document, found {kept}"
            ))
        })
    }

    /// The input of a question.
    #[must_use]
    pub fn of(question: &'a Question) -> Self {
        let (_, kept) = question.document_parts();
        Self {
            question: &question.question,
            document: question.document(),
            kept: kept.len(),
            topics: question.topics(),
        }
    }
}

/// An answer and its explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The entity.
    pub entity: EntityId,
    /// Its probability among all entities, 0 to 1.
    pub confidence: f32,
    /// The name in the document that leads to it.
    pub bridge: Option<LinkedName>,
    /// The triples of the knowledge base from that name to the answer, in the order of the walk.
    pub triples: Vec<Numbers>,
}

/// A question's answers, and the attention of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Best first.
    pub answers: Vec<Answer>,
    /// The names in the document with their attention weights.
    pub named: Vec<(LinkedName, f32)>,
    /// The relations with the largest weights at each step; empty for a model without steps.
    pub steps: Vec<Vec<(Step, f32)>>,
    /// The time of each step, for all questions that were answered together.
    pub seconds: Vec<f64>,
}

/// The answers of a generator to a question.
#[derive(Clone, Debug, PartialEq)]
pub struct TextAnswers {
    /// The answers, in the order of the generated text.
    pub answers: Vec<String>,
    /// The mean log-probability of the generated text.
    pub score: f32,
    /// The triples of the input.
    pub triples: Vec<Triple>,
    /// The retrieved passages of the input with their scores, best first.
    pub passages: Vec<(Passage, f32)>,
}

/// The answers of a reasoner to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Answers {
    /// Entities of the knowledge base.
    Entities(Answered),
    /// Texts.
    Texts(TextAnswers),
}

/// Answers questions.
pub trait Reasoner: Send + Sync {
    /// Result `i` answers `questions[i]`, independently of the others, with at most `most` answers.
    ///
    /// # Errors
    /// Errors of the model.
    fn answer(&self, questions: &[Question], most: usize) -> Result<Vec<Answers>>;
}
