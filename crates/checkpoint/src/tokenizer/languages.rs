//! The code of an input's language, which the tokenizers of mBART and NLLB put around texts.

use std::path::Path;

use serde::Deserialize;
use tokenizers::processors::template::TemplateProcessing;

use super::{
    Tokenizer, bounds,
    options::{CONFIG, Token, token},
};
use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// The field that says whether a folder has languages.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Class {
    tokenizer_class: Option<String>,
}

/// The fields of a folder that has languages.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Languages {
    src_lang: Option<String>,
    /// NLLB: whether the code comes last, and not first.
    legacy_behaviour: Option<bool>,
    eos_token: Option<Token>,
}

/// The tokenizer of a folder's `tokenizer.json`, with the code of the language in `tokenizer_config.json`. The file has that of
/// the language that was set when it was written, which `transformers` does not use either.
///
/// # Errors
/// [`Error::Config`] for a language that the vocabulary lacks, and [`Error::Json`].
pub(super) fn with_source(mut tokenizer: Tokenizer, folder: &Path) -> Result<Tokenizer> {
    let path = folder.join(CONFIG);
    let Some(text) = json::text(&path)? else { return Ok(tokenizer) };
    let class: Class = parse(&path, &text)?;
    let class = class.tokenizer_class.unwrap_or_default();
    let default = match class.strip_suffix("Fast").unwrap_or(&class) {
        "MBartTokenizer" | "MBart50Tokenizer" => "en_XX",
        "NllbTokenizer" => "eng_Latn",
        _ => return Ok(tokenizer),
    };
    let options: Languages = parse(&path, &text)?;
    let comes_first = !class.starts_with("MBartTokenizer") && options.legacy_behaviour != Some(true);
    let source = options.src_lang.as_deref().unwrap_or(default);
    let Some(code) = tokenizer.inner.token_to_id(source) else {
        return Err(Error::Config {
            path,
            field: "src_lang".into(),
            expected: "the code of a language in tokenizer.json".into(),
            found: format!("`{source}`"),
        });
    };
    let end = token(&options.eos_token, "</s>").content;
    let Some(end_id) = tokenizer.inner.token_to_id(&end) else {
        return Err(tokenizer.wrong(format!("the vocabulary lacks `{end}`").into()));
    };
    let around = |texts: &str| match comes_first {
        true => format!("{source}:0 {texts} {end}:0"),
        false => format!("{texts} {end}:0 {source}:0"),
    };
    let build = || {
        let template = TemplateProcessing::builder()
            .try_single(around("$A:0"))?
            .try_pair(around("$A:0 $B:0"))?
            .special_tokens(vec![(end.clone(), end_id), (source.to_owned(), code)])
            .build()?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(template)
    };
    let template = build().map_err(|source| tokenizer.wrong(source))?;
    tokenizer.inner.with_post_processor(Some(template));
    tokenizer.json = bounds::text(&tokenizer.inner).map_err(|source| tokenizer.wrong(source))?;
    Ok(tokenizer)
}
