//! Cross-encoders (Nogueira and Cho 2019): an encoder with a head for sequence classification reads the
//! query and the passage together.

mod train;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{CrossEncoderFolder, ScoreActivation};
use sporran_kilt::{Passage, Query, Template};
use sporran_transformers::{
    BertTask, Checkpoint, DeviceName, PairClassifier, PairOptions, Precision, Truncation,
};

pub use train::CrossEncoderTraining;

use crate::{Error, Reranker, Result, Saved, passage_text, view::passage_template};

/// The options of a cross-encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossEncoderOptions {
    /// The model's folder, in the Hugging Face layout.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// The input text of a passage, with `{title}` and `{text}`. The default is the title, a space and the text, as in BEIR.
    /// `{{` and `}}` are literal braces.
    #[serde(default)]
    pub passage_template: Option<String>,
    /// The largest number of tokens of a pair. The default is the folder's.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The fixed number of tokens of a query, special tokens included, as in BLINK's cross-encoder. A longer query is cut by
    /// `truncation` as a single text. A shorter query is padded.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub query_room: Option<usize>,
    /// The truncation of longer pairs. The default is the folder's, else `longest-first`.
    #[serde(default)]
    pub truncation: Option<Truncation>,
    /// The data type of the weights: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included. A longer pair is a separate batch.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn batch_tokens() -> usize {
    4096
}

impl CrossEncoderOptions {
    /// The options of the model in `folder`, with batches of 4,096 tokens.
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

    /// Checks the options without loading the model.
    ///
    /// # Errors
    /// [`Error::Option`] for empty batches and a wrong template. [`Error::Transformers`] for a device that this build does
    /// not support, and for a precision that the device does not support.
    pub fn check(&self) -> Result<()> {
        if self.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        passage_template(self.passage_template.as_deref())?;
        Ok(self.device.check(self.precision)?)
    }
}

/// A cross-encoder with its tokenizer.
///
/// With one label, the score is its logit. With two labels, the second is the positive one. The score is its logit minus
/// that of the first: the log odds, which give the same ranking as the probability.
pub struct CrossEncoder {
    classifier: PairClassifier,
    folder: CrossEncoderFolder,
    template: Option<Template>,
}

impl CrossEncoder {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder without an encoder or without a classification head. [`Error::Head`] for more
    /// than two labels and for a saved reranker of another kind. [`Error::Option`] for empty batches.
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
        let check = |labels: usize| match labels {
            3.. => Err(Error::Head { folder: folder.clone(), found: format!("{labels} labels") }),
            _ => Ok(()),
        };
        if !place.is_pooled {
            let checkpoint = Checkpoint::open(&place.model)?;
            let config = checkpoint.config();
            if config.encoder_task() == Some(BertTask::SequenceClassification) {
                check(config.labels().len())?;
            }
        }
        let classifier = PairClassifier::load(folder, &pairs)?;
        check(classifier.labels().len())?;
        Ok(Self {
            classifier,
            folder: place,
            template: passage_template(options.passage_template.as_deref())?,
        })
    }

    /// The most tokens of a pair, special ones included.
    pub fn max_length(&self) -> usize {
        self.classifier.max_length()
    }

    /// The number of the model's labels, one or two.
    pub fn labels(&self) -> usize {
        self.classifier.labels().len()
    }

    /// The logits of each pair of query and passage, one for each label. If the folder has a default prompt, it precedes the
    /// query.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model, and for a pair without tokens.
    pub fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        let queries = self.prompted(pairs);
        Ok(self.classifier.logits(&with_queries(&queries, pairs))?)
    }

    /// As [`logits`](Self::logits), with `None` for a pair without tokens. See [`PairClassifier::logits_where_read`].
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    pub fn logits_where_read(&self, pairs: &[(&str, &str)]) -> Result<Vec<Option<Vec<f32>>>> {
        let queries = self.prompted(pairs);
        Ok(self.classifier.logits_where_read(&with_queries(&queries, pairs))?)
    }

    /// The queries of the pairs, after the folder's default prompt.
    fn prompted(&self, pairs: &[(&str, &str)]) -> Vec<String> {
        pairs.iter().map(|(query, _)| format!("{}{query}", self.folder.prompt)).collect()
    }

    /// The activation of the logits in sentence-transformers' `CrossEncoder.predict`. The default is the sigmoid for one
    /// label and none for two. [`score`](Reranker::score) uses the logits without an activation.
    ///
    /// # Errors
    /// [`Error::Transformers`] if the folder names an unsupported activation.
    pub fn activation(&self) -> Result<ScoreActivation> {
        Ok(self.folder.activation(self.labels())?)
    }
}

/// The pairs with their queries replaced.
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
