//! An encoder with a head that predicts the relations between a document's entities.

use std::path::Path;

use candle_core::{DType, Tensor};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    docred::{Document, PredictedRelation},
    jsonl,
};
use sporran_transformers::{Batch, Checkpoint, DeviceName, Encoder, EncoderRow, Mode, Precision};

use super::{
    DocumentReader, PAIR_FEATURES,
    entity_head::{EntityDocument, EntityHead, EntityHeadConfig, EntityScores},
};
use crate::error::{Error, Result};

/// The file of a model's folder that describes the head.
pub const DOCUMENT_RELATIONS: &str = "document-relations.json";

/// The smallest share of a pair's attention for a sentence to be predicted as evidence (Ma et al., 2023).
const EVIDENCE: f32 = 0.2;

/// The contents of that file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DocumentOptions {
    /// The version of this file; 1.
    pub version: u32,
    /// The sizes of the head.
    pub head: EntityHeadConfig,
    /// The marker token before mentions of each type, and the one after mentions.
    pub markers: Vec<String>,
    /// The largest number of tokens in a window.
    pub max_tokens: usize,
    /// The properties in the order of the head's labels, sorted.
    pub labels: Vec<String>,
    /// A property is predicted if its logit is above this.
    pub threshold: f32,
}

impl DocumentOptions {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] for another version or inconsistent parts.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(DOCUMENT_RELATIONS);
        let options: Self = jsonl::read_json(&path)?;
        let wrong = |expected: String, found: String| {
            Err(Error::Model { what: path.display().to_string(), expected, found })
        };
        if options.version != Self::VERSION {
            return wrong(format!("version {}", Self::VERSION), options.version.to_string());
        }
        if options.head.labels != options.labels.len() || !options.labels.is_sorted() {
            return wrong(
                format!("{} labels in order", options.head.labels),
                options.labels.len().to_string(),
            );
        }
        if options.head.features != PAIR_FEATURES {
            return wrong(format!("{PAIR_FEATURES} features"), options.head.features.to_string());
        }
        Ok(options)
    }

    /// The contents of the file.
    ///
    /// # Errors
    /// None for a loaded value.
    pub fn json(&self) -> Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(|error| Error::Model {
            what: DOCUMENT_RELATIONS.into(),
            expected: "what JSON can hold".into(),
            found: error.to_string(),
        })?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// The output of a head for a document: the logits of every pair, and each pair's attention over sentences.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Logits, pair by pair.
    pub logits: Vec<f32>,
    /// Attention shares of sentences, pair by pair.
    pub shares: Vec<f32>,
}

impl Scored {
    /// Converts a head's tensors (pairs, labels) and (pairs, tokens).
    ///
    /// # Errors
    /// A tensor error.
    pub fn of(scores: &EntityScores, document: &EntityDocument) -> Result<Self> {
        let values = |tensor: &Tensor| tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
        let logits = values(&scores.logits).map_err(sporran_checkpoint::Error::from)?;
        let attention = values(&scores.attention).map_err(sporran_checkpoint::Error::from)?;
        let count = document.sentence_count();
        let mut shares = vec![0.0; document.pairs.len() * count];
        for (row, tokens) in attention.chunks_exact(document.sentences.len()).enumerate() {
            let shares = &mut shares[row * count..][..count];
            document.sentences.iter().zip(tokens).for_each(|(sentence, share)| shares[*sentence] += share);
        }
        Ok(Self { logits, shares })
    }
}

/// The model, with its tokenizer.
pub struct DocumentRelations {
    body: Box<dyn Encoder>,
    head: EntityHead,
    reader: DocumentReader,
    options: DocumentOptions,
}

