//! The body of BERT and its kin for training on a CPU: forward without padding, backward by hand.
//!
//! candle's tape keeps every intermediate result until the whole graph is dropped, and pads. Here a layer keeps what
//! its gradient cannot do without (the projections, the mixed values, the inputs of the activation and two normalised
//! states: ten values for each of a token's, where the inner part is four times as wide); attention weights, dropout
//! masks and the outputs of normalisations are made again. Sums over tokens are taken in portions of a fixed size, so
//! that no figure depends on the number of threads. [`Bert`](sporran_transformers::Bert) over candle's tape is its oracle.

mod attention;
mod embeddings;
mod layer;
mod memory;
mod weights;

use std::sync::{Mutex, PoisonError};

use sporran_checkpoint::{Error, Result};
use sporran_transformers::{BERT_NAMES, BertConfig, BertFamily, DISTIL_NAMES, EncoderRow, too_long};

use crate::{gradients::Gradients, variables::Variables};

use embeddings::Embeddings;
use layer::Layer;
pub(crate) use memory::Memory;
use weights::Finder;

/// Rows that one thread works on at a time. Sums over tokens are taken within such a portion first.
const PORTION: usize = 128;

/// The layers over variables, and memory for batches.
#[derive(Debug)]
pub(crate) struct PackedBody {
    embeddings: Embeddings,
    layers: Vec<Layer>,
    width: usize,
    longest: usize,
    idle: Mutex<Vec<Memory>>,
}

/// The seeds of a batch's dropout; none without dropout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds(Option<u64>);

impl Seeds {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Some(seed))
    }

    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// The dropout of use number `at`.
    fn dropout(self, rate: f64, at: u64) -> sporran_kernels::Dropout {
        match self.0 {
            // The finaliser of SplitMix64 (Steele et al. 2014).
            Some(seed) => {
                let x = seed.wrapping_add((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                sporran_kernels::Dropout::new(rate, x ^ (x >> 31))
            }
            None => sporran_kernels::Dropout::new(0.0, 0),
        }
    }
}

impl PackedBody {
    /// The body of `config` over `variables`, which must already exist.
    ///
    /// # Errors
    /// [`Error::Training`] where a variable is missing, and [`Error::Config`] for an unknown activation.
    pub(crate) fn new(config: &BertConfig, variables: &Variables) -> Result<Self> {
        let mut finder = Finder::new(config.prefix(), variables);
        let (names, prefix) = match config.family {
            BertFamily::DistilBert => (&DISTIL_NAMES, "transformer.layer"),
            _ => (&BERT_NAMES, "encoder.layer"),
        };
        let layers = (0..config.num_hidden_layers)
            .map(|at| Layer::new(config, names, &format!("{prefix}.{at}"), at as u64, &mut finder));
        Ok(Self {
            layers: layers.collect::<Result<_>>()?,
            embeddings: Embeddings::new(config, &mut finder)?,
            width: config.hidden_size,
            longest: config.max_input_length(),
            idle: Mutex::default(),
        })
    }

    /// Memory of a batch before, or fresh.
    pub(crate) fn memory(&self) -> Memory {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Gives memory back for the batches to come.
    pub(crate) fn give_back(&self, memory: Memory) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(memory);
    }

    /// The states of all tokens, row after row in the order of `rows`, in `memory`. With `keeps` they can be gone
    /// back from; without, every layer uses the same memory.
    ///
    /// # Errors
    /// [`Error::Batch`] where a row is empty or too long, or holds a token or a type that there is not.
    pub(crate) fn forward(
        &self,
        rows: &[&EncoderRow],
        seeds: Seeds,
        keeps: bool,
        memory: &mut Memory,
    ) -> Result<()> {
        for row in rows {
            if row.ids.is_empty() {
                let expected = "at least one token in every row".into();
                return Err(Error::Batch { expected, found: "no token".into() });
            }
            if row.ids.len() > self.longest {
                return Err(too_long("input", self.longest, row.ids.len()));
            }
        }
        memory.open(rows.iter().map(|row| row.ids.len()), if keeps { self.layers.len() } else { 1 });
        self.embeddings.forward(rows, seeds, memory)?;
        for (at, layer) in self.layers.iter().enumerate() {
            layer.forward(seeds, if keeps { at } else { 0 }, memory)?;
        }
        Ok(())
    }

    /// Goes back from the gradient of the states, which `memory` holds in place of the states, and adds the
    /// gradients of all weights to `gradients`.
    ///
    /// # Errors
    /// A tensor error.
    pub(crate) fn backward(
        &self,
        seeds: Seeds,
        memory: &mut Memory,
        gradients: &mut Gradients,
    ) -> Result<()> {
        for at in (0..self.layers.len()).rev() {
            // What the layer read is made again from what lies below it.
            match at.checked_sub(1) {
                Some(below) => self.layers[below].states_again(below, memory)?,
                None => self.embeddings.states_again(seeds, memory)?,
            }
            self.layers[at].backward(seeds, at, memory, gradients)?;
        }
        self.embeddings.backward(seeds, memory, gradients)
    }

    /// The width of the states.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}
