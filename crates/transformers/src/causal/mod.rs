//! Decoder-only models: their common trait and code.

mod cache;
mod prompts;
mod recurrent;

pub use cache::CausalCache;
pub(crate) use prompts::{check_one_row, ending_at, room};
pub use prompts::{generate_causal, generate_causal_until};
pub(crate) use recurrent::{Alignment, short_convolution, softplus, wide};

use candle_core::{D, DType, Device, Tensor};
use sporran_checkpoint::{Error, Result, SpecialTokens};

use crate::{
    architectures::alibi::Alibi,
    batch::Batch,
    cache::{KeyValue, LayerCache},
    decode::GenerationOptions,
    fused::{self, AttentionDropout},
    layers::{softmax, values},
    mode::Mode,
    seq2seq::{token_rows, too_long},
};

/// A decoder-only language model.
///
/// Padding, on the left or on the right, has no influence on the states of tokens: positions are counted by the tokens
/// of a row, and no token sees padding.
pub trait CausalLm: Send + Sync {
    /// Reads the beginnings of sequences into an empty cache, and returns the logits of the token after the last of each,
    /// (b, vocabulary), row after row.
    ///
    /// # Errors
    /// [`Error::Batch`] where the cache is not empty, a row has no token, or a sequence is longer than the model has
    /// learned positions; or a tensor error.
    fn begin(&self, input: &Batch, cache: &mut CausalCache) -> Result<Vec<f32>>;

    /// Continues each of the cache's `rows` sequences by its part of `tokens` (r, t), row after row, without padding,
    /// and gives the logits at the last position, (r, vocabulary), row after row. An empty cache begins the sequences.
    ///
    /// # Errors
    /// [`Error::Batch`] where the cache has another number of rows, or a sequence is longer than the model has
    /// positions for; or a tensor error.
    fn decode(&self, tokens: &[u32], rows: usize, cache: &mut CausalCache) -> Result<Vec<f32>>;

    /// The logits at every position, (b, s, vocabulary) in f32; those at padding mean nothing.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    fn forward(&self, input: &Batch) -> Result<Tensor>;

    /// The special tokens of the model.
    fn special_tokens(&self) -> &SpecialTokens;

    /// The generation options that the model's folder sets.
    fn generation_defaults(&self) -> &GenerationOptions;

    /// The number of logits, which may be more than the tokenizer has tokens.
    fn vocab_size(&self) -> usize;

    /// The longest sequence in tokens that the model was trained for, from its config.
    fn max_length(&self) -> usize;

    /// Whether positions are a learned table, which ends a sequence at [`max_length`](Self::max_length). Rotary positions
    /// go on beyond it, though the model may write worse there.
    fn has_learned_positions(&self) -> bool;

    /// Whether sequences can join and leave a batch between steps, as in a [`RunningBatch`](crate::RunningBatch): those of
    /// packed models can.
    fn joins(&self) -> bool {
        false
    }

    /// The most sequences of a cache; none where there is no bound. [`CandleLm`](crate::CandleLm) reads one at a time.
    fn most_rows(&self) -> Option<usize> {
        None
    }

    /// The device of the weights.
    fn device(&self) -> &Device;
}

