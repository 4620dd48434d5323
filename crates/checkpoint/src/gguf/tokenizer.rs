//! The tokenizer and the chat template that a GGUF file's head describes.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value;
use serde_json::json;

use super::{GgufFields, Template};
use crate::{error::Result, tokenizer::byte_pattern};

/// The most bytes of a piece that is made of others: the time to find its splits grows with their square.
const LONGEST_PIECE: usize = 512;

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

/// The tokens of a vocabulary that are not made by merges: those that steer the model, and those that were added as text.
fn added(fields: &GgufFields<'_>, tokens: &[&str]) -> Vec<serde_json::Value> {
    let mut added = Vec::new();
    if let Some(Value::Array(types)) = fields.optional("tokenizer.ggml.token_type") {
        for (id, (kind, token)) in types.iter().zip(tokens).enumerate() {
            // Kind 2 stands for unknown text, kind 3 steers the model and is no text, and kind 4 was added as text.
            let kind = kind.to_i32().unwrap_or_default();
            if (2..=4).contains(&kind) {
                added.push(json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": kind != 4,
                }));
            }
        }
    }
    added
}

/// The mark at the beginning of each text, where the file asks for one; `default` is for a file that does not say.
fn post_processor(
    fields: &GgufFields<'_>,
    tokens: &[&str],
    default: bool,
) -> Result<Option<serde_json::Value>> {
    let begins = match fields.optional("tokenizer.ggml.add_bos_token") {
        Some(Value::Bool(begins)) => *begins,
        _ => default,
    };
    let bos = fields.token("tokenizer.ggml.bos_token_id")?;
    let bos = bos.filter(|_| begins).and_then(|id| Some((id, *tokens.get(id as usize)?)));
    Ok(bos.map(|(id, token)| {
        let mark = json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let text = |name: &str| json!({ "Sequence": { "id": name, "type_id": 0 } });
        json!({
            "type": "TemplateProcessing", "single": [mark, text("A")], "pair": [mark, text("A"), mark, text("B")],
            "special_tokens": { token: { "id": token, "ids": [id], "tokens": [token] } },
        })
    }))
}

/// The `tokenizer.json` of the tokenizer in the file's metadata.
pub(super) fn tokenizer(fields: &GgufFields<'_>) -> Result<serde_json::Value> {
    match fields.text("tokenizer.ggml.model")? {
        "gpt2" => bytes_bpe(fields),
        "llama" => sentence_pieces(fields),
        other => {
            let expected = "`gpt2`, byte-level BPE, or `llama`, pieces of SentencePiece";
            Err(fields.wrong("tokenizer.ggml.model", expected, format!("`{other}`")))
        }
    }
}

/// Byte-level BPE.
fn bytes_bpe(fields: &GgufFields<'_>) -> Result<serde_json::Value> {
    let bytes = |splits: bool| json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": splits });
    let both = |first, second| json!({ "type": "Sequence", "pretokenizers": [first, second] });
    let digits = || json!({ "type": "Digits", "individual_digits": true });
    let (normalizer, pre_tokenizer, ignores_merges) = match fields.text("tokenizer.ggml.pre")? {
        "gpt-2" | "olmo" => (None, bytes(true), false),
        "smollm" | "starcoder" | "refact" => (None, both(digits(), bytes(true)), false),
        "llama-bpe" => (None, both(split(r"\p{N}{1,3}"), bytes(false)), true),
        "dbrx" | "smaug-bpe" => (None, both(split(r"\p{N}{1,3}"), bytes(false)), false),
        "qwen2" => (Some(json!({ "type": "NFC" })), both(split(r"\p{N}"), bytes(false)), false),
        other => {
            let expected = "`gpt-2`, `olmo`, `smollm`, `starcoder`, `refact`, `llama-bpe`, `dbrx`, `smaug-bpe` or `qwen2`";
            return Err(fields.wrong("tokenizer.ggml.pre", expected, format!("`{other}`")));
        }
    };
    let tokens = fields.texts("tokenizer.ggml.tokens")?;
    let vocab: serde_json::Map<_, _> =
        tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect();
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added(fields, &tokens),
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor(fields, &tokens, false)?, "decoder": bytes(true),
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignores_merges,
            "vocab": vocab, "merges": fields.texts("tokenizer.ggml.merges")?,
        },
    }))
}

