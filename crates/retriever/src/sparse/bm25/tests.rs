use std::{collections::BTreeSet, convert::Infallible, fs, io};

use proptest::prelude::*;

use super::*;
use crate::sparse::{
    analyzer::{Stemmer, StopWords, Tokenizer},
    builder::Progress,
};

type Fields = (String, String);

fn query(text: &str) -> Query {
    Query::of_text("q", text)
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
        let counts: Vec<usize> =
            passages.iter().map(|passage| passage.iter().filter(|&other| *other == term).count()).collect();
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
    // Best first, ties by ascending id, and no better passage is missing.
    assert!(hits.windows(2).all(|pair| {
        pair[0].score > pair[1].score || pair[0].score == pair[1].score && pair[0].passage < pair[1].passage
    }));
    let least = hits.last().map_or(f64::INFINITY, |hit| f64::from(hit.score));
    let taken: BTreeSet<usize> = hits.iter().map(|hit| hit.passage.index()).collect();
    for (passage, &score) in expected.iter().enumerate() {
        let taken = taken.contains(&passage);
        assert!(taken || score == 0.0 || hits.len() == k && score <= least * (1.0 + 1e-5), "{passage}");
    }
    // Not one bit differs from the search without pruning.
    assert_eq!(hits, index.retrieve_exhaustively(&[query(asked)], k).unwrap().remove(0));
    // With a filter, the ranking is that of all passages without the others.
    let wanted = |passage: PassageId| passage.0 % 3 == 1;
    let mut rest = index.retrieve_exhaustively(&[query(asked)], passages.len()).unwrap().remove(0);
    rest.retain(|hit| wanted(hit.passage));
    rest.truncate(k);
    assert_eq!(index.retrieve_filtered(&[query(asked)], k, &wanted).unwrap(), [rest]);
}

/// A few frequent words and many rare ones.
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
        Bm25Options { k1, b, title_weight, analyzer, ..Bm25Options::default() }
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
        // The product of two samples makes small numbers, the frequent words, much more likely.
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
    for asked in ["w0", "w0 w8 w8", "w999 w3 w77 w120 w0 w5", "w1003", "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11"] {
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
    // Without memory every run goes to disk.
    for (memory, threads) in [(1 << 30, 4), (0, 1), (0, 3), (100_000, 2)] {
        assert!(files(memory, threads) == expected, "{memory} bytes, {threads} threads");
    }
}

#[test]
fn progress_ends_at_all_passages_and_postings() {
    let place = tempfile::tempdir().unwrap();
    let mut reports = Vec::new();
    let passages = ["red green", "red"].map(|text| text.to_owned());
    let passages = (0..).zip(&passages).map(|(id, text)| Ok::<_, Infallible>((PassageId(id), "", text)));
    let mut tell = |progress| reports.push(progress);
    let build = Build::new(&mut tell);
    Bm25::build(&Bm25Options::default(), passages, "", place.path().join("index"), build).unwrap();
    assert_eq!(reports, [Progress::Passages(2), Progress::Postings { done: 3, total: 3 }]);
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
fn a_damaged_index_does_not_open_and_its_content_is_no_panic() {
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
            let error = Bm25::open(&dir, "passages").err().unwrap();
            assert!(matches!(error, Error::Kilt(sporran_kilt::Error::Checksum { .. })), "{name} {error}");
            // As after damage that a large index's stamp hides.
            let Ok(index) = Index::open_unchecked::<Bm25Model>(&dir, "passages").and_then(Bm25::of) else {
                continue;
            };
            // Wrong results or an error, but no panic and no endless loop.
            let _ = index.retrieve(&queries, 20);
        }
        fs::write(&path, &bytes).unwrap();
    }
}

