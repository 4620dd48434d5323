//! What the page shows besides answers: documents with marked passages, finished runs and knowledge bases.
//!
//! Runs and knowledge bases have their names from the options of the server. No request names a folder.

mod document;
mod knowledge;
mod options;
mod run;

pub(crate) use document::{DocumentPlace, PlacedDocument, PlacedDocuments};
pub(crate) use knowledge::{Completion, Completions, Entities, EntityPage};
use knowledge::{Knowledge, KnowledgeSummary};
pub use options::{BrowseOptions, KnowledgeOptions, Named};
use run::RunSummary;
pub(crate) use run::{Run, RunReport};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Failure, Result};

/// The runs and the knowledge bases that the page shows.
pub(crate) struct Browse {
    runs: Vec<Run>,
    knowledge: Vec<Knowledge>,
}

/// The names of runs and knowledge bases, with their sizes.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct BrowseSummary {
    /// The runs.
    runs: Vec<RunSummary>,
    /// The knowledge bases.
    knowledge: Vec<KnowledgeSummary>,
}

impl Browse {
    /// Reads the runs and the knowledge bases of the options.
    ///
    /// # Errors
    /// Errors of their files.
    pub(crate) fn open(options: &BrowseOptions) -> Result<Self> {
        let runs = options.runs.iter().map(Run::open).collect::<Result<_>>()?;
        let knowledge = options.knowledge.iter().map(Knowledge::open).collect::<Result<_>>()?;
        Ok(Self { runs, knowledge })
    }

    pub(crate) fn summary(&self) -> BrowseSummary {
        let runs = self.runs.iter().map(Run::summary).collect();
        BrowseSummary { runs, knowledge: self.knowledge.iter().map(Knowledge::summary).collect() }
    }

    /// The runs, in the order of the options.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The run of a name.
    ///
    /// # Errors
    /// A name that is not there.
    pub(crate) fn run(&self, name: &str) -> Result<&Run, Failure> {
        let names = || self.runs.iter().map(Run::name);
        self.runs
            .iter()
            .find(|run| run.name() == name)
            .ok_or_else(|| Failure::not_found("run", name, names()))
    }

    /// The knowledge base of a name.
    ///
    /// # Errors
    /// A name that is not there.
    pub(crate) fn knowledge(&self, name: &str) -> Result<&Knowledge, Failure> {
        let names = || self.knowledge.iter().map(Knowledge::name);
        let found = self.knowledge.iter().find(|base| base.name() == name);
        found.ok_or_else(|| Failure::not_found("knowledge base", name, names()))
    }
}
