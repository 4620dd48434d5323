//! One record's way through retrieval, with titles.

use std::fmt;

use serde::Serialize;
use sporran_kilt::{PassageId, PassageStore};
use sporran_retriever::Trace;

use crate::{
    Error, Result,
    observe::Observer,
    tasks::{loader as tasks, query::for_retrieval},
    workflows::answer::{assemble::assemble_retrieval, options::Options},
};

/// A step of a ranking, with what it found and the steps that it is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// What was done.
    pub step: String,
    /// The query as this step asked it.
    pub query: String,
    /// What came out, best first.
    pub hits: Vec<Found>,
    /// Passages that were ranked together, best first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<Together>,
    /// The steps that this one is made of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Step>,
}

/// A passage that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The passage.
    pub passage: u32,
    /// Its page's id.
    pub wikipedia_id: String,
    /// Its page's title.
    pub title: String,
    /// Its score.
    pub score: f32,
}

/// Passages that were ranked together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Together {
    /// Their pages' titles.
    pub titles: Vec<String>,
    /// Their score.
    pub score: f32,
}

/// How the ranking of the record with an id comes about.
///
/// # Errors
/// What is wrong with the config, its files or its indexes; [`Error::Config`] where no task file has a record of that id.
pub fn trace(options: &Options, id: &str, hits: usize, observe: &mut Observer<'_>) -> Result<Step> {
    let query = tasks::find(&options.general.tasks, id)?;
    let assembly = assemble_retrieval(options, observe)?;
    let (Some(retriever), Some(store)) = (&assembly.retriever, &assembly.store) else {
        return Err(Error::Config(vec![sporran_config::Diagnostic {
            origin: "config".into(),
            line: 0,
            key: "retriever".into(),
            message: "is missing; there is nothing to trace".into(),
        }]));
    };
    let found = retriever.trace(&for_retrieval(&query, &options.general.query), hits)?;
    Ok(Step::new(found, hits, store))
}

impl Step {
    pub(crate) fn new(trace: Trace, hits: usize, store: &PassageStore) -> Self {
        let title = |passage: PassageId| store.page_title(store.page_of(passage)).to_owned();
        let found = trace.hits.iter().take(hits).map(|hit| Found {
            passage: hit.passage.0,
            wikipedia_id: store.page_id(store.page_of(hit.passage)).to_owned(),
            title: title(hit.passage),
            score: hit.score,
        });
        let sets = trace.sets.iter().take(hits).map(|(passages, score)| Together {
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
            writeln!(f, "{indent}  {:10.4}  {} ({})", hit.score, hit.title, hit.wikipedia_id)?;
        }
        for set in &self.sets {
            writeln!(f, "{indent}  {:10.4}  {}", set.score, set.titles.join(" + "))?;
        }
        self.parts.iter().try_for_each(|part| part.write(f, depth + 1))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
