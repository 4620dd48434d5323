//! A bi-encoder: a transformer that encodes each text separately (Karpukhin et al. 2020; Reimers and Gurevych
//! 2019).

use std::path::PathBuf;

use sporran_checkpoint::Role;
use sporran_transformers::{
    DeviceName, EncoderRow, Pooling, Precision, Text, TextEncoder, TextEncoderOptions, Truncation,
};

use super::{Embeddings, Encoder};
use crate::{Error, Result};

/// The prefix of every text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// The folder's default prompt, if it has one.
    #[default]
    Default,
    /// The folder's prompt for texts of a role.
    Role(Role),
    /// The folder's prompt of this name.
    Named(String),
    /// This text, such as `query: `; possibly empty.
    Text(String),
}

/// The options of a bi-encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct BiEncoderOptions {
    /// The model's folder: in the layout of sentence-transformers, of DPR, or a bare encoder with `pooling`.
    pub folder: PathBuf,
    /// The pooling of hidden states, overriding the folder's. The folder's layers after the pooling stay;
    /// DPR's projection does not.
    pub pooling: Option<Pooling>,
    /// The number of leading values to keep of a vector; the default is the folder's.
    pub dimensions: Option<usize>,
    /// The prefix of every text.
    pub prompt: Prompt,
    /// The largest number of input tokens; the rest is truncated. The default is the folder's.
    pub max_tokens: Option<usize>,
    /// The precision of the weights.
    pub precision: Precision,
    /// The device.
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included; a longer input is a batch.
    pub batch_tokens: usize,
}

impl BiEncoderOptions {
    /// The folder's settings, with 4,096 tokens a batch.
    pub fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            pooling: None,
            dimensions: None,
            prompt: Prompt::Default,
            max_tokens: None,
            precision: Precision::F32,
            device: DeviceName::Cpu,
            batch_tokens: 4096,
        }
    }
}

/// An encoder with its tokenizer.
#[derive(Clone)]
pub struct BiEncoder {
    encoder: TextEncoder,
}

impl BiEncoder {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder without an encoder or without the prompt, [`Error::Pooling`] if neither it nor
    /// the options define the pooling; [`Error::Option`] for empty batches.
    pub fn load(options: &BiEncoderOptions) -> Result<Self> {
        if options.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        let encoder = TextEncoder::load(&TextEncoderOptions {
            folder: options.folder.clone(),
            pooling: options.pooling,
            fallback: None,
            dimensions: options.dimensions,
            max_tokens: options.max_tokens,
            truncation: Truncation::AroundMention,
            precision: options.precision,
            device: options.device,
            batch_tokens: options.batch_tokens,
        })?;
        let encoder = encoder.ok_or_else(|| Error::Pooling { folder: options.folder.clone() })?;
        Self { encoder }.prompted(&options.prompt)
    }

    /// The same model with shared weights and another prompt. [`Prompt::Default`] keeps the present one.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder without the prompt; errors of the tokenizer.
    pub fn prompted(&self, prompt: &Prompt) -> Result<Self> {
        let encoder = &self.encoder;
        let encoder = match prompt {
            Prompt::Default => encoder.clone(),
            Prompt::Role(role) => encoder.for_role(*role)?,
            Prompt::Text(text) => encoder.with_prompt(text)?,
            Prompt::Named(name) => {
                let settings = encoder.settings().cloned().unwrap_or_default();
                encoder.with_prompt(settings.named_prompt(name)?)?
            }
        };
        Ok(Self { encoder })
    }

    /// The same model with shared weights and another prefix. Models with different prefixes for queries and
    /// passages need two.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    pub fn with_prompt(&self, prompt: &str) -> Result<Self> {
        Ok(Self { encoder: self.encoder.with_prompt(prompt)? })
    }

    /// The same with another truncation of long texts.
    #[must_use]
    pub fn with_truncation(&self, truncation: Truncation) -> Self {
        Self { encoder: self.encoder.with_truncation(truncation) }
    }

    /// The input tokens of texts.
    ///
    /// # Errors
    /// Errors of the tokenizer.
    pub fn rows(&self, texts: &[&str]) -> Result<Vec<EncoderRow>> {
        Ok(self.encoder.rows(&texts.iter().map(|text| Text::One(text)).collect::<Vec<_>>())?)
    }

    fn vectors(&self, texts: &[Text<'_>]) -> Result<Embeddings> {
        Embeddings::new(self.encoder.width(), self.encoder.encode(texts)?)
    }
}

impl Encoder for BiEncoder {
    fn dim(&self) -> usize {
        self.encoder.width()
    }

    fn encode(&self, texts: &[&str]) -> Result<Embeddings> {
        self.vectors(&texts.iter().map(|text| Text::One(text)).collect::<Vec<_>>())
    }

    /// DPR reads title and text as a pair. Other models were trained on single texts and read the title
    /// before the text.
    fn encode_passages(&self, passages: &[(&str, &str)]) -> Result<Embeddings> {
        if self.encoder.reads_pairs() {
            let pairs: Vec<Text<'_>> = passages.iter().map(|(title, text)| Text::Pair(title, text)).collect();
            return self.vectors(&pairs);
        }
        let texts: Vec<String> = passages
            .iter()
            .map(
                |(title, text)| if title.is_empty() { (*text).to_owned() } else { format!("{title} {text}") },
            )
            .collect();
        self.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }
}
