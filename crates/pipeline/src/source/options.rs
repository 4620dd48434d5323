//! `[source]` and `[pages]` of a config.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::PassageSplit;

/// `[source]`: pages, and how they are cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SourceOptions {
    /// The knowledge source in KILT's layout: JSON lines, plain, gzip or zstd.
    pub path: PathBuf,
    /// Redirects: lines of `title TAB target title`.
    pub redirects: Option<PathBuf>,
    /// `words` (100 words, as KILT's published passages), `paragraph`, `section` or `page`.
    #[serde(default)]
    pub split: PassageSplit,
    /// Where the passage store and the indexes go; each is built once for its content and options.
    #[serde(default = "indexes")]
    pub indexes: PathBuf,
}

fn indexes() -> PathBuf {
    "indexes".into()
}

/// `[pages]`: which pages of the source can be found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PagesOptions {
    /// A page's id or title a line.
    pub file: PathBuf,
    /// Whether the listed pages are left out, rather than all others.
    #[serde(default)]
    pub exclude: bool,
}
