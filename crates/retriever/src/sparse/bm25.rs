//! BM25 as Lucene computes it, with exact passage lengths.
//!
//! S. Robertson and H. Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009, in the variant that C.
//! Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020, call "Lucene (accurate)": a term `t` of the query adds
//! `ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * length / average length))` for each time that it is
//! in the query, with `N` passages of which `df` have `t`. Lengths count terms, after stop words are gone.

use std::path::Path;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId, Query};

use super::{
    analyzer::{Analyzer, AnalyzerOptions},
    builder::{self, Build, Model},
    index::{Index, Statistics},
    postings::{Cursor, Scorer},
    search::Pruning,
    segment::SegmentBuilder,
};
use crate::{Error, Result, Retriever};

/// How passages are indexed and scored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Bm25Options {
    /// How soon further occurrences of a term stop counting: 0 counts a term once, larger values let repetitions count for
    /// more. Finite and not negative.
    pub k1: f64,
    /// How much longer passages are marked down: 0 not at all, 1 in proportion to their length.
    pub b: f64,
    /// How many times a passage's title counts; its text counts once.
    pub title_weight: u32,
    /// How text becomes terms.
    pub analyzer: AnalyzerOptions,
}

impl Default for Bm25Options {
    /// Anserini's parameters for passages, which KILT's baselines use.
    fn default() -> Self {
        Self { k1: 0.9, b: 0.4, title_weight: 1, analyzer: AnalyzerOptions::default() }
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

/// The part of BM25 that knows passages' lengths: `k1 * (1 - b + b * length / average length)` for each passage.
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
    // Counts are below 2^31 (`SegmentBuilder::count`), and only signed integers become floats four at a time.
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
        // Two loops, as the second one then compiles to operations on whole vectors.
        for (&passage, impact) in passages.iter().zip(&mut *impacts) {
            *impact = self.norm(passage);
        }
        for (&count, impact) in counts.iter().zip(impacts) {
            *impact = saturate(count, *impact);
        }
    }
}

struct Bm25Model {
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

/// Words that were met before, with their terms' numbers; [`STOP`] for stop words.
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
        // Without a single term no norm is ever used.
        let average = (total as f64 / lengths.len() as f64).max(f64::MIN_POSITIVE);
        let Bm25Options { k1, b, .. } = self.options;
        lengths
            .iter()
            .map(|&length| ((k1 * (1.0 - b + b * f64::from(length) / average)) as f32).to_le_bytes())
            .collect()
    }

    fn scorer<'a>(&self, norms: &'a [[u8; 4]]) -> Saturation<'a> {
        Saturation(norms)
    }
}

/// A BM25 index that is mapped into memory.
///
/// The index's files must not be changed while it is open; building a new one in the same place is fine.
pub struct Bm25 {
    model: Bm25Model,
    index: Index,
}

impl Bm25 {
    /// Indexes passages `(id, title, text)`, whose ids count from 0, and puts the index in the folder `dir`, in place of an
    /// index that is there. A passage's terms are those of its title and then those of its text. `passages_hash` names the
    /// set of passages, and only with the same name will the index open.
    ///
    /// # Errors
    /// [`Error::Option`] for parameters out of range, [`Error::Passages`] and [`Error::PassageOrder`] for what the
    /// passages do wrong, [`Error::InTheWay`] where something else is in the index's place, and [`Error::Io`]. After an
    /// error, an index that was there before still is.
    pub fn build<P, T, U, E>(
        options: &Bm25Options,
        passages: P,
        passages_hash: &str,
        dir: impl AsRef<Path>,
        build: Build<'_>,
    ) -> Result<()>
    where
        P: IntoIterator<Item = Result<(PassageId, T, U), E>>,
        T: AsRef<str>,
        U: AsRef<str>,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let model = Bm25Model::new(options.clone())?;
        let written = serde_json::to_value(options)
            .map_err(|error| Error::Header { path: dir.as_ref().to_owned(), message: error.to_string() })?;
        builder::build(&model, written, passages, passages_hash, dir.as_ref(), build)
    }

    /// Opens the index in a folder, which must be over the passages with this hash. Checks the header and the length of
    /// each file, not what is in them: see [`Bm25::verify`].
    ///
    /// # Errors
    /// [`Error::NotAnIndex`], [`Error::Version`], [`Error::Header`], [`Error::Kind`], [`Error::OtherPassages`],
    /// [`Error::Length`], [`Error::Corrupt`], [`Error::Io`], each naming the file.
    pub fn open(dir: impl AsRef<Path>, passages_hash: &str) -> Result<Self> {
        let dir = dir.as_ref();
        let index = Index::open::<Bm25Model>(dir, passages_hash)?;
        index.check_norms()?;
        let options: Bm25Options = serde_json::from_value(index.header().options.clone())
            .map_err(|error| Error::Header { path: dir.to_owned(), message: error.to_string() })?;
        Ok(Self { model: Bm25Model::new(options)?, index })
    }

    /// The options that it was built with.
    pub fn options(&self) -> &Bm25Options {
        &self.model.options
    }

    /// What it holds.
    pub fn statistics(&self) -> Statistics {
        self.index.statistics()
    }

    /// Reads all of the index and compares its hashes.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming the first file that is not what was written.
    pub fn verify(&self) -> Result<()> {
        self.index.verify()
    }

    fn cursors(&self, query: &str) -> Result<Vec<Cursor<'_>>> {
        let passages = f64::from(self.index.header().passages);
        self.index.cursors(self.model.analyzer.terms(query), |occurrences, with_term| {
            let with_term = f64::from(with_term);
            let idf = ((passages - with_term + 0.5) / (with_term + 0.5)).ln_1p();
            (f64::from(occurrences) * idf) as f32
        })
    }

    /// The same as [`Retriever::retrieve`], by scoring every passage that shares a term with the query: the oracle of the
    /// search with pruning.
    ///
    /// # Errors
    /// As [`Retriever::retrieve`].
    pub fn retrieve_exhaustively(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.index.retrieve(&self.model, queries, k, Pruning::Off, |query| self.cursors(query))
    }
}

