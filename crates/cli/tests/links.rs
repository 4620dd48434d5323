//! Embeddings from the shell: training, search and scores over a small knowledge base made here.

mod common;

use std::{fs, path::Path};

use common::{errors, root, sporran};
use serde_json::Value;

/// Twelve entities on a circle, three relations; every fifth triple is kept for judging, with a wrong one for each.
fn circle(folder: &Path) -> String {
    let mut parts = [String::new(), String::new(), String::new()];
    let mut negatives = [String::new(), String::new()];
    for at in 0..12 {
        for (relation, by) in [("next", 1), ("skip", 2), ("back", 11)] {
            let line = |by: usize| format!("Q{at}\t{relation}\tQ{}\n", (at + by) % 12);
            let part = match (at * 3 + by) % 10 {
                4 => 1,
                9 => 2,
                _ => 0,
            };
            parts[part].push_str(&line(by));
            if part > 0 {
                negatives[part - 1].push_str(&line(by + 5));
            }
        }
    }
    let kb = folder.join("kb");
    fs::create_dir_all(&kb).unwrap();
    for (name, text) in ["train", "valid", "test"].iter().zip(&parts) {
        fs::write(kb.join(format!("{name}.txt")), text).unwrap();
    }
    for (name, text) in ["valid", "test"].iter().zip(&negatives) {
        fs::write(kb.join(format!("{name}_negatives.txt")), text).unwrap();
    }
    kb.display().to_string()
}

fn config(folder: &Path, kb: &str, more: &str) -> String {
    let path = folder.join("circle.toml");
    let text = format!(
        "name = \"circle\"\noutput = \"{}\"\n[data]\nfolder = \"{kb}\"\n[embedding]\nmodel = \"complex\"\ndim = 24\n\
         initial = \"normal\"\ninitial-scale = 0.1\n[embedding.training]\nbatch-size = 16\nepochs = 40\n\
         regularizer = {{ entity = 0.02, relation = 0.02 }}\n{more}",
        folder.join("runs").display()
    );
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    let output = sporran(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_trained_embedding_ranks_and_tells_triples() {
    let folder = tempfile::tempdir().unwrap();
    let kb = circle(folder.path());
    let config = config(folder.path(), &kb, "");
    let trained = json_of(folder.path(), &["--quiet", "train", &config, "--json"]);
    assert!(trained["best"][1].as_f64().unwrap() > 0.3, "{trained}");
    // A finished training is not done again.
    assert_eq!(json_of(folder.path(), &["--quiet", "train", &config, "--json"]), trained);
    let model = trained["model"].as_str().unwrap();
    let scored = json_of(
        folder.path(),
        &["evaluate", "--links", model, "--kb", &kb, "--part", "train", "--classification", "--json"],
    );
    assert_eq!(scored["part"], "train");
    assert!(scored["all"]["mrr"].as_f64().unwrap() > 0.9, "{scored}");
    assert_eq!(scored["relations"].as_object().unwrap().len(), 3);
    assert!(scored["classification"]["accuracy"].as_f64().unwrap() >= 0.5, "{scored}");
    let ranks = |part: &str| {
        json_of(folder.path(), &["evaluate", "--links", model, "--kb", &kb, "--part", part, "--json"])["all"]
            ["ranks"]
            .as_u64()
            .unwrap()
    };
    let lines = |name: &str| fs::read_to_string(Path::new(&kb).join(name)).unwrap().lines().count() as u64;
    assert_eq!(ranks("test"), 2 * lines("test.txt"));
}

#[test]
fn a_search_keeps_the_best_of_its_trials() {
    let folder = tempfile::tempdir().unwrap();
    let kb = circle(folder.path());
    let search = "[search]\ntrials = 3\n[[search.range]]\nkey = \"training.learning-rate\"\nlow = 0.0001\nhigh = 1.0\nlog = true\n";
    let config = config(folder.path(), &kb, search);
    let found = json_of(folder.path(), &["--quiet", "train", &config, "--json"]);
    let trials = found["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 3);
    let best = trials.iter().map(|trial| trial["best"][1].as_f64().unwrap()).fold(0.0, f64::max);
    assert_eq!(found["best"][1].as_f64(), Some(best));
    assert!(trials[1]["drawn"]["training.learning-rate"].is_f64());
    let log = fs::read_to_string(folder.path().join("runs/circle/search.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 3);
    json_of(folder.path(), &["evaluate", "--links", found["model"].as_str().unwrap(), "--kb", &kb, "--json"]);
}

#[test]
fn what_is_wrong_ends_with_code_2_and_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let kb = circle(folder.path());
    let config = config(folder.path(), &kb, "");
    let fails = |arguments: &[&str], expected: &str| {
        let output = sporran(folder.path(), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    };
    fails(&["train", &config, "embedding.dim=3"], "`embedding.dim`: expected an even number, found 3");
    fails(&["evaluate", "--links", "nowhere", "--kb", &kb], "nowhere");
    let committed = root().join("configs/kge/codex-s-complex.toml").display().to_string();
    let arguments = ["config", "check", &committed, &format!("data.folder={kb}")];
    let checked = sporran(folder.path(), &arguments).output().unwrap();
    assert!(checked.status.success(), "{}", errors(&checked));
    fails(&["config", "check", &committed, "data.folder=nowhere"], "`data.folder`: no folder nowhere");
    fs::write(Path::new(&kb).join("valid.txt"), "Q1\tnext\n").unwrap();
    fails(&["train", &config], "valid.txt:1: field `.`");
    assert!(!folder.path().join("runs").exists());
}
