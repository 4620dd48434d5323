//! LLaMA (Touvron et al. 2023) and its variants: decoders with rotary positions (Su et al. 2021), gated feed-forward
//! parts, root mean square normalisation, and heads that share keys and values; and decoders that differ from it in some of
//! these.

use candle_core::{D, DType, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Architecture, Result, SpecialTokens};

use super::{
    config::LlamaConfig,
    kind::{HeadNorms, NormKind, PartNorms},
    names,
    rope::Rope,
};
use crate::{
    attention::rotate,
    cache::{KeyValue, LayerCache},
    causal::{Attending, Biases, Body, Shape, attend, capped, split_heads},
    decode::GenerationOptions,
    layers::{Activation, Embedding, LayerNorm, Linear, RmsNorm},
    mode::Mode,
};

/// A model of LLaMA's shape with a language modelling head.
#[derive(Debug, Clone)]
pub struct Llama {
    tokens: Embedding,
    /// The factor of embeddings.
    token_scale: f64,
    /// The learned vectors of positions (positions, width).
    positions: Option<Tensor>,
    /// The dropout rate of the embeddings.
    dropout: f64,
    ropes: Vec<Rope>,
    /// For each of these, the factors from a position to its angles, (1, w), with the two halves of `w` alike.
    steps: Vec<Tensor>,
    layers: Vec<Layer>,
    norm: Norm,
    head: Linear,
    /// The factor of the logits.
    logit_scale: f64,
    /// The bound of the logits.
    logit_cap: Option<f64>,
    shape: Shape,
}

#[derive(Debug, Clone)]
struct Layer {
    attention_norms: [Option<Norm>; 2],
    inputs: Inputs,
    /// The bound of the values of queries, keys and values.
    clip: Option<f64>,
    /// The norms of queries and of keys.
    head_norms: Option<[Norm; 2]>,
    /// Whether these normalise all heads as one vector.
    norms_all_heads: bool,
    output: Linear,
    heads: usize,
    groups: usize,
    /// The place of the layer's angles among the model's; none where it turns nothing.
    rope: Option<usize>,
    /// Whether the two of a pair that is turned together lie side by side.
    turns_neighbours: bool,
    /// Whether the layer attends to a sliding window.
    is_near: bool,
    scale: f64,
    cap: Option<f64>,
    /// The dropout rate of the attention weights.
    dropout: f64,
    feed_forward_norms: [Option<Norm>; 2],
    /// Whether the feed-forward part reads the states before the layer, and not those after attention.
    is_parallel: bool,
    gates: Gates,
    down: Linear,
    activation: Activation,
    /// The factor of what a part adds to the states.
    residual_scale: f64,
    /// The dropout rates of what the parts add to the states.
    part_dropouts: [f64; 2],
}

/// A norm of hidden states.
#[derive(Debug, Clone)]
enum Norm {
    Root(RmsNorm),
    Layer(LayerNorm),
}

impl Norm {
    fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        match self {
            Self::Root(norm) => norm.forward(xs, mode),
            Self::Layer(norm) => norm.forward_fused(xs, mode),
        }
    }
}

/// The projections to queries, keys and values.
#[derive(Debug, Clone)]
enum Inputs {
    Apart {
        query: Linear,
        key: Linear,
        value: Linear,
    },
    Fused(Linear),
    /// The query, the key and the value of a head, then those of the next.
    ByHead(Linear),
}

/// The inner projections of the feed-forward part.
#[derive(Debug, Clone)]
enum Gates {
    Apart {
        gate: Linear,
        up: Linear,
    },
    Fused(Linear),
    /// There is no gate.
    Plain(Linear),
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
        let names = config.kind.names();
        let body = vb.pp(names.body);
        let table = names.table.trim_end_matches(".weight");
        let tokens = Embedding::new(config.vocab_size, width, std, &vb.pp(table))?;
        let positions = match config.kind.position_offset() {
            Some(offset) => {
                let init = Init::Randn { mean: 0.0, stdev: std };
                let rows = config.max_position_embeddings;
                let all = body.get_with_hints((offset + rows, width), "embed_positions.weight", init)?;
                Some(all.narrow(0, offset, rows)?)
            }
            None => None,
        };
        let layer = |at: usize| Layer::new(config, at, &body.pp(format!("layers.{at}")));
        let layers: Vec<Layer> = (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?;
        let norm = norm(config, width, &body.pp(names.norm))?;
        let head = if config.tie_word_embeddings || !config.head.is_language_model() {
            Linear::shared(tokens.table().clone())
        } else if config.kind.head_has_bias() {
            Linear::with_bias(width, config.vocab_size, std, &vb.pp(names.head))?
        } else {
            Linear::new(width, config.vocab_size, std, &vb.pp(names.head))?
        };
        let ropes = config.ropes()?;
        let doubled =
            |rope: &Rope| Tensor::from_vec(rope.steps(0).repeat(2), (1, 2 * rope.pairs()), vb.device());
        let steps = ropes.iter().map(doubled).collect::<candle_core::Result<_>>()?;
        let shape = Shape {
            tokens: config.special_tokens(),
            generation: GenerationOptions::default(),
            vocab_size: config.vocab_size,
            max_length: config.max_position_embeddings,
            has_learned_positions: positions.is_some(),
            layers: config.num_hidden_layers,
            window: config.sliding_window.filter(|_| layers.iter().any(|layer| layer.is_near)),
            dtype: vb.dtype(),
            device: vb.device().clone(),
        };
        Ok(Self {
            tokens,
            token_scale: config.embedding_scale(),
            positions,
            dropout: config.embedding_dropout(),
            ropes,
            steps,
            layers,
            norm,
            head,
            logit_scale: config.logit_scale(),
            logit_cap: config.logit_cap(),
            shape,
        })
    }

