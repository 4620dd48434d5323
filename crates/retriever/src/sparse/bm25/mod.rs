//! BM25 as in Lucene, with exact passage lengths.
//!
//! S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the
//! variant that C. Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020, call "Lucene (accurate)". Each
//! occurrence of a term `t` in the query adds `ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b +
//! b * length / average length))`, with `N` passages of which `df` contain `t`. Lengths count terms without
//! stop words.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId, Query, folder::Place};

use super::{
    analyzer::{Analyzer, AnalyzerOptions},
    builder::{self, Build, Model},
    index::{Index, Statistics},
    parts,
    plan::plan,
    postings::{Cursor, Scorer},
    question::named_in,
    search::Pruning,
    segment::SegmentBuilder,
    sharded::Sharded,
};
use crate::{Error, IndexPlan, PassageFilter, PassageScorer, PlannedPassages, Result, Retriever};

/// Options of indexing and scoring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bm25Options {
    /// The term-frequency saturation: 0 counts a term once, larger values increase the weight of repetitions.
    /// Finite and not negative.
    #[schemars(range(min = 0))]
    pub k1: f64,
    /// The length normalisation: 0 for none, 1 for full.
    #[schemars(range(min = 0, max = 1))]
    pub b: f64,
    /// The weight of a passage's title; its text counts once.
    pub title_weight: u32,
    /// The text analysis.
    pub analyzer: AnalyzerOptions,
    /// Whether queries lose the English words that only make them questions, such as `who`, `which` and an opening `does`,
    /// where other words remain. Passages keep them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drop_question_words: bool,
}

impl Default for Bm25Options {
    /// Anserini's parameters for passages, as in KILT's baselines.
    fn default() -> Self {
        let analyzer = AnalyzerOptions::default();
        Self { k1: 0.9, b: 0.4, title_weight: 1, analyzer, drop_question_words: false }
    }
}

impl Bm25Options {
    fn check(&self) -> Result<()> {
        let found = |value: f64| value.to_string();
        if !(self.k1.is_finite() && self.k1 >= 0.0) {
            return Err(Error::Option { option: "k1", expected: "a number from 0", found: found(self.k1) });
        }
        if !(0.0..=1.0).contains(&self.b) {
            return Err(Error::Option {
                option: "b",
                expected: "a number from 0 to 1",
                found: found(self.b),
            });
        }
        Ok(())
    }
}

/// The length-dependent part of BM25: `k1 * (1 - b + b * length / average length)` for each passage.
pub(crate) struct Saturation<'a>(&'a [[u8; 4]]);

impl Saturation<'_> {
    #[inline]
    fn norm(&self, passage: u32) -> f32 {
        // Every passage has a norm unless a file is damaged.
        self.0.get(passage as usize).map_or(0.0, |bytes| f32::from_le_bytes(*bytes))
    }
}

#[inline]
fn saturate(count: u32, norm: f32) -> f32 {
    // Counts are below 2^31 (`SegmentBuilder::count`), and only signed integers convert to floats four at a
    // time.
    let count = count as i32 as f32;
    count / (count + norm)
}

impl Scorer for Saturation<'_> {
    #[inline]
    fn impact(&self, passage: u32, count: u32) -> f32 {
        saturate(count, self.norm(passage))
    }

    #[inline]
    fn impacts(&self, passages: &[u32], counts: &[u32], impacts: &mut [f32]) {
        // Two loops, because the second one then compiles to vector instructions.
        for (&passage, impact) in passages.iter().zip(&mut *impacts) {
            *impact = self.norm(passage);
        }
        for (&count, impact) in counts.iter().zip(impacts) {
            *impact = saturate(count, *impact);
        }
    }
}

pub(crate) struct Bm25Model {
    options: Bm25Options,
    analyzer: Analyzer,
}

impl Bm25Model {
    fn new(options: Bm25Options) -> Result<Self> {
        options.check()?;
        let analyzer = Analyzer::new(options.analyzer.clone());
        Ok(Self { options, analyzer })
    }
}

/// Known words with the numbers of their terms; [`STOP`] for stop words.
#[derive(Default)]
pub(crate) struct Words {
    known: FxHashMap<Box<str>, u32>,
    buffer: String,
}

const STOP: u32 = u32::MAX;

impl Model for Bm25Model {
    type Cache = Words;
    type Scorer<'a> = Saturation<'a>;
    const KIND: &'static str = "bm25";
    const HAS_NORMS: bool = true;

