//! DrQA's tf-idf over hashed unigrams and bigrams.
//!
//! D. Chen, A. Fisch, J. Weston and A. Bordes, "Reading Wikipedia to Answer Open-Domain Questions", ACL 2017, section 3.1,
//! with the weights of its code: passages and queries are vectors with `ln(1 + tf) * idf` in each n-gram's bucket, where
//! `idf = max(0, ln((N - df + 0.5) / (df + 0.5)))`, and a passage's score is their dot product. DrQA retrieves whole pages.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId, Query, folder::Place};

use super::{
    analyzer::is_false,
    builder::{self, Build, Model},
    index::{Index, Statistics},
    ngrams::{Tokens, bucket},
    parts,
    plan::plan,
    postings::{Cursor, Scorer},
    scripts,
    search::Pruning,
    segment::SegmentBuilder,
    sharded::Sharded,
};
use crate::{Error, IndexPlan, PassageFilter, PlannedPassages, Result, Retriever};

/// Options of indexing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TfIdfOptions {
    /// The largest number of tokens in an n-gram, from 1; 2 in DrQA's model.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub ngrams: u32,
    /// The number of buckets for n-grams, from 1; 16,777,216 in DrQA's model.
    #[schemars(range(min = 1))]
    pub buckets: u32,
    /// The tokenizer: `drqa` or `unicode`. The last is for text in any script.
    #[serde(skip_serializing_if = "is_drqa")]
    pub tokenizer: NgramTokenizer,
    /// With the tokenizer `unicode`: whether accents are dropped, as in the analyzer of `bm25`.
    #[serde(skip_serializing_if = "is_false")]
    pub fold_accents: bool,
}

/// The tokens of n-grams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NgramTokenizer {
    /// DrQA's: runs of letters, numbers and marks in normal form D, and single other visible characters.
    #[default]
    Drqa,
    /// Words of any script, in normal form C: runs of letters, digits, underscores and the marks on them. Chinese, Japanese,
    /// Korean, Thai, Lao, Khmer and Burmese give single characters, so that n-grams of two are pairs of them.
    Unicode,
}

/// The default is left out of the keys of indexes and runs.
fn is_drqa(tokenizer: &NgramTokenizer) -> bool {
    *tokenizer == NgramTokenizer::Drqa
}

impl Default for TfIdfOptions {
    fn default() -> Self {
        Self { ngrams: 2, buckets: 1 << 24, tokenizer: NgramTokenizer::Drqa, fold_accents: false }
    }
}

impl TfIdfOptions {
    fn check(&self) -> Result<()> {
        for (option, value) in [("ngrams", self.ngrams), ("buckets", self.buckets)] {
            if value == 0 {
                return Err(Error::Option { option, expected: "a number from 1", found: "0".into() });
            }
        }
        if self.fold_accents && self.tokenizer == NgramTokenizer::Drqa {
            let expected = "false, unless the tokenizer is `unicode`";
            return Err(Error::Option { option: "fold-accents", expected, found: "true".into() });
        }
        Ok(())
    }
}

/// `ln(1 + tf)`, from a table for the usual counts.
pub(crate) struct LogCount(Vec<f32>);

impl LogCount {
    fn new() -> Self {
        Self((0..1024).map(Self::exact).collect())
    }

    fn exact(count: u32) -> f32 {
        f64::from(count).ln_1p() as f32
    }
}

impl Scorer for LogCount {
    #[inline]
    fn impact(&self, _: u32, count: u32) -> f32 {
        self.0.get(count as usize).copied().unwrap_or_else(|| Self::exact(count))
    }
}

pub(crate) struct TfIdfModel(TfIdfOptions);

impl TfIdfModel {
    fn push(&self, text: &str, tokens: &mut Tokens) {
        match self.0.tokenizer {
            NgramTokenizer::Drqa => tokens.push_text(text),
            NgramTokenizer::Unicode => tokens.push_units(text, self.0.fold_accents),
        }
    }

    fn buckets(&self, tokens: &Tokens, mut each: impl FnMut(u32)) {
        tokens.ngrams(self.0.ngrams as usize, |ngram| each(bucket(ngram, self.0.buckets)));
    }
}

impl Model for TfIdfModel {
    type Cache = (Tokens, FxHashMap<u32, u32>);
    type Scorer<'a> = LogCount;
    const KIND: &'static str = "tfidf";
    const HAS_NORMS: bool = false;

