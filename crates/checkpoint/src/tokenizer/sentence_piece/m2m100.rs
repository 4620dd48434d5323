//! M2M100's tokenizer: `sentencepiece.bpe.model` splits texts, `vocab.json` has the ids of its pieces, and the codes of
//! languages follow.

use std::path::Path;

use serde_json::json;
use tokenizers::AddedToken;

use super::{
    super::{
        Unknown,
        options::{CONFIG, Options, token},
    },
    Algorithm, Model, Parts, Value, bpe, by_score,
    ids::{Ids, decoder, spaces},
    other_roles, special, words,
};
use crate::error::{Error, Result};

/// The languages of M2M100, and those of the models of WMT 2021.
const LANGUAGES: [&str; 100] = [
    "af", "am", "ar", "ast", "az", "ba", "be", "bg", "bn", "br", "bs", "ca", "ceb", "cs", "cy", "da", "de",
    "el", "en", "es", "et", "fa", "ff", "fi", "fr", "fy", "ga", "gd", "gl", "gu", "ha", "he", "hi", "hr",
    "ht", "hu", "hy", "id", "ig", "ilo", "is", "it", "ja", "jv", "ka", "kk", "km", "kn", "ko", "lb", "lg",
    "ln", "lo", "lt", "lv", "mg", "mk", "ml", "mn", "mr", "ms", "my", "ne", "nl", "no", "ns", "oc", "or",
    "pa", "pl", "ps", "pt", "ro", "ru", "sd", "si", "sk", "sl", "so", "sq", "sr", "ss", "su", "sv", "sw",
    "ta", "th", "tl", "tn", "tr", "uk", "ur", "uz", "vi", "wo", "xh", "yi", "yo", "zh", "zu",
];
const WMT21_LANGUAGES: [&str; 8] = ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"];

/// The tokenizer of inputs (Fan et al. 2020). The vocabulary is that of `vocab.json`, then the codes of languages, such as
/// `__en__`, then the pieces of the model that have no id. The code of the input's language comes first.
///
/// # Errors
/// As for [`Ids::read`], and [`Error::Config`] for a language or a list of languages that does not exist.
pub(super) fn parts(
    folder: &Path,
    model: &Model,
    rules: Value,
    options: &Options,
) -> Result<(Parts, Unknown)> {
    let wrong = |field: &str, expected: String, found: &str| Error::Config {
        path: folder.join(CONFIG),
        field: field.into(),
        expected,
        found: format!("`{found}`"),
    };
    let languages: &[&str] = match options.language_codes.as_deref().unwrap_or("m2m100") {
        "m2m100" => &LANGUAGES,
        "wmt21" => &WMT21_LANGUAGES,
        other => return Err(wrong("language_codes", "`m2m100` or `wmt21`".into(), other)),
    };
    let source = options.src_lang.as_deref().unwrap_or("en");
    if !languages.contains(&source) {
        return Err(wrong("src_lang", format!("one of {}", languages.join(", ")), source));
    }
    let roles = [
        token(&options.bos_token, "<s>"),
        token(&options.pad_token, "<pad>"),
        token(&options.eos_token, "</s>"),
        token(&options.unk_token, "<unk>"),
    ];
    let ids = Ids::read(folder, &roles)?;
    let [_, _, end, unknown] = &roles;
    let codes: Vec<String> = languages.iter().map(|language| format!("__{language}__")).collect();
    let special_tokens: Vec<_> = other_roles(options, &roles.each_ref()).into_iter().map(Some).collect();
    let mut added = options.tokens(&special_tokens);
    for code in &codes {
        if !added.iter().any(|token| token.content == *code) {
            added.push(AddedToken::from(code.clone(), true));
        }
    }
    let mut vocab = ids.words(model, &added);
    vocab.extend(codes.into_iter().map(|code| (code, 0.0)));
    let first = u32::try_from(vocab.len()).unwrap_or(u32::MAX);
    vocab.extend(ids.beyond(model));

    let mut normalizers = Vec::new();
    if !rules.is_null() {
        normalizers.push(rules);
    }
    normalizers.extend(spaces(model));
    let unknown_id = ids.id(&unknown.content);
    let (merges, settings) = match model.algorithm {
        Algorithm::Unigram => (None, json!({ "unk_id": unknown_id, "byte_fallback": model.byte_fallback })),
        Algorithm::Bpe => (
            Some(by_score(model, &words(&model.pieces))),
            bpe(Some(&unknown.content), model.byte_fallback, false),
        ),
    };
    let (source, end, text) = (special(&format!("__{source}__")), special(&end.content), (None, 0));
    let parts = Parts {
        vocab,
        merges,
        settings,
        normalizer: json!({ "type": "Sequence", "normalizers": normalizers }),
        pre_tokenizer: Value::Null,
        decoder: decoder(),
        around: [vec![source.clone(), text.clone(), end.clone()], vec![source, text.clone(), text, end]],
        added,
    };
    Ok((parts, Unknown { first, id: unknown_id }))
}
