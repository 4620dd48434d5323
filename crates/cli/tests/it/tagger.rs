//! Taggers from the shell: both kinds are trained on a few generated sentences and scored.

use std::{fs, path::Path};

use crate::common::{errors, root, sporran};
use serde_json::{Value, json};

/// Documents of two sentences in DocRED's layout: who met whom where.
fn docred(folder: &Path, name: &str, count: usize) -> String {
    let people = ["Ann Lee", "Bob Ray", "Eve Poe", "Max Orr", "Ida Fox"];
    let places = ["Rome", "Oslo", "Lima", "Bonn"];
    let make = |at: usize| {
        let (who, place) = (people[at % people.len()], places[at % places.len()]);
        let other = people[(at + 2) % people.len()];
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mention = |name: &str, start: usize, sentence: usize, kind: &str| json!([{ "name": name, "pos": [start, start + name.split(' ').count()], "sent_id": sentence, "type": kind }]);
        json!({
            "title": format!("d{at}"),
            "sents": [words(&format!("{who} met {other} .")), words(&format!("They went to {place} in 1950 ."))],
            "vertexSet": [
                mention(who, 0, 0, "PER"),
                mention(other, 3, 0, "PER"),
                mention(place, 3, 1, "LOC"),
                mention("1950", 5, 1, "TIME"),
            ],
        })
    };
    let path = folder.join(name);
    fs::write(&path, Value::Array((0..count).map(make).collect()).to_string()).unwrap();
    path.display().to_string()
}

fn train(folder: &Path, config: &str, overrides: &[String]) -> Value {
    let path = root().join("configs/extractor").join(config).display().to_string();
    let knowledgenet = root().join("examples/minikilt/knowledgenet/train.json").display().to_string();
    let mut arguments = vec!["--quiet".to_owned(), "train".into(), path, "--json".into()];
    arguments.extend([
        format!("annotations.docred=[\"{}\"]", docred(folder, "train.json", 40)),
        format!("annotations.knowledgenet=[\"{knowledgenet}\"]"),
        format!("test.docred=[\"{}\"]", docred(folder, "test.json", 7)),
        format!("test.knowledgenet=[\"{knowledgenet}\"]"),
        "test.folds=[4]".into(),
        "tagger.optimizer.warmup-steps=2".into(),
    ]);
    arguments.extend(overrides.iter().cloned());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = sporran(folder, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_bilstm_tagger_trains_once() {
    let folder = tempfile::tempdir().unwrap();
    let overrides: Vec<String> = [
        "tagger.features={buckets=512, width=8}",
        "tagger.hidden-size=12",
        "tagger.layers=1",
        "tagger.optimizer.epochs=12",
        "tagger.optimizer.tokens-per-batch=256",
        "tagger.optimizer.learning-rate=0.02",
    ]
    .map(String::from)
    .into();
    let made = train(folder.path(), "ner-bilstm.toml", &overrides);
    // The test sentences resemble the training sentences.
    assert!(made["tests"][0]["spans"]["f1"].as_f64().unwrap() > 0.9, "{made}");
    assert!(made["tests"][1]["facts"]["gold"].as_u64().unwrap() > 0, "{made}");
    let saved: Value =
        serde_json::from_slice(&fs::read(folder.path().join("runs/ner-bilstm/model/tagger.json")).unwrap())
            .unwrap();
    assert_eq!(saved["kind"], "bilstm-crf");
    assert_eq!(train(folder.path(), "ner-bilstm.toml", &overrides), made);
}

#[test]
fn an_encoder_tagger_trains() {
    let folder = tempfile::tempdir().unwrap();
    let encoder = root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string();
    let overrides = [
        format!("tagger.from={encoder}"),
        "tagger.optimizer.epochs=2".into(),
        "tagger.optimizer.tokens-per-batch=512".into(),
    ];
    let made = train(folder.path(), "ner-encoder.toml", &overrides);
    assert!(made["best"][0].as_u64().unwrap() > 0, "{made}");
    assert!(folder.path().join("runs/ner-encoder/model/tokenizer.json").is_file());
}

#[test]
fn errors_in_a_config_name_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let path = root().join("configs/extractor/ner-bilstm.toml").display().to_string();
    let output = sporran(folder.path(), &["config", "check", &path]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("`annotations.docred`: no file"), "{}", errors(&output));
}
