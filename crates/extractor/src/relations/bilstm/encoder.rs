//! Words as the states of all layers of an encoder that is not trained further.

use std::path::Path;

use sporran_transformers::{
    Batch, Checkpoint, DeviceName, Encoder, EncoderRow, ModelConfig, Precision, WordInput, WordRow,
    each_batch, length_batches,
};

use super::EncoderWords;
use crate::error::{Error, Result};

/// The folder of an encoder in that of a model.
pub const LAYERS: &str = "encoder";
/// Tokens of a window, at most; a longer sentence is read in several.
const WINDOW: usize = 256;
/// Tokens that are read at once, padding included.
const BATCH: usize = 2048;

/// An encoder whose layers are read.
pub struct LayerEncoder {
    body: Box<dyn Encoder>,
    input: WordInput,
    words: EncoderWords,
}

impl LayerEncoder {
    /// Opens a folder.
    ///
    /// # Errors
    /// Where it is not an encoder's.
    pub fn open(folder: &Path, device: DeviceName, precision: Precision) -> Result<Self> {
        let checkpoint = Checkpoint::open(folder)?;
        let ModelConfig::Bert(config) = checkpoint.config() else {
            return Err(Error::Model {
                what: folder.join("config.json").display().to_string(),
                expected: "an encoder (BERT, RoBERTa, XLM-RoBERTa or DistilBERT)".into(),
                found: checkpoint.config().model_type().into(),
            });
        };
        let words = EncoderWords { layers: 1 + config.num_hidden_layers, width: config.hidden_size };
        let body = checkpoint.encoder_on(device, precision)?.body;
        let input = WordInput::new(checkpoint.tokenizer()?, WINDOW.min(body.max_input_length()), false)?;
        Ok(Self { body, input, words })
    }

    /// What it makes of words.
    #[must_use]
    pub fn words(&self) -> &EncoderWords {
        &self.words
    }

    /// For each sentence the states of its words' first pieces, (words, layers, width).
    ///
    /// # Errors
    /// Where the tokenizer or the encoder fails.
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
        let EncoderWords { layers, width } = self.words;
        let mut found: Vec<Vec<f32>> =
            windows.iter().map(|window| vec![0.0; window.firsts.len() * layers * width]).collect();
        for (layer, states) in self.body.layers(&batch)?.into_iter().enumerate() {
            let values = || states.to_dtype(candle_core::DType::F32)?.flatten_all()?.to_vec1::<f32>();
            let values = values().map_err(sporran_checkpoint::Error::from)?;
            for (row, (window, found)) in windows.iter().zip(&mut found).enumerate() {
                for (word, first) in window.firsts.iter().enumerate() {
                    let state = &values[(row * length + first) * width..][..width];
                    found[(word * layers + layer) * width..][..width].copy_from_slice(state);
                }
            }
        }
        Ok(found)
    }
}
