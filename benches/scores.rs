//! Scoring 50,000 predictions, compared with plain Python that follows the same definitions line by line.
//!
//! Corpus: generated from seed 5 like KILT's dev files: the eleven datasets in their proportions, with
//! similar numbers of gold answers a record, words an answer and words an input (see `SHAPES`). A prediction
//! has ten provenance items, the first three with texts of 30 words. Both sides read the same two files from
//! the disk cache, and their scores must agree to 1e-9.
//!
//! ```text
//! PYTHON=python3 cargo bench --bench scores          # needs `rouge` 1.0.1 for the peer
//! ```
//!
//! The peer is `scripts/reference/scores_peer.py`: ROUGE-L alone, with sets where the public scorer searches
//! lists. Its seconds are CPU time of one thread, which excludes waiting; ours are wall-clock time on all
//! threads, the best of a few rounds.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    process::{Command, ExitCode},
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sporran_kilt::scores::{kilt, retrieval, whole};

const RECORDS: usize = 50_000;
const ROUNDS: usize = 5;
const KS: [usize; 4] = [1, 5, 10, 20];

/// A dataset: records of its dev file, mean gold answers a record, mean words of an answer and of an input.
struct Shape(usize, usize, usize, usize);

/// FEVER, the three of entity linking, T-REx, Zero-shot RE, NQ, HotpotQA, TriviaQA, ELI5, Wizard of Wikipedia.
const SHAPES: [Shape; 11] = [
    Shape(10_444, 1, 1, 8),
    Shape(4_784, 1, 3, 400),
    Shape(3_396, 1, 3, 250),
    Shape(5_599, 1, 2, 1_500),
    Shape(5_000, 9, 2, 5),
    Shape(3_724, 1, 2, 5),
    Shape(2_837, 3, 5, 9),
    Shape(5_600, 1, 2, 16),
    Shape(5_359, 24, 2, 14),
    Shape(1_507, 5, 83, 18),
    Shape(3_054, 1, 19, 70),
];

struct Corpus {
    random: ChaCha8Rng,
    words: Vec<String>,
}

impl Corpus {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut words: Vec<String> =
            ["the", "a", "an", "of", "in", "The", "and", "U.S."].map(str::to_owned).into();
        while words.len() < 20_000 {
            let letters = random.random_range(2..10);
            words.push((0..letters).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect());
        }
        Self { random, words }
    }

    fn text(&mut self, length: usize) -> String {
        let mut text = String::new();
        for at in 0..length {
            if at > 0 {
                text.push_str(if self.random.random_bool(0.07) { ". " } else { " " });
            }
            // Frequent words come first, approximately by Zipf's law.
            let place = (self.words.len() as f64).powf(self.random.random::<f64>()) as usize - 1;
            text.push_str(&self.words[place]);
        }
        text
    }

    /// A random length from 1 to twice the mean.
    fn about(&mut self, mean: usize) -> usize {
        self.random.random_range(1..=2 * mean - 1)
    }

    fn item(&mut self, page: u32) -> Value {
        let paragraph = self.random.random_range(0..30);
        json!({"wikipedia_id": page.to_string(), "title": format!("Page {page}"), "section": "Section::::Abstract.",
            "start_paragraph_id": paragraph, "start_character": 0, "end_paragraph_id": paragraph, "end_character": 200})
    }

    /// The lines of a gold and of a predicted record.
    fn record(&mut self, id: usize) -> (Value, Value) {
        let records: usize = SHAPES.iter().map(|shape| shape.0).sum();
        let mut place = self.random.random_range(0..records);
        let mut dataset = 0;
        while place >= SHAPES[dataset].0 {
            place -= SHAPES[dataset].0;
            dataset += 1;
        }
        let Shape(_, answers, words, input) = SHAPES[dataset];
        let answers: Vec<String> = (0..self.about(answers))
            .map(|_| {
                let words = self.about(words);
                self.text(words)
            })
            .collect();
        let pages: Vec<u32> =
            (0..self.random.random_range(1..=3)).map(|_| self.random.random_range(0..1_000_000)).collect();
        let mut gold: Vec<Value> = answers.iter().map(|answer| json!({"answer": answer})).collect();
        gold.extend(pages.iter().map(|&page| json!({"provenance": [self.item(page)]})));
        let answer = match self.random.random_range(0..3) {
            0 => answers[0].clone(),
            1 => format!("{} {}", self.text(2), answers[0]),
            _ => {
                let words = self.about(words);
                self.text(words)
            }
        };
        let mut items = Vec::new();
        for place in 0..10 {
            let page = if self.random.random_bool(0.2) {
                pages[self.random.random_range(0..pages.len())]
            } else {
                self.random.random_range(0..1_000_000)
            };
            let mut item = self.item(page);
            item["score"] = json!(self.random.random::<f32>());
            if place < 3 {
                item["text"] = json!(self.text(30));
            }
            items.push(item);
        }
        let words = self.about(input);
        let input = self.text(words);
        (
            json!({"id": format!("r{id}"), "input": input, "output": gold}),
            json!({"id": format!("r{id}"), "output": [{"answer": answer, "provenance": items}]}),
        )
    }
}

