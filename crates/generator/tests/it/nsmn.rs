//! The released matching networks on tiny ones under the release's names, which `scripts/reference/nsmn_parity.py` makes with
//! AllenNLP's ELMo.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use sporran_generator::{Nsmn, ReleasedNsmn, WordPair, import_nsmn, is_released_nsmn, treebank_words};
use tempfile::TempDir;

#[derive(Deserialize)]
struct Expected {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    first: Vec<String>,
    relevance: Vec<f32>,
    second: Vec<String>,
    logits: Vec<f32>,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/nsmn").join(name)
}

fn imported(name: &str) -> (TempDir, ReleasedNsmn, Vec<Case>) {
    let folder = TempDir::new().unwrap();
    let into = folder.path().join(name);
    assert!(is_released_nsmn(&data(name)) && !is_released_nsmn(folder.path()));
    import_nsmn(&data(name), &into).unwrap();
    let expected: Expected =
        serde_json::from_str(&fs::read_to_string(data(name).join("expected.json")).unwrap()).unwrap();
    (folder, ReleasedNsmn::load(&into).unwrap(), expected.cases)
}

fn pair(case: &Case) -> WordPair {
    WordPair { first: case.first.clone(), relevance: case.relevance.clone(), second: case.second.clone() }
}

fn compare(network: &ReleasedNsmn, cases: &[Case], order: &[usize], tokens: usize) {
    let pairs: Vec<WordPair> = cases.iter().map(pair).collect();
    let found = network.logits(&pairs, tokens).unwrap();
    for (found, case) in found.iter().zip(cases) {
        for (found, &at) in found.iter().zip(order) {
            assert!(
                (found - case.logits[at]).abs() < 2e-5,
                "{}: {found} {:?}",
                case.first.join(" "),
                case.logits
            );
        }
    }
}

#[test]
fn a_selectors_logits_are_the_references_alone_and_in_batches() {
    let (_folder, network, cases) = imported("selector");
    assert_eq!(network.config().labels, ["other", "evidence"]);
    // The release's first label means evidence.
    compare(&network, &cases, &[1, 0], 1);
    compare(&network, &cases, &[1, 0], 10_000);
}

#[test]
fn a_verifiers_logits_are_the_references_alone_and_in_batches() {
    let (_folder, network, cases) = imported("verifier");
    assert_eq!(network.config().labels, ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]);
    compare(&network, &cases, &[0, 1, 2], 1);
    compare(&network, &cases, &[0, 1, 2], 10_000);
}

#[test]
fn what_is_too_long_loses_its_end() {
    let (_folder, network, _) = imported("selector");
    let text = |words: usize| (0..words).map(|at| format!("w{}", at % 17)).collect::<Vec<_>>();
    let pair = |words: usize| WordPair { first: text(words), relevance: vec![1.0; words], second: text(3) };
    // ELMo reads more words than the network.
    let found = network.logits(&[pair(300), pair(310), pair(290)], 1_000).unwrap();
    assert!(found[0] != found[1] && found[0] != found[2], "{found:?}");
    let (_folder, network, _) = imported("verifier");
    let found = network.logits(&[pair(420), pair(500)], 1_000).unwrap();
    assert_eq!(found[0], found[1]);
}

#[test]
fn words_are_nltks() {
    let text = fs::read_to_string(data("treebank.json")).unwrap();
    let cases: Vec<(String, Vec<String>)> = serde_json::from_str(&text).unwrap();
    for (sentence, expected) in cases {
        assert_eq!(treebank_words(&sentence), expected, "{sentence}");
    }
}

#[test]
fn sizes_that_the_weights_cannot_have_are_refused_before_anything_is_made_of_them() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/minikilt-fever/pages");
    for field in ["vocab_size", "embedding_size", "hidden_size", "projection_size", "max_length"] {
        for value in [1u64 << 32, 1 << 62] {
            let folder = TempDir::new().unwrap();
            fs::copy(from.join("model.safetensors"), folder.path().join("model.safetensors")).unwrap();
            let text = fs::read_to_string(from.join("config.json")).unwrap();
            let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert!(config.get(field).is_some(), "no {field}");
            config[field] = value.into();
            fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
            let error = Nsmn::load(folder.path()).unwrap_err().to_string();
            let expected = format!("field `{field}`: expected a size that fits the weights, which have ");
            assert!(error.contains(&expected), "{error}");
        }
    }
}
