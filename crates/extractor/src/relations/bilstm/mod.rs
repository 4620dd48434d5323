//! The relation model of KnowledgeNet's baselines (Mesquita et al. 2019): a BiLSTM over the tokens around two
//! mentions.
//!
//! The features of a token are its word, the class of its mention, its distances to both mentions, and the
//! confidence and distance of coreference and links. They also include the types of possible entities, and
//! the properties of a knowledge base between both. Words are hashed embeddings trained from scratch, or the
//! mixed layers of a frozen encoder (Peters et al. 2018).
//!
//! The paper has two features of the dependency path between the mentions. There is no parser here, so
//! substitutes are the number of tokens and of mentions between the two, and whether a token is between them.
//! The paper reads a sentence once for each ordered pair. Here two mentions are read once, with outputs for
//! both directions.

mod encoder;
mod layout;
mod network;
mod options;
mod reading;
mod shape;
mod train;
mod weights;

use std::{collections::HashMap, path::Path};

use candle_core::{Device, Tensor};
use sporran_checkpoint::stored_values;
use sporran_transformers::{DeviceName, PackedBiLstm, Precision};

pub use encoder::{LAYERS, LayerEncoder};
pub use network::{RelationNetwork, RelationObjective};
pub use options::BilstmTraining;
pub use reading::{BilstmReader, ReadSentence, RelationExample};
pub use shape::{BILSTM, BilstmFile, BilstmShape, EncoderWords, Pairing, Pooling};

use super::{Properties, RelationInput, RelationModel, Scores, Thresholds};
use crate::error::{Error, Result};
use weights::{LSTM, Sizes, Weights};

/// The number of sentences whose word vectors are in memory at once.
const PORTION: usize = 64;

/// The model for inference.
pub struct BilstmRelations {
    file: BilstmFile,
    reader: BilstmReader,
    weights: Weights,
    lstm: PackedBiLstm,
    encoder: Option<LayerEncoder>,
}

impl BilstmRelations {
    /// Loads a folder. Device and precision are those of its encoder.
    ///
    /// # Errors
    /// A missing or wrong file; inconsistent parts.
    pub fn load(folder: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        let file = BilstmFile::load(folder)?;
        let path = folder.join("model.safetensors");
        let tensors: HashMap<String, Tensor> = candle_core::safetensors::load(&path, &Device::Cpu)
            .map_err(|source| Error::Weights { path, source: Box::new(source) })?;
        let encoder = match &file.encoder {
            Some(words) => {
                let encoder = LayerEncoder::open(&folder.join(LAYERS), device, precision)?;
                if encoder.words() != words {
                    return Err(Error::Model {
                        what: folder.join(LAYERS).display().to_string(),
                        expected: format!("{words:?}"),
                        found: format!("{:?}", encoder.words()),
                    });
                }
                Some(encoder)
            }
            None => None,
        };
        let (shape, labels) = (file.shape.clone(), file.properties.len());
        let unfit = |error| Error::unfit(&folder.join(BILSTM), |_, _, _| "shape", error);
        let lstm = PackedBiLstm::open(shape.lstm(encoder.is_some()), LSTM, &tensors).map_err(unfit)?;
        let sizes = Sizes { shape, encoder: file.encoder.clone(), labels };
        let weights =
            Weights::new(sizes, |name, shape| stored_values(&tensors, name, shape)).map_err(unfit)?;
        Ok(Self { reader: BilstmReader::new(&file), file, weights, lstm, encoder })
    }
}

impl RelationModel for BilstmRelations {
    fn properties(&self) -> &Properties {
        &self.file.properties
    }

    fn thresholds(&self) -> &Thresholds {
        &self.file.thresholds
    }

    fn link_thresholds(&self) -> Option<&Thresholds> {
        Some(&self.file.link_thresholds)
    }

    fn score(&self, inputs: &[RelationInput<'_>]) -> Result<Vec<Scores>> {
        let mut scores = Vec::with_capacity(inputs.len());
        for portion in inputs.chunks(PORTION) {
            let sentences = self.reader.sentences(portion, self.encoder.as_ref())?;
            let read: Vec<&ReadSentence> = sentences.iter().collect();
            let logits = self.weights.logits(&self.lstm, &read)?;
            for ((input, sentence), logits) in portion.iter().zip(read).zip(logits) {
                scores.push(self.reader.scores(*input, sentence, &logits));
            }
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests;
