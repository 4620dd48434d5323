//! Extracts facts from a new page, adds them to a knowledge base, and answers questions that had no answer
//! before.
//!
//! ```text
//! cargo run --release --example populate_then_reason
//! ```
//!
//! The page, about a fictional person, is read with the bundled extractor. Its facts join minikilt's
//! knowledge base with the sentences that support them. The bundled TransferNet answers over the knowledge
//! base before and after; its new answers are supported by the page's sentence. Then ComplEx is trained over
//! both knowledge bases, so that the new person has a vector, and ranks languages that she may speak, which
//! no page mentions.
#![allow(clippy::print_stdout, reason = "an example shows its results")]

use std::{error::Error, fs, ops::ControlFlow, path::Path};

use serde_json::json;
use sporran::{
    kilt::{Record, kb::Part},
    pipeline::{
        Config,
        kbqa::{ReasonOptions, knowledge_base, reason},
        population::{PopulationOptions, Purpose, populate},
    },
    reasoner::embedding::{
        EmbeddingModel, EmbeddingOptions, Storage, Training, TripleScorer, train as embed,
    },
};

const PAGE: &str =
    "Ada Quill was a citizen of Italy. Ada Quill was born in Rome and studied at Harvard University.\n";
/// In each question a name is hidden; the document states the relation between the hidden entity and Ada
/// Quill.
const QUESTIONS: [(&str, &str); 2] = [
    ("Which school did [human 4990] attend?", "[human 4990] grew up with Ada Quill."),
    (
        "What is the continent of [sovereign state 4711]?",
        "The passport of Ada Quill was issued by the [sovereign state 4711].",
    ),
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::env::set_current_dir(root)?;
    let folder = tempfile::tempdir()?;
    let place = |name: &str| folder.path().join(name).display().to_string();
    fs::write(place("page.txt"), PAGE)?;
    let questions: Vec<_> = QUESTIONS
        .iter()
        .enumerate()
        .map(|(at, (question, text))| json!({ "id": at.to_string(), "question": question, "context": text }))
        .collect();
    fs::write(place("questions.json"), json!(questions).to_string())?;

    // Facts of the page, as predictions with their sentences.
    let settings = [
        "name=news".to_owned(),
        format!("output={}", place("runs")),
        "input.format=text".to_owned(),
        format!("input.files=[\"{}\"]", place("page.txt")),
        "~input.folds".to_owned(),
        "~input.pages".to_owned(),
    ];
    let options =
        PopulationOptions::load_for(Path::new("configs/quickstart-kbp.toml"), &settings, Purpose::Populate)?;
    let report = populate(&options, &mut |_| {})?;
    println!("{} facts from {} sentences", report.files[0].facts, report.files[0].sentences);

    // Before and after.
    let load = |runs: &str, name: &str| -> Result<ReasonOptions, Box<dyn Error>> {
        let settings = [
            format!("name={name}"),
            format!("output={}", place("runs")),
            format!("populated.runs=[{runs}]"),
            format!("data.iid={}", place("questions.json")),
        ];
        Ok(ReasonOptions::load(Path::new("configs/korc/populate-then-reason.toml"), &settings)?)
    };
    let before = load("", "before")?;
    let after = load(&format!("\"{}\"", place("runs/news")), "after")?;
    for (when, options) in [("before", &before), ("after", &after)] {
        println!("\n{when}:");
        reason(options, &mut |_| {}, &mut show)?;
    }

    // Vectors for all entities, the new ones among them.
    let base = knowledge_base(&after)?;
    let find = |name: &str| base.entity(name).ok_or_else(|| format!("{name} is not in the knowledge base"));
    let (ada, speaks, italian) =
        (find("Ada Quill")?, base.relation("P1412").ok_or("no P1412")?, find("Q652")?);
    let options: EmbeddingOptions = serde_json::from_value(json!({
        "model": "complex", "dim": 64, "initial": "normal", "initial-scale": 0.001,
        "training": { "epochs": 20, "batch-size": 256, "learning-rate": 0.1,
            "regularizer": { "entity": 0.01, "relation": 0.01 } }
    }))?;
    let vectors = folder.path().join("vectors");
    let training =
        Training { kb: &base, options: &options, seed: 1, folder: &vectors, storage: Storage::F32 };
    let outcome = embed(&training, &mut |_| ControlFlow::Continue(()))?;
    let model = EmbeddingModel::open(&outcome.model)?;
    let mut scores = vec![0.0; base.entity_count()];
    model.score_objects(&[(ada, speaks)], &mut scores)?;
    let better = scores.iter().filter(|score| **score > scores[italian.index()]).count();
    println!(
        "\nComplEx over {} triples puts Italian in place {} of {} among what Ada Quill may speak",
        base.triples(Part::Train).len(),
        better + 1,
        base.entity_count()
    );
    Ok(())
}

/// An answer, the triples that support it, and their sentences.
fn show(record: &Record) {
    println!("  {}", record.input.as_deref().unwrap_or_default());
    let answers = record.meta.as_ref().and_then(|meta| meta["answers"].as_array());
    let Some(best) = answers.and_then(|answers| answers.first()) else { return println!("    no answer") };
    println!("    {}", best["answer"].as_str().unwrap_or_default());
    for triple in best["triples"].as_array().into_iter().flatten() {
        println!("      {}", triple["labels"]);
        for stated in triple["evidence"].as_array().into_iter().flatten() {
            println!("        stated by: {}", stated["statement"]["text"]);
        }
    }
}
