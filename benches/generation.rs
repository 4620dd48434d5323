//! Generation at real sizes: tokens per second, compared with transformers and CTranslate2 on the same inputs
//! in one run.
//!
//! Models: T5-small, BART-base and BART-large with random weights, created by
//! `scripts/reference/generation.py make DIR` from seed 0. Inputs: rows of random tokens from seed 1. The
//! output length is forced, so every engine does the same work. A warm-up run comes first; encoding is part
//! of the measured time.
//!
//! ```text
//! python scripts/reference/generation.py make DIR
//! MODELS=DIR PYTHON=python3 cargo bench --bench generation [-- --only bart-base --beams 1]
//! ```
//!
//! The peers run if `PYTHON` names an interpreter with `torch`, `transformers` and `ctranslate2`. With
//! `--device cuda` both sides compute on a GPU, in f32, f16 and bf16, and transformers is the only peer;
//! `--rows N` sets another batch size.
//!
//! `--fused f32` or `--fused int8` measures time and memory of T5-base as Fusion-in-Decoder: one input with
//! 100 passages of 200 tokens each, encoded separately and read together, with four beams:
//!
//! ```text
//! MODELS=DIR cargo bench --bench generation -- --fused f32
//! ```
//!
//! `--gguf FILE` measures a decoder-only model of a GGUF file with 1, 4 and 16 prompts of 24 tokens, in f32 or with
//! `--precision int8`: the peak memory and the tokens per second.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    env,
    error::Error,
    fs,
    path::Path,
    process::{Command, ExitCode},
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde_json::json;
use sporran_pipeline::manifest::peak_memory_bytes;
use sporran_transformers::{
    Batch, Checkpoint, DeviceName, GenerationOptions, Gguf, Hypothesis, Inputs, Precision, Seq2Seq,
    encode_separately, fuse, generate, generate_causal, generate_with,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SEED: u64 = 1;
const SOURCE: usize = 256;
const NEW: usize = 32;
/// The best of this many runs counts.
const RUNS: usize = 2;
/// The number of passages, their tokens, and the tokens of an encoder batch, as by default in `sporran run`.
const PASSAGES: usize = 100;
const PASSAGE: usize = 200;
const PORTION: usize = 8192;

/// A folder, the number of rows in a batch, and the number of beams.
const WORK: [(&str, usize, usize); 6] = [
    ("t5-small", 8, 4),
    ("t5-small", 8, 1),
    ("bart-base", 8, 4),
    ("bart-base", 8, 1),
    ("bart-large", 4, 4),
    ("bart-large", 4, 1),
];

/// The output of a peer.
#[derive(Deserialize)]
struct Peer {
    name: String,
    seconds: f64,
    /// The new tokens of each row's best output.
    outputs: Vec<Vec<u32>>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let after = |option: &str| {
        arguments.iter().position(|argument| argument == option).and_then(|at| arguments.get(at + 1))
    };
    if let Some(file) = after("--gguf") {
        let precision = after("--precision").map_or(Ok(Precision::F32), |name| name.parse())?;
        return gguf(Path::new(file), precision);
    }
    let Ok(models) = env::var("MODELS") else {
        println!("MODELS names no folder with models; see the head of benches/generation.rs");
        return Ok(());
    };
    if let Some(precision) = after("--fused") {
        let precision = match precision.as_str() {
            "f32" => Precision::F32,
            "int8" => Precision::Int8,
            other => return Err(format!("--fused: expected f32 or int8, found {other}").into()),
        };
        return fused(&Path::new(&models).join("t5-base"), precision);
    }
    let only = after("--only");
    let width = after("--beams").map(|text| text.parse::<usize>()).transpose()?;
    let size = after("--rows").map(|text| text.parse::<usize>()).transpose()?;
    let device: DeviceName = after("--device").map_or(Ok(DeviceName::Cpu), |name| name.parse())?;
    let precisions: &[Precision] = match device {
        DeviceName::Cpu => &[Precision::F32, Precision::Int8],
        DeviceName::Cuda(_) => &[Precision::F32, Precision::F16, Precision::Bf16],
    };
    let threads = rayon::current_num_threads();
    println!("{device}, {threads} threads, {SOURCE} source tokens, {NEW} new tokens");
    for (name, rows, beams) in WORK {
        let rows = size.unwrap_or(rows);
        if only.is_some_and(|only| only != name) || width.is_some_and(|width| width != beams) {
            continue;
        }
        let folder = Path::new(&models).join(name);
        let checkpoint = Checkpoint::open(&folder)?;
        let inputs = inputs(rows, SOURCE, checkpoint.config().vocab_size());
        let peers = peers(&folder, &inputs, beams, device)?;
        println!("{name}, batch {rows}, beams {beams}");
        for peer in &peers {
            println!("  {:<24} {:8.1} tokens/s", peer.name, (rows * NEW) as f64 / peer.seconds);
        }
        for precision in precisions {
            let model = checkpoint.seq2seq(device, *precision)?;
            let (seconds, outputs) = timed(&*model, &inputs, beams)?;
            let ratios: Vec<String> =
                peers.iter().map(|peer| format!("{:.2} x {}", peer.seconds / seconds, peer.name)).collect();
            let speed = (rows * NEW) as f64 / seconds;
            println!("  {:<24} {speed:8.1} tokens/s  {}", format!("sporran {precision}"), ratios.join(", "));
            for peer in peers.iter().filter(|peer| peer.name == "transformers f32") {
                let same = outputs.iter().zip(&peer.outputs).filter(|(a, b)| a == b).count();
                println!("  {:<24} {same} of {rows} outputs are those of transformers", "");
            }
        }
    }
    Ok(())
}

/// Generates once from many passages of one input, in a separate process.
fn fused(folder: &Path, precision: Precision) -> Outcome<()> {
    let checkpoint = Checkpoint::open(folder)?;
    let rows = inputs(PASSAGES, PASSAGE, checkpoint.config().vocab_size());
    let model = checkpoint.fast(precision)?;
    let start = Instant::now();
    let states = encode_separately(&model, &rows, PORTION)?;
    let encoded = start.elapsed().as_secs_f64();
    let memory = fuse(&[&states])?;
    let found = generate_with(&model, &memory, &options(4), &Inputs::default())?;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{PASSAGES} passages of {PASSAGE} tokens, {} new tokens, four beams, {precision:?}: {seconds:.2} s, {encoded:.2} s of it encoding; peak memory {:.2} GiB",
        found[0][0].tokens.len(),
        peak_memory_bytes() as f64 / (1u64 << 30) as f64
    );
    Ok(())
}

