//! T5 (Raffel et al. 2020), versions 1.0 and 1.1, mT5, UMT5, LongT5 and Switch Transformers: an encoder-decoder with
//! relative position buckets, root mean square normalisation before each part, no biases and no scaling of the attention scores.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Architecture, Result, SpecialTokens};

use super::{
    config::{SUMMARY_BIASES, SUMMARY_NORM, T5Config},
    switch::Switch,
};
use crate::{
    attention::Attention,
    batch::Batch,
    cache::{Cache, KeyValue, LayerCache},
    decode::GenerationOptions,
    layers::{Activation, Embedding, Linear, RmsNorm, hidden_score, values},
    mode::Mode,
    seq2seq::{Memory, Seq2Seq, Trainable, causal_bias, padding_bias, token_rows, window_bias},
};

/// A T5 model with a language modelling head.
#[derive(Debug, Clone)]
pub struct T5 {
    shared: Embedding,
    encoder: Stack,
    decoder: Stack,
    head: Linear,
    config: T5Config,
    tokens: SpecialTokens,
    generation: GenerationOptions,
    device: Device,
}

impl T5 {
    /// Takes the weights from `vb`, by their names in `transformers`.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error where `vb` lacks a
    /// tensor or has another shape (a [`Checkpoint`](crate::Checkpoint) reports these with file and shapes).
    pub fn new(config: &T5Config, vb: &VarBuilder) -> Result<Self> {
        config.validate()?;
        let factor = config.initializer_factor;
        let shared = Embedding::new(config.vocab_size, config.d_model, factor, &vb.pp("shared"))?;
        let encoder = Stack::new(config, false, &vb.pp("encoder"))?;
        let decoder = Stack::new(config, true, &vb.pp("decoder"))?;
        let head = if config.tie_word_embeddings {
            Linear::shared(shared.table().clone())
        } else {
            Linear::new(config.d_model, config.vocab_size, factor, &vb.pp("lm_head"))?
        };
        Ok(Self {
            shared,
            encoder,
            decoder,
            head,
            config: config.clone(),
            tokens: config.special_tokens(),
            generation: GenerationOptions::default(),
            device: vb.device().clone(),
        })
    }

    /// The same model with the tokens and generation defaults of its folder.
    #[must_use]
    pub fn with_defaults(self, tokens: SpecialTokens, generation: GenerationOptions) -> Self {
        Self { tokens, generation, ..self }
    }

    /// The config that the model was built from.
    #[must_use]
    pub fn config(&self) -> &T5Config {
        &self.config
    }

    /// Logits for decoder states (r, t, d).
    fn logits(&self, states: &Tensor) -> Result<Tensor> {
        if self.config.scales_decoder_outputs() {
            self.head.forward(&(states * (self.config.d_model as f64).powf(-0.5))?)
        } else {
            self.head.forward(states)
        }
    }
}

impl Seq2Seq for T5 {
    fn encode(&self, input: &Batch) -> Result<Memory> {
        Ok(self.encode_in(input, &mut Mode::Inference)?.detach())
    }

    fn decode(&self, tokens: &[u32], rows: usize, memory: &Memory, cache: &mut Cache) -> Result<Vec<f32>> {
        let mode = &mut Mode::Inference;
        let tokens = token_rows(tokens, rows, &self.device)?;
        let (_, length) = tokens.dims2()?;
        let past = cache.length();
        let mut xs = self.shared.forward(&tokens)?;
        let mut biases = self.decoder.position_biases(length, past)?;
        if length > 1 {
            biases.add(&causal_bias(length, past, xs.dtype(), &self.device)?)?;
        }
        cache.prepare(self.decoder.blocks.len());
        for (at, (block, layer)) in self.decoder.blocks.iter().zip(&mut cache.layers).enumerate() {
            let normed = block.own_norm.forward(&xs, mode)?;
            let own = layer.extend(block.own.project(&normed)?)?;
            xs = block.attend(xs, &block.own, &normed, own, Some(biases.of(at)), mode)?;
            xs = block.cross_attend(xs, memory, layer, mode)?;
            xs = block.feed_forward(xs, mode)?;
        }
        cache.advance(length);
        let last = xs.narrow(1, length - 1, 1)?;
        let logits = self.logits(&self.decoder.finish(&last, mode)?)?;
        values(&logits)
    }

    fn special_tokens(&self) -> &SpecialTokens {
        &self.tokens
    }

