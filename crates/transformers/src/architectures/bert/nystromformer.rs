//! Nyströmformer (Xiong et al. 2021) with complete attention, as the released models have it: values of near tokens are added to
//! what attention mixes.

use candle_core::{Device, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{config::BertConfig, convbert::summed, layered::Layers};
use crate::{
    batch::Batch,
    layers::{Activation, Embedding, LayerNorm, Linear, softmax},
    mode::Mode,
    seq2seq::{padding_bias, too_long},
};

/// The row of the table of positions that belongs to the first token.
const FIRST: usize = 2;

#[derive(Debug, Clone)]
struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// The weights of near values, (heads, kernel).
    near: Tensor,
    attention_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    norm: LayerNorm,
    activation: Activation,
}

impl Layer {
    fn new(config: &BertConfig, kernel: usize, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let linear = |from, to, name: &str| Linear::with_bias(from, to, std, &vb.pp(name));
        let norm = |name: &str| LayerNorm::new(width, config.layer_norm_eps, &vb.pp(name));
        let init = Init::Randn { mean: 0.0, stdev: std };
        let shape = (config.num_attention_heads, 1, kernel, 1);
        let near = vb.pp("attention.self.conv").get_with_hints(shape, "weight", init)?;
        Ok(Self {
            query: linear(width, width, "attention.self.query")?,
            key: linear(width, width, "attention.self.key")?,
            value: linear(width, width, "attention.self.value")?,
            output: linear(width, width, "attention.output.dense")?,
            near: near.reshape((config.num_attention_heads, kernel))?,
            attention_norm: norm("attention.output.LayerNorm")?,
            inner: linear(width, inner, "intermediate.dense")?,
            outer: linear(inner, width, "output.dense")?,
            norm: norm("output.LayerNorm")?,
            activation: config.activation()?,
        })
    }

    /// `mask` (b, s, 1) is 0 at padding, whose values are to others as if there were none.
    fn attend(&self, xs: &Tensor, mask: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = xs.dims3()?;
        let (heads, kernel) = self.near.dims2()?;
        let split = |xs: &Tensor| -> Result<Tensor> {
            Ok(xs.reshape((batch, length, heads, width / heads))?.transpose(1, 2)?.contiguous()?)
        };
        let (queries, keys) = (split(&self.query.forward(xs)?)?, split(&self.key.forward(xs)?)?);
        let scores = (queries.matmul(&keys.t()?)? * ((width / heads) as f64).powf(-0.5))?;
        let values = split(&self.value.forward(xs)?.broadcast_mul(mask)?)?;
        let mut mixed = softmax(&scores.broadcast_add(bias)?, &Mode::Inference)?.matmul(&values)?;
        let padded = values.pad_with_zeros(2, kernel / 2, kernel / 2)?;
        for at in 0..kernel {
            let weight = self.near.narrow(1, at, 1)?.reshape((heads, 1, 1))?;
            mixed = (mixed + padded.narrow(2, at, length)?.broadcast_mul(&weight)?)?;
        }
        self.output.forward(&mixed.transpose(1, 2)?.reshape((batch, length, width))?)
    }

    fn forward(&self, xs: &Tensor, mask: &Tensor, bias: &Tensor) -> Result<Tensor> {
        let xs = self.attention_norm.forward(&(self.attend(xs, mask, bias)? + xs)?, &Mode::Inference)?;
        let inner = self.activation.forward(&self.inner.forward(&xs)?)?;
        self.norm.forward(&(self.outer.forward(&inner)? + xs)?, &Mode::Inference)
    }
}

/// The body of Nyströmformer, for inference.
#[derive(Debug, Clone)]
pub(crate) struct Nystromformer {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    embedding_norm: LayerNorm,
    layers: Vec<Layer>,
    config: BertConfig,
    device: Device,
}

impl Nystromformer {
    /// Takes the body's weights from `vb`, which is that of the whole model; `kernel` is the number of near tokens, the own one
    /// included.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape.
    pub(crate) fn new(config: &BertConfig, kernel: usize, vb: &VarBuilder) -> Result<Self> {
        config.check()?;
        let vb = match config.prefix() {
            "" => vb.clone(),
            prefix => vb.pp(prefix),
        };
        let (width, std) = (config.hidden_size, config.initializer_range);
        let at = vb.pp("embeddings");
        let table = |rows, name: &str| Embedding::new(rows, width, std, &at.pp(name));
        let layer = |at: usize| Layer::new(config, kernel, &vb.pp("encoder.layer").pp(at));
        Ok(Self {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: table(config.max_position_embeddings.saturating_add(FIRST), "position_embeddings")?,
            types: table(config.type_vocab_size, "token_type_embeddings")?,
            embedding_norm: LayerNorm::new(width, config.layer_norm_eps, &at.pp("LayerNorm"))?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }
}

impl Layers for Nystromformer {
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
        let xs = summed(&self.words, (&self.positions, FIRST), &self.types, input)?;
        let mut xs = self.embedding_norm.forward(&xs, &Mode::Inference)?;
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
