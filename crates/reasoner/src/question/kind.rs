//! The operations of every kind of reasoner.

use std::path::Path;

use sporran_config::Document;

/// The options of a kind of reasoner.
///
/// A new kind implements this trait for its options and gets a line in `registry.rs`.
pub trait ReasonerKind {
    /// The model's folder.
    fn model(&self) -> &Path;

    /// Reports wrong values and missing files besides the model. `key` is the path of the table.
    fn check(&self, key: &str, document: &mut Document<'_>);
}
