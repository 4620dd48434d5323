//! Task files: where a config names them, how their records are read, and what a retriever is asked.

pub(crate) mod files;
pub(crate) mod loader;
pub(crate) mod options;
pub(crate) mod query;
