//! A layer of a decoder of LLaMA's shape: self-attention and the feed-forward part.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    feed_forward::linear,
    latent::Latent,
    mixture::Part,
    names,
    norm::{HeadNorm, Norm},
    norms::PartNorms,
};
use crate::{
    architectures::wrong::wrong,
    attention::{rotate, rotate_neighbours},
    cache::{KeyValue, LayerCache},
    causal::{Attending, Biases, attend, split_heads},
    layers::Linear,
    mode::Mode,
};

#[derive(Debug, Clone)]
pub(super) struct Layer {
    attention_norms: [Option<Norm>; 2],
    inputs: Inputs,
    /// The bound of the values of queries, keys and values.
    clip: Option<f64>,
    /// The norms of queries and of keys.
    head_norms: [Option<HeadNorm>; 2],
    /// Whether queries and keys are turned before they are normalised.
    turns_first: bool,
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
    /// The scores of attending to nothing (heads).
    sinks: Option<Tensor>,
    /// The dropout rate of the attention weights.
    dropout: f64,
    feed_forward_norms: [Option<Norm>; 2],
    /// Whether the feed-forward part reads the states before the layer, and not those after attention.
    is_parallel: bool,
    /// Whether the second norms are those of states, after a part is added to them.
    norms_sums: bool,
    part: Part,
    /// The factor of what a part adds to the states.
    residual_scale: f64,
    /// The dropout rates of what the parts add to the states.
    part_dropouts: [f64; 2],
}

/// The projections to queries, keys and values.
#[derive(Debug, Clone)]
enum Inputs {
    Apart {
        query: Linear,
        key: Linear,
        value: Linear,
    },
    /// One has all, each head's at the place that is listed for it: queries first, then keys, then values.
    Together(Linear, Option<Tensor>),
    /// Keys and values are made of a narrow vector.
    Latent(Latent),
}

/// How positions turn queries and keys.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    /// The cosines and sines of their angles (r, 1, t, w), with the two halves of `w` alike.
    pub(super) cos: Tensor,
    pub(super) sin: Tensor,
    /// The factors of queries afterwards (r, 1, t, 1).
    pub(super) growth: Option<Tensor>,
}

pub(super) fn scaled(xs: Tensor, scale: f64) -> Result<Tensor> {
    if scale == 1.0 { Ok(xs) } else { Ok((xs * scale)?) }
}

impl Layer {
    pub(super) fn new(config: &LlamaConfig, at: usize, vb: &VarBuilder) -> Result<Self> {
        let width = config.hidden_size;
        let part_norm =
            |name: Option<&str>| name.map(|name| Norm::new(config, width, &vb.pp(name))).transpose();
        let part_norms =
            |norms: PartNorms| -> Result<_> { Ok([part_norm(norms.before())?, part_norm(norms.after())?]) };
        let (heads, groups, head) = (config.num_attention_heads, config.groups(), config.head_width());
        let input = |heads: usize, name: &str| {
            linear(config, (width, heads * head), config.projections_have_bias(), &vb.pp(name))
        };
        let inputs = match config.inputs() {
            names::Inputs::Apart([query, key, value]) => Inputs::Apart {
                query: input(heads, query)?,
                key: input(groups, key)?,
                value: input(groups, value)?,
            },
            names::Inputs::Latent => match config.latent() {
                Some(sizes) => Inputs::Latent(Latent::new(config, sizes, vb)?),
                None => return Err(wrong("kv_lora_rank", "a number", "none")),
            },
            names::Inputs::Fused(name) | names::Inputs::ByGroup(name) | names::Inputs::InQuarters(name) => {
                let places = config.input_places().map(|places| {
                    let places: Vec<u32> = places.into_iter().map(|place| place as u32).collect();
                    Tensor::new(places, vb.device())
                });
                Inputs::Together(input(heads + 2 * groups, name)?, places.transpose()?)
            }
        };
        let attention_norms = part_norms(config.attention_norms())?;
        let feed_forward_norms = if config.shares_norm() {
            attention_norms.clone()
        } else {
            part_norms(config.feed_forward_norms())?
        };
        let [query_norm, key_norm] = config.head_norm_names();
        let output = &vb.pp(config.kind.names().output);
        let values = config.latent().map_or(head, |sizes| sizes.values);
        let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        let sinks = || vb.get_with_hints(heads, names::SINKS, init);
        Ok(Self {
            attention_norms,
            inputs,
            clip: config.clip(),
            head_norms: [
                HeadNorm::new(config, heads, query_norm, vb)?,
                HeadNorm::new(config, groups, key_norm, vb)?,
            ],
            turns_first: config.turns_first(),
            output: linear(config, (heads * values, width), config.output_has_bias(), output)?,
            heads,
            groups,
            rope: config.rope_of(at),
            turns_neighbours: config.turns_neighbours(),
            is_near: config.window(at).is_some(),
            scale: config.score_scale(),
            cap: config.score_cap(),
            sinks: config.has_sinks().then(sinks).transpose()?,
            dropout: config.score_dropout(),
            feed_forward_norms,
            is_parallel: config.is_parallel(),
            norms_sums: config.norms_sums(),
            part: Part::new(config, at, vb)?,
            residual_scale: config.residual_scale(),
            part_dropouts: config.part_dropouts(),
        })
    }

