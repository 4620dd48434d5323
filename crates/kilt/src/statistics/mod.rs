//! Statistics of data sets, one file a layout.

pub mod knowledgenet;
pub mod records;
