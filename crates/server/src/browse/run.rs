//! A finished run under a name.

use schemars::JsonSchema;
use serde::Serialize;
use sporran_kilt::PassageStore;
use sporran_pipeline::review::{ExampleFilter, Examples, Overview, Review};

use super::Named;
use crate::{Failure, Result};

/// A run under a name.
pub(crate) struct Run {
    name: String,
    review: Review,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RunSummary {
    /// The name.
    name: String,
    /// The workflow of its config.
    workflow: String,
    /// The number of predictions.
    records: usize,
}

/// A run with its cost and its scores.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RunReport {
    /// The name.
    name: String,
    /// The mount whose passages the run retrieved from.
    #[serde(skip_serializing_if = "Option::is_none")]
    mount: Option<String>,
    /// The cost and the scores.
    #[serde(flatten)]
    pub(crate) overview: Overview,
}

impl Run {
    /// Reads a run.
    ///
    /// # Errors
    /// Those of [`Review::open`].
    pub(crate) fn open(Named { name, path }: &Named) -> Result<Self> {
        Ok(Self { name: name.clone(), review: Review::open(path)? })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn summary(&self) -> RunSummary {
        let Self { name, review } = self;
        RunSummary { name: name.clone(), workflow: review.workflow().to_owned(), records: review.records() }
    }

    /// The cost and the scores. `stores` are the mounts with their passages.
    pub(crate) fn report<'s>(
        &self,
        stores: impl IntoIterator<Item = (&'s str, &'s PassageStore)>,
    ) -> RunReport {
        let own = self.review.store();
        let mount =
            stores.into_iter().find(|(_, store)| Some(store.hash()) == own).map(|(name, _)| name.to_owned());
        RunReport { name: self.name.clone(), mount, overview: self.review.overview() }
    }

    /// The page of the run's report, if there is one.
    pub(crate) fn report_page(&self) -> Option<Vec<u8>> {
        std::fs::read(self.review.report_page()).ok()
    }

    /// The predictions that pass a filter.
    ///
    /// # Errors
    /// A file that the run lacks, and predictions that can no longer be read.
    pub(crate) fn examples(&self, filter: &ExampleFilter) -> Result<Examples, Failure> {
        self.review.examples(filter).map_err(|error| match error {
            sporran_pipeline::Error::Kilt(sporran_kilt::Error::Argument(message)) => {
                Failure::invalid("file", message)
            }
            error => Failure::internal(error),
        })
    }
}
