//! LLaMA (Touvron et al. 2023) and its variants: decoders with rotary positions (Su et al. 2021), gated feed-forward
//! parts, root mean square normalisation, and heads that share keys and values; and decoders that differ from it in some of
//! these.

use candle_core::{DType, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Architecture, Result, SpecialTokens};

use super::{
    alternating::Streams,
    attention::Turns,
    config::LlamaConfig,
    layer::{Between, Layer, scaled},
    layer_inputs::LayerTable,
    names::PROJECTIONS,
    norm::Norm,
    positions::QueryGrowth,
    rope::Rope,
};
use crate::{
    cache::LayerCache,
    causal::{Biases, Body, Shape, capped},
    decode::GenerationOptions,
    layers::{Embedding, Linear},
    mode::Mode,
};

/// A model of LLaMA's shape with a language modelling head.
#[derive(Debug, Clone)]
pub struct Llama {
    tokens: Embedding,
    /// The factor of embeddings.
    token_scale: f64,
    /// The projections of embeddings to states, and of states to what the head reads.
    projections: Option<[Linear; 2]>,
    /// The vectors of positions (positions, width).
    positions: Option<Tensor>,
    embedding_norm: Option<Norm>,
    /// The embeddings that each layer has of its own.
    layer_table: Option<LayerTable>,
    /// The projections between embeddings and streams of states.
    streams: Option<Streams>,
    /// The dropout rate of the embeddings.
    dropout: f64,
    ropes: Vec<Rope>,
    /// For each of these, the factors from a position to its angles, (1, w), with the two halves of `w` alike.
    steps: Vec<Tensor>,
    query_growth: Option<QueryGrowth>,
    layers: Vec<Layer>,
    norm: Option<Norm>,
    head: Linear,
    /// The factor of the logits.
    logit_scale: f64,
    /// The bound of the logits.
    logit_cap: Option<f64>,
    shape: Shape,
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
        let outer = config.embedding_width();
        let names = config.kind.names();
        let body = vb.pp(names.body);
        let table = names.table.trim_end_matches(".weight");
        let tokens = Embedding::new(config.vocab_size, outer, std, &vb.pp(table))?;
        let projections = match outer == width {
            true => None,
            false => {
                let [inner, outer_name] = PROJECTIONS.map(|name| body.pp(name));
                Some([Linear::new(outer, width, std, &inner)?, Linear::new(width, outer, std, &outer_name)?])
            }
        };
        let norm = |name: &str| Norm::new(config, width, &body.pp(name));
        let embedding_norm = config.kind.embedding_norm().map(norm).transpose()?;
        let positions = match config.kind.position_offset() {
            Some(_) if config.kind.has_sinusoids() => {
                let rows = config.max_position_embeddings;
                let table = Tensor::from_vec(config.sinusoids(), (rows, width), vb.device())?;
                Some(table.to_dtype(vb.dtype())?)
            }
            Some(offset) => {
                let init = Init::Randn { mean: 0.0, stdev: std };
                let rows = config.max_position_embeddings;
                let name = format!("{}.weight", names.positions);
                let all = body.get_with_hints((offset + rows, width), &name, init)?;
                Some(all.narrow(0, offset, rows)?)
            }
            None => None,
        };
        let layer_table = config.layer_input_width().map(|width| LayerTable::new(config, width, &body));
        let streams = config.streams().map(|sizes| Streams::new(config, sizes, &body)).transpose()?;
        let layer = |at: usize| Layer::new(config, at, &body.pp(names.layers).pp(at));
        let layers: Vec<Layer> = (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?;
        let norm = config.has_last_norm().then(|| norm(names.norm)).transpose()?;
        let head = if config.tie_word_embeddings || !config.head.is_language_model() {
            Linear::shared(tokens.table().clone())
        } else if config.head_has_bias() {
            Linear::with_bias(outer, config.vocab_size, std, &vb.pp(names.head))?
        } else {
            Linear::new(outer, config.vocab_size, std, &vb.pp(names.head))?
        };
        let ropes = config.ropes()?;
        let doubled =
            |rope: &Rope| Tensor::from_vec(rope.steps(0).0.repeat(2), (1, 2 * rope.pairs()), vb.device());
        let steps = ropes.iter().map(doubled).collect::<candle_core::Result<_>>()?;
        let shape = Shape {
            tokens: config.special_tokens(),
            generation: GenerationOptions::default(),
            vocab_size: config.vocab_size,
            max_length: config.max_position_embeddings,
            has_learned_positions: positions.is_some(),
            layers: config.num_hidden_layers,
            window: (0..layers.len()).find_map(|layer| config.window(layer)),
            alibi: config.alibi(),
            is_bidirectional: config.is_bidirectional(),
            is_recurrent: config.is_recurrent(),
            reads_again_after: config.reads_again_after()?,
            dtype: vb.dtype(),
            device: vb.device().clone(),
        };
        Ok(Self {
            tokens,
            token_scale: config.embedding_scale(),
            projections,
            positions,
            embedding_norm,
            layer_table: layer_table.transpose()?,
            streams,
            dropout: config.embedding_dropout(),
            ropes,
            steps,
            query_growth: config.query_growth()?,
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

    /// How tokens at `positions` (r, t) are turned.
    fn turns(&self, (rope, steps): (&Rope, &Tensor), positions: &Tensor) -> Result<Turns> {
        let (rows, length) = positions.dims2()?;
        let dtype = self.shape.dtype;
        let length_of = |row: &[u32]| row.iter().max().map_or(0, |last| *last as usize + 1);
        // The factors of cosines and sines: (r, 1, 1, 1), or none where all are 1.
        let mut scales = Vec::with_capacity(rows);
        let angles = if rope.is_dynamic() {
            let all: Vec<Vec<u32>> = positions.to_vec2()?;
            let mut angles = Vec::with_capacity(2 * rows * length * rope.pairs());
            for row in &all {
                let (steps, scale) = rope.steps(length_of(row));
                let steps = steps.repeat(2);
                scales.push(scale);
                for position in row {
                    angles.extend(steps.iter().map(|step| *position as f32 * step));
                }
            }
            Tensor::from_vec(angles, (rows * length, 2 * rope.pairs()), positions.device())?
        } else {
            scales.resize(rows, rope.steps(0).1);
            positions.to_dtype(DType::F32)?.reshape((rows * length, 1))?.broadcast_mul(steps)?
        };
        let angles = angles.reshape((rows, 1, length, ()))?;
        let scale = match scales.iter().all(|scale| *scale == 1.0) {
            true => None,
            false => Some(Tensor::from_vec(scales, (rows, 1, 1, 1), positions.device())?),
        };
        let scaled = |turns: Tensor| -> Result<Tensor> {
            let turns = match &scale {
                Some(scale) => turns.broadcast_mul(scale)?,
                None => turns,
            };
            Ok(turns.to_dtype(dtype)?)
        };
        let growth = self.query_growth.map(|growth| -> Result<_> {
            let all: Vec<u32> = positions.flatten_all()?.to_vec1()?;
            let factors: Vec<f32> = all.iter().map(|position| growth.at(*position as usize)).collect();
            Ok(Tensor::from_vec(factors, (rows, 1, length, 1), positions.device())?.to_dtype(dtype)?)
        });
        Ok(Turns { cos: scaled(angles.cos()?)?, sin: scaled(angles.sin()?)?, growth: growth.transpose()? })
    }
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
        if let Some([inner, _]) = &self.projections {
            xs = inner.forward(&xs)?;
        }
        if let Some(table) = &self.positions {
            let places = table.index_select(&positions.flatten_all()?, 0)?;
            xs = (&xs + places.reshape(xs.shape())?)?;
        }
        if let Some(norm) = &self.embedding_norm {
            xs = norm.forward(&xs, mode)?;
        }
        let inputs = self.layer_table.as_ref().map(|table| table.forward(ids, &xs, mode)).transpose()?;
        let mut xs = mode.dropout(xs, self.dropout)?;
        let streams = self.streams.as_ref().map(|streams| streams.begin(&xs)).transpose()?;
        let mut between =
            Between { shared: vec![None; self.layers.len()], streams: streams.unwrap_or_default() };
        for (at, (layer, kept)) in self.layers.iter().zip(kept).enumerate() {
            see(&xs);
            let own = inputs.as_ref().map(|inputs| inputs.get_on_dim(2, at)).transpose()?;
            xs = layer.forward((&xs, own.as_ref()), &turns, biases, (kept, &mut between), mode)?;
            if !mode.is_training() {
                // Over trainable weights the graph would keep the states of every layer.
                xs = xs.detach();
            }
        }
        if let Some(streams) = &self.streams {
            xs = streams.end(&between.streams)?;
        }
        if let Some(norm) = &self.norm {
            xs = norm.forward(&xs, mode)?;
        }
        match &self.projections {
            Some([_, outer]) => outer.forward(&xs),
            None => Ok(xs),
        }
    }

    fn logits(&self, states: &Tensor) -> Result<Tensor> {
        capped(scaled(self.head.forward(states)?, self.logit_scale)?, self.logit_cap)
    }
}
