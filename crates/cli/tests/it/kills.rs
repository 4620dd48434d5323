//! Every workflow is killed at random points: the next call writes the same bytes as an undisturbed run.
//!
//! `SPORRAN_KILLS` is the number of kills for each workflow, `SPORRAN_KILL_SEED` the seed of their points. With
//! `SPORRAN_KILL_CALLS=1`, every second kill happens at a system call that changes files, chosen at random; this needs `strace`.
//! `scripts/kill-test` sets all three.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::common::{encoder::encoder, errors, root, sporran};
use serde_json::{Value, json};

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Numbers from 0 to 1, by the 64-bit generator `splitmix`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() * end as f64) as usize
    }
}

/// Removes times and the paths of the run's folder.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !["seconds", "predictions", "ranked", "model"].contains(&name.as_str()));
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => items.iter_mut().for_each(without_times),
        _ => {}
    }
}

/// The files at or below some paths of a run's folder. A report is compared without its times.
fn results(run: &Path, parts: &[&str]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut open: Vec<PathBuf> = parts.iter().map(|part| run.join(part)).collect();
    let mut found = BTreeMap::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let mut bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        if path.ends_with("report.json") {
            let mut report: Value = serde_json::from_slice(&bytes).unwrap();
            without_times(&mut report);
            bytes = report.to_string().into_bytes();
        }
        // A model's card has the time at which it was made.
        if !path.ends_with("model.toml") {
            found.insert(path.strip_prefix(run).unwrap().to_owned(), bytes);
        }
    }
    assert!(!found.is_empty());
    found
}

/// Marks, journals and temporary files; finished work leaves none.
fn unfinished(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || name.ends_with(".journal") || name.ends_with(".unfinished") {
            found.push(path);
        } else if path.is_dir() {
            found.extend(unfinished(&path));
        }
    }
    found
}

/// System calls that change files or wait for them to be on disk.
const CALLS: [&str; 14] = [
    "openat",
    "write",
    "pwrite64",
    "ftruncate",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "rmdir",
    "mkdir",
    "fsync",
    "fdatasync",
    "flock",
];

/// The program under `strace` with further options. Two threads show all calls of interest, as each thread counts for itself.
fn traced(options: &[String], arguments: &[&str]) -> Command {
    let program = sporran(&root(), &[&["--threads", "2"], arguments].concat());
    let mut command = Command::new("strace");
    command.args(["-f", "-qq"]).args(options).arg("--").arg(program.get_program()).args(program.get_args());
    command.current_dir(root());
    command
}

/// The calls of a run, each with its number among those of the same name in its thread.
fn calls(arguments: &[&str], log: &Path) -> BTreeMap<String, Vec<usize>> {
    let options = ["-o".to_owned(), log.display().to_string(), format!("-etrace={}", CALLS.join(","))];
    let ended = traced(&options, arguments).output().unwrap();
    assert!(ended.status.success(), "{arguments:?}: {}", errors(&ended));
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut found: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        // `PID call(arguments) = result`; a line `<... call resumed>` is the rest of one.
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        if CALLS.contains(&call) {
            let count = counts.entry((thread.to_owned(), call.to_owned())).or_default();
            *count += 1;
            found.entry(call.to_owned()).or_default().push(*count);
        }
    }
    found
}

/// A workflow and its outputs.
struct Workflow<'a> {
    /// The command with its config, and overrides. `{run}` is the run's folder.
    command: &'a [&'a str],
    /// The run's folder.
    name: &'a str,
    /// The outputs that must have the same bytes.
    parts: &'a [&'a str],
    /// Its file; empty for a command without one.
    manifest: &'a str,
}