/// Pieces of SentencePiece (Kudo and Richardson 2018) that are merged by their scores, as LLaMA 2, Mistral, Phi 3 and
/// Gemma have them. A space is written as `\u{2581}`, and a character without a piece as its bytes.
fn sentence_pieces(fields: &GgufFields<'_>) -> Result<serde_json::Value> {
    let tokens = fields.texts("tokenizer.ggml.tokens")?;
    let scores = fields.list("tokenizer.ggml.scores")?;
    if scores.len() != tokens.len() {
        let expected = format!("a score for each of {} tokens", tokens.len());
        return Err(fields.wrong("tokenizer.ggml.scores", &expected, scores.len().to_string()));
    }
    let mut ids: HashMap<&str, usize> = HashMap::with_capacity(tokens.len());
    for (id, token) in tokens.iter().enumerate() {
        ids.insert(token, id);
    }
    let vocab: serde_json::Map<_, _> =
        ids.iter().map(|(token, id)| ((*token).to_owned(), (*id).into())).collect();
    let prefixes = !matches!(fields.optional("tokenizer.ggml.add_space_prefix"), Some(Value::Bool(false)));
    let space = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "\u{2581}" });
    let mut decoders = vec![
        json!({ "type": "Replace", "pattern": { "String": "\u{2581}" }, "content": " " }),
        json!({ "type": "ByteFallback" }),
        json!({ "type": "Fuse" }),
    ];
    let normalizer = if prefixes {
        decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
        let prefix = json!({ "type": "Prepend", "prepend": "\u{2581}" });
        json!({ "type": "Sequence", "normalizers": [prefix, space] })
    } else {
        space
    };
    let unknown = fields.token("tokenizer.ggml.unknown_token_id")?.and_then(|id| tokens.get(id as usize));
    Ok(json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added(fields, &tokens),
        "normalizer": normalizer, "pre_tokenizer": null, "post_processor": post_processor(fields, &tokens, true)?,
        "decoder": { "type": "Sequence", "decoders": decoders },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": merges(fields, &ids, &tokens, scores)?,
        },
    }))
}

/// The pairs of pieces that are merged, best first: each split of a piece into two others has the score of the piece.
fn merges<'a>(
    fields: &GgufFields<'_>,
    ids: &HashMap<&str, usize>,
    tokens: &[&'a str],
    scores: &[Value],
) -> Result<Vec<[&'a str; 2]>> {
    let mut merges = Vec::new();
    for (token, score) in tokens.iter().zip(scores) {
        let score = score.to_f32().map_err(|_| {
            fields.wrong("tokenizer.ggml.scores", "a list of numbers", "a list of something else")
        })?;
        if token.len() > LONGEST_PIECE {
            continue;
        }
        let places = token.char_indices().skip(1);
        let mut splits: Vec<_> = places
            .map(|(at, _)| token.split_at(at))
            .filter_map(|(left, right)| Some((ids.get(left)?, ids.get(right)?, left, right)))
            .collect();
        splits.sort_unstable();
        merges.extend(splits.into_iter().map(|(_, _, left, right)| (score, left, right)));
    }
    let length = |piece: &str| piece.chars().count();
    merges.sort_by(|(a, left_a, right_a), (b, left_b, right_b)| {
        let own = b.total_cmp(a);
        own.then_with(|| length(left_b).cmp(&length(left_a)))
            .then_with(|| length(right_b).cmp(&length(right_a)))
    });
    Ok(merges.into_iter().map(|(_, left, right)| [left, right]).collect())
}
