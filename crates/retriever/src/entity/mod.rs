//! Entities: names in texts, and the pages that they may mean.
//!
//! [`Aliases`] knows by which names pages are called and how often a name means a page, as dictionaries of anchors do (V.
//! Spitkovsky and A. Chang, LREC 2012). [`EntityRetriever`] finds the pages that a query names.

pub(crate) mod aliases;
mod mentions;
mod retriever;

pub use aliases::{Alias, Aliases};
pub use mentions::{Mention, mentions};
pub use retriever::{EntityOptions, EntityRetriever};
