//! `[source]` and `[pages]` of a config.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{PassageSplit, formats::Collection};

/// `[source]`: the pages, and their splitting into passages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceOptions {
    /// The knowledge source in KILT's layout: JSON lines, plain, gzip or zstd.
    pub path: PathBuf,
    /// The format of another collection of documents, which is read without a conversion: `beir`, `anserini`, `msmarco`,
    /// `psgs-tsv` or `passages`. `path` can then be its folder. Each document is a page. The default is KILT's layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<Collection>,
    /// The file of redirects, with lines of `title TAB target title`.
    pub redirects: Option<PathBuf>,
    /// The unit of passages: `words` (100 words, as in KILT's published passages), `paragraph`, `section` or `page`.
    #[serde(default)]
    pub split: PassageSplit,
    /// The folder of the passage store and the indexes. Each is built once for its content and options.
    #[serde(default = "indexes")]
    pub indexes: PathBuf,
}

fn indexes() -> PathBuf {
    "indexes".into()
}

/// `[pages]`: the pages of the source to search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PagesOptions {
    /// A file with a page's id or title in each line.
    pub file: PathBuf,
    /// Whether to exclude the listed pages, instead of the others.
    #[serde(default)]
    pub exclude: bool,
}
