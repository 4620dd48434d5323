//! Statistics of data sets, one file a layout.

pub mod records;
