//! Packs the tensors of decoders.

use candle_core::Device;
use sporran_checkpoint::{Architecture, Result, SpecialTokens};
use sporran_kernels::{Norm, Precision, Scores};

use super::{
    causal::{self, Attention, CausalLayer, Mixer, PackedLlama},
    decoder::PackedDecoder,
    function::{Function, Slopes},
    kv_cache::Heads,
    latent::Latent,
    layers::{Dense, Linear, Machines},
    mixture::{Mixture, Part},
    packer::{Packer, Read, named},
    weights::StoredWeights,
};
use crate::{
    architectures::llama::{
        BESIDE, ExpertTensors, Experts, Gate, HeadNorms, Inner, Inputs, LATENT, LATENT_EPS, LAYER_SCALE,
        LatentSizes, LlamaConfig, NormKind, OwnWeights, PROJECTIONS, PartNames, PartNorms, SHARED_GATE,
        SINKS, SLOPES,
    },
    decode::GenerationOptions,
};

/// What is read of a decoder-only model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// The logits of words.
    Words,
    /// The hidden states.
    States,
}

/// The tensors of a config.
pub(super) struct Source<'a, 'b> {
    pub(super) config: &'a LlamaConfig,
    pub(super) packer: Packer<'b>,
}

impl Source<'_, '_> {
    /// The norm of states called `name`.
    pub(super) fn norm(&mut self, name: &str) -> Result<Norm> {
        self.norm_of(name, self.config.hidden_size)
    }

    pub(super) fn norm_of(&mut self, name: &str, width: usize) -> Result<Norm> {
        let (kind, eps) = (self.config.norm_kind(), self.config.norm_eps());
        if matches!(kind, NormKind::LayerWithoutWeights | NormKind::RootWithoutWeights) {
            let bias = (kind == NormKind::LayerWithoutWeights).then(|| vec![0.0; width]);
            return Ok(Norm { weight: vec![1.0; width], bias, eps: eps as f32 });
        }
        let has_bias = matches!(kind, NormKind::Layer | NormKind::LayerAroundOne);
        let mut norm = self.packer.norm(name, has_bias, eps)?;
        match kind {
            NormKind::RootAroundOne | NormKind::LayerAroundOne => {
                norm.weight.iter_mut().for_each(|weight| *weight += 1.0);
            }
            NormKind::LayerWithoutShift => norm.bias = Some(vec![0.0; width]),
            NormKind::Root
            | NormKind::RootWithoutWeights
            | NormKind::Layer
            | NormKind::LayerWithoutWeights => {}
        }
        Ok(norm)
    }

    /// A norm without weights.
    pub(super) fn plain_norm(&self, width: usize) -> Norm {
        Norm { weight: vec![1.0; width], bias: None, eps: self.config.norm_eps() as f32 }
    }

    /// The norms of queries or keys called `name`, whose heads have this width: one for each head, or one for all.
    fn head_norms(&mut self, name: &str, (heads, width): (usize, usize)) -> Result<Vec<Norm>> {
        let stored = match self.config.head_norms() {
            HeadNorms::None => return Ok(Vec::new()),
            HeadNorms::Each => return Ok(vec![self.norm_of(name, width)?]),
            HeadNorms::All => return Ok(vec![self.norm_of(name, heads * width)?]),
            HeadNorms::Own(stored) => stored,
        };
        let weights: Vec<f32> = match stored {
            OwnWeights::Together => self.packer.values(&format!("{name}.weight"))?,
            OwnWeights::Apart => {
                let of = |head: usize| self.packer.values(&format!("{name}.norms.{head}.weight"));
                (0..heads).map(of).collect::<Result<Vec<_>>>()?.concat()
            }
        };
        let eps = self.config.norm_eps() as f32;
        let norm = |weight: &[f32]| Norm { weight: weight.into(), bias: Some(vec![0.0; width]), eps };
        Ok(weights.chunks_exact(width).map(norm).collect())
    }

