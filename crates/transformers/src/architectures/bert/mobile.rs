//! MobileBERT (Sun et al. 2020): layers that work on narrow states between wide ones, and scale and shift states instead of
//! normalising them.

use candle_core::{Device, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{config::BertConfig, layered::Layers};
use crate::{
    attention::Attention,
    batch::Batch,
    layers::{Activation, Embedding, Linear},
    mode::Mode,
    seq2seq::{padding_bias, too_long},
};

/// The sizes of MobileBERT beside BERT's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MobileSizes {
    /// The width of the states inside a layer.
    pub narrow: usize,
    /// The number of feed-forward parts of a layer.
    pub parts: usize,
    /// Whether the head of labels reads the first state through an inner layer.
    pub has_pooler: bool,
}

/// A factor and a shift of each value.
#[derive(Debug, Clone)]
struct Affine {
    weight: Tensor,
    bias: Tensor,
}

impl Affine {
    fn new(width: usize, vb: &VarBuilder) -> Result<Self> {
        let weight = vb.get_with_hints(width, "weight", Init::Const(1.0))?;
        Ok(Self { weight, bias: vb.get_with_hints(width, "bias", Init::Const(0.0))? })
    }

    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        Ok(xs.broadcast_mul(&self.weight)?.broadcast_add(&self.bias)?)
    }
}

/// A layer and what its results are scaled and shifted by.
#[derive(Debug, Clone)]
struct Scaled {
    layer: Linear,
    affine: Affine,
}

impl Scaled {
    fn new(config: &BertConfig, (from, to): (usize, usize), vb: &VarBuilder) -> Result<Self> {
        let layer = Linear::with_bias(from, to, config.initializer_range, &vb.pp("dense"))?;
        Ok(Self { layer, affine: Affine::new(to, &vb.pp("LayerNorm"))? })
    }

    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        self.affine.forward(&self.layer.forward(xs)?)
    }

    /// The sum of the layer's results and `others`, scaled and shifted.
    fn add(&self, xs: &Tensor, others: &Tensor) -> Result<Tensor> {
        self.affine.forward(&(self.layer.forward(xs)? + others)?)
    }
}

/// Two projections with an activation between them.
#[derive(Debug, Clone)]
struct FeedForward {
    inner: Linear,
    outer: Scaled,
}

impl FeedForward {
    fn new(config: &BertConfig, narrow: usize, vb: &VarBuilder) -> Result<Self> {
        let (inner, std) = (config.intermediate_size, config.initializer_range);
        Ok(Self {
            inner: Linear::with_bias(narrow, inner, std, &vb.pp("intermediate.dense"))?,
            outer: Scaled::new(config, (inner, narrow), &vb.pp("output"))?,
        })
    }

    fn forward(&self, xs: &Tensor, activation: Activation) -> Result<Tensor> {
        self.outer.add(&activation.forward(&self.inner.forward(xs)?)?, xs)
    }
}

#[derive(Debug, Clone)]
struct Layer {
    /// From wide states to what attention is added to.
    narrowed: Scaled,
    /// From wide states to what queries and keys are made of. Values are made of the wide ones.
    attended: Scaled,
    attention: Attention,
    affine: Affine,
    /// The last one is that of the layer itself.
    parts: Vec<FeedForward>,
    /// From narrow states to what is added to the wide ones.
    widened: Scaled,
    activation: Activation,
}

impl Layer {
    fn new(config: &BertConfig, sizes: MobileSizes, vb: &VarBuilder) -> Result<Self> {
        let (width, narrow, std) = (config.hidden_size, sizes.narrow, config.initializer_range);
        let linear = |from: usize, name: &str| Linear::with_bias(from, narrow, std, &vb.pp(name));
        let mut parts = (0..sizes.parts.saturating_sub(1))
            .map(|at| FeedForward::new(config, narrow, &vb.pp(format!("ffn.{at}"))))
            .collect::<Result<Vec<_>>>()?;
        parts.push(FeedForward::new(config, narrow, vb)?);
        let heads = config.num_attention_heads;
        Ok(Self {
            narrowed: Scaled::new(config, (width, narrow), &vb.pp("bottleneck.input"))?,
            attended: Scaled::new(config, (width, narrow), &vb.pp("bottleneck.attention"))?,
            attention: Attention {
                query: linear(narrow, "attention.self.query")?,
                key: linear(narrow, "attention.self.key")?,
                value: linear(width, "attention.self.value")?,
                output: linear(narrow, "attention.output.dense")?,
                heads,
                scale: ((narrow / heads) as f64).powf(-0.5),
                dropout: config.attention_probs_dropout_prob,
            },
            affine: Affine::new(narrow, &vb.pp("attention.output.LayerNorm"))?,
            parts,
            widened: Scaled::new(config, (narrow, width), &vb.pp("output.bottleneck"))?,
            activation: config.activation()?,
        })
    }