    /// The same model with the tokens and generation defaults of its folder.
    #[must_use]
    pub fn with_defaults(self, tokens: SpecialTokens, generation: GenerationOptions) -> Self {
        Self { shape: Shape { tokens, generation, ..self.shape }, ..self }
    }

    /// The cosines and sines of the angles of `positions` (r, t), each (r, 1, t, w) with the two halves of `w` alike.
    fn turns(&self, (rope, steps): (&Rope, &Tensor), positions: &Tensor) -> Result<(Tensor, Tensor)> {
        let (rows, length) = positions.dims2()?;
        let dtype = self.shape.dtype;
        let angles = if rope.is_dynamic() {
            let all: Vec<Vec<u32>> = positions.to_vec2()?;
            let mut angles = Vec::with_capacity(2 * rows * length * rope.pairs());
            for row in &all {
                let steps = rope.steps(row.iter().max().map_or(0, |last| *last as usize + 1)).repeat(2);
                for position in row {
                    angles.extend(steps.iter().map(|step| *position as f32 * step));
                }
            }
            Tensor::from_vec(angles, (rows * length, 2 * rope.pairs()), positions.device())?
        } else {
            positions.to_dtype(DType::F32)?.reshape((rows * length, 1))?.broadcast_mul(steps)?
        };
        let angles = angles.reshape((rows, 1, length, ()))?;
        let scaled = |turns: Tensor| -> Result<Tensor> {
            let turns = if rope.scale == 1.0 { turns } else { (turns * f64::from(rope.scale))? };
            Ok(turns.to_dtype(dtype)?)
        };
        Ok((scaled(angles.cos()?)?, scaled(angles.sin()?)?))
    }
}

/// Turns each pair of `xs` (r, h, t, w), which lie side by side, by its angle; `cos` and `sin` are (r, 1, t, w) with the two
/// halves of `w` alike.
fn rotate_neighbours(xs: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (rows, heads, length, width) = xs.dims4()?;
    let pairs = xs.reshape((rows, heads, length, width / 2, 2))?;
    let part = |at: usize| pairs.narrow(4, at, 1)?.squeeze(4)?.contiguous();
    let (first, second) = (part(0)?, part(1)?);
    let [cos, sin] = [cos.narrow(3, 0, width / 2)?, sin.narrow(3, 0, width / 2)?];
    let turned = [
        (first.broadcast_mul(&cos)? - second.broadcast_mul(&sin)?)?,
        (second.broadcast_mul(&cos)? + first.broadcast_mul(&sin)?)?,
    ];
    Ok(Tensor::stack(&turned, 4)?.reshape((rows, heads, length, width))?)
}

fn norm(config: &LlamaConfig, width: usize, vb: &VarBuilder) -> Result<Norm> {
    let eps = config.norm_eps();
    Ok(match config.kind.norm_kind() {
        NormKind::Root => Norm::Root(RmsNorm::new(width, eps, 1.0, vb)?),
        NormKind::RootAroundOne => Norm::Root(RmsNorm::around_one(width, eps, vb)?),
        NormKind::Layer => Norm::Layer(LayerNorm::new(width, eps, vb)?),
        NormKind::LayerWithoutShift => Norm::Layer(LayerNorm::without_shift(width, eps, vb)?),
        NormKind::LayerWithoutWeights => Norm::Layer(LayerNorm::without_weights(width, eps, vb)?),
    })
}

fn scaled(xs: Tensor, scale: f64) -> Result<Tensor> {
    if scale == 1.0 { Ok(xs) } else { Ok((xs * scale)?) }
}

