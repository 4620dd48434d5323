//! `sporran models`, and `sporran generate` with a decoder-only model.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Output, Stdio},
};

use crate::common::{errors, root, sporran};
use serde_json::{Value, json};
use tempfile::TempDir;

fn data(name: &str) -> String {
    let owner = if name.starts_with("nsmn") { "generator" } else { "transformers" };
    root().join(format!("crates/{owner}/tests/data")).join(name).display().to_string()
}

fn call(folder: &Path, arguments: &[&str]) -> Output {
    sporran(folder, arguments).output().unwrap()
}

/// The objects that a call prints.
fn objects(folder: &Path, arguments: &[&str]) -> Vec<Value> {
    let output = call(folder, arguments);
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A model in the layout of PyTorch and old tokenizers: a `.bin` file, a vocabulary, and a licence in the README.
fn model(folder: &Path) {
    fs::create_dir(folder).unwrap();
    for (from, to) in [("weights/config.json", "config.json"), ("weights/archive.bin", "pytorch_model.bin")] {
        fs::copy(data(from), folder.join(to)).unwrap();
    }
    fs::write(folder.join("vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n").unwrap();
    fs::write(folder.join("README.md"), "---\nlicense: apache-2.0\n---\n").unwrap();
}

#[test]
fn a_model_is_imported_shown_and_listed() {
    let place = TempDir::new().unwrap();
    model(&place.path().join("tiny"));
    let into = &objects(place.path(), &["models", "import", "tiny", "--json"])[0]["folder"];
    assert_eq!(into, "models/tiny");
    let folder = place.path().join("models/tiny");
    for file in ["config.json", "model.safetensors", "tokenizer.json", "model.toml"] {
        assert!(folder.join(file).exists(), "{file}");
    }
    let shown = &objects(place.path(), &["models", "show", "tiny", "--models", "models", "--json"])[0];
    assert_eq!(shown["architecture"], "t5");
    assert_eq!(shown["tokenizer"]["kind"], "WordPiece");
    assert_eq!(shown["special_tokens"]["eos"][0], 1);
    // 24 x 8 embeddings; encoder 4 x 64 + 8 + 4 x 2 + 2 x 96 + 8, decoder 8 x 64 + 16 + 8 + 2 x 96 + 8; two norms of 8.
    let expected = 192 + (256 + 8 + 8 + 192 + 8) + (512 + 16 + 8 + 192 + 8) + 16;
    assert_eq!(shown["parameters"], expected);
    assert_eq!(shown["types"]["f32"], expected);
    let listed = objects(place.path(), &["models", "list", "--json"]);
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &Value::from("tiny")));
    assert_eq!(listed[0]["card"]["licence"], "apache-2.0");
    assert_eq!(listed[0]["card"]["role"], "generator");
    // An existing folder is not overwritten.
    let again = call(place.path(), &["models", "import", "tiny"]);
    assert_eq!(again.status.code(), Some(2), "{}", errors(&again));
    assert!(errors(&again).contains("models/tiny: expected no such folder"), "{}", errors(&again));
}

#[test]
fn models_show_takes_a_folder() {
    let readme = root().join("README.md").display().to_string();
    let output = call(Path::new("."), &["models", "show", &readme]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("expected a folder, found the file"), "{}", errors(&output));
}

#[test]
fn models_show_prints_the_purpose_of_our_models() {
    let models = root().join("models").display().to_string();
    let shown = |name: &str| {
        objects(Path::new("."), &["models", "show", name, "--models", &models, "--json"]).remove(0)
    };
    let tagger = shown("ner-small");
    assert_eq!(tagger["made_for"], json!(["tagging of names and dates in texts"]));
    assert_eq!(tagger["weights"][0]["types"]["f16"], tagger["card"]["parameters"]);
    let averaged = shown("knowledgenet-distilled");
    assert_eq!(averaged["parts"], json!(["linear", "marked"]));
    let matching = shown("minikilt-fever/selector");
    assert!(matching["made_for"][0].as_str().unwrap().contains("semantic matching"), "{matching}");
    // The tensors of the reasoner's head are not surplus tensors of its encoder.
    let reasoner = shown("minikilt-reasoner");
    assert_eq!(reasoner["surplus_tensors"], json!([]));
    assert_eq!(reasoner["made_for"], json!(["answers to questions over a knowledge base"]));
}

#[test]
fn a_cached_hub_model_is_pulled_without_a_network() {
    let place = TempDir::new().unwrap();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let hub = place.path().join("home/hub/models--org--tiny");
    fs::create_dir_all(hub.join("refs")).unwrap();
    fs::create_dir_all(hub.join("snapshots")).unwrap();
    fs::write(hub.join("refs/main"), commit).unwrap();
    model(&hub.join("snapshots").join(commit));
    let pull = |id: &str| {
        sporran(place.path(), &["models", "pull", id])
            .env_remove("HF_HUB_CACHE")
            .env("HF_HOME", "home")
            .env("HF_HUB_OFFLINE", "1")
            .output()
            .unwrap()
    };
    let output = pull("org/tiny");
    assert!(output.status.success(), "{}", errors(&output));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "models/tiny\n");
    let card = fs::read_to_string(place.path().join("models/tiny/model.toml")).unwrap();
    assert!(card.contains("source = \"org/tiny\"") && card.contains(commit), "{card}");
    let output = pull("org/other@v1");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("org/other@v1: expected it in the cache"), "{}", errors(&output));
    let output = pull("../x");
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("found `../x`"), "{}", errors(&output));
}

