//! Keys and values that a decoder has already computed. The caller owns them, so beams can be re-ordered.

use candle_core::{DType, Tensor};
use sporran_checkpoint::{Error, Result};

use crate::{mode::Mode, packed::State};

/// Keys and values of one attention, each of shape (rows, heads, length, width of a head).
#[derive(Debug, Clone)]
pub(crate) struct KeyValue {
    pub(crate) keys: Tensor,
    pub(crate) values: Tensor,
}

impl KeyValue {
    /// The same, detached from the graph, which would otherwise stay in memory for trainable weights.
    pub(crate) fn detach(self) -> Self {
        Self { keys: self.keys.detach(), values: self.values.detach() }
    }

    fn select(&self, rows: &Tensor) -> Result<Self> {
        Ok(Self { keys: self.keys.index_select(rows, 0)?, values: self.values.index_select(rows, 0)? })
    }
}

/// What a recurrent layer keeps of each sequence, whatever its length.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// What its convolution read of the last tokens (rows, kernel - 1, channels).
    pub(crate) window: Tensor,
    /// The matrix of each head (rows, heads, ..), where it has one.
    pub(crate) matrix: Option<Tensor>,
}

impl Kept {
    fn select(&self, rows: &Tensor) -> Result<Self> {
        let matrix = self.matrix.as_ref().map(|matrix| matrix.index_select(rows, 0));
        Ok(Self { window: self.window.index_select(rows, 0)?, matrix: matrix.transpose()? })
    }
}

/// The cache of one decoder layer.
#[derive(Debug, Clone, Default)]
pub(crate) struct LayerCache {
    /// Self-attention, one row for each decoded sequence; grows by one position a step.
    pub(crate) own: Option<KeyValue>,
    /// Cross-attention, one row for each input; computed once.
    pub(crate) cross: Option<KeyValue>,
    /// The state of a recurrent layer, which has no keys and values.
    recurrent: Option<Kept>,
    /// Whether `weights` is wanted.
    watching: bool,
    /// The attention weights of the last tokens on the memory, the mean over them and over heads, (b, s).
    weights: Option<Tensor>,
}

impl LayerCache {
    /// Replaces row `i` of the self-attention cache of every layer by the previous row `rows[i]`.
    pub(crate) fn select(layers: &mut [Self], rows: &[u32]) -> Result<()> {
        let device = layers.iter().find_map(|layer| match (&layer.own, &layer.recurrent) {
            (Some(own), _) => Some(own.keys.device().clone()),
            (None, Some(kept)) => Some(kept.window.device().clone()),
            (None, None) => None,
        });
        let Some(device) = device else { return Ok(()) };
        // Brought to the device once for all layers.
        let rows = Tensor::new(rows, &device)?;
        for layer in layers {
            if let Some(own) = &mut layer.own {
                *own = own.select(&rows)?;
            }
            if let Some(kept) = &mut layer.recurrent {
                *kept = kept.select(&rows)?;
            }
        }
        Ok(())
    }

    /// The state of a recurrent layer before new tokens; none before the first ones, and in training.
    pub(crate) fn state(&mut self, mode: &Mode) -> Option<Kept> {
        self.recurrent.take().filter(|_| !mode.is_training())
    }

    /// Keeps the state after new tokens, except in training.
    pub(crate) fn put_state(&mut self, kept: Kept, mode: &Mode) {
        if !mode.is_training() {
            let matrix = kept.matrix.map(|matrix| matrix.detach());
            self.recurrent = Some(Kept { window: kept.window.detach(), matrix });
        }
    }

    /// Records the weights of cross-attention on the memory, (b, s), if requested.
    pub(crate) fn watch(&mut self, weights: impl FnOnce() -> Result<Tensor>) -> Result<()> {
        self.weights = if self.watching { Some(weights()?) } else { None };
        Ok(())
    }

    /// Appends the self-attention keys and values of new positions, and returns all positions.
    pub(crate) fn extend(&mut self, new: KeyValue) -> Result<&KeyValue> {
        let new = new.detach();
        let all = match self.own.take() {
            None => new,
            Some(old) => KeyValue {
                keys: Tensor::cat(&[&old.keys, &new.keys], 2)?,
                values: Tensor::cat(&[&old.values, &new.values], 2)?,
            },
        };
        Ok(self.own.insert(all))
    }
}

