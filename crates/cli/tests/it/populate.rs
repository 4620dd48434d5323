//! `sporran populate` and the training of its models, from the shell, on minikilt.

use std::{fs, path::Path};

use crate::common::{errors, json, root, sporran};
use serde_json::Value;

const CONFIG: &str = r#"
workflow = "population"
name = "kbp"
output = "runs"
coreference = "rules"

[annotations]
files = ["train.json"]
folds = [1, 2, 3]
validation-every = 3

[relations]
model = "model"

[relations.linear]
buckets = 16384
epochs = 6

[linker]
aliases = "aliases.tsv"

[input]
format = "knowledgenet"
files = ["train.json"]
folds = [4]
"#;

/// A folder with minikilt's annotated documents and a config.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = root().join("examples/minikilt/knowledgenet/train.json");
    fs::copy(from, folder.path().join("train.json")).unwrap();
    fs::write(folder.path().join("c.toml"), CONFIG).unwrap();
    folder
}

fn lines(path: &Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_trained_model_extracts_facts_with_evidence() {
    let folder = folder();
    let folder = folder.path();
    let trained = json(folder, &["-q", "train", "c.toml", "--json"]);
    assert!(trained["maximum_recall_text"].as_f64().unwrap() > 0.9, "{trained}");
    let report = json(folder, &["-q", "populate", "c.toml", "--json"]);
    let facts = report["files"][0]["facts"].as_u64().unwrap();
    assert_eq!(report["files"][0]["documents"], 20);

    let run = folder.join("runs/kbp");
    let guess = run.join("knowledgenet/train.json");
    let scores = json(
        folder,
        &[
            "evaluate",
            "facts",
            "--gold",
            "train.json",
            "--guess",
            guess.to_str().unwrap(),
            "--fold",
            "4",
            "--json",
        ],
    );
    // The sentences come from templates, so most facts are found.
    assert!(scores["f1"].as_f64().unwrap() > 0.5, "{scores}");

    let documents = lines(&folder.join("train.json"));
    let records = lines(&run.join("predictions/train.jsonl"));
    assert_eq!(records.len() as u64, facts);
    for record in &records {
        let output = &record["output"][0];
        // Without a table of pages, the documents have no provenance.
        assert_eq!(output["provenance"], serde_json::json!([]));
        let place = &record["meta"]["statement"];
        let text: Vec<char> = documents
            .iter()
            .find(|document| document["documentId"] == place["document"])
            .unwrap()["documentText"]
            .as_str()
            .unwrap()
            .chars()
            .collect();
        let number = |value: &Value| value.as_u64().unwrap() as usize;
        let sentence: String = text[number(&place["start"])..number(&place["end"])].iter().collect();
        let (subject, property) = record["input"].as_str().unwrap().split_once(" [SEP] ").unwrap();
        assert!(
            sentence.contains(subject) && sentence.contains(output["answer"].as_str().unwrap()),
            "{record}"
        );
        assert!(!property.is_empty());
    }
    let triples = fs::read_to_string(run.join("triples/train.tsv")).unwrap();
    assert!(
        triples.lines().all(|line| line.split('\t').count() == 3) && triples.contains("\tQ"),
        "{triples}"
    );
    assert!(
        fs::read_to_string(run.join("triples/train.nt"))
            .unwrap()
            .contains("<http://www.wikidata.org/entity/Q")
    );

    // A second call skips all work and writes the same report.
    let before = fs::metadata(&guess).unwrap().modified().unwrap();
    assert_eq!(json(folder, &["-q", "populate", "c.toml", "--json"]), report);
    assert_eq!(fs::metadata(&guess).unwrap().modified().unwrap(), before);

    // A tagger for the types of coreference changes the key, so the documents are read again. The number of facts is the same.
    let types = format!("mentions.types={}", root().join("models/ner-small").display());
    let typed = json(folder, &["-q", "populate", "c.toml", "--json", &types]);
    assert_eq!(typed["files"][0]["facts"], report["files"][0]["facts"]);
    assert!(fs::metadata(&guess).unwrap().modified().unwrap() > before);

    // Plain text of any script, and pages.
    fs::write(folder.join("a.txt"), "Zoë Smith was born in Paris.\n\n😀 ساره\n\n").unwrap();
    let text = ["input.format=text", "input.files=[\"a.txt\"]", "~input.folds", "name=text"];
    let report = json(folder, &[&["-q", "populate", "c.toml", "--json"][..], &text].concat());
    assert_eq!((&report["files"][0]["documents"], &report["files"][0]["sentences"]), (&2.into(), &2.into()));
    fs::write(folder.join("empty.txt"), "").unwrap();
    let text = ["input.format=text", "input.files=[\"empty.txt\"]", "~input.folds", "name=empty"];
    let report = json(folder, &[&["-q", "populate", "c.toml", "--json"][..], &text].concat());
    assert_eq!(report["files"][0]["facts"], 0);

    // An error names the unreadable document, and no output is written.
    let document = fs::read_to_string(folder.join("train.json")).unwrap();
    let line = document.lines().find(|line| line.contains("\"fold\":4")).unwrap();
    fs::write(folder.join("bad.json"), line.replace("\"passageEnd\":", "\"passageEnd\":9")).unwrap();
    let bad = ["populate", "c.toml", "input.files=[\"bad.json\"]", "name=bad"];
    let output = sporran(folder, &bad).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        errors(&output).contains("bad.json:1") && errors(&output).contains("passages[0]"),
        "{}",
        errors(&output)
    );
    assert!(!folder.join("runs/bad/knowledgenet").exists());
}

