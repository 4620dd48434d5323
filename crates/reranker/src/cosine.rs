//! Similarity of vectors: the cosine of what an encoder makes of query and passage, each read by itself.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use candle_core::DType;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query};
use sporran_transformers::{
    Batch, Checkpoint, DeviceName, Encoder, EncoderInput, EncoderRow, Pooling, Precision, Sentences, Text,
    Truncation, each_batch, length_batches,
};

use crate::{Error, Reranker, Result, passage_text};

/// An encoder, and how it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CosineOptions {
    /// The model's folder: in the layout of sentence-transformers, or a bare encoder, whose states are averaged.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// Tokens of a text, at most: a query loses its beginning, so that the last turns of a dialogue stay, a passage its
    /// end.
    #[serde(default)]
    pub max_tokens: Option<usize>,
    /// The numbers that it computes with.
    #[serde(default)]
    pub precision: Precision,
    /// Where it computes.
    #[serde(default)]
    pub device: DeviceName,
    /// Tokens of a batch, padding included, at most.
    #[serde(default = "batch_tokens")]
    pub batch_tokens: usize,
}

fn batch_tokens() -> usize {
    4096
}

/// An encoder with its tokenizer and pooling.
pub struct Cosine {
    body: Box<dyn Encoder>,
    sentences: Sentences,
    queries: EncoderInput,
    passages: EncoderInput,
    batch_tokens: usize,
    /// The passages that were read last, and their vectors: they may be compared with something else next.
    last: Mutex<(Vec<String>, Vec<Vec<f32>>)>,
}

impl Cosine {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder that is not an encoder's, and [`Error::Option`] for empty batches.
    pub fn load(options: &CosineOptions) -> Result<Self> {
        if options.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        options.device.check(options.precision)?;
        let dtype = if options.device == DeviceName::Cpu { DType::F32 } else { options.precision.dtype()? };
        let sentences = match Sentences::open(&options.folder, dtype, &options.device.open()?)? {
            Some(sentences) => sentences,
            None => Sentences::plain(&options.folder, Pooling::Mean),
        };
        let checkpoint = Checkpoint::open(&sentences.encoder)?;
        let body = checkpoint.encoder_on(options.device, options.precision)?.body;
        let most = options.max_tokens.or(sentences.max_length);
        let input = |truncation| EncoderInput::open(&checkpoint, body.max_input_length(), most, truncation);
        let (queries, passages) = (input(Truncation::FirstAtItsStart)?, input(Truncation::LongestFirst)?);
        let (batch_tokens, last) = (options.batch_tokens, Mutex::default());
        Ok(Self { body, sentences, queries, passages, batch_tokens, last })
    }

    /// Vectors of length 1.
    fn vectors(&self, rows: &[EncoderRow]) -> Result<Vec<Vec<f32>>> {
        let lengths: Vec<usize> = rows.iter().map(|row| row.ids.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, self.batch_tokens);
        let parts = each_batch(self.body.device(), &batches, |batch| -> Result<Vec<Vec<f32>>> {
            let rows: Vec<&EncoderRow> = batch.iter().map(|&at| &rows[at]).collect();
            let input = Batch::for_encoder(&rows, &*self.body)?;
            let vectors = self.sentences.encode(&*self.body, &input)?;
            let values = || vectors.to_dtype(DType::F32)?.to_vec2();
            Ok(values().map_err(sporran_transformers::Error::from)?)
        })?;
        let mut found = vec![Vec::new(); rows.len()];
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, mut vector) in batch.iter().zip(part) {
                let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
                if length > 0.0 {
                    vector.iter_mut().for_each(|value| *value /= length);
                }
                found[at] = vector;
            }
        }
        Ok(found)
    }
}

/// The product of a vector with each of some.
fn products(vector: &[f32], others: &[Vec<f32>]) -> Vec<f32> {
    others.iter().map(|other| other.iter().zip(vector).map(|(a, b)| a * b).sum()).collect()
}

impl Cosine {
    fn of_passages(&self, passages: &[&Passage]) -> Result<Vec<Vec<f32>>> {
        let texts: Vec<String> = passages.iter().map(|passage| passage_text(passage)).collect();
        {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.0 == texts {
                return Ok(last.1.clone());
            }
        }
        let pairs: Vec<Text<'_>> = texts.iter().map(|text| Text::One(text)).collect();
        let vectors = self.vectors(&self.passages.rows(&pairs)?)?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (texts, vectors.clone());
        Ok(vectors)
    }
}

impl Reranker for Cosine {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let query = self.vectors(&self.queries.rows(&[Text::One(&query.text)])?)?;
        Ok(products(&query[0], &self.of_passages(passages)?))
    }

    fn centrality(&self, passages: &[&Passage]) -> Result<Vec<f32>> {
        let vectors = self.of_passages(passages)?;
        let mut mean = vec![0.0; vectors.first().map_or(0, Vec::len)];
        for vector in &vectors {
            mean.iter_mut().zip(vector).for_each(|(mean, value)| *mean += value / vectors.len() as f32);
        }
        Ok(products(&mean, &vectors))
    }
}
