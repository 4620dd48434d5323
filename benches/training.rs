//! Training a cross-encoder or a decoder-only model, compared with PyTorch in the same run.
//!
//! Corpus: pairs of random tokens from a seed (11), 32 a batch, once all of one length and once of lengths
//! from 40 to 256; the binary log-loss, dropout by the config, AdamW. Both sides start from the same folder
//! and use the same rows; PyTorch pads a batch to its longest row, as is usual, and we do not. Time is that
//! of whole steps (forward, backward, clipping, update), the median of the rounds after a warm-up. Memory is
//! each process's peak resident set, with one process for each kind of batch. Each is timed in f32 and with
//! bf16 products (`precision = "bf16"`; PyTorch's `autocast`).
//!
//! ```text
//! MODEL=FOLDER_OF_MINILM PYTHON=python3 cargo bench --bench training
//! ```
//!
//! With `SHAPE=gpt2` the model has GPT-2 small's shape and random weights, with `SHAPE=llama` that of SmolLM2-135M; `MODEL` is not
//! needed. The batch then has 8 rows of 64 prompt tokens and 64 target tokens; only targets have a loss. PyTorch computes the logits of all tokens, as is usual.
//!
//! ```text
//! SHAPE=gpt2 PYTHON=python3 cargo bench --bench training
//! SHAPE=llama PYTHON=python3 cargo bench --bench training
//! ```
//!
//! `MODEL` is a BERT-shaped folder. Without `PYTHON` only our side runs. `STEPS` is the number of measured
//! steps (5). Threads: those of `RAYON_NUM_THREADS`, for PyTorch too. With `DEVICE=cuda` both sides compute
//! on a GPU, in f32 only.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sporran_kernels::TrainingPrecision;
use sporran_pipeline::manifest::peak_memory_bytes;
use sporran_training::{
    AdamW, AdamWConfig, CausalObjective, Gradients, KeptMemory, Objective, RankingLoss, RankingObjective,
    RankingQuery, Row, TrainingOptions, TunedEncoder, Variables,
};
use sporran_transformers::{
    BertTask, Checkpoint, DeviceName, EncoderRow, Gpt2, Gpt2Config, Llama, LlamaConfig, TrainableCausal,
    fused::in_precision,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const BATCH: usize = 32;

fn rows(lengths: impl Iterator<Item = usize>, vocabulary: u32, rng: &mut ChaCha8Rng) -> Vec<EncoderRow> {
    lengths
        .map(|length| EncoderRow {
            ids: (0..length).map(|_| rng.random_range(1000.min(vocabulary / 2)..vocabulary)).collect(),
            types: (0..length).map(|at| u32::from(at * 3 > length * 2)).collect(),
        })
        .collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Our side on one batch: seconds a step, and the peak memory in MiB.
fn ours(
    folder: &Path,
    rows: Vec<EncoderRow>,
    steps: usize,
    precision: TrainingPrecision,
) -> Outcome<(f64, f64)> {
    let checkpoint = Checkpoint::open(folder)?;
    let encoder =
        TunedEncoder::open(&checkpoint, BertTask::SequenceClassification, 1, 7, &device()?.open()?)?;
    let targets = (0..rows.len()).map(|at| (at % 2) as f32).collect();
    let options = TrainingOptions { tokens_per_batch: usize::MAX, ..TrainingOptions::default() };
    let queries = vec![RankingQuery { query: None, rows, targets, offsets: Vec::new() }];
    let objective = RankingObjective::new(&encoder, queries, RankingLoss::Binary, None, &options)?;
    measure(&objective, encoder.variables(), steps, precision)
}

/// The names of the decoder-only models, which are those of their batches, and the shape of a batch.
const GPT2: &str = "gpt2";
const LLAMA: &str = "llama";
const CAUSAL_ROWS: usize = 8;
const CAUSAL_TOKENS: usize = 64;

/// SmolLM2-135M.
fn llama() -> LlamaConfig {
    LlamaConfig {
        vocab_size: 49152,
        hidden_size: 576,
        intermediate_size: 1536,
        num_hidden_layers: 30,
        num_attention_heads: 9,
        num_key_value_heads: Some(3),
        tie_word_embeddings: true,
        ..LlamaConfig::default()
    }
}

/// The number of tokens of a decoder-only model.
fn causal_vocabulary(name: &str) -> u32 {
    if name == GPT2 { Gpt2Config::default().vocab_size as u32 } else { llama().vocab_size as u32 }
}

/// The rows of a decoder-only model: prompts and targets.
fn pairs(vocabulary: u32) -> Vec<Row> {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut tokens = || (0..CAUSAL_TOKENS).map(|_| rng.random_range(0..vocabulary)).collect::<Vec<u32>>();
    (0..CAUSAL_ROWS).map(|_| Row { source: tokens(), target: tokens() }).collect()
}

/// Our side on the batch of a decoder-only model.
fn ours_causal(name: &str, steps: usize, precision: TrainingPrecision) -> Outcome<(f64, f64)> {
    let variables = Variables::new(7);
    let builder = variables.builder(&device()?.open()?);
    let model: Box<dyn TrainableCausal> = match name {
        GPT2 => Box::new(Gpt2::new(&Gpt2Config::default(), &builder)?),
        _ => Box::new(Llama::new(&llama(), &builder)?),
    };
    let rows = Arc::new(pairs(causal_vocabulary(name)));
    let given = |_| Ok(rows.clone());
    let options = TrainingOptions { tokens_per_batch: usize::MAX, ..TrainingOptions::default() };
    let objective = CausalObjective::new(&*model, &variables, &options, &given);
    measure(&objective, &variables, steps, precision)
}

/// Seconds of a step on the first batch, and the peak memory in MiB.
fn measure<O: Objective>(
    objective: &O,
    variables: &Variables,
    steps: usize,
    precision: TrainingPrecision,
) -> Outcome<(f64, f64)> {
    let _memory = KeptMemory::new();
    let batch = objective.epoch(0)?.remove(0);
    let mut optimizer = AdamW::new(variables.all(), AdamWConfig::default())?;
    let mut gradients = Gradients::zeros(optimizer.variables().map(|(_, var)| var));
    let mut seconds = Vec::new();
    for step in 0..=steps {
        let began = Instant::now();
        gradients.clear();
        in_precision(precision, || {
            objective.learn(&batch, objective.weight(&batch), step as u64, &mut gradients)
        })?;
        gradients.clip_global_norm(1.0)?;
        optimizer.step(&gradients, 2e-5)?;
        if step > 0 {
            seconds.push(began.elapsed().as_secs_f64());
        }
    }
    Ok((median(seconds), peak_memory_bytes() as f64 / 1_048_576.0))
}

/// The batch called `name` of a model with this vocabulary.
fn batch(name: &str, vocabulary: u32) -> Vec<EncoderRow> {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    if name == "one length" {
        return rows(std::iter::repeat_n(128, BATCH), vocabulary, &mut rng);
    }
    let lengths: Vec<usize> = (0..BATCH).map(|_| rng.random_range(40..=256)).collect();
    rows(lengths.into_iter(), vocabulary, &mut rng)
}

/// The device of both sides.
fn device() -> Outcome<DeviceName> {
    Ok(env::var("DEVICE").map_or(Ok(DeviceName::Cpu), |name| name.parse())?)
}

fn main() -> Outcome<()> {
    let steps: usize = env::var("STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    // Memory is measured by process, so each measurement runs this program as a new process.
    if let Ok(name) = env::var("TRAINING_BATCH") {
        let precision = serde_json::from_value(Value::String(env::var("TRAINING_PRECISION")?))?;
        if [GPT2, LLAMA].contains(&name.as_str()) {
            let (seconds, peak) = ours_causal(&name, steps, precision)?;
            println!("{}", json!({ "seconds": seconds, "peak": peak }));
            return Ok(());
        }
        let folder = PathBuf::from(env::var("MODEL")?);
        let vocabulary = Checkpoint::open(&folder)?.config().vocab_size() as u32;
        let (seconds, peak) = ours(&folder, batch(&name, vocabulary), steps, precision)?;
        println!("{}", json!({ "seconds": seconds, "peak": peak }));
        return Ok(());
    }
    let scratch = tempfile::tempdir()?;
    let shape = env::var("SHAPE").ok();
    if let Some(shape) = shape.as_ref().filter(|shape| ![GPT2, LLAMA].contains(&shape.as_str())) {
        return Err(format!("SHAPE: expected {GPT2} or {LLAMA}, found {shape}").into());
    }
    let is_causal = shape.is_some();
    let (folder, vocabulary) = if let Some(shape) = &shape {
        (PathBuf::from(shape), causal_vocabulary(shape))
    } else {
        let folder = PathBuf::from(env::var_os("MODEL").ok_or("MODEL: expected the folder of an encoder")?);
        let vocabulary = Checkpoint::open(&folder)?.config().vocab_size() as u32;
        (folder, vocabulary)
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/training.py");
    let names = shape.as_deref().map_or(vec!["one length", "several"], |shape| vec![shape]);
    let device = device()?;
    let precisions: &[&str] = if device == DeviceName::Cpu { &["f32", "bf16"] } else { &["f32"] };
    println!("{:27} {:>8} {:>12} {:>12} {:>10}", "batch", "tokens", "s/step", "tokens/s", "peak MiB");
    for name in names {
        let given = scratch.path().join("rows.json");
        let (tokens, listed): (usize, Vec<Value>) = if is_causal {
            let rows = pairs(vocabulary);
            let pair = |row: &Row| json!({ "prompt": row.source, "target": row.target });
            (rows.len() * 2 * CAUSAL_TOKENS, rows.iter().map(pair).collect())
        } else {
            let rows = batch(name, vocabulary);
            let row = |row: &EncoderRow| json!({ "ids": row.ids, "types": row.types });
            (rows.iter().map(|row| row.ids.len()).sum(), rows.iter().map(row).collect())
        };
        fs::write(&given, serde_json::to_vec(&listed)?)?;
        for precision in precisions {
            let output = Command::new(env::current_exe()?)
                .env("TRAINING_BATCH", name)
                .env("TRAINING_PRECISION", precision)
                .env("MODEL", &folder)
                .output()?;
            let own = answer("our side", &output)?;
            show(&format!("{name}, {precision}"), tokens, own);
            let Some(python) = env::var_os("PYTHON") else { continue };
            let threads = rayon::current_num_threads().to_string();
            let output = Command::new(python)
                .arg(&script)
                .args([&folder, &given])
                .args([&steps.to_string(), &threads, *precision, &device.to_string()])
                .output()?;
            let peer = answer("PyTorch", &output)?;
            show(&format!("{name}, {precision}, PyTorch"), tokens, peer);
            println!(
                "{:27} speed {:.2} times PyTorch's, memory {:.2} times",
                "",
                peer.0 / own.0,
                own.1 / peer.1
            );
        }
    }
    Ok(())
}

/// Seconds and MiB from the output of a side.
fn answer(side: &str, output: &std::process::Output) -> Outcome<(f64, f64)> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().find(|line| line.starts_with('{'));
    let Some(line) = line else {
        return Err(format!("{side}: {}", String::from_utf8_lossy(&output.stderr)).into());
    };
    let value: Value = serde_json::from_str(line)?;
    Ok((value["seconds"].as_f64().unwrap_or(f64::NAN), value["peak"].as_f64().unwrap_or(f64::NAN)))
}

fn show(name: &str, tokens: usize, (seconds, peak): (f64, f64)) {
    println!("{name:27} {tokens:>8} {seconds:>10.3} {:>12.0} {peak:>10.0}", tokens as f64 / seconds);
}
