//! The two models of a RAG model.

use std::path::Path;

use serde_json::Value;

use crate::{
    error::{Error, Result},
    json::parse,
};

/// A model inside a RAG model (Lewis et al. 2020), whose config and weights hold two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The encoder of questions.
    QuestionEncoder,
    /// The encoder-decoder that reads the passages.
    Generator,
}

impl Part {
    /// The field of the config.
    fn field(self) -> &'static str {
        match self {
            Self::QuestionEncoder => "question_encoder",
            Self::Generator => "generator",
        }
    }

    /// What stands before the names of its tensors, in a model with a head for decoding and in one without.
    pub(super) fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::QuestionEncoder => &["rag.question_encoder.", "question_encoder."],
            Self::Generator => &["rag.generator.", "generator."],
        }
    }

    pub(super) fn tokenizer_folder(self) -> &'static str {
        match self {
            Self::QuestionEncoder => "question_encoder_tokenizer",
            Self::Generator => "generator_tokenizer",
        }
    }

    /// The part's own config, out of a RAG model's.
    pub(crate) fn config(self, path: &Path, text: &str) -> Result<String> {
        let mut whole: Value = parse(path, text)?;
        if whole["model_type"] != "rag" {
            let found =
                whole["model_type"].as_str().map_or_else(|| "none".into(), |found| format!("`{found}`"));
            return Err(Error::Architecture { path: path.into(), expected: "a RAG model", found });
        }
        match whole[self.field()].take() {
            config @ Value::Object(_) => Ok(config.to_string()),
            _ => Err(Error::Config {
                path: path.into(),
                field: self.field().into(),
                expected: "the config of a model".into(),
                found: "none".into(),
            }),
        }
    }
}