#[test]
fn a_parlai_memory_network_is_imported() {
    let place = TempDir::new().unwrap();
    let into = &objects(place.path(), &["models", "import", &data("parlai"), "--json"])[0]["folder"];
    assert_eq!(into, "models/parlai");
    let shown = &objects(place.path(), &["models", "show", "parlai", "--models", "models", "--json"])[0];
    assert_eq!(shown["architecture"], "bart");
    assert_eq!(shown["tokenizer"]["kind"], "BPE");
    assert_eq!(shown["special_tokens"]["decoder_start"], 1);
    let again = call(place.path(), &["models", "import", &data("parlai")]);
    assert_eq!(again.status.code(), Some(2), "{}", errors(&again));
}

#[test]
fn a_released_nsmn_is_imported_and_errors_in_its_files_are_named() {
    let place = TempDir::new().unwrap();
    let into = &objects(place.path(), &["models", "import", &data("nsmn/selector"), "--json"])[0]["folder"];
    assert_eq!(into, "models/selector");
    let shown = call(place.path(), &["models", "show", "selector", "--models", "models"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("labels of text pairs: a neural semantic matching network"), "{shown}");
    let broken = place.path().join("broken");
    fs::create_dir(&broken).unwrap();
    for name in ["model", "tokens.txt", "unk_count_namespaces.txt"] {
        fs::copy(format!("{}/{name}", data("nsmn/selector")), broken.join(name)).unwrap();
    }
    let refused = |file: &str, text: &str, expected: &str| {
        let before = fs::read(broken.join(file)).unwrap();
        fs::write(broken.join(file), text).unwrap();
        let output = call(place.path(), &["models", "import", "broken"]);
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        assert!(errors(&output).contains(expected), "{}", errors(&output));
        assert!(!place.path().join("models/broken").exists());
        fs::write(broken.join(file), before).unwrap();
    };
    refused("unk_count_namespaces.txt", "tokens 7\n", "broken/unk_count_namespaces.txt: line 1");
    refused("tokens.txt", "the<(-.-)>0\ndog\n", "broken/tokens.txt: line 2");
    refused("tokens.txt", "the<(-.-)>0\n", "expected `@@UNKNOWN#0@@` somewhere");
    refused("model", "no weights", "model");
    // A network that verifies claims needs WordNet.
    fs::copy(format!("{}/model", data("nsmn/verifier")), broken.join("model")).unwrap();
    refused("tokens.txt", &fs::read_to_string(broken.join("tokens.txt")).unwrap(), "broken/wordnet/");
}

#[test]
fn a_pickle_that_calls_a_function_is_not_imported() {
    let place = TempDir::new().unwrap();
    model(&place.path().join("tiny"));
    fs::copy(data("weights/calls.bin"), place.path().join("tiny/pytorch_model.bin")).unwrap();
    let output = call(place.path(), &["models", "import", "tiny"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("which is not called"), "{}", errors(&output));
    assert!(!place.path().join("models").exists() && !place.path().join("called-by-pickle").exists());
}

#[test]
fn a_decoder_only_model_continues_its_input() {
    let expected = fs::read_to_string(data("gpt2") + "/expected.json").unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    let (place, folder) = (TempDir::new().unwrap(), data("gpt2"));
    let arguments = ["generate", "--model", &folder, "--max-new-tokens", "16", "--json"];
    let mut program = sporran(place.path(), &arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let texts: Vec<&str> = expected["texts"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let input: String = texts.iter().map(|text| format!("{text}\n")).collect();
    program.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = program.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let lines = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found.len(), texts.len());
    for (found, decoded) in found.iter().zip(expected["decoded"].as_array().unwrap()) {
        assert_eq!(&found["outputs"][0]["text"], decoded);
    }
}

#[test]
fn int8_is_an_error_for_gpt2() {
    let (place, folder) = (TempDir::new().unwrap(), data("gpt2"));
    let output = call(place.path(), &["generate", "--model", &folder, "--precision", "int8"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("`precision`: expected `f32`"), "{}", errors(&output));
}

#[test]
fn an_adapter_is_imported_with_its_base_model() {
    let place = TempDir::new().unwrap();
    let from = root().join("crates/checkpoint/tests/data/lora/bert");
    for folder in ["base", "adapter"] {
        fs::create_dir(place.path().join(folder)).unwrap();
        for entry in fs::read_dir(from.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, place.path().join(folder).join(path.file_name().unwrap())).unwrap();
        }
    }
    fs::write(place.path().join("base/vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n").unwrap();
    let merged = "LoRA of 2 layers (query, value), r 2, alpha 2; replaced: ";
    for (name, base) in [("given", &["--base", "base"][..]), ("named", &[][..])] {
        let arguments = [&["models", "import", "adapter", "--name", name, "--json"][..], base].concat();
        let report = objects(place.path(), &arguments).remove(0);
        assert!(report["adapter"].as_str().unwrap().starts_with(merged), "{report}");
        let folder = format!("models/{name}");
        assert_eq!(report["folder"], folder.as_str());
        let shown = objects(place.path(), &["models", "show", &folder, "--json"]).remove(0);
        assert!(shown["card"]["adapter"].as_str().unwrap().contains("added: classifier.bias"), "{shown}");
        assert_eq!(shown["classes"][0], "BertForSequenceClassification");
    }
    // Nothing is left of the merge.
    assert_eq!(fs::read_dir(place.path().join("models")).unwrap().count(), 2);
    fs::remove_dir_all(place.path().join("base")).unwrap();
    for arguments in [&["models", "import", "adapter", "--name", "lost"][..], &["models", "show", "adapter"]]
    {
        let output = call(place.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    }
    let output = call(place.path(), &["models", "import", "adapter", "--name", "lost"]);
    assert!(errors(&output).contains("name its folder with `--base`"), "{}", errors(&output));
    assert!(!place.path().join("models/lost").exists());
}
