//! Embeddings: an epoch and the filtered ranking of ComplEx, compared with PyTorch and PyKEEN on the same
//! triples in one run.
//!
//! Corpus: a folder of triples (`--kb`, such as CoDEx-M's), with a seeded sample of the training triples
//! (`--triples`; 0 for all), over all entities. Without a folder, 200,000 random triples of seed 1 over
//! 17,000 entities and 50 relations. 1vsAll uses batches of `--batch` triples, each as two questions; KvsAll
//! uses batches of as many pairs. 1vsAll is also timed in bf16, KvsAll also with sampled entities. The peers
//! run if `PYTHON` names an interpreter with `torch` (and `pykeen`). With `--large`, a table of 1,000,000
//! entities of 200 values in 16 bits is trained by negative sampling and by KvsAll with sampled entities. It
//! is saved, mapped and queried, and the peak memory is printed.
//!
//! ```text
//! PYTHON=python3 cargo bench --bench kge -- --kb data/codex-m --dim 512 --batch 1024 --triples 20000
//! ```
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    collections::BTreeMap,
    env,
    error::Error,
    ops::ControlFlow,
    path::Path,
    process::{Command, ExitCode},
    time::Instant,
};

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, RelationId, Triple};
use sporran_pipeline::manifest::peak_memory_bytes;
use sporran_reasoner::embedding::{
    EmbeddingModel, EmbeddingOptions, Storage, Training, TripleScorer, ranks, train,
};

type Outcome<T> = Result<T, Box<dyn Error>>;

const SEED: u64 = 1;
/// The number of sampled entities in a batch.
const SAMPLED: usize = 2048;

fn random(entities: u32, relations: u32, triples: usize) -> Outcome<KnowledgeBase> {
    let mut kb = KnowledgeBase::default();
    for at in 0..entities {
        kb.add_entity(&format!("Q{at}"))?;
    }
    for at in 0..relations {
        kb.add_relation(&format!("P{at}"))?;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    for at in 0..triples {
        let part = if at % 20 == 19 { Part::Test } else { Part::Train };
        let mut entity = || rng.random_range(0..entities);
        let (subject, object) = (entity(), entity());
        kb.add(part, Triple::new(subject, rng.random_range(0..relations), object))?;
    }
    Ok(kb)
}

/// The same entities and relations with some of the training triples and no validation part.
fn part_of(kb: &KnowledgeBase, triples: usize) -> Outcome<KnowledgeBase> {
    let mut part = KnowledgeBase::default();
    kb.entities().ids().iter().try_for_each(|name| part.add_entity(name).map(|_| ()))?;
    kb.relations().ids().iter().try_for_each(|name| part.add_relation(name).map(|_| ()))?;
    let mut picked = kb.triples(Part::Train).to_vec();
    picked.shuffle(&mut ChaCha8Rng::seed_from_u64(SEED));
    for triple in picked.into_iter().take(if triples == 0 { usize::MAX } else { triples }) {
        part.add(Part::Train, triple)?;
    }
    Ok(part)
}

/// Seconds of an epoch, and the model.
fn epoch(kb: &KnowledgeBase, options: Value, folder: &Path) -> Outcome<(f64, EmbeddingModel)> {
    let options: EmbeddingOptions = serde_json::from_value(options)?;
    let storage = options.storage;
    let mut seconds = 0.0;
    let training = Training { kb, options: &options, seed: SEED, folder, storage };
    let outcome = train(&training, &mut |progress| {
        seconds = progress.seconds;
        ControlFlow::Continue(())
    })?;
    Ok((seconds, EmbeddingModel::open(&outcome.model)?))
}

fn run(arguments: &BTreeMap<String, String>) -> Outcome<()> {
    let number = |name: &str, default: usize| {
        arguments.get(name).map_or(Ok(default), |value| value.parse().map_err(Box::<dyn Error>::from))
    };
    if arguments.contains_key("large") {
        return large(number("entities", 1_000_000)?, number("dim", 200)?);
    }
    let (dim, batch, triples) = (number("dim", 512)?, number("batch", 1024)?, number("triples", 20_000)?);
    let whole = match arguments.get("kb") {
        Some(folder) => KnowledgeBase::open(folder)?,
        None => random(17_000, 50, 200_000)?,
    };
    let kb = part_of(&whole, triples)?;
    println!(
        "{} entities, {} relations, {} training triples, {} test triples, {} threads",
        kb.entity_count(),
        kb.relation_count(),
        kb.triples(Part::Train).len(),
        whole.triples(Part::Test).len(),
        rayon::current_num_threads()
    );
    let options = |regime: &str, questions: usize| {
        json!({ "model": "complex", "dim": dim, "initial": "normal", "initial-scale": 0.01,
            "training": { "regime": regime, "batch-size": questions, "epochs": 1 } })
    };
    let folder = tempfile::tempdir()?;
    let mut ours = BTreeMap::new();
    let (seconds, model) = epoch(&kb, options("one-vs-all", 2 * batch), &folder.path().join("1vsall"))?;
    ours.insert("1vsAll epoch", seconds);
    let mut rounded = options("one-vs-all", 2 * batch);
    rounded["training"]["precision"] = "bf16".into();
    ours.insert("1vsAll, bf16", epoch(&kb, rounded, &folder.path().join("rounded"))?.0);
    ours.insert("KvsAll epoch", epoch(&kb, options("kvs-all", batch), &folder.path().join("kvsall"))?.0);
    let mut sampled = options("kvs-all", batch);
    sampled["training"]["sampled-entities"] = SAMPLED.into();
    ours.insert("KvsAll, sample", epoch(&kb, sampled, &folder.path().join("sampled"))?.0);
    let started = Instant::now();
    let known = whole.index(&Part::ALL);
    ranks(&model, whole.triples(Part::Test), &known)?;
    ours.insert("ranking", started.elapsed().as_secs_f64());
    for (name, seconds) in &ours {
        println!("  sporran {name:<14} {seconds:9.2} s");
    }
    let (Some(python), Some(data)) = (env::var_os("PYTHON"), arguments.get("kb")) else { return Ok(()) };
    let output = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/reference/kge.py"))
        .arg(data)
        .args(["--dim", &dim.to_string(), "--batch", &batch.to_string()])
        .args(["--triples", &kb.triples(Part::Train).len().to_string()])
        .args(["--threads", &rayon::current_num_threads().to_string()])
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    for line in String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with('{')) {
        let line: Value = serde_json::from_str(line)?;
        let (name, seconds) =
            (line["name"].as_str().unwrap_or_default(), line["seconds"].as_f64().unwrap_or(0.0));
        let own =
            ours.iter().find(|(own, _)| name.ends_with(**own)).map_or(f64::NAN, |(_, seconds)| *seconds);
        println!("  {name:<22} {seconds:9.2} s   {:5.2} times ours", seconds / own);
    }
    Ok(())
}

