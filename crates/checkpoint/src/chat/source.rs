//! Where a model keeps its chat template and the special tokens that the template may name.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{
    error::{Error, Result},
    gguf::{GgufFile, find_gguf},
    json::{self, parse},
    tokenizer::Tokenizer,
};

/// The names by which templates know special tokens.
const NAMES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The text of a template, and the values for rendering it.
#[derive(Debug)]
pub(super) struct Source {
    /// The file that holds the template.
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// The special tokens that the model has, by their [names](NAMES).
    pub(super) tokens: Vec<(&'static str, String)>,
}

/// One template, or several with names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Several(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

/// A file with a field `chat_template`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    chat_template: Option<Templates>,
}

/// A special token, as a text or with its flags.
#[derive(Deserialize)]
#[serde(untagged)]
enum Token {
    Text(String),
    Flags { content: String },
}

impl Source {
    /// The template of a folder or of a GGUF file; none where it has none.
    pub(super) fn of(model: &Path) -> Result<Option<Self>> {
        if let Some(file) = find_gguf(model)? {
            let template = GgufFile::chat_template(&file)?;
            return Ok(template.map(|(text, tokens)| Self { path: file, text, tokens }));
        }
        let model = &Tokenizer::folder_of(model)?;
        let path = model.join("chat_template.jinja");
        let mut found = json::text(&path)?.map(|text| (path, text));
        for name in ["tokenizer_config.json", "chat_template.json"] {
            if found.is_some() {
                break;
            }
            let path = model.join(name);
            let Some(text) = json::text(&path)? else { continue };
            let file: File = parse(&path, &text)?;
            found = file.text(&path)?.map(|text| (path, text));
        }
        let Some((path, text)) = found.filter(|(_, text)| !text.trim().is_empty()) else { return Ok(None) };
        Ok(Some(Self { path, text, tokens: tokens(model)? }))
    }
}

impl File {
    fn text(self, path: &Path) -> Result<Option<String>> {
        Ok(match self.chat_template {
            None => None,
            Some(Templates::One(text)) => Some(text),
            Some(Templates::Several(named)) => {
                let names: Vec<String> = named.iter().map(|named| format!("`{}`", named.name)).collect();
                let default = named.into_iter().find(|named| named.name == "default");
                let default = default.ok_or_else(|| Error::Config {
                    path: path.into(),
                    field: "chat_template".into(),
                    expected: "a template of the name `default`".into(),
                    found: if names.is_empty() { "none".into() } else { names.join(", ") },
                })?;
                Some(default.template)
            }
        })
    }
}

/// The special tokens of a folder.
fn tokens(folder: &Path) -> Result<Vec<(&'static str, String)>> {
    let mut tokens: Vec<(&'static str, String)> = Vec::new();
    for name in ["tokenizer_config.json", "special_tokens_map.json"] {
        let path = folder.join(name);
        let Some(text) = json::text(&path)? else { continue };
        let mut fields: serde_json::Map<String, serde_json::Value> = parse(&path, &text)?;
        for name in NAMES {
            let value = fields.remove(name).filter(|value| !value.is_null());
            let Some(value) = value.filter(|_| tokens.iter().all(|(known, _)| *known != name)) else {
                continue;
            };
            let found = value.to_string();
            match serde_json::from_value(value) {
                Ok(Token::Text(content) | Token::Flags { content }) => tokens.push((name, content)),
                Err(_) => {
                    let (field, expected) = (name.into(), "a token".into());
                    return Err(Error::Config { path, field, expected, found });
                }
            }
        }
    }
    Ok(tokens)
}
