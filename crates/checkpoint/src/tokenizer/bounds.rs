//! What the crate `tokenizers` assumes of a `tokenizer.json` and does not check.

use std::collections::HashSet;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::Value;
use tokenizers::normalizers::Precompiled;

/// The greatest id of a token that is written. The writer of a vocabulary visits each number up to the greatest id.
const GREATEST: u32 = 1 << 24;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Failure>;

/// Checks that no id is so great that the vocabulary cannot be written.
///
/// # Errors
/// The greatest id.
pub(super) fn check_ids(ids: impl IntoIterator<Item = u32>) -> Result<()> {
    match ids.into_iter().max() {
        Some(id) if id > GREATEST => Err(format!("expected ids of at most {GREATEST}, found {id}").into()),
        _ => Ok(()),
    }
}

/// The text of the `tokenizer.json`.
///
/// # Errors
/// Those of [`check_ids`], and those of writing.
pub(super) fn text(tokenizer: &tokenizers::Tokenizer) -> Result<String> {
    check_ids(tokenizer.get_vocab(false).into_values())?;
    tokenizer.to_string(false)
}

/// The parts of a `tokenizer.json` around its vocabulary.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
}

/// Checks the text of a `tokenizer.json` before it is parsed: its syntax, the tables of its normalizers, the special tokens of its
/// templates, and its decoders.
///
/// # Errors
/// The first part that cannot be used.
pub(super) fn check(json: &str) -> Result<()> {
    let parts: Parts = serde_json::from_str(json)?;
    each(&parts.normalizer, "normalizers", &mut |normalizer| match normalizer.get("precompiled_charsmap") {
        Some(_) => check_normalizer(normalizer),
        None => Ok(()),
    })?;
    each(&parts.post_processor, "processors", &mut check_template)?;
    each(&parts.decoder, "decoders", &mut |decoder| {
        let cuts = |end: &str| decoder[end].as_u64().is_some_and(|count| count > 0);
        match cuts("start") && cuts("stop") {
            true => Err("`decoder`: expected characters to be stripped at one end, found both".into()),
            false => Ok(()),
        }
    })
}

/// Calls `check` with a component, and with those of the list `inner` in it.
fn each(component: &Value, inner: &str, check: &mut impl FnMut(&Value) -> Result<()>) -> Result<()> {
    for component in component[inner].as_array().into_iter().flatten() {
        each(component, inner, check)?;
    }
    check(component)
}

/// Checks that a template names only defined special tokens, and the second text only for pairs.
fn check_template(processor: &Value) -> Result<()> {
    for (name, pieces) in ["single", "pair"].map(|name| (name, processor[name].as_array())) {
        for piece in pieces.into_iter().flatten() {
            if name == "single" && piece["Sequence"]["id"] == "B" {
                return Err("`post_processor`: expected no second text in `single`, found `B`".into());
            }
            let Some(token) = piece["SpecialToken"]["id"].as_str() else { continue };
            let defined = &processor["special_tokens"][token];
            let count = |field: &str| defined[field].as_array().map(Vec::len);
            if count("ids").is_none() || count("ids") != count("tokens") {
                let problem = format!(
                    "`post_processor`: expected `special_tokens` to hold `{token}` with as many ids as tokens, found none"
                );
                return Err(problem.into());
            }
        }
    }
    Ok(())
}

/// Checks the table of a normalizer of SentencePiece.
fn check_normalizer(normalizer: &Value) -> Result<()> {
    let wrong = |problem: &str| Failure::from(format!("`normalizer.precompiled_charsmap`: {problem}"));
    let _: Precompiled =
        serde_json::from_str(&normalizer.to_string()).map_err(|error| wrong(&error.to_string()))?;
    let text = normalizer["precompiled_charsmap"].as_str().unwrap_or_default();
    let bytes = STANDARD.decode(text).map_err(|error| wrong(&error.to_string()))?;
    match is_closed(&bytes) {
        Some(true) => Ok(()),
        _ => Err(wrong("expected nodes and texts inside the table, found others")),
    }
}

