//! Work that reads files or much memory, away from the threads that answer requests.

use crate::Failure;

/// Does work on a thread that may wait for a disk.
///
/// # Errors
/// Those of the work, and a panic in it.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(Failure::internal)?
}
