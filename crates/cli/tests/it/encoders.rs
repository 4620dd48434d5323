//! `embed` and `rerank` from the shell, over the seeded tiny checkpoints of the transformers crate.

use std::{
    io::Write,
    path::PathBuf,
    process::{Output, Stdio},
};

use crate::common::{errors, root, sporran};
use serde_json::Value;

fn folder(name: &str) -> String {
    let path: PathBuf = root().join("crates/transformers/tests/data/encoders").join(name);
    path.display().to_string()
}

/// Runs a verb with `input` as standard input.
fn over(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = sporran(&root(), arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    // A program that refuses its arguments closes the pipe before it has read anything.
    let _ = child.stdin.take().expect("standard input is a pipe").write_all(input);
    child.wait_with_output().expect("the program ends")
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

#[test]
fn embed_prints_the_vector_of_every_line_in_order() {
    let text = std::fs::read_to_string(PathBuf::from(folder("sentence")).join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let texts: Vec<&str> =
        expected["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let output = over(&["embed", "--model", &folder("sentence"), "--json"], texts.join("\n").as_bytes());
    assert!(output.status.success(), "{}", errors(&output));
    let found = lines(&output);
    assert_eq!(found.len(), texts.len());
    for (found, expected) in found.iter().zip(expected["vectors"].as_array().unwrap()) {
        let pairs = numbers(&found["vector"]).into_iter().zip(numbers(expected));
        let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 2e-5, "{worst}");
    }
}

#[test]
fn embed_needs_a_pooling_option_for_a_bare_encoder() {
    let model = folder("bert-sequence");
    let output = over(&["embed", "--model", &model, "--json"], b"war\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("expected modules.json"), "{}", errors(&output));
    let output = over(&["embed", "--model", &model, "--pooling", "mean", "--json"], b"war\n\n");
    assert!(output.status.success(), "{}", errors(&output));
    // An empty line is an empty text; its special tokens have hidden states.
    assert_eq!(lines(&output).len(), 2);
    let output = over(&["embed", "--model", &model, "--pooling", "median"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("`weightedmean` or `lasttoken`"), "{}", errors(&output));
}

#[test]
fn rerank_prints_a_score_for_each_passage() {
    let input = concat!(
        r#"{"query": "who wrote the song", "passages": ["the band wrote the song", "river"]}"#,
        "\n",
        r#"{"query": "capital", "passages": []}"#,
        "\n",
        r#"{"query": "who wrote the song", "passages": ["river"]}"#,
        "\n"
    );
    let scores = |arguments: &[&str]| {
        let output = over(&[&["rerank", "--json", "--model"], arguments].concat(), input.as_bytes());
        assert!(output.status.success(), "{}", errors(&output));
        lines(&output).into_iter().map(|line| line["scores"].clone()).collect::<Vec<Value>>()
    };
    let model = folder("bert-sequence");
    let (found, raw) = (scores(&[&model]), scores(&[&model, "--raw-scores"]));
    let (found, raw): (Vec<_>, Vec<_>) =
        (found.iter().map(numbers).collect(), raw.iter().map(numbers).collect());
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [2, 0, 1]);
    assert!((found[0][1] - found[2][0]).abs() < 1e-5);
    assert!((found[0][0] - found[0][1]).abs() > 1e-3);
    // The folder names no activation and the model has one label.
    for (score, logit) in found.concat().into_iter().zip(raw.concat()) {
        assert!((score - 1.0 / (1.0 + (-logit).exp())).abs() < 1e-6, "{score} for {logit}");
    }
    // With two labels a passage has a logit for each.
    let model = folder("roberta-sequence");
    let found = scores(&[&model]);
    assert_eq!(found, scores(&[&model, "--raw-scores"]));
    assert_eq!(found[0].as_array().unwrap().iter().map(|row| numbers(row).len()).collect::<Vec<_>>(), [2, 2]);
    let output = over(&["rerank", "--model", &model], input.as_bytes());
    let text = String::from_utf8(output.stdout).unwrap();
    let counts: Vec<Vec<usize>> = text
        .lines()
        .map(|line| line.split_whitespace().map(|score| score.split(',').count()).collect())
        .collect();
    assert_eq!(counts, [vec![2, 2], vec![], vec![2]]);
}

/// A model's folder whose tokenizer adds no special tokens.
fn without_special_tokens(name: &str) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(PathBuf::from(folder(name)).join(file), place.path().join(file)).unwrap();
    }
    let path = place.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert!(tokenizer["post_processor"].is_object());
    tokenizer["post_processor"] = Value::Null;
    std::fs::write(path, tokenizer.to_string()).unwrap();
    place
}

#[test]
fn an_empty_text_without_special_tokens_is_no_error() {
    let model = without_special_tokens("bert-sequence");
    let folder = model.path().display().to_string();
    for pooling in ["mean", "cls", "max", "lasttoken", "weightedmean"] {
        let embed = |input: &[u8]| {
            let output = over(&["embed", "--model", &folder, "--pooling", pooling, "--json"], input);
            assert!(output.status.success(), "{}", errors(&output));
            lines(&output)
        };
        let found = embed(b"war\n\nriver\n");
        assert_eq!(found.len(), 3);
        assert!(numbers(&found[1]["vector"]).iter().all(|value| *value == 0.0), "{}", found[1]);
        assert_eq!([found[0].clone(), found[2].clone()].as_slice(), embed(b"war\nriver\n"));
        assert_eq!(embed(b"\n"), [found[1].clone()]);
    }
    let input = concat!(
        r#"{"query": "who", "passages": ["river"]}"#,
        "\n",
        r#"{"query": "", "passages": ["river", ""]}"#,
        "\n",
        r#"{"query": "who", "passages": [""]}"#,
        "\n"
    );
    let output = over(&["rerank", "--model", &folder, "--json"], input.as_bytes());
    assert!(output.status.success(), "{}", errors(&output));
    let found = lines(&output);
    let is_number: Vec<Vec<bool>> = found
        .iter()
        .map(|line| line["scores"].as_array().unwrap().iter().map(Value::is_f64).collect())
        .collect();
    assert_eq!(is_number, [vec![true], vec![true, false], vec![true]]);
    assert!(
        errors(&output).contains("standard input:2: query and passage are both empty"),
        "{}",
        errors(&output)
    );
    let output = over(&["rerank", "--model", &folder], input.as_bytes());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().nth(1).unwrap().ends_with(" -"), "{text}");
}

#[test]
fn embed_accepts_a_prompt_by_name_or_as_text_and_fewer_dimensions() {
    let place = tempfile::tempdir().unwrap();
    let from = root().join("crates/transformers/tests/data/settings/bi");
    for name in
        ["config.json", "model.safetensors", "modules.json", "tokenizer.json", "1_Pooling/config.json"]
    {
        std::fs::create_dir_all(place.path().join(name).parent().unwrap()).unwrap();
        std::fs::copy(from.join(name), place.path().join(name)).unwrap();
    }
    let settings = r#"{"prompts": {"query": "query : "}, "truncate_dim": 5}"#;
    std::fs::write(place.path().join("config_sentence_transformers.json"), settings).unwrap();
    let model = place.path().display().to_string();
    let embed = |text: &str, arguments: &[&str]| {
        let output = over(
            &[&["embed", "--json", "--model", &model], arguments].concat(),
            format!("{text}\n").as_bytes(),
        );
        assert!(output.status.success(), "{}", errors(&output));
        numbers(&lines(&output)[0]["vector"])
    };
    let plain = embed("query : war", &[]);
    assert_eq!(plain.len(), 5);
    assert_eq!(embed("war", &["--prompt-name", "query"]), plain);
    assert_eq!(embed("war", &["--prompt", "query : "]), plain);
    assert_ne!(embed("war", &[]), plain);
    assert_eq!(embed("query : war", &["--dimensions", "3"]), plain[..3]);
    assert_eq!(embed("query : war", &["--dimensions", "8", "--pooling", "lasttoken"]).len(), 8);
    let output = over(&["embed", "--model", &model, "--prompt-name", "qury"], b"war\n");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("one of the folder's prompts: `query`"), "{}", errors(&output));
}

