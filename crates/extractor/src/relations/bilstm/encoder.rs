//! Words as the hidden states of all layers of a frozen encoder.

use std::path::Path;

use sporran_transformers::{
    Batch, Checkpoint, DeviceName, Encoder, EncoderRow, ModelConfig, Precision, WordInput, WordRow,
    each_batch, length_batches,
};

use super::{EncoderWords, Pieces};
use crate::error::{Error, Result};

/// The encoder's folder, inside the model's.
pub const LAYERS: &str = "encoder";
/// The largest number of tokens in a window; longer sentences are read in several.
const WINDOW: usize = 256;
/// The number of tokens in a batch, padding included.
const BATCH: usize = 2048;

/// An encoder whose layers are inputs of the model.
pub struct LayerEncoder {
    body: Box<dyn Encoder>,
    input: WordInput,
    words: EncoderWords,
}

impl LayerEncoder {
    /// Opens a folder.
    ///
    /// # Errors
    /// If it does not contain an encoder.
    pub fn open(folder: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        let checkpoint = Checkpoint::open(folder)?;
        let ModelConfig::Bert(config) = checkpoint.config() else {
            return Err(Error::Model {
                what: folder.join("config.json").display().to_string(),
                expected: "an encoder (BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, MPNet, ELECTRA, ALBERT or DeBERTa)".into(),
                found: checkpoint.config().model_type().into(),
            });
        };
        let words = EncoderWords {
            layers: config.num_hidden_layers,
            width: config.hidden_size,
            pieces: Pieces::Mean,
        };
        let body = checkpoint.encoder_on(device, precision)?.body;
        let input = WordInput::new(checkpoint.tokenizer()?, WINDOW.min(body.max_input_length()), false)?;
        Ok(Self { body, input, words })
    }

    /// The number and width of its layers.
    #[must_use]
    pub fn words(&self) -> &EncoderWords {
        &self.words
    }

    /// For each sentence the hidden states of the words, (words, layers, width): the means over their pieces.
    ///
    /// # Errors
    /// Errors of the tokenizer or the encoder.
    pub fn layers(&self, sentences: &[Vec<&str>]) -> Result<Vec<Vec<f32>>> {
        let mut windows: Vec<(usize, WordRow)> = Vec::new();
        for (at, words) in sentences.iter().enumerate() {
            windows.extend(self.input.rows(words)?.into_iter().map(|window| (at, window)));
        }
        let lengths: Vec<usize> = windows.iter().map(|(_, window)| window.row.ids.len()).collect();
        let batches = length_batches(&lengths, usize::MAX, BATCH);
        let parts = each_batch(self.body.device(), &batches, |batch| {
            let members: Vec<&WordRow> = batch.iter().map(|&at| &windows[at].1).collect();
            self.batch(&members)
        })?;
        let mut states: Vec<Vec<f32>> = vec![Vec::new(); windows.len()];
        for (batch, part) in batches.iter().zip(parts) {
            for (&at, found) in batch.iter().zip(part) {
                states[at] = found;
            }
        }
        let mut found: Vec<Vec<f32>> = vec![Vec::new(); sentences.len()];
        for ((at, _), states) in windows.into_iter().zip(states) {
            found[at].extend(states);
        }
        Ok(found)
    }

    fn batch(&self, windows: &[&WordRow]) -> Result<Vec<Vec<f32>>> {
        let rows: Vec<&EncoderRow> = windows.iter().map(|window| &window.row).collect();
        let batch = Batch::for_encoder(&rows, &*self.body)?;
        let length = batch.length();
        let EncoderWords { layers, width, .. } = self.words;
        let mut found: Vec<Vec<f32>> =
            windows.iter().map(|window| vec![0.0; window.firsts.len() * layers * width]).collect();
        // The first states are the embeddings, which are not mixed.
        for (layer, states) in self.body.layers(&batch)?.into_iter().skip(1).enumerate() {
            let values = || states.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1::<f32>();
            let values = values().map_err(sporran_checkpoint::Error::from)?;
            for (row, (window, found)) in windows.iter().zip(&mut found).enumerate() {
                for word in 0..window.firsts.len() {
                    let pieces = window.pieces(word);
                    let share = 1.0 / pieces.len() as f32;
                    let mean = &mut found[(word * layers + layer) * width..][..width];
                    for piece in pieces {
                        let state = &values[(row * length + piece) * width..][..width];
                        mean.iter_mut().zip(state).for_each(|(mean, value)| *mean += share * value);
                    }
                }
            }
        }
        Ok(found)
    }
}