/// Trains, saves, maps and queries a table in 16 bits.
fn large(entities: usize, dim: usize) -> Outcome<()> {
    let kb = random(u32::try_from(entities)?, 50, 1_000_000)?;
    let kb = part_of(&kb, 200_000)?;
    let options = |training: Value| {
        json!({ "model": "complex", "dim": dim, "initial": "normal", "initial-scale": 0.01, "storage": "f16",
            "training": training })
    };
    let folder = tempfile::tempdir()?;
    let negatives = json!({ "regime": "negative-sampling", "batch-size": 2048, "epochs": 1 });
    let (seconds, model) = epoch(&kb, options(negatives), &folder.path().join("negatives"))?;
    println!("{entities} entities of {dim} values in 16 bits");
    println!("  negative sampling, 200,000 triples, 64 negatives each way: {seconds:.1} s");
    let sample = json!({ "regime": "kvs-all", "batch-size": 1024, "epochs": 1, "sampled-entities": SAMPLED });
    let (seconds, _) = epoch(&kb, options(sample), &folder.path().join("sample"))?;
    println!("  KvsAll, the same triples, {SAMPLED} of the other entities a batch: {seconds:.1} s");
    let started = Instant::now();
    let mut scores = vec![0.0; entities];
    model.score_objects(&[(EntityId(0), RelationId(0))], &mut scores)?;
    println!("  a question among all entities, mapped: {:.2} s", started.elapsed().as_secs_f64());
    println!(
        "  {} bytes an entity on disk",
        dim * if model.options().storage == Storage::F16 { 2 } else { 4 }
    );
    println!(
        "  peak memory of training and asking: {:.2} GiB",
        peak_memory_bytes() as f64 / (1u64 << 30) as f64
    );
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = BTreeMap::new();
    let mut words = env::args().skip(1).filter(|word| word != "--bench").peekable();
    while let Some(word) = words.next() {
        let Some(name) = word.strip_prefix("--") else {
            println!("expected --NAME VALUE, found {word}");
            return ExitCode::from(2);
        };
        let value = words.next_if(|next| !next.starts_with("--")).unwrap_or_default();
        arguments.insert(name.to_owned(), value);
    }
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}