/// A decoder-only model that can be trained.
pub trait TrainableCausal: CausalLm {
    /// The last hidden states of `input`, (b, s, d), in `mode`: in training, a loss of the states goes back through
    /// them. Those at padding mean nothing.
    ///
    /// # Errors
    /// As for [`forward`](CausalLm::forward).
    fn states_in(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor>;

    /// The logits (n, vocabulary) of hidden states (n, d), in the dtype of the weights.
    ///
    /// # Errors
    /// A tensor error.
    fn logits_of(&self, states: &Tensor) -> Result<Tensor>;

    /// The embeddings and the states after each layer, each (b, s, d), for inference. The last are those after the last norm.
    ///
    /// # Errors
    /// As for [`forward`](CausalLm::forward).
    fn layer_states(&self, input: &Batch) -> Result<Vec<Tensor>>;
}

/// The parts of a decoder-only model besides its layers.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) tokens: SpecialTokens,
    pub(crate) generation: GenerationOptions,
    pub(crate) vocab_size: usize,
    pub(crate) max_length: usize,
    pub(crate) has_learned_positions: bool,
    pub(crate) layers: usize,
    /// The tokens that layers with a sliding window attend to.
    pub(crate) window: Option<usize>,
    /// The biases of scores by positions.
    pub(crate) alibi: Option<Alibi>,
    /// Whether tokens see those after them.
    pub(crate) is_bidirectional: bool,
    /// Whether a layer keeps a state in the place of keys and values.
    pub(crate) is_recurrent: bool,
    /// The length after which a sequence is read again from its beginning, by other angles.
    pub(crate) reads_again_after: Option<usize>,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
}

/// What layers need to know of new tokens. What is added to the scores of the keys that were kept and of the new ones: (r, 1, t, past + t), or (r, heads, t, past + t)
/// where heads differ, `None` if all keys are visible.
#[derive(Debug)]
pub(crate) struct Biases {
    /// For layers that attend to everything before.
    pub(crate) all: Option<Tensor>,
    /// For layers with a sliding window.
    pub(crate) near: Option<Tensor>,
    /// For recurrent layers, where the tokens of padded rows are.
    pub(crate) alignment: Alignment,
}

/// The layers of a decoder-only model.
pub(crate) trait Body: Send + Sync {
    fn shape(&self) -> &Shape;

    /// The last hidden states (r, t, d) of `ids` (r, t), whose places in their sequences are `positions` (r, t).
    /// In training nothing is kept. `see` is shown what each layer reads.
    fn states(
        &self,
        ids: &Tensor,
        positions: &Tensor,
        biases: &Biases,
        kept: &mut [LayerCache],
        mode: &mut Mode,
        see: &mut dyn FnMut(&Tensor),
    ) -> Result<Tensor>;

    /// The logits (n, vocabulary) of states (n, d).
    fn logits(&self, states: &Tensor) -> Result<Tensor>;
}

/// Runs new tokens through a body.
fn advance(body: &dyn Body, input: &Batch, cache: &mut CausalCache, mode: &mut Mode) -> Result<Tensor> {
    advance_seen(body, input, cache, mode, &mut |_| {})
}

/// The same; `see` is shown what each layer reads.
fn advance_seen(
    body: &dyn Body,
    input: &Batch,
    cache: &mut CausalCache,
    mode: &mut Mode,
    see: &mut dyn FnMut(&Tensor),
) -> Result<Tensor> {
    let shape = body.shape();
    let mask: Vec<Vec<f32>> = input.mask.to_vec2()?;
    let (positions, biases) = cache.extend(&mask, shape)?;
    body.states(&input.ids, &positions, &biases, &mut cache.layers, mode, see)
}

fn host(logits: &Tensor) -> Result<Vec<f32>> {
    values(logits)
}

impl<B: Body> CausalLm for B {
    fn begin(&self, input: &Batch, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if cache.rows() != 0 {
            let found = format!("one of {} rows", cache.rows());
            return Err(Error::Batch { expected: "an empty cache".into(), found });
        }
        let mask: Vec<Vec<f32>> = input.mask.to_vec2()?;
        let last = |(row, mask): (usize, &Vec<f32>)| {
            let last = mask.iter().rposition(|mask| *mask != 0.0);
            let found = format!("no token in row {row}");
            let last = last.ok_or_else(|| Error::Batch { expected: "a token in every row".into(), found })?;
            Ok((row * mask.len() + last) as u32)
        };
        let last: Vec<u32> = mask.iter().enumerate().map(last).collect::<Result<_>>()?;
        let states = advance(self, input, cache, &mut Mode::Inference)?.flatten_to(1)?;
        if self.shape().reads_again_after.is_some() {
            cache.remember(input.rows()?);
        }
        let last = Tensor::new(last, states.device())?;
        host(&self.logits(&states.index_select(&last, 0)?)?)
    }