/// Whether all nodes that a search can reach, and the texts that they name, are in a table: its length in bytes, the nodes of a trie
/// (Darts' double array), and the texts, each ended by a zero. None for a table that ends early.
fn is_closed(bytes: &[u8]) -> Option<bool> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize / 4 * 4;
    let (nodes, texts) = rest.split_at_checked(length)?;
    let texts = std::str::from_utf8(texts).ok()?;
    let node = |at: usize| {
        let bytes = nodes.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    let offset = |node: usize| (node >> 10) << ((node & (1 << 9)) >> 6);
    let mut seen = HashSet::new();
    let mut open = vec![offset(node(0)?)];
    while let Some(at) = open.pop() {
        if !seen.insert(at) {
            continue;
        }
        for byte in 1..=255 {
            let Some(child) = node(at ^ byte) else { return Some(false) };
            if child & (1 << 31 | 0xff) != byte {
                continue;
            }
            let next = at ^ byte ^ offset(child);
            if child >> 8 & 1 == 1 {
                let Some(leaf) = node(next) else { return Some(false) };
                if !texts.is_char_boundary(leaf & ((1 << 31) - 1)) {
                    return Some(false);
                }
            }
            open.push(next);
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde_json::{Value, json};

    use super::is_closed;
    use crate::Tokenizer;

    fn tokenizer(change: impl FnOnce(&mut Value)) -> crate::Result<Tokenizer> {
        let mut value = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "Sequence", "processors": [{
                "type": "TemplateProcessing", "pair": [],
                "single": [{"SpecialToken": {"id": "[B]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "special_tokens": {"[B]": {"id": "[B]", "ids": [1], "tokens": ["[B]"]}},
            }]},
            "decoder": null,
            "model": {"type": "WordLevel", "vocab": {"a": 0, "[B]": 1}, "unk_token": "a"},
        });
        change(&mut value);
        Tokenizer::from_json(Path::new("tokenizer.json"), value.to_string())
    }

    fn cause(tokenizer: crate::Result<Tokenizer>) -> String {
        std::error::Error::source(&tokenizer.unwrap_err()).unwrap().to_string()
    }

    #[test]
    fn a_template_with_an_unknown_token_is_refused() {
        assert_eq!(tokenizer(|_| {}).unwrap().encode("a", None).unwrap(), [1, 0]);
        for tokens in [json!({}), json!({"[B]": {"id": "[B]", "ids": [1, 1], "tokens": ["[B]"]}})] {
            let cause = cause(tokenizer(|value| {
                let mut template = value["post_processor"]["processors"][0].take();
                template["special_tokens"] = tokens;
                value["post_processor"] = template;
            }));
            assert!(cause.contains("`[B]`"), "{cause}");
        }
        let cause = cause(tokenizer(|value| {
            value["post_processor"]["processors"][0]["single"][1] =
                json!({"Sequence": {"id": "B", "type_id": 0}});
        }));
        assert!(cause.contains("no second text"), "{cause}");
    }

    #[test]
    fn an_id_beyond_all_vocabularies_is_refused_where_it_is_written() {
        let with = |id: u32| tokenizer(|value| value["model"]["vocab"]["a"] = id.into()).unwrap();
        assert!(with(100_000).with_added(&["[C]"]).is_ok());
        let cause = cause(with(u32::MAX - 1).with_added(&["[C]"]));
        assert_eq!(cause, "expected ids of at most 16777216, found 4294967294");
    }

    #[test]
    fn a_decoder_that_strips_both_ends_is_refused() {
        let strip =
            |start: u8, stop: u8| json!({"type": "Strip", "content": "x", "start": start, "stop": stop});
        assert!(tokenizer(|value| value["decoder"] = strip(1, 0)).is_ok());
        let both = json!({"type": "Sequence", "decoders": [strip(1, 1)]});
        assert!(cause(tokenizer(|value| value["decoder"] = both)).contains("at one end"));
    }

    #[test]
    fn text_that_is_not_json_is_an_error() {
        for text in ["", "{\"decoder\": {\"type\": \"Fuse", "{\"decoder\": {\"a\": 1e999}}"] {
            assert!(Tokenizer::from_json(Path::new("t"), text.to_owned()).is_err(), "{text}");
        }
    }

    /// A table with 256 nodes, in which `A` stands for the text `b`.
    fn table() -> Vec<u8> {
        let mut nodes = vec![0u32; 256];
        // The node of `A` has a leaf at its own place with the lowest bit changed.
        nodes[0x41] = 0x41 | 1 << 8 | 1 << 10;
        nodes[0x40] = 0;
        let mut bytes = 1024u32.to_le_bytes().to_vec();
        nodes.iter().for_each(|node| bytes.extend(node.to_le_bytes()));
        bytes.extend(b"b\0");
        bytes
    }

    #[test]
    fn a_table_whose_nodes_lie_elsewhere_is_refused() {
        let normalized = |bytes: &[u8]| {
            let table = json!({"type": "Precompiled", "precompiled_charsmap": STANDARD.encode(bytes)});
            tokenizer(|value| {
                value["normalizer"] = json!({"type": "Sequence", "normalizers": [table]});
                value["model"]["vocab"]["b"] = 2.into();
            })
        };
        assert_eq!(normalized(&table()).unwrap().encode_plain("A").unwrap(), [2]);
        assert_eq!(is_closed(&table()), Some(true));
        // A text beyond the last one, and a node beyond the last one.
        for (place, value) in [(0x40, 3), (0x41, 0x41 | 1 << 8 | 300 << 10)] {
            let mut bytes = table();
            bytes[4 + 4 * place..8 + 4 * place].copy_from_slice(&u32::to_le_bytes(value));
            assert_eq!(is_closed(&bytes), Some(false));
            assert!(cause(normalized(&bytes)).contains("inside the table"));
        }
        assert_eq!(is_closed(&table()[..900]), None);
        assert_eq!(is_closed(&[0; 4]), None);
        assert!(normalized(&table()[..900]).is_err());
    }
}
