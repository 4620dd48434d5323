//! What the trainings of all workflows share: where they start, how they run, and what they report.

pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod outcome;
pub(crate) mod pace;
pub(crate) mod reader;
pub(crate) mod session;
