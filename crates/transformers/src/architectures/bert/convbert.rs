//! ConvBERT (Jiang et al. 2020): half of the heads attend to all tokens, the other half mix near ones by weights that depend
//! on what is there.

use candle_core::{D, Device, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{config::BertConfig, family::BertFamily, layered::Layers};
use crate::{
    architectures::wrong::wrong,
    batch::Batch,
    layers::{Activation, Embedding, LayerNorm, Linear, softmax},
    mode::Mode,
    seq2seq::{padding_bias, too_long},
};

/// The sizes of ConvBERT beside BERT's. Nyströmformer has a kernel alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvSizes {
    /// What the number of heads is divided by: those that are left attend, and as many mix near tokens.
    pub ratio: usize,
    /// The near tokens that are mixed, the own one included: an odd number.
    pub kernel: usize,
    /// The groups of values that the feed-forward part reads.
    pub groups: usize,
}

impl ConvSizes {
    /// The heads of each half.
    fn heads(self, config: &BertConfig) -> usize {
        (config.num_attention_heads / self.ratio.max(1)).max(1)
    }

    pub(super) fn check(self, config: &BertConfig) -> Result<()> {
        if self.ratio == 0 {
            return Err(wrong("head_ratio", "at least 1", "0"));
        }
        if self.kernel.is_multiple_of(2) {
            return Err(wrong("conv_kernel_size", "an odd number", &self.kernel.to_string()));
        }
        if config.family == BertFamily::Nystromformer {
            return Ok(());
        }
        let (width, inner) = (config.hidden_size, config.intermediate_size);
        if !width.is_multiple_of(2 * self.heads(config)) {
            let expected = format!("a multiple of {}, twice the heads that attend", 2 * self.heads(config));
            return Err(wrong("hidden_size", &expected, &width.to_string()));
        }
        if self.groups == 0 || !width.is_multiple_of(self.groups) || !inner.is_multiple_of(self.groups) {
            let expected = format!("a divisor of {width} and {inner}");
            return Err(wrong("num_groups", &expected, &self.groups.to_string()));
        }
        Ok(())
    }
}

/// A projection in groups: each part of the results reads its part of the values.
#[derive(Debug, Clone)]
enum Grouped {
    Whole(Linear),
    Parts {
        /// (groups, values, results)
        weight: Tensor,
        bias: Tensor,
    },
}

impl Grouped {
    fn new(groups: usize, (from, to): (usize, usize), std: f64, vb: &VarBuilder) -> Result<Self> {
        if groups == 1 {
            return Ok(Self::Whole(Linear::with_bias(from, to, std, vb)?));
        }
        let init = Init::Randn { mean: 0.0, stdev: std };
        let weight = vb.get_with_hints((groups, from / groups, to / groups), "weight", init)?;
        Ok(Self::Parts { weight, bias: vb.get_with_hints(to, "bias", Init::Const(0.0))? })
    }

    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        match self {
            Self::Whole(layer) => layer.forward(xs),
            Self::Parts { weight, bias } => {
                let (batch, length, width) = xs.dims3()?;
                let groups = weight.dim(0)?;
                let xs =
                    xs.reshape((batch * length, groups, width / groups))?.transpose(0, 1)?.contiguous()?;
                let xs = xs.matmul(weight)?.transpose(0, 1)?.contiguous()?.reshape((batch, length, ()))?;
                Ok(xs.broadcast_add(bias)?)
            }
        }
    }
}

/// The attention of one half of the heads and the mixing of near tokens by the other.
#[derive(Debug, Clone)]
struct Mixed {
    query: Linear,
    key: Linear,
    value: Linear,
    /// The weights of near tokens, (d, kernel), the layer after them, (all heads, d), and its bias.
    depthwise: Tensor,
    pointwise: Tensor,
    bias: Tensor,
    /// From products of queries and near tokens to the weights of each head.
    weights: Linear,
    /// What is mixed.
    mixed: Linear,
    output: Linear,
    heads: usize,
    kernel: usize,
}

