//! What can go wrong when a knowledge base is reasoned over.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which reasoning can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An input file.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
}
