//! The attention of a layer of LLaMA's shape.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Error, Result};

use super::{
    config::LlamaConfig, feed_forward::linear, latent::Latent, layer::scaled, names, norm::HeadNorm,
};
use crate::{
    architectures::wrong::wrong,
    attention::{rotate, rotate_neighbours},
    cache::{KeyValue, LayerCache},
    causal::{Attending, Biases, attend, attend_fused, split_heads},
    fused,
    layers::{Linear, RmsNorm},
    mode::Mode,
};

/// Attention to the tokens before.
#[derive(Debug, Clone)]
pub(super) struct Attention {
    inputs: Inputs,
    /// Whether each query has a gate of its head's results beside it.
    is_gated: bool,
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
    /// The factor of the results.
    result: f64,
    cap: Option<f64>,
    /// The scores of attending to nothing (heads).
    sinks: Option<Tensor>,
    /// The dropout rate of the attention weights.
    dropout: f64,
    /// The place of the layer.
    at: usize,
    /// Whether later layers attend to its keys and values.
    is_source: bool,
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

/// What queries attend to.
enum Sources {
    /// Keys and values of the layer, row after row.
    Own([Tensor; 2]),
    /// Those of this earlier layer.
    Of(usize),
}

/// The keys and values of each layer to which later ones attend; none for the other layers.
pub(super) type Shared = Vec<Option<KeyValue>>;

/// How positions turn queries and keys.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    /// The cosines and sines of their angles (r, 1, t, w), with the two halves of `w` alike.
    pub(super) cos: Tensor,
    pub(super) sin: Tensor,
    /// The factors of queries afterwards (r, 1, t, 1).
    pub(super) growth: Option<Tensor>,
}

