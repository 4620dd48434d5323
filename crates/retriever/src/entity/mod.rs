//! Entity retrieval: names in texts, and the pages that they may mean.
//!
//! [`Aliases`] maps names to pages with frequencies, like an anchor dictionary (V. Spitkovsky and A. Chang,
//! LREC 2012). [`EntityRetriever`] finds the pages that a query names.

pub(crate) mod aliases;
mod mentions;
mod options;
mod retriever;

pub use aliases::{Alias, Aliases};
pub use mentions::{Mention, mentions};
pub use options::EntityRetrieverOptions;
pub use retriever::{EntityOptions, EntityRetriever};
