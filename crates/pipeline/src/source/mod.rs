//! The knowledge source of a config: the passage store, and the mapping of other data sets to pages.

pub mod cache;
pub(crate) mod collection;
pub(crate) mod documents;
pub(crate) mod options;
pub(crate) mod pages;
pub(crate) mod parts;
pub(crate) mod store;