    /// A feed-forward part of this inner width, whose tensors are under `at`, with biases where it is said.
    fn dense(&mut self, (names, has_bias): (PartNames, bool), inner: usize, at: &str) -> Result<Dense> {
        let width = self.config.hidden_size;
        let packer = &mut self.packer;
        let (inner_part, gated) = match names.inner {
            Inner::Fused(name) => {
                let [gate, up] = packer.halves(&format!("{at}.{name}"), (width, inner), has_bias)?;
                (gate, Some(up))
            }
            Inner::Gated(gate, up) => {
                let gate = packer.linear(&named(at, &[gate]), width, has_bias)?;
                (gate, Some(packer.linear(&named(at, &[up]), width, has_bias)?))
            }
            Inner::Plain(name) => (packer.linear(&named(at, &[name]), width, has_bias)?, None),
        };
        let outer = packer.linear(&named(at, &[names.outer]), inner, has_bias)?;
        Ok(Dense { inner: inner_part, gated, outer, function: self.function(at)? })
    }

    /// What the feed-forward part of the layer under `at` does between its projections.
    fn function(&mut self, at: &str) -> Result<Function> {
        Ok(match self.config.gate()? {
            Gate::Plain(activation) => activation.into(),
            Gate::Bounded { alpha, most } => Function::Bounded { alpha: alpha as f32, most: most as f32 },
            Gate::Scaled { activation, gate, result } => {
                Function::Scaled { activation: activation.into(), gate: gate as f32, result: result as f32 }
            }
            Gate::Learned => {
                let mut stored = [0.0; 4];
                for (value, name) in stored.iter_mut().zip(SLOPES) {
                    *value =
                        self.packer.values(&format!("{at}.{name}"))?.first().copied().unwrap_or_default();
                }
                Function::Learned(Slopes::new(stored))
            }
        })
    }

    /// The experts of the layer under `at`.
    fn experts(&mut self, sizes: Experts, at: &str) -> Result<Vec<Dense>> {
        let (width, count) = (self.config.hidden_size, sizes.count);
        match self.config.expert_names().experts {
            ExpertTensors::Apart(place, names) => {
                let at = |index: usize| format!("{at}.{place}.{index}");
                (0..count).map(|index| self.dense((names, false), sizes.width, &at(index))).collect()
            }
            ExpertTensors::Together(names) => {
                let [inner, outer] = names.map(|name| format!("{at}.{name}"));
                let expert = |index: usize| {
                    Ok(Dense {
                        inner: self.packer.block(&inner, width, (2 * index, 2 * count))?,
                        gated: Some(self.packer.block(&inner, width, (2 * index + 1, 2 * count))?),
                        outer: self.packer.block(&outer, sizes.width, (index, count))?,
                        function: self.function(at)?,
                    })
                };
                (0..count).map(expert).collect()
            }
            ExpertTensors::Alternating(names) => {
                self.alternating_experts(sizes, names.map(|name| format!("{at}.{name}")), at)
            }
        }
    }

    /// The same where tensors called `inner` and `outer` have all experts as columns.
    fn alternating_experts(
        &mut self,
        sizes: Experts,
        [inner, outer]: [String; 2],
        at: &str,
    ) -> Result<Vec<Dense>> {
        let inner = self.packer.columns(&inner, self.config.hidden_size, sizes.count, 2)?;
        let outer = self.packer.columns(&outer, sizes.width, sizes.count, 1)?;
        let mut experts = Vec::with_capacity(sizes.count);
        for (inner, outer) in inner.into_iter().zip(outer.into_iter().flatten()) {
            let mut inner = inner.into_iter();
            if let (Some(gate), gated) = (inner.next(), inner.next()) {
                experts.push(Dense { inner: gate, gated, outer, function: self.function(at)? });
            }
        }
        Ok(experts)
    }

