//! The trace of the retrieval of one record or text, with titles.

use std::fmt;

use serde::Serialize;
use sporran_kilt::{FilePlace, PassageId, PassageStore, observe::Observer};
use sporran_retriever::Trace;

use crate::{
    Error, Result,
    tasks::loader::Asked,
    workflows::answer::{assemble::assemble_retrieval, options::Options},
};

/// A step of retrieval, with its hits and its sub-steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The name of the step.
    pub step: String,
    /// The query of this step.
    pub query: String,
    /// The hits, best first.
    pub hits: Vec<RetrievedPassage>,
    /// Sets of passages with a joint score, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<PassageSet>,
    /// The sub-steps.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Step>,
}

/// A retrieved passage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetrievedPassage {
    /// The id of the passage.
    pub passage: u32,
    /// The id of the page.
    pub wikipedia_id: String,
    /// The title of the page.
    pub title: String,
    /// The score.
    pub score: f32,
    /// The place in a file, if the record of the page names one.
    #[serde(flatten)]
    pub file: FilePlace,
}

/// A set of passages with a joint score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PassageSet {
    /// The titles of the pages.
    pub titles: Vec<String>,
    /// The joint score.
    pub score: f32,
}

/// Traces the retrieval of a record or a text.
///
/// # Errors
/// Errors of the config, its files or its indexes; [`Error::Config`] if no task file has the record;
/// [`sporran_kilt::Error::Argument`] for a blank text.
pub fn trace(options: &Options, asked: Asked<'_>, hits: usize, observe: &mut Observer<'_>) -> Result<Step> {
    let query = asked.query(&options.general.tasks)?;
    let assembly = assemble_retrieval(options, observe)?;
    let (Some(retriever), Some(store)) = (&assembly.retriever, &assembly.store) else {
        return Err(Error::Config(vec![sporran_config::Diagnostic {
            origin: "config".into(),
            line: 0,
            key: "retriever".into(),
            message: "is missing; there is nothing to trace".into(),
        }]));
    };
    let found = retriever.trace(&options.general.for_retrieval(&query), hits)?;
    Ok(Step::new(found, hits, store))
}

impl Step {
    pub(crate) fn new(trace: Trace, hits: usize, store: &PassageStore) -> Self {
        let title = |passage: PassageId| store.page_title(store.page_of(passage)).to_owned();
        let found = trace.hits.iter().take(hits).map(|hit| RetrievedPassage {
            passage: hit.passage.0,
            wikipedia_id: store.page_id(store.page_of(hit.passage)).into_owned(),
            title: title(hit.passage),
            score: hit.score,
            file: store.passage(hit.passage).file,
        });
        let sets = trace.sets.iter().take(hits).map(|(passages, score)| PassageSet {
            titles: passages.iter().copied().map(title).collect(),
            score: *score,
        });
        Self {
            step: trace.step,
            query: trace.query,
            hits: found.collect(),
            sets: sets.collect(),
            parts: trace.parts.into_iter().map(|part| Self::new(part, hits, store)).collect(),
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        writeln!(f, "{indent}{}: {}", self.step, self.query.replace('\n', " / "))?;
        for hit in &self.hits {
            write!(f, "{indent}  {:10.4}  {}", hit.score, page_name(&hit.title, &hit.wikipedia_id))?;
            let place = if hit.file.is_empty() { String::new() } else { format!(", {}", hit.file) };
            writeln!(f, "{place}")?;
        }
        for set in &self.sets {
            writeln!(f, "{indent}  {:10.4}  {}", set.score, set.titles.join(" + "))?;
        }
        self.parts.iter().try_for_each(|part| part.write(f, depth + 1))
    }
}

/// A page as its title with its id, or as its id if it has no title.
pub(super) fn page_name(title: &str, id: &str) -> String {
    if title.is_empty() { id.to_owned() } else { format!("{title} ({id})") }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
