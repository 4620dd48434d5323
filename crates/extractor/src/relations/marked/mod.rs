//! An encoder that reads a sentence with all mentions marked and predicts the relations between them.

mod examples;
mod options;
mod train;

use std::path::Path;

use candle_core::DType;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Tokenizer;
use sporran_kilt::jsonl;
use sporran_transformers::{
    Batch, Checkpoint, DeviceName, Encoder, EncoderRow, Mode, PairHead, PairHeadConfig, Precision, StatePair,
    each_batch, length_batches,
};

pub use examples::pair_examples;
pub use options::{FreshEncoder, MarkedTraining};
pub(super) use train::MarkedTrainer;

use super::{
    FEATURES, Properties, RelationInput, RelationModel, Scores, Thresholds,
    marking::{Marked, Markers, Marking},
};
use crate::{
    Mention,
    error::{Error, Result},
};

/// The file of a model's folder that describes the head.
pub const MARKED: &str = "relations.json";

/// The contents of that file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MarkedOptions {
    /// The version of this file; 1.
    pub version: u32,
    /// The sizes of the pair head.
    pub head: PairHeadConfig,
    /// The marker tokens around mentions.
    pub markers: Marking,
    /// The largest number of tokens of a sentence with its markers.
    pub max_tokens: usize,
    /// The possible properties, in the order of the head's labels.
    pub properties: Properties,
    /// A property is predicted from this probability on.
    pub thresholds: Thresholds,
}

impl MarkedOptions {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] for another version or inconsistent parts.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(MARKED);
        let options: Self = jsonl::read_json(&path)?;
        let wrong = |expected: String, found: String| {
            Err(Error::Model { what: path.display().to_string(), expected, found })
        };
        if options.version != Self::VERSION {
            return wrong(format!("version {}", Self::VERSION), options.version.to_string());
        }
        let labels = options.properties.len();
        if options.head.labels != labels || options.thresholds.all().len() != labels {
            let found = format!("{} and {}", options.head.labels, options.thresholds.all().len());
            return wrong(format!("{labels} labels and thresholds, one a property"), found);
        }
        if options.head.features != FEATURES {
            return wrong(format!("{FEATURES} features"), options.head.features.to_string());
        }
        if options.max_tokens < 4 {
            return wrong("at least 4 tokens".into(), options.max_tokens.to_string());
        }
        Ok(options)
    }

    /// Writes the file into a folder.
    ///
    /// # Errors
    /// Write errors.
    pub fn save(&self, folder: &Path) -> Result<()> {
        Ok(jsonl::write(folder.join(MARKED), &self.bytes())?)
    }

    /// The contents of the file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // Structs of strings and numbers are always valid JSON.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }
}

/// The model, with its tokenizer.
pub struct MarkedEntities {
    body: Box<dyn Encoder>,
    head: PairHead,
    tokenizer: Tokenizer,
    markers: Markers,
    options: MarkedOptions,
}

/// The number of tokens in a batch, padding included.
const BATCH: usize = 2048;

impl MarkedEntities {
    /// Loads a folder.
    ///
    /// # Errors
    /// If it does not contain an encoder with a pair head.
    pub fn load(folder: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        let options = MarkedOptions::load(folder)?;
        let checkpoint = Checkpoint::open(folder)?;
        let body = checkpoint.encoder_on(device, precision)?.body;
        let head = PairHead::open(folder, &options.head, body.device())?;
        let tokenizer = checkpoint.tokenizer()?;
        let markers = options.markers.markers(&tokenizer)?;
        if options.max_tokens > body.max_input_length() {
            return Err(Error::Model {
                what: folder.join(MARKED).display().to_string(),
                expected: format!("at most {} tokens, as the encoder reads", body.max_input_length()),
                found: options.max_tokens.to_string(),
            });
        }
        Ok(Self { body, head, tokenizer, markers, options })
    }

    fn batch(&self, batch: &[usize], inputs: &[RelationInput<'_>], marked: &[Marked]) -> Result<Vec<Scores>> {
        let labels = self.options.properties.len();
        let rows: Vec<&EncoderRow> = batch.iter().map(|&at| &marked[at].row).collect();
        let input = Batch::for_encoder(&rows, &*self.body)?;
        let (mut places, mut pairs, mut known) = (Vec::new(), Vec::new(), Vec::new());
        for (row, &at) in batch.iter().enumerate() {
            let before = places.len() as u32;
            let marks = &marked[at].marks;
            places.extend(marks.iter().map(|&mark| (row, mark)));
            let is_read = |pair: &&StatePair| (pair.first.max(pair.second) as usize) < marks.len();
            let read: Vec<bool> = inputs[at].2.pairs.iter().map(|pair| is_read(&pair)).collect();
            pairs.extend(inputs[at].2.pairs.iter().filter(is_read).map(|pair| StatePair {
                first: before + pair.first,
                second: before + pair.second,
                features: pair.features.clone(),
            }));
            known.push(read);
        }
        let mut probabilities = Vec::new();
        if !pairs.is_empty() {
            let states = self.body.states_at(&input, &places)?;
            let states = states.to_dtype(DType::F32).map_err(sporran_checkpoint::Error::from)?;
            let logits = self.head.forward(&states, &pairs, &mut Mode::Inference)?;
            let logits = || logits.flatten_all()?.to_vec1::<f32>();
            probabilities = logits().map_err(sporran_checkpoint::Error::from)?;
        }
        let mut rest = probabilities.chunks_exact(labels.max(1));
        let scores = known.into_iter().map(|read: Vec<bool>| {
            let mut values = Vec::with_capacity(read.len() * labels);
            for read in read {
                // Only pairs within the input length have logits.
                match if read { rest.next() } else { None } {
                    Some(logits) => values.extend(logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp()))),
                    None => values.extend(std::iter::repeat_n(0.0, labels)),
                }
            }
            Scores::new(labels, values)
        });
        Ok(scores.collect())
    }
}

impl RelationModel for MarkedEntities {
    fn properties(&self) -> &Properties {
        &self.options.properties
    }

    fn thresholds(&self) -> &Thresholds {
        &self.options.thresholds
    }

    /// Mentions beyond the encoder's input length have probability 0.
    fn score(&self, inputs: &[RelationInput<'_>]) -> Result<Vec<Scores>> {
        let marked: Vec<Marked> = inputs
            .par_iter()
            .map(|input| mark(&self.tokenizer, &self.markers, *input, self.options.max_tokens))
            .collect::<Result<_>>()?;
        let lengths: Vec<usize> = marked.iter().map(|marked| marked.row.ids.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, BATCH);
        let parts = each_batch(self.body.device(), &batches, |batch| self.batch(batch, inputs, &marked))?;
        let mut scores: Vec<Scores> = vec![Scores::default(); inputs.len()];
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, found) in batch.iter().zip(part) {
                scores[at] = found;
            }
        }
        Ok(scores)
    }
}

/// A sentence with its mentions marked.
fn mark(
    tokenizer: &Tokenizer,
    markers: &Markers,
    (document, mentions, candidates): RelationInput<'_>,
    max_tokens: usize,
) -> Result<Marked> {
    let own: Vec<&Mention> = candidates.mentions.iter().map(|&at| &mentions[at]).collect();
    let span = document.sentences[candidates.sentence].span;
    markers.mark(tokenizer, document, span, &own, max_tokens)
}