    fn forward(&self, xs: &Tensor, bias: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let (narrow, attended) = (self.narrowed.forward(xs)?, self.attended.forward(xs)?);
        let source = crate::cache::KeyValue {
            keys: self.attention.heads(&self.attention.key, &attended)?,
            values: self.attention.heads(&self.attention.value, xs)?,
        };
        let mixed = self.attention.forward(&attended, &source, Some(bias), mode)?;
        let mut states = self.affine.forward(&(mixed + narrow)?)?;
        for part in &self.parts {
            states = part.forward(&states, self.activation)?;
        }
        self.widened.add(&states, xs)
    }
}

/// The body of MobileBERT, for inference.
#[derive(Debug, Clone)]
pub(crate) struct MobileBert {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    /// From the embeddings of a token and of its neighbours to states.
    transformation: Linear,
    affine: Affine,
    layers: Vec<Layer>,
    config: BertConfig,
    device: Device,
}

impl MobileBert {
    /// Takes the body's weights from `vb`, which is that of the whole model.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape.
    pub(crate) fn new(config: &BertConfig, sizes: MobileSizes, vb: &VarBuilder) -> Result<Self> {
        config.check()?;
        let vb = match config.prefix() {
            "" => vb.clone(),
            prefix => vb.pp(prefix),
        };
        let (narrow, width, std) = (config.embedding_width(), config.hidden_size, config.initializer_range);
        let at = vb.pp("embeddings");
        let table = |rows, width, name: &str| Embedding::new(rows, width, std, &at.pp(name));
        let transformation = at.pp("embedding_transformation");
        let layer = |prefix: &String| Layer::new(config, sizes, &vb.pp(prefix));
        Ok(Self {
            words: table(config.vocab_size, narrow, "word_embeddings")?,
            positions: table(config.max_position_embeddings, width, "position_embeddings")?,
            types: table(config.type_vocab_size, width, "token_type_embeddings")?,
            transformation: Linear::with_bias(3 * narrow, width, std, &transformation)?,
            affine: Affine::new(width, &at.pp("LayerNorm"))?,
            layers: config.layer_prefixes().iter().map(layer).collect::<Result<_>>()?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }

    /// The states that the first layer reads. The neighbours of the first and of the last token of an input are zeros, and so is
    /// padding.
    fn embed(&self, input: &Batch) -> Result<Tensor> {
        let (size, length) = (input.size(), input.length());
        let most = self.config.max_input_length();
        if length > most {
            return Err(too_long("input", most, length));
        }
        let mask = input.mask.unsqueeze(2)?.to_dtype(self.words.table().dtype())?;
        let words = self.words.forward(&input.ids)?.broadcast_mul(&mask)?;
        let (before, after) = (words.pad_with_zeros(1, 1, 0)?, words.pad_with_zeros(1, 0, 1)?);
        let neighbours = [&after.narrow(1, 1, length)?, &words, &before.narrow(1, 0, length)?];
        // candle joins the last dimension with another layout.
        let joined = Tensor::cat(&neighbours, 2)?.contiguous()?;
        let mut xs = self.transformation.forward(&joined)?;
        xs = xs.broadcast_add(&self.positions.table().narrow(0, 0, length)?)?;
        xs = match &input.types {
            Some(types) => (xs + self.types.forward(types)?)?,
            None => xs.broadcast_add(&self.types.table().narrow(0, 0, 1)?)?,
        };
        debug_assert_eq!(xs.dims()[..2], [size, length]);
        self.affine.forward(&xs)
    }
}

impl Layers for MobileBert {
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
        let (mut xs, mode) = (self.embed(input)?, &mut Mode::Inference);
        see(&xs);
        let bias = padding_bias(&input.mask, xs.dtype())?;
        for layer in &self.layers {
            xs = layer.forward(&xs, &bias, mode)?.detach();
            see(&xs);
        }
        Ok(xs)
    }
}
