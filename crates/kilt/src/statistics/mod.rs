//! Statistics of data sets, one file a layout.

pub mod korc;
pub mod records;
