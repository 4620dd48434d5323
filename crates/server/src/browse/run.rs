//! A finished run under a name.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

use schemars::JsonSchema;
use serde::Serialize;
use sporran_kilt::{PassageStore, with_causes};
use sporran_pipeline::review::{ExampleFilter, Examples, Overview, Review};

use super::Named;
use crate::{Cause, Failure, Result};

/// The seconds after which a run that is being written may be complete.
const RETRY: u64 = 10;

/// A run under a name.
pub(crate) struct Run {
    name: String,
    path: PathBuf,
    review: RwLock<Arc<Review>>,
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
        let review = RwLock::new(Arc::new(Review::open(path)?));
        Ok(Self { name: name.clone(), path: path.clone(), review })
    }

    /// The run that is in the folder now: what is shown is of one run, also after another was written there.
    fn review(&self) -> Result<Arc<Review>, Failure> {
        let known = Arc::clone(&self.review.read().unwrap_or_else(PoisonError::into_inner));
        if known.is_current() {
            return Ok(known);
        }
        let fresh = Review::open(&self.path).map_err(|error| {
            let message =
                format!("the run `{}` has changed and is not complete yet; try again later", self.name);
            let detail = Some(with_causes(&error));
            Failure { retry_after: Some(RETRY), detail, ..Failure::new(Cause::Changing, message) }
        })?;
        let fresh = Arc::new(fresh);
        *self.review.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
        Ok(fresh)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The run in a list: as it was read last if it is being written.
    pub(crate) fn summary(&self) -> RunSummary {
        let known = || Arc::clone(&self.review.read().unwrap_or_else(PoisonError::into_inner));
        let review = self.review().unwrap_or_else(|_| known());
        let (workflow, records) = (review.workflow().to_owned(), review.records());
        RunSummary { name: self.name.clone(), workflow, records }
    }

    /// The cost and the scores. `stores` are the mounts with their passages.
    ///
    /// # Errors
    /// A run that is being written.
    pub(crate) fn report<'s>(
        &self,
        stores: impl IntoIterator<Item = (&'s str, &'s PassageStore)>,
    ) -> Result<RunReport, Failure> {
        let review = self.review()?;
        let own = review.store();
        let mount =
            stores.into_iter().find(|(_, store)| Some(store.hash()) == own).map(|(name, _)| name.to_owned());
        Ok(RunReport { name: self.name.clone(), mount, overview: review.overview() })
    }

    /// The page of the run's report, if there is one.
    ///
    /// # Errors
    /// A run that is being written.
    pub(crate) fn report_page(&self) -> Result<Option<Vec<u8>>, Failure> {
        Ok(std::fs::read(self.review()?.report_page()).ok())
    }

    /// The predictions that pass a filter.
    ///
    /// # Errors
    /// A file that the run lacks, a run that is being written, and predictions that can no longer be read.
    pub(crate) fn examples(&self, filter: &ExampleFilter) -> Result<Examples, Failure> {
        self.review()?.examples(filter).map_err(|error| match error {
            sporran_pipeline::Error::Kilt(sporran_kilt::Error::Argument(message)) => {
                Failure::invalid("file", message)
            }
            error => Failure::internal(error),
        })
    }
}