impl Body for Llama {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn states(
        &self,
        ids: &Tensor,
        positions: &Tensor,
        biases: &Biases,
        kept: &mut [LayerCache],
        mode: &mut Mode,
        see: &mut dyn FnMut(&Tensor),
    ) -> Result<Tensor> {
        let turns = self
            .ropes
            .iter()
            .zip(&self.steps)
            .map(|rope| self.turns(rope, positions))
            .collect::<Result<Vec<_>>>()?;
        let mut xs = scaled(self.tokens.forward(ids)?, self.token_scale)?;
        if let Some(table) = &self.positions {
            let places = table.index_select(&positions.flatten_all()?, 0)?;
            xs = (&xs + places.reshape(xs.shape())?)?;
        }
        let mut xs = mode.dropout(xs, self.dropout)?;
        for (layer, kept) in self.layers.iter().zip(kept) {
            see(&xs);
            xs = layer.forward(&xs, &turns, biases, kept, mode)?;
            if !mode.is_training() {
                // Over trainable weights the graph would keep the states of every layer.
                xs = xs.detach();
            }
        }
        self.norm.forward(&xs, mode)
    }

    fn logits(&self, states: &Tensor) -> Result<Tensor> {
        capped(scaled(self.head.forward(states)?, self.logit_scale)?, self.logit_cap)
    }
}

impl Layer {
    fn new(config: &LlamaConfig, at: usize, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let linear = |inputs: usize, outputs: usize, has_bias: bool, name: &str| {
            let vb = vb.pp(name);
            if has_bias {
                Linear::with_bias(inputs, outputs, std, &vb)
            } else {
                Linear::new(inputs, outputs, std, &vb)
            }
        };
        let part_norm = |name: Option<&str>| name.map(|name| norm(config, width, &vb.pp(name))).transpose();
        let part_norms =
            |norms: PartNorms| -> Result<_> { Ok([part_norm(norms.before())?, part_norm(norms.after())?]) };
        let (heads, groups, head) = (config.num_attention_heads, config.groups(), config.head_width());
        let (has_bias, mlp_bias) = (config.projections_have_bias(), config.feed_forward_has_bias());
        let names = config.kind.names();
        let inputs = match names.inputs {
            names::Inputs::Apart([query, key, value]) => Inputs::Apart {
                query: linear(width, heads * head, has_bias, query)?,
                key: linear(width, groups * head, has_bias, key)?,
                value: linear(width, groups * head, has_bias, value)?,
            },
            names::Inputs::Fused(name) => {
                Inputs::Fused(linear(width, (heads + 2 * groups) * head, has_bias, name)?)
            }
            names::Inputs::ByHead(name) => Inputs::ByHead(linear(width, 3 * heads * head, has_bias, name)?),
        };
        let gates = match names.inner {
            names::Inner::Gated(gate, up) => Gates::Apart {
                gate: linear(width, inner, mlp_bias, gate)?,
                up: linear(width, inner, mlp_bias, up)?,
            },
            names::Inner::Fused(name) => Gates::Fused(linear(width, 2 * inner, mlp_bias, name)?),
            names::Inner::Plain(name) => Gates::Plain(linear(width, inner, mlp_bias, name)?),
        };
        let attention_norms = part_norms(config.kind.attention_norms())?;
        let feed_forward_norms = if config.shares_norm() {
            attention_norms.clone()
        } else {
            part_norms(config.kind.feed_forward_norms())?
        };
        let head_norms = |each: [usize; 2]| -> Result<_> {
            let [queries, keys] = each.map(|heads| heads * head);
            Ok(Some([
                norm(config, queries, &vb.pp("self_attn.q_norm"))?,
                norm(config, keys, &vb.pp("self_attn.k_norm"))?,
            ]))
        };
        let head_norms = match config.kind.head_norms() {
            HeadNorms::None => None,
            HeadNorms::Each => head_norms([1, 1])?,
            HeadNorms::All => head_norms([heads, groups])?,
        };
        Ok(Self {
            attention_norms,
            inputs,
            clip: config.clip(),
            head_norms,
            norms_all_heads: config.kind.head_norms() == HeadNorms::All,
            output: linear(heads * head, width, config.output_has_bias(), names.output)?,
            heads,
            groups,
            rope: config.rope_of(at),
            turns_neighbours: config.kind.turns_neighbours(),
            is_near: config.window(at).is_some(),
            scale: config.score_scale(),
            cap: config.score_cap(),
            dropout: config.attention_dropout,
            feed_forward_norms,
            is_parallel: config.is_parallel(),
            gates,
            down: linear(inner, width, mlp_bias, names.outer)?,
            activation: config.activation()?,
            residual_scale: config.residual_scale(),
            part_dropouts: config.part_dropouts(),
        })
    }