    fn generation_defaults(&self) -> &GenerationOptions {
        &self.generation
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn max_input_length(&self) -> Option<usize> {
        None
    }

    fn device(&self) -> &Device {
        &self.device
    }
}

impl Trainable for T5 {
    fn encode_in(&self, input: &Batch, mode: &mut Mode) -> Result<Memory> {
        let xs = self.shared.forward(&input.ids)?;
        Memory::new(self.encoder.encode(xs, &input.mask, mode, &mut |_| {})?, input.mask.clone())
    }

    fn decode_in(
        &self,
        decoder_ids: &Tensor,
        decoder_mask: &Tensor,
        memory: &Memory,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let (_, length) = decoder_ids.dims2()?;
        let xs = self.shared.forward(decoder_ids)?;
        let mut biases = self.decoder.position_biases(length, 0)?;
        biases.add(&causal_bias(length, 0, xs.dtype(), &self.device)?)?;
        biases.add(&padding_bias(decoder_mask, xs.dtype())?)?;
        let mut xs = mode.dropout(xs, self.config.dropout_rate)?;
        for (at, block) in self.decoder.blocks.iter().enumerate() {
            let normed = block.own_norm.forward(&xs, mode)?;
            let ys = block.own.attend(&normed, &normed, biases.of(at), mode)?;
            xs = block.add(xs, ys, mode)?;
            if let Some((cross, norm)) = &block.cross {
                let normed = norm.forward(&xs, mode)?;
                let ys = cross.attend(&normed, memory.hidden(), memory.bias(), mode)?;
                xs = block.add(xs, ys, mode)?;
            }
            xs = block.feed_forward(xs, mode)?;
        }
        self.logits(&self.decoder.finish(&xs, mode)?)
    }
}

/// The biases on the scores of self-attention: one for all layers, or one for each.
struct Biases(Vec<Tensor>);

impl Biases {
    /// Adds another bias to all.
    fn add(&mut self, other: &Tensor) -> Result<()> {
        for bias in &mut self.0 {
            *bias = bias.broadcast_add(other)?;
        }
        Ok(())
    }

    /// That of the layer `at`.
    fn of(&self, at: usize) -> &Tensor {
        self.0.get(at).unwrap_or(&self.0[0])
    }
}

/// The encoder's or the decoder's blocks, with their position biases.
#[derive(Debug, Clone)]
pub(super) struct Stack {
    blocks: Vec<Block>,
    final_norm: RmsNorm,
    /// (buckets, heads), once for all layers or for each.
    position_weights: Vec<Tensor>,
    is_decoder: bool,
    max_distance: usize,
    /// The tokens that an encoder attends to on either side.
    window: Option<usize>,
    summaries: Option<Summaries>,
    dropout: f64,
}

/// What an encoder's layers read beside tokens: sums of the states of blocks of these.
#[derive(Debug, Clone)]
struct Summaries {
    /// The tokens of a block.
    size: usize,
    /// The norms of the sums, for each layer.
    norms: Vec<RmsNorm>,
    /// The biases of scores (buckets, heads).
    weights: Tensor,
}

/// The summaries of a batch.
struct Blocks {
    /// Which tokens each block has (b, blocks, s): 1 or 0.
    members: Tensor,
    /// The biases on their scores (b, heads, s, blocks).
    bias: Tensor,
}

impl Summaries {
    fn new(config: &T5Config, size: usize, vb: &VarBuilder) -> Result<Self> {
        let attention =
            |layer: usize| vb.pp(format!("block.{layer}.layer.0.{}", config.own_attention(false)));
        let norm = |layer: usize| {
            let at = attention(layer).pp(SUMMARY_NORM);
            RmsNorm::new(config.d_model, config.layer_norm_epsilon, config.initializer_factor, &at)
        };
        let std = config.initializer_factor * (config.d_model as f64).powf(-0.5);
        let shape = (config.relative_attention_num_buckets, config.num_heads);
        let init = Init::Randn { mean: 0.0, stdev: std };
        Ok(Self {
            size,
            norms: (0..config.num_layers).map(norm).collect::<Result<_>>()?,
            weights: attention(0).get_with_hints(shape, &format!("{SUMMARY_BIASES}.weight"), init)?,
        })
    }

