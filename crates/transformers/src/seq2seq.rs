//! The seam that every encoder-decoder shares.

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::{Error, Result, SpecialTokens};

use crate::{batch::Batch, cache::Cache, decode::GenerationOptions, layers::hidden_score, mode::Mode};

/// The hidden states of a batch of inputs, for a decoder to attend to.
#[derive(Debug, Clone)]
pub struct Memory {
    hidden: Tensor,
    mask: Tensor,
    bias: Tensor,
}

impl Memory {
    /// `hidden` (b, s, d) are the encoder's last hidden states; `mask` (b, s) is 1 where the decoder may attend.
    ///
    /// # Errors
    /// [`Error::Batch`] where the shapes do not agree.
    pub fn new(hidden: Tensor, mask: Tensor) -> Result<Self> {
        let (batch, length, _) = hidden.dims3()?;
        if mask.dims2()? != (batch, length) {
            return Err(Error::Batch {
                expected: format!("a memory mask of shape [{batch}, {length}]"),
                found: format!("{:?}", mask.shape()),
            });
        }
        let bias = padding_bias(&mask, hidden.dtype())?;
        Ok(Self { hidden, mask, bias })
    }

    /// The encoder's last hidden states, shape (b, s, d).
    #[must_use]
    pub fn hidden(&self) -> &Tensor {
        &self.hidden
    }

    /// 1 where the decoder may attend, shape (b, s).
    #[must_use]
    pub fn mask(&self) -> &Tensor {
        &self.mask
    }

    /// The bias on the scores of the keys, shape (b, 1, 1, s).
    pub(crate) fn bias(&self) -> &Tensor {
        &self.bias
    }

    /// The number of inputs, b.
    #[must_use]
    pub fn size(&self) -> usize {
        self.hidden.dims()[0]
    }

    /// The same, detached from the graph, which would otherwise stay in memory for trainable weights.
    pub(crate) fn detach(self) -> Self {
        Self { hidden: self.hidden.detach(), ..self }
    }

    /// Keeps the inputs `inputs` only, in that order.
    ///
    /// # Errors
    /// A tensor error where an input does not exist.
    pub fn select(&self, inputs: &[u32]) -> Result<Self> {
        let inputs = Tensor::new(inputs, self.hidden.device())?;
        Ok(Self {
            hidden: self.hidden.index_select(&inputs, 0)?,
            mask: self.mask.index_select(&inputs, 0)?,
            bias: self.bias.index_select(&inputs, 0)?,
        })
    }
}

/// An encoder-decoder transformer.
pub trait Seq2Seq: Send + Sync {
    /// Encodes the inputs. Padding has no influence on the states of tokens.
    ///
    /// # Errors
    /// A tensor error, or [`Error::Batch`] where an input is longer than the model has positions for.
    fn encode(&self, input: &Batch) -> Result<Memory>;

    /// Continues sequences by `tokens` and returns the logits of the next token.
    ///
    /// `tokens` (r, t), row after row, are the new tokens of each of `rows` sequences, without padding; `r` is a
    /// multiple of the memory's b, and rows are grouped by input as [`Cache`] says. The cache must be empty at the
    /// first call and be given back at every later one. The answer is the unnormalised log-probabilities (logits)
    /// at the last position, (r, vocabulary), row after row.
    ///
    /// # Errors
    /// A tensor error, or [`Error::Batch`] where a sequence is longer than the model has positions for.
    fn decode(&self, tokens: &[u32], rows: usize, memory: &Memory, cache: &mut Cache) -> Result<Vec<f32>>;

    /// Whether sequences can join and leave a batch between steps, as in a [`RunningBatch`](crate::RunningBatch): those of
    /// packed models can.
    fn joins(&self) -> bool {
        false
    }

    /// [`decode`](Self::decode) without the memory, of which the cache has all that the model reads, for rows that may be
    /// of different lengths. Models whose sequences [join](Self::joins) a batch have it.
    ///
    /// # Errors
    /// As for `decode`, and [`Error::Batch`] for an empty cache and for other models.
    fn resume(&self, tokens: &[u32], rows: usize, cache: &mut Cache) -> Result<Vec<f32>> {
        let _ = (tokens, cache);
        let (expected, found) = ("a packed model".into(), format!("another, for {rows} rows"));
        Err(Error::Batch { expected, found })
    }