    /// A mixture of experts, whose tensors are under `at`.
    pub(super) fn mixture(&mut self, sizes: Experts, at: &str) -> Result<Mixture> {
        let (names, width) = (self.config.expert_names(), self.config.hidden_size);
        // Scores decide which experts read a token: they are not rounded.
        let precision = std::mem::replace(&mut self.packer.precision, Precision::F32);
        let router = self.packer.linear(&named(at, &[names.router]), width, sizes.has_bias)?;
        let gate = |this: &mut Self| this.packer.linear(&named(at, &[SHARED_GATE]), width, false);
        let is_weighed = sizes.shared.is_some_and(|shared| shared.is_weighed);
        let gate = is_weighed.then(|| gate(self)).transpose()?;
        self.packer.precision = precision;
        let corrections = match sizes.is_corrected {
            true => self.packer.values(&format!("{at}.{}", names.corrections))?,
            false => Vec::new(),
        };
        let experts = self.experts(sizes, at)?;
        let shared = match sizes.shared {
            Some(shared) => {
                let part = (names.shared_part, self.config.feed_forward_has_bias());
                Some((self.dense(part, shared.width, &format!("{at}.{}", names.shared))?, gate))
            }
            None => None,
        };
        let factors = match self.config.experts_beside() {
            Some(_) => self.packer.values(&format!("{at}.{}", BESIDE.factors))?,
            None => Vec::new(),
        };
        Ok(Mixture { sizes, router, corrections, factors, experts, shared })
    }

    /// The projections over narrow vectors of the layer under `at`.
    fn latent(&mut self, sizes: LatentSizes, at: &str) -> Result<Latent> {
        let (width, has_bias) = (self.config.hidden_size, self.config.attention_bias);
        let packer = &mut self.packer;
        let (narrow_query, query) = match sizes.queries {
            Some(inner) => {
                let narrow = packer.linear(&named(at, &[LATENT.narrow_query]), width, has_bias)?;
                let norm = packer.norm(&format!("{at}.{}", LATENT.query_norm), false, LATENT_EPS)?;
                (Some((narrow, norm)), packer.linear(&named(at, &[LATENT.wide_query]), inner, false)?)
            }
            None => (None, packer.linear(&named(at, &[LATENT.query]), width, false)?),
        };
        Ok(Latent {
            sizes,
            heads: self.config.num_attention_heads,
            narrow_query,
            query,
            narrow_source: packer.linear(&named(at, &[LATENT.narrow_source]), width, has_bias)?,
            source_norm: packer.norm(&format!("{at}.{}", LATENT.source_norm), false, LATENT_EPS)?,
            source: packer.linear(&named(at, &[LATENT.wide_source]), sizes.sources, false)?,
        })
    }

    /// The projections to queries, keys and values of layer `index`, which is under `at`.
    fn inputs(&mut self, index: usize, at: &str) -> Result<causal::Inputs> {
        if let Some(sizes) = self.config.latent() {
            return self.latent(sizes, at).map(causal::Inputs::Latent);
        }
        let (width, has_bias) = (self.config.hidden_size, self.config.projections_have_bias());
        let names = match self.config.inputs() {
            Inputs::Apart([queries, ..]) if self.config.key_source(index).is_some() => named(at, &[queries]),
            Inputs::Apart([queries, keys, _]) if self.config.values_are_keys(index) => {
                named(at, &[queries, keys, keys])
            }
            Inputs::Apart(projections) => named(at, &projections),
            Inputs::Fused(name) | Inputs::ByGroup(name) | Inputs::InQuarters(name) => named(at, &[name]),
            Inputs::Latent => Vec::new(),
        };
        let layer = match (self.config.input_places(), names.as_slice()) {
            (Some(places), [name]) => self.packer.placed(name, width, &places, has_bias),
            _ => self.packer.linear(&names, width, has_bias),
        };
        layer.map(causal::Inputs::Together)
    }

    /// The attention of layer `index`, whose tensors are under `at`.
    fn attention(&mut self, index: usize, at: &str) -> Result<Attention> {
        let config = self.config;
        let (heads, source) = (heads(config, index), config.key_source(index));
        let (inputs, gate) = match config.inputs() {
            Inputs::Apart(names) if config.kind.has_delta_rule() => {
                let has_bias = config.projections_have_bias();
                let names = names.map(|name| format!("{at}.{name}"));
                let [inputs, gate] = self.packer.gated(names, config.hidden_size, heads, has_bias)?;
                (causal::Inputs::Together(inputs), Some(gate))
            }
            _ => (self.inputs(index, at)?, None),
        };
        let [queries, keys] = config.head_norm_names().map(|name| format!("{at}.{name}"));
        let query_norms = self.head_norms(&queries, (heads.heads, heads.width))?;
        let key_norms = match source {
            Some(_) => Vec::new(),
            None => self.head_norms(&keys, (heads.groups, heads.width))?,
        };
        let value_norm = (config.norms_values() && source.is_none()).then(|| self.plain_norm(heads.width));
        let sinks = config.has_sinks().then(|| self.packer.values(&format!("{at}.{SINKS}"))).transpose()?;
        Ok(Attention {
            heads,
            source,
            inputs,
            gate,
            result: config.attention_scale() as f32,
            head_norms: [query_norms, key_norms],
            value_norm,
            rope: config.rope_of(index),
            window: config.window(index),
            sinks,
        })
    }