#[test]
fn blank_lines_get_no_scores_and_empty_texts_get_scores() {
    let full = r#"{"query": "who wrote the song", "passages": ["river"]}"#;
    let empty = r#"{"query": "", "passages": ["", "river"]}"#;
    let run =
        |input: &str| over(&["rerank", "--model", &folder("bert-sequence"), "--json"], input.as_bytes());
    let output = run(&format!("{full}\n\n{empty}\n \n{full}\n"));
    assert!(output.status.success(), "{}", errors(&output));
    let found: Vec<Vec<f64>> = lines(&output).iter().map(|line| numbers(&line["scores"])).collect();
    assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 2, 0, 1]);
    assert_eq!(found[0], found[4]);
    assert!(errors(&output).contains("blank lines have no scores: 2 of them"), "{}", errors(&output));
    let output = run("\n\n");
    assert!(output.status.success() && lines(&output).len() == 2, "{}", errors(&output));
    let vectors = over(&["embed", "--model", &folder("sentence"), "--json"], b"war\n\n \nwar\n");
    assert!(vectors.status.success(), "{}", errors(&vectors));
    let vectors = lines(&vectors);
    assert_eq!((vectors.len(), numbers(&vectors[0]["vector"])), (4, numbers(&vectors[3]["vector"])));
}