impl Attention {
    /// That of layer `at`, whose tensors are under `vb`.
    pub(super) fn new(config: &LlamaConfig, at: usize, vb: &VarBuilder) -> Result<Self> {
        let width = config.hidden_size;
        let (heads, groups) = (config.num_attention_heads, config.layer_groups(at));
        let head = config.layer_head_width(at);
        let is_gated = config.kind.has_delta_rule();
        let input = |heads: usize, name: &str| {
            linear(config, (width, heads * head), config.projections_have_bias(), &vb.pp(name))
        };
        let source = config.key_source(at);
        let value = |name: &str| (!config.values_are_keys(at)).then(|| input(groups, name)).transpose();
        let inputs = match config.inputs() {
            names::Inputs::Apart([query, key, value_name]) => match source {
                Some(source) => Inputs::Queries(input(heads, query)?, source),
                None => Inputs::Apart {
                    query: input(if is_gated { 2 * heads } else { heads }, query)?,
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
        let [query_norm, key_norm] = config.head_norm_names();
        let output = &vb.pp(config.kind.names().output);
        let values = config.latent().map_or(head, |sizes| sizes.values);
        let has_keys = source.is_none();
        let init = Init::Randn { mean: 0.0, stdev: config.initializer_range };
        let sinks = || vb.get_with_hints(heads, names::SINKS, init);
        Ok(Self {
            inputs,
            is_gated,
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
            result: config.attention_scale(),
            cap: config.score_cap(),
            sinks: config.has_sinks().then(sinks).transpose()?,
            dropout: config.score_dropout(),
            at,
            is_source: (at..config.num_hidden_layers).any(|later| config.key_source(later) == Some(at)),
        })
    }

    /// The queries of `xs` (r, t, d), row after row, and what they attend to; with gates, each query has its own after it.
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

    /// Queries with their gates (r, t, heads * 2 w) to both (r, t, heads * w).
    fn gates(&self, both: &Tensor) -> Result<[Tensor; 2]> {
        let (rows, length, all) = both.dims3()?;
        let both = both.reshape((rows, length, self.heads, 2, all / (2 * self.heads)))?;
        let part = |at: usize| both.narrow(3, at, 1)?.contiguous()?.reshape((rows, length, all / 2));
        Ok([part(0)?, part(1)?])
    }

    /// Bounds queries, keys or values.
    fn clipped(&self, xs: Tensor) -> Result<Tensor> {
        Ok(match self.clip {
            Some(most) => xs.clamp(-most, most)?,
            None => xs,
        })
    }

    /// Queries, keys and values as [`attend_fused`] reads them; none where a layer does more than to normalise and to turn.
    fn prepare_fused(
        &self,
        [queries, keys, values]: [&Tensor; 3],
        turns: &[Turns],
        mode: &Mode,
    ) -> Result<Option<[Tensor; 3]>> {
        let turned = match self.rope.map(|rope| &turns[rope]) {
            None => None,
            Some(Turns { cos, sin, growth: None }) if !self.turns_neighbours && !self.turns_first => {
                Some((cos, sin))
            }
            Some(_) => return Ok(None),
        };
        if self.value_norm.is_some() || self.is_source {
            return Ok(None);
        }
        let prepare = |xs: &Tensor, heads: usize, norm: Option<&HeadNorm>| -> Result<Tensor> {
            let xs = match norm {
                Some(norm) => norm.forward(xs, heads, mode)?,
                None => xs.clone(),
            };
            let xs = self.clipped(xs)?;
            match turned {
                Some((cos, sin)) => Ok(fused::rotary(&xs, heads, cos, sin)?),
                None => Ok(xs),
            }
        };
        let [query_norm, key_norm] = &self.head_norms;
        Ok(Some([
            prepare(queries, self.heads, query_norm.as_ref())?,
            prepare(keys, self.groups, key_norm.as_ref())?,
            self.clipped(values.clone())?,
        ]))
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

    /// The values of heads (r, heads, t, w), normalised.
    fn values(&self, xs: Tensor, mode: &Mode) -> Result<Tensor> {
        let values = split_heads(&self.clipped(xs)?, self.groups)?;
        match &self.value_norm {
            Some(norm) => norm.forward(&values, mode),
            None => Ok(values),
        }
    }

    /// States (r, t, d) as attention reads them to its results. Keys and values of earlier layers are in `shared`, and so are its own
    /// afterwards where later layers attend to them.
    pub(super) fn forward(
        &self,
        xs: &Tensor,
        turns: &[Turns],
        biases: &Biases,
        (kept, shared): (&mut LayerCache, &mut Shared),
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let (queries, sources) = self.project(xs, mode)?;
        let (queries, gate) = if self.is_gated {
            let [queries, gate] = self.gates(&queries)?;
            (queries, Some(gate))
        } else {
            (queries, None)
        };
        let bias = if self.is_near { biases.near.as_ref() } else { biases.all.as_ref() };
        let with = Attending {
            bias,
            scale: self.scale,
            cap: self.cap,
            sinks: self.sinks.as_ref(),
            dropout: self.dropout,
        };
        let flat = match &sources {
            Sources::Own([keys, values]) if with.is_fused(&queries, mode) => {
                self.prepare_fused([&queries, keys, values], turns, mode)?
            }
            _ => None,
        };
        let mixed = match flat {
            Some([queries, keys, values]) => {
                attend_fused(&queries, [&keys, &values], (self.heads, self.groups), &with, mode)?
            }
            None => self.attend(queries, sources, turns, &with, (kept, shared), mode)?,
        };
        let mixed = match &self.inputs {
            Inputs::Latent(latent) => latent.narrowed(&mixed)?,
            _ => mixed,
        };
        let mixed = match gate {
            Some(gate) => (mixed * candle_nn::ops::sigmoid(&gate)?)?,
            None => mixed,
        };
        self.output.forward(&scaled(mixed, self.result)?)
    }

    /// Attends from queries (r, t, heads * w) by heads apart.
    fn attend(
        &self,
        queries: Tensor,
        sources: Sources,
        turns: &[Turns],
        with: &Attending<'_>,
        (kept, shared): (&mut LayerCache, &mut Shared),
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let [query_norm, key_norm] = &self.head_norms;
        let queries = self.prepare(queries, self.heads, query_norm.as_ref(), turns, mode)?;
        let growth = self.rope.and_then(|rope| turns[rope].growth.as_ref());
        let queries = match growth {
            Some(growth) => queries.broadcast_mul(growth)?,
            None => queries,
        };
        match sources {
            Sources::Of(layer) => {
                let source = shared[layer].clone().ok_or_else(|| Error::Batch {
                    expected: format!("keys and values of layer {layer}"),
                    found: "none".into(),
                })?;
                // They are kept by the layer whose they are.
                attend(&queries, source, &mut LayerCache::default(), with, mode)
            }
            Sources::Own([keys, values]) => {
                let keys = self.prepare(keys, self.groups, key_norm.as_ref(), turns, mode)?;
                let new = KeyValue { keys, values: self.values(values, mode)? };
                let of_training = (self.is_source && mode.is_training()).then(|| new.clone());
                let mixed = attend(&queries, new, kept, with, mode)?;
                if self.is_source {
                    shared[self.at] = of_training.or_else(|| kept.own.clone());
                }
                Ok(mixed)
            }
        }
    }
}