#[test]
fn mistakes_in_a_config_are_reported_before_any_input_is_read() {
    let folder = folder();
    let refused = |arguments: &[&str]| {
        let output = sporran(folder.path(), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        errors(&output)
    };
    let message =
        refused(&["populate", "c.toml", "input.files=[\"none.json\"]", "relations.linear.epochs=0"]);
    assert!(
        message.contains("no file none.json")
            && message.contains("`relations.linear.epochs`: expected at least 1"),
        "{message}"
    );
    assert!(
        refused(&["populate", "c.toml", "linker.decision.treshold=0.5"])
            .contains("did you mean `threshold`?")
    );
    assert!(refused(&["populate", "c.toml", "input.format=text"]).contains("`input.folds`"));
    let message = refused(&["populate", "c.toml", "input.pages=none.tsv", "source.path=none.jsonl"]);
    assert!(
        message.contains("`input.pages`: no file none.tsv") && message.contains("`source.path`"),
        "{message}"
    );
    let types = format!("mentions.types={}", root().join("models/ner-small").display());
    let alone = refused(&["populate", "c.toml", &types, "coreference=none"]);
    assert!(alone.contains("`mentions.types`: expected `coreference`"), "{alone}");
    assert!(
        refused(&["populate", "c.toml", "mentions.types=none"]).contains("`mentions.types`: no folder none")
    );
    // Nothing was trained yet.
    assert!(refused(&["populate", "c.toml"]).contains("aliases.tsv"));
}

/// The BiLSTM of the baselines, small enough for a test, with all its inputs.
const BILSTM: &str = r#"
workflow = "population"
name = "bilstm"
seed = 3
coreference = "rules"

[annotations]
files = ["train.json"]
validation-every = 4

[mentions]
tagger = "ROOT/models/ner-small"
mention-forms = ["name", "pronoun"]

[relations]
model = "model"

[relations.bilstm]
pairs-per-batch = 0
select = "f1"
thresholds = "smoothed"
directions = "joint"

[relations.bilstm.shape]
words = {buckets = 2048, width = 12}
hidden = 32
dropout = 0.1
around = 8
pooling = "max"

[relations.bilstm.optimizer]
epochs = 12
tokens-per-batch = 2048
learning-rate = 0.01
warmup-steps = 2

[linker]
aliases = "aliases.tsv"
types = "types.json"
facts = "ROOT/examples/minikilt/kb/triples.tsv.gz"

[[linker.names]]
file = "names.tsv"
format = "table"

[input]
format = "knowledgenet"
files = ["train.json"]
folds = [4]
"#;

/// The names of all linked entities of documents.
fn names(documents: &[Value]) -> String {
    let mut rows = std::collections::BTreeSet::new();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let passages = documents.iter().flat_map(|document| list(&document["passages"]));
    for fact in passages.flat_map(|passage| list(&passage["facts"])) {
        for end in ["subject", "object"] {
            let text = |field: &str| fact[format!("{end}{field}")].as_str().unwrap().to_owned();
            let uri = text("Uri");
            if let Some(id) = uri.rsplit('/').next().filter(|id| !id.is_empty()) {
                rows.insert(format!("{id}\t{}\n", text("Text")));
            }
        }
    }
    std::iter::once("id\tlabel\n".to_owned()).chain(rows).collect()
}

/// A parse of each document: words between blanks that depend on the first one.
fn parses(documents: &str) -> String {
    let mut text = String::new();
    for line in documents.lines() {
        let document: serde_json::Value = serde_json::from_str(line).unwrap();
        let id = document["documentId"].as_str().unwrap();
        text.push_str(&format!("# newdoc id = {id}\n"));
        for (at, word) in document["documentText"].as_str().unwrap().split_whitespace().enumerate() {
            let head = usize::from(at > 0);
            text.push_str(&format!("{}\t{word}\t_\t_\t_\t_\t{head}\t_\t_\t_\n", at + 1));
        }
        text.push('\n');
    }
    text
}

#[test]
fn a_bilstm_trains_resumes_and_extracts_facts() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("c.toml"), BILSTM.replace("ROOT", root().to_str().unwrap())).unwrap();
    fs::write(folder.join("types.json"), r#"{"Q42": ["Q5"], "Q30": ["Q6256"]}"#).unwrap();
    fs::write(folder.join("names.tsv"), names(&lines(&folder.join("train.json")))).unwrap();
    let trained = json(folder, &["-q", "train", "c.toml", "--json"]);
    assert!(trained["maximum_recall_text"].as_f64().unwrap() > 0.5, "{trained}");
    assert!(trained["maximum_recall_link"].as_f64().unwrap() > 0.2, "{trained}");
    let weights = fs::read(folder.join("model/model.safetensors")).unwrap();

    // A training that is killed and resumed writes the same weights.
    let again =
        ["output=again", "relations.model=again-model", "relations.bilstm.optimizer.checkpoint-every=3"];
    let mut killed = sporran(folder, &[&["-q", "train", "c.toml"][..], &again].concat()).spawn().unwrap();
    let checkpoints = folder.join("again/bilstm/training");
    let is_checkpoint = |entry: std::io::Result<fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint"))
    };
    while !fs::read_dir(&checkpoints).is_ok_and(|mut entries| entries.any(is_checkpoint)) {
        assert!(killed.try_wait().unwrap().is_none(), "finished before it was killed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!folder.join("again-model/model.safetensors").exists());
    json(folder, &[&["-q", "train", "c.toml", "--json"][..], &again].concat());
    assert!(fs::read(folder.join("again-model/model.safetensors")).unwrap() == weights);

    // Training says which inputs it lacks.
    let brief = ["name=brief", "relations.model=brief", "relations.bilstm.optimizer.epochs=1"];
    let told = errors(&sporran(folder, &[&["train", "c.toml"][..], &brief].concat()).output().unwrap());
    for lacking in ["without `parses`, features 3, 4, 7 and 8", "without `relations.bilstm.vectors`"] {
        assert!(told.contains(lacking), "{told}");
    }

    let report = json(folder, &["-q", "populate", "c.toml", "--json"]);
    assert!(report["files"][0]["linked"].as_u64().unwrap() > 0, "{report}");
    let guess = folder.join("runs/bilstm/knowledgenet/train.json");
    let scores = ["evaluate", "facts", "--gold", "train.json", "--fold", "4", "--json", "--guess"];
    let scores = json(folder, &[&scores[..], &[guess.to_str().unwrap()]].concat());
    assert!(scores["f1"].as_f64().unwrap() > 0.3, "{scores}");

    // Both evaluations of the paper's table 3 in one report.
    let both =
        ["evaluate", "facts", "--gold", "train.json", "--fold", "4", "--json", "--method", "text_and_link"];
    let both = json(folder, &[&both[..], &["--guess", guess.to_str().unwrap()]].concat());
    assert_eq!(both["text"]["f1"], scores["f1"]);
    assert!(both["link"]["recall"].is_number(), "{both}");

    // With the defaults of the paper: pretrained vectors, parses, the least loss, and an encoder. Vectors and encoder are saved in
    // the model's folder.
    fs::write(folder.join("vectors.txt"), "3 2\nborn 0.5 1\nof 1 -1\nthe 0 0.5\n").unwrap();
    fs::write(folder.join("parses.conllu"), parses(&fs::read_to_string(folder.join("train.json")).unwrap()))
        .unwrap();
    let from = root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string();
    let mixed = [
        "name=mixed",
        "relations.model=mixed",
        "relations.bilstm.optimizer.epochs=1",
        "relations.bilstm.pairs-per-batch=64",
        "relations.bilstm.select=loss",
        "relations.bilstm.thresholds=plain",
        "relations.bilstm.directions=independent",
        "relations.bilstm.vectors=vectors.txt",
        "relations.bilstm.shape.pairs=by-type",
        "annotations.folds=[1,2]",
        "annotations.validation-folds=[3]",
        "linker.outside-links=true",
        "parses=[\"parses.conllu\"]",
    ];
    let from = format!("relations.bilstm.from={from}");
    json(folder, &[&["-q", "train", "c.toml", "--json", &from][..], &mixed].concat());
    json(folder, &[&["-q", "populate", "c.toml", "--json"][..], &mixed].concat());
    assert!(folder.join("mixed/encoder/model.safetensors").is_file());
    assert!(folder.join("mixed/vectors.safetensors").is_file());

    let refused = |arguments: &[&str]| {
        let output = sporran(folder, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        errors(&output)
    };
    let message = refused(&["train", "c.toml", "relations.bilstm.shape.hidden=0", "mentions.tagger=none"]);
    assert!(message.contains("shape.hidden") && message.contains("no folder none"), "{message}");
    // A model that was trained with parses needs them, and the parses must be those of the texts.
    let without = [&["populate", "c.toml"][..], &mixed[..mixed.len() - 1]].concat();
    assert!(refused(&without).contains("parses: expected a dependency parse"), "{}", refused(&without));
    fs::write(folder.join("parses.conllu"), "# newdoc id = x\n1\tAnn\n").unwrap();
    let wrong = refused(&[&["populate", "c.toml"][..], &mixed].concat());
    assert!(wrong.contains("parses.conllu:2: expected 10 columns"), "{wrong}");
    let wrong =
        ["relations.bilstm.vectors=none.txt", "annotations.validation-folds=[2]", "parses=[\"no.conllu\"]"];
    let wrong = refused(&[&["train", "c.toml"][..], &wrong].concat());
    for expected in [
        "`relations.bilstm.vectors`: no file none.txt",
        "`annotations.validation-folds`: expected other folds than `folds`, found 2 in both",
        "`parses`: no file no.conllu",
    ] {
        assert!(wrong.contains(expected), "{wrong}");
    }
    fs::write(folder.join("types.json"), r#"{"Q42": "Q5"}"#).unwrap();
    assert!(
        refused(&["train", "c.toml", "name=types", "relations.model=types/model"]).contains("types.json")
    );
}

#[test]
fn facts_and_sentences_are_counted_by_property() {
    let file = root().join("examples/minikilt/knowledgenet/train.json").display().to_string();
    let report = json(&root(), &["describe", &file, "--json"]);
    assert_eq!((&report["layout"], &report["documents"]), (&"knowledgenet".into(), &80.into()));
    let total = serde_json::json!({"facts": 408, "linked": 408, "sentences": 2440, "relevant": 305});
    assert_eq!(report["total"], total);
    let born = serde_json::json!({"facts": 34, "linked": 34, "sentences": 305, "relevant": 34});
    assert_eq!(report["properties"]["PLACE_OF_BIRTH"], born);
}

#[test]
fn sentences_of_trex_are_fetched_for_annotation() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let property = r#"{"propertyId": "15", "propertyName": "DATE_OF_BIRTH", "keywords": ["born"]}"#;
    fs::write(folder.join("p.json"), property).unwrap();
    let document = r#"{"docid": "Q1", "text": "Ann was born. She left.", "sentences_boundaries": [[0, 13], [14, 23]], "triples": []}"#;
    fs::write(folder.join("t.json"), document).unwrap();
    let call = ["convert", "sentences", "--properties", "p.json", "--output", "o.json", "t.json", "--json"];
    // Standard output is for records that are written to it, so the report is on standard error.
    let output = sporran(folder, &call).output().unwrap();
    let report: serde_json::Value = serde_json::from_str(&errors(&output)).unwrap();
    assert_eq!(report["properties"]["DATE_OF_BIRTH"]["keyword"], 1, "{report}");
    let written = lines(&folder.join("o.json"));
    assert_eq!(written[0]["passages"][0]["passageText"], "Ann was born.");
    assert_eq!(written[0]["passages"].as_array().unwrap().len(), 1);
}

#[test]
fn a_student_trains_on_cached_predictions_of_a_teacher() {
    let folder = folder();
    let folder = folder.path();
    json(folder, &["-q", "train", "c.toml", "--json"]);
    let pages = root().join("examples/minikilt/knowledge_source.jsonl.gz");
    let pages = format!("teacher.input.files=[\"{}\"]", pages.display());
    let student = |name: &str, more: &[&str]| {
        let model = format!("relations.model={name}");
        let call = ["-q", "train", "c.toml", "--json", &model, "teacher.model=model", "teacher.every=40"];
        json(folder, &[&call[..], &["teacher.input.format=kilt", &pages], more].concat());
        fs::read(folder.join(name).join("linear.safetensors")).unwrap()
    };
    let first = student("student", &[]);
    // The same documents without a teacher make another model.
    assert!(first != fs::read(folder.join("model/linear.safetensors")).unwrap());
    // The teacher's predictions are read from the cache: other probabilities there give another student.
    let kept = folder.join("runs/kbp/readings/readings.safetensors");
    let read = fs::read(&kept).unwrap();
    let half = read.len() / 2;
    let mut other = read.clone();
    other[half..].fill(0);
    fs::write(&kept, &other).unwrap();
    assert!(student("changed", &[]) != first);
    fs::write(&kept, &read).unwrap();
    assert!(student("again", &[]) == first);
    // For other text the teacher predicts again.
    assert!(student("less", &["teacher.every=80"]) != first);
    assert!(fs::read(&kept).unwrap() != read);

    let wrong = ["train", "c.toml", "teacher.model=none", "teacher.every=0", "teacher.weight=0.0"];
    let wrong = [&wrong[..], &["teacher.input.format=kilt", "teacher.input.files=[\"none\"]"]].concat();
    let output = sporran(folder, &wrong).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    for expected in
        ["`teacher.model`: no folder none", "`teacher.every`", "`teacher.weight`", "`teacher.input.files`"]
    {
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    }
}
