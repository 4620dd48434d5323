//! A layer of a decoder of LLaMA's shape: self-attention and the feed-forward part.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Error, Result};

use super::{
    alternating::Alternating,
    beside::Beside,
    config::LlamaConfig,
    feed_forward::linear,
    latent::Latent,
    layer_inputs::LayerInput,
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
    layers::{Linear, RmsNorm},
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
    /// That of each head's values.
    value_norm: Option<RmsNorm>,
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
    /// The experts beside it.
    beside: Option<Beside>,
    /// What the embeddings of the layer add to the states.
    input: Option<LayerInput>,
    /// What it does with streams of states.
    alternating: Option<Alternating>,
    /// The factor of the states afterwards (1).
    scale_after: Option<Tensor>,
    /// The place of the layer.
    at: usize,
    /// Whether later layers attend to its keys and values.
    is_source: bool,
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
        /// None where values are keys.
        value: Option<Linear>,
    },
    /// There are queries alone, which attend to the keys and values of an earlier layer.
    Queries(Linear, usize),
    /// One has all, each head's at the place that is listed for it: queries first, then keys, then values.
    Together(Linear, Option<Tensor>),
    /// Keys and values are made of a narrow vector.
    Latent(Latent),
}

/// What layers leave to later ones, beside states.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// For each layer, its keys and values where later ones attend to them.
    pub(super) shared: Vec<Option<KeyValue>>,
    /// The streams of states, of which layers read one.
    pub(super) streams: Vec<Tensor>,
}

