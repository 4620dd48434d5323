//! A transformer that gives every text a vector of its own (Karpukhin et al. 2020; Reimers and Gurevych 2019).

use std::{path::PathBuf, sync::Arc};

use candle_core::DType;
use sporran_transformers::{
    Batch, Checkpoint, DeviceName, Encoder as Body, EncoderInput, EncoderRow, Head, Pooling, Precision,
    Sentences, Text, Truncation, VectorHead, each_batch, length_batches,
};

use super::{Embeddings, Encoder};
use crate::{Error, Result};

/// A model, and how it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct BiEncoderOptions {
    /// The model's folder: in the layout of sentence-transformers, of DPR, or a bare encoder with `pooling`.
    pub folder: PathBuf,
    /// How states become a vector, in the place of what the folder says. A folder's layers after the pooling stay,
    /// DPR's projection does not.
    pub pooling: Option<Pooling>,
    /// What is put before every text, such as `query: `; by default the folder's own prompt.
    pub prefix: Option<String>,
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
            prefix: None,
            max_tokens: None,
            precision: Precision::F32,
            device: DeviceName::Cpu,
            batch_tokens: 4096,
        }
    }
}

/// How the states of a batch become vectors.
enum Reduction {
    /// DPR's way: the first token, projected where the model has a projection.
    Dpr(VectorHead),
    /// Pooling, and what the folder does with its result.
    Sentences(Sentences),
}

/// An encoder with its tokenizer.
#[derive(Clone)]
pub struct BiEncoder {
    body: Arc<dyn Body>,
    reduction: Arc<Reduction>,
    input: Arc<EncoderInput>,
    prefix: String,
    lowercase: bool,
    batch_tokens: usize,
    dim: usize,
}

impl BiEncoder {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder that is not an encoder's, and [`Error::Pooling`] where neither it nor the
    /// options say how states become vectors; [`Error::Option`] for empty batches.
    pub fn load(options: &BiEncoderOptions) -> Result<Self> {
        if options.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        options.device.check(options.precision)?;
        // What follows the encoder takes its states as they are, which a packed encoder gives in f32.
        let dtype = if options.device == DeviceName::Cpu { DType::F32 } else { options.precision.dtype()? };
        let sentences = Sentences::open(&options.folder, dtype, &options.device.open()?)?;
        let folder = sentences.as_ref().map_or(&options.folder, |sentences| &sentences.encoder);
        let checkpoint = Checkpoint::open(folder)?;
        let model = checkpoint.encoder_on(options.device, options.precision)?;
        let (most, prompt, lowercase) = match &sentences {
            Some(found) => (found.max_length, found.prompt.clone(), found.lowercase),
            None => (None, String::new(), false),
        };
        let reduction = match (options.pooling, sentences, model.head) {
            (Some(pooling), Some(sentences), _) => Reduction::Sentences(sentences.with_pooling(pooling)?),
            (None, Some(sentences), _) => Reduction::Sentences(sentences),
            (Some(pooling), None, _) => Reduction::Sentences(Sentences::plain(&options.folder, pooling)),
            (None, None, Head::Vector(head)) => Reduction::Dpr(head),
            (None, None, _) => return Err(Error::Pooling { folder: options.folder.clone() }),
        };
        let most = options.max_tokens.or(most);
        let input =
            EncoderInput::open(&checkpoint, model.body.max_input_length(), most, Truncation::AroundMention)?;
        let dim = match &reduction {
            Reduction::Dpr(head) => head.width(),
            Reduction::Sentences(sentences) => sentences.width(model.body.width()),
        };
        Ok(Self {
            body: model.body.into(),
            reduction: Arc::new(reduction),
            input: Arc::new(input),
            prefix: options.prefix.clone().unwrap_or(prompt),
            lowercase,
            batch_tokens: options.batch_tokens,
            dim,
        })
    }

    /// The same model, whose weights are shared, with another prefix: models that tell queries from passages by what
    /// stands before them need two.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self { prefix: prefix.into(), ..self.clone() }
    }

    /// A text as the tokenizer gets it.
    fn dressed(&self, text: &str) -> String {
        let text = format!("{}{text}", self.prefix);
        if self.lowercase { text.to_lowercase() } else { text }
    }

    /// The tokens of texts, as the model reads them.
    ///
    /// # Errors
    /// Where the tokenizer fails.
    pub fn rows(&self, texts: &[&str]) -> Result<Vec<EncoderRow>> {
        let texts: Vec<String> = texts.iter().map(|text| self.dressed(text)).collect();
        Ok(self.input.rows(&texts.iter().map(|text| Text::One(text)).collect::<Vec<_>>())?)
    }

    fn vectors(&self, texts: &[Text<'_>]) -> Result<Embeddings> {
        let rows = self.input.rows(texts)?;
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, self.batch_tokens);
        let parts = each_batch(self.body.device(), &batches, |batch| self.batch(batch, &rows))?;
        let mut values = vec![0.0; texts.len() * self.dim];
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, vector) in batch.iter().zip(part.chunks_exact(self.dim)) {
                values[at * self.dim..][..self.dim].copy_from_slice(vector);
            }
        }
        Embeddings::new(self.dim, values)
    }

    fn batch(&self, batch: &[usize], rows: &[EncoderRow]) -> Result<Vec<f32>> {
        let rows: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
        let input = Batch::for_encoder(&rows, &*self.body)?;
        let vectors = match &*self.reduction {
            Reduction::Dpr(head) => head.forward(&self.body.first_states(&input)?)?,
            Reduction::Sentences(sentences) => sentences.encode(&*self.body, &input)?,
        };
        let values = || vectors.to_dtype(DType::F32)?.flatten_all()?.to_vec1();
        Ok(values().map_err(sporran_transformers::Error::from)?)
    }
}

impl Encoder for BiEncoder {
    fn dim(&self) -> usize {
        self.dim
    }

    fn encode(&self, texts: &[&str]) -> Result<Embeddings> {
        let texts: Vec<String> = texts.iter().map(|text| self.dressed(text)).collect();
        let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::One(text)).collect();
        self.vectors(&texts)
    }

    /// DPR reads title and text as a pair; other models were trained on the text alone and read the title before it.
    fn encode_passages(&self, passages: &[(&str, &str)]) -> Result<Embeddings> {
        if let Reduction::Dpr(_) = *self.reduction {
            let titles: Vec<String> = passages.iter().map(|(title, _)| self.dressed(title)).collect();
            let pairs: Vec<Text<'_>> =
                titles.iter().zip(passages).map(|(title, (_, text))| Text::Pair(title, text)).collect();
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
