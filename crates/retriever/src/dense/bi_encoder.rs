//! A transformer that gives every text a vector of its own (Karpukhin et al. 2020; Reimers and Gurevych 2019).

use std::path::PathBuf;

use sporran_checkpoint::Role;
use sporran_transformers::{
    DeviceName, EncoderRow, Pooling, Precision, Text, TextEncoder, TextEncoderOptions, Truncation,
};

use super::{Embeddings, Encoder};
use crate::{Error, Result};

/// What is put before every text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Prompt {
    /// The folder's default prompt, where it has one.
    #[default]
    Default,
    /// The folder's prompt for texts of a role.
    Role(Role),
    /// The folder's prompt of this name.
    Named(String),
    /// This text, such as `query: `; nothing where it is empty.
    Text(String),
}

/// A model, and how it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct BiEncoderOptions {
    /// The model's folder: in the layout of sentence-transformers, of DPR, or a bare encoder with `pooling`.
    pub folder: PathBuf,
    /// How states become a vector, in the place of what the folder says. A folder's layers after the pooling stay,
    /// DPR's projection does not.
    pub pooling: Option<Pooling>,
    /// How many values of a vector are kept, from the first on; by default as many as the folder says.
    pub dimensions: Option<usize>,
    /// What is put before every text.
    pub prompt: Prompt,
    /// Tokens of an input, at most; the rest is cut. By default as many as the folder says.
    pub max_tokens: Option<usize>,
    /// How the weights are kept.
    pub precision: Precision,
    /// Where it computes.
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most; a longer input is a batch of its own.
    pub batch_tokens: usize,
}

impl BiEncoderOptions {
    /// A folder's model as the folder says, 4,096 tokens a batch.
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
    /// [`Error::Transformers`] for a folder that is not an encoder's and for a prompt that it does not have, and
    /// [`Error::Pooling`] where neither it nor the options say how states become vectors; [`Error::Option`] for empty
    /// batches.
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
        let encoder = match &options.prompt {
            Prompt::Default => encoder,
            Prompt::Role(role) => encoder.for_role(*role)?,
            Prompt::Text(text) => encoder.with_prompt(text)?,
            Prompt::Named(name) => {
                let settings = encoder.settings().cloned().unwrap_or_default();
                encoder.with_prompt(settings.named_prompt(name)?)?
            }
        };
        Ok(Self { encoder })
    }

    /// The same model, whose weights are shared, with another text before each input: models that tell queries from
    /// passages by what stands before them need two.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn with_prompt(&self, prompt: &str) -> Result<Self> {
        Ok(Self { encoder: self.encoder.with_prompt(prompt)? })
    }

    /// The tokens of texts, as the model reads them.
    ///
    /// # Errors
    /// Where the tokenizer fails.
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

    /// DPR reads title and text as a pair; other models were trained on the text alone and read the title before it.
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
