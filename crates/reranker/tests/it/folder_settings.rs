//! What a cross-encoder's folder sets is what its scores are made with. Scores and logits are those of sentence-transformers;
//! `scripts/reference/folder_settings.py` made them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use sporran_reranker::{CrossEncoder, CrossEncoderOptions};

#[derive(Deserialize)]
struct Expected {
    pairs: Vec<(String, String)>,
    variants: Vec<Variant>,
}

#[derive(Deserialize)]
struct Variant {
    model: String,
    /// JSON files in the place of the folder's own.
    files: BTreeMap<String, Value>,
    scores: Vec<Vec<f32>>,
    logits: Vec<Vec<f32>>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/settings/cross")
}

/// A folder of the fixtures with other files.
fn variant(model: &str, files: &BTreeMap<String, Value>) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder().join(model)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, place.path().join(path.file_name().unwrap())).unwrap();
    }
    for (name, value) in files {
        fs::write(place.path().join(name), value.to_string()).unwrap();
    }
    place
}

fn load(folder: &Path, batch_tokens: usize) -> CrossEncoder {
    CrossEncoder::load(&CrossEncoderOptions { batch_tokens, ..CrossEncoderOptions::new(folder.into()) })
        .unwrap()
}

#[test]
fn scores_and_logits_are_those_of_sentence_transformers_in_any_batch() {
    let text = fs::read_to_string(folder().join("expected.json")).unwrap();
    let Expected { pairs, variants } = serde_json::from_str(&text).unwrap();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert!(variants.len() > 10);
    for Variant { model, files, scores, logits } in variants {
        let place = variant(&model, &files);
        for batch_tokens in [1, 4096] {
            let encoder = load(place.path(), batch_tokens);
            let activation = encoder.activation().unwrap();
            let found = encoder.logits(&pairs).unwrap();
            assert_eq!(found.len(), logits.len());
            for (at, row) in found.iter().enumerate() {
                let close = |found: &[f32], expected: &[f32]| {
                    found.len() == expected.len()
                        && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5)
                };
                assert!(close(row, &logits[at]), "{model} {files:?}: {row:?} for {:?}", logits[at]);
                let row = activation.scores(row);
                assert!(close(&row, &scores[at]), "{model} {files:?}: {row:?} for {:?}", scores[at]);
            }
        }
    }
}

#[test]
fn an_unknown_activation_is_an_error_where_scores_are_asked_for_and_not_for_logits() {
    let path = folder().join("one/config.json");
    let mut config: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    config["sentence_transformers"] = serde_json::json!({"activation_fn": "my_code.Scaled"});
    let place = variant("one", &BTreeMap::from([("config.json".to_owned(), config)]));
    let encoder = load(place.path(), 4096);
    assert_eq!(encoder.logits(&[("war", "the war")]).unwrap().len(), 1);
    let error = encoder.activation().unwrap_err().to_string();
    assert!(error.contains("`sentence_transformers.activation_fn`"), "{error}");
    assert!(error.contains("found `my_code.Scaled`"), "{error}");
}