    /// The queries, keys and values of `xs` (r, t, d), row after row.
    fn project(&self, xs: &Tensor, mode: &Mode) -> Result<[Tensor; 3]> {
        Ok(match &self.inputs {
            Inputs::Apart { query, key, value } => [query.forward(xs)?, key.forward(xs)?, value.forward(xs)?],
            Inputs::Latent(latent) => latent.project(xs, mode)?,
            Inputs::Together(all, places) => {
                let all = all.forward(xs)?;
                let (rows, length, width) = all.dims3()?;
                let head = width / (self.heads + 2 * self.groups);
                let all = match places {
                    Some(places) => all
                        .reshape((rows, length, width / head, head))?
                        .index_select(places, 2)?
                        .reshape((rows, length, width))?,
                    None => all,
                };
                let part = |from: usize, heads: usize| -> Result<Tensor> {
                    Ok(all.narrow(2, from * head, heads * head)?.contiguous()?)
                };
                let values = self.heads + self.groups;
                [part(0, self.heads)?, part(self.heads, self.groups)?, part(values, self.groups)?]
            }
        })
    }

    /// Bounds queries, keys or values.
    fn clipped(&self, xs: Tensor) -> Result<Tensor> {
        Ok(match self.clip {
            Some(most) => xs.clamp(-most, most)?,
            None => xs,
        })
    }

    /// The heads of queries or keys `xs` (r, t, d), normalised and turned.
    fn prepare(
        &self,
        xs: Tensor,
        heads: usize,
        norm: Option<&HeadNorm>,
        turns: &[Turns],
        mode: &Mode,
    ) -> Result<Tensor> {
        let xs = match norm {
            Some(norm) if !self.turns_first => norm.forward(&xs, heads, mode)?,
            _ => xs,
        };
        let xs = split_heads(&self.clipped(xs)?, heads)?;
        let xs = match self.rope {
            Some(rope) => {
                let Turns { cos, sin, .. } = &turns[rope];
                if self.turns_neighbours { rotate_neighbours(&xs, cos, sin)? } else { rotate(&xs, cos, sin)? }
            }
            None => xs,
        };
        match norm {
            Some(norm) if self.turns_first => norm.forward_heads(&xs, mode),
            _ => Ok(xs),
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
        let (own, of_sum) = if self.norms_sums { (None, norm) } else { (norm, None) };
        let result = match own {
            Some(norm) => norm.forward(&result, mode)?,
            None => result,
        };
        let result = mode.dropout(result, dropout)?;
        let sum = (xs + scaled(result, self.residual_scale)?)?;
        match of_sum {
            Some(norm) => norm.forward(&sum, mode),
            None => Ok(sum),
        }
    }

    pub(super) fn forward(
        &self,
        xs: &Tensor,
        turns: &[Turns],
        biases: &Biases,
        kept: &mut LayerCache,
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let [before, after] = &self.attention_norms;
        let [queries, keys, values] = match before {
            Some(norm) => self.project(&norm.forward(xs, mode)?, mode)?,
            None => self.project(xs, mode)?,
        };
        let [query_norm, key_norm] = &self.head_norms;
        let queries = self.prepare(queries, self.heads, query_norm.as_ref(), turns, mode)?;
        let growth = self.rope.and_then(|rope| turns[rope].growth.as_ref());
        let queries = match growth {
            Some(growth) => queries.broadcast_mul(growth)?,
            None => queries,
        };
        let keys = self.prepare(keys, self.groups, key_norm.as_ref(), turns, mode)?;
        let values = split_heads(&self.clipped(values)?, self.groups)?;
        let bias = if self.is_near { biases.near.as_ref() } else { biases.all.as_ref() };
        let with = Attending {
            bias,
            scale: self.scale,
            cap: self.cap,
            sinks: self.sinks.as_ref(),
            dropout: self.dropout,
        };
        let mixed = attend(&queries, KeyValue { keys, values }, kept, &with, mode)?;
        let mixed = match &self.inputs {
            Inputs::Latent(latent) => latent.narrowed(&mixed)?,
            _ => mixed,
        };
        let with = (after.as_ref(), self.part_dropouts[0]);
        let ys = self.add(xs, self.output.forward(&mixed)?, with, mode)?;
        let [before, after] = &self.feed_forward_norms;
        let source = if self.is_parallel { xs } else { &ys };
        let inner = match before {
            Some(norm) => norm.forward(source, mode)?,
            None => source.clone(),
        };
        let with = (after.as_ref(), self.part_dropouts[1]);
        self.add(&ys, self.part.forward(&inner, mode)?, with, mode)
    }
}