    fn decode(&self, tokens: &[u32], rows: usize, cache: &mut CausalCache) -> Result<Vec<f32>> {
        if cache.rows() != 0 && cache.rows() != rows {
            let (expected, found) = (format!("tokens for {} rows", cache.rows()), format!("{rows} rows"));
            return Err(Error::Batch { expected, found });
        }
        let ids = token_rows(tokens, rows, &self.shape().device)?;
        let (_, length) = ids.dims2()?;
        if let Some(last) = self.shape().reads_again_after {
            let all = match cache.rows() {
                0 => Some(ids.to_vec2::<u32>()?),
                _ => cache.outgrow(tokens, rows, last),
            };
            if let Some(all) = all {
                return self.begin(&Batch::new(&all, self.shape().tokens.pad, self.device())?, cache);
            }
        }
        let mask = Tensor::ones((rows, length), DType::F32, &Device::Cpu)?;
        let states = advance(self, &Batch::from_tensors(ids, &mask)?, cache, &mut Mode::Inference)?;
        host(&self.logits(&states.narrow(1, length - 1, 1)?.squeeze(1)?.contiguous()?)?)
    }

    fn forward(&self, input: &Batch) -> Result<Tensor> {
        let (batch, length) = input.ids.dims2()?;
        let states = self.states_in(input, &mut Mode::Inference)?;
        let logits = self.logits(&states.flatten_to(1)?)?;
        Ok(logits.reshape((batch, length, ()))?.to_dtype(DType::F32)?)
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.shape().tokens
    }

    fn generation_defaults(&self) -> &GenerationOptions {
        &self.shape().generation
    }

    fn vocab_size(&self) -> usize {
        self.shape().vocab_size
    }

    fn max_length(&self) -> usize {
        self.shape().max_length
    }

    fn has_learned_positions(&self) -> bool {
        self.shape().has_learned_positions
    }

    fn device(&self) -> &Device {
        &self.shape().device
    }
}

impl<B: Body> TrainableCausal for B {
    fn states_in(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor> {
        advance(self, input, &mut CausalCache::new(), mode)
    }

    fn logits_of(&self, states: &Tensor) -> Result<Tensor> {
        self.logits(states)
    }

    fn layer_states(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let (mut layers, mut cache, mode) = (Vec::new(), CausalCache::new(), &mut Mode::Inference);
        let last = advance_seen(self, input, &mut cache, mode, &mut |xs| layers.push(xs.detach()))?;
        layers.push(last.detach());
        Ok(layers)
    }
}

/// How a layer attends.
pub(crate) struct Attending<'a> {
    /// Added to the scores: (r, 1, t, s) or (r, heads, t, s).
    pub(crate) bias: Option<&'a Tensor>,
    /// The factor of the products of queries and keys.
    pub(crate) scale: f64,
    /// The bound `c` of scores, which become `c tanh(score / c)`.
    pub(crate) cap: Option<f64>,
    /// The score of attending to nothing, for each head: (heads).
    pub(crate) sinks: Option<&'a Tensor>,
    /// The dropout rate of the attention weights.
    pub(crate) dropout: f64,
}

impl Attending<'_> {
    /// Whether [`attend_fused`] can attend from these queries.
    pub(crate) fn is_fused(&self, queries: &Tensor, mode: &Mode) -> bool {
        mode.is_training() && self.cap.is_none() && self.sinks.is_none() && fused::applies(queries)
    }
}

