//! BART (Lewis et al. 2020): an encoder-decoder with learned positions and layer normalisation after each part. Its kin differ
//! in the places of norms and in positions, as [`BartFamily`](super::BartFamily) says.

use candle_core::{Device, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Architecture, Result, SpecialTokens};

use super::config::{BartConfig, PROJECTIONS, PositionKind};
use crate::{
    attention::Attention,
    batch::Batch,
    cache::{Cache, KeyValue, LayerCache},
    decode::GenerationOptions,
    layers::{Activation, Embedding, LayerNorm, Linear, values},
    mode::Mode,
    seq2seq::{Memory, Seq2Seq, Trainable, causal_bias, padding_bias, token_rows, too_long, window_bias},
};

/// `BartLayerNorm` takes PyTorch's own epsilon; no config field sets it.
pub(crate) const EPSILON: f64 = 1e-5;

/// A BART model with a language modelling head.
#[derive(Debug, Clone)]
pub struct Bart {
    shared: Embedding,
    encoder: Stack,
    decoder: Stack,
    head: Linear,
    /// (1, vocabulary)
    logits_bias: Option<Tensor>,
    config: BartConfig,
    tokens: SpecialTokens,
    generation: GenerationOptions,
    device: Device,
}

impl Bart {
    /// Takes the weights from `vb`, by their names in `transformers`.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape (a [`Checkpoint`](crate::Checkpoint) reports these with file
    /// and shapes).
    pub fn new(config: &BartConfig, vb: &VarBuilder) -> Result<Self> {
        let mut model = Self::bare(config, vb)?;
        if !config.tie_word_embeddings {
            model.head = Linear::new(config.d_model, config.vocab_size, config.init_std, &vb.pp("lm_head"))?;
        }
        if config.family.has_logits_bias() {
            let shape = (1, config.vocab_size);
            model.logits_bias = Some(vb.get_with_hints(shape, "final_logits_bias", Init::Const(0.0))?);
        }
        Ok(model)
    }