/// The state of a decoder between steps.
///
/// Sequences are grouped by input: with `g` sequences for each of `b` inputs, row `i * g + j` is sequence `j` of
/// input `i`. The cross-attention part has one row an input, shared by its group, so it is neither copied for
/// every beam nor moved when beams are re-ordered.
#[derive(Debug, Clone, Default)]
pub struct Cache {
    pub(crate) layers: Vec<LayerCache>,
    /// The state of a packed model instead.
    packed: Option<State>,
    length: usize,
    watching: bool,
    /// The attention weights that a packed model recorded.
    watched: Vec<Vec<f32>>,
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty cache that records the weights of cross-attention; for one sequence an input.
    #[must_use]
    pub fn watching() -> Self {
        Self { watching: true, ..Self::default() }
    }

    /// For each input, the weights of cross-attention on the positions of the memory: the mean over layers, heads and
    /// the tokens of the last call. Empty for a cache that does not [watch](Self::watching). Positions of padding after an
    /// input's tokens may be present or absent.
    ///
    /// # Errors
    /// A tensor error.
    pub fn attended(&self) -> Result<Vec<Vec<f32>>> {
        let weights: Vec<&Tensor> = self.layers.iter().filter_map(|layer| layer.weights.as_ref()).collect();
        if weights.is_empty() {
            return Ok(self.watched.clone());
        }
        let mean = (Tensor::stack(&weights, 0)?.sum(0)? / weights.len() as f64)?;
        Ok(mean.to_dtype(DType::F32)?.to_vec2()?)
    }

    /// The buffers that a packed model fills in, if weights are recorded.
    pub(crate) fn watched(&self) -> Option<Vec<Vec<f32>>> {
        self.watching.then(Vec::new)
    }

    /// Stores the weights that a packed model filled in: sums over `count` tokens.
    pub(crate) fn put_watched(&mut self, watched: Option<Vec<Vec<f32>>>, count: usize) {
        self.watched = watched.unwrap_or_default();
        self.watched.iter_mut().flatten().for_each(|weight| *weight /= count as f32);
    }

    /// The number of decoder positions that are kept, of the longest row.
    #[must_use]
    pub fn length(&self) -> usize {
        self.packed.as_ref().map_or(self.length, State::length)
    }

    /// The state of a packed model.
    pub(crate) fn packed_mut(&mut self) -> Option<&mut State> {
        self.packed.as_mut()
    }

    /// Keeps the state of a packed model.
    pub(crate) fn put_packed(&mut self, state: State) {
        self.packed = Some(state);
    }

    /// Appends the inputs and rows of `other`. Both are of a packed model, and `other` is not empty.
    ///
    /// # Errors
    /// [`Error::Batch`] where one of them is another model's.
    pub(crate) fn join(&mut self, other: Self) -> Result<()> {
        match (&mut self.packed, other.packed) {
            (Some(state), Some(other)) => state.join(other),
            (state, Some(other)) => *state = Some(other),
            (_, None) => {
                let (expected, found) = ("the cache of a packed model".into(), "another".into());
                return Err(Error::Batch { expected, found });
            }
        }
        Ok(())
    }

    /// Frees memory of rows that are gone.
    pub(crate) fn compact(&mut self) {
        if let Some(state) = &mut self.packed {
            state.compact();
        }
    }

    /// Makes room for `count` layers.
    pub(crate) fn prepare(&mut self, count: usize) {
        let watching = self.watching;
        self.layers.resize_with(count, || LayerCache { watching, ..LayerCache::default() });
    }

    /// Notes that every layer has been given `count` more positions.
    pub(crate) fn advance(&mut self, count: usize) {
        self.length += count;
    }

    /// Makes row `i` the continuation of the previous row `rows[i]`. Each row must stay in its input's group.
    ///
    /// # Errors
    /// A tensor error where a row does not exist.
    pub fn reorder(&mut self, rows: &[u32]) -> Result<()> {
        if let Some(packed) = &mut self.packed {
            packed.reorder(rows)?;
        }
        LayerCache::select(&mut self.layers, rows)
    }

    /// Keeps the inputs `inputs` only, in that order, and of each the sequences `rows` (indices of all rows
    /// before the call, grouped by the kept inputs).
    ///
    /// # Errors
    /// A tensor error where an index does not exist.
    pub fn keep(&mut self, inputs: &[u32], rows: &[u32]) -> Result<()> {
        self.reorder(rows)?;
        if let Some(packed) = &mut self.packed {
            packed.keep_inputs(inputs)?;
        }
        let Some(cross) = self.layers.first().and_then(|layer| layer.cross.as_ref()) else { return Ok(()) };
        let inputs = Tensor::new(inputs, cross.keys.device())?;
        for cross in self.layers.iter_mut().filter_map(|layer| layer.cross.as_mut()) {
            *cross = cross.select(&inputs)?;
        }
        Ok(())
    }
}
