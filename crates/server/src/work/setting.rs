//! What workers need besides their work.

use std::sync::Arc;

use super::{queue::Bounds, worker::Worker};
use crate::{Error, Failure, Limits, Result, metrics::Metrics};

/// The limits and the metrics of a server.
#[derive(Clone)]
pub(crate) struct Setting {
    /// The limits.
    pub(crate) limits: Limits,
    /// The metrics.
    pub(crate) metrics: Arc<Metrics>,
}

impl Setting {
    /// The bounds of a worker's queue.
    pub(crate) fn bounds(&self) -> Bounds {
        let Limits { waiting, batch_tokens, window, .. } = self.limits;
        Bounds { waiting, batch: batch_tokens, window }
    }

    /// Starts a [`Worker`].
    ///
    /// # Errors
    /// [`Error::Io`] on a system without threads.
    pub(crate) fn worker<I: Send + 'static, O: Send + 'static>(
        &self,
        name: &str,
        work: impl FnMut(&[I]) -> Result<Vec<O>, Failure> + Send + 'static,
    ) -> Result<Worker<I, O>> {
        Worker::start(name, self.bounds(), self.metrics.worker(name), work).map_err(thread)
    }
}

/// The error of a thread that does not start.
pub(crate) fn thread(source: std::io::Error) -> Error {
    Error::Io { what: "starting a thread".to_owned(), source }
}
