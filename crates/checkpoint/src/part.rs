//! The models of a checkpoint that holds two, or one under other names than those of its architecture.
//!
//! A checkpoint of BLINK or of DPR's own code has no config. Its folder has the config of the BERT that it started from.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    json::parse,
    tokenizer::Tokenizer,
};

/// BLINK's marks: before a mention, after it, and between an entity's title and its description. BERT's vocabulary
/// reserves them, so no text is tokenized into them.
pub const BLINK_MARKS: [&str; 3] = ["[unused0]", "[unused1]", "[unused2]"];

/// A model inside a checkpoint whose weights are those of two: a RAG model (Lewis et al. 2020), whose config holds two
/// configs, or the bi-encoders of BLINK (Wu et al. 2020) and of DPR's own code (Karpukhin et al. 2020), whose two BERTs share
/// one. BLINK's cross-encoder and DPR's reader are single models, but they have other tensor names and come with the same
/// config.
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
    /// BLINK: the cross-encoder of a mention in its context and an entity.
    CrossEncoder,
    /// DPR's code: the encoder of questions.
    DprQuestionEncoder,
    /// DPR's code: the encoder of passages.
    DprPassageEncoder,
    /// DPR's code: the reader.
    DprReader,
}

impl Part {
    /// The field of a RAG model's config.
    fn field(self) -> Option<&'static str> {
        match self {
            Self::QuestionEncoder => Some("question_encoder"),
            Self::Generator => Some("generator"),
            _ => None,
        }
    }

    /// Whether it is a model of DPR's own code.
    fn is_dpr(self) -> bool {
        matches!(self, Self::DprQuestionEncoder | Self::DprPassageEncoder | Self::DprReader)
    }

    /// The prefixes of its tensor names in the checkpoint, each with the prefix in a separate model. In a RAG model the
    /// prefix depends on its head for decoding.
    fn prefixes(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::QuestionEncoder => &[("rag.question_encoder.", ""), ("question_encoder.", "")],
            Self::Generator => &[("rag.generator.", ""), ("generator.", "")],
            Self::MentionEncoder => &[("context_encoder.bert_model.", "")],
            Self::EntityEncoder => &[("cand_encoder.bert_model.", "")],
            Self::CrossEncoder => {
                &[("encoder.bert_model.", "bert."), ("encoder.additional_linear.", "classifier.")]
            }
            Self::DprQuestionEncoder => &[
                ("question_model.encode_proj.", "question_encoder.encode_proj."),
                ("question_model.", "question_encoder.bert_model."),
            ],
            Self::DprPassageEncoder => &[
                ("ctx_model.encode_proj.", "ctx_encoder.encode_proj."),
                ("ctx_model.", "ctx_encoder.bert_model."),
            ],
            Self::DprReader => &[
                ("encoder.", "span_predictor.encoder.bert_model."),
                ("qa_outputs.", "span_predictor.qa_outputs."),
                ("qa_classifier.", "span_predictor.qa_classifier."),
            ],
        }
    }

    /// The part's name for the tensor that the checkpoint calls `name`, if the tensor belongs to the part.
    pub(crate) fn inner(self, name: &str) -> Option<Cow<'_, str>> {
        self.prefixes().iter().find_map(|(outer, inner)| {
            let rest = name.strip_prefix(outer)?;
            Some(if inner.is_empty() { rest.into() } else { format!("{inner}{rest}").into() })
        })
    }

    /// The path of its tokenizer.
    pub(crate) fn tokenizer_folder(self, folder: &Path) -> PathBuf {
        match self {
            Self::QuestionEncoder => folder.join("question_encoder_tokenizer"),
            Self::Generator => folder.join("generator_tokenizer"),
            _ => folder.into(),
        }
    }

    /// The tokenizer as the part was trained with it.
    pub(crate) fn tokenizer(self, tokenizer: Tokenizer) -> Result<Tokenizer> {
        match self {
            Self::MentionEncoder | Self::EntityEncoder | Self::CrossEncoder => {
                tokenizer.with_marks(&BLINK_MARKS)
            }
            _ => Ok(tokenizer),
        }
    }

    /// The part's own config, out of the whole model's; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Architecture`] for another kind of model, and [`Error::Config`] where the part has no config.
    pub fn config(self, path: &Path, text: &str) -> Result<String> {
        let mut whole: Value = parse(path, text)?;
        let (model_type, expected) = match self.field() {
            Some(_) => ("rag", "a RAG model"),
            None if self.is_dpr() => ("bert", "a BERT, which DPR's models are"),
            None => ("bert", "a BERT, which BLINK's encoders are"),
        };
        if whole["model_type"] != model_type {
            let found =
                whole["model_type"].as_str().map_or_else(|| "none".into(), |found| format!("`{found}`"));
            return Err(Error::Architecture { path: path.into(), expected, found });
        }
        let Some(field) = self.field() else {
            let class = match self {
                Self::CrossEncoder => "BertForSequenceClassification",
                Self::DprQuestionEncoder => "DPRQuestionEncoder",
                Self::DprPassageEncoder => "DPRContextEncoder",
                Self::DprReader => "DPRReader",
                _ => "BertModel",
            };
            whole["architectures"] = json!([class]);
            if self == Self::CrossEncoder {
                whole["id2label"] = json!({"0": "LABEL_0"});
            }
            if self.is_dpr() {
                whole["model_type"] = json!("dpr");
            }
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
