//! Readers of models: weights, tokenizers, configs and chat templates.

use std::{
    fs,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device};
use sporran_checkpoint::{ChatMessage, ChatTemplate, GgufFile, Tokenizer, tensors, weight_types};
use sporran_reasoner::embedding::EmbeddingModel;
use sporran_transformers::ModelConfig;

use crate::{
    folders::{with_file, with_files},
    indexes::{damaged, seeds_of},
};

/// A text with the characters that tokenizers treat differently.
const TEXT: &str = "The capital of France, 42 \u{1f44d}e\u{301}\u{3000}\u{4e2d}<s></s> [SEP]\n\tpiece";

pub(crate) fn gguf(bytes: &[u8]) {
    with_file("m.gguf", bytes, |path| {
        let Ok(file) = GgufFile::open(path) else { return };
        let _ = file.tokenizer().map(|tokenizer| encode(&tokenizer));
        if file.check_lengths().is_err() {
            return;
        }
        for name in ["token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight"] {
            if file.has_tensor(name) {
                let _ = file.tensor(name, &Device::Cpu);
            }
        }
        // As deep as a model can be read without its generation.
        let _ = sporran_transformers::Checkpoint::open(path);
        chat(path);
    });
}

pub(crate) fn safetensors(bytes: &[u8]) {
    with_file("model.safetensors", bytes, |path| {
        let _ = weight_types(path);
        let folder = path.parent().unwrap_or(path);
        let _ = tensors(folder, DType::F32, &Device::Cpu);
    });
}

pub(crate) fn pickle(bytes: &[u8]) {
    with_files(&[("pytorch_model.bin", bytes)], |folder| {
        let _ = tensors(folder, DType::F32, &Device::Cpu);
    });
}

pub(crate) fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(config) = ModelConfig::from_json(Path::new("config.json"), text) else { return };
    // The number of layers is compared with the tensors of the weights first, which are not many.
    if config.architecture().check_layers(1000).is_ok() {
        let _ = config.parameters();
    }
}

fn encode(tokenizer: &Tokenizer) {
    let ids = tokenizer.encode(TEXT, Some(16)).unwrap_or_default();
    let _ = tokenizer.decode(&ids);
    let _ = tokenizer.encode_places(TEXT);
    let _ = tokenizer.beginning();
    let _ = tokenizer.clone().with_added(&["[X]"]);
    let _ = tokenizer.clone().lowercased().and_then(|lower| lower.encode(TEXT, None));
}

/// Reads a folder of a tokenizer's files.
fn tokenizer(files: &[(&str, &[u8])]) {
    with_files(files, |folder| {
        let _ = Tokenizer::from_folder(folder).map(|tokenizer| encode(&tokenizer));
    });
}

pub(crate) fn tokenizer_json(bytes: &[u8]) {
    tokenizer(&[("tokenizer.json", bytes)]);
}

pub(crate) fn spiece(bytes: &[u8]) {
    for class in ["t5", "llama", "xlm-roberta", "unknown"] {
        let config = format!("{{\"model_type\": \"{class}\"}}");
        tokenizer(&[("config.json", config.as_bytes()), ("tokenizer.model", bytes)]);
    }
}

pub(crate) fn tiktoken(bytes: &[u8]) {
    tokenizer(&[("config.json", b"{\"model_type\": \"llama\"}"), ("tokenizer.model", bytes)]);
}

pub(crate) fn vocab_json(bytes: &[u8]) {
    let merges: &[u8] = b"#version: 0.2\nt h\nth e\n";
    for class in ["gpt2", "qwen2", "roberta"] {
        let config = format!("{{\"model_type\": \"{class}\"}}");
        tokenizer(&[("config.json", config.as_bytes()), ("vocab.json", bytes), ("merges.txt", merges)]);
    }
}

pub(crate) fn vocab_txt(bytes: &[u8]) {
    tokenizer(&[("config.json", b"{\"model_type\": \"bert\"}"), ("vocab.txt", bytes)]);
}

fn chat(model: &Path) {
    let Ok(Some(template)) = ChatTemplate::open(model) else { return };
    let messages = [
        ChatMessage::new("system", "Be short."),
        ChatMessage::new("user", "Who?"),
        ChatMessage::new("assistant", "Me."),
    ];
    let _ = template.render(&messages, true);
    let _ = template.default_system();
}

pub(crate) fn chat_template(bytes: &[u8]) {
    with_files(&[("config.json", b"{}"), ("chat_template.jinja", bytes)], chat);
}

/// A folder of an embedding: options, values, names.
fn embedding_folder() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/minikilt-kb");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending != "gz" && ending != "toml"))
        .collect();
    paths.sort();
    paths
}

/// The number of a file of the folder, and its content.
pub(crate) fn embedding(bytes: &[u8]) {
    damaged(
        &embedding_folder(),
        bytes,
        |_, _| {},
        |folder| {
            let _ = EmbeddingModel::open(folder);
        },
    );
}

pub(crate) fn embedding_seeds() -> Vec<Vec<u8>> {
    seeds_of(&embedding_folder())
}