/// What queries attend to.
enum Sources {
    /// Keys and values of the layer, row after row.
    Own([Tensor; 2]),
    /// Those of this earlier layer.
    Of(usize),
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
        let (heads, groups) = (config.num_attention_heads, config.layer_groups(at));
        let head = config.layer_head_width(at);
        let input = |heads: usize, name: &str| {
            linear(config, (width, heads * head), config.projections_have_bias(), &vb.pp(name))
        };
        let source = config.key_source(at);
        let value = |name: &str| (!config.values_are_keys(at)).then(|| input(groups, name)).transpose();
        let inputs = match config.inputs() {
            names::Inputs::Apart([query, key, value_name]) => match source {
                Some(source) => Inputs::Queries(input(heads, query)?, source),
                None => Inputs::Apart {
                    query: input(heads, query)?,
                    key: input(groups, key)?,
                    value: value(value_name)?,
                },
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
        let has_keys = source.is_none();
        let beside = config.experts_beside().map(|sizes| Beside::new(config, sizes, vb));
        let own_input = config.layer_input_width().map(|width| LayerInput::new(config, width, vb));
        let alternating = config.streams().map(|sizes| Alternating::new(config, sizes, vb));
        let scale_after = || vb.get_with_hints(1, names::LAYER_SCALE, Init::Const(1.0));
        let scale_after = config.scales_layers().then(scale_after).transpose()?;
        let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        let sinks = || vb.get_with_hints(heads, names::SINKS, init);
        Ok(Self {
            attention_norms,
            inputs,
            clip: config.clip(),
            head_norms: [
                HeadNorm::new(config, (heads, head), query_norm, vb)?,
                if has_keys { HeadNorm::new(config, (groups, head), key_norm, vb)? } else { None },
            ],
            value_norm: (config.norms_values() && has_keys)
                .then(|| RmsNorm::without_weights(head, config.norm_eps(), vb))
                .transpose()?,
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
            beside: beside.transpose()?,
            input: own_input.transpose()?,
            alternating: alternating.transpose()?,
            // It is no parameter.
            scale_after: scale_after.map(|scale| scale.detach()),
            at,
            is_source: (at..config.num_hidden_layers).any(|later| config.key_source(later) == Some(at)),
            residual_scale: config.residual_scale(),
            part_dropouts: config.part_dropouts(),
        })
    }

    /// The queries of `xs` (r, t, d), row after row, and what they attend to.
    fn project(&self, xs: &Tensor, mode: &Mode) -> Result<(Tensor, Sources)> {
        let [queries, keys, values] = match &self.inputs {
            Inputs::Queries(query, source) => return Ok((query.forward(xs)?, Sources::Of(*source))),
            Inputs::Apart { query, key, value } => {
                let keys = key.forward(xs)?;
                let values = value.as_ref().map_or_else(|| Ok(keys.clone()), |value| value.forward(xs))?;
                [query.forward(xs)?, keys, values]
            }
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
        };
        Ok((queries, Sources::Own([keys, values])))
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

    /// The values of heads (r, heads, t, w), normalised.
    fn values(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let values = split_heads(&self.clipped(xs.clone())?, self.groups)?;
        match &self.value_norm {
            Some(norm) => norm.forward(&values, mode),
            None => Ok(values),
        }
    }

    /// The states after the layer of `xs` (r, t, d), of which its own embeddings are `own` (r, t, w).
    pub(super) fn forward(
        &self,
        (xs, own): (&Tensor, Option<&Tensor>),
        turns: &[Turns],
        biases: &Biases,
        (kept, between): (&mut LayerCache, &mut Between),
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let [before, after] = &self.attention_norms;
        let begun = self.alternating.as_ref().map(|own| own.begin(&mut between.streams, mode)).transpose()?;
        let xs = begun.as_ref().unwrap_or(xs);
        let read = match before {
            Some(norm) => norm.forward(xs, mode)?,
            None => xs.clone(),
        };
        let (queries, sources) = self.project(&read, mode)?;
        let [query_norm, key_norm] = &self.head_norms;
        let queries = self.prepare(queries, self.heads, query_norm.as_ref(), turns, mode)?;
        let growth = self.rope.and_then(|rope| turns[rope].growth.as_ref());
        let queries = match growth {
            Some(growth) => queries.broadcast_mul(growth)?,
            None => queries,
        };
        let bias = if self.is_near { biases.near.as_ref() } else { biases.all.as_ref() };
        let with = Attending {
            bias,
            scale: self.scale,
            cap: self.cap,
            sinks: self.sinks.as_ref(),
            dropout: self.dropout,
        };
        let mixed = match sources {
            Sources::Of(layer) => {
                let source = between.shared[layer].clone().ok_or_else(|| Error::Batch {
                    expected: format!("keys and values of layer {layer}"),
                    found: "none".into(),
                })?;
                // They are kept by the layer whose they are.
                attend(&queries, source, &mut LayerCache::default(), &with, mode)?
            }
            Sources::Own([keys, values]) => {
                let keys = self.prepare(keys, self.groups, key_norm.as_ref(), turns, mode)?;
                let new = KeyValue { keys, values: self.values(&values, mode)? };
                let of_training = (self.is_source && mode.is_training()).then(|| new.clone());
                let mixed = attend(&queries, new, kept, &with, mode)?;
                if self.is_source {
                    between.shared[self.at] = of_training.or_else(|| kept.own.clone());
                }
                mixed
            }
        };
        let mixed = match &self.inputs {
            Inputs::Latent(latent) => latent.narrowed(&mixed)?,
            _ => mixed,
        };
        let with = (after.as_ref(), self.part_dropouts[0]);
        let ys = self.add(xs, self.output.forward(&mixed)?, with, mode)?;
        let ys = match &self.alternating {
            Some(own) => scaled((ys + own.residual(&read, mode)?)?, 0.5f64.sqrt())?,
            None => ys,
        };
        let [before, after] = &self.feed_forward_norms;
        let source = if self.is_parallel { xs } else { &ys };
        let inner = match before {
            Some(norm) => norm.forward(source, mode)?,
            None => source.clone(),
        };
        let with = (after.as_ref(), self.part_dropouts[1]);
        let result = self.part.forward(&inner, mode)?;
        let result = match &self.beside {
            Some(beside) => beside.add(&ys, &result, mode)?,
            None => result,
        };
        let ys = self.add(&ys, result, with, mode)?;
        let ys = match (&self.alternating, &self.input, own) {
            (Some(alternating), Some(input), Some(own)) => {
                alternating.end(&mut between.streams, &ys, mode, |xs| input.forward(xs, own, mode))?;
                ys
            }
            (None, Some(input), Some(own)) => (&ys + input.forward(&ys, own, mode)?)?,
            _ => ys,
        };
        match &self.scale_after {
            Some(scale) => Ok(ys.broadcast_mul(scale)?),
            None => Ok(ys),
        }
    }
}
