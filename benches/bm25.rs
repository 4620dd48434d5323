//! BM25: indexing and searching, compared with the Python package bm25s over the same pages and queries.
//!
//! Corpus: the pages of a knowledge source and the inputs of task files if they are given, indexed as whole
//! pages (paragraphs joined by spaces). Otherwise passages are generated from seed 17: 40 to 160 words, two
//! thirds sampled from 300,000 words by Zipf's law without the 30 most frequent, a third from one of 20,000
//! topics. Queries are 10 words of a passage and 3 others. The best 20 of every query are retrieved, in
//! batches of one file.
//!
//! ```text
//! PAGES=knowledge_source.jsonl.gz TASKS=a.jsonl:b.jsonl PYTHON=python3 cargo bench --bench bm25
//! PYTHON=python3 cargo bench --bench bm25 -- --passages 1000000
//! ```
//!
//! The peer is `scripts/reference/bm25_bm25s.py`, which also compares the rankings. It runs if `PYTHON` names
//! an interpreter with `bm25s` and `PyStemmer`. Both sides start with the texts in memory, and both analyse
//! the queries.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    convert::Infallible,
    env,
    error::Error,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use flate2::{Compression, write::GzEncoder};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sporran_kilt::{Hit, Page, PassageId, Query, Record, jsonl};
use sporran_retriever::{
    Retriever,
    sparse::{Bm25, Bm25Options, Build},
};

const SEED: u64 = 17;
const K: usize = 20;
const INDEX_ROUNDS: usize = 3;
/// A file's queries are repeated for about this many seconds, and the median time counts.
const SECONDS: f64 = 2.0;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Pages and queries, in memory and on disk.
struct Corpus {
    pages: PathBuf,
    ids: Vec<String>,
    texts: Vec<String>,
    tasks: Vec<(PathBuf, Vec<Query>)>,
}

impl Corpus {
    fn read(pages: PathBuf, tasks: Vec<PathBuf>) -> Outcome<Self> {
        let (mut ids, mut texts) = (Vec::new(), Vec::new());
        for page in jsonl::open(&pages)?.records::<Page>() {
            let page = page?;
            ids.push(page.wikipedia_id.text().into_owned());
            texts.push(page.text.join(" "));
        }
        let queries = |path: PathBuf| -> Outcome<_> {
            let queries = jsonl::open(&path)?.records::<Record>().map(|record| -> Outcome<Query> {
                Ok(Query::from_record(&record?, None)
                    .map_err(|(field, message)| format!("{field}: {message}"))?)
            });
            Ok((path, queries.collect::<Outcome<Vec<_>>>()?))
        };
        let tasks = tasks.into_iter().map(queries).collect::<Outcome<Vec<_>>>()?;
        Ok(Self { pages, ids, texts, tasks })
    }
}

/// Writes generated passages and queries into a folder in KILT's layout.
fn make(folder: &Path, passages: usize, queries: usize) -> Outcome<(PathBuf, Vec<PathBuf>)> {
    const WORDS: f64 = 300_000.0;
    const MOST_FREQUENT: f64 = 30.0;
    const TOPICS: u64 = 20_000;
    const TOPIC_WORDS: u64 = 60;
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    // Word n is as likely as 1 / n.
    let place = |u: f64| (MOST_FREQUENT * (WORDS / MOST_FREQUENT).powf(u)) as usize;
    let word = |mut place: usize| {
        // Syllables without stems and stop words.
        let mut word = String::from("q");
        while place > 0 {
            word.push(b"bdfgkmnprtvz"[place % 12] as char);
            word.push(b"aou"[place / 12 % 3] as char);
            place /= 36;
        }
        word + "k"
    };
    let pages = folder.join("pages.jsonl.gz");
    let mut file = GzEncoder::new(fs::File::create(&pages)?, Compression::fast());
    let mut asked = Vec::new();
    for id in 0..passages {
        let topic = random.random_range(0..TOPICS);
        let words: Vec<String> = (0..random.random_range(40..160))
            .map(|_| {
                if random.random_bool(1.0 / 3.0) {
                    let of_topic = topic * TOPIC_WORDS + random.random_range(0..TOPIC_WORDS);
                    word(place(ChaCha8Rng::seed_from_u64(of_topic).random()))
                } else {
                    word(place(random.random()))
                }
            })
            .collect();
        let text = words.join(" ");
        let id_text = id.to_string();
        let page =
            json!({"_id": id_text, "wikipedia_id": id_text, "wikipedia_title": words[0], "text": [text]});
        writeln!(file, "{page}")?;
        if id % (passages / queries).max(1) == 0 && asked.len() < queries {
            let mut chosen: Vec<String> =
                (0..10).map(|_| words[random.random_range(0..words.len())].clone()).collect();
            chosen.extend((0..3).map(|_| word(place(random.random()))));
            let gold = json!([{"provenance": [{"wikipedia_id": id_text}]}]);
            asked.push(json!({"id": format!("q{id}"), "input": chosen.join(" "), "output": gold}));
        }
    }
    file.finish()?;
    let task = folder.join("made.jsonl");
    let lines: Vec<String> = asked.iter().map(Value::to_string).collect();
    fs::write(&task, lines.join("\n") + "\n")?;
    Ok((pages, vec![task]))
}