    /// The special tokens of the model.
    fn special_tokens(&self) -> &SpecialTokens;

    /// The generation options that the model's folder sets.
    fn generation_defaults(&self) -> &GenerationOptions;

    /// The number of logits, which may be more than the tokenizer has tokens.
    fn vocab_size(&self) -> usize;

    /// The most input tokens, where the model has learned positions.
    fn max_input_length(&self) -> Option<usize>;

    /// The most tokens of an output, its start token included, where the model has learned positions.
    fn max_output_length(&self) -> Option<usize> {
        self.max_input_length()
    }

    /// The device of the weights.
    fn device(&self) -> &Device;
}

/// An encoder-decoder that can be trained.
pub trait Trainable: Seq2Seq {
    /// [`encode`](Seq2Seq::encode) in `mode`: in training, a loss of the states goes back through them.
    ///
    /// # Errors
    /// As for `encode`, and [`Error::Config`] where the config names something unsupported in training.
    fn encode_in(&self, input: &Batch, mode: &mut Mode) -> Result<Memory>;

    /// The logits at every decoder position, for training by teacher forcing: shape (b, t, vocabulary), in the
    /// dtype of the weights. `decoder_ids` (b, t) of type u32 begin with the decoder start token;
    /// `decoder_mask` (b, t) is 1 at tokens and 0 at padding. Position `i` sees only positions up to `i`, and all of row
    /// `b` of the memory.
    ///
    /// # Errors
    /// As for [`decode`](Seq2Seq::decode).
    fn decode_in(
        &self,
        decoder_ids: &Tensor,
        decoder_mask: &Tensor,
        memory: &Memory,
        mode: &mut Mode,
    ) -> Result<Tensor>;

    /// Both, one after the other.
    ///
    /// # Errors
    /// As for both.
    fn forward(
        &self,
        input: &Batch,
        decoder_ids: &Tensor,
        decoder_mask: &Tensor,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let memory = self.encode_in(input, mode)?;
        self.decode_in(decoder_ids, decoder_mask, &memory, mode)
    }
}

/// From a mask (b, s) of ones and zeros to the bias (b, 1, 1, s) on the scores of those keys.
pub(crate) fn padding_bias(mask: &Tensor, dtype: DType) -> Result<Tensor> {
    let (batch, length) = mask.dims2()?;
    // affine(-h, h) maps 1 to exactly 0 and 0 to h.
    let hidden = hidden_score(dtype)?;
    let bias = mask.to_dtype(DType::F32)?.affine(-hidden, hidden)?;
    Ok(bias.reshape((batch, 1, 1, length))?.to_dtype(dtype)?)
}

/// (1, 1, t, past + t): position `past + i` may see keys 0 to `past + i`.
pub(crate) fn causal_bias(length: usize, past: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let hidden = hidden_score(dtype)? as f32;
    let keys = past + length;
    let bias: Vec<f32> =
        (0..length).flat_map(|i| (0..keys).map(move |j| if j > past + i { hidden } else { 0.0 })).collect();
    Ok(Tensor::from_vec(bias, (1, 1, length, keys), device)?.to_dtype(dtype)?)
}

/// (1, 1, s, s): a position may see those that are at most `window` away.
pub(crate) fn window_bias(length: usize, window: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let hidden = hidden_score(dtype)? as f32;
    let bias: Vec<f32> = (0..length)
        .flat_map(|i| (0..length).map(move |j| if i.abs_diff(j) > window { hidden } else { 0.0 }))
        .collect();
    Ok(Tensor::from_vec(bias, (1, 1, length, length), device)?.to_dtype(dtype)?)
}

/// The `tokens` of `rows` sequences as the (r, t) that layers take.
pub(crate) fn token_rows(tokens: &[u32], rows: usize, device: &Device) -> Result<Tensor> {
    if rows == 0 || tokens.is_empty() || !tokens.len().is_multiple_of(rows) {
        let found = format!("{} tokens", tokens.len());
        return Err(Error::Batch { expected: format!("as many tokens for each of {rows} rows"), found });
    }
    Ok(Tensor::from_slice(tokens, (rows, tokens.len() / rows), device)?)
}

/// An [`Error::Batch`] for a sequence that is longer than the model has positions for.
#[must_use]
pub fn too_long(what: &str, positions: usize, found: usize) -> Error {
    Error::Batch { expected: format!("at most {positions} {what} tokens"), found: found.to_string() }
}