    fn terms(&self, query: &str) -> Vec<Vec<u8>> {
        let named = self.options.drop_question_words.then(|| self.analyzer.terms(&named_in(query)));
        let terms = named.filter(|terms| !terms.is_empty()).unwrap_or_else(|| self.analyzer.terms(query));
        terms.into_iter().map(String::into_bytes).collect()
    }

    fn weight(&self, passages: u32, occurrences: u32, with_term: u32) -> f32 {
        let [passages, with_term] = [passages, with_term].map(f64::from);
        let idf = ((passages - with_term + 0.5) / (with_term + 0.5)).ln_1p();
        (f64::from(occurrences) * idf) as f32
    }

    fn count(&self, title: &str, text: &str, words: &mut Words, segment: &mut SegmentBuilder) {
        let Words { known, buffer } = words;
        for (field, times) in [(title, self.options.title_weight), (text, 1)] {
            if times == 0 {
                continue;
            }
            self.analyzer.words(field, buffer, |word| {
                let term = known.get(word).copied().unwrap_or_else(|| {
                    let term = self.analyzer.term(word).map_or(STOP, |term| segment.intern(term.as_bytes()));
                    known.insert(word.into(), term);
                    term
                });
                if term != STOP {
                    segment.count(term, times);
                }
            });
        }
    }

    fn norms(&self, lengths: &[u32]) -> Vec<[u8; 4]> {
        let total: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        // Without any term no norm is used.
        let average = (total as f64 / lengths.len() as f64).max(f64::MIN_POSITIVE);
        let Bm25Options { k1, b, .. } = self.options;
        lengths
            .iter()
            .map(|&length| ((k1 * (1.0 - b + b * f64::from(length) / average)) as f32).to_le_bytes())
            .collect()
    }

    fn lost(&self, text: &str) -> (u64, u64) {
        self.analyzer.lost(text)
    }

    fn scorer<'a>(&self, norms: &'a [[u8; 4]]) -> Saturation<'a> {
        Saturation(norms)
    }
}

/// A memory-mapped BM25 index.
///
/// The index's files must not be changed while it is open; building a new one at the same path is fine.
///
/// ```
/// use std::convert::Infallible;
///
/// use sporran_kilt::{PassageId, Query};
/// use sporran_retriever::{
///     Retriever,
///     sparse::{Bm25, Bm25Options, Build},
/// };
///
/// let texts = [("Oslo", "Oslo is the capital of Norway."), ("Bergen", "Bergen is a city on the coast.")];
/// let passages =
///     (0..).zip(texts).map(|(id, (title, text))| Ok::<_, Infallible>((PassageId(id), title, text)));
///
/// // The hash identifies the passages. A store of passages has its own.
/// let folder = tempfile::tempdir()?;
/// let (place, hash) = (folder.path().join("bm25"), "two cities");
/// Bm25::build(&Bm25Options::default(), passages, hash, &place, Build::new(&mut |_progress| {}))?;
///
/// let index = Bm25::open(&place, hash)?;
/// let hits = index.retrieve(&[Query::of_text("q", "Which city is on the coast?")], 10)?;
/// assert_eq!(hits[0][0].passage, PassageId(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bm25 {
    model: Bm25Model,
    index: Index,
}

impl Bm25 {
    /// Indexes passages `(id, title, text)`, whose ids count from 0, and puts the index in a folder. An
    /// existing index is replaced. If another process builds at the same path, this one waits for it first. A
    /// passage's terms are those of its title and then those of its text. `passages_hash` identifies the set
    /// of passages; the index opens only with the same hash.
    ///
    /// # Errors
    /// [`Error::Option`] for parameters out of range, [`Error::Passages`] and [`Error::PassageOrder`] for errors of the
    /// passages, [`sporran_kilt::Error::InTheWay`] if something else is at the index's path, and [`Error::Io`]. After an error,
    /// an existing index is unchanged.
    pub fn build<P, T, U, E>(
        options: &Bm25Options,
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
        let model = Bm25Model::new(options.clone())?;
        builder::build(&model, options, passages, passages_hash, place.into(), build)
    }

    /// Merges indexes of consecutive parts of the passages, in order, to the index of all: the same bytes as
    /// [`build`](Self::build) gives. The passages have a hash and a number. Memory is 8 bytes a passage and the dictionary's
    /// hashes.
    ///
    /// # Errors
    /// [`Error::Part`] for parts of other options or another number of passages; those of [`open`](Self::open) for a part.
    pub fn merge(
        options: &Bm25Options,
        parts: &[PathBuf],
        passages: (&str, usize),
        place: impl Into<Place>,
        build: Build<'_>,
    ) -> Result<()> {
        parts::merge(&Bm25Model::new(options.clone())?, options, parts, passages, place.into(), build)
    }