/// Attends from `queries` (r, heads, t, w) to the kept and the `new` keys and values (r, groups, s, w), and returns
/// (r, t, heads * w). Heads that follow each other share a group (Ainslie et al. 2023); with as many groups as heads
/// this is the usual attention. In training nothing is kept.
pub(crate) fn attend(
    queries: &Tensor,
    new: KeyValue,
    kept: &mut LayerCache,
    with: &Attending<'_>,
    mode: &mut Mode,
) -> Result<Tensor> {
    if !mode.is_training() {
        return attend_composed(queries, kept.extend(new)?, with, mode);
    }
    if !with.is_fused(queries, mode) {
        return attend_composed(queries, &new, with, mode);
    }
    let (_, heads, _, _) = queries.dims4()?;
    let flat = [queries, &new.keys, &new.values].map(merge_heads);
    let [queries, keys, values] = flat;
    attend_fused(&queries?, [&keys?, &values?], (heads, new.keys.dim(1)?), with, mode)
}

/// Attends in training from `queries` (r, t, heads * w) to keys and values (r, s, groups * w) of a row of tokens each.
pub(crate) fn attend_fused(
    queries: &Tensor,
    pairs: [&Tensor; 2],
    sizes: (usize, usize),
    with: &Attending<'_>,
    mode: &mut Mode,
) -> Result<Tensor> {
    let pairs = Tensor::cat(&pairs, D::Minus1)?;
    let hidden;
    let bias = match with.bias {
        Some(bias) => bias,
        None => {
            hidden = Tensor::zeros((1, 1, 1, pairs.dim(1)?), queries.dtype(), queries.device())?;
            &hidden
        }
    };
    let dropout = match mode.seed(with.dropout) {
        Some(seed) => AttentionDropout { rate: with.dropout, seed },
        None => AttentionDropout { rate: 0.0, seed: 0 },
    };
    Ok(fused::attention(queries, &pairs, bias, sizes, with.scale, dropout)?)
}

fn attend_composed(
    queries: &Tensor,
    source: &KeyValue,
    with: &Attending<'_>,
    mode: &mut Mode,
) -> Result<Tensor> {
    let (rows, heads, length, width) = queries.dims4()?;
    let (_, groups, keys, _) = source.keys.dims4()?;
    let grouped = queries.reshape((rows, groups, heads / groups * length, width))?;
    let scores = (grouped.matmul(&source.keys.t()?)? * with.scale)?.reshape((rows, heads, length, keys))?;
    let scores = capped(scores, with.cap)?;
    let scores = match with.bias {
        Some(bias) => scores.broadcast_add(bias)?,
        None => scores,
    };
    let weights = match with.sinks {
        Some(sinks) => {
            let sinks = sinks.reshape((1, heads, 1, 1))?.broadcast_as((rows, heads, length, 1))?;
            // candle joins the last dimension with another layout.
            let all = Tensor::cat(&[scores, sinks.contiguous()?], D::Minus1)?.contiguous()?;
            softmax(&all, mode)?.narrow(D::Minus1, 0, keys)?.contiguous()?
        }
        None => softmax(&scores, mode)?,
    };
    let weights = mode.dropout(weights, with.dropout)?;
    let weights = weights.reshape((rows, groups, heads / groups * length, keys))?;
    merge_heads(&weights.matmul(&source.values)?.reshape((rows, heads, length, width))?)
}

/// Bounds values softly: `cap tanh(x / cap)`.
pub(crate) fn capped(xs: Tensor, cap: Option<f64>) -> Result<Tensor> {
    Ok(match cap {
        Some(cap) => ((xs / cap)?.tanh()? * cap)?,
        None => xs,
    })
}

/// (r, heads, t, w) to (r, t, heads * w).
fn merge_heads(xs: &Tensor) -> Result<Tensor> {
    let (rows, heads, length, width) = xs.dims4()?;
    Ok(xs.transpose(1, 2)?.reshape((rows, length, heads * width))?)
}

/// (r, t, heads * w) to (r, heads, t, w), laid out for batched products.
pub(crate) fn split_heads(xs: &Tensor, heads: usize) -> Result<Tensor> {
    let (rows, length, _) = xs.dims3()?;
    Ok(xs.reshape((rows, length, heads, ()))?.transpose(1, 2)?.contiguous()?)
}