    /// The part of layer `index` that reads other tokens, and its output.
    fn mixer(&mut self, index: usize, at: &str) -> Result<(Mixer, Linear)> {
        let config = self.config;
        if let Some(recurrence) = config.recurrence(index).filter(|_| !config.attends_beside()) {
            let (recurrence, output) = self.recurrence(recurrence, at)?;
            return Ok((Mixer::Recurrence(recurrence), output));
        }
        let attention = self.attention(index, at)?;
        let values = config.latent().map_or(attention.heads.width, |sizes| sizes.values);
        let (all, has_bias) = (config.num_attention_heads * values, config.output_has_bias());
        let output = self.packer.linear(&named(at, &[config.kind.names().output]), all, has_bias)?;
        Ok((Mixer::Attention(Box::new(attention)), output))
    }

    fn layer(&mut self, index: usize, at: &str) -> Result<CausalLayer> {
        let config = self.config;
        let norms = [config.attention_norms(), config.feed_forward_norms()];
        let [first, second] = norms.map(PartNorms::first);
        let (mixer, output) = self.mixer(index, at)?;
        let beside = match config.recurrence(index) {
            Some(recurrence) if config.attends_beside() => Some(self.recurrence(recurrence, at)?),
            _ => None,
        };
        let part = match config.experts(index) {
            Some(experts) => Part::Experts(self.mixture(experts, at)?),
            None => {
                let names = (config.kind.names().part, config.feed_forward_has_bias());
                let mut part = self.dense(names, config.inner_width(index), at)?;
                if let (Some(least), Function::Plain(activation)) =
                    (config.least_deviation(index), part.function)
                {
                    part.function = Function::Sparse { activation, least: least as f32 };
                }
                Part::Dense(part)
            }
        };
        let norm = self.norm(&format!("{at}.{first}"))?;
        let part_norm =
            if config.shares_norm() { norm.clone() } else { self.norm(&format!("{at}.{second}"))? };
        let mut result_norm = |norms: PartNorms| match norms {
            PartNorms::Around(_, name) => self.norm(&format!("{at}.{name}")).map(Some),
            _ => Ok(None),
        };
        let result_norms = [result_norm(norms[0])?, result_norm(norms[1])?];
        let experts_beside = config.experts_beside().map(|sizes| self.beside(sizes, at).map(Box::new));
        let input = config.layer_input_width().map(|width| self.layer_input(width, at));
        let alternating = config.streams().map(|sizes| self.alternating(sizes, at));
        let scale_after = match config.scales_layers() {
            true => self.packer.values(&format!("{at}.{LAYER_SCALE}"))?.first().copied(),
            false => None,
        };
        Ok(CausalLayer {
            mixer,
            output,
            beside,
            norm,
            part,
            part_norm,
            result_norms,
            experts_beside: experts_beside.transpose()?,
            input: input.transpose()?,
            alternating: alternating.transpose()?,
            scale_after,
        })
    }
}

/// The sizes of the attention of layer `index`.
fn heads(config: &LlamaConfig, index: usize) -> Heads {
    Heads {
        heads: config.num_attention_heads,
        groups: config.layer_groups(index),
        width: config.layer_head_width(index),
    }
}

