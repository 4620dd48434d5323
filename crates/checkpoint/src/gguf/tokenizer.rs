//! The tokenizer and the chat template that a GGUF file's head describes.

use candle_core::quantized::gguf_file::Value;
use serde_json::json;

use super::{GgufFields, Template};
use crate::{error::Result, tokenizer::byte_pattern};

/// The chat template with the special tokens that it may name; none where the file has no template.
pub(super) fn chat_template(fields: &GgufFields<'_>) -> Result<Option<Template>> {
    const TEMPLATE: &str = "tokenizer.chat_template";
    if fields.optional(TEMPLATE).is_none() {
        return Ok(None);
    }
    let text = fields.text(TEMPLATE)?.to_owned();
    let words = fields.list("tokenizer.ggml.tokens")?;
    let mut tokens = Vec::new();
    for (name, field) in [
        ("bos_token", "bos_token_id"),
        ("eos_token", "eos_token_id"),
        ("unk_token", "unknown_token_id"),
        ("sep_token", "seperator_token_id"),
        ("pad_token", "padding_token_id"),
    ] {
        let id = fields.token(&format!("tokenizer.ggml.{field}"))?;
        if let Some(Value::String(word)) = id.and_then(|id| words.get(id as usize)) {
            tokens.push((name, word.clone()));
        }
    }
    Ok((!text.trim().is_empty()).then_some((text, tokens)))
}

fn split(digits: &str) -> serde_json::Value {
    json!({ "type": "Split", "pattern": { "Regex": byte_pattern(digits) }, "behavior": "Isolated", "invert": false })
}

/// The `tokenizer.json` of the tokenizer in the file's metadata.
pub(super) fn tokenizer(fields: &GgufFields<'_>) -> Result<serde_json::Value> {
    let model = fields.text("tokenizer.ggml.model")?;
    if model != "gpt2" {
        return Err(fields.wrong("tokenizer.ggml.model", "`gpt2`, byte-level BPE", format!("`{model}`")));
    }
    let bytes = |splits: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits });
    let both = |first, second| json!({ "type": "Sequence", "pretokenizers": [first, second] });
    let (normalizer, pre_tokenizer, ignores_merges) = match fields.text("tokenizer.ggml.pre")? {
        "gpt-2" => (None, bytes(true), false),
        "smollm" => (None, both(json!({ "type": "Digits", "individual_digits": true }), bytes(true)), false),
        "llama-bpe" => (None, both(split(r"\p{N}{1,3}"), bytes(false)), true),
        "qwen2" => (Some(json!({ "type": "NFC" })), both(split(r"\p{N}"), bytes(false)), false),
        other => {
            let expected = "`gpt-2`, `smollm`, `llama-bpe` or `qwen2`";
            return Err(fields.wrong("tokenizer.ggml.pre", expected, format!("`{other}`")));
        }
    };
    let tokens = fields.texts("tokenizer.ggml.tokens")?;
    let vocab: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect();
    let mut added = Vec::new();
    if let Some(Value::Array(types)) = fields.optional("tokenizer.ggml.token_type") {
        for (id, (kind, token)) in types.iter().zip(&tokens).enumerate() {
            // Kind 3 steers the model and is no text; kind 4 was added as text.
            let kind = kind.to_i32().unwrap_or_default();
            if kind == 3 || kind == 4 {
                added.push(json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": kind == 3,
                }));
            }
        }
    }
    let begins = matches!(fields.optional("tokenizer.ggml.add_bos_token"), Some(Value::Bool(true)));
    let bos = fields.token("tokenizer.ggml.bos_token_id")?;
    let bos = bos.filter(|_| begins).and_then(|id| Some((id, *tokens.get(id as usize)?)));
    let post_processor = bos.map(|(id, token)| {
        let mark = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
        json!({
            "type": "TemplateProcessing", "single": [mark, text("A")], "pair": [mark, text("A"), mark, text("B")],
            "special_tokens": { token: { "id": token, "ids": [id], "tokens": [token] } },
        })
    });
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": bytes(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignores_merges,
            "vocab": vocab, "merges": fields.texts("tokenizer.ggml.merges")?,
        },
    }))
}
