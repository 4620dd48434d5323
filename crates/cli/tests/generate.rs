//! `sporran generate`: one line in, one line out, whatever the line.

mod common;

use std::{
    io::Write,
    path::PathBuf,
    process::{Output, Stdio},
};

use common::{errors, root, sporran};

fn generate(arguments: &[&str], input: &[u8]) -> Output {
    let model: PathBuf = root().join("models/minikilt-reader");
    let model = model.to_string_lossy();
    let arguments = [&["generate", "--model", &model, "--json", "--max-new-tokens", "6"], arguments].concat();
    let mut command = sporran(&root(), &arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A call that is refused may end before it reads.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// The outputs of each line: text and score.
fn outputs(output: &Output) -> Vec<Vec<(String, f64)>> {
    assert!(output.status.success(), "{}", errors(output));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let line = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let outputs = value["outputs"].as_array().unwrap().iter();
        outputs.map(|o| (o["text"].as_str().unwrap().to_owned(), o["score"].as_f64().unwrap())).collect()
    };
    text.lines().map(line).collect()
}

fn assert_same(a: &[Vec<(String, f64)>], b: &[Vec<(String, f64)>]) {
    assert_eq!(a.len(), b.len());
    for ((a, score), (b, other)) in a.iter().flatten().zip(b.iter().flatten()) {
        assert_eq!(a, b);
        assert!((score - other).abs() < 1e-4, "{a}: {score} and {other}");
    }
}

const QUESTIONS: &str = "question: who was Ada Lovelace?\nfact: Oslo is the capital of Norway and of Sweden.\nslot: \
                         a\nquestion: where?\nentity: [START_ENT] Paris [END_ENT]\n";

#[test]
fn outputs_stand_in_the_order_of_the_lines_in_any_batch_size() {
    let beams = ["--num-beams", "3", "--num-return-sequences", "2"];
    let groups = ["--num-beams", "4", "--num-beam-groups", "2", "--diversity-penalty", "0.5"];
    let drawn = [
        "--do-sample",
        "--temperature",
        "1.5",
        "--top-p",
        "0.9",
        "--seed",
        "4",
        "--num-return-sequences",
        "3",
    ];
    for (arguments, count) in [(&beams[..], 2), (&groups[..], 1), (&drawn[..], 3)] {
        let run = |size, input: &str| {
            let found = outputs(&generate(&[arguments, &["--batch-size", size]].concat(), input.as_bytes()));
            assert!(found.iter().all(|outputs| outputs.len() == count));
            found
        };
        let together = run("16", QUESTIONS);
        assert_eq!(together.len(), 5);
        assert_same(&run("1", QUESTIONS), &together);
        let lines: Vec<&str> = QUESTIONS.lines().rev().collect();
        let mut turned = run("2", &lines.join("\n"));
        turned.reverse();
        assert_same(&turned, &together);
    }
}

#[test]
fn every_line_is_a_text_however_it_ends() {
    let plain = outputs(&generate(&[], b"question: who?\n\nslot: a\n"));
    assert_eq!(plain.len(), 3);
    assert_same(&outputs(&generate(&[], b"question: who?\r\n\r\nslot: a")), &plain);
    assert!(outputs(&generate(&[], b"")).is_empty());
}

#[test]
fn a_line_that_is_too_long_is_cut_with_a_warning() {
    let long = "what is the capital of the country ".repeat(40);
    let output = generate(&["--max-input-tokens", "20"], format!("a\n{long}\n").as_bytes());
    assert_eq!(outputs(&output).len(), 2);
    let said = errors(&output);
    assert!(
        said.contains("standard input:2: the text has ") && said.contains("of which 20 are read"),
        "{said}"
    );
    assert!(!said.contains("standard input:1"), "{said}");
}

#[test]
fn a_folder_without_a_model_is_named() {
    let output = sporran(&root(), &["generate", "--model", "configs"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("configs: expected the file config.json"), "{}", errors(&output));
}

#[test]
fn wrong_lines_and_options_are_named() {
    for (arguments, input, expected) in [
        (&[][..], &b"a\nb \xff\n"[..], "standard input:2: invalid UTF-8 at byte 3"),
        (&["--batch-size", "0"], b"", "--batch-size: expected at least 1, found 0"),
        (&["--num-return-sequences", "2"], b"a", "num-return-sequences"),
        (
            &["--num-beams", "4", "--num-beam-groups", "3", "--diversity-penalty", "1"],
            b"a",
            "num-beam-groups",
        ),
        (&["--temperature", "0.5"], b"", "--do-sample"),
        (&["--do-sample", "--temperature", "0"], b"a", "temperature"),
    ] {
        let output = generate(arguments, input);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(expected), "{arguments:?}: {}", errors(&output));
    }
}
