//! The tokenizer of the small Blenderbot: byte pairs of lowercased words, whose `vocab.json` marks a piece that does not end a
//! word by `@@`.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value, json};

use super::{
    Converted, MERGES, PIECES, Unknown,
    options::{Options, token},
};
use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// The end of a word in `merges.txt`.
const END: &str = "</w>";

/// The mark of a piece that does not end a word.
const CONTINUED: &str = "@@";

/// The text of the equivalent `tokenizer.json`. Pieces that the merges make and that `vocab.json` lacks come after its own;
/// they are unknown.
///
/// # Errors
/// [`Error::MissingFile`], [`Error::Json`], and [`Error::Tokenizer`] for a vocabulary without a special token.
pub(super) fn json(folder: &Path, options: &Options) -> Result<Converted> {
    let path = folder.join(PIECES);
    let ids: BTreeMap<String, u32> = parse(&path, &json::required(&path)?)?;
    let roles = [
        token(&options.bos_token, "__start__"),
        token(&options.eos_token, "__end__"),
        token(&options.unk_token, "__unk__"),
        token(&options.pad_token, "__null__"),
    ];
    if let Some(role) = roles.iter().find(|role| !ids.contains_key(&role.content)) {
        let problem = format!("expected the special token `{}`, found none", role.content);
        return Err(Error::Tokenizer { path, source: problem.into() });
    }
    let added = options.tokens(&roles.each_ref().map(Some));
    let word = |piece: &str| match piece.strip_suffix(CONTINUED) {
        _ if added.iter().any(|token| token.content == piece) => piece.to_owned(),
        Some(text) => text.to_owned(),
        None => format!("{piece}{END}"),
    };
    let mut vocab: Map<String, Value> = ids.iter().map(|(piece, id)| (word(piece), (*id).into())).collect();
    let first = ids.values().max().map_or(0, |most| most.saturating_add(1));
    let mut next = first;
    let mut learn = |vocab: &mut Map<String, Value>, text: String| {
        vocab.entry(text).or_insert_with(|| {
            next = next.saturating_add(1);
            (next - 1).into()
        });
    };
    let text = json::required(&folder.join(MERGES))?;
    // As in the reference, what stands after the last line's end is no merge.
    let lines: Vec<&str> = text.split('\n').collect();
    let lines = lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default();
    let mut merges = Vec::with_capacity(lines.len());
    for line in lines {
        let parts: Vec<&str> = line.split_whitespace().collect();
        if let [left, right] = parts.as_slice() {
            learn(&mut vocab, (*left).to_owned());
            learn(&mut vocab, (*right).to_owned());
            learn(&mut vocab, format!("{left}{right}"));
            merges.push([*left, *right]);
        }
    }
    let unknown = &roles[2].content;
    let id = ids[unknown];
    let mut after = first.max(next);
    let added: Vec<Value> = added
        .iter()
        .map(|token| {
            let id = ids.get(&token.content).copied().unwrap_or_else(|| {
                after += 1;
                after - 1
            });
            json!({
                "id": id, "content": token.content, "single_word": token.single_word, "lstrip": token.lstrip,
                "rstrip": token.rstrip, "normalized": token.normalized, "special": token.special,
            })
        })
        .collect();
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": { "type": "Sequence", "normalizers": normalizers() },
        "pre_tokenizer": { "type": "WhitespaceSplit" },
        "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": END }, "content": " " },
            { "type": "Fuse" },
            // A text that ends inside a word.
            regex(r"(?<=\S)\z", CONTINUED),
            regex(r"\A +| +\z", ""),
        ] },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": unknown, "continuing_subword_prefix": null,
            "end_of_word_suffix": END, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges,
        },
    });
    Ok(Converted { json: json.to_string(), unknown: Some(Unknown { first, id }) })
}

/// The steps that separate words: a line's end right after a word is a word, and so are signs before which a space is put.
fn normalizers() -> Vec<Value> {
    // It is lost after an apostrophe, as in the reference.
    let mut steps = vec![regex(r"(?<=[^\s'])\n", " __newln__ "), regex(r"\s+", " ")];
    for sign in [".", ",", "!", "?", "(", ")"] {
        steps.push(replace(sign, &format!(" {sign}")));
    }
    steps.push(replace("'", " ' "));
    steps.push(json!({ "type": "Lowercase" }));
    steps
}

fn replace(from: &str, to: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "String": from }, "content": to })
}

fn regex(from: &str, to: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "Regex": from }, "content": to })
}
