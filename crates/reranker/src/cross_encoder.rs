//! A transformer that reads query and passage together (Nogueira and Cho 2019): BERT, RoBERTa or DistilBERT with a head
//! for sequence classification.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query};
use sporran_transformers::{
    BertTask, Checkpoint, DeviceName, ModelConfig, PairClassifier, PairOptions, Precision, Truncation,
};

use crate::{Error, Reranker, Result, passage_text};

/// A model, and how it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CrossEncoderOptions {
    /// The model's folder, in the Hugging Face layout.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// Whether a passage's title is read before its text, as BEIR does.
    #[serde(default = "titles")]
    pub titles: bool,
    /// Tokens of a pair, at most; by default as many as the model can read.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// What is cut of a pair that is too long: by default the longer of query and passage.
    #[serde(default)]
    pub truncation: Truncation,
    /// The numbers that it computes with: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// Where it computes: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most; a longer pair is a batch of its own.
    #[serde(default = "batch_tokens")]
    pub batch_tokens: usize,
}

fn titles() -> bool {
    true
}

fn batch_tokens() -> usize {
    4096
}

impl CrossEncoderOptions {
    /// A folder's model with titles and 4,096 tokens a batch.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            titles: titles(),
            max_tokens: None,
            truncation: Truncation::default(),
            precision: Precision::F32,
            device: DeviceName::Cpu,
            batch_tokens: batch_tokens(),
        }
    }

    /// Checks what can be checked without the model.
    ///
    /// # Errors
    /// [`Error::Option`] for empty batches, [`Error::Transformers`] for a device that this build does not have, or a
    /// precision that it does not compute with.
    pub fn check(&self) -> Result<()> {
        if self.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        Ok(self.device.check(self.precision)?)
    }
}

/// A cross-encoder with its tokenizer.
///
/// With one label its logit is the score. With two labels the second is the positive one, and the score is its logit
/// less that of the first: the logarithm of the odds, which orders passages as the probability does.
pub struct CrossEncoder {
    classifier: PairClassifier,
    titles: bool,
}

impl CrossEncoder {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder that is not an encoder's or does not classify, [`Error::Head`] where it does
    /// so into more than two labels, and [`Error::Option`] for empty batches.
    pub fn load(options: &CrossEncoderOptions) -> Result<Self> {
        options.check()?;
        let CrossEncoderOptions { folder, titles, max_tokens, truncation, precision, device, batch_tokens } =
            options;
        let (max_tokens, truncation, precision) = (*max_tokens, *truncation, *precision);
        let pairs =
            PairOptions { max_tokens, truncation, precision, device: *device, batch_tokens: *batch_tokens };
        let checkpoint = Checkpoint::open(folder)?;
        if let ModelConfig::Bert(config) = checkpoint.config()
            && config.task == BertTask::SequenceClassification
            && config.labels.len() > 2
        {
            let found = format!("{} labels", config.labels.len());
            return Err(Error::Head { folder: folder.clone(), found });
        }
        let classifier = PairClassifier::load(&checkpoint, &pairs)?;
        Ok(Self { classifier, titles: *titles })
    }

    /// The number of the model's labels, one or two.
    pub fn labels(&self) -> usize {
        self.classifier.labels().len()
    }

    /// The logits of each pair of query and passage, one for each label.
    ///
    /// # Errors
    /// Where the tokenizer or the model fails.
    pub fn logits(&self, pairs: &[(&str, &str)]) -> Result<Vec<Vec<f32>>> {
        Ok(self.classifier.logits(pairs)?)
    }
}

impl Reranker for CrossEncoder {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let texts: Vec<String> = passages.iter().map(|passage| passage_text(passage, self.titles)).collect();
        let pairs: Vec<(&str, &str)> =
            texts.iter().map(|text| (query.text.as_str(), text.as_str())).collect();
        let logits = self.logits(&pairs)?;
        Ok(logits.iter().map(|row| row[row.len() - 1] - if row.len() == 2 { row[0] } else { 0.0 }).collect())
    }
}
