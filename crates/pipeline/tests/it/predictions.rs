//! Every prediction file of every workflow has KILT's shape: what the quickstart's configs and those of WOW++ write over the
//! bundled data, checked by the code of `sporran submit check`, pages and places included.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use sporran_kilt::{PassageStore, wowpp};
use sporran_pipeline::{
    Config, Options, kbqa, knowledge_selection,
    population::{PopulationOptions, Purpose, populate},
    submit, workflow_of,
};
use sporran_reranker::{Computing, Saved};
use sporran_transformers::{DeviceName, Precision};

/// The configs' paths are relative to the repository's root.
pub(crate) fn enter_root() {
    std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
}

/// `output` for a run, and the other overrides of a config.
pub(crate) fn overrides(folder: &Path, more: &[String]) -> Vec<String> {
    let output = format!("output={}", folder.join("runs").display());
    std::iter::once(output).chain(more.iter().cloned()).collect()
}

pub(crate) fn indexes(folder: &Path) -> String {
    format!("source.indexes={}", folder.join("indexes").display())
}

/// The one store that runs have built.
fn store(folder: &Path) -> Arc<PassageStore> {
    let built = fs::read_dir(folder.join("indexes")).unwrap().map(|entry| entry.unwrap().path());
    let is_store = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("store-");
    let stores: Vec<PathBuf> = built.filter(is_store).collect();
    assert_eq!(stores.len(), 1, "one source, one split: {stores:?}");
    Arc::new(PassageStore::open(&stores[0]).unwrap())
}

/// The files below a folder whose name ends so.
fn files(folder: &Path, ending: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.append(&mut files(&path, ending));
        } else if path.to_string_lossy().ends_with(ending) {
            found.insert(path);
        }
    }
    found
}