    /// The same with the embeddings as its head.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(super) fn bare(config: &BartConfig, vb: &VarBuilder) -> Result<Self> {
        config.validate()?;
        let body = vb.pp(config.family.body());
        let shared = Embedding::new(config.vocab_size, config.d_model, config.init_std, &body.pp("shared"))?;
        Ok(Self {
            encoder: Stack::new(config, false, &body.pp("encoder"))?,
            decoder: Stack::new(config, true, &body.pp("decoder"))?,
            head: Linear::shared(shared.table().clone()),
            shared,
            logits_bias: None,
            config: config.clone(),
            tokens: config.special_tokens(),
            generation: config.generation_defaults(),
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
    pub fn config(&self) -> &BartConfig {
        &self.config
    }

    /// Token and position embeddings of ids (b, t) that follow `past` others, normalised where the config says so.
    fn embed(&self, stack: &Stack, ids: &Tensor, past: usize, mode: &mut Mode) -> Result<Tensor> {
        let (_, length) = ids.dims2()?;
        let (what, positions) = match stack.is_decoder {
            true => ("decoder", self.config.positions(true)),
            false => ("input", self.config.most_input()),
        };
        if past + length > positions {
            return Err(too_long(what, positions, past + length));
        }
        let mut xs = self.shared.forward(ids)?;
        let is_last = stack.is_decoder && self.config.family.norms_bare_tokens();
        if self.config.scale_embedding && !is_last {
            xs = (xs * (self.config.d_model as f64).sqrt())?;
        }
        let vectors = self.positions(stack, ids, past)?.to_dtype(xs.dtype())?;
        if !is_last {
            xs = xs.broadcast_add(&vectors)?;
        }
        if let Some(norm) = &stack.embedding_norm {
            xs = norm.forward(&xs, mode)?;
        }
        if is_last {
            xs = xs.broadcast_add(&vectors)?;
        }
        mode.dropout(xs, self.config.dropout)
    }

    /// The vectors of the positions of ids (b, t) that follow `past` others: (t, d), or (b, t, d) where they depend on the ids.
    fn positions(&self, stack: &Stack, ids: &Tensor, past: usize) -> Result<Tensor> {
        let (batch, length) = ids.dims2()?;
        let width = self.config.d_model;
        match (&stack.positions, self.config.family.positions()) {
            (Some(table), PositionKind::Learned { offset }) => Ok(table.narrow(0, offset + past, length)?),
            (_, PositionKind::CountedSinusoids) => {
                let pad = self.config.pad_token_id;
                let mut values = vec![0.0; batch * length * width];
                for (ids, rows) in ids.to_vec2::<u32>()?.iter().zip(values.chunks_exact_mut(length * width)) {
                    let mut position = pad as usize + past;
                    let tokens = ids.iter().zip(rows.chunks_exact_mut(width)).filter(|(id, _)| **id != pad);
                    for (_, row) in tokens {
                        position += 1;
                        closed_sinusoids(position, row);
                    }
                }
                Ok(Tensor::from_vec(values, (batch, length, width), &self.device)?)
            }
            _ => {
                let mut values = vec![0.0; length * width];
                let rows = values.chunks_exact_mut(width);
                rows.zip(past..).for_each(|(row, position)| sinusoids(position, row));
                Ok(Tensor::from_vec(values, (length, width), &self.device)?)
            }
        }
    }

    /// The decoder's last states (b, t, d) for ids (b, t) with a mask. `see` gets the states before each layer.
    pub(super) fn decoder_states(
        &self,
        ids: &Tensor,
        mask: &Tensor,
        memory: &Memory,
        mode: &mut Mode,
        see: &mut dyn FnMut(&Tensor),
    ) -> Result<Tensor> {
        let (_, length) = ids.dims2()?;
        let mut xs = self.embed(&self.decoder, ids, 0, mode)?;
        let bias = causal_bias(length, 0, xs.dtype(), &self.device)?
            .broadcast_add(&padding_bias(mask, xs.dtype())?)?;
        for layer in &self.decoder.layers {
            see(&xs);
            xs = layer.attend_to_itself(xs, &bias, mode)?;
            xs = layer.cross_attend(xs, memory, &mut LayerCache::default(), mode)?;
            xs = layer.feed_forward(&xs, mode)?;
        }
        self.decoder.finish(xs, mode)
    }

    /// Logits for the decoder's last states (r, t, d).
    fn logits(&self, states: &Tensor) -> Result<Tensor> {
        let logits = self.head.forward(states)?;
        match &self.logits_bias {
            Some(bias) => Ok(logits.broadcast_add(bias)?),
            None => Ok(logits),
        }
    }
}

impl Seq2Seq for Bart {
    fn encode(&self, input: &Batch) -> Result<Memory> {
        Ok(self.encode_in(input, &mut Mode::Inference)?.detach())
    }

    fn decode(&self, tokens: &[u32], rows: usize, memory: &Memory, cache: &mut Cache) -> Result<Vec<f32>> {
        let mode = &mut Mode::Inference;
        let tokens = token_rows(tokens, rows, &self.device)?;
        let (_, length) = tokens.dims2()?;
        let past = cache.length();
        let mut xs = self.embed(&self.decoder, &tokens, past, mode)?;
        let bias = if length > 1 { Some(causal_bias(length, past, xs.dtype(), &self.device)?) } else { None };
        cache.prepare(self.decoder.layers.len());
        for (layer, kept) in self.decoder.layers.iter().zip(&mut cache.layers) {
            let input = layer.before(&layer.own_norm, &xs, mode)?;
            let own = kept.extend(layer.own.project(&input)?)?;
            xs = layer.attend((&xs, &input), &layer.own, &layer.own_norm, own, bias.as_ref(), mode)?;
            xs = layer.cross_attend(xs, memory, kept, mode)?;
            xs = layer.feed_forward(&xs, mode)?;
        }
        cache.advance(length);
        let last = self.decoder.finish(xs.narrow(1, length - 1, 1)?, mode)?;
        let logits = self.logits(&last)?;
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
        Some(self.config.most_input())
    }

    fn max_output_length(&self) -> Option<usize> {
        Some(self.config.positions(true))
    }

    fn device(&self) -> &Device {
        &self.device
    }
}

impl Trainable for Bart {
    fn encode_in(&self, input: &Batch, mode: &mut Mode) -> Result<Memory> {
        if mode.is_training() {
            self.config.validate_training()?;
        }
        let mut xs = self.embed(&self.encoder, &input.ids, 0, mode)?;
        let padding = padding_bias(&input.mask, xs.dtype())?;
        let windows = self.config.windows();
        let (mut bias, mut last) = (padding.clone(), None);
        for (at, layer) in self.encoder.layers.iter().enumerate() {
            let window = windows.get(at).copied().filter(|window| window + 1 < input.length());
            if window != last {
                bias = match window {
                    Some(window) => {
                        let hidden = window_bias(input.length(), window, xs.dtype(), xs.device())?;
                        padding.broadcast_add(&hidden)?
                    }
                    None => padding.clone(),
                };
                last = window;
            }
            xs = layer.attend_to_itself(xs, &bias, mode)?;
            xs = layer.feed_forward(&xs, mode)?;
        }
        Memory::new(self.encoder.finish(xs, mode)?, input.mask.clone())
    }

    fn decode_in(
        &self,
        decoder_ids: &Tensor,
        decoder_mask: &Tensor,
        memory: &Memory,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        self.logits(&self.decoder_states(decoder_ids, decoder_mask, memory, mode, &mut |_| {})?)
    }
}

/// The encoder's or the decoder's layers, with the embeddings before them.
#[derive(Debug, Clone)]
struct Stack {
    /// (unused rows and positions, width), where they are learned
    positions: Option<Tensor>,
    embedding_norm: Option<LayerNorm>,
    layers: Vec<Layer>,
    final_norm: Option<LayerNorm>,
    is_decoder: bool,
}

/// Writes the sinusoids of a position: the sines of all frequencies, then the cosines.
pub(crate) fn sinusoids(position: usize, out: &mut [f32]) {
    let width = out.len();
    let sines = width.div_ceil(2);
    write_sinusoids(out, sines, |pair| position as f64 / 10_000f64.powf((2 * pair) as f64 / width as f64));
}

/// The same with frequencies of which the last is one ten-thousandth. An odd width ends with 0.
pub(crate) fn closed_sinusoids(position: usize, out: &mut [f32]) {
    let half = out.len() / 2;
    let most = (half.max(2) - 1) as f64;
    out[2 * half..].fill(0.0);
    write_sinusoids(&mut out[..2 * half], half, |pair| position as f64 / 10_000f64.powf(pair as f64 / most));
}

fn write_sinusoids(out: &mut [f32], sines: usize, angle: impl Fn(usize) -> f64) {
    let (sines, cosines) = out.split_at_mut(sines);
    sines.iter_mut().enumerate().for_each(|(pair, value)| *value = angle(pair).sin() as f32);
    cosines.iter_mut().enumerate().for_each(|(pair, value)| *value = angle(pair).cos() as f32);
}

impl Stack {
    fn new(config: &BartConfig, is_decoder: bool, vb: &VarBuilder) -> Result<Self> {
        let count = if is_decoder { config.decoder_layers } else { config.encoder_layers };
        let layers: Result<Vec<_>> =
            (0..count).map(|i| Layer::new(config, is_decoder, &vb.pp(format!("layers.{i}")))).collect();
        let positions = match config.family.positions() {
            PositionKind::Learned { offset } => Some(vb.get_with_hints(
                (config.positions(is_decoder) + offset, config.d_model),
                "embed_positions.weight",
                Init::Randn { mean: 0.0, stdev: config.init_std },
            )?),
            PositionKind::Sinusoids | PositionKind::CountedSinusoids => None,
        };
        let norm = |name: &str| LayerNorm::new(config.d_model, EPSILON, &vb.pp(name));
        let embedding_norm = config.normalize_embedding.then(|| norm("layernorm_embedding")).transpose()?;
        let final_norm = config.normalize_before.then(|| norm(config.family.final_norm())).transpose()?;
        Ok(Self { positions, embedding_norm, layers: layers?, final_norm, is_decoder })
    }

    /// The states of the last layer, normalised where the norms come before the parts.
    fn finish(&self, xs: Tensor, mode: &Mode) -> Result<Tensor> {
        self.final_norm.as_ref().map_or(Ok(xs.clone()), |norm| norm.forward(&xs, mode))
    }
}

/// One layer: self-attention, in a decoder cross-attention, and the feed-forward part.
#[derive(Debug, Clone)]
struct Layer {
    own: Attention,
    own_norm: LayerNorm,
    cross: Option<(Attention, LayerNorm)>,
    inner: Linear,
    outer: Linear,
    feed_forward_norm: LayerNorm,
    norm_first: bool,
    activation: Activation,
    dropout: f64,
    activation_dropout: f64,
}

impl Layer {
    fn new(config: &BartConfig, is_decoder: bool, vb: &VarBuilder) -> Result<Self> {
        let (heads, inner) = if is_decoder {
            (config.decoder_attention_heads, config.decoder_ffn_dim)
        } else {
            (config.encoder_attention_heads, config.encoder_ffn_dim)
        };
        let (width, std) = (config.d_model, config.init_std);
        let norm = |name: &str| LayerNorm::new(width, EPSILON, &vb.pp(name));
        let cross = if is_decoder {
            let names = PROJECTIONS;
            Some((attention(config, heads, names, &vb.pp("encoder_attn"))?, norm("encoder_attn_layer_norm")?))
        } else {
            None
        };
        Ok(Self {
            own: attention(config, heads, config.family.own_projections(is_decoder), &vb.pp("self_attn"))?,
            own_norm: norm("self_attn_layer_norm")?,
            cross,
            inner: Linear::with_bias(width, inner, std, &vb.pp("fc1"))?,
            outer: Linear::with_bias(inner, width, std, &vb.pp("fc2"))?,
            feed_forward_norm: norm("final_layer_norm")?,
            norm_first: config.normalize_before,
            activation: config.activation()?,
            dropout: config.dropout,
            activation_dropout: config.activation_dropout,
        })
    }

    /// The input of a part: the states, normalised where the norm comes first.
    fn before(&self, norm: &LayerNorm, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        if self.norm_first { norm.forward(xs, mode) } else { Ok(xs.clone()) }
    }

    /// The sum of the states and a part's output, normalised where the norm comes last.
    fn after(&self, norm: &LayerNorm, xs: &Tensor, ys: &Tensor, mode: &Mode) -> Result<Tensor> {
        let sum = (xs + ys)?;
        if self.norm_first { Ok(sum) } else { norm.forward(&sum, mode) }
    }

    /// Self-attention over whole sequences.
    fn attend_to_itself(&self, xs: Tensor, bias: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let input = self.before(&self.own_norm, &xs, mode)?;
        let own = self.own.project(&input)?;
        self.attend((&xs, &input), &self.own, &self.own_norm, &own, Some(bias), mode)
    }

    /// Adds the output of `attention` over the part's input to the states.
    fn attend(
        &self,
        (xs, input): (&Tensor, &Tensor),
        attention: &Attention,
        norm: &LayerNorm,
        source: &KeyValue,
        bias: Option<&Tensor>,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let ys = attention.forward(input, source, bias, mode)?;
        self.after(norm, xs, &mode.dropout(ys, self.dropout)?, mode)
    }

    /// Adds the output of cross-attention. Keys and values of the memory are computed at the first call for a cache.
    fn cross_attend(
        &self,
        xs: Tensor,
        memory: &Memory,
        kept: &mut LayerCache,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let Some((cross, norm)) = &self.cross else { return Ok(xs) };
        let source = match kept.cross.take() {
            Some(source) => source,
            None if mode.is_training() => cross.project(memory.hidden())?,
            None => cross.project(memory.hidden())?.detach(),
        };
        let input = self.before(norm, &xs, mode)?;
        kept.watch(|| cross.weights(&input, &source, memory.bias()))?;
        let xs = self.attend((&xs, &input), cross, norm, &source, Some(memory.bias()), mode)?;
        kept.cross = Some(source);
        Ok(xs)
    }

    fn feed_forward(&self, xs: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let input = self.before(&self.feed_forward_norm, xs, mode)?;
        let ys = self.activation.forward(&self.inner.forward(&input)?)?;
        let ys = mode.dropout(ys, self.activation_dropout)?;
        let ys = mode.dropout(self.outer.forward(&ys)?, self.dropout)?;
        self.after(&self.feed_forward_norm, xs, &ys, mode)
    }
}

fn attention(config: &BartConfig, heads: usize, names: [&str; 4], vb: &VarBuilder) -> Result<Attention> {
    let (width, std) = (config.d_model, config.init_std);
    let linear = |name: &str| match config.attention_has_bias() {
        true => Linear::with_bias(width, width, std, &vb.pp(name)),
        false => Linear::new(width, width, std, &vb.pp(name)),
    };
    let [query, key, value, output] = names;
    Ok(Attention {
        query: linear(query)?,
        key: linear(key)?,
        value: linear(value)?,
        output: linear(output)?,
        heads,
        scale: ((width / heads) as f64).powf(-0.5),
        dropout: config.attention_dropout,
    })
}

#[cfg(test)]
mod tests {
    use super::{closed_sinusoids, sinusoids};

    #[test]
    fn the_last_frequency_of_closed_sinusoids_is_one_ten_thousandth() {
        let mut row = [1.0; 7];
        closed_sinusoids(3, &mut row);
        // Frequencies 1, 0.01 and 0.0001.
        let expected = [0.141_120, 0.029_995_5, 0.000_3, -0.989_992_5, 0.999_55, 1.0, 0.0];
        for (found, expected) in row.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{row:?}");
        }
    }

    #[test]
    fn sines_of_all_frequencies_come_before_the_cosines() {
        let mut row = [0.0; 5];
        sinusoids(3, &mut row);
        // Frequencies 1, 10000^-0.4 and 10000^-0.8.
        let expected = [0.141_120, 0.075_285, 0.001_892_9, -0.989_992_5, 0.997_162];
        for (found, expected) in row.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{row:?}");
        }
    }
}