    fn terms(&self, query: &str) -> Vec<Vec<u8>> {
        let mut tokens = Tokens::default();
        self.push(query, &mut tokens);
        let mut terms = Vec::new();
        self.buckets(&tokens, |bucket| terms.push(bucket.to_be_bytes().to_vec()));
        terms
    }

    fn weight(&self, passages: u32, occurrences: u32, with_term: u32) -> f32 {
        let [passages, with_term] = [passages, with_term].map(f64::from);
        let idf = ((passages - with_term + 0.5) / (with_term + 0.5)).ln().max(0.0);
        // Once for the query's vector and once for the passage's.
        (f64::from(occurrences).ln_1p() * idf * idf) as f32
    }

    fn count(
        &self,
        title: &str,
        text: &str,
        (tokens, known): &mut Self::Cache,
        segment: &mut SegmentBuilder,
    ) {
        tokens.clear();
        self.push(title, tokens);
        self.push(text, tokens);
        self.buckets(tokens, |bucket| {
            // Big-endian, so that the byte order is the order of buckets.
            let term = *known.entry(bucket).or_insert_with(|| segment.intern(&bucket.to_be_bytes()));
            segment.count(term, 1);
        });
    }

    fn norms(&self, _: &[u32]) -> Vec<[u8; 4]> {
        Vec::new()
    }

    fn lost(&self, text: &str) -> (u64, u64) {
        let letters = || text.chars().filter(|&c| scripts::is_letter(c));
        // DrQA's token is the whole run of a script without blanks between words.
        let is_lost = |&c: &char| self.0.tokenizer == NgramTokenizer::Drqa && scripts::is_unspaced(c);
        (letters().count() as u64, letters().filter(is_lost).count() as u64)
    }

    fn scorer(&self, _: &[[u8; 4]]) -> LogCount {
        LogCount::new()
    }
}

/// A memory-mapped tf-idf index.
///
/// The index's files must not be changed while it is open; building a new one at the same path is fine.
pub struct TfIdf {
    model: TfIdfModel,
    index: Index,
}

impl TfIdf {
    /// Indexes passages `(id, title, text)`, whose ids count from 0, and puts the index in a folder, as
    /// [`Bm25::build`](super::Bm25::build) does. Title and text are one text. `passages_hash` identifies the
    /// set of passages; the index opens only with the same hash.
    ///
    /// # Errors
    /// As [`Bm25::build`](super::Bm25::build).
    pub fn build<P, T, U, E>(
        options: &TfIdfOptions,
        passages: P,
        passages_hash: &str,
        place: impl Into<Place>,
        build: Build<'_>,
    ) -> Result<()>
    where
        P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
        T: AsRef<str>,
        U: AsRef<str>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        options.check()?;
        builder::build(&TfIdfModel(options.clone()), options, passages, passages_hash, place.into(), build)
    }

    /// Merges indexes of consecutive parts of the passages, as [`Bm25::merge`](super::Bm25::merge) does.
    ///
    /// # Errors
    /// As [`Bm25::merge`](super::Bm25::merge).
    pub fn merge(
        options: &TfIdfOptions,
        parts: &[PathBuf],
        passages: (&str, usize),
        place: impl Into<Place>,
        build: Build<'_>,
    ) -> Result<()> {
        options.check()?;
        parts::merge(&TfIdfModel(options.clone()), options, parts, passages, place.into(), build)
    }

    /// Opens the indexes of consecutive parts of so many passages as one.
    ///
    /// # Errors
    /// As [`Bm25::open_parts`](super::Bm25).
    pub(crate) fn open_parts(
        options: &TfIdfOptions,
        parts: &[PathBuf],
        passages: usize,
    ) -> Result<Sharded<TfIdfModel>> {
        options.check()?;
        Sharded::open(TfIdfModel(options.clone()), options, parts, passages)
    }

    /// Estimates the resources of [`build`](Self::build) from a sample of the passages.
    ///
    /// # Errors
    /// As [`build`](Self::build), for an index over the sample in a temporary folder.
    pub fn plan(options: &TfIdfOptions, passages: PlannedPassages<'_>) -> Result<IndexPlan> {
        options.check()?;
        plan(&TfIdfModel(options.clone()), options, passages)
    }

    /// Opens the index in a folder, which must be over the passages with this hash. Verifies the files'
    /// checksums: at each opening, or once for a large index (see [`sporran_kilt::folder::Contents`]).
    ///
    /// # Errors
    /// As [`Bm25::open`](super::Bm25::open).
    pub fn open(dir: impl AsRef<Path>, passages_hash: &str) -> Result<Self> {
        Self::of(Index::open::<TfIdfModel>(dir.as_ref(), passages_hash)?)
    }

    fn of(index: Index) -> Result<Self> {
        let options: TfIdfOptions = index.options()?;
        options.check()?;
        Ok(Self { model: TfIdfModel(options), index })
    }

    /// The options of its build.
    pub fn options(&self) -> &TfIdfOptions {
        &self.model.0
    }

    /// The size of the index.
    pub fn statistics(&self) -> Statistics {
        self.index.statistics()
    }

    /// Reads the whole index and verifies its checksums.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Checksum`] for the first damaged file.
    pub fn verify(&self) -> Result<()> {
        self.index.verify()
    }

    fn cursors(&self, query: &str) -> Result<Vec<Cursor<'_>>> {
        let passages = self.index.header().passages;
        let weight = |occurrences, with_term| self.model.weight(passages, occurrences, with_term);
        self.index.cursors(self.model.terms(query), weight)
    }

    /// The same as [`Retriever::retrieve`], by scoring every passage that shares an n-gram with the query:
    /// the reference implementation of the search with pruning.
    ///
    /// # Errors
    /// As [`Retriever::retrieve`].
    pub fn retrieve_exhaustively(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.index.retrieve(&self.model, (queries, None), k, Pruning::Off, |query| self.cursors(query))
    }
}