impl Mixed {
    fn new(config: &BertConfig, sizes: ConvSizes, vb: &VarBuilder) -> Result<Self> {
        let (width, std, heads) = (config.hidden_size, config.initializer_range, sizes.heads(config));
        let all = heads * (width / heads / 2);
        let own = vb.pp("self");
        let init = Init::Randn { mean: 0.0, stdev: std };
        let near = own.pp("key_conv_attn_layer");
        let depthwise = near.pp("depthwise").get_with_hints((width, 1, sizes.kernel), "weight", init)?;
        let pointwise = near.pp("pointwise").get_with_hints((all, width, 1), "weight", init)?;
        let linear = |to: usize, name: &str| Linear::with_bias(width, to, std, &own.pp(name));
        let kernels = Linear::with_bias(all, heads * sizes.kernel, std, &own.pp("conv_kernel_layer"))?;
        Ok(Self {
            query: linear(all, "query")?,
            key: linear(all, "key")?,
            value: linear(all, "value")?,
            depthwise: depthwise.squeeze(1)?,
            pointwise: pointwise.squeeze(2)?.t()?,
            bias: near.get_with_hints((all, 1), "bias", Init::Const(0.0))?.squeeze(1)?,
            weights: kernels,
            mixed: linear(all, "conv_out_layer")?,
            output: Linear::with_bias(width, width, std, &vb.pp("output.dense"))?,
            heads,
            kernel: sizes.kernel,
        })
    }

    /// The sum over near tokens of what `part` makes of each, which gets the states (b, s, width) at a distance and its number.
    fn near(&self, xs: &Tensor, part: impl Fn(&Tensor, usize) -> Result<Tensor>) -> Result<Tensor> {
        let (length, side) = (xs.dim(1)?, self.kernel / 2);
        let padded = xs.pad_with_zeros(1, side, side)?;
        let mut sum = part(&padded.narrow(1, 0, length)?, 0)?;
        for at in 1..self.kernel {
            sum = (sum + part(&padded.narrow(1, at, length)?, at)?)?;
        }
        Ok(sum)
    }

    /// `mask` (b, s, 1) is 0 at padding, which is to others as if there were no token.
    fn forward(&self, xs: &Tensor, mask: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let (batch, length, _) = xs.dims3()?;
        let queries = self.query.forward(xs)?;
        let all = queries.dim(2)?;
        let width = all / self.heads;
        let split = |xs: &Tensor| -> Result<Tensor> {
            Ok(xs.reshape((batch, length, self.heads, width))?.transpose(1, 2)?.contiguous()?)
        };
        let scores = split(&queries)?.matmul(&split(&self.key.forward(xs)?)?.t()?)?;
        let scores = (scores * (width as f64).powf(-0.5))?.broadcast_add(bias)?;
        let attended = softmax(&scores, &Mode::Inference)?.matmul(&split(&self.value.forward(xs)?)?)?;
        let attended = attended.transpose(1, 2)?.reshape((batch, length, all))?;
        let near = self.near(&xs.broadcast_mul(mask)?, |xs, at| {
            Ok(xs.broadcast_mul(&self.depthwise.narrow(1, at, 1)?.squeeze(1)?)?)
        })?;
        let near = near.broadcast_matmul(&self.pointwise)?.broadcast_add(&self.bias)?;
        let weights = self.weights.forward(&(near * queries)?)?;
        let weights = weights.reshape((batch, length, self.heads, self.kernel))?;
        let weights = softmax(&weights, &Mode::Inference)?;
        let mixed = self.near(&self.mixed.forward(xs)?.broadcast_mul(mask)?, |xs, at| {
            let xs = xs.contiguous()?.reshape((batch, length, self.heads, width))?;
            Ok(xs.broadcast_mul(&weights.narrow(D::Minus1, at, 1)?)?)
        })?;
        let mixed = mixed.reshape((batch, length, all))?;
        // candle joins the last dimension with another layout.
        self.output.forward(&Tensor::cat(&[&attended, &mixed], 2)?.contiguous()?)
    }
}

#[derive(Debug, Clone)]
struct Layer {
    mixed: Mixed,
    mixed_norm: LayerNorm,
    inner: Grouped,
    outer: Grouped,
    norm: LayerNorm,
    activation: Activation,
}

