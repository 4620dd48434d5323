//! The cosine of the vectors of a query and a passage. An encoder computes each vector separately.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Role;
use sporran_kilt::{Passage, Query};
use sporran_transformers::{
    DeviceName, Pooling, Precision, Text, TextEncoder, TextEncoderOptions, Truncation,
};

use crate::{Error, Reranker, Result, Saved, passage_text};

/// `kind = "cosine"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CosineOptions {
    /// The model's folder: a reranker of this kind, a model of sentence-transformers, or an encoder, whose hidden states
    /// are averaged.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// The largest number of tokens of a text. A query loses its beginning, so that the last turns of a dialogue remain; a
    /// passage loses its end. The default is the folder's.
    #[serde(default)]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The data type of the weights: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn batch_tokens() -> usize {
    4096
}

/// An encoder of queries and passages, with the folder's prompt for each role.
pub struct Cosine {
    queries: TextEncoder,
    passages: TextEncoder,
    /// The passages of the last call and their vectors. The next call often has the same passages.
    last: Mutex<(Vec<String>, Vec<Vec<f32>>)>,
}

impl Cosine {
    /// Loads a folder.
    ///
    /// # Errors
    /// [`Error::Transformers`] for a folder without an encoder, and [`Error::Option`] for empty batches.
    pub fn load(options: &CosineOptions) -> Result<Self> {
        if options.batch_tokens == 0 {
            return Err(Error::Option { option: "batch-tokens", expected: "at least 1", found: "0".into() });
        }
        // A folder without `reranker.json` can have any encoder.
        let max_tokens = match Saved::read(&options.folder)? {
            Saved::Cosine { max_tokens } => options.max_tokens.or(max_tokens),
            _ => options.max_tokens,
        };
        let encoder = TextEncoder::load(&TextEncoderOptions {
            fallback: Some(Pooling::Mean),
            max_tokens,
            precision: options.precision,
            device: options.device,
            batch_tokens: options.batch_tokens,
            ..TextEncoderOptions::new(options.folder.clone())
        })?;
        // With a fallback pooling, `load` always returns an encoder.
        let encoder = encoder.ok_or_else(|| Error::Option {
            option: "model",
            expected: "an encoder",
            found: options.folder.display().to_string(),
        })?;
        let queries = encoder.for_role(Role::Query)?.with_truncation(Truncation::FirstAtItsStart);
        Ok(Self { queries, passages: encoder.for_role(Role::Passage)?, last: Mutex::default() })
    }
}

/// The unit vectors of texts.
fn vectors(encoder: &TextEncoder, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
    let texts: Vec<Text<'_>> = texts.iter().map(|text| Text::One(text)).collect();
    let values = encoder.encode(&texts)?;
    let unit = |vector: &[f32]| {
        let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
        vector.iter().map(|value| if length > 0.0 { value / length } else { *value }).collect()
    };
    Ok(values.chunks_exact(encoder.width()).map(unit).collect())
}

/// The dot product of a vector with each of the others.
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
        let vectors = vectors(&self.passages, &texts.iter().map(String::as_str).collect::<Vec<_>>())?;
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (texts, vectors.clone());
        Ok(vectors)
    }
}

impl Reranker for Cosine {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let query = vectors(&self.queries, &[&query.text])?;
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
