//! Workers: threads that compute, each for one model. They gather what waits into batches.

mod generation;
mod queue;
mod setting;
mod worker;

pub(crate) use generation::{Generated, GeneratorWorker, Piece, Prompted, finished};
pub(crate) use queue::size;
pub(crate) use setting::{Setting, thread};
pub(crate) use worker::Worker;

use crate::Failure;

/// Work that reads files or much memory, away from the threads that answer requests.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(Failure::internal)?
}
