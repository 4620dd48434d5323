//! Task files: options, loading of records, and conversion to queries.

pub(crate) mod files;
pub(crate) mod loader;
pub(crate) mod options;
pub(crate) mod query;
