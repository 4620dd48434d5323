//! What the header of a dense index says.

use serde::{Deserialize, Serialize};

use super::{IndexOptions, Recall, Similarity};
use crate::layout::{self, Section};

/// The kind of every dense index in a header; `index` says more.
pub(crate) const KIND: &str = "dense";

/// What an index is and of which files it consists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Header {
    /// [`KIND`].
    pub(crate) kind: String,
    /// What it was built with.
    pub(crate) index: IndexOptions,
    /// How near two vectors are.
    pub(crate) similarity: Similarity,
    /// The width of a vector.
    pub(crate) dim: usize,
    /// How many vectors it holds.
    pub(crate) passages: u32,
    /// Hash of the passages.
    pub(crate) passages_hash: String,
    /// Hash of what made their vectors.
    pub(crate) encoder_hash: String,
    /// How well it finds.
    pub(crate) report: Report,
    /// The files beside the header.
    pub(crate) sections: Vec<Section>,
}

/// How well an index finds, as measured when it was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Report {
    /// What it finds of what an exact search finds, with the options that it was built with; none for one that is exact.
    pub recall: Option<Recall>,
    /// Vectors that searches by themselves did not find after the graph was built, and that were given other links.
    pub lost: u32,
    /// Vectors that searches by themselves still do not find.
    pub unrepaired: u32,
}

impl layout::Header for Header {
    const VERSION: u32 = 1;

    fn kind(&self) -> &str {
        &self.kind
    }

    fn passages_hash(&self) -> &str {
        &self.passages_hash
    }

    fn sections(&self) -> &[Section] {
        &self.sections
    }
}