#[test]
fn question_words_of_a_query_can_be_left_out() {
    let passages = [
        ("Rules", "A keeper who leaves has to give notice."),
        ("Stores", "Holm and Sons supplies the Quillgate."),
        ("Yard", "The yard is behind the Quillgate."),
    ];
    let passages = passages.map(|(title, text)| (title.to_owned(), text.to_owned()));
    let options = Bm25Options { drop_question_words: true, ..Bm25Options::default() };
    let (_kept, index) = built(&options, &passages);
    let found = |index: &Bm25, text: &str| {
        let hits = index.retrieve(&[query(text)], 3).unwrap().remove(0);
        hits.iter().map(|hit| hit.passage.0).collect::<Vec<_>>()
    };
    assert_eq!(found(&index, "Who supplies the Quillgate?"), [1, 2]);
    // Nothing else remains.
    assert_eq!(found(&index, "Who?"), [0]);
    let (_kept, index) = built(&Bm25Options::default(), &passages);
    assert!(found(&index, "Who supplies the Quillgate?").contains(&0));
    // The option is left out of the keys of indexes where it is not set.
    assert!(!serde_json::to_string(&Bm25Options::default()).unwrap().contains("question"));
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

#[test]
fn text_in_any_script_is_found() {
    /// A stemmer, texts, and queries each with the place of the text that it finds.
    type Collection = (Stemmer, &'static [&'static str], &'static [(&'static str, u32)]);
    let collections: [Collection; 5] = [
        (
            Stemmer::None,
            &["गंगा भारत की सबसे लंबी नदी है।", "दिल्ली भारत की राजधानी है।", "हिमालय में ऊँचे पर्वत हैं।"],
            &[("भारत की राजधानी", 1), ("लंबी नदी", 0), ("पर्वत", 2)],
        ),
        (
            Stemmer::None,
            &["长江是中国最长的河流。", "北京是中国的首都。", "熊猫吃竹子。"],
            &[("中国的首都", 1), ("最长的河", 0), ("竹子", 2)],
        ),
        (
            Stemmer::None,
            &["東京は日本の首都です。", "富士山は日本で一番高い山です。", "ラーメンはおいしい。"],
            &[("高い山", 1), ("首都", 0), ("ラーメン", 2)],
        ),
        (
            Stemmer::German,
            &["Die Häuser am Fluß sind alt.", "Der Zug fährt nach Zürich.", "Bücher stehen im Regal."],
            &[("altes haus", 0), ("Züge nach Zurich", 1), ("Buch", 2)],
        ),
        (
            Stemmer::Arabic,
            &["القاهرة عاصمة مصر.", "الكُتُب على الطاولة.", "النيل نهر طويل."],
            &[("عاصمة مصر", 0), ("كتب", 1), ("نهر", 2)],
        ),
    ];
    for (stemmer, texts, queries) in collections {
        let passages: Vec<Fields> = texts.iter().map(|text| (String::new(), (*text).to_owned())).collect();
        let analyzer = AnalyzerOptions {
            tokenizer: Tokenizer::Unicode,
            fold_accents: true,
            stemmer,
            stop_words: StopWords::None,
            ..AnalyzerOptions::default()
        };
        let (_place, index) = built(&Bm25Options { analyzer, ..Bm25Options::default() }, &passages);
        for &(asked, expected) in queries {
            let found = index.retrieve(&[query(asked)], 3).unwrap().remove(0);
            assert_eq!(found.first().map(|hit| hit.passage), Some(PassageId(expected)), "{asked}");
        }
    }
}

#[test]
fn a_plan_has_about_the_sizes_of_the_index() {
    let word = |at: usize| format!("w{:x}", at.wrapping_mul(2_654_435_761) % (1 + at % 5000));
    let passages: Vec<Fields> = (0..6000)
        .map(|at| (format!("t{at}"), (0..60).map(|of| word(at * 61 + of * 7)).collect::<Vec<_>>().join(" ")))
        .collect();
    let options = Bm25Options::default();
    let sample: Vec<Fields> = passages.iter().step_by(4).cloned().collect();
    let plan = Bm25::plan(&options, PlannedPassages { count: 6000, sample: &sample }).unwrap();
    let (_place, index) = built(&options, &passages);
    let bytes = index.statistics().bytes;
    assert!(plan.disk_bytes.abs_diff(bytes) < bytes / 3, "{plan:?} {bytes}");
    assert!(plan.memory_bytes > 0 && plan.build_disk_bytes >= plan.disk_bytes, "{plan:?}");
}
