//! Statistics of data sets, one file a layout.

pub mod records;
mod relevance;
mod votes;
pub mod wowpp;