impl Retriever for Bm25 {
    fn retrieve(&self, queries: &[Query], k: usize) -> Result<Vec<Vec<Hit>>> {
        self.index.retrieve(&self.model, queries, k, Pruning::On, |query| self.cursors(query))
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, convert::Infallible, fs, io};

    use proptest::prelude::*;
    use sporran_kilt::Id;

    use super::*;
    use crate::sparse::{
        analyzer::{Stemmer, StopWords},
        builder::Progress,
    };

    type Fields = (String, String);

    fn query(text: &str) -> Query {
        Query { id: Id::from("q"), text: text.into(), dataset: None, template_questions: Vec::new() }
    }

    fn build(options: &Bm25Options, passages: &[Fields], dir: &Path, memory: usize) {
        let passages =
            (0..).zip(passages).map(|(id, (title, text))| Ok::<_, Infallible>((PassageId(id), title, text)));
        let build = Build { memory, progress: &mut |_| {} };
        Bm25::build(options, passages, "passages", dir, build).unwrap();
    }

    fn built(options: &Bm25Options, passages: &[Fields]) -> (tempfile::TempDir, Bm25) {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("index");
        build(options, passages, &dir, 1 << 20);
        let index = Bm25::open(&dir, "passages").unwrap();
        (place, index)
    }

    /// The module's formula, term by term and passage by passage, in `f64`.
    fn naive(options: &Bm25Options, passages: &[Fields], query: &str) -> Vec<f64> {
        let analyzer = Analyzer::new(options.analyzer.clone());
        let passages: Vec<Vec<String>> = passages
            .iter()
            .map(|(title, text)| {
                let fields = std::iter::repeat_n(title, options.title_weight as usize).chain([text]);
                fields.flat_map(|field| analyzer.terms(field)).collect()
            })
            .collect();
        let n = passages.len() as f64;
        let average = passages.iter().map(Vec::len).sum::<usize>() as f64 / n;
        let mut scores = vec![0.0; passages.len()];
        for term in analyzer.terms(query) {
            let counts: Vec<usize> = passages
                .iter()
                .map(|passage| passage.iter().filter(|&other| *other == term).count())
                .collect();
            let df = counts.iter().filter(|&&tf| tf > 0).count() as f64;
            let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
            for ((score, passage), tf) in scores.iter_mut().zip(&passages).zip(counts) {
                let norm = options.k1 * (1.0 - options.b + options.b * passage.len() as f64 / average);
                if tf > 0 {
                    *score += idf * tf as f64 / (tf as f64 + norm);
                }
            }
        }
        scores
    }

    fn check(options: &Bm25Options, passages: &[Fields], index: &Bm25, asked: &str, k: usize) {
        let expected = naive(options, passages, asked);
        let hits = index.retrieve(&[query(asked)], k).unwrap().remove(0);
        assert_eq!(hits.len(), expected.iter().filter(|&&score| score > 0.0).count().min(k));
        for hit in &hits {
            let score = expected[hit.passage.index()];
            assert!((f64::from(hit.score) - score).abs() <= 1e-5 * score, "{} {score}", hit.score);
        }
        // Best first, ties by rising id, and nobody better was left out.
        assert!(hits.windows(2).all(|pair| {
            pair[0].score > pair[1].score
                || pair[0].score == pair[1].score && pair[0].passage < pair[1].passage
        }));
        let least = hits.last().map_or(f64::INFINITY, |hit| f64::from(hit.score));
        let taken: BTreeSet<usize> = hits.iter().map(|hit| hit.passage.index()).collect();
        for (passage, &score) in expected.iter().enumerate() {
            let taken = taken.contains(&passage);
            assert!(taken || score == 0.0 || hits.len() == k && score <= least * (1.0 + 1e-5), "{passage}");
        }
        // Not one bit differs from the search without pruning.
        assert_eq!(hits, index.retrieve_exhaustively(&[query(asked)], k).unwrap().remove(0));
    }

