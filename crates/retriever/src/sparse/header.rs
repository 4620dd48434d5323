//! What the header of a sparse index says.

use serde::{Deserialize, Serialize};

use crate::layout::{self, Section};

/// What an index is and of which files it consists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Header {
    /// What kind of index: `bm25`, `tfidf`.
    pub(crate) kind: String,
    /// The options that it was built with.
    pub(crate) options: serde_json::Value,
    /// How many passages it covers.
    pub(crate) passages: u32,
    /// Hash of the passages.
    pub(crate) passages_hash: String,
    /// How many different terms it holds.
    pub(crate) terms: u32,
    /// How many pairs of a term and a passage it holds.
    pub(crate) postings: u64,
    /// How many terms the passages hold, repetitions included.
    pub(crate) tokens: u64,
    /// The files beside the header.
    pub(crate) sections: Vec<Section>,
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
