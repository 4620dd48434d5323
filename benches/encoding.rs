//! Encoding at real sizes: tokens per second, compared with transformers and onnxruntime on the same inputs
//! in one run.
//!
//! Inputs: rows of 256 random tokens from seed 1, in batches of 8. A warm-up run comes first. The peers run
//! if `PYTHON` names an interpreter with `torch`, `transformers`, `onnx`, `onnxscript` and `onnxruntime`;
//! int8 is onnxruntime's dynamic quantisation. Both compute the hidden states of all tokens. Sporran is also
//! timed for the first tokens only, which suffice for classifiers and DPR.
//!
//! ```text
//! python scripts/reference/encoding.py make DIR
//! MODELS=DIR/bert-base:FOLDER_OF_MINILM PYTHON=python3 cargo bench --bench encoding
//! ```
//!
//! With `-- --device cuda` both sides compute on a GPU, in f32, f16 and bf16, and transformers is the only
//! peer.
//!
//! With `TEXTS`, a file with one text a line, the bench instead times a sentence-transformers folder from
//! texts to an exact index on disk, compared with sentence-transformers and faiss (`sentence-transformers`,
//! `faiss-cpu`). Loading is not counted:
//!
//! ```text
//! MODELS=FOLDER_OF_MINILM TEXTS=FILE PYTHON=python3 cargo bench --bench encoding
//! ```
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::Deserialize;
use serde_json::json;
use sporran_retriever::dense::{
    BiEncoder, BiEncoderOptions, Encoder as _, FlatOptions, Index, IndexOptions, Origin, Similarity,
};
use sporran_transformers::{Batch, Checkpoint, DeviceName, Encoder, Precision};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SEED: u64 = 1;
const LENGTH: usize = 256;
const ROWS: usize = 32;
const BATCH: usize = 8;
/// The best of this many runs counts.
const RUNS: usize = 3;

