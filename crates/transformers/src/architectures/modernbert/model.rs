//! The body of ModernBERT: normalisation before each part, rotary positions, gated feed-forward parts, and layers of global
//! and of local attention.

use candle_core::{D, Device, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::{Architecture, Result};

use super::config::ModernBertConfig;
use crate::{
    attention::merged,
    attention::rotate,
    batch::Batch,
    causal::split_heads,
    encoder::Encoder,
    layers::{Activation, Embedding, LayerNorm, Linear, hidden_score, softmax},
    mode::Mode,
    seq2seq::{padding_bias, too_long},
};

/// The body of ModernBERT (Warner et al. 2024): token ids to states.
#[derive(Debug, Clone)]
pub struct ModernBert {
    words: Embedding,
    embedding_norm: LayerNorm,
    layers: Vec<Layer>,
    final_norm: LayerNorm,
    config: ModernBertConfig,
    device: Device,
}

impl ModernBert {
    /// Takes the body's weights from `vb`, which is that of the whole model.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor
    /// error where `vb` lacks a tensor or has another shape.
    pub fn new(config: &ModernBertConfig, vb: &VarBuilder) -> Result<Self> {
        config.validate()?;
        let vb = if config.prefix().is_empty() { vb.clone() } else { vb.pp("model") };
        let layer = |at: usize| Layer::new(config, at, &vb.pp(format!("layers.{at}")));
        let words = Embedding::new(
            config.vocab_size,
            config.hidden_size,
            config.initializer_range,
            &vb.pp("embeddings.tok_embeddings"),
        )?;
        Ok(Self {
            words,
            embedding_norm: norm(config, &vb.pp("embeddings.norm"))?,
            layers: (0..config.local_layers.len()).map(layer).collect::<Result<_>>()?,
            final_norm: norm(config, &vb.pp("final_norm"))?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }

    /// The config that the model was built from.
    #[must_use]
    pub fn config(&self) -> &ModernBertConfig {
        &self.config
    }

    /// The last hidden states (b, s, d) of the inputs, in the dtype of the weights.
    ///
    /// # Errors
    /// A tensor error, or [`Error::Batch`](sporran_checkpoint::Error::Batch) where an input is too long.
    pub fn forward(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor> {
        self.each_layer(input, mode, &mut |_| {})
    }

    /// The last hidden states; `see` is shown the embeddings and the states after each layer, the last ones normalised.
    fn each_layer(&self, input: &Batch, mode: &mut Mode, see: &mut dyn FnMut(&Tensor)) -> Result<Tensor> {
        let (length, most) = (input.length(), self.config.max_position_embeddings);
        if length > most {
            return Err(too_long("input", most, length));
        }
        let xs = self.embedding_norm.forward(&self.words.forward(&input.ids)?, mode)?;
        let mut xs = mode.dropout(xs, self.config.embedding_dropout)?;
        let padding = padding_bias(&input.mask, xs.dtype())?;
        let places = [false, true].map(|is_local| Places::new(self, &padding, length, is_local));
        let [global, local] = places;
        let (global, local) = (global?, local?);
        for (at, layer) in self.layers.iter().enumerate() {
            see(&xs);
            xs = layer.forward(&xs, if self.config.local_layers[at] { &local } else { &global }, mode)?;
        }
        let xs = self.final_norm.forward(&xs, mode)?;
        see(&xs);
        Ok(xs)
    }

    /// The embedding table (vocabulary, d).
    pub(crate) fn table(&self) -> &Tensor {
        self.words.table()
    }
}

impl Encoder for ModernBert {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        Ok(self.forward(input, &mut Mode::Inference)?.detach())
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::with_capacity(1 + self.layers.len());
        self.each_layer(input, &mut Mode::Inference, &mut |xs| layers.push(xs.detach()))?;
        Ok(layers)
    }

    fn width(&self) -> usize {
        self.config.hidden_size
    }

    fn max_input_length(&self) -> usize {
        self.config.max_position_embeddings
    }

    fn takes_types(&self) -> bool {
        false
    }

    fn pad_token(&self) -> u32 {
        self.config.pad_token_id
    }

    fn device(&self) -> &Device {
        &self.device
    }
}

/// What the layers of one kind share: the angles of positions, and the keys that a query does not see.
struct Places {
    /// (1, 1, t, width of a head)
    cos: Tensor,
    sin: Tensor,
    /// Broadcastable to (b, heads, t, t).
    bias: Tensor,
}

impl Places {
    fn new(model: &ModernBert, padding: &Tensor, length: usize, is_local: bool) -> Result<Self> {
        let (config, dtype) = (&model.config, padding.dtype());
        // The second half of a head repeats the angles of the first.
        let steps = config.rotation_steps(is_local).repeat(2);
        let angles: Vec<f32> =
            (0..length).flat_map(|at| steps.iter().map(move |step| at as f32 * step)).collect();
        let angles = Tensor::from_vec(angles, (1, 1, length, steps.len()), &model.device)?;
        let mut bias = padding.clone();
        if is_local && length > config.window + 1 {
            let hidden = hidden_score(dtype)? as f32;
            let scores: Vec<f32> = (0..length)
                .flat_map(|query| (0..length).map(move |key| key.abs_diff(query)))
                .map(|distance| if distance > config.window { hidden } else { 0.0 })
                .collect();
            let scores = Tensor::from_vec(scores, (1, 1, length, length), &model.device)?.to_dtype(dtype)?;
            // A key that is hidden for both reasons counts once: the sum may exceed the type.
            bias = scores.broadcast_minimum(&bias)?;
        }
        Ok(Self { cos: angles.cos()?.to_dtype(dtype)?, sin: angles.sin()?.to_dtype(dtype)?, bias })
    }
}

/// One layer: self-attention and the feed-forward part, each over normalised states.
#[derive(Debug, Clone)]
struct Layer {
    /// None in the first layer, whose input is normalised already.
    attention_norm: Option<LayerNorm>,
    /// Queries, keys and values side by side.
    inputs: Linear,
    output: Linear,
    heads: usize,
    attention_dropout: f64,
    feed_forward_norm: LayerNorm,
    /// What the activation reads and what it is multiplied with, side by side.
    inner: Linear,
    outer: Linear,
    activation: Activation,
    dropout: f64,
}

impl Layer {
    fn new(config: &ModernBertConfig, at: usize, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let out = config.output_deviation();
        let linear = |inputs: usize, outputs: usize, std: f64, has_bias: bool, name: &str| {
            let vb = vb.pp(name);
            if has_bias {
                Linear::with_bias(inputs, outputs, std, &vb)
            } else {
                Linear::new(inputs, outputs, std, &vb)
            }
        };
        let attention_norm = (at > 0).then(|| norm(config, &vb.pp("attn_norm"))).transpose()?;
        Ok(Self {
            attention_norm,
            inputs: linear(width, 3 * width, std, config.attention_bias, "attn.Wqkv")?,
            output: linear(width, width, out, config.attention_bias, "attn.Wo")?,
            heads: config.num_attention_heads,
            attention_dropout: config.attention_dropout,
            feed_forward_norm: norm(config, &vb.pp("mlp_norm"))?,
            inner: linear(width, 2 * inner, std, config.mlp_bias, "mlp.Wi")?,
            outer: linear(inner, width, out, config.mlp_bias, "mlp.Wo")?,
            activation: config.activation()?,
            dropout: config.mlp_dropout,
        })
    }

    fn forward(&self, xs: &Tensor, places: &Places, mode: &mut Mode) -> Result<Tensor> {
        let normed = match &self.attention_norm {
            Some(norm) => norm.forward(xs, mode)?,
            None => xs.clone(),
        };
        let ys = self.attend(&normed, places, mode)?;
        let ys = mode.dropout(ys, self.attention_dropout)?;
        let xs = (xs + ys)?;
        let inner = self.inner.forward(&self.feed_forward_norm.forward(&xs, mode)?)?;
        let width = inner.dim(D::Minus1)? / 2;
        let activated = self.activation.forward(&inner.narrow(D::Minus1, 0, width)?.contiguous()?)?;
        let gated = (activated * inner.narrow(D::Minus1, width, width)?)?;
        Ok((xs + self.outer.forward(&mode.dropout(gated, self.dropout)?)?)?)
    }

    fn attend(&self, xs: &Tensor, places: &Places, mode: &mut Mode) -> Result<Tensor> {
        let inputs = self.inputs.forward(xs)?;
        let width = inputs.dim(D::Minus1)? / 3;
        let part =
            |at: usize| split_heads(&inputs.narrow(D::Minus1, at * width, width)?.contiguous()?, self.heads);
        let queries = rotate(&part(0)?, &places.cos, &places.sin)?;
        let keys = rotate(&part(1)?, &places.cos, &places.sin)?;
        let scale = ((width / self.heads) as f64).powf(-0.5);
        let scores = (queries.matmul(&keys.t()?)? * scale)?.broadcast_add(&places.bias)?;
        let weights = mode.dropout(softmax(&scores, mode)?, self.attention_dropout)?;
        self.output.forward(&merged(&weights.matmul(&part(2)?)?)?)
    }
}

/// A normalisation of the model.
pub(crate) fn norm(config: &ModernBertConfig, vb: &VarBuilder) -> Result<LayerNorm> {
    let (width, eps) = (config.hidden_size, config.norm_eps);
    if config.norm_bias { LayerNorm::new(width, eps, vb) } else { LayerNorm::without_shift(width, eps, vb) }
}