    /// The queries, keys and values of `xs` (r, t, d), row after row.
    fn project(&self, xs: &Tensor) -> Result<[Tensor; 3]> {
        let all = match &self.inputs {
            Inputs::Apart { query, key, value } => [query.forward(xs)?, key.forward(xs)?, value.forward(xs)?],
            Inputs::Fused(all) => {
                let all = all.forward(xs)?;
                let head = all.dim(D::Minus1)? / (self.heads + 2 * self.groups);
                let part = |from: usize, heads: usize| -> Result<Tensor> {
                    Ok(all.narrow(2, from * head, heads * head)?.contiguous()?)
                };
                let values = self.heads + self.groups;
                [part(0, self.heads)?, part(self.heads, self.groups)?, part(values, self.groups)?]
            }
            Inputs::ByHead(all) => {
                let all = all.forward(xs)?;
                let (rows, length, width) = all.dims3()?;
                let all = all.reshape((rows, length, self.heads, 3, width / 3 / self.heads))?;
                let part = |which: usize| -> Result<Tensor> {
                    Ok(all.narrow(3, which, 1)?.contiguous()?.reshape((rows, length, width / 3))?)
                };
                [part(0)?, part(1)?, part(2)?]
            }
        };
        let Some(most) = self.clip else { return Ok(all) };
        let [queries, keys, values] = all;
        Ok([queries.clamp(-most, most)?, keys.clamp(-most, most)?, values.clamp(-most, most)?])
    }

    /// The heads of queries or keys `xs` (r, t, d), normalised and turned.
    fn prepare(
        &self,
        xs: Tensor,
        heads: usize,
        norm: Option<&Norm>,
        turns: &[(Tensor, Tensor)],
        mode: &Mode,
    ) -> Result<Tensor> {
        let xs = match norm {
            None => xs,
            Some(norm) if self.norms_all_heads => norm.forward(&xs, mode)?,
            Some(norm) => {
                let (rows, length, width) = xs.dims3()?;
                let each = xs.reshape((rows, length, heads, width / heads))?;
                norm.forward(&each, mode)?.reshape((rows, length, width))?
            }
        };
        let xs = split_heads(&xs, heads)?;
        match self.rope {
            Some(rope) => {
                let (cos, sin) = &turns[rope];
                if self.turns_neighbours { rotate_neighbours(&xs, cos, sin) } else { rotate(&xs, cos, sin) }
            }
            None => Ok(xs),
        }
    }

    /// Adds the result of a part to the states `xs`, with its norm and its dropout rate.
    fn add(
        &self,
        xs: &Tensor,
        result: Tensor,
        (norm, dropout): (Option<&Norm>, f64),
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let result = match norm {
            Some(norm) => norm.forward(&result, mode)?,
            None => result,
        };
        let result = mode.dropout(result, dropout)?;
        Ok((xs + scaled(result, self.residual_scale)?)?)
    }

    fn forward(
        &self,
        xs: &Tensor,
        turns: &[(Tensor, Tensor)],
        biases: &Biases,
        kept: &mut LayerCache,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let [before, after] = &self.attention_norms;
        let [queries, keys, values] = match before {
            Some(norm) => self.project(&norm.forward(xs, mode)?)?,
            None => self.project(xs)?,
        };
        let [query_norm, key_norm] = match &self.head_norms {
            Some([queries, keys]) => [Some(queries), Some(keys)],
            None => [None, None],
        };
        let queries = self.prepare(queries, self.heads, query_norm, turns, mode)?;
        let keys = self.prepare(keys, self.groups, key_norm, turns, mode)?;
        let values = split_heads(&values, self.groups)?;
        let bias = if self.is_near { biases.near.as_ref() } else { biases.all.as_ref() };
        let with = Attending { bias, scale: self.scale, cap: self.cap, dropout: self.dropout };
        let mixed = attend(&queries, KeyValue { keys, values }, kept, &with, mode)?;
        let with = (after.as_ref(), self.part_dropouts[0]);
        let ys = self.add(xs, self.output.forward(&mixed)?, with, mode)?;
        let [before, after] = &self.feed_forward_norms;
        let source = if self.is_parallel { xs } else { &ys };
        let inner = match before {
            Some(norm) => norm.forward(source, mode)?,
            None => source.clone(),
        };
        let (gate, up) = match &self.gates {
            Gates::Apart { gate, up } => (gate.forward(&inner)?, Some(up.forward(&inner)?)),
            Gates::Fused(both) => {
                let both = both.forward(&inner)?.chunk(2, D::Minus1)?;
                (both[0].contiguous()?, Some(both[1].contiguous()?))
            }
            Gates::Plain(all) => (all.forward(&inner)?, None),
        };
        let active = self.activation.forward_fused(&gate, mode)?;
        let gated = match up {
            Some(up) => (active * up)?,
            None => active,
        };
        let with = (after.as_ref(), self.part_dropouts[1]);
        self.add(&ys, self.down.forward(&gated)?, with, mode)
    }
}