impl DocumentRelations {
    /// Loads a folder.
    ///
    /// # Errors
    /// If it does not contain an encoder with an entity head.
    pub fn load(folder: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        let options = DocumentOptions::load(folder)?;
        let checkpoint = Checkpoint::open(folder)?;
        let body = checkpoint.encoder_on(device, precision)?.body;
        let head = EntityHead::open(folder, &options.head, body.device())?;
        let reader = DocumentReader::new(checkpoint.tokenizer()?, &options.markers, options.max_tokens)?;
        if options.max_tokens > body.max_input_length() {
            return Err(Error::Model {
                what: folder.join(DOCUMENT_RELATIONS).display().to_string(),
                expected: format!("at most {} tokens, as the encoder reads", body.max_input_length()),
                found: options.max_tokens.to_string(),
            });
        }
        Ok(Self { body, head, reader, options })
    }

    /// The relations of each document, ordered by subject, object and property. Documents with fewer than two
    /// entities have none.
    ///
    /// # Errors
    /// Errors of the tokenizer or the model.
    pub fn relations(&self, documents: &[Document]) -> Result<Vec<Vec<PredictedRelation>>> {
        let read: Vec<EntityDocument> =
            documents.par_iter().map(|document| self.reader.read(document)).collect::<Result<_>>()?;
        let each = documents.iter().zip(&read);
        each.map(|(document, read)| {
            if read.pairs.is_empty() {
                Ok(Vec::new())
            } else {
                Ok(self.stated(document, read, &self.score(read)?))
            }
        })
        .collect()
    }

    fn score(&self, document: &EntityDocument) -> Result<Scored> {
        let rows: Vec<&EncoderRow> = document.rows.iter().collect();
        let input = Batch::for_encoder(&rows, &*self.body)?;
        let tokens = rows.iter().enumerate();
        let tokens = tokens.flat_map(|(row, tokens)| (0..tokens.ids.len()).map(move |at| (row, at)));
        let tokens: Vec<(usize, usize)> = tokens.collect();
        let places: Vec<(usize, usize)> = document.places.iter().map(|place| tokens[*place]).collect();
        let states = self.body.states_at(&input, &places)?;
        let states = states.to_dtype(DType::F32).map_err(sporran_checkpoint::Error::from)?;
        Scored::of(&self.head.forward(&states, document, &mut Mode::Inference)?, document)
    }

    fn stated(&self, document: &Document, read: &EntityDocument, scored: &Scored) -> Vec<PredictedRelation> {
        let labels = &self.options.labels;
        let sentences = read.sentence_count();
        let mut found = Vec::new();
        for (at, pair) in read.pairs.iter().enumerate() {
            let logits = &scored.logits[at * labels.len()..][..labels.len()];
            let shares = &scored.shares[at * sentences..][..sentences];
            let evidence: Vec<usize> = shares
                .iter()
                .enumerate()
                .filter(|(_, share)| **share >= EVIDENCE)
                .map(|(at, _)| at)
                .collect();
            let stated = logits.iter().zip(labels).filter(|(logit, _)| **logit > self.options.threshold);
            found.extend(stated.map(|(logit, property)| PredictedRelation {
                title: document.title.clone(),
                head: pair.first as usize,
                tail: pair.second as usize,
                property: property.clone(),
                evidence: evidence.clone(),
                confidence: Some(1.0 / (1.0 + (self.options.threshold - logit).exp())),
            }));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document_relations::reading::tests::{document, reader};

    #[test]
    fn attention_is_summed_by_sentence() {
        let read = reader(128).read(&document()).unwrap();
        let device = candle_core::Device::Cpu;
        let attention: Vec<f32> = (0..6 * 17).map(|at| if at % 17 < 8 { 0.025 } else { 0.8 / 9.0 }).collect();
        let scores = EntityScores {
            logits: Tensor::zeros((6, 3), DType::F32, &device).unwrap(),
            attention: Tensor::from_vec(attention, (6, 17), &device).unwrap(),
        };
        let scored = Scored::of(&scores, &read).unwrap();
        assert_eq!(scored.logits.len(), 18);
        assert!(
            scored
                .shares
                .chunks(2)
                .all(|shares| (shares[0] - 0.2).abs() < 1e-6 && (shares[1] - 0.8).abs() < 1e-6)
        );
    }
}