fn write(gold_path: &Path, guess_path: &Path) -> std::io::Result<u64> {
    let mut corpus = Corpus::new(5);
    let (mut gold, mut guess) = (String::new(), String::new());
    for id in 0..RECORDS {
        let (gold_line, guess_line) = corpus.record(id);
        let written = writeln!(gold, "{gold_line}").and_then(|()| writeln!(guess, "{guess_line}"));
        written.map_err(std::io::Error::other)?;
    }
    fs::write(gold_path, &gold)?;
    fs::write(guess_path, &guess)?;
    Ok((gold.len() + guess.len()) as u64)
}

/// The result of the fastest of a few runs, and its seconds.
fn best<T>(mut run: impl FnMut() -> T) -> (T, f64) {
    let mut timed = || {
        let start = Instant::now();
        let result = run();
        (result, start.elapsed().as_secs_f64())
    };
    let mut best = timed();
    for _ in 1..ROUNDS {
        let next = timed();
        if next.1 < best.1 {
            best = next;
        }
    }
    best
}

fn agree(ours: &Value, theirs: &Value) -> bool {
    match (ours, theirs) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(key, value)| right.get(key).is_some_and(|other| agree(value, other)))
        }
        _ => match (ours.as_f64(), theirs.as_f64()) {
            (Some(ours), Some(theirs)) => (ours - theirs).abs() < 1e-9,
            _ => false,
        },
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    measure(&folder.path().join("gold.jsonl"), &folder.path().join("guess.jsonl"))
}

fn measure(gold: &Path, guess: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let megabytes = write(gold, guess)? as f64 / 1e6;
    let threads = std::thread::available_parallelism()?;
    println!("{RECORDS} records, {megabytes:.0} MB of gold and predictions, {threads} threads");
    let (answers, answers_seconds) = best(|| kilt::evaluate(gold, guess));
    let options = retrieval::Options { ks: KS.into(), ..retrieval::Options::default() };
    let (evidence, evidence_seconds) = best(|| retrieval::evaluate(gold, guess, &options));
    let (both, both_seconds) = best(|| whole::evaluate(gold, guess, &options));
    let both = both?;
    let (answers, evidence) = (answers?.report, evidence?.reports.remove(0).0);
    if answers != both.answers.report
        || [&evidence] != both.evidence.reports.iter().map(|(report, _)| report).collect::<Vec<_>>()[..]
    {
        return Err("one pass over both says something else than one for each".into());
    }
    println!(
        "sporran   answers {answers_seconds:8.3} s   evidence {evidence_seconds:8.3} s   both in one pass {both_seconds:8.3} s   (best of {ROUNDS})"
    );

    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/scores_peer.py");
    let peer = Command::new(&python)
        .arg(script)
        .args([gold, guess])
        .arg(KS.map(|k| k.to_string()).join(","))
        .output();
    let peer = match peer {
        Ok(output) if output.status.success() => serde_json::from_slice::<Value>(&output.stdout)?,
        Ok(output) => {
            println!("no peer: {python} stopped: {}", String::from_utf8_lossy(&output.stderr).trim());
            return Ok(());
        }
        Err(error) => {
            println!("no peer: {python}: {error}");
            return Ok(());
        }
    };
    let seconds = |name: &str| peer[name].as_f64().ok_or("the peer gave no seconds");
    let (peer_answers, peer_evidence) = (seconds("answers_seconds")?, seconds("evidence_seconds")?);
    println!("python    answers {peer_answers:8.3} s   evidence {peer_evidence:8.3} s");
    println!(
        "ratio     answers {:8.1}     evidence {:8.1}     both in one pass {:8.1}",
        peer_answers / answers_seconds,
        peer_evidence / evidence_seconds,
        (peer_answers + peer_evidence) / both_seconds
    );
    let same = agree(&serde_json::to_value(answers)?, &peer["answers"])
        && agree(&serde_json::to_value(evidence)?, &peer["evidence"]);
    if !same {
        return Err("the figures of the two sides differ".into());
    }
    println!("all figures agree to 1e-9");
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
