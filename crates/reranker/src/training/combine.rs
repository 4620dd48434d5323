//! The options of a weighted sum of similarities.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Check, Document};

/// `[combine]`: a weighted sum of similarities, for the kinds `cross-encoder`, `bi-encoder` and `cosine`. Each similarity is
/// standardised to mean 0 and standard deviation 1 over the sentences of a dialogue. The weights are trained first, with a
/// listwise loss. A cross-encoder or bi-encoder is then trained with the sum as an offset, and its scores are added to the
/// sum. With the kind `cosine`, the sum is the score.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CombineOptions {
    /// Adds the tf-idf similarity of dialogue and sentence. Its document frequencies count a whole dialogue as one document.
    pub tfidf: bool,
    /// Adds the tf-idf similarity of dialogue and title.
    pub title: bool,
    /// Adds the cosine of the initial encoder.
    pub cosine: bool,
    /// Adds the best and the mean `tfidf` and `cosine` over the sentences of the same article.
    pub article: bool,
    /// Numbers of last turns, such as `[1, 2]`. For each number, adds `tfidf`, `title` and `cosine` with these turns only.
    #[schemars(inner(range(min = 1)))]
    pub turns: Vec<usize>,
    /// Adds the mean cosine with the sentences of the dialogue. It needs `cosine`.
    pub central: bool,
    /// Adds 1 if the dialogue contains the title, and 0 otherwise.
    pub named: bool,
    /// Adds 1 for the first sentence of an article, 1/2 for the second, and so on.
    pub place: bool,
}

impl Check for CombineOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        let Self { tfidf, title, cosine, article, ref turns, central, .. } = *self;
        let mut report = |name: &str, message: &str| document.report_key(&format!("{key}.{name}"), message);
        if central && !cosine {
            report("central", "expected `cosine = true` as well");
        }
        if article && !cosine && !tfidf {
            report("article", "expected `cosine = true` or `tfidf = true` as well");
        }
        if turns.contains(&0) {
            report("turns", "expected numbers of at least 1, found 0");
        }
        if !(turns.is_empty() || cosine || tfidf || title) {
            report("turns", "expected `cosine`, `tfidf` or `title` as well");
        }
    }
}
