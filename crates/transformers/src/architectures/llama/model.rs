//! LLaMA (Touvron et al. 2023) and Qwen 2: decoders with rotary positions (Su et al. 2021), gated feed-forward parts,
//! root mean square normalisation before each part, and heads that share keys and values.

use candle_core::{D, DType, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::{Architecture, Result, SpecialTokens};

use super::config::LlamaConfig;
use crate::{
    cache::{KeyValue, LayerCache},
    causal::{Attending, Body, Shape, attend, split_heads},
    decode::GenerationOptions,
    layers::{Activation, Embedding, Linear, RmsNorm},
    mode::Mode,
};

/// A model of LLaMA's shape with a language modelling head.
#[derive(Debug, Clone)]
pub struct Llama {
    tokens: Embedding,
    /// The factors from a position to its angles, (1, width of a head).
    steps: Tensor,
    layers: Vec<Layer>,
    norm: RmsNorm,
    head: Linear,
    shape: Shape,
}

#[derive(Debug, Clone)]
struct Layer {
    attention_norm: RmsNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
    groups: usize,
    scale: f64,
    /// The dropout rate of the attention weights.
    dropout: f64,
    feed_forward_norm: RmsNorm,
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
}

impl Llama {
    /// Takes the weights from `vb`, by their names in `transformers`.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape.
    pub fn new(config: &LlamaConfig, vb: &VarBuilder) -> Result<Self> {
        config.validate()?;
        let (width, std) = (config.hidden_size, config.initializer_range);
        let body = vb.pp("model");
        let tokens = Embedding::new(config.vocab_size, width, std, &body.pp("embed_tokens"))?;
        let layer = |at: usize| Layer::new(config, &body.pp(format!("layers.{at}")));
        let layers = (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?;
        let norm = RmsNorm::new(width, config.rms_norm_eps, 1.0, &body.pp("norm"))?;
        let head = if config.tie_word_embeddings {
            Linear::shared(tokens.table().clone())
        } else {
            Linear::new(width, config.vocab_size, std, &vb.pp("lm_head"))?
        };
        // The second half of a head repeats the angles of the first.
        let steps = rotation_steps(config).repeat(2);
        let steps = Tensor::from_vec(steps, (1, config.head_width()), vb.device())?;
        let shape = Shape {
            tokens: config.special_tokens(),
            generation: GenerationOptions::default(),
            vocab_size: config.vocab_size,
            max_length: config.max_position_embeddings,
            has_learned_positions: false,
            layers: config.num_hidden_layers,
            dtype: vb.dtype(),
            device: vb.device().clone(),
        };
        Ok(Self { tokens, steps, layers, norm, head, shape })
    }

    /// The same model with the tokens and generation defaults of its folder.
    #[must_use]
    pub fn with_defaults(self, tokens: SpecialTokens, generation: GenerationOptions) -> Self {
        Self { shape: Shape { tokens, generation, ..self.shape }, ..self }
    }
}

/// The factor from a position to the angle of each pair of a head of width `w`: `theta^(-2 i / w)` for pair `i`.
pub(crate) fn rotation_steps(config: &LlamaConfig) -> Vec<f32> {
    let width = config.head_width();
    // In f32 as `transformers` has it, so that far positions have the same angles.
    let step = |pair: usize| 1.0 / (config.theta() as f32).powf((2 * pair) as f32 / width as f32);
    (0..width / 2).map(step).collect()
}

/// Turns each pair of `xs` (r, h, t, w), which lie half a head apart, by its angle; `cos` and `sin` are (r, 1, t, w).
fn rotate(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let half = xs.dim(D::Minus1)? / 2;
    let (first, second) = (xs.narrow(3, 0, half)?, xs.narrow(3, half, half)?);
    let turned = Tensor::cat(&[&second.neg()?, &first], D::Minus1)?;
    Ok((xs.broadcast_mul(cos)? + turned.broadcast_mul(sin)?)?)
}

impl Body for Llama {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn states(
        &self,
        ids: &Tensor,
        positions: &Tensor,
        bias: Option<&Tensor>,
        kept: &mut [LayerCache],
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let (rows, length) = ids.dims2()?;
        let places = positions.to_dtype(DType::F32)?.reshape((rows * length, 1))?;
        let angles = places.broadcast_mul(&self.steps)?.reshape((rows, 1, length, ()))?;
        let dtype = self.shape.dtype;
        let (cos, sin) = (angles.cos()?.to_dtype(dtype)?, angles.sin()?.to_dtype(dtype)?);
        let mut xs = self.tokens.forward(ids)?;
        for (layer, kept) in self.layers.iter().zip(kept) {
            xs = layer.forward(&xs, (&cos, &sin), bias, kept, mode)?;
            if !mode.is_training() {
                // Over trainable weights the graph would keep the states of every layer.
                xs = xs.detach();
            }
        }
        self.norm.forward(&xs, mode)
    }

    fn logits(&self, states: &Tensor) -> Result<Tensor> {
        self.head.forward(states)
    }
}

impl Layer {
    fn new(config: &LlamaConfig, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let linear = |inputs: usize, outputs: usize, has_bias: bool, name: &str| {
            let vb = vb.pp(name);
            if has_bias {
                Linear::with_bias(inputs, outputs, std, &vb)
            } else {
                Linear::new(inputs, outputs, std, &vb)
            }
        };
        let norm = |name: &str| RmsNorm::new(width, config.rms_norm_eps, 1.0, &vb.pp(name));
        let (heads, groups, head) = (config.num_attention_heads, config.groups(), config.head_width());
        let has_bias = config.projections_have_bias();
        Ok(Self {
            attention_norm: norm("input_layernorm")?,
            query: linear(width, heads * head, has_bias, "self_attn.q_proj")?,
            key: linear(width, groups * head, has_bias, "self_attn.k_proj")?,
            value: linear(width, groups * head, has_bias, "self_attn.v_proj")?,
            output: linear(heads * head, width, config.attention_bias, "self_attn.o_proj")?,
            heads,
            groups,
            scale: (head as f64).powf(-0.5),
            dropout: config.attention_dropout,
            feed_forward_norm: norm("post_attention_layernorm")?,
            gate: linear(width, inner, config.mlp_bias, "mlp.gate_proj")?,
            up: linear(width, inner, config.mlp_bias, "mlp.up_proj")?,
            down: linear(inner, width, config.mlp_bias, "mlp.down_proj")?,
            activation: config.activation()?,
        })
    }

    fn forward(
        &self,
        xs: &Tensor,
        (cos, sin): (&Tensor, &Tensor),
        bias: Option<&Tensor>,
        kept: &mut LayerCache,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let inner = self.attention_norm.forward(xs, mode)?;
        let queries = rotate(&split_heads(&self.query.forward(&inner)?, self.heads)?, cos, sin)?;
        let keys = rotate(&split_heads(&self.key.forward(&inner)?, self.groups)?, cos, sin)?;
        let values = split_heads(&self.value.forward(&inner)?, self.groups)?;
        let with = Attending { bias, scale: self.scale, dropout: self.dropout };
        let mixed = attend(&queries, KeyValue { keys, values }, kept, &with, mode)?;
        let xs = (xs + self.output.forward(&mixed)?)?;
        let inner = self.feed_forward_norm.forward(&xs, mode)?;
        let gated =
            (self.activation.forward_fused(&self.gate.forward(&inner)?, mode)? * self.up.forward(&inner)?)?;
        Ok((xs + self.down.forward(&gated)?)?)
    }
}