    /// Words of which few are frequent and most are rare.
    fn word() -> impl Strategy<Value = String> {
        prop_oneof![
            4 => "[ab]{2}",
            3 => "[c-f]{2}",
            2 => "[g-m]{2,3}",
            1 => Just("the".to_owned()),
            1 => Just("running".to_owned()),
        ]
    }

    fn words(most: usize) -> impl Strategy<Value = String> {
        prop::collection::vec(word(), 0..most).prop_map(|words| words.join(" "))
    }

    fn options() -> impl Strategy<Value = Bm25Options> {
        let k1 = prop_oneof![Just(0.0), Just(0.9), Just(3.0)];
        let b = prop_oneof![Just(0.0), Just(0.4), Just(1.0)];
        (k1, b, 0u32..3, any::<bool>()).prop_map(|(k1, b, title_weight, plain)| {
            let analyzer = match plain {
                true => {
                    let (stop_words, stemmer) = (StopWords::None, Stemmer::None);
                    AnalyzerOptions { stop_words, stemmer, ..AnalyzerOptions::default() }
                }
                false => AnalyzerOptions::default(),
            };
            Bm25Options { k1, b, title_weight, analyzer }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn scores_are_the_naive_scorers(
            options in options(),
            passages in prop::collection::vec((words(3), words(40)), 1..60),
            asked in prop::collection::vec(words(12), 4),
            k in 1usize..80,
        ) {
            let (_place, index) = built(&options, &passages);
            for asked in &asked {
                check(&options, &passages, &index, asked, k);
            }
        }
    }

    /// A corpus over several windows and blocks, from a linear congruential generator.
    fn corpus(passages: usize) -> Vec<Fields> {
        let mut state = 7u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut text = |most: u64| {
            let length = random(most);
            // The product of two draws makes small numbers, the frequent words, much likelier.
            let words: Vec<String> =
                (0..length).map(|_| format!("w{}", random(60) * random(60) * random(4) / 7)).collect();
            words.join(" ")
        };
        (0..passages).map(|_| (text(3), text(30))).collect()
    }

    #[test]
    fn a_corpus_of_many_windows_is_searched_exactly() {
        let passages = corpus(13_000);
        let options = Bm25Options::default();
        let (_place, index) = built(&options, &passages);
        for asked in
            ["w0", "w0 w8 w8", "w999 w3 w77 w120 w0 w5", "w1003", "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11"]
        {
            for k in [1, 20, 5000] {
                check(&options, &passages, &index, asked, k);
            }
        }
    }

    #[test]
    fn what_cannot_match_returns_nothing() {
        let passages = [("Red".into(), "green blue".into()), (String::new(), String::new())];
        let (_place, index) = built(&Bm25Options::default(), &passages);
        let queries = ["", "the", "unknown words", "?!", "blue"].map(query);
        let hits = index.retrieve(&queries, 10).unwrap();
        assert_eq!(hits.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 0, 0, 1]);
        assert_eq!(index.retrieve(&queries, 0).unwrap(), vec![vec![]; 5]);
        assert_eq!(index.retrieve(&[], 3).unwrap(), Vec::<Vec<Hit>>::new());
        let (_place, empty) = built(&Bm25Options::default(), &[]);
        assert_eq!(empty.retrieve(&queries, 10).unwrap(), vec![vec![]; 5]);
    }

    #[test]
    fn a_batch_equals_its_single_members() {
        let (_place, index) = built(&Bm25Options::default(), &corpus(500));
        let queries: Vec<_> = (0..40).map(|i| query(&format!("w{i} w{} w0 w3", i * 7))).collect();
        let batch = index.retrieve(&queries, 10).unwrap();
        for (query, hits) in queries.iter().zip(batch) {
            assert_eq!(index.retrieve(std::slice::from_ref(query), 10).unwrap(), [hits]);
        }
    }

    #[test]
    fn memory_and_threads_change_no_byte() {
        let passages = corpus(4000);
        let place = tempfile::tempdir().unwrap();
        let files = |memory: usize, threads: usize| {
            let dir = place.path().join("index");
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| build(&Bm25Options::default(), &passages, &dir, memory));
            let mut files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect::<Vec<_>>()
        };
        let expected = files(1 << 30, 1);
        assert_eq!(expected.len(), 7);
        // With no memory at all every run goes to disk.
        for (memory, threads) in [(1 << 30, 4), (0, 1), (0, 3), (100_000, 2)] {
            assert!(files(memory, threads) == expected, "{memory} bytes, {threads} threads");
        }
    }