/// The output of a peer.
#[derive(Deserialize)]
struct Peer {
    name: String,
    seconds: f64,
    /// The hidden state of the first token of the first row.
    state: Vec<f32>,
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
    let Ok(models) = env::var("MODELS") else {
        println!("MODELS names no folder of a model; see the head of benches/encoding.rs");
        return Ok(());
    };
    if let Ok(texts) = env::var("TEXTS") {
        return env::split_paths(&models).try_for_each(|folder| index(&folder, Path::new(&texts)));
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let named =
        arguments.iter().position(|argument| argument == "--device").and_then(|at| arguments.get(at + 1));
    let device: DeviceName = named.map_or(Ok(DeviceName::Cpu), |name| name.parse())?;
    let precisions: &[Precision] = match device {
        DeviceName::Cpu => &[Precision::F32, Precision::Int8],
        DeviceName::Cuda(_) => &[Precision::F32, Precision::F16, Precision::Bf16],
    };
    println!(
        "{device}, {} threads, {ROWS} rows of {LENGTH} tokens in batches of {BATCH}",
        rayon::current_num_threads()
    );
    for folder in env::split_paths(&models) {
        let checkpoint = Checkpoint::open(&folder)?;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let last = checkpoint.config().vocab_size() as u32;
        let inputs: Vec<Vec<u32>> =
            (0..ROWS).map(|_| (0..LENGTH).map(|_| rng.random_range(1000..last)).collect()).collect();
        let peers = peers(&folder, &inputs, device)?;
        println!("{}", folder.file_name().map_or_else(Default::default, |name| name.to_string_lossy()));
        for peer in &peers {
            println!("  {:<26} {:9.0} tokens/s", peer.name, (ROWS * LENGTH) as f64 / peer.seconds);
        }
        for precision in precisions {
            let body = checkpoint.encoder_on(device, *precision)?.body;
            for (kind, of_first) in [("", false), (", first tokens", true)] {
                let (seconds, state) = timed(&*body, of_first, &inputs)?;
                let ratios: Vec<String> = peers
                    .iter()
                    .map(|peer| format!("{:.2} x {}", peer.seconds / seconds, peer.name))
                    .collect();
                let (name, speed) = (format!("sporran {precision}{kind}"), (ROWS * LENGTH) as f64 / seconds);
                println!("  {name:<26} {speed:9.0} tokens/s  {}", ratios.join(", "));
                if let Some(peer) = peers.first() {
                    println!("  {:<26} cosine {:.6} with {}", "", cosine(&state, &peer.state), peer.name);
                }
            }
        }
    }
    Ok(())
}

/// From the texts of a file to an index on disk.
fn index(folder: &Path, texts: &Path) -> Outcome<()> {
    let text = fs::read_to_string(texts)?;
    let lines: Vec<&str> = text.lines().collect();
    let model = BiEncoder::load(&BiEncoderOptions::new(folder.to_path_buf()))?;
    let origin = Origin { encoder_hash: "bench", passages_hash: "bench" };
    let (mut seconds, mut first) = (f64::INFINITY, Vec::new());
    for _ in 0..RUNS {
        let work = tempfile::tempdir()?;
        let start = Instant::now();
        let vectors =
            |from: u32| lines[from as usize..].chunks(Index::PORTION).map(|part| model.encode(part));
        let options = IndexOptions::Flat(FlatOptions::default());
        let dir = work.path().join("index");
        Index::build(&options, Similarity::Cosine, model.dim(), origin, vectors, &dir, &mut |_| ())?;
        seconds = seconds.min(start.elapsed().as_secs_f64());
        first = model.encode(&lines[..1])?.values().to_vec();
    }
    println!("{} texts, {} threads, {}", lines.len(), rayon::current_num_threads(), folder.display());
    println!("  {:<28} {:9.1} texts/s", "sporran f32", lines.len() as f64 / seconds);
    for peer in run_peers(&[Path::new("index"), folder, texts], DeviceName::Cpu)? {
        println!("  {:<28} {:9.1} texts/s", peer.name, lines.len() as f64 / peer.seconds);
        println!(
            "  sporran is {:.2} times as fast; cosine {:.6} of the first text's vectors",
            peer.seconds / seconds,
            cosine(&first, &peer.state)
        );
    }
    Ok(())
}

/// The seconds of the best run, for all tokens or first ones, and the hidden state of the first token of the
/// first row.
fn timed(model: &dyn Encoder, of_first: bool, inputs: &[Vec<u32>]) -> Outcome<(f64, Vec<f32>)> {
    let batches: Result<Vec<Batch>, _> =
        inputs.chunks(BATCH).map(|rows| Batch::new(rows, model.pad_token(), model.device())).collect();
    let batches = batches?;
    let states = |batch: &Batch| if of_first { model.first_states(batch) } else { model.states(batch) };
    let (mut best, mut state) = (f64::INFINITY, Vec::new());
    let here = DeviceName::Cpu.open()?;
    for _ in 0..=RUNS {
        let start = Instant::now();
        let states = batches.iter().map(states).collect::<Result<Vec<_>, _>>()?;
        // GPU work is finished only when its result is in main memory.
        let states: Vec<_> = states.iter().map(|states| states.to_device(&here)).collect::<Result<_, _>>()?;
        best = best.min(start.elapsed().as_secs_f64());
        state = states[0].get(0)?.get(0)?.to_dtype(Precision::F32.dtype()?)?.to_vec1()?;
    }
    Ok((best, state))
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// Runs the peers on the same inputs.
fn peers(folder: &Path, inputs: &[Vec<u32>], device: DeviceName) -> Outcome<Vec<Peer>> {
    let work = tempfile::NamedTempFile::new()?;
    fs::write(work.path(), json!({"inputs": inputs, "batch": BATCH, "runs": RUNS}).to_string())?;
    run_peers(&[Path::new("run"), folder, work.path()], device)
}

/// The output of the peers' script for these arguments, the number of threads and the device; empty without
/// Python.
fn run_peers(arguments: &[&Path], device: DeviceName) -> Outcome<Vec<Peer>> {
    let Some(python) = env::var_os("PYTHON").map(PathBuf::from) else { return Ok(Vec::new()) };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/encoding.py");
    let threads = rayon::current_num_threads().to_string();
    let mut command = Command::new(python);
    let output = command.arg(script).args(arguments).arg(threads).arg(device.to_string()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}
