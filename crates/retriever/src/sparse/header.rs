//! The header of a sparse index.

use serde::{Deserialize, Serialize};

use crate::layout::{self, Section};

/// The description of an index and its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Header {
    /// The kind of index: `bm25`, `tfidf`.
    pub(crate) kind: String,
    /// The options of its build.
    pub(crate) options: serde_json::Value,
    /// The number of passages.
    pub(crate) passages: u32,
    /// Hash of the passages.
    pub(crate) passages_hash: String,
    /// The number of different terms.
    pub(crate) terms: u32,
    /// The number of pairs of a term and a passage.
    pub(crate) postings: u64,
    /// The number of terms in all passages, repetitions included.
    pub(crate) tokens: u64,
    /// The other files of the folder.
    pub(crate) sections: Vec<Section>,
}

layout::header!(Header, 1);