#[test]
fn the_lines_before_a_wrong_line_are_answered() {
    let good = r#"{"query": "q", "passages": ["river"]}"#;
    for (bad, reason) in [
        (r#"{"query": "q"}"#, "missing field `passages`"),
        (r#"{"query": "q", "passages": [1]}"#, "expected a string, found the number 1"),
    ] {
        let input = format!("{good}\n{bad}\n{good}\n");
        let output = over(&["rerank", "--model", &folder("bert-sequence"), "--json"], input.as_bytes());
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(lines(&output).len(), 1);
        let message = errors(&output);
        assert!(message.contains("standard input:2: ") && message.contains(reason), "{message}");
    }
    let output = over(&["embed", "--model", &folder("sentence"), "--json"], b"war\n\xff\n");
    assert_eq!((output.status.code(), lines(&output).len()), (Some(2), 1));
    assert!(errors(&output).contains("standard input:2: invalid UTF-8 at byte 1"), "{}", errors(&output));
}

#[test]
fn a_model_of_another_kind_is_an_error() {
    let output = over(&["rerank", "--model", &folder("bert-mlm"), "--json"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("found a head for masked tokens"), "{}", errors(&output));
    let seq2seq = root().join("crates/transformers/tests/data/bart").display().to_string();
    for verb in ["embed", "rerank"] {
        let output = over(&[verb, "--model", &seq2seq], b"");
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains("expected an encoder"), "{}", errors(&output));
    }
}

#[test]
fn rerank_takes_a_language_model_that_answers_yes_or_no() {
    let model = folder("qwen3-reranker");
    let text = std::fs::read_to_string(PathBuf::from(&model).join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let line = |pair: &Value| serde_json::json!({ "query": pair[0], "passages": [pair[1]] }).to_string();
    let input: Vec<String> = expected["pairs"].as_array().unwrap().iter().map(line).collect();
    let scores = |further: &[&str]| {
        let arguments = [&["rerank", "--json", "--model", model.as_str()], further].concat();
        let output = over(&arguments, (input.join("\n") + "\n").as_bytes());
        assert!(output.status.success(), "{}", errors(&output));
        lines(&output).iter().map(|line| numbers(&line["scores"])[0]).collect::<Vec<f64>>()
    };
    for (case, further) in [(0, &[][..]), (1, &["--instruction", "Find the capital"])] {
        let (probabilities, odds) = (scores(further), scores(&[further, &["--raw-scores"]].concat()));
        for (at, expected) in expected["cases"][case]["scores"].as_array().unwrap().iter().enumerate() {
            let expected = numbers(expected);
            assert!((odds[at] - expected[0]).abs() < 2e-5, "{} for {}", odds[at], expected[0]);
            assert!((probabilities[at] - expected[1]).abs() < 2e-5);
        }
    }
    let output = over(&["rerank", "--model", &folder("bert-sequence"), "--instruction", "x"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("--instruction is for a language model"), "{}", errors(&output));
}

#[test]
fn embed_takes_a_decoder_that_pools_the_last_token() {
    let text =
        std::fs::read_to_string(PathBuf::from(folder("qwen3-embedding")).join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let texts: Vec<&str> =
        expected["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    // Without a default prompt the vectors are those of documents, whose prompt is empty.
    let case = expected["cases"].as_array().unwrap().iter().find(|case| case["prompt"] == "").unwrap();
    let output =
        over(&["embed", "--model", &folder("qwen3-embedding"), "--json"], texts.join("\n").as_bytes());
    assert!(output.status.success(), "{}", errors(&output));
    for (found, expected) in lines(&output).iter().zip(case["vectors"].as_array().unwrap()) {
        let pairs = numbers(&found["vector"]).into_iter().zip(numbers(expected));
        assert!(pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) < 2e-5);
    }
}