    /// Opens the indexes of consecutive parts of so many passages as one.
    ///
    /// # Errors
    /// [`Error::Part`] for parts of other options or another number of passages; those of [`open`](Self::open) for a part.
    pub(crate) fn open_parts(
        options: &Bm25Options,
        parts: &[PathBuf],
        passages: usize,
    ) -> Result<Sharded<Bm25Model>> {
        Sharded::open(Bm25Model::new(options.clone())?, options, parts, passages)
    }

    /// Estimates the resources of [`build`](Self::build) from a sample of the passages.
    ///
    /// # Errors
    /// As [`build`](Self::build), for an index over the sample in a temporary folder.
    pub fn plan(options: &Bm25Options, passages: PlannedPassages<'_>) -> Result<IndexPlan> {
        plan(&Bm25Model::new(options.clone())?, options, passages)
    }

    /// Opens the index in a folder, which must be over the passages with this hash. Verifies the files'
    /// checksums: at each opening, or once for a large index (see [`sporran_kilt::folder::Contents`]).
    ///
    /// # Errors
    /// [`Error::NotAnIndex`], [`Error::Version`], [`Error::Header`], [`Error::Kind`], [`Error::OtherPassages`],
    /// [`Error::Length`], [`sporran_kilt::Error::Checksum`], [`Error::Corrupt`], [`Error::Io`], each naming the file.
    pub fn open(dir: impl AsRef<Path>, passages_hash: &str) -> Result<Self> {
        Self::of(Index::open::<Bm25Model>(dir.as_ref(), passages_hash)?)
    }

    fn of(index: Index) -> Result<Self> {
        index.check_norms()?;
        Ok(Self { model: Bm25Model::new(index.options()?)?, index })
    }

    /// The options of its build.
    pub fn options(&self) -> &Bm25Options {
        &self.model.options
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

    /// The impacts of a query's terms on the given passages.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the index is damaged.
    pub fn impacts(&self, query: &str, passages: &[PassageId]) -> Result<Impacts> {
        let mut order: Vec<usize> = (0..passages.len()).collect();
        order.sort_unstable_by_key(|&at| passages[at]);
        let scorer = self.model.scorer(self.index.norms());
        let mut cursors = self.cursors(query)?;
        let terms = cursors.len();
        let mut values = vec![0.0; terms * passages.len()];
        for (term, cursor) in cursors.iter_mut().enumerate() {
            for &at in &order {
                values[at * terms + term] = cursor.score(passages[at].0, &scorer)?;
            }
        }
        let total = cursors.iter().map(Cursor::weight).sum();
        Ok(Impacts { terms, values, total })
    }

    /// The same as [`Retriever::retrieve`], by scoring every passage that shares a term with the query: the
    /// reference implementation of the search with pruning.
    ///
    /// # Errors
    /// As [`Retriever::retrieve`].
    pub fn retrieve_exhaustively(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.index.retrieve(&self.model, (queries, None), k, Pruning::Off, |query| self.cursors(query))
    }
}

/// The score that each term of a query adds for each of some passages.
#[derive(Clone, Debug, PartialEq)]
pub struct Impacts {
    terms: usize,
    /// One row of `terms` numbers a passage.
    values: Vec<f32>,
    total: f32,
}

impl Impacts {
    /// The impacts of the query's terms on one of the passages.
    pub fn of(&self, passage: usize) -> &[f32] {
        &self.values[passage * self.terms..][..self.terms]
    }

    /// The share of the query that passages cover together, from 0 to 1. Each term counts by its largest
    /// impact among them, relative to a passage that is saturated with every term.
    pub fn coverage(&self, passages: &[usize]) -> f32 {
        let most = |term: usize| passages.iter().map(|&at| self.of(at)[term]).fold(0.0, f32::max);
        let held: f32 = (0..self.terms).map(most).sum();
        if self.total > 0.0 { held / self.total } else { 0.0 }
    }
}

impl PassageScorer for Bm25 {
    /// The share of the query that a passage covers, from 0 to 1.
    fn score(&self, queries: &[Query], passages: &[Vec<PassageId>]) -> Result<Vec<Vec<f32>>> {
        queries
            .par_iter()
            .zip(passages)
            .map(|(query, passages)| {
                let impacts = self.impacts(&query.text, passages)?;
                Ok((0..passages.len()).map(|at| impacts.coverage(&[at])).collect())
            })
            .collect()
    }
}

impl Retriever for Bm25 {
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
