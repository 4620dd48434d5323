//! Scoring a TREC run of 7 million lines, compared with `pytrec_eval`.
//!
//! Corpus: generated from seed 5 like a run over MS MARCO's dev queries: 7,000 queries with 1,000 documents each, one or two
//! of them judged, ids below 8.8 million, scores that fall with the rank and tie at times. The lines of a query stand
//! together. Both sides read the same two files from the disk cache, and their means must agree to 1e-9.
//!
//! ```text
//! PYTHON=python3 cargo bench --bench trec          # needs `pytrec-eval-terrier` for the peer
//! ```
//!
//! `-- --queries 700` sets the number of queries. The peer is `scripts/reference/trec_peer.py`. Its seconds are those of the
//! whole process; ours are the best of a few rounds of reading and scoring. Memory is the rise of the peak in the first
//! round, a line; the peer's is its whole peak.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    fs::File,
    io::{BufWriter, Write as _},
    path::Path,
    process::{Command, ExitCode},
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use sporran_kilt::scores::trec::{Options, RankingMeasure, evaluate};
use sporran_pipeline::manifest::peak_memory_bytes;

const DEPTH: usize = 1000;
const DOCUMENTS: u32 = 8_800_000;
const ROUNDS: usize = 3;
/// The names of `ir_measures` and of `pytrec_eval`.
const MEASURES: [(&str, &str); 4] =
    [("nDCG@10", "ndcg_cut_10"), ("R@1000", "recall_1000"), ("AP", "map"), ("RR", "recip_rank")];

fn write(qrels: &Path, run: &Path, queries: usize) -> std::io::Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let (mut qrels, mut run) = (BufWriter::new(File::create(qrels)?), BufWriter::new(File::create(run)?));
    for query in 0..queries {
        let id = 100_000 + 37 * query;
        let first = random.random_range(0..DOCUMENTS);
        for judged in 0..random.random_range(1..=2) {
            // The ranked documents are steps of a coprime number from the first one, so that none stands twice.
            let rank = random.random_range(0..2 * DEPTH as u32) + judged;
            writeln!(qrels, "{id} 0 {} 1", (first + rank * 7919) % DOCUMENTS)?;
        }
        let mut score = random.random_range(20.0f32..40.0);
        for rank in 0..DEPTH as u32 {
            if random.random_bool(0.9) {
                score -= random.random_range(0.0..0.02);
            }
            writeln!(run, "{id} Q0 {} {} {score:.4} bench", (first + rank * 7919) % DOCUMENTS, rank + 1)?;
        }
    }
    qrels.flush().and_then(|()| run.flush())
}

fn measure(queries: usize) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (qrels, run) = (folder.path().join("qrels.txt"), folder.path().join("run.trec"));
    write(&qrels, &run, queries)?;
    let lines = queries * DEPTH;
    let megabytes = std::fs::metadata(&run)?.len() as f64 / 1e6;
    println!("{lines} lines, {megabytes:.0} MB, {} threads", std::thread::available_parallelism()?);
    let names = MEASURES.map(|(name, _)| name).join(",");
    let options = Options::new(RankingMeasure::list(&names)?);
    let before = peak_memory_bytes();
    let (mut seconds, mut rise, mut found) = (f64::INFINITY, 0, None);
    for round in 0..ROUNDS {
        let start = Instant::now();
        let evaluation = evaluate(&qrels, &run, &options)?;
        seconds = seconds.min(start.elapsed().as_secs_f64());
        if round == 0 {
            rise = peak_memory_bytes().saturating_sub(before);
        }
        found = Some(evaluation);
    }
    let found = found.ok_or("no round")?;
    println!(
        "sporran       {seconds:8.2} s   {:6.1} bytes of memory a line   (best of {ROUNDS})",
        rise as f64 / lines as f64
    );
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/trec_peer.py");
    let start = Instant::now();
    let peer = Command::new(&python)
        .arg(script)
        .args([&qrels, &run])
        .arg(MEASURES.map(|(_, name)| name).join(","))
        .output();
    let theirs = start.elapsed().as_secs_f64();
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
    let memory = peer["peak_memory_bytes"].as_f64().ok_or("the peer gave no memory")?;
    println!("pytrec_eval   {theirs:8.2} s   {:6.1} bytes of memory a line", memory / lines as f64);
    println!("ratio         {:8.1}", theirs / seconds);
    for ((name, mean), (_, other)) in found.means().into_iter().zip(MEASURES) {
        let (ours, theirs) =
            (mean.value().ok_or("no mean")?, peer["means"][other].as_f64().ok_or("no mean")?);
        if (ours - theirs).abs() > 1e-9 {
            return Err(format!("{name}: {ours} is not {theirs}").into());
        }
    }
    println!("all means agree to 1e-9");
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--queries").skip(1);
    let queries = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(7000);
    match measure(queries) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
