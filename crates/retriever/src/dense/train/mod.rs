//! The training of a bi-encoder on queries with positive passages, hard negatives and in-batch negatives.

mod live;
mod objective;

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_kilt::{
    contrast::{ContrastExample, TitledText},
    observe::Observer,
};
use sporran_training::{
    EvaluationError, TrainingOptions, ValidationList, mean_reciprocal_rank,
    session::{ContrastTraining, EncoderSession, Evaluate, Trained},
};
use sporran_transformers::{
    BertTask, DeviceName, EncoderInput, EncoderRow, ModelType, Pooling, Precision, Text, Truncation,
    wrong_model_type,
};

pub use live::LiveDense;

use self::objective::{Contrast, ContrastOptions, ContrastPassage, ContrastiveObjective};
use super::{
    Similarity,
    sentence_layout::{SentenceLayout, SentencePrompts, vectors_of},
};
use crate::{Result, training::RetrieverTrainingKind};

/// `kind = "bi-encoder"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BiEncoderTraining {
    /// The folder of the initial encoder: BERT, RoBERTa, or another that the table of models says can be trained.
    pub from: PathBuf,
    /// The folder of the trained model, in the layout of sentence-transformers.
    pub model: PathBuf,
    /// The number of hard negatives of a query, sampled in each epoch.
    #[serde(default = "negatives")]
    pub negatives: usize,
    /// The largest number of tokens of a text. The default is that of the folder `from`.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
    /// The truncation of a text that is too long.
    #[serde(default)]
    pub truncation: Truncation,
    /// The pooling of hidden states, `mean` or `cls`. The default is the pooling of the folder `from` if it has exactly one,
    /// else `mean`.
    pub pooling: Option<Pooling>,
    /// The similarity of vectors, `cosine` or `inner-product`. The default is that of the folder `from`, else `cosine`.
    pub similarity: Option<Similarity>,
    /// The factor of similarities before the softmax. The default is 20 for the cosine and 1 for the inner product.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub scale: Option<f64>,
    /// `[encoder-training.optimizer]`: epochs, batches, learning rate.
    #[serde(default)]
    pub optimizer: TrainingOptions,
    /// The device of the training: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
}

fn negatives() -> usize {
    4
}

impl BiEncoderTraining {
    fn session<'a>(&'a self, training: &ContrastTraining<'a>) -> EncoderSession<'a> {
        EncoderSession {
            from: &self.from,
            model: &self.model,
            checkpoints: training.checkpoints,
            seed: training.seed,
            max_tokens: self.max_tokens,
            truncation: self.truncation,
            optimizer: &self.optimizer,
            device: self.device,
        }
    }
}

impl RetrieverTrainingKind for BiEncoderTraining {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        let from = format!("{key}.from");
        document.check_checkpoint(&from, &self.from);
        if let Some(message) = wrong_model_type(&self.from, ModelType::ENCODERS, &[]) {
            document.report_key(&from, message);
        }
        if self.similarity.is_some_and(Similarity::is_distance) {
            let message = "expected `cosine` or `inner-product`, found a distance";
            document.report_key(&format!("{key}.similarity"), message);
        }
        if let Err(error) = self.device.check(Precision::F32) {
            document.report_key(&format!("{key}.device"), error.to_string());
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&format!("{key}.optimizer"), error.to_string());
        }
    }

    fn model(&self) -> &Path {
        &self.model
    }

    /// Trains with in-batch negatives and hard negatives. Writes the layout of sentence-transformers.
    fn train(&self, training: ContrastTraining<'_>, observe: &mut Observer<'_>) -> Result<Trained> {
        let session = self.session(&training);
        // An encoder without a head has no labels, but its config requires some.
        let initial = session.open(BertTask::States, 2)?;
        let (encoder, input) = (&initial.encoder, &initial.input);
        let (pooling, similarity) = match (self.pooling, self.similarity) {
            (Some(pooling), Some(similarity)) => (pooling, similarity),
            (pooling, similarity) => {
                let default = vectors_of(&self.from)?;
                (pooling.unwrap_or(default.0), similarity.unwrap_or(default.1))
            }
        };
        let prompts = SentencePrompts::of(&self.from)?;
        let contrast = ContrastOptions {
            pooling,
            cosine: similarity == Similarity::Cosine,
            scale: self.scale.unwrap_or(match similarity {
                Similarity::Cosine => 20.0,
                _ => 1.0,
            }),
            negatives: self.negatives,
        };
        let contrasts = contrasts(input, &prompts, training.examples)?;
        let objective = ContrastiveObjective::new(encoder, contrasts, contrast, session.optimizer)?;
        let lists = training
            .validation
            .iter()
            .map(|example| list(input, &prompts, example))
            .collect::<Result<Vec<ValidationList>>>()?;
        let evaluate = || {
            mean_reciprocal_rank(&lists, |rows| {
                let vectors = contrast.encode(encoder, rows, session.optimizer.tokens_per_batch)?;
                let near = |vector: &Vec<f32>| vectors[0].iter().zip(vector).map(|(a, b)| a * b).sum();
                Ok(vectors[1..].iter().map(near).collect())
            })
            .map_err(EvaluationError::from)
        };
        let evaluate = (!lists.is_empty()).then_some(&evaluate as Evaluate<'_>);
        let width = encoder.config().hidden_size();
        let layout = SentenceLayout { pooling, similarity, width, prompts };
        session.run(&initial, &objective, evaluate, |folder| layout.write(folder), observe)
    }
}

/// The row of a text.
fn row(input: &EncoderInput, text: &str) -> Result<EncoderRow> {
    // One text has one row.
    Ok(input.rows(&[Text::One(text)])?.swap_remove(0))
}

fn contrasts(
    input: &EncoderInput,
    prompts: &SentencePrompts,
    examples: Vec<ContrastExample>,
) -> Result<Vec<Contrast>> {
    let mut keys: FxHashMap<String, u64> = FxHashMap::default();
    let mut passage = |passage: &TitledText| -> Result<ContrastPassage> {
        let text = passage.joined();
        let row = row(input, &prompts.before_passage(&text))?;
        let next = keys.len() as u64;
        Ok(ContrastPassage { row, key: *keys.entry(text).or_insert(next) })
    };
    let mut contrasts = Vec::new();
    for example in examples {
        let negatives: Vec<ContrastPassage> =
            example.negatives.iter().map(&mut passage).collect::<Result<_>>()?;
        // Each positive passage makes one example.
        for positive in &example.positives {
            let positive = passage(positive)?;
            let negatives = negatives.iter().filter(|other| other.key != positive.key).cloned().collect();
            let query = row(input, &prompts.before_query(&example.query))?;
            contrasts.push(Contrast { query, positive, negatives });
        }
    }
    Ok(contrasts)
}

/// The rows of a query, and of its passages.
fn list(
    input: &EncoderInput,
    prompts: &SentencePrompts,
    example: &ContrastExample,
) -> Result<ValidationList> {
    let mut rows = vec![row(input, &prompts.before_query(&example.query))?];
    for passage in example.passages() {
        rows.push(row(input, &prompts.before_passage(&passage.joined()))?);
    }
    Ok(ValidationList { rows, positives: example.positives.len() })
}