impl PackedLlama {
    /// Packs a model of LLaMA's shape.
    ///
    /// # Errors
    /// As for [`PackedSeq2Seq::t5`](super::PackedSeq2Seq::t5).
    pub(crate) fn llama(
        config: &LlamaConfig,
        tokens: SpecialTokens,
        generation: GenerationOptions,
        precision: Precision,
        read: Read<'_>,
    ) -> Result<Self> {
        Self::pack(config, Use::Words, (tokens, generation), precision, read)
    }

    fn pack(
        config: &LlamaConfig,
        use_of: Use,
        (tokens, generation): (SpecialTokens, GenerationOptions),
        precision: Precision,
        read: Read<'_>,
    ) -> Result<Self> {
        config.validate()?;
        let mut source = Source { config, packer: Packer { read, precision } };
        let (width, outer, kind) = (config.hidden_size, config.embedding_width(), config.kind);
        let names = kind.names();
        let (head, embeddings) = match use_of {
            Use::Words => {
                let head = (!config.tie_word_embeddings).then_some(names.head);
                let (mut head, embeddings) =
                    source.packer.words(names.table.trim_end_matches(".weight"), head, outer)?;
                if config.head_has_bias() {
                    head.bias = Some(source.packer.values(&format!("{}.bias", names.head))?);
                }
                (Some(head), embeddings)
            }
            Use::States => (None, Some(source.packer.table(names.table, outer)?)),
        };
        let in_body = |name: &str| format!("{}.{name}", names.body);
        let projections = if outer == width {
            None
        } else {
            let [inner, last] = PROJECTIONS.map(in_body);
            let inner = source.packer.linear(&[inner], outer, false)?;
            Some([inner, source.packer.linear(&[last], width, false)?])
        };
        let positions = match kind.position_offset() {
            Some(_) if kind.has_sinusoids() => {
                Some(StoredWeights::of_values(&config.sinusoids()).table(width))
            }
            Some(offset) => {
                let all = source.packer.values(&in_body(&format!("{}.weight", names.positions)))?;
                Some(StoredWeights::of_values(&all[offset * width..]).table(width))
            }
            None => None,
        };
        let embedding_norm = kind.embedding_norm().map(|name| source.norm(&in_body(name))).transpose()?;
        let layer_table = config.layer_input_width().map(|width| source.layer_table(width, names.body));
        let streams = config.streams().map(|sizes| source.streams(sizes, names.body)).transpose()?;
        let layer = |index: usize| source.layer(index, &in_body(&format!("{}.{index}", names.layers)));
        let layers = (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?;
        let norm = config.has_last_norm().then(|| source.norm(&in_body(names.norm))).transpose()?;
        Ok(Self {
            embeddings,
            embedding_scale: config.embedding_scale() as f32,
            projections,
            positions,
            embedding_norm,
            layer_table: layer_table.transpose()?,
            streams,
            head,
            logit_scale: config.logit_scale() as f32,
            logit_cap: config.logit_cap().map(|cap| cap as f32),
            layers,
            norm,
            width,
            ropes: config.ropes()?,
            query_growth: config.query_growth()?,
            alibi: config.alibi(),
            is_bidirectional: config.is_bidirectional(),
            reads_again_after: config.reads_again_after()?,
            turns_neighbours: config.turns_neighbours(),
            turns_first: config.turns_first(),
            clip: config.clip().map(|most| most as f32),
            scores: Scores {
                scale: config.score_scale() as f32,
                cap: config.score_cap().map(|cap| cap as f32),
            },
            norm_first: config.attention_norms().before().is_some(),
            norms_sums: config.norms_sums(),
            is_parallel: config.is_parallel(),
            residual_scale: config.residual_scale() as f32,
            max_length: config.max_position_embeddings,
            tokens,
            generation,
            device: Device::Cpu,
            machines: Machines::default(),
        })
    }
}

impl PackedDecoder {
    /// Packs the body of a model of LLaMA's shape.
    ///
    /// # Errors
    /// As for [`PackedSeq2Seq::t5`](super::PackedSeq2Seq::t5).
    pub(crate) fn new(config: &LlamaConfig, precision: Precision, read: Read<'_>) -> Result<Self> {
        let defaults = (config.special_tokens(), GenerationOptions::default());
        Ok(Self(PackedLlama::pack(config, Use::States, defaults, precision, read)?))
    }
}