    #[test]
    fn progress_ends_at_all_passages_and_postings() {
        let place = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        let passages = ["red green", "red"].map(|text| text.to_owned());
        let passages = (0..).zip(&passages).map(|(id, text)| Ok::<_, Infallible>((PassageId(id), "", text)));
        let mut tell = |progress| told.push(progress);
        let build = Build::new(&mut tell);
        Bm25::build(&Bm25Options::default(), passages, "", place.path().join("index"), build).unwrap();
        assert_eq!(told, [Progress::Passages(2), Progress::Postings { done: 3, total: 3 }]);
    }

    #[test]
    fn wrong_passages_leave_the_old_index_in_place() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("index");
        build(&Bm25Options::default(), &corpus(10), &dir, 1 << 20);
        let try_build = |passages: Vec<io::Result<(PassageId, &str, &str)>>| {
            Bm25::build(&Bm25Options::default(), passages, "x", &dir, Build::new(&mut |_| {})).unwrap_err()
        };
        let gap = vec![Ok((PassageId(0), "", "a")), Ok((PassageId(2), "", "b"))];
        assert!(matches!(try_build(gap), Error::PassageOrder { expected: 1, found: 2 }));
        let broken = vec![Ok((PassageId(0), "", "a")), Err(io::Error::other("the disk is gone"))];
        assert!(matches!(try_build(broken), Error::Passages { passage: 1, .. }));
        assert_eq!(Bm25::open(&dir, "passages").unwrap().statistics().passages, 10);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_index_opens_only_over_its_own_passages_and_whole() {
        let passages = corpus(300);
        let (place, index) = built(&Bm25Options::default(), &passages);
        let dir = place.path().join("index");
        index.verify().unwrap();
        drop(index);
        assert!(matches!(Bm25::open(&dir, "others"), Err(Error::OtherPassages { .. })));
        for name in ["terms", "names", "slots", "postings", "blocks", "norms"] {
            let path = dir.join(name);
            let bytes = fs::read(&path).unwrap();
            fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
            let error = Bm25::open(&dir, "passages").err().unwrap();
            assert!(matches!(&error, Error::Length { path, .. } if path.ends_with(name)), "{error}");
            fs::write(&path, &bytes).unwrap();
        }
        Bm25::open(&dir, "passages").unwrap();
    }

    #[test]
    fn a_damaged_index_is_no_panic_and_verify_finds_it() {
        let passages = corpus(600);
        let (place, index) = built(&Bm25Options::default(), &passages);
        drop(index);
        let dir = place.path().join("index");
        let queries: Vec<_> = (0..30).map(|i| query(&format!("w{i} w{} w0", i * 3))).collect();
        for name in ["terms", "names", "slots", "postings", "blocks", "norms"] {
            let path = dir.join(name);
            let bytes = fs::read(&path).unwrap();
            for seed in 0..60usize {
                let mut damaged = bytes.clone();
                for (i, byte) in damaged.iter_mut().enumerate().filter(|(i, _)| (i * 31 + seed) % 17 == 0) {
                    *byte ^= ((i * 131 + seed * 71) % 255) as u8 + 1;
                }
                fs::write(&path, &damaged).unwrap();
                let Ok(index) = Bm25::open(&dir, "passages") else { continue };
                assert!(matches!(index.verify(), Err(Error::Corrupt { .. })), "{name}");
                // Wrong results or an error, but no panic and no endless loop.
                let _ = index.retrieve(&queries, 20);
            }
            fs::write(&path, &bytes).unwrap();
        }
    }

    #[test]
    fn parameters_out_of_range_are_errors() {
        for (options, named) in [
            (Bm25Options { k1: -0.1, ..Bm25Options::default() }, "k1"),
            (Bm25Options { k1: f64::INFINITY, ..Bm25Options::default() }, "k1"),
            (Bm25Options { b: 1.1, ..Bm25Options::default() }, "b"),
            (Bm25Options { b: f64::NAN, ..Bm25Options::default() }, "b"),
        ] {
            let none = std::iter::empty::<Result<(PassageId, &str, &str), Infallible>>();
            let place = tempfile::tempdir().unwrap();
            let error = Bm25::build(&options, none, "", place.path().join("i"), Build::new(&mut |_| {}));
            assert!(matches!(error, Err(Error::Option { option, .. }) if option == named));
        }
        let error = serde_json::from_str::<Bm25Options>(r#"{"k2": 1.0}"#).unwrap_err();
        assert!(error.to_string().contains("k2"), "{error}");
    }
}
