//! Training of decoder-only generators on task files and on dialogues, and blind sheets of their responses.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use crate::common::{errors, interrupt, json, root, sporran};
use serde_json::Value;

/// The tables that both workflows share. The fixture's model is small enough to learn its answers by heart.
fn tables(passages: usize) -> String {
    let gpt2 = root().join("crates/transformers/tests/data/gpt2").display().to_string();
    format!(
        r#"
[generator]
kind = "causal"
model = "trained"
chat = "none"
prompt.passages = {passages}
prompt.max-tokens = 50
prompt.max-input-tokens = 20
prompt.speakers = ["<speaker1>", "<speaker2>"]
generation.max-new-tokens = 4
[train]
model = "trained"
from = '{gpt2}'
added-tokens = ["<speaker1>", "<speaker2>"]
[train.optimizer]
steps = 80
tokens-per-batch = 400
learning-rate = 1e-2
warmup-steps = 5
"#
    )
}

fn done(folder: &Path, arguments: &[&str]) {
    let output = sporran(folder, &[&["-q"], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
}

/// The answers of a file of predictions.
fn answers(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let answer = |line: &str| {
        let record: Value = serde_json::from_str(line).unwrap();
        record["output"][0]["answer"].as_str().unwrap().to_owned()
    };
    text.lines().map(answer).collect()
}

/// A config with three questions, whose training reads them.
fn questions(folder: &Path) {
    let question = |(at, input, answer): (usize, &str, &str)| {
        format!(r#"{{"id":"{at}","input":"{input}","output":[{{"answer":"{answer}"}}]}}"#)
    };
    let questions = [(0, "who?", "b"), (1, "where?", "c"), (2, "when?", "d")].map(question).join("\n");
    fs::write(folder.join("nq-dev-kilt.jsonl"), questions).unwrap();
    let config = format!(
        "workflow = \"answer\"\nname = \"r\"\n[tasks]\nfiles = [\"nq-dev-kilt.jsonl\"]\n{}\
         [train.examples]\nfiles = [\"nq-dev-kilt.jsonl\"]\n",
        tables(0)
    );
    fs::write(folder.join("c.toml"), config).unwrap();
}

#[test]
fn a_decoder_only_model_learns_the_answers_of_task_files() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    questions(folder);
    let trained = json(folder, &["-q", "train", "c.toml", "--json"]);
    let (steps, best) = (trained["steps"].as_u64().unwrap(), trained["best"][1].as_f64().unwrap());
    // The reciprocal of the perplexity.
    assert!(steps == 80 && best > 0.9 && best <= 1.0, "{trained}");
    done(folder, &["run", "c.toml"]);
    assert_eq!(answers(&folder.join("runs/r/predictions/nq-dev-kilt.jsonl")), ["b", "c", "d"]);
}

#[test]
fn ctrl_c_in_a_training_writes_a_checkpoint() {
    let place = tempfile::tempdir().unwrap();
    questions(place.path());
    let arguments = ["-q", "train", "c.toml", "train.optimizer.steps=1000000"];
    let child = sporran(place.path(), &arguments).stderr(Stdio::piped()).spawn().unwrap();
    let training = place.path().join("runs/r/training");
    let started = Instant::now();
    // Steps have ended.
    while fs::read(training.join("history.jsonl")).map_or(0, |text| text.len()) == 0 {
        assert!(started.elapsed() < Duration::from_secs(120), "the training was not begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, errors) = interrupt(child);
    assert_eq!(code, Some(130), "{errors}");
    assert!(errors.contains("a checkpoint is written after this step"), "{errors}");
    assert!(errors.contains("keeps the finished parts; run the same command again"), "{errors}");
    let names = fs::read_dir(&training).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with("checkpoint-")).count(), 1);
}

#[test]
fn a_generator_of_responses_is_trained_with_gold_sentences_and_compared_by_people() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path();
    let dialogue = |turn: &str, sentence: &str, response: &str| {
        let label = format!("Tea <knowledge_separator> {sentence}");
        serde_json::json!({
            "turns": [turn], "topic": "Tea", "gold_sentence": label, "response": response,
            "annotated_sentences": [{"label": label, "confidence": 1.0}],
        })
    };
    let dialogues = serde_json::json!({
        "a": dialogue("who?", "Tea is hot.", "b"),
        "b": dialogue("who?", "Tea is red.", "c"),
    });
    fs::write(folder.join("wow.json"), dialogues.to_string()).unwrap();
    let config = format!(
        "workflow = \"dialogue\"\nname = \"gold\"\n[dialogues]\nfile = \"wow.json\"\nsentence = \"gold\"\n{}\
         [train.examples]\nfiles = [\"wow.json\"]\nvalidation = [\"wow.json\"]\n",
        tables(1)
    );
    fs::write(folder.join("c.toml"), config).unwrap();
    done(folder, &["train", "c.toml"]);
    done(folder, &["run", "c.toml"]);
    // The turns are the same, so the sentence decides.
    assert_eq!(answers(&folder.join("runs/gold/predictions.jsonl")), ["b", "c"]);
    done(folder, &["run", "c.toml", "name=without", "generator.prompt.passages=0"]);

    let files = ["runs/gold/predictions.jsonl", "runs/without/predictions.jsonl"];
    let names = "gold,without";
    let sheet = json(
        folder,
        &["compare", "responses", files[0], files[1], "--sheet", "sheet", "--names", names, "--json"],
    );
    assert_eq!((sheet["records"].as_u64(), sheet["rows"].as_u64()), (Some(2), Some(2)));
    let key: Value =
        serde_json::from_str(&fs::read_to_string(folder.join("sheet/key.json")).unwrap()).unwrap();
    let code = key["sheet"].as_str().unwrap();
    // The votes are for the first system in both rows.
    let row = |at: usize| {
        let systems = key["rows"][at]["systems"].as_array().unwrap();
        let vote = 1 + systems.iter().position(|system| system.as_u64() == Some(0)).unwrap();
        format!("{code},{},{vote},tie\n", at + 1)
    };
    let header = "sheet,row,appropriate,informative\n";
    fs::write(folder.join("anna.csv"), format!("{header}{}{}", row(0), row(1))).unwrap();
    let votes = json(folder, &["compare", "votes", "sheet/key.json", "anna.csv", "--json"]);
    let [appropriate, informative] = [0, 1].map(|at| &votes["dimensions"][at]);
    assert_eq!(appropriate["preferred"], serde_json::json!([2, 0]));
    assert_eq!((informative["ties"].as_u64(), votes["systems"][0].as_str()), (Some(2), Some("gold")));

    fs::write(folder.join("ben.csv"), format!("{header}{code},1,3,1\n")).unwrap();
    let output = sporran(folder, &["compare", "votes", "sheet/key.json", "ben.csv"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("ben.csv:2: field `appropriate`"), "{}", errors(&output));
    // A sheet is not overwritten.
    let again = ["compare", "responses", files[0], files[1], "--sheet", "sheet"];
    assert_eq!(sporran(folder, &again).output().unwrap().status.code(), Some(2));
}