    /// The blocks of rows of tokens, which `mask` (b, s) marks; none where no row has a whole one. Tokens after the last whole
    /// block are in that block.
    fn blocks(&self, mask: &Tensor, max_distance: usize) -> Result<Option<Blocks>> {
        let (rows, length) = mask.dims2()?;
        let (count, size) = (length / self.size, self.size);
        if count == 0 {
            return Ok(None);
        }
        let (buckets, heads) = self.weights.dims2()?;
        let mut members = vec![0f32; rows * count * length];
        let mut ids = Vec::with_capacity(rows * length * count);
        let mut hidden = Vec::with_capacity(rows * length * count);
        let least = hidden_score(self.weights.dtype())? as f32;
        for (row, mask) in mask.to_vec2::<f32>()?.iter().enumerate() {
            let is_end = |at: &usize| (at + 1).is_multiple_of(size) && mask[*at] != 0.0;
            let whole = (0..length).filter(is_end).count();
            for (at, is_token) in mask.iter().enumerate() {
                let own = (at / size).min(whole.saturating_sub(1));
                if *is_token != 0.0 && whole > 0 {
                    members[(row * count + own) * length + at] = 1.0;
                }
                for block in 0..count {
                    ids.push(bucket(block as i64 - own as i64, true, buckets, max_distance));
                    hidden.push(if block < whole { 0.0 } else { least });
                }
            }
        }
        let (device, dtype) = (self.weights.device(), self.weights.dtype());
        let ids = Tensor::from_vec(ids, rows * length * count, device)?;
        let hidden = Tensor::from_vec(hidden, (rows, 1, length, count), device)?.to_dtype(dtype)?;
        let bias = self.weights.index_select(&ids, 0)?.reshape((rows, length, count, heads))?;
        let bias = bias.permute((0, 3, 1, 2))?.broadcast_add(&hidden)?.contiguous()?;
        let members = Tensor::from_vec(members, (rows, count, length), device)?.to_dtype(dtype)?;
        Ok(Some(Blocks { members, bias }))
    }
}

impl Stack {
    pub(super) fn new(config: &T5Config, is_decoder: bool, vb: &VarBuilder) -> Result<Self> {
        let count = if is_decoder { config.decoder_layers() } else { config.num_layers };
        let blocks: Result<Vec<_>> = (0..count)
            .map(|i| Block::new(config, (i, is_decoder), &vb.pp(format!("block.{i}.layer"))))
            .collect();
        let std = config.initializer_factor * (config.d_model as f64).powf(-0.5);
        let weights = |at: usize| -> Result<Tensor> {
            Ok(vb.get_with_hints(
                (config.relative_attention_num_buckets, config.num_heads),
                &format!(
                    "block.{at}.layer.0.{}.relative_attention_bias.weight",
                    config.own_attention(is_decoder)
                ),
                Init::Randn { mean: 0.0, stdev: std },
            )?)
        };
        let position_weights = (0..config.biased_layers(count)).map(weights).collect::<Result<Vec<_>>>()?;
        let (width, eps) = (config.d_model, config.layer_norm_epsilon);
        Ok(Self {
            blocks: blocks?,
            final_norm: RmsNorm::new(width, eps, config.initializer_factor, &vb.pp("final_layer_norm"))?,
            position_weights,
            is_decoder,
            max_distance: config.relative_attention_max_distance,
            window: config.window().filter(|_| !is_decoder),
            summaries: match config.summary_size().filter(|_| !is_decoder) {
                Some(size) => Some(Summaries::new(config, size, vb)?),
                None => None,
            },
            dropout: config.dropout_rate,
        })
    }

    /// Takes embeddings (b, s, d) through an encoder; `see` is shown what each layer reads.
    pub(super) fn encode(
        &self,
        xs: Tensor,
        mask: &Tensor,
        mode: &mut Mode,
        see: &mut dyn FnMut(&Tensor),
    ) -> Result<Tensor> {
        let length = xs.dim(1)?;
        let mut biases = self.position_biases(length, 0)?;
        biases.add(&padding_bias(mask, xs.dtype())?)?;
        if let Some(window) = self.window.filter(|window| window + 1 < length) {
            biases.add(&window_bias(length, window, xs.dtype(), xs.device())?)?;
        }
        let summarised = match &self.summaries {
            Some(summaries) => summaries.blocks(mask, self.max_distance)?.map(|blocks| (summaries, blocks)),
            None => None,
        };
        if let Some((_, blocks)) = &summarised {
            // The summaries come after the tokens. candle joins the last dimension with another layout.
            for bias in &mut biases.0 {
                let (rows, heads, _, _) = blocks.bias.dims4()?;
                let own = bias.broadcast_as((rows, heads, length, length))?.contiguous()?;
                *bias = Tensor::cat(&[&own, &blocks.bias], D::Minus1)?.contiguous()?;
            }
        }
        let mut xs = mode.dropout(xs, self.dropout)?;
        for (at, block) in self.blocks.iter().enumerate() {
            see(&xs);
            let normed = block.own_norm.forward(&xs, mode)?;
            let source = match &summarised {
                Some((summaries, blocks)) => {
                    let sums = blocks.members.matmul(&normed)?;
                    Tensor::cat(&[&normed, &summaries.norms[at].forward(&sums, mode)?], 1)?
                }
                None => normed.clone(),
            };
            let ys = block.own.attend(&normed, &source, biases.of(at), mode)?;
            xs = block.add(xs, ys, mode)?;
            xs = block.feed_forward(xs, mode)?;
        }
        self.finish(&xs, mode)
    }

