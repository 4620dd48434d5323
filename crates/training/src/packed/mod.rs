//! The body of BERT and its kin for training on a CPU: forward without padding, backward by hand.
//!
//! candle's tape keeps every intermediate result until the whole graph is dropped, and pads. Here a layer keeps only the
//! values that its gradient needs (the projections, the mixed values, the inputs of the activation and two normalised
//! states: ten values for each of a token's, where the inner part is four times as wide); attention weights, dropout
//! masks and the outputs of normalisations are made again. Sums over tokens are taken in portions of a fixed size, so
//! that no figure depends on the number of threads. [`Bert`](sporran_transformers::Bert) over candle's tape is its oracle.

mod attention;
mod embeddings;
mod layer;
mod weights;
mod workspace;

use std::sync::{Mutex, PoisonError};

use sporran_checkpoint::{Error, Result};
use sporran_transformers::{BERT_NAMES, BertConfig, BertFamily, DISTIL_NAMES, EncoderRow, too_long};

use crate::{gradients::Gradients, variables::Variables};

use embeddings::Embeddings;
use layer::Layer;
use weights::Finder;
pub(crate) use workspace::Workspace;

/// Rows that one thread works on at a time. Sums over tokens are taken within such a portion first.
const PORTION: usize = 128;

/// The layers over variables, and workspaces for batches.
#[derive(Debug)]
pub(crate) struct PackedBody {
    embeddings: Embeddings,
    layers: Vec<Layer>,
    width: usize,
    longest: usize,
    idle: Mutex<Vec<Workspace>>,
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

    /// An idle workspace, or a new one.
    pub(crate) fn workspace(&self) -> Workspace {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Returns a workspace for later batches.
    pub(crate) fn give_back(&self, workspace: Workspace) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(workspace);
    }

    /// The states of all tokens, row after row in the order of `rows`, in `workspace`. With `keeps` a
    /// backward pass is possible; without, every layer uses the same buffers.
    ///
    /// # Errors
    /// [`Error::Batch`] where a row is empty or too long, or holds a token or a type that does not exist.
    pub(crate) fn forward(
        &self,
        rows: &[&EncoderRow],
        seeds: Seeds,
        keeps: bool,
        workspace: &mut Workspace,
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
        workspace.open(rows.iter().map(|row| row.ids.len()), if keeps { self.layers.len() } else { 1 });
        self.embeddings.forward(rows, seeds, workspace)?;
        for (at, layer) in self.layers.iter().enumerate() {
            layer.forward(seeds, if keeps { at } else { 0 }, workspace)?;
        }
        Ok(())
    }

    /// The backward pass from the gradient of the states, which `workspace` holds instead of the states.
    /// Adds the gradients of all weights to `gradients`.
    ///
    /// # Errors
    /// A tensor error.
    pub(crate) fn backward(
        &self,
        seeds: Seeds,
        workspace: &mut Workspace,
        gradients: &mut Gradients,
    ) -> Result<()> {
        for at in (0..self.layers.len()).rev() {
            // The layer's input is recomputed from the layer below.
            match at.checked_sub(1) {
                Some(below) => self.layers[below].states_again(below, workspace)?,
                None => self.embeddings.states_again(seeds, workspace)?,
            }
            self.layers[at].backward(seeds, at, workspace, gradients)?;
        }
        self.embeddings.backward(seeds, workspace, gradients)
    }

    /// The width of the states.
    pub(crate) fn width(&self) -> usize {
        self.width
    }
}
