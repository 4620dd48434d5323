//! The models of a checkpoint that holds two.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    json::parse,
    tokenizer::Tokenizer,
};

/// BLINK's marks: before a mention, behind it, and between an entity's title and its description. BERT's vocabulary has
/// them as words that no text is cut into.
const BLINK_MARKS: [&str; 3] = ["[unused0]", "[unused1]", "[unused2]"];

/// A model inside a checkpoint whose weights are those of two: a RAG model (Lewis et al. 2020), whose config holds two
/// configs, or BLINK's bi-encoder (Wu et al. 2020), whose two BERTs share one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// RAG: the encoder of questions.
    QuestionEncoder,
    /// RAG: the encoder-decoder that reads the passages.
    Generator,
    /// BLINK: the encoder of mentions in their contexts.
    MentionEncoder,
    /// BLINK: the encoder of entities' titles and descriptions.
    EntityEncoder,
}

impl Part {
    /// The field of a RAG model's config.
    fn field(self) -> Option<&'static str> {
        match self {
            Self::QuestionEncoder => Some("question_encoder"),
            Self::Generator => Some("generator"),
            Self::MentionEncoder | Self::EntityEncoder => None,
        }
    }

    /// What stands before the names of its tensors. In a RAG model that depends on its head for decoding.
    pub(super) fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::QuestionEncoder => &["rag.question_encoder.", "question_encoder."],
            Self::Generator => &["rag.generator.", "generator."],
            Self::MentionEncoder => &["context_encoder.bert_model."],
            Self::EntityEncoder => &["cand_encoder.bert_model."],
        }
    }

    /// Where its tokenizer lies.
    pub(super) fn tokenizer_folder(self, folder: &Path) -> PathBuf {
        match self {
            Self::QuestionEncoder => folder.join("question_encoder_tokenizer"),
            Self::Generator => folder.join("generator_tokenizer"),
            Self::MentionEncoder | Self::EntityEncoder => folder.into(),
        }
    }

    /// The tokenizer as the part was trained with it.
    pub(super) fn tokenizer(self, tokenizer: Tokenizer) -> Result<Tokenizer> {
        match self {
            Self::QuestionEncoder | Self::Generator => Ok(tokenizer),
            Self::MentionEncoder | Self::EntityEncoder => tokenizer.with_marks(&BLINK_MARKS),
        }
    }

    /// The part's own config, out of the whole model's.
    pub(crate) fn config(self, path: &Path, text: &str) -> Result<String> {
        let mut whole: Value = parse(path, text)?;
        let (model_type, expected) = match self.field() {
            Some(_) => ("rag", "a RAG model"),
            None => ("bert", "a BERT, which both of BLINK's encoders are"),
        };
        if whole["model_type"] != model_type {
            let found =
                whole["model_type"].as_str().map_or_else(|| "none".into(), |found| format!("`{found}`"));
            return Err(Error::Architecture { path: path.into(), expected, found });
        }
        let Some(field) = self.field() else {
            whole["architectures"] = json!(["BertModel"]);
            return Ok(whole.to_string());
        };
        match whole[field].take() {
            config @ Value::Object(_) => Ok(config.to_string()),
            _ => Err(Error::Config {
                path: path.into(),
                field: field.into(),
                expected: "the config of a model".into(),
                found: "none".into(),
            }),
        }
    }
}
