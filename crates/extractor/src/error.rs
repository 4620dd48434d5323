//! What can go wrong when facts are extracted.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Every way in which extraction can fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A document or another input file.
    #[error(transparent)]
    Kilt(#[from] sporran_kilt::Error),
}