    /// The position biases on the scores of `length` queries that follow `past` others, each (1, heads, length,
    /// past + length).
    fn position_biases(&self, length: usize, past: usize) -> Result<Biases> {
        let bias = |weights| position_bias(weights, (length, past), !self.is_decoder, self.max_distance);
        Ok(Biases(self.position_weights.iter().map(bias).collect::<Result<_>>()?))
    }

    fn finish(&self, xs: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let xs = self.final_norm.forward(xs, mode)?;
        mode.dropout(xs, self.dropout)
    }
}

/// The bias of `weights` (buckets, heads) on the scores of `length` queries that follow `past` others: (1, heads, length,
/// past + length).
pub(crate) fn position_bias(
    weights: &Tensor,
    (length, past): (usize, usize),
    bidirectional: bool,
    max_distance: usize,
) -> Result<Tensor> {
    let (buckets, heads) = weights.dims2()?;
    let keys = past + length;
    let ids: Vec<u32> = (past..keys)
        .flat_map(|query| (0..keys).map(move |key| key as i64 - query as i64))
        .map(|distance| bucket(distance, bidirectional, buckets, max_distance))
        .collect();
    let ids = Tensor::from_vec(ids, length * keys, weights.device())?;
    let bias = weights.index_select(&ids, 0)?.reshape((length, keys, heads))?;
    Ok(bias.permute((2, 0, 1))?.unsqueeze(0)?.contiguous()?)
}

/// The bucket of a key at `distance` (key position less query position): the first half of the buckets of a
/// direction hold one distance each, the others grow with its logarithm up to `max_distance`.
pub(crate) fn bucket(distance: i64, bidirectional: bool, buckets: usize, max_distance: usize) -> u32 {
    let (first, buckets, distance) = if bidirectional {
        let half = buckets / 2;
        (if distance > 0 { half } else { 0 }, half, distance.unsigned_abs() as usize)
    } else {
        (0, buckets, (-distance).max(0) as usize)
    };
    let exact = buckets / 2;
    if distance < exact {
        return (first + distance) as u32;
    }
    // In f32, as the models were trained: in f64 some distances fall into the next bucket.
    let ratio = (distance as f32 / exact as f32).ln() / (max_distance as f64 / exact as f64).ln() as f32;
    let large = exact + (ratio * (buckets - exact) as f32) as usize;
    (first + large.min(buckets - 1)) as u32
}

/// One layer: self-attention, in a decoder cross-attention, and the feed-forward part.
#[derive(Debug, Clone)]
struct Block {
    own: Attention,
    own_norm: RmsNorm,
    cross: Option<(Attention, RmsNorm)>,
    feed_forward: Part,
    feed_forward_norm: RmsNorm,
    dropout: f64,
}

/// The feed-forward part of a layer.
#[derive(Debug, Clone)]
enum Part {
    /// Every token reads it.
    Dense(FeedForward),
    /// Each token is read by one expert.
    Switch(Switch),
}

impl Block {
    fn new(config: &T5Config, (layer, is_decoder): (usize, bool), vb: &VarBuilder) -> Result<Self> {
        let norm = |at: usize| {
            let vb = vb.pp(format!("{at}.layer_norm"));
            RmsNorm::new(config.d_model, config.layer_norm_epsilon, config.initializer_factor, &vb)
        };
        let cross =
            if is_decoder { Some((attention(config, &vb.pp("1.EncDecAttention"))?, norm(1)?)) } else { None };
        let last = 1 + usize::from(is_decoder);
        Ok(Self {
            own: attention(config, &vb.pp(format!("0.{}", config.own_attention(is_decoder))))?,
            own_norm: norm(0)?,
            cross,
            feed_forward: {
                let at = vb.pp(format!("{last}.{}", config.feed_forward_name()));
                match config.experts(layer, is_decoder) {
                    Some(sizes) => Part::Switch(Switch::new(config, sizes, &at)?),
                    None => Part::Dense(FeedForward::new(config, &at)?),
                }
            },
            feed_forward_norm: norm(last)?,
            dropout: config.dropout_rate,
        })
    }

    /// Adds the output of `attention` over the normalised states.
    fn attend(
        &self,
        xs: Tensor,
        attention: &Attention,
        normed: &Tensor,
        source: &KeyValue,
        bias: Option<&Tensor>,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let ys = attention.forward(normed, source, bias, mode)?;
        self.add(xs, ys, mode)
    }

