//! A small encoder to train from.

use std::{collections::BTreeSet, path::Path};

use candle_core::{DType, Device};
use serde_json::{Value, json};
use sporran_checkpoint::{Tokenizer, initialise, save};
use sporran_transformers::ModelConfig;

/// A small BERT with seeded weights and a tokenizer for the words of `text`.
pub(crate) fn encoder(folder: &Path, text: &str) -> String {
    let known: BTreeSet<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .chain([".", "?"].map(String::from))
        .collect();
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(String::from).into_iter();
    let words = special
        .chain((1..=8).map(|at| format!("[unused{at}]")))
        .chain(known)
        .chain(["[MASK]".to_owned()])
        .chain((9..=99).map(|at| format!("[unused{at}]")));
    let vocabulary: serde_json::Map<String, Value> =
        words.enumerate().map(|(id, word)| (word, id.into())).collect();
    let token = |token: &str, id: usize| json!({"id": token, "ids": [id], "tokens": [token]});
    let piece = |token: &str| json!({"SpecialToken": {"id": token, "type_id": 0}});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing",
            "single": [piece("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, piece("[SEP]")], "pair": [],
            "special_tokens": {"[CLS]": token("[CLS]", 2), "[SEP]": token("[SEP]", 3)}},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": vocabulary},
    });
    let config = json!({
        "model_type": "bert", "architectures": ["BertModel"], "vocab_size": vocabulary.len(), "hidden_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "max_position_embeddings": 160,
        "type_vocab_size": 2, "initializer_range": 0.1, "layer_norm_eps": 1e-12, "pad_token_id": 0,
    });
    let path = Path::new("test");
    let config = ModelConfig::from_json(path, &config.to_string()).unwrap();
    let tokenizer = Tokenizer::from_json(path, tokenizer.to_string()).unwrap();
    let weights = initialise(&config.parameters().unwrap(), 7, DType::F32, &Device::Cpu).unwrap();
    let folder = folder.join("encoder");
    save(&folder, &config, &weights, &tokenizer, DType::F32).unwrap();
    folder.display().to_string()
}
