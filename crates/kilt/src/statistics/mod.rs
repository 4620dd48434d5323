//! Statistics of data sets, one file a layout.

pub mod mappings;
pub mod records;
mod relevance;
mod votes;
pub mod wowpp;
