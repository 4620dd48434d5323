//! Options of single layouts.

use std::path::PathBuf;

/// Options that only some layouts have. One that is set for another layout is an error.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LayoutOptions {
    /// The seed of random splits and samples; 0 by default.
    pub seed: Option<u64>,
    /// Files or folders with the texts that the inputs refer to: FEVER's `wiki-pages`, WNED's `RawText`.
    pub texts: Vec<PathBuf>,
    /// Tables of names of entities and relations, as in [`crate::kb::read_names`].
    pub names: Vec<PathBuf>,
    /// Wizard of Wikipedia's `topic_splits.json`.
    pub topics: Option<PathBuf>,
    /// The largest number of sentences of a fact; 20 in the paper.
    pub max_sentences: Option<usize>,
    /// The least number of facts of a relation; 1,000 in the paper.
    pub min_facts: Option<usize>,
    /// The number of records in each of `dev` and `test`; 5,000 in the paper.
    pub held_out: Option<usize>,
    /// The share of the links that is used, above 0 and at most 1; all by default.
    pub share: Option<f64>,
}

impl LayoutOptions {
    /// The names of the options that are set.
    pub(super) fn names_of_set(&self) -> Vec<&'static str> {
        [
            ("seed", self.seed.is_some()),
            ("texts", !self.texts.is_empty()),
            ("names", !self.names.is_empty()),
            ("topics", self.topics.is_some()),
            ("max-sentences", self.max_sentences.is_some()),
            ("min-facts", self.min_facts.is_some()),
            ("held-out", self.held_out.is_some()),
            ("share", self.share.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect()
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed.unwrap_or(0)
    }
}
