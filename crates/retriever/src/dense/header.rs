//! The header of a dense index.

use serde::{Deserialize, Serialize};

use super::{IndexOptions, Recall, Similarity};
use crate::layout::{self, Section};

/// The kind of every dense index in a header; `index` has the details.
pub(crate) const KIND: &str = "dense";

/// The description of an index and its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Header {
    /// [`KIND`].
    pub(crate) kind: String,
    /// The options of its build.
    pub(crate) index: IndexOptions,
    /// The similarity of vectors.
    pub(crate) similarity: Similarity,
    /// The length of a vector.
    pub(crate) dim: usize,
    /// The number of vectors.
    pub(crate) passages: u32,
    /// Hash of the passages.
    pub(crate) passages_hash: String,
    /// Hash of the encoder.
    pub(crate) encoder_hash: String,
    /// The measured quality of the index.
    pub(crate) report: Report,
    /// The other files of the folder.
    pub(crate) sections: Vec<Section>,
}

/// The quality of an index, measured when it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Report {
    /// The recall compared with an exact search, with the options of the build; none for an exact index.
    pub recall: Option<Recall>,
    /// Vectors that a search for themselves did not find after the graph was built, and that got other links.
    pub lost: u32,
    /// Vectors that a search for themselves still does not find.
    pub unrepaired: u32,
}

layout::header!(Header, 1);
