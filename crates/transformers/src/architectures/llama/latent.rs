//! Keys and values that are made of one narrow vector for all heads (DeepSeek-AI 2024, "multi-head latent attention").

use candle_core::{D, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{config::LlamaConfig, feed_forward::linear, kind::LlamaKind};
use crate::{
    layers::{Linear, RmsNorm},
    mode::Mode,
};

/// The sizes of such attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LatentSizes {
    /// The width of the vector that queries are made of; none where they are made of the states.
    pub(crate) queries: Option<usize>,
    /// The width of the vector that keys and values are made of.
    pub(crate) sources: usize,
    /// The width of the part of a head's queries and keys that is turned. All heads share that of the keys.
    pub(crate) turned: usize,
    /// The width of the part that is not.
    pub(crate) plain: usize,
    /// The width of a head's values.
    pub(crate) values: usize,
}

impl LatentSizes {
    /// The width of a head's queries and keys. The part that is turned comes first here; in the tensors it comes last.
    pub(crate) fn width(self) -> usize {
        self.turned.saturating_add(self.plain)
    }
}

/// The names of the tensors, in a layer.
pub(crate) struct LatentNames {
    pub(crate) query: &'static str,
    pub(crate) narrow_query: &'static str,
    pub(crate) query_norm: &'static str,
    pub(crate) wide_query: &'static str,
    pub(crate) narrow_source: &'static str,
    pub(crate) source_norm: &'static str,
    pub(crate) wide_source: &'static str,
}

pub(crate) const LATENT: LatentNames = LatentNames {
    query: "self_attn.q_proj",
    narrow_query: "self_attn.q_a_proj",
    query_norm: "self_attn.q_a_layernorm",
    wide_query: "self_attn.q_b_proj",
    narrow_source: "self_attn.kv_a_proj_with_mqa",
    source_norm: "self_attn.kv_a_layernorm",
    wide_source: "self_attn.kv_b_proj",
};
/// What the norms of the narrow vectors add, whatever the config says.
pub(crate) const LATENT_EPS: f64 = 1e-6;

impl LlamaConfig {
    /// The sizes of attention over a narrow vector; none where there is a projection to keys.
    pub(crate) fn latent(&self) -> Option<LatentSizes> {
        self.kind.is_latent().then(|| LatentSizes {
            queries: self.q_lora_rank,
            sources: self.kv_lora_rank.unwrap_or(0),
            turned: self.qk_rope_head_dim.unwrap_or(0),
            plain: self.qk_nope_head_dim.unwrap_or(0),
            values: match self.v_head_dim {
                None if self.kind == LlamaKind::MiniCpm3 => {
                    self.hidden_size / self.num_attention_heads.max(1)
                }
                width => width.unwrap_or(0),
            },
        })
    }

    /// The factor of scores where angles are stretched.
    pub(super) fn latent_factor(&self) -> f64 {
        let Some(rope) = self.rope_scaling.as_ref().or(self.rope_parameters.as_ref()) else { return 1.0 };
        let kind = rope.rope_type.as_deref().or(rope.old_type.as_deref()).unwrap_or("default");
        match (kind, rope.mscale_all_dim, rope.factor) {
            ("default", ..) | (_, None, _) | (_, _, None) => 1.0,
            (_, Some(scale), Some(factor)) if scale != 0.0 && factor > 1.0 => {
                (0.1 * scale * factor.ln() + 1.0).powi(2)
            }
            _ => 1.0,
        }
    }
}

/// The projections.
#[derive(Debug, Clone)]
pub(super) struct Latent {
    sizes: LatentSizes,
    heads: usize,
    /// The projection to the narrow vector and its norm.
    narrow_query: Option<(Linear, RmsNorm)>,
    query: Linear,
    narrow_source: Linear,
    source_norm: RmsNorm,
    source: Linear,
}

impl Latent {
    pub(super) fn new(config: &LlamaConfig, sizes: LatentSizes, vb: &VarBuilder) -> Result<Self> {
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        let norm = |width: usize, name: &str| RmsNorm::new(width, LATENT_EPS, 1.0, &vb.pp(name));
        let narrow = |outputs: usize, name: &str| {
            linear(config, (width, outputs), config.attention_bias, &vb.pp(name))
        };
        let wide = |sizes: (usize, usize), name: &str| linear(config, sizes, false, &vb.pp(name));
        let queries = heads * sizes.width();
        let (narrow_query, query) = match sizes.queries {
            Some(inner) => (
                Some((narrow(inner, LATENT.narrow_query)?, norm(inner, LATENT.query_norm)?)),
                wide((inner, queries), LATENT.wide_query)?,
            ),
            None => (None, wide((width, queries), LATENT.query)?),
        };
        let sources = heads * (sizes.plain + sizes.values);
        Ok(Self {
            sizes,
            heads,
            narrow_query,
            query,
            narrow_source: narrow(sizes.sources + sizes.turned, LATENT.narrow_source)?,
            source_norm: norm(sizes.sources, LATENT.source_norm)?,
            source: wide((sizes.sources, sources), LATENT.wide_source)?,
        })
    }

    /// The queries, keys and values (r, t, heads * width) of `xs` (r, t, d), not yet turned. Values are filled up with zeros.
    pub(super) fn project(&self, xs: &Tensor, mode: &Mode) -> Result<[Tensor; 3]> {
        let (rows, length, _) = xs.dims3()?;
        let LatentSizes { sources, turned, plain, values, .. } = self.sizes;
        let (heads, width) = (self.heads, self.sizes.width());
        let flat = |xs: Tensor| xs.reshape((rows, length, heads * width));
        let queries = match &self.narrow_query {
            Some((narrow, norm)) => self.query.forward(&norm.forward(&narrow.forward(xs)?, mode)?)?,
            None => self.query.forward(xs)?,
        };
        let queries = queries.reshape((rows, length, heads, width))?;
        let queries = [queries.narrow(3, plain, turned)?, queries.narrow(3, 0, plain)?];
        let narrow = self.narrow_source.forward(xs)?;
        let shared = narrow.narrow(2, sources, turned)?.unsqueeze(2)?;
        let shared = shared.broadcast_as((rows, length, heads, turned))?;
        let source = self.source_norm.forward(&narrow.narrow(2, 0, sources)?.contiguous()?, mode)?;
        let source = self.source.forward(&source)?.reshape((rows, length, heads, plain + values))?;
        let keys = [shared.contiguous()?, source.narrow(3, 0, plain)?.contiguous()?];
        let values = source.narrow(3, plain, values)?.pad_with_zeros(D::Minus1, 0, width - values)?;
        // candle joins the last dimension with another layout.
        let joined = |parts: &[Tensor]| flat(Tensor::cat(parts, D::Minus1)?.contiguous()?);
        Ok([joined(&queries)?, joined(&keys)?, flat(values.contiguous()?)?])
    }

    /// The mixed values (r, t, heads * width) without the zeros.
    pub(super) fn narrowed(&self, mixed: &Tensor) -> Result<Tensor> {
        let (rows, length, _) = mixed.dims3()?;
        let values = mixed.reshape((rows, length, self.heads, self.sizes.width()))?;
        let values = values.narrow(3, 0, self.sizes.values)?.contiguous()?;
        Ok(values.reshape((rows, length, self.heads * self.sizes.values))?)
    }
}
