//! The knowledge source of a config: its passage store, and its pages by the names of other data sets.

pub(crate) mod options;
pub(crate) mod pages;
pub(crate) mod store;
