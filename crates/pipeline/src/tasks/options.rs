//! `[tasks]` and `[query]` of a config.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Dataset, Split};

/// `[tasks]`: task files by folder, split and dataset, or one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TasksOptions {
    /// A folder of task files with KILT's names; files that are not there are left out, unless `datasets` names them.
    pub folder: Option<PathBuf>,
    /// Which of the folder's files: `train`, `dev` or `test`.
    pub split: Option<Split>,
    /// Only these datasets of the folder.
    pub datasets: Vec<Dataset>,
    /// Single task files, beside or instead of a folder.
    pub files: Vec<PathBuf>,
    /// TriviaQA's original question files, since KILT's hold ids only.
    pub triviaqa: Vec<PathBuf>,
    /// A folder with gold files of the same names, for inputs that carry none, such as test files.
    pub gold: Option<PathBuf>,
    /// Only the first records of each file.
    #[schemars(range(min = 1), extend("x-unit" = "records"))]
    pub limit: Option<usize>,
}

/// `[query]`: how a record's input becomes the retriever's query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct QueryOptions {
    /// Entity linking: words kept on each side of the tagged mention; the rest of the document is left out.
    #[schemars(extend("x-unit" = "words"))]
    pub mention_context_words: usize,
    /// Entity linking: how often the mention's words count beside one count for its context's.
    pub mention_weight: usize,
    /// Entity linking: what stands before and behind the mention, such as BLINK's `["[unused0]", "[unused1]"]`; nothing by
    /// default.
    pub mention_marks: Option<[String; 2]>,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self { mention_context_words: 20, mention_weight: 3, mention_marks: None }
    }
}
