//! How a folder of sentence-transformers reads a text: `sentence_bert_config.json` in the encoder's folder.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// The names of the file in several versions; the first existing one counts.
pub const INPUT_FILES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// How a text becomes tokens.
#[derive(Debug, Clone, Default)]
pub struct InputSettings {
    /// The most tokens of a text. Overrides the tokenizer's limit.
    pub max_length: Option<usize>,
    /// Whether texts are lowercased before they are tokenized.
    pub lowercase: bool,
    path: PathBuf,
    fields: Fields,
}

/// The fields of the file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Fields {
    max_seq_length: Option<usize>,
    do_lower_case: Option<bool>,
    query_length: Option<Value>,
    document_length: Option<Value>,
    query_expansion: Option<Value>,
    processing_kwargs: Option<Value>,
    module_output_name: Option<String>,
}

impl InputSettings {
    /// Reads the file of an encoder's folder; without one all settings are unset.
    ///
    /// # Errors
    /// [`Error::Json`], and [`Error::Config`] for an option that is not one of this crate.
    pub fn open(folder: &Path) -> Result<Self> {
        for name in INPUT_FILES {
            let path = folder.join(name);
            let Some(text) = json::text(&path)? else { continue };
            let fields: Fields = parse(&path, &text)?;
            for (field, value) in [
                ("query_length", &fields.query_length),
                ("document_length", &fields.document_length),
                ("query_expansion", &fields.query_expansion),
                ("processing_kwargs", &fields.processing_kwargs),
            ] {
                let sets = |value: &&Value| value.as_object().is_none_or(|fields| !fields.is_empty());
                if let Some(value) = value.as_ref().filter(sets) {
                    return Err(wrong(&path, field, "none", &value.to_string()));
                }
            }
            let (max_length, lowercase) = (fields.max_seq_length, fields.do_lower_case.unwrap_or(false));
            return Ok(Self { max_length, lowercase, path, fields });
        }
        Ok(Self::default())
    }

    /// Checks that the encoder gives the states of its tokens.
    ///
    /// # Errors
    /// [`Error::Config`].
    pub fn check_states(&self) -> Result<()> {
        match self.fields.module_output_name.as_deref() {
            None | Some("token_embeddings") => Ok(()),
            Some(other) => {
                let expected = "`token_embeddings`, which are pooled";
                Err(wrong(&self.path, "module_output_name", expected, &format!("`{other}`")))
            }
        }
    }
}

fn wrong(path: &Path, field: &str, expected: &str, found: &str) -> Error {
    Error::Config { path: path.into(), field: field.into(), expected: expected.into(), found: found.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Result<InputSettings> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), text).unwrap();
        InputSettings::open(folder.path())
    }

    #[test]
    fn null_sets_nothing_and_older_names_are_read() {
        let text = r#"{"max_seq_length": null, "do_lower_case": null, "processing_kwargs": {}}"#;
        let settings = read("sentence_bert_config.json", text).unwrap();
        assert_eq!((settings.max_length, settings.lowercase), (None, false));
        let text = r#"{"max_seq_length": 7, "do_lower_case": true}"#;
        let settings = read("sentence_xlm-roberta_config.json", text).unwrap();
        assert_eq!((settings.max_length, settings.lowercase), (Some(7), true));
    }

    #[test]
    fn what_is_not_supported_is_refused_with_its_file_and_field() {
        for (text, field) in [
            (r#"{"query_length": 32}"#, "query_length"),
            (r#"{"processing_kwargs": {"text": {"max_length": 3}}}"#, "processing_kwargs"),
        ] {
            let error = read("sentence_bert_config.json", text).unwrap_err().to_string();
            assert!(error.contains(&format!("sentence_bert_config.json: field `{field}`")), "{error}");
        }
        let whole = read("sentence_bert_config.json", r#"{"module_output_name": "sentence_embedding"}"#);
        let error = whole.unwrap().check_states().unwrap_err().to_string();
        assert!(error.contains("field `module_output_name`"), "{error}");
    }
}
