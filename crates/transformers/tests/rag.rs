//! RAG checkpoints, which hold two models. The names are those of `RagTokenForGeneration`.

use std::{collections::HashMap, fs, path::Path};

use candle_core::{DType, Device, Tensor};
use serde_json::{Value, json};
use sporran_transformers::{Checkpoint, Error, Part, import_part};
use tempfile::TempDir;

/// A RAG folder around the BART of the fixtures, with its tensors behind `prefix`.
fn folder(prefix: &str) -> TempDir {
    let bart = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bart");
    let folder = TempDir::new().unwrap();
    let generator: Value =
        serde_json::from_str(&fs::read_to_string(bart.join("config.json")).unwrap()).unwrap();
    let config =
        json!({ "model_type": "rag", "generator": generator, "question_encoder": { "model_type": "dpr" } });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let tensors = candle_core::safetensors::load(bart.join("model.safetensors"), &Device::Cpu).unwrap();
    let mut tensors: HashMap<String, Tensor> =
        tensors.into_iter().map(|(name, tensor)| (format!("{prefix}generator.{name}"), tensor)).collect();
    let other = "question_encoder.question_encoder.bert_model.embeddings.LayerNorm.weight";
    let vector = Tensor::zeros(24, DType::F32, &Device::Cpu).unwrap();
    tensors.insert(format!("{prefix}{other}"), vector);
    candle_core::safetensors::save(&tensors, folder.path().join("model.safetensors")).unwrap();
    let tokenizer = folder.path().join("generator_tokenizer");
    fs::create_dir(&tokenizer).unwrap();
    fs::copy(bart.join("tokenizer.json"), tokenizer.join("tokenizer.json")).unwrap();
    folder
}

fn tensors(checkpoint: &Checkpoint) -> Vec<Vec<f32>> {
    let read = |name: &str| checkpoint.tensor(name, DType::F32, &Device::Cpu).unwrap();
    let flat = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1().unwrap();
    checkpoint.parameters().map(|parameter| flat(read(&parameter.name))).collect()
}

#[test]
fn the_generator_is_the_model_that_it_would_be_alone() {
    let alone = Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bart")).unwrap();
    for prefix in ["rag.", ""] {
        let folder = folder(prefix);
        let part = Checkpoint::open_part(folder.path(), Part::Generator).unwrap();
        assert_eq!(tensors(&part), tensors(&alone));
        // The tensors of the other part are no surplus of this one.
        assert!(part.surplus().is_empty(), "{:?}", part.surplus());
        let text = "which band wrote the song?";
        let tokens = |checkpoint: &Checkpoint| checkpoint.tokenizer().unwrap().encode(text, None).unwrap();
        assert_eq!(tokens(&part), tokens(&alone));
        part.model(DType::F32, &Device::Cpu).unwrap();
    }
}

#[test]
fn parts_are_asked_for_where_there_are_some_and_there_alone() {
    let folder = folder("rag.");
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("found `rag`, whose parts are opened one by one"), "{error}");
    let bart = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/bart");
    let error = Checkpoint::open_part(&bart, Part::Generator).unwrap_err();
    assert!(matches!(&error, Error::Architecture { expected: "a RAG model", .. }), "{error}");
    assert!(error.to_string().ends_with("found `bart`"), "{error}");
}

#[test]
fn a_part_is_imported_as_a_model_of_its_own() {
    let folder = folder("rag.");
    let into = folder.path().join("generator");
    let part = import_part(folder.path(), Part::Generator, &into).unwrap();
    let alone = Checkpoint::open(&into).unwrap();
    assert_eq!(tensors(&part), tensors(&alone));
    assert_eq!(alone.config().model_type(), "bart");
    assert_eq!(alone.tokenizer().unwrap().json(), part.tokenizer().unwrap().json());
}
