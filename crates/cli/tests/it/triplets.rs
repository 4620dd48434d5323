//! Fact extraction by an encoder-decoder, from the shell.

use std::{fs, path::Path};

use crate::common::{errors, json, root, sporran};
use serde_json::Value;

const CONFIG: &str = r#"
workflow = "population"
name = "rebel"
seed = 1
coreference = "rules"

[annotations]
files = ["train.json"]
folds = [1, 2, 3]
validation-every = 4

[relations]
model = "model"

[relations.seq2seq]
max-written = 64
beams = 2

[relations.seq2seq.shape]
d-model = 48
d-ff = 96
d-kv = 12
heads = 4
encoder-layers = 1
decoder-layers = 1
vocabulary = 600

[[relations.seq2seq.properties]]
name = "PLACE_OF_BIRTH"
relations = ["born in"]

[relations.seq2seq.optimizer]
steps = 160
tokens-per-batch = 1024
learning-rate = 5e-3
warmup-steps = 5

[input]
format = "knowledgenet"
files = ["train.json"]
folds = [4]
"#;

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(root().join("examples/minikilt/knowledgenet/train.json"), folder.path().join("train.json"))
        .unwrap();
    fs::write(folder.path().join("c.toml"), CONFIG).unwrap();
    folder
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = sporran(folder, arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    errors(&output)
}

/// The facts of a run, as text.
fn facts(path: &Path) -> Vec<[String; 3]> {
    let lines = fs::read_to_string(path).unwrap();
    let fact = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        let (subject, property) = record["input"].as_str().unwrap().split_once(" [SEP] ").unwrap();
        [subject, property, record["output"][0]["answer"].as_str().unwrap()].map(str::to_owned)
    };
    lines.lines().map(fact).collect()
}

#[test]
fn a_seq2seq_extractor_trains_and_populates() {
    let folder = folder();
    let folder = folder.path();
    let trained = json(folder, &["-q", "train", "c.toml", "--json"]);
    // In minikilt's documents, one sentence holds the subject and the object of each fact.
    assert_eq!((&trained["maximum_recall_text"], &trained["steps"]), (&1.0.into(), &160.into()));
    assert_eq!(trained["maximum_recall_link"], Value::Null);
    let written = fs::read_to_string(folder.join("model/triplets.json")).unwrap();
    assert!(written.contains("\"born in\"") && written.contains("\"child of\""), "{written}");

    let report = json(folder, &["-q", "populate", "c.toml", "--json"]);
    assert!(report["files"][0]["facts"].as_u64().unwrap() > 0, "{report}");
    let guess = folder.join("runs/rebel/knowledgenet/train.json");
    let scores = ["evaluate", "facts", "--gold", "train.json", "--fold", "4", "--json", "--guess"];
    let scores = json(folder, &[&scores[..], &[guess.to_str().unwrap()]].concat());
    assert!(scores["f1"].as_f64().unwrap() > 0.0, "{scores}");
    // Every subject and object occurs in the text, even after so short a training.
    let text = fs::read_to_string(folder.join("train.json")).unwrap();
    let found = facts(&folder.join("runs/rebel/predictions/train.jsonl"));
    for [subject, property, object] in &found {
        let is_there = |part: &String| text.contains(part.replace('"', "\\\"").as_str());
        assert!(is_there(subject) && is_there(object) && property.to_uppercase() == *property, "{found:?}");
    }

    // Without `triplets.json`, as in a checkpoint from elsewhere, the config must list the properties.
    fs::remove_file(folder.join("model/triplets.json")).unwrap();
    let message = refused(folder, &["populate", "c.toml", "relations.seq2seq.properties=[]", "name=none"]);
    assert!(message.contains("triplets.json"), "{message}");
    json(folder, &["-q", "populate", "c.toml", "--json", "name=bare"]);
    let bare = facts(&folder.join("runs/bare/predictions/train.jsonl"));
    assert!(bare.iter().all(|[_, property, _]| property == "PLACE_OF_BIRTH"), "{bare:?}");
}

#[test]
fn a_rebel_checkpoint_is_used_without_training() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model = root().join("crates/extractor/tests/data/rebel").display().to_string();
    let config = format!(
        "workflow = \"population\"\nname = \"rebel\"\n[relations]\nmodel = \"{model}\"\n[relations.seq2seq]\nmax-written = 60\n\
         [[relations.seq2seq.properties]]\nname = \"PLACE_OF_BIRTH\"\nrelations = [\"place of birth\"]\n\
         [[relations.seq2seq.properties]]\nname = \"SPOUSE\"\nsymmetric = true\nrelations = [\"spouse\"]\n\
         [input]\nformat = \"text\"\nfiles = [\"a.txt\"]\n"
    );
    fs::write(folder.join("c.toml"), config).unwrap();
    fs::write(folder.join("a.txt"), "Ann Lee was born in Oslo.\n\nBob Ross married Eve Stone in Lima.\n")
        .unwrap();
    for precision in ["f32", "int8"] {
        let name = format!("name={precision}");
        let precision_key = format!("relations.precision={precision}");
        json(folder, &["-q", "populate", "c.toml", "--json", &precision_key, &name]);
        let found = facts(&folder.join("runs").join(precision).join("predictions/a.jsonl"));
        let expected = [
            ["Ann Lee", "PLACE_OF_BIRTH", "Oslo"],
            ["Bob Ross", "SPOUSE", "Eve Stone"],
            ["Eve Stone", "SPOUSE", "Bob Ross"],
        ];
        assert_eq!(found, expected.map(|fact| fact.map(str::to_owned)));
    }
    let message = refused(folder, &["populate", "c.toml", "name=long", "relations.seq2seq.max-written=96"]);
    assert!(message.contains("`max-written` below its 96 positions"), "{message}");
}

#[test]
fn errors_in_a_training_config_name_the_key() {
    let folder = folder();
    let folder = folder.path();
    let message = refused(
        folder,
        &[
            "train",
            "c.toml",
            "relations.seq2seq.beams=0",
            "relations.seq2seq.shape.heads=1",
            "relations.seq2seq.from=none",
            "relations.seq2seq.properties=[{name=\"A\", relations=[]}]",
            "relations.linear.epochs=1",
        ],
    );
    for part in [
        "`relations.seq2seq.beams`: expected at least 1",
        "shape.heads`",
        "`relations.seq2seq.from`: no folder none",
        "`relations` for `A`",
        "expected no other table of a model with it",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(
        refused(folder, &["train", "c.toml", "relations.seq2seq.beam=1"]).contains("did you mean `beams`?")
    );
    // A property without annotations, a tokenizer without the marker tokens, and a model that cannot generate.
    let unknown = "relations.seq2seq.properties=[{name=\"HAIR\", relations=[\"hair\"]}]";
    assert!(refused(folder, &["train", "c.toml", unknown]).contains("found `HAIR`"));
    let from = |name: &str| {
        let data = root().join("crates/transformers/tests/data").join(name);
        refused(folder, &["train", "c.toml", &format!("relations.seq2seq.from={}", data.display())])
    };
    assert!(from("bart").contains("the added token `<triplet>`"));
    assert!(from("encoders/bert-states").contains("expected an encoder-decoder, found an encoder"));
    assert!(refused(folder, &["populate", "c.toml"]).contains("model"));
    assert!(!folder.join("model").exists());
}