fn records(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Records with provenance; the file is checked on the way.
fn with_provenance(path: &Path, store: &PassageStore) -> usize {
    let faults = submit::check_file(path, Some(store)).unwrap();
    assert!(faults.is_empty(), "{faults:#?}");
    let records = records(path);
    assert!(!records.is_empty(), "{}", path.display());
    records.iter().filter(|record| record["output"][0]["provenance"][0]["wikipedia_id"].is_string()).count()
}

#[test]
fn the_quickstarts_predictions_are_kilts() {
    enter_root();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let configs = fs::read_dir("configs").unwrap().map(|entry| entry.unwrap().path());
    let is_quickstart =
        |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("quickstart");
    let configs: BTreeSet<PathBuf> = configs.filter(is_quickstart).collect();
    assert!(configs.len() >= 3, "{configs:?}");
    // A few documents of the fold that is read.
    let documents = fs::read_to_string("examples/minikilt/knowledgenet/train.json").unwrap();
    let few: Vec<&str> = documents.lines().filter(|line| line.contains("\"fold\":4")).take(3).collect();
    fs::write(folder.join("few.json"), few.join("\n")).unwrap();
    for config in &configs {
        match workflow_of(config, &[]).unwrap().name {
            "answer" => {
                let more = [indexes(folder), "tasks.limit=3".into(), "name=answers".into()];
                let options = Options::parse(config, &overrides(folder, &more)).unwrap();
                sporran_pipeline::run(&options, &mut |_| {}).unwrap();
                sporran_pipeline::retrieve(&options, &mut |_| {}).unwrap();
            }
            "population" => {
                let input = format!("input.files=[\"{}\"]", folder.join("few.json").display());
                let more = [indexes(folder), input, "name=facts".into()];
                let overrides = overrides(folder, &more);
                let options = PopulationOptions::load_for(config, &overrides, Purpose::Populate).unwrap();
                populate(&options, &mut |_| {}).unwrap();
            }
            "kbqa" => {
                let overrides = overrides(folder, &["data.limit=5".into(), "name=reason".into()]);
                let options = kbqa::ReasonOptions::load(config, &overrides).unwrap();
                kbqa::reason(&options, &mut |_| {}, &mut |_| {}).unwrap();
            }
            other => panic!("{}: no test runs a config of the kind {other:?}", config.display()),
        }
    }
    let store = store(folder);
    let runs = folder.join("runs");
    for (run, count) in [("answers", 11), ("answers-retrieval", 11), ("facts", 1), ("reason", 2)] {
        let predictions = files(&runs.join(run).join("predictions"), ".jsonl");
        assert_eq!(predictions.len(), count, "{run}");
        for path in predictions {
            let all = records(&path).len();
            let shown = with_provenance(&path, &store);
            // A linked title may be no page's; everything else of the bundled data has a page.
            let linking = ["aida", "wned", "cweb"].iter().any(|name| path.to_string_lossy().contains(name));
            assert!(shown == all || linking && run == "answers", "{}: {shown} of {all}", path.display());
        }
    }
}

#[test]
fn a_run_forgets_the_gold_answers_of_an_earlier_one_with_a_limit() {
    enter_root();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let retrieved = |more: &[String]| {
        let all =
            [&[indexes(folder), "tasks.datasets=[\"nq\"]".into(), "name=limited".into()], more].concat();
        let options = Options::parse(Path::new("configs/quickstart.toml"), &overrides(folder, &all)).unwrap();
        sporran_pipeline::retrieve(&options, &mut |_| {}).unwrap();
        let run = folder.join("runs/limited-retrieval");
        (
            records(&run.join("predictions/nq-dev-kilt.jsonl")).len(),
            run.join("work/nq-dev-kilt.jsonl.gold.jsonl"),
        )
    };
    let (count, gold) = retrieved(&["tasks.limit=3".into()]);
    assert_eq!((count, records(&gold).len()), (3, 3));
    let (count, gold) = retrieved(&[]);
    assert!(count > 3 && !gold.exists());
}

#[test]
fn chosen_sentences_and_responses_are_predictions_of_kilts_shape() {
    enter_root();
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let dialogues = |name: &str, count: usize| {
        let text = fs::read_to_string(format!("examples/minikilt/wowpp/{name}.json")).unwrap();
        let all: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
        let few: serde_json::Map<String, Value> = all.into_iter().take(count).collect();
        let path = folder.join(format!("{name}.json"));
        fs::write(&path, Value::Object(few).to_string()).unwrap();
        path
    };
    let (train, dev) = (dialogues("train", 8), dialogues("dev", 4));
    let encoder = "crates/transformers/tests/data/encoders/bert-sequence";
    let mut responses = Vec::new();
    let mut models = Vec::new();
    for config in files(Path::new("configs/wowpp"), ".toml") {
        let text = fs::read_to_string(&config).unwrap();
        match workflow_of(&config, &[]).unwrap().name {
            "dialogue" => responses.push(config),
            "knowledge-selection" => {
                let mut more = vec![format!("data.train={}", train.display()), "data.labels=crowd".into()];
                for (key, value) in [
                    ("original", format!("data.original={}", train.display())),
                    ("negatives", "data.negatives=all".into()),
                    ("from", format!("reranker-training.from={encoder}")),
                    ("max-tokens", "reranker-training.max-tokens=40".into()),
                    ("warmup-steps", "reranker-training.optimizer.warmup-steps=0".into()),
                ] {
                    if text.lines().any(|line| line.split(" =").next() == Some(key)) {
                        more.push(value);
                    }
                }
                let options =
                    knowledge_selection::SelectionOptions::load(&config, &overrides(folder, &more)).unwrap();
                models.extend(knowledge_selection::train(&options, &mut |_| {}).unwrap().models);
            }
            other => panic!("{}: no test runs a config of the kind {other:?}", config.display()),
        }
    }
    assert!(!responses.is_empty() && models.len() >= 8, "{responses:?} {models:?}");
    for config in responses {
        let more = [
            "source.path=examples/minikilt/knowledge_source.jsonl.gz".to_owned(),
            indexes(folder),
            format!("dialogues.file={}", dev.display()),
            format!("reranker.model={}", models[0].display()),
            format!("reranker.kind={}", Saved::read(&models[0]).unwrap().kind()),
            "generator.model=crates/transformers/tests/data/llama".into(),
            "generator.precision=f32".into(),
            "generator.chat=none".into(),
            "generator.prompt.max-tokens=40".into(),
            "generator.generation.max-new-tokens=4".into(),
        ];
        let options = knowledge_selection::ResponseOptions::load(&config, &overrides(folder, &more)).unwrap();
        let responded = knowledge_selection::respond(&options, &mut |_| {}).unwrap();
        assert_eq!(with_provenance(&responded.predictions, &store(folder)), 4);
    }
    let (store, dialogues) = (store(folder), wowpp::load(&dev).unwrap());
    let computing = Computing { precision: Precision::F32, device: DeviceName::Cpu, batch_tokens: 4096 };
    for model in models {
        let reranker = sporran_reranker::open(&model, computing).unwrap();
        let ranked = knowledge_selection::rank(&dialogues.0, &*reranker, &mut |_| {}).unwrap();
        let path = folder.join("predictions.jsonl");
        knowledge_selection::write_predictions(&path, &dialogues, &ranked, Some(Arc::clone(&store))).unwrap();
        assert_eq!(with_provenance(&path, &store), 4, "{}", model.display());
        // Sentences of the bundled dialogues stand on the pages of their articles.
        assert!(
            records(&path)
                .iter()
                .all(|record| { record["output"][0]["provenance"][0]["start_character"].is_u64() })
        );
    }
}
