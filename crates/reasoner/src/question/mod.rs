//! Questions that need a document and a knowledge base (KoRC): models that answer with sets of entities and show the name
//! in the document that they started from and the triples that they went over.

mod embed;
mod layers;
mod model;
mod path;
mod reading;
mod train;
mod transfer;

use sporran_kilt::kb::EntityId;

pub use model::{Parts, QuestionKind, QuestionModel, Vectors, chosen};
pub use path::heaviest;
pub use reading::{Linker, Named, QuestionReader, Reading};
pub use train::{Lesson, QuestionObjective, tune};

use crate::{Result, korc::Numbers, rules::Step};

/// A question and the document that it is about.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The question.
    pub question: &'a str,
    /// The document.
    pub document: &'a str,
}

/// An answer and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The entity.
    pub entity: EntityId,
    /// How likely it is beside the others, 0 to 1.
    pub confidence: f32,
    /// The name in the document that leads to it.
    pub bridge: Option<Named>,
    /// The triples of the knowledge base from there to it, in the order of the walk.
    pub triples: Vec<Numbers>,
}

/// A question's answers, and what the model went by.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Best first.
    pub answers: Vec<Answer>,
    /// The names in the document, and how much each counted.
    pub named: Vec<(Named, f32)>,
    /// The relations that counted most at each step; none for a model without steps.
    pub steps: Vec<Vec<(Step, f32)>>,
}

/// Answers questions.
pub trait Reasoner: Send + Sync {
    /// Result `i` answers `asked[i]`, independent of its neighbours, with at most `most` answers.
    ///
    /// # Errors
    /// Where the model fails.
    fn answer(&self, asked: &[Asked<'_>], most: usize) -> Result<Vec<Answered>>;
}