/// Generates with a decoder-only model, in a separate process.
fn gguf(file: &Path, precision: Precision) -> Outcome<()> {
    let model = Gguf::open(file)?.causal(DeviceName::Cpu, precision)?;
    let memory = || peak_memory_bytes() as f64 / (1u64 << 20) as f64;
    let size = fs::metadata(file)?.len() as f64 / (1u64 << 20) as f64;
    println!("{precision}: {size:.0} MiB in the file, peak memory {:.0} MiB after loading", memory());
    for rows in [1, 4, 16] {
        let inputs = inputs(rows, 24, model.vocab_size());
        let mut best = f64::INFINITY;
        for _ in 0..=RUNS {
            let start = Instant::now();
            generate_causal(&*model, &inputs, &options(1))?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        let speed = (rows * NEW) as f64 / best;
        println!("  batch {rows:<3} {speed:8.1} tokens/s, peak memory {:.0} MiB", memory());
    }
    Ok(())
}

fn inputs(rows: usize, length: usize, vocabulary: usize) -> Vec<Vec<u32>> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let last = vocabulary as u32 - 200;
    (0..rows).map(|_| (0..length).map(|_| rng.random_range(10..last)).collect()).collect()
}

fn options(beams: usize) -> GenerationOptions {
    GenerationOptions {
        num_beams: Some(beams),
        max_new_tokens: Some(NEW),
        min_new_tokens: Some(NEW),
        ..GenerationOptions::default()
    }
}

/// The seconds of the best run, and the tokens of each row's best output.
fn timed(model: &dyn Seq2Seq, inputs: &[Vec<u32>], beams: usize) -> Outcome<(f64, Vec<Vec<u32>>)> {
    let options = options(beams);
    let batch = Batch::new(inputs, model.special_tokens().pad, model.device())?;
    let mut best = f64::INFINITY;
    let mut outputs = Vec::new();
    for _ in 0..=RUNS {
        let start = Instant::now();
        outputs = generate(model, &batch, &options)?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    let first = |mut hypotheses: Vec<Hypothesis>| hypotheses.swap_remove(0).tokens;
    Ok((best, outputs.into_iter().map(first).collect()))
}

/// Runs the peers on the same inputs.
fn peers(folder: &Path, inputs: &[Vec<u32>], beams: usize, device: DeviceName) -> Outcome<Vec<Peer>> {
    let Ok(python) = env::var("PYTHON") else { return Ok(Vec::new()) };
    let work = tempfile::NamedTempFile::new()?;
    fs::write(work.path(), json!({"inputs": inputs, "beams": beams, "new": NEW, "runs": RUNS}).to_string())?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/generation.py");
    let threads = rayon::current_num_threads().to_string();
    let mut command = Command::new(python);
    command.arg(script).arg("run").arg(folder).arg(work.path()).arg(threads).arg(device.to_string());
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}