    /// Adds the output of a sublayer to the states.
    fn add(&self, xs: Tensor, ys: Tensor, mode: &mut Mode) -> Result<Tensor> {
        clamp((xs + mode.dropout(ys, self.dropout)?)?)
    }

    /// Adds the output of cross-attention. Keys and values of the memory are computed at the first call for a cache.
    fn cross_attend(
        &self,
        xs: Tensor,
        memory: &Memory,
        layer: &mut LayerCache,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let Some((cross, norm)) = &self.cross else { return Ok(xs) };
        let source = match layer.cross.take() {
            Some(source) => source,
            None if mode.is_training() => cross.project(memory.hidden())?,
            None => cross.project(memory.hidden())?.detach(),
        };
        let normed = norm.forward(&xs, mode)?;
        layer.watch(|| cross.weights(&normed, &source, memory.bias()))?;
        let xs = self.attend(xs, cross, &normed, &source, Some(memory.bias()), mode)?;
        layer.cross = Some(source);
        Ok(xs)
    }

    fn feed_forward(&self, xs: Tensor, mode: &mut Mode) -> Result<Tensor> {
        let normed = self.feed_forward_norm.forward(&xs, mode)?;
        let ys = match &self.feed_forward {
            Part::Dense(part) => part.forward(&normed, mode)?,
            Part::Switch(experts) => experts.forward(&normed, mode)?,
        };
        self.add(xs, ys, mode)
    }
}

/// In f16, large T5 models overflow; the states are then kept below infinity as in `transformers`.
fn clamp(xs: Tensor) -> Result<Tensor> {
    if xs.dtype() == DType::F16 { Ok(xs.clamp(-64504f32, 64504f32)?) } else { Ok(xs) }
}

fn attention(config: &T5Config, vb: &VarBuilder) -> Result<Attention> {
    let (width, heads, head) = (config.d_model, config.num_heads, config.d_kv);
    let std = |fan: usize| config.initializer_factor * (fan as f64).powf(-0.5);
    Ok(Attention {
        query: Linear::new(width, heads * head, std(width * head), &vb.pp("q"))?,
        key: Linear::new(width, heads * head, std(width), &vb.pp("k"))?,
        value: Linear::new(width, heads * head, std(width), &vb.pp("v"))?,
        output: Linear::new(heads * head, width, std(heads * head), &vb.pp("o"))?,
        heads,
        scale: 1.0,
        dropout: config.dropout_rate,
    })
}

/// Two projections with an activation between them; gated (Shazeer 2020) in version 1.1.
#[derive(Debug, Clone)]
pub(super) struct FeedForward {
    input: Linear,
    gated: Option<Linear>,
    output: Linear,
    activation: Activation,
    dropout: f64,
}

impl FeedForward {
    pub(super) fn new(config: &T5Config, vb: &VarBuilder) -> Result<Self> {
        let (activation, gated) = config.activation()?;
        let std = |fan: usize| config.initializer_factor * (fan as f64).powf(-0.5);
        let inner = |name: &str| Linear::new(config.d_model, config.d_ff, std(config.d_model), &vb.pp(name));
        let (input, gated) =
            if gated { (inner("wi_0")?, Some(inner("wi_1")?)) } else { (inner("wi")?, None) };
        let output = Linear::new(config.d_ff, config.d_model, std(config.d_ff), &vb.pp("wo"))?;
        Ok(Self { input, gated, output, activation, dropout: config.dropout_rate })
    }

    pub(super) fn forward(&self, xs: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let mut ys = self.activation.forward(&self.input.forward(xs)?)?;
        if let Some(gated) = &self.gated {
            ys = (ys * gated.forward(xs)?)?;
        }
        let ys = mode.dropout(ys, self.dropout)?;
        self.output.forward(&ys)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::bucket;

    #[derive(Deserialize)]
    struct Table {
        bidirectional: bool,
        buckets: usize,
        max_distance: usize,
        found: Vec<u32>,
    }

    #[test]
    fn distances_fall_into_the_buckets_of_transformers() {
        let tables: Vec<Table> =
            serde_json::from_str(include_str!("../../../tests/data/t5-buckets.json")).unwrap();
        for table in tables {
            for (distance, expected) in (-300..=300).zip(&table.found) {
                let found = bucket(distance, table.bidirectional, table.buckets, table.max_distance);
                let (count, longest) = (table.buckets, table.max_distance);
                assert_eq!(found, *expected, "distance {distance}, {count} buckets to {longest}");
            }
        }
    }
}
