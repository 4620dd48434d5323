//! The relation model of KnowledgeNet's baselines (Mesquita et al. 2019): a BiLSTM that reads a sentence once for each subject and
//! object.
//!
//! The inputs of a token are its word, and features 1 to 8 of the paper: the type of its mention, its distances to both mentions
//! and to those of their chains in words and in the dependency parse, and the confidence of coreference. The mixed layers of a
//! frozen encoder can be inputs too (Peters et al. 2018). Features 9 and 10, the types of both links and the properties
//! between them, are joined to the pooled output of the LSTM.
//!
//! Words are pretrained vectors, or hashed embeddings that are trained from scratch. Features 3, 4, 7 and 8 need dependency parses,
//! which the documents bring ([`Parses`](crate::Parses)).

mod encoder;
mod features;
mod network;
mod options;
mod reading;
mod shape;
mod train;
mod vectors;
mod weights;

use std::{collections::HashMap, path::Path, sync::Arc};

use candle_core::{Device, Tensor};
use sporran_checkpoint::stored_values;
use sporran_transformers::{DeviceName, PackedBiLstm, Precision};

pub use encoder::{LAYERS, LayerEncoder};
pub use network::{PairBatches, RelationNetwork, RelationObjective};
pub use options::{BilstmTraining, Positives, Selection};
pub use reading::{BilstmReader, ReadSentence, RelationExample};
pub use shape::{
    BILSTM, BilstmFile, BilstmShape, Directions, EncoderWords, KnownValues, Pairing, Pieces, Pooling,
};
pub use vectors::Vectors;

use super::{Candidates, Properties, RelationInput, RelationModel, Scores, Thresholds};
use crate::error::{Error, Result};
use weights::{LSTM, Picked, Weights};

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
        let vectors = file.vectors.map(|width| Vectors::load(folder, width)).transpose()?.map(Arc::new);
        let unfit = |error| Error::unfit(&folder.join(BILSTM), |_, _, _| "shape", error);
        let lstm = PackedBiLstm::open(file.lstm(), LSTM, &tensors).map_err(unfit)?;
        let take = |name: &str, shape: &[usize]| stored_values(&tensors, name, shape);
        let weights = Weights::new(Arc::new(file.clone()), vectors.clone(), take).map_err(unfit)?;
        Ok(Self { reader: BilstmReader::new(&file, vectors), file, weights, lstm, encoder })
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
            let read: Vec<Picked<'_>> = sentences.iter().map(Picked::all).collect();
            let logits = self.weights.logits(&self.lstm, &read)?;
            for ((input, sentence), logits) in portion.iter().zip(&sentences).zip(logits) {
                scores.push(self.reader.scores(*input, sentence, &logits));
            }
        }
        Ok(scores)
    }

    fn decided(&self, scores: Scores, candidates: &Candidates) -> Scores {
        match self.file.directions {
            Directions::Independent => scores,
            Directions::Joint => scores.joint(&candidates.pairs, self.properties()),
        }
    }
}

#[cfg(test)]
mod tests;