impl Retriever for TfIdf {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.index.retrieve(&self.model, (queries, None), k, Pruning::On, |query| self.cursors(query))
    }

    fn retrieve_filtered(
        &self,
        queries: &[Query],
        k: usize,
        filter: &PassageFilter<'_>,
    ) -> Result<Vec<Vec<Hit>>> {
        let queries = (queries, Some(filter));
        self.index.retrieve(&self.model, queries, k, Pruning::On, |query| self.cursors(query))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::sparse::builder::Build;

    fn built(options: &TfIdfOptions, pages: &[(String, String)]) -> (tempfile::TempDir, TfIdf) {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("index");
        let passages =
            (0..).zip(pages).map(|(id, (title, text))| Ok::<_, Infallible>((PassageId(id), title, text)));
        TfIdf::build(options, passages, "pages", &dir, Build::new(&mut |_| {})).unwrap();
        let index = TfIdf::open(&dir, "pages").unwrap();
        (place, index)
    }

    fn query(text: &str) -> Query {
        Query::of_text("q", text)
    }

    /// The module's formula, with vectors as maps and everything in `f64`.
    fn naive(options: &TfIdfOptions, pages: &[(String, String)], query: &str) -> Vec<f64> {
        let counts = |texts: &[&str]| {
            let mut tokens = Tokens::default();
            texts.iter().for_each(|text| tokens.push_text(text));
            let mut counts: FxHashMap<u32, f64> = FxHashMap::default();
            tokens.ngrams(options.ngrams as usize, |ngram| {
                *counts.entry(bucket(ngram, options.buckets)).or_default() += 1.0;
            });
            counts
        };
        let pages: Vec<_> = pages.iter().map(|(title, text)| counts(&[title, text])).collect();
        let n = pages.len() as f64;
        let idf = |bucket: &u32| {
            let df = pages.iter().filter(|page| page.contains_key(bucket)).count() as f64;
            ((n - df + 0.5) / (df + 0.5)).ln().max(0.0)
        };
        let query = counts(&[query]);
        pages
            .iter()
            .map(|page| {
                let shared =
                    query.iter().filter_map(|(bucket, count)| Some((bucket, count, page.get(bucket)?)));
                shared.map(|(bucket, a, b)| a.ln_1p() * b.ln_1p() * idf(bucket).powi(2)).sum()
            })
            .collect()
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec("[a-h]{1,2}|the|,|\u{e9}t\u{e9}", 0..25).prop_map(|words| words.join(" "))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn scores_are_the_naive_scorers(
            pages in prop::collection::vec(("[a-c]{0,2}", text()), 1..40),
            asked in text(),
            k in 1usize..50,
            small in any::<bool>(),
        ) {
            // Few buckets make n-grams collide.
            let buckets = if small { 7 } else { 1 << 24 };
            let options = TfIdfOptions { buckets, ..TfIdfOptions::default() };
            let (_place, index) = built(&options, &pages);
            let expected = naive(&options, &pages, &asked);
            let found = index.retrieve(&[query(&asked)], k).unwrap().remove(0);
            prop_assert_eq!(found.len(), expected.iter().filter(|&&score| score > 0.0).count().min(k));
            for hit in &found {
                let score = expected[hit.passage.index()];
                prop_assert!((f64::from(hit.score) - score).abs() <= 1e-5 * score, "{} {}", hit.score, score);
            }
            prop_assert!(found.is_sorted_by(|a, b| (b.score, a.passage) <= (a.score, b.passage)));
            let least = found.last().map_or(0.0, |hit| f64::from(hit.score));
            let taken: Vec<_> = found.iter().map(|hit| hit.passage.index()).collect();
            for (page, &score) in expected.iter().enumerate().filter(|(page, _)| !taken.contains(page)) {
                prop_assert!(found.len() < k || score <= least * (1.0 + 1e-5), "{page}");
            }
            prop_assert_eq!(found, index.retrieve_exhaustively(&[query(&asked)], k).unwrap().remove(0));
            // With a filter, the ranking is that of all pages without the others.
            let wanted = |page: PassageId| page.0 % 3 == 1;
            let mut rest = index.retrieve_exhaustively(&[query(&asked)], pages.len()).unwrap().remove(0);
            rest.retain(|hit| wanted(hit.passage));
            rest.truncate(k);
            prop_assert_eq!(index.retrieve_filtered(&[query(&asked)], k, &wanted).unwrap(), [rest]);
        }
    }

    #[test]
    fn an_ngram_in_more_than_half_of_the_pages_counts_nothing() {
        let pages =
            ["red green", "red blue", "red yellow", "black"].map(|text| (String::new(), text.to_owned()));
        let (_place, index) = built(&TfIdfOptions::default(), &pages);
        // df of "red" is 3 of 4, so its idf is cut off at 0; "blue" and "red blue" have ln(3.5 / 1.5).
        assert_eq!(index.retrieve(&[query("red")], 5).unwrap(), [vec![]]);
        let hits = index.retrieve(&[query("Red BLUE")], 5).unwrap().remove(0);
        let idf = (3.5f64 / 1.5).ln();
        let expected = 2.0 * (2f64.ln() * idf).powi(2);
        assert_eq!(hits.len(), 1);
        assert_eq!(hits[0].passage, PassageId(1));
        assert!((f64::from(hits[0].score) - expected).abs() < 1e-6 * expected);
    }

    #[test]
    fn text_in_any_script_is_found() {
        let pages = ["北京大学是大学。", "清华大学", "中国的长城", "हिन्दी भाषा", "été à Zürich"]
            .map(|text| (String::new(), text.to_owned()));
        let options = TfIdfOptions {
            tokenizer: NgramTokenizer::Unicode,
            fold_accents: true,
            ..TfIdfOptions::default()
        };
        let (_place, index) = built(&options, &pages);
        for (asked, page) in [("北京", 0), ("清华", 1), ("长城", 2), ("भाषा", 3), ("zurich", 4)]
        {
            let found = index.retrieve(&[query(asked)], 5).unwrap().remove(0);
            assert_eq!(found.first().map(|hit| hit.passage), Some(PassageId(page)), "{asked}");
        }
        let before = r#"{"ngrams":2,"buckets":16777216}"#;
        assert_eq!(serde_json::to_string(&TfIdfOptions::default()).unwrap(), before);
    }

    #[test]
    fn options_out_of_range_are_errors() {
        let place = tempfile::tempdir().unwrap();
        let none = std::iter::empty::<Result<(PassageId, &str, &str), Infallible>>();
        let options = TfIdfOptions { buckets: 0, ..TfIdfOptions::default() };
        let error =
            TfIdf::build(&options, none, "", place.path().join("i"), Build::new(&mut |_| {})).unwrap_err();
        assert!(matches!(error, Error::Option { option: "buckets", .. }));
    }
}
