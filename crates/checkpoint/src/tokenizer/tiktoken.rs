//! Tokenizers from tiktoken's files: byte-level BPE whose lines are a token in base64 and its rank.

use std::{collections::HashMap, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use tokenizers::AddedToken;

use super::{
    byte_pattern,
    options::{Options, other_class},
};
use crate::error::{Error, Result};

/// The most tokens that a folder may have beyond the file's.
const MOST_ADDED: usize = 1 << 20;

/// Whether the content of a file is tiktoken's: its first line is a token and a rank.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(first).is_ok_and(|line| entry(line.trim_end()).is_some())
}

/// A line's token and rank.
fn entry(line: &str) -> Option<(Vec<u8>, u32)> {
    let (token, rank) = line.split_once(' ')?;
    let token = STANDARD.decode(token).ok().filter(|token| !token.is_empty())?;
    Some((token, rank.parse().ok()?))
}

/// The characters that byte-level tokenizers write for bytes: printable ones stand for themselves (Radford et al. 2019).
fn characters() -> [char; 256] {
    let mut next = 256;
    std::array::from_fn(|byte| {
        let is_printable = matches!(byte, 33..=126 | 161..=172 | 174..=255);
        let code = if is_printable {
            byte as u32
        } else {
            next += 1;
            next - 1
        };
        char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
    })
}

/// The text of the `tokenizer.json` that is equivalent to the file `path`, whose content is `bytes`, as `transformers` reads
/// such files for tokenizers of no class of their own: with the split of `cl100k_base`, and the folder's special tokens after
/// the file's. A gap between them has reserved tokens.
///
/// # Errors
/// [`Error::Line`] for a line that is none, [`Error::Config`] for another class or for ids far beyond the file's.
pub(super) fn json(
    folder: &Path,
    path: &Path,
    bytes: &[u8],
    class: &str,
    options: &Options,
) -> Result<String> {
    if options.tokenizer_class.is_some() && !["PreTrained", "TokenizersBackend"].contains(&class) {
        return Err(other_class(
            folder,
            "`TokenizersBackend` or `PreTrainedTokenizerFast` for a file of tiktoken",
            class,
        ));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Error::Utf8 { path: path.into(), at: error.valid_up_to() })?;
    let mut tokens: Vec<(Vec<u8>, u32)> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        if line.is_empty() {
            continue;
        }
        let problem = "expected a token in base64, a space and a rank";
        let wrong = || Error::Line { path: path.into(), line: number, problem: problem.into() };
        tokens.push(entry(line).ok_or_else(wrong)?);
    }
    let characters = characters();
    let written = |token: &[u8]| token.iter().map(|byte| characters[usize::from(*byte)]).collect::<String>();
    let ranks: HashMap<&[u8], u32> = tokens.iter().map(|(token, rank)| (token.as_slice(), *rank)).collect();
    let mut merges = Vec::new();
    for (token, rank) in &tokens {
        let mut ways: Vec<(u32, u32, usize)> = (1..token.len())
            .filter_map(|at| Some((*ranks.get(&token[..at])?, *ranks.get(&token[at..])?, at)))
            .collect();
        ways.sort_unstable();
        merges
            .extend(ways.into_iter().map(|(_, _, at)| (*rank, written(&token[..at]), written(&token[at..]))));
    }
    merges.sort_by_key(|(rank, ..)| *rank);
    let merges: Vec<(String, String)> = merges.into_iter().map(|(_, left, right)| (left, right)).collect();
    let vocab: serde_json::Map<String, Value> =
        tokens.iter().map(|(token, rank)| (written(token), (*rank).into())).collect();
    let added = added(folder, options, tokens.len(), &vocab)?;
    let pre_tokenizer = json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": byte_pattern(r"\p{N}{1,3}") }, "behavior": "Isolated", "invert": false },
        { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
    ] });
    let begin = options.bos_token.as_ref().filter(|_| options.add_bos_token == Some(true));
    let post_processor = begin.map(|token| {
        let token = &token.0.content;
        // It is one of the added tokens, as every token with a role.
        let id = added.iter().find(|known| known["content"] == token.as_str()).map(|known| &known["id"]);
        let mark = |kind: u32| json!({ "SpecialToken": { "id": token, "type_id": kind } });
        let text = |name: &str, kind: u32| json!({ "Sequence": { "id": name, "type_id": kind } });
        json!({
            "type": "TemplateProcessing", "single": [mark(0), text("A", 0)],
            "pair": [mark(0), text("A", 0), mark(1), text("B", 1)],
            "special_tokens": { token: { "id": token, "ids": [id], "tokens": [token] } },
        })
    });
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": null,
        "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
        "decoder": { "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true },
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": true,
            "vocab": vocab, "merges": merges,
        },
    });
    Ok(json.to_string())
}

/// The added tokens with their ids: those of the vocabulary, and from `first` on.
fn added(
    folder: &Path,
    options: &Options,
    first: usize,
    vocab: &serde_json::Map<String, Value>,
) -> Result<Vec<Value>> {
    let last = options.added.keys().next_back().map_or(0, |id| *id as usize);
    if last.saturating_sub(first) > MOST_ADDED {
        return Err(Error::Config {
            path: folder.join(super::options::CONFIG),
            field: "added_tokens_decoder".into(),
            expected: format!("ids at most {MOST_ADDED} beyond the {first} tokens of the file"),
            found: last.to_string(),
        });
    }
    let reserved = |id: usize| AddedToken::from(format!("<|reserved_token_{id}|>"), true);
    let own = |id: usize| u32::try_from(id).ok().and_then(|id| options.added.get(&id)).cloned();
    let mut tokens: Vec<AddedToken> = (first..=last)
        .map(|id| own(id).map_or_else(|| reserved(id), |token| token.normalized(false)))
        .collect();
    let roles = [
        &options.bos_token,
        &options.eos_token,
        &options.unk_token,
        &options.sep_token,
        &options.pad_token,
        &options.cls_token,
        &options.mask_token,
    ];
    let roles: Vec<Option<&AddedToken>> = roles.map(|token| token.as_ref().map(|token| &token.0)).into();
    for token in options.further().cloned().chain(options.tokens(&roles)) {
        if !tokens.iter().any(|known| known.content == token.content) {
            tokens.push(token);
        }
    }
    let mut next = first;
    let value = |token: &AddedToken| {
        let id = vocab.get(&token.content).cloned().unwrap_or_else(|| {
            next += 1;
            (next - 1).into()
        });
        json!({
            "id": id, "content": token.content, "single_word": token.single_word, "lstrip": token.lstrip,
            "rstrip": token.rstrip, "normalized": token.normalized, "special": token.special,
        })
    };
    Ok(tokens.iter().map(value).collect())
}
