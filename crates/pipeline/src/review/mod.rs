//! Finished runs as people read them.

mod page;
mod run;

pub(crate) use page::{Shown, page};
pub use run::{
    EvidenceItem, Example, ExampleFilter, Examples, FileReport, Overview, Review, Score, Scores, Verdict,
};