impl Layer {
    fn new(config: &BertConfig, sizes: ConvSizes, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let norm = |name: &str| LayerNorm::new(width, config.layer_norm_eps, &vb.pp(name));
        Ok(Self {
            mixed: Mixed::new(config, sizes, &vb.pp("attention"))?,
            mixed_norm: norm("attention.output.LayerNorm")?,
            inner: Grouped::new(sizes.groups, (width, inner), std, &vb.pp("intermediate.dense"))?,
            outer: Grouped::new(sizes.groups, (inner, width), std, &vb.pp("output.dense"))?,
            norm: norm("output.LayerNorm")?,
            activation: config.activation()?,
        })
    }

    fn forward(&self, xs: &Tensor, mask: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let mixed = (self.mixed.forward(xs, mask, bias)? + xs)?;
        let xs = self.mixed_norm.forward(&mixed, &Mode::Inference)?;
        let inner = self.activation.forward(&self.inner.forward(&xs)?)?;
        self.norm.forward(&(self.outer.forward(&inner)? + xs)?, &Mode::Inference)
    }
}

/// The body of ConvBERT, for inference.
#[derive(Debug, Clone)]
pub(crate) struct ConvBert {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    embedding_norm: LayerNorm,
    projection: Option<Linear>,
    layers: Vec<Layer>,
    config: BertConfig,
    device: Device,
}

impl ConvBert {
    /// Takes the body's weights from `vb`, which is that of the whole model.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape.
    pub(crate) fn new(config: &BertConfig, sizes: ConvSizes, vb: &VarBuilder) -> Result<Self> {
        config.check()?;
        let vb = match config.prefix() {
            "" => vb.clone(),
            prefix => vb.pp(prefix),
        };
        let (narrow, width, std) = (config.embedding_width(), config.hidden_size, config.initializer_range);
        let at = vb.pp("embeddings");
        let table = |rows, name: &str| Embedding::new(rows, narrow, std, &at.pp(name));
        let projection = config.embedding_size.map(|_| {
            let layer = vb.pp("embeddings_project");
            Linear::with_bias(narrow, width, std, &layer)
        });
        let layer = |at: usize| Layer::new(config, sizes, &vb.pp("encoder.layer").pp(at));
        Ok(Self {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: table(config.max_position_embeddings, "position_embeddings")?,
            types: table(config.type_vocab_size, "token_type_embeddings")?,
            embedding_norm: LayerNorm::new(narrow, config.layer_norm_eps, &at.pp("LayerNorm"))?,
            projection: projection.transpose()?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }
}

/// The sum of the embeddings of words, positions and types; the first token has this row of the table of positions.
pub(super) fn summed(
    words: &Embedding,
    (positions, first): (&Embedding, usize),
    types: &Embedding,
    input: &Batch,
) -> Result<Tensor> {
    let xs = words.forward(&input.ids)?;
    let xs = xs.broadcast_add(&positions.table().narrow(0, first, input.length())?)?;
    Ok(match &input.types {
        Some(of) => (xs + types.forward(of)?)?,
        None => xs.broadcast_add(&types.table().narrow(0, 0, 1)?)?,
    })
}

impl Layers for ConvBert {
    fn config(&self) -> &BertConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn table(&self) -> &Tensor {
        self.words.table()
    }

    fn each_layer(&self, input: &Batch, see: &mut dyn FnMut(&Tensor)) -> Result<Tensor> {
        let (length, most) = (input.length(), self.config.max_input_length());
        if length > most {
            return Err(too_long("input", most, length));
        }
        let xs = summed(&self.words, (&self.positions, 0), &self.types, input)?;
        let mut xs = self.embedding_norm.forward(&xs, &Mode::Inference)?;
        if let Some(projection) = &self.projection {
            xs = projection.forward(&xs)?;
        }
        see(&xs);
        let mask = input.mask.unsqueeze(2)?.to_dtype(xs.dtype())?;
        let bias = padding_bias(&input.mask, xs.dtype())?;
        for layer in &self.layers {
            xs = layer.forward(&xs, &mask, &bias)?.detach();
            see(&xs);
        }
        Ok(xs)
    }
}