fn middle(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

/// The median time of a batch, and its results.
fn timed(retrieve: impl Fn() -> sporran_retriever::Result<Vec<Vec<Hit>>>) -> Outcome<(f64, Vec<Vec<Hit>>)> {
    let begin = Instant::now();
    let (mut seconds, mut hits) = (Vec::new(), Vec::new());
    while seconds.len() < 3 || begin.elapsed().as_secs_f64() < SECONDS && seconds.len() < 1000 {
        let start = Instant::now();
        hits = retrieve()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok((middle(seconds), hits))
}

fn bench(folder: &Path) -> Outcome<()> {
    let mut passages = 66_169;
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--passages" => passages = arguments.next().ok_or("--passages: expected a number")?.parse()?,
            other => return Err(format!("expected --passages N, found {other:?}").into()),
        }
    }
    let (pages, tasks) = match env::var_os("PAGES") {
        Some(pages) => {
            let tasks =
                env::var("TASKS").map_err(|_| "expected TASKS with PAGES: task files joined by `:`")?;
            (pages.into(), tasks.split(':').map(PathBuf::from).collect())
        }
        None => make(folder, passages, 500.min(passages))?,
    };
    let corpus = Corpus::read(pages, tasks)?;
    let text_bytes: usize = corpus.texts.iter().map(String::len).sum();
    let made = if env::var_os("PAGES").is_some() { "given".into() } else { format!("made from seed {SEED}") };
    println!(
        "{} passages, {:.0} MB of text, {made}; {} threads",
        corpus.texts.len(),
        text_bytes as f64 / 1e6,
        std::thread::available_parallelism()?
    );

    let dir = folder.join("index");
    let options = Bm25Options::default();
    let mut seconds = Vec::new();
    for _ in 0..INDEX_ROUNDS {
        let passages =
            (0..).zip(&corpus.texts).map(|(id, text)| Ok::<_, Infallible>((PassageId(id), "", text)));
        let start = Instant::now();
        Bm25::build(&options, passages, "bench", &dir, Build::new(&mut |_| {}))?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let index_seconds = middle(seconds);
    let index = Bm25::open(&dir, "bench")?;
    let statistics = index.statistics();
    println!(
        "sporran   index {index_seconds:8.3} s  {:.1} MB on disk, {} terms, {} postings",
        statistics.bytes as f64 / 1e6,
        statistics.terms,
        statistics.postings
    );

    let mut runs = Vec::new();
    let mut rates = Vec::new();
    for (task, queries) in &corpus.tasks {
        let (exhaustive, oracle) = timed(|| index.retrieve_exhaustively(queries, K))?;
        let (pruned, hits) = timed(|| index.retrieve(queries, K))?;
        if hits != oracle {
            return Err("pruning changed a result".into());
        }
        let rate = queries.len() as f64 / pruned;
        let name = task.file_name().unwrap_or_default().to_string_lossy().into_owned();
        println!(
            "sporran   {name}: {rate:.0} queries/s; {:.0} without pruning",
            queries.len() as f64 / exhaustive
        );
        let run = folder.join(&name).with_extension("trec");
        let mut lines = Vec::new();
        for (query, hits) in queries.iter().zip(hits) {
            for (rank, hit) in hits.iter().enumerate() {
                let page = &corpus.ids[hit.passage.index()];
                writeln!(lines, "{} Q0 {page} {} {} bm25", query.id.text(), rank + 1, hit.score)?;
            }
        }
        fs::write(&run, lines)?;
        runs.push(format!("{}={}", task.display(), run.display()));
        rates.push((name, rate));
    }

    let Some(python) = env::var_os("PYTHON") else {
        println!("no peer: PYTHON names no interpreter");
        return Ok(());
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/bm25_bm25s.py");
    let figures = folder.join("figures.json");
    let status = Command::new(&python)
        .arg(script)
        .arg("--figures")
        .arg(&figures)
        .arg("--k")
        .arg(K.to_string())
        .arg(&corpus.pages)
        .args(&runs)
        .status()?;
    if !status.success() {
        return Err(format!("the peer stopped: {status}").into());
    }
    let figures: Value = serde_json::from_slice(&fs::read(figures)?)?;
    let peer = |name: &str| figures[name].as_f64().ok_or_else(|| format!("no figure for {name:?}"));
    println!("index     {:.1} times as fast as bm25s", peer("index seconds")? / index_seconds);
    for (name, rate) in rates {
        println!("{name}: {:.1} times as fast as bm25s", rate / peer(&name)?);
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = tempfile::tempdir().map_err(Into::into).and_then(|folder| bench(folder.path()));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
