//! Marian's tokenizer: `source.spm` splits texts, and `vocab.json` has the ids of the pieces of inputs and outputs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use serde_json::json;
use tokenizers::AddedToken;

use super::{
    super::{
        FOREIGN, Unknown,
        options::{CONFIG, Options, token},
    },
    Failure, MARK, Model, Parts, PieceKind, Value, other_roles, replace, replace_regex, special,
};
use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// The file of the ids.
const IDS: &str = "vocab.json";

/// Stands for the code of a language that the vocabulary lacks. No text has this character.
const UNKNOWN_CODE: &str = "\u{fffe}";

/// Whether a folder has the files.
pub(super) fn is_in(folder: &Path) -> bool {
    ["source.spm", IDS].iter().all(|name| folder.join(name).is_file())
}

/// The tokenizer of inputs (Junczys-Dowmunt et al. 2018). The vocabulary is that of `vocab.json`, followed by the pieces of
/// the source that it lacks. Pieces that the source lacks have [`FOREIGN`] at their end, so that no text is split into them.
/// An unknown part of a text that equals one of them has its id, as in the reference.
///
/// A code such as `>>deu<<` before a text is one token.
///
/// # Errors
/// [`Error::Config`] for a folder with two vocabularies, [`Error::Json`], and [`Error::Tokenizer`] for ids with gaps and for
/// a vocabulary without a special token.
pub(super) fn parts(
    folder: &Path,
    model: &Model,
    rules: Value,
    options: &Options,
) -> Result<(Parts, Unknown)> {
    if options.separate_vocabs == Some(true) {
        return Err(Error::Config {
            path: folder.join(CONFIG),
            field: "separate_vocabs".into(),
            expected: "false".into(),
            found: "true".into(),
        });
    }
    let path = folder.join(IDS);
    let ids: BTreeMap<String, u32> = parse(&path, &json::required(&path)?)?;
    let wrong = |problem: String| Error::Tokenizer { path: path.clone(), source: Failure::from(problem) };
    let mut by_id: Vec<(u32, &String)> = ids.iter().map(|(piece, id)| (*id, piece)).collect();
    by_id.sort_unstable();
    if let Some((at, (id, piece))) = (0u32..).zip(&by_id).find(|(at, (id, _))| at != id) {
        return Err(wrong(format!("expected the id {at} once, found `{piece}` with the id {id}")));
    }
    let roles = [
        token(&options.eos_token, "</s>"),
        token(&options.unk_token, "<unk>"),
        token(&options.pad_token, "<pad>"),
    ];
    if let Some(role) = roles.iter().find(|role| !ids.contains_key(&role.content)) {
        return Err(wrong(format!("expected the special token `{}`, found none", role.content)));
    }
    let [end, unknown, _] = &roles;
    let text = |kind| matches!(kind, PieceKind::Normal | PieceKind::UserDefined | PieceKind::Byte);
    let pieces = || model.pieces.iter().filter(|piece| text(piece.kind));
    let scores: HashMap<&str, f64> =
        pieces().map(|piece| (piece.text.as_str(), f64::from(piece.score))).collect();
    let special_tokens: Vec<_> = other_roles(options, &roles.each_ref()).into_iter().map(Some).collect();
    let mut added = options.tokens(&special_tokens);
    let is_code = |piece: &&String| piece.starts_with(">>") && piece.ends_with("<<");
    added.extend(
        ids.keys().filter(is_code).map(|code| AddedToken::from(code.clone(), false).normalized(false)),
    );
    let names: HashSet<&str> = added.iter().map(|token| token.content.as_str()).collect();
    let word = |piece: &String| match scores.get(piece.as_str()) {
        Some(score) => (piece.clone(), *score),
        None if names.contains(piece.as_str()) => (piece.clone(), 0.0),
        None => (format!("{piece}{FOREIGN}"), 0.0),
    };
    let mut vocab: Vec<(String, f64)> = by_id.iter().map(|(_, piece)| word(piece)).collect();
    let others = pieces().filter(|piece| !ids.contains_key(&piece.text));
    vocab.extend(others.map(|piece| (piece.text.clone(), f64::from(piece.score))));

    let mut normalizers = vec![replace_regex(r"\A>>[\s\S]*?<<", &format!("{UNKNOWN_CODE} "))];
    if !rules.is_null() {
        normalizers.push(rules);
    }
    if model.remove_extra_whitespaces {
        normalizers.extend([replace_regex(r"\A +| +\z", ""), replace_regex(" {2,}", " ")]);
    }
    if model.add_dummy_prefix {
        normalizers.push(json!({ "type": "Prepend", "prepend": MARK }));
    }
    normalizers.extend([replace(" ", MARK), replace(&format!("{MARK}{UNKNOWN_CODE}"), UNKNOWN_CODE)]);
    let (end, next) = (special(&end.content), (None, 0));
    let unknown = ids[&unknown.content];
    let first = u32::try_from(ids.len()).unwrap_or(u32::MAX);
    let parts = Parts {
        vocab,
        merges: None,
        settings: json!({ "unk_id": unknown, "byte_fallback": model.byte_fallback }),
        normalizer: json!({ "type": "Sequence", "normalizers": normalizers }),
        pre_tokenizer: Value::Null,
        decoder: json!({ "type": "Sequence", "decoders": [
            replace(FOREIGN, ""), replace(MARK, " "), { "type": "ByteFallback" }, { "type": "Fuse" },
            replace_regex(r"\A +| +\z", ""),
        ] }),
        around: [vec![next.clone(), end.clone()], vec![next.clone(), next, end]],
        added,
    };
    Ok((parts, Unknown { first, id: unknown }))
}
