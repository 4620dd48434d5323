//! Statistics of data sets, one file a layout.

pub mod knowledgenet;
pub mod korc;
pub mod mappings;
pub mod records;
mod relevance;
mod votes;
pub mod wowpp;
