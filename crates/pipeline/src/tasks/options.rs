//! `[tasks]` and `[query]` of a config.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Dataset, Split};

/// `[tasks]`: task files by folder, split and dataset, or one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TasksOptions {
    /// A folder of task files with KILT's names. Missing files are an error only if `datasets` has them.
    pub folder: Option<PathBuf>,
    /// The split: `train`, `dev` or `test`.
    pub split: Option<Split>,
    /// The datasets of the folder to use. The default is all.
    pub datasets: Vec<Dataset>,
    /// Single task files, in addition to a folder or instead of it.
    pub files: Vec<PathBuf>,
    /// A file of queries, in addition to task files or instead of them: BEIR's `queries.jsonl`, or lines of `id TAB query`, as
    /// MS MARCO and Anserini have them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queries: Option<PathBuf>,
    /// The judgements of `queries`: BEIR's `qrels/test.tsv`, or TREC's `query 0 document grade`. Then only judged queries are
    /// used, and `evaluation.measures` score the ranking. The predictions have the name of this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qrels: Option<PathBuf>,
    /// TriviaQA's original question files, because KILT's files have only ids.
    pub triviaqa: Vec<PathBuf>,
    /// A folder with gold files of the same names, for files without gold answers, such as test files.
    pub gold: Option<PathBuf>,
    /// The number of records of each file to use, the first ones.
    #[schemars(range(min = 1), extend("x-unit" = "records"))]
    pub limit: Option<usize>,
}

/// `[query]`: the conversion of a record's input to the retriever's query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct QueryOptions {
    /// Entity linking: the number of words to keep on each side of the tagged mention.
    #[schemars(extend("x-unit" = "words"))]
    pub mention_context_words: usize,
    /// Entity linking: the weight of words of the mention, relative to words of the context.
    pub mention_weight: usize,
    /// Entity linking: the marks before and after the mention, such as BLINK's `["[unused0]", "[unused1]"]`. The default is no
    /// marks.
    pub mention_marks: Option<[String; 2]>,
    /// Zero-shot slot filling: whether a record's template question replaces subject and relation. `seed` and the record's id draw
    /// it, as for a generator of kind `extractive`.
    pub template_questions: bool,
}

impl Default for QueryOptions {
    fn default() -> Self {
        Self { mention_context_words: 20, mention_weight: 3, mention_marks: None, template_questions: false }
    }
}
