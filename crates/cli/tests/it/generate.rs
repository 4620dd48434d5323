//! `sporran generate`: one output line for each input line.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use crate::common::{errors, root, sporran};

fn generate(arguments: &[&str], input: &[u8]) -> Output {
    let model: PathBuf = root().join("models/minikilt-reader");
    generate_with(&model, &[&["--max-new-tokens", "6"], arguments].concat(), input)
}

/// A fixture of a decoder-only model with 64 positions.
fn fixture(name: &str) -> PathBuf {
    root().join("crates/transformers/tests/data").join(name)
}

fn generate_with(model: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let model = model.to_string_lossy();
    let arguments = [&["generate", "--model", &model, "--json"], arguments].concat();
    let mut command = sporran(&root(), &arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A call that fails may end before it reads.
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
fn outputs_have_the_order_of_the_lines_at_any_batch_size() {
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
fn every_line_ending_is_accepted() {
    let plain = outputs(&generate(&[], b"question: who?\n\nslot: a\n"));
    assert_eq!(plain.len(), 3);
    assert_same(&outputs(&generate(&[], b"question: who?\r\n\r\nslot: a")), &plain);
    assert!(outputs(&generate(&[], b"")).is_empty());
}

#[test]
fn a_line_that_is_too_long_is_truncated_with_a_warning() {
    let long = "what is the capital of the country ".repeat(40);
    let output = generate(&["--max-input-tokens", "20"], format!("a\n{long}\n").as_bytes());
    assert_eq!(outputs(&output).len(), 2);
    let message = errors(&output);
    assert!(message.contains("standard input:2: the model reads only 20 of the "), "{message}");
    assert!(!message.contains("standard input:1"), "{message}");
}

#[test]
fn the_error_for_a_folder_without_a_model_names_it() {
    let output = sporran(&root(), &["generate", "--model", "configs"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("configs: expected the file config.json"), "{}", errors(&output));
}

#[test]
fn errors_name_the_line_or_the_option() {
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

#[test]
fn a_blank_line_gets_an_empty_answer_and_changes_no_other() {
    for (model, arguments) in [
        (fixture("gpt2"), &["--batch-size", "1"][..]),
        (fixture("gpt2"), &[]),
        (fixture("qwen2"), &[]),
        (root().join("models/minikilt-reader"), &[]),
    ] {
        let arguments = [arguments, &["--max-new-tokens", "3"]].concat();
        let run = |input: &[u8]| generate_with(&model, &arguments, input);
        let output = run(b"first line\n\n \t\nthird line\n");
        let found = outputs(&output);
        assert_eq!(found.len(), 4, "{}", model.display());
        for blank in &found[1..3] {
            assert_eq!(blank, &[(String::new(), 0.0)]);
        }
        assert_same(&found[..1], &outputs(&run(b"first line")));
        assert_same(&found[3..], &outputs(&run(b"third line")));
        let message = errors(&output);
        assert!(message.contains("blank lines have an empty answer: 2 of 4 lines"), "{message}");
    }
}

#[test]
fn learned_positions_truncate_a_long_prompt_and_rotary_positions_do_not() {
    let long = "where was the author born? ".repeat(40);
    let input = format!("x\n{long}\ny\n{long}z\n");
    let output = generate_with(&fixture("gpt2"), &[], input.as_bytes());
    let (found, message) = (outputs(&output), errors(&output));
    assert_eq!(found.len(), 4);
    // Twenty new tokens need nineteen of the 64 positions, because the last one is not read.
    assert!(message.contains("standard input:2: the model reads only 45 of the "), "{message}");
    assert!(message.contains("standard input:4: ") && !message.contains("standard input:1: "), "{message}");
    assert_same(&found[..1], &outputs(&generate_with(&fixture("gpt2"), &[], b"x\n")));
    // The model reads the end of the prompt; the text before it does not matter.
    let other = format!("{}{long}", "something else that is far away ".repeat(9));
    assert_same(&found[1..2], &outputs(&generate_with(&fixture("gpt2"), &[], other.as_bytes())));

    for model in ["llama", "qwen2"] {
        let output = generate_with(&fixture(model), &["--max-new-tokens", "5"], input.as_bytes());
        let message = errors(&output);
        assert_eq!(outputs(&output).len(), 4, "{model}");
        assert_eq!(message.matches("the model was trained for 64").count(), 1, "{model}: {message}");
        assert!(!message.contains("reads only"), "{model}: {message}");
        let changed = format!("a {long}\n");
        let cut = generate_with(&fixture(model), &["--max-new-tokens", "5"], changed.as_bytes());
        assert_ne!(outputs(&cut)[0][0].1, outputs(&output)[1][0].1, "{model} reads the beginning too");
    }
}

#[test]
fn an_answer_ends_at_the_last_learned_position() {
    let output =
        generate_with(&fixture("gpt2"), &["--max-new-tokens", "500", "--min-new-tokens", "400"], b"x\ny\n");
    assert_eq!(outputs(&output).len(), 2);
    assert!(errors(&output).contains("2 outputs end at the model's last position"), "{}", errors(&output));
}

#[test]
fn the_lines_before_an_unreadable_line_are_answered() {
    let output = generate(&[], b"question: who?\nslot: a\n\xff\nslot: b\n");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    assert!(errors(&output).contains("standard input:3: invalid UTF-8 at byte 1"), "{}", errors(&output));
}

#[test]
fn chat_needs_a_template_that_accepts_the_line() {
    let refused = |model: &Path, expected: &str| {
        let output = generate_with(model, &["--chat"], b"who?\n");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        assert!(errors(&output).contains(expected), "{}", errors(&output));
    };
    refused(&fixture("llama"), "expected a chat template in");
    refused(&root().join("models/minikilt-reader"), "--chat: expected a decoder-only model");
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture("llama")).unwrap() {
        let file = file.unwrap();
        if !file.file_name().to_string_lossy().ends_with("gguf") {
            fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
        }
    }
    let template = folder.path().join("chat_template.jinja");
    fs::write(&template, "{{ raise_exception('no turn allowed') }}").unwrap();
    refused(folder.path(), "no turn allowed");
    let text =
        "{% for message in messages %}{{ message.role }}: {{ message.content }} / {% endfor %}assistant:";
    fs::write(&template, text).unwrap();
    let run = |arguments: &[&str], input: &str| {
        outputs(&generate_with(
            folder.path(),
            &[&["--max-new-tokens", "5"], arguments].concat(),
            input.as_bytes(),
        ))
    };
    let chat = run(&["--chat"], "who?\n\nwhere?\n");
    assert_eq!((chat.len(), chat[1][0].0.as_str()), (3, ""));
    assert_same(&chat[..1], &run(&[], "user: who? / assistant:"));
    assert_same(&chat[2..], &run(&[], "user: where? / assistant:"));
    let system = run(&["--chat", "--system", "be short"], "who?");
    assert_same(&system, &run(&[], "system: be short / user: who? / assistant:"));
}
