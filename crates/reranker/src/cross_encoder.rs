//! A transformer that reads query and passage together (Nogueira and Cho 2019): BERT, RoBERTa or DistilBERT with a head
//! for sequence classification.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{CrossEncoderFolder, ScoreActivation};
use sporran_kilt::{Passage, Query, Template};
use sporran_transformers::{
    BertTask, Checkpoint, DeviceName, ModelConfig, PairClassifier, PairOptions, Precision, Truncation,
};

use crate::{Error, Reranker, Result, Saved, passage_text};

/// A model, and how it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossEncoderOptions {
    /// The model's folder, in the Hugging Face layout.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// What is read of a passage, with `{title}` and `{text}`; by default title and text with a blank between them, as BEIR
    /// does. A brace itself is written `{{` or `}}`.
    #[serde(default)]
    pub passage_template: Option<String>,
    /// Tokens of a pair, at most; by default as many as the folder says.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The room of a query in tokens, special ones included: a longer one is cut as `truncation` says for a single text, and
    /// passages begin behind the room even where a query does not fill it, as BLINK's cross-encoder has it.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub query_room: Option<usize>,
    /// What is cut of a pair that is too long. The default is the folder's, or else the longer of query and passage.
    #[serde(default)]
    pub truncation: Option<Truncation>,
    /// The numbers that it computes with: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// Where it computes: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most; a longer pair is a batch of its own.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn batch_tokens() -> usize {
    4096
}

impl CrossEncoderOptions {
    /// A folder's model, with 4,096 tokens a batch.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            passage_template: None,
            max_tokens: None,
            query_room: None,
            truncation: None,
            precision: Precision::F32,
            device: DeviceName::Cpu,
            batch_tokens: batch_tokens(),
        }
    }

    /// Checks what can be checked without the model.
    ///
    /// # Errors
    /// [`Error::Option`] for empty batches and a wrong template, [`Error::Transformers`] for a device that this build does not have, or a
    /// precision that it does not compute with.
    pub fn check(&self) -> Result<()> {
        if self.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        self.template()?;
        Ok(self.device.check(self.precision)?)
    }

    fn template(&self) -> Result<Option<Template>> {
        let parse = |text: &String| {
            Template::parse(text, &["title", "text"]).ok_or_else(|| Error::Option {
                option: "passage-template",
                expected: "a text with `{title}`, `{text}` or both",
                found: format!("`{text}`"),
            })
        };
        self.passage_template.as_ref().map(parse).transpose()
    }
}

/// A cross-encoder with its tokenizer.
///
/// With one label its logit is the score. With two labels the second is the positive one, and the score is its logit
/// less that of the first: the logarithm of the odds, which orders passages as the probability does.
pub struct CrossEncoder {
    classifier: PairClassifier,
    folder: CrossEncoderFolder,
    template: Option<Template>,
}

impl CrossEncoder {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder that is not an encoder's or does not classify, [`Error::Head`] where it does
    /// so into more than two labels, and [`Error::Option`] for empty batches.
    pub fn load(options: &CrossEncoderOptions) -> Result<Self> {
        options.check()?;
        let folder = &options.folder;
        let (max_tokens, truncation) = match Saved::read(folder)? {
            Saved::CrossEncoder { max_tokens, truncation } => (max_tokens, truncation),
            other => {
                let found = format!("a reranker of kind `{}`", other.kind());
                return Err(Error::Head { folder: folder.clone(), found });
            }
        };
        let pairs = PairOptions {
            max_tokens: options.max_tokens.or(max_tokens),
            truncation: options.truncation.unwrap_or(truncation),
            first_room: options.query_room,
            precision: options.precision,
            device: options.device,
            batch_tokens: options.batch_tokens,
        };
        let place = CrossEncoderFolder::open(folder)?;
        let checkpoint = Checkpoint::open(&place.model)?;
        if let ModelConfig::Bert(config) = checkpoint.config()
            && config.task == BertTask::SequenceClassification
            && config.labels.len() > 2
        {
            let found = format!("{} labels", config.labels.len());
            return Err(Error::Head { folder: folder.clone(), found });
        }
        let classifier = PairClassifier::load(&checkpoint, &pairs)?;
        Ok(Self { classifier, folder: place, template: options.template()? })
    }

    /// The number of the model's labels, one or two.
    pub fn labels(&self) -> usize {
        self.classifier.labels().len()
    }

    /// The logits of each pair of query and passage, one for each label. Where the folder has a default prompt, it stands
    /// before the query.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails, and for a pair without a token.
    pub fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        let queries = self.prompted(pairs);
        Ok(self.classifier.logits(&with_queries(&queries, pairs))?)
    }

    /// As [`logits`](Self::logits), with none for a pair without a token (see [`PairClassifier::logits_where_read`]).
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    pub fn logits_where_read(&self, pairs: &[(&str, &str)]) -> Result<Vec<Option<Vec<f32>>>> {
        let queries = self.prompted(pairs);
        Ok(self.classifier.logits_where_read(&with_queries(&queries, pairs))?)
    }

    /// The queries of pairs, with the folder's default prompt before them.
    fn prompted(&self, pairs: &[(&str, &str)]) -> Vec<String> {
        pairs.iter().map(|(query, _)| format!("{}{query}", self.folder.prompt)).collect()
    }

    /// What becomes of the logits of a pair in sentence-transformers' `CrossEncoder.predict`: the activation that the
    /// folder names, or else the sigmoid for one label and nothing for two. Rankings are by logits.
    ///
    /// # Errors
    /// [`Error::Transformers`] where the folder names a function that this crate does not have.
    pub fn activation(&self) -> Result<ScoreActivation> {
        Ok(self.folder.activation(self.labels())?)
    }
}

/// Pairs with other queries.
fn with_queries<'a>(queries: &'a [String], pairs: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    queries.iter().zip(pairs).map(|(query, (_, passage))| (query.as_str(), *passage)).collect()
}

impl Reranker for CrossEncoder {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let text = |passage: &&Passage| match &self.template {
            Some(template) => template.fill(&[&passage.title, &passage.text]),
            None => passage_text(passage),
        };
        let texts: Vec<String> = passages.iter().map(text).collect();
        let pairs: Vec<(&str, &str)> =
            texts.iter().map(|text| (query.text.as_str(), text.as_str())).collect();
        let logits = self.logits(&pairs)?;
        Ok(logits.iter().map(|row| row[row.len() - 1] - if row.len() == 2 { row[0] } else { 0.0 }).collect())
    }
}