impl Workflow<'_> {
    fn arguments(&self, output: &Path) -> Vec<String> {
        let mut all = vec!["--quiet".to_owned()];
        let run = output.join(self.name);
        let of_run = |argument: &&str| argument.replace("{run}", &run.display().to_string());
        all.extend(self.command.iter().map(of_run));
        all.push(format!("output={}", output.display()));
        all
    }

    fn finish(&self, output: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let arguments = self.arguments(output);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ended = sporran(&root(), &arguments).output().unwrap();
        assert!(ended.status.success(), "{arguments:?}: {}", errors(&ended));
        let run = output.join(self.name);
        let left = unfinished(&run);
        assert!(left.is_empty(), "{left:?}");
        if self.manifest.is_empty() {
            return results(&run, self.parts);
        }
        let manifest = fs::read_to_string(run.join(self.manifest)).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        assert!(!manifest["inputs"].as_object().unwrap().is_empty(), "{manifest}");
        assert!(manifest["seconds"][0]["seconds"].as_f64().is_some(), "{manifest}");
        assert!(cfg!(not(target_os = "linux")) || manifest["peak_memory_bytes"].as_u64() > Some(0));
        results(&run, self.parts)
    }

    /// Kills new runs at random points, some of them twice, and compares the results of the next call.
    fn survives_kills(&self) {
        let place = tempfile::tempdir().unwrap();
        // Shared parts such as the store exist from now on.
        let expected = self.finish(&place.path().join("whole"));
        let start = Instant::now();
        self.finish(&place.path().join("again"));
        let took = start.elapsed();
        let mut random = Random(setting("SPORRAN_KILL_SEED", 1));
        let calls = if setting("SPORRAN_KILL_CALLS", 0) == 1 {
            let arguments = self.arguments(&place.path().join("traced"));
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            calls(&arguments, &place.path().join("calls"))
        } else {
            BTreeMap::new()
        };
        let (mut kills, wanted) = (0, setting("SPORRAN_KILLS", 2));
        // The share of that time in which kills come. Beside other work a call may be faster than the one before.
        let mut share = 1.0;
        for attempt in 0..4 * wanted {
            if kills >= wanted {
                break;
            }
            let output = place.path().join(format!("killed-{attempt}"));
            for _ in 0..1 + attempt % 2 {
                let arguments = self.arguments(&output);
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                // SIGKILL leaves the program no time to clean up.
                if !calls.is_empty() && random.next() < 0.5 {
                    let (call, numbers) = calls.iter().nth(random.below(calls.len())).unwrap();
                    let number = numbers[random.below(numbers.len())];
                    let options = [
                        "-o/dev/null".to_owned(),
                        format!("-etrace={call}"),
                        format!("-einject={call}:signal=KILL:when={number}"),
                    ];
                    let mut traced = traced(&options, &arguments);
                    traced.stdout(Stdio::null()).stderr(Stdio::null());
                    kills += u64::from(!traced.status().unwrap().success());
                    continue;
                }
                let mut child =
                    sporran(&root(), &arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                sleep(Duration::from_secs_f64(took.as_secs_f64() * share * random.next()));
                child.kill().unwrap();
                let is_killed = !child.wait().unwrap().success();
                kills += u64::from(is_killed);
                share *= if is_killed { 1.0 } else { 0.6 };
            }
            let found = self.finish(&output);
            let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&found), names(&expected));
            let other: Vec<&PathBuf> = found
                .iter()
                .filter(|(path, bytes)| expected[*path] != **bytes)
                .map(|(path, _)| path)
                .collect();
            assert!(other.is_empty(), "attempt {attempt}: {other:?}");
            fs::remove_dir_all(&output).unwrap();
        }
        assert!(kills >= wanted, "{kills} of {wanted} kills came before the end");
        eprintln!("{}: {kills} kills, {:.1} s undisturbed", self.name, took.as_secs_f64());
    }
}

/// A file of the golden cases.
fn data(name: &str) -> PathBuf {
    root().join("crates/cli/tests/golden/data").join(name)
}

/// The path of a file in a list of an override.
fn list(path: &Path) -> String {
    format!("[\"{}\"]", path.display())
}

/// A small model that the program trains.
fn train(arguments: &[String]) {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let ended = sporran(&root(), &arguments).output().unwrap();
    assert!(ended.status.success(), "{arguments:?}: {}", errors(&ended));
}

