//! Marian's tokenizer: `source.spm` splits texts, and `vocab.json` has the ids of the pieces of inputs and outputs.

use std::path::Path;

use serde_json::json;
use tokenizers::AddedToken;

use super::{
    super::{
        Unknown,
        options::{CONFIG, Options, token},
    },
    MARK, Model, Parts, Value,
    ids::{IDS, Ids, decoder, spaces},
    other_roles, replace, replace_regex, special,
};
use crate::error::{Error, Result};

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
    let roles = [
        token(&options.eos_token, "</s>"),
        token(&options.unk_token, "<unk>"),
        token(&options.pad_token, "<pad>"),
    ];
    let ids = Ids::read(folder, &roles)?;
    let [end, unknown, _] = &roles;
    let special_tokens: Vec<_> = other_roles(options, &roles.each_ref()).into_iter().map(Some).collect();
    let mut added = options.tokens(&special_tokens);
    let is_code = |piece: &&str| piece.starts_with(">>") && piece.ends_with("<<");
    let codes = ids.pieces().filter(is_code);
    added.extend(codes.map(|code| AddedToken::from(code.to_owned(), false).normalized(false)));
    let mut vocab = ids.words(model, &added);
    vocab.extend(ids.beyond(model));

    let mut normalizers = vec![replace_regex(r"\A>>[\s\S]*?<<", &format!("{UNKNOWN_CODE} "))];
    if !rules.is_null() {
        normalizers.push(rules);
    }
    normalizers.extend(spaces(model));
    normalizers.push(replace(&format!("{MARK}{UNKNOWN_CODE}"), UNKNOWN_CODE));
    let (end, next) = (special(&end.content), (None, 0));
    let unknown = ids.id(&unknown.content);
    let parts = Parts {
        vocab,
        merges: None,
        settings: json!({ "unk_id": unknown, "byte_fallback": model.byte_fallback }),
        normalizer: json!({ "type": "Sequence", "normalizers": normalizers }),
        pre_tokenizer: Value::Null,
        decoder: decoder(),
        around: [vec![next.clone(), end.clone()], vec![next.clone(), next, end]],
        added,
    };
    Ok((parts, Unknown { first: ids.count(), id: unknown }))
}
