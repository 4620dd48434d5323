//! Training code that all workflows share: initial models, sessions and results.

pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod pace;
pub(crate) mod reader;
pub(crate) mod session;