#[test]
fn answering_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let indexes = format!("source.indexes={}", place.path().display());
    let limits = ["tasks.datasets=[\"nq\",\"fever\"]", "tasks.limit=300", "then=[]", &indexes];
    Workflow {
        command: &[&["run", "configs/quickstart.toml"], &limits[..]].concat(),
        name: "quickstart",
        parts: &["predictions", "retrieval", "report.json"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

#[test]
fn population_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let indexes = format!("source.indexes={}", place.path().display());
    let model = "relations.model=models/knowledgenet-linear";
    Workflow {
        command: &["populate", "configs/quickstart-kbp.toml", model, "input.folds=[1,2,3,4]", &indexes],
        name: "quickstart-kbp",
        parts: &["predictions", "triples", "knowledgenet", "report.json"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

#[test]
fn questions_over_a_knowledge_base_survive_kills() {
    Workflow {
        command: &["reason", "configs/quickstart-reason.toml", "data.limit=200"],
        name: "quickstart-reason",
        parts: &["predictions", "answer-sets", "report.json"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

#[test]
fn entity_linking_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(data("texts.jsonl")).unwrap();
    let texts = place.path().join("texts.jsonl");
    let numbered = |at: usize| text.replacen("\"id\": \"a\"", &format!("\"id\": \"a{at}\""), 1);
    fs::write(&texts, (0..1100).map(numbered).collect::<String>()).unwrap();
    let entities = data("entities.jsonl");
    let config = place.path().join("linking.toml");
    fs::write(
        &config,
        format!(
            "workflow = \"entity-linking\"\nname = \"linking\"\ncoreference = \"rules\"\n[linking]\nfiles = {}\n\
             entities = \"{1}\"\n[mentions]\ntagger = \"models/ner-small\"\n[[linker.names]]\nfile = \"{1}\"\n\
             format = \"entities\"\n",
            list(&texts),
            entities.display()
        ),
    )
    .unwrap();
    Workflow {
        command: &["run", &config.display().to_string()],
        name: "linking",
        parts: &["predictions", "report.json"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

/// Several copies of the golden documents with unique titles.
fn documents(folder: &Path, times: usize) -> PathBuf {
    let documents: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(data("docred.json")).unwrap()).unwrap();
    let titled = |(at, document): (usize, &Value)| {
        let mut document = document.clone();
        document["title"] = format!("d{at}").into();
        document
    };
    let all: Vec<Value> =
        documents.iter().cycle().take(times * documents.len()).enumerate().map(titled).collect();
    let path = folder.join("documents.json");
    fs::write(&path, json!(all).to_string()).unwrap();
    path
}

#[test]
fn document_relations_survive_kills() {
    let place = tempfile::tempdir().unwrap();
    let (learned, found) = (data("docred.json"), documents(place.path(), 40));
    let from = encoder(place.path(), "Ann was born in Rome and lives in Oslo");
    let model = place.path().join("models/redocred/model");
    let own = [
        format!("document-relations.training.from={from}"),
        format!("document-relations.training.files={}", list(&learned)),
        format!("document-relations.files={}", list(&found)),
        "document-relations.training.hidden-size=24".into(),
        "document-relations.training.group-size=4".into(),
        "document-relations.training.optimizer={epochs=1,warmup-steps=1,tokens-per-batch=160}".into(),
    ];
    let output = format!("output={}", place.path().join("models").display());
    let before = ["--quiet", "train", "configs/docred.toml", &output].map(str::to_owned);
    train(&[&before[..], &own[..]].concat());
    let model = format!("document-relations.model={}", model.display());
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    Workflow {
        command: &[&["run", "configs/docred.toml", &model], &own[..]].concat(),
        name: "redocred",
        parts: &["predictions", "report.json"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

#[test]
fn slot_filling_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let rows = fs::read_to_string(data("zsre.tsv")).unwrap();
    let asked = place.path().join("zsre.tsv");
    fs::write(&asked, rows.repeat(40)).unwrap();
    let from = encoder(place.path(), &rows);
    let own = [
        format!("slot-filling.training.from={from}"),
        format!("slot-filling.training.files={}", list(&data("zsre.tsv"))),
        format!("slot-filling.files={}", list(&asked)),
        "slot-filling.training.validation-share=0.2".into(),
        "slot-filling.training.optimizer={epochs=1,warmup-steps=1,tokens-per-batch=400}".into(),
    ];
    let output = format!("output={}", place.path().join("models").display());
    let before = ["--quiet", "train", "configs/zsre.toml", &output].map(str::to_owned);
    train(&[&before[..], &own[..]].concat());
    let model = format!("slot-filling.model={}", place.path().join("models/zsre/model").display());
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    Workflow {
        command: &[&["run", "configs/zsre.toml", &model], &own[..]].concat(),
        name: "zsre",
        parts: &["predictions", "report.json"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

/// Several copies of the bundled dialogues.
fn dialogues(folder: &Path, times: usize) -> PathBuf {
    let text = fs::read_to_string(root().join("examples/minikilt/wowpp/test.json")).unwrap();
    let own: serde_json::Map<String, Value> = serde_json::from_str(&text).unwrap();
    let all: serde_json::Map<String, Value> = (0..times)
        .flat_map(|time| own.iter().map(move |(id, dialogue)| (format!("{id}-{time}"), dialogue.clone())))
        .collect();
    let path = folder.join("dialogues.json");
    fs::write(&path, Value::Object(all).to_string()).unwrap();
    path
}

#[test]
fn dialogues_survive_kills() {
    let place = tempfile::tempdir().unwrap();
    let questions = format!("dialogues.file={}", dialogues(place.path(), 5).display());
    let output = format!("output={}", place.path().join("models").display());
    let data = "data.train=examples/minikilt/wowpp/train.json";
    train(&["--quiet", "train", "configs/wowpp/tfidf.toml", data, &output].map(str::to_owned));
    let model = format!("reranker.model={}", place.path().join("models/wowpp-tfidf/model").display());
    let config = data_config("response.toml");
    Workflow {
        command: &["run", &config, &questions, &model, "generator.generation.max-new-tokens=6"],
        name: "response",
        parts: &["predictions.jsonl", "ranking.jsonl", "report.json"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

fn data_config(name: &str) -> String {
    data(name).display().to_string()
}

#[test]
fn cross_validation_of_knowledge_selection_survives_kills() {
    let data = "data.train=examples/minikilt/wowpp/train.json";
    Workflow {
        command: &["train", "configs/wowpp/tfidf.toml", data, "data.folds=5"],
        name: "wowpp-tfidf",
        parts: &["ranking.jsonl", "fold-0", "fold-4"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_a_tagger_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let learned = list(&documents(place.path(), 4));
    let own =
        [format!("annotations.docred={learned}"), format!("test.docred={}", list(&data("docred.json")))];
    Workflow {
        command: &[
            "train",
            "configs/extractor/ner-bilstm.toml",
            &own[0],
            &own[1],
            "annotations.knowledgenet=[]",
            "annotations.validation-every=4",
            "test.knowledgenet=[]",
            "tagger.hidden-size=8",
            "tagger.optimizer.epochs=4",
            "tagger.optimizer.warmup-steps=1",
            "tagger.optimizer.checkpoint-every=2",
        ],
        name: "ner-bilstm",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_an_embedding_survives_kills() {
    Workflow {
        command: &[
            "train",
            "configs/minikilt/embedding.toml",
            "embedding.dim=16",
            "embedding.training.epochs=8",
            "embedding.training.evaluate-every=1",
        ],
        name: "minikilt-embedding",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_a_network_survives_kills() {
    let folder = format!("data.folder={}", data("kg").display());
    Workflow {
        command: &[
            "train",
            "configs/kge/codex-s-nbfnet.toml",
            &folder,
            "name=nbfnet",
            "network.dim=32",
            "network.layers=2",
            "network.training.epochs=3",
        ],
        name: "nbfnet",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn mining_of_rules_survives_kills() {
    Workflow {
        command: &["train", "configs/minikilt/rules.toml", "rules.batches=4"],
        name: "minikilt-rules",
        parts: &["rules.tsv", "report.json"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_an_encoder_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let indexes = format!("source.indexes={}", place.path().display());
    let model = root().join("crates/transformers/tests/data/encoders/bert-sequence");
    let from = format!("encoder-training.from={}", model.display());
    Workflow {
        command: &[
            "train",
            "configs/retrieval/train-cross-encoder.toml",
            "encoder-training.model={run}/model",
            "encoder-training.examples.limit=60",
            "encoder-training.examples.datasets=[\"nq\"]",
            "encoder-training.optimizer.steps=6",
            "encoder-training.optimizer.warmup-steps=1",
            "encoder-training.optimizer.evaluate-every=3",
            "encoder-training.optimizer.checkpoint-every=2",
            "encoder-training.optimizer.tokens-per-batch=700",
            "encoder-training.validation-records=20",
            "encoder-training.max-tokens=48",
            "tasks.datasets=[\"nq\"]",
            &from,
            &indexes,
        ],
        name: "minikilt-cross-encoder",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn the_builder_of_a_benchmark_survives_kills() {
    Workflow {
        command: &[
            "convert",
            "korc",
            "configs/korc/minikilt.toml",
            "rules.batches=4",
            "build.per-relation=30",
        ],
        name: "",
        parts: &["train.json", "valid.json", "small_iid_test.json", "small_ood_test.json", "rules.tsv", "kb"],
        manifest: "manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_a_generator_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let indexes = format!("source.indexes={}", place.path().display());
    Workflow {
        command: &[
            "train",
            "configs/minikilt/reader.toml",
            "train.model={run}/model",
            "train.examples.limit=200",
            "train.examples.datasets=[\"nq\"]",
            "train.validation-records=20",
            "train.optimizer.steps=6",
            "train.optimizer.warmup-steps=1",
            "train.optimizer.evaluate-every=3",
            "train.optimizer.checkpoint-every=2",
            "train.optimizer.tokens-per-batch=700",
            "train.shape={d-model=32,d-ff=64,d-kv=8,heads=4,encoder-layers=1,decoder-layers=1,vocabulary=600}",
            "tasks.datasets=[\"nq\"]",
            &indexes,
        ],
        name: "minikilt-reader",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn building_of_indexes_survives_kills() {
    let encoder = root().join("crates/transformers/tests/data/encoders/sentence");
    let model = format!("retriever.model={}", encoder.display());
    let limits = ["source.indexes={run}/indexes", "tasks.datasets=[\"nq\"]", "then=[]"];
    let kinds: [&[&str]; 4] = [
        &["configs/quickstart.toml"],
        &["configs/quickstart.toml", "retriever={kind=\"tfidf\"}"],
        &["configs/retrieval/dense.toml", &model],
        &["configs/retrieval/dense.toml", &model, "retriever.index={kind=\"hnsw\"}"],
    ];
    for kind in kinds {
        let name = if kind[0].contains("dense") { "dense" } else { "quickstart" };
        let limits = if name == "quickstart" { &limits[..] } else { &limits[..2] };
        Workflow {
            command: &[&["index"][..], kind, limits].concat(),
            name,
            parts: &["indexes"],
            manifest: "",
        }
        .survives_kills();
    }
}

#[test]
fn training_of_document_relations_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let learned = documents(place.path(), 4);
    let from = encoder(place.path(), "Ann was born in Rome and lives in Oslo");
    Workflow {
        command: &[
            "train",
            "configs/docred.toml",
            &format!("document-relations.training.from={from}"),
            &format!("document-relations.training.files={}", list(&learned)),
            &format!("document-relations.files={}", list(&data("docred.json"))),
            "document-relations.model={run}/model",
            "document-relations.training.hidden-size=24",
            "document-relations.training.group-size=4",
            "document-relations.training.optimizer={epochs=2,warmup-steps=1,tokens-per-batch=160,checkpoint-every=2}",
        ],
        name: "redocred",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_slot_filling_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let rows = fs::read_to_string(data("zsre.tsv")).unwrap();
    let from = encoder(place.path(), &rows);
    Workflow {
        command: &[
            "train",
            "configs/zsre.toml",
            &format!("slot-filling.training.from={from}"),
            &format!("slot-filling.training.files={}", list(&data("zsre.tsv"))),
            &format!("slot-filling.files={}", list(&data("zsre.tsv"))),
            "slot-filling.model={run}/model",
            "slot-filling.training.validation-share=0.2",
            "slot-filling.training.optimizer={epochs=2,warmup-steps=1,tokens-per-batch=400,checkpoint-every=1}",
        ],
        name: "zsre",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_relations_survives_kills() {
    let files = list(&root().join("examples/minikilt/knowledgenet/train.json"));
    Workflow {
        command: &[
            "train",
            "configs/knowledgenet/linear.toml",
            &format!("annotations.files={files}"),
            "annotations.folds=[4]",
            "annotations.validation-every=5",
            "relations.model={run}/model",
            "relations.linear.buckets=4096",
            "relations.linear.epochs=2",
        ],
        name: "knowledgenet-linear",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_a_reranker_survives_kills() {
    Workflow {
        command: &["train", "configs/wowpp/tfidf.toml", "data.train=examples/minikilt/wowpp/train.json"],
        name: "wowpp-tfidf",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}

#[test]
fn training_of_a_bi_encoder_survives_kills() {
    let place = tempfile::tempdir().unwrap();
    let indexes = format!("source.indexes={}", place.path().display());
    let model = root().join("crates/transformers/tests/data/encoders/sentence");
    let from = format!("encoder-training.from={}", model.display());
    Workflow {
        command: &[
            "train",
            "configs/retrieval/train-bi-encoder.toml",
            "encoder-training.model={run}/model",
            "encoder-training.examples.limit=40",
            "encoder-training.examples.datasets=[\"nq\"]",
            "encoder-training.optimizer.steps=4",
            "encoder-training.optimizer.warmup-steps=1",
            "encoder-training.optimizer.evaluate-every=2",
            "encoder-training.optimizer.checkpoint-every=1",
            "encoder-training.optimizer.tokens-per-batch=500",
            "encoder-training.validation-records=10",
            "encoder-training.max-tokens=32",
            "tasks.datasets=[\"nq\"]",
            &from,
            &indexes,
        ],
        name: "minikilt-bi-encoder",
        parts: &["model"],
        manifest: "training-manifest.json",
    }
    .survives_kills();
}
