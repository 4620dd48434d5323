//! The body of BERT and its kin: an encoder with learned positions and layer normalisation after each part.

use candle_core::{Device, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::config::{BertConfig, BertFamily};
use crate::{
    attention::Attention,
    batch::Batch,
    encoder::Encoder,
    layers::{Activation, Embedding, LayerNorm, Linear},
    mode::Mode,
    seq2seq::{padding_bias, too_long},
};

/// The body of BERT (Devlin et al. 2019), RoBERTa, XLM-RoBERTa, DistilBERT or DPR: token ids to states.
#[derive(Debug, Clone)]
pub struct Bert {
    words: Embedding,
    positions: Embedding,
    types: Option<Embedding>,
    embedding_norm: LayerNorm,
    layers: Vec<Layer>,
    config: BertConfig,
    device: Device,
}

impl Bert {
    /// Takes the body's weights from `vb`, which is that of the whole model.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape (a [`Checkpoint`](crate::Checkpoint) reports these with file
    /// and shapes).
    pub fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        config.check()?;
        let vb = match config.prefix() {
            "" => vb.clone(),
            prefix => vb.pp(prefix),
        };
        let (width, std) = (config.hidden_size, config.initializer_range);
        let embeddings = vb.pp("embeddings");
        let table = |rows, name: &str| Embedding::new(rows, width, std, &embeddings.pp(name));
        let types = match config.family {
            BertFamily::DistilBert => None,
            _ => Some(table(config.type_vocab_size, "token_type_embeddings")?),
        };
        let layers = (0..config.num_hidden_layers).map(|i| match config.family {
            BertFamily::DistilBert => Layer::distil(config, &vb.pp(format!("transformer.layer.{i}"))),
            _ => Layer::bert(config, &vb.pp(format!("encoder.layer.{i}"))),
        });
        Ok(Self {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: table(config.max_position_embeddings, "position_embeddings")?,
            types,
            embedding_norm: LayerNorm::new(width, config.layer_norm_eps, &embeddings.pp("LayerNorm"))?,
            layers: layers.collect::<Result<_>>()?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }

    /// The config that the model was built from.
    #[must_use]
    pub fn config(&self) -> &BertConfig {
        &self.config
    }

    /// The last hidden states (b, s, d) of the inputs, in the dtype of the weights.
    ///
    /// # Errors
    /// A tensor error, or [`Error::Batch`](sporran_checkpoint::Error::Batch) where an input is longer than the model has
    /// positions for.
    pub fn forward(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor> {
        self.each_layer(input, mode, &mut |_| {})
    }

    /// The last hidden states; `see` is shown the embeddings and the states after each layer.
    fn each_layer(&self, input: &Batch, mode: &mut Mode, see: &mut dyn FnMut(&Tensor)) -> Result<Tensor> {
        let mut xs = self.embed(input, mode)?;
        see(&xs);
        let bias = padding_bias(&input.mask, xs.dtype())?;
        for layer in &self.layers {
            xs = layer.forward(&xs, &bias, mode)?;
            see(&xs);
        }
        Ok(xs)
    }

    /// The sum of the three embeddings, normalised.
    fn embed(&self, input: &Batch, mode: &mut Mode) -> Result<Tensor> {
        let (batch, length) = (input.size(), input.length());
        let most = self.config.max_input_length();
        if length > most {
            return Err(too_long("input", most, length));
        }
        let mut xs = self.words.forward(&input.ids)?;
        xs = match (&self.types, &input.types) {
            (Some(table), Some(types)) => (xs + table.forward(types)?)?,
            (Some(table), None) => xs.broadcast_add(&table.table().narrow(0, 0, 1)?)?,
            (None, _) => xs,
        };
        xs = if self.config.first_position() == 0 {
            xs.broadcast_add(&self.positions.table().narrow(0, 0, length)?)?
        } else {
            let rows = self.shifted_positions(&input.ids.to_vec2()?);
            (xs + self.positions.forward(&Tensor::from_vec(rows, (batch, length), &self.device)?)?)?
        };
        let xs = self.embedding_norm.forward(&xs, mode)?;
        mode.dropout(xs, self.config.hidden_dropout_prob)
    }

    /// RoBERTa's positions: those of tokens are counted from after the padding token's id, and padding has that id
    /// itself. A padding token in the middle of a text is also recognised by its id.
    fn shifted_positions(&self, ids: &[Vec<u32>]) -> Vec<u32> {
        let pad = self.config.pad_token_id;
        let row = |row: &Vec<u32>| {
            let mut next = pad;
            let positions = row.iter().map(|id| {
                if *id == pad {
                    return pad;
                }
                next += 1;
                next
            });
            positions.collect::<Vec<_>>()
        };
        ids.iter().flat_map(row).collect()
    }

    /// The embedding table (vocabulary, d).
    pub(crate) fn table(&self) -> &Tensor {
        self.words.table()
    }
}

impl Encoder for Bert {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        Ok(self.forward(input, &mut Mode::Inference)?.detach())
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::with_capacity(1 + self.layers.len());
        self.each_layer(input, &mut Mode::Inference, &mut |xs| layers.push(xs.detach()))?;
        Ok(layers)
    }

    fn width(&self) -> usize {
        self.config.hidden_size
    }

    fn max_input_length(&self) -> usize {
        self.config.max_input_length()
    }

    fn takes_types(&self) -> bool {
        self.config.takes_types()
    }

    fn pad_token(&self) -> u32 {
        self.config.pad_token_id
    }

    fn device(&self) -> &Device {
        &self.device
    }
}

/// One layer: self-attention and the feed-forward part, each added and normalised.
#[derive(Debug, Clone)]
struct Layer {
    attention: Attention,
    attention_norm: LayerNorm,
    /// The dropout rate of the output of attention.
    attention_dropout: f64,
    inner: Linear,
    outer: Linear,
    feed_forward_norm: LayerNorm,
    activation: Activation,
    dropout: f64,
}

/// Where the tensors of a layer are.
#[derive(Debug, Clone, Copy)]
pub struct BertNames {
    /// Of the projection to queries.
    pub query: &'static str,
    /// Of that to keys.
    pub key: &'static str,
    /// Of that to values.
    pub value: &'static str,
    /// Of the projection after the heads.
    pub output: &'static str,
    /// Of the normalisation after attention.
    pub attention_norm: &'static str,
    /// Of the first layer of the feed-forward part.
    pub inner: &'static str,
    /// Of its second layer.
    pub outer: &'static str,
    /// Of the normalisation after it.
    pub feed_forward_norm: &'static str,
}

/// The names of BERT and RoBERTa.
pub const BERT_NAMES: BertNames = BertNames {
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    inner: "intermediate.dense",
    outer: "output.dense",
    feed_forward_norm: "output.LayerNorm",
};

/// The names of DistilBERT.
pub const DISTIL_NAMES: BertNames = BertNames {
    query: "attention.q_lin",
    key: "attention.k_lin",
    value: "attention.v_lin",
    output: "attention.out_lin",
    attention_norm: "sa_layer_norm",
    inner: "ffn.lin1",
    outer: "ffn.lin2",
    feed_forward_norm: "output_layer_norm",
};

impl Layer {
    fn bert(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        Self::new(config, &BERT_NAMES, config.hidden_dropout_prob, vb)
    }

    /// DistilBERT has no dropout on the output of attention.
    fn distil(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        Self::new(config, &DISTIL_NAMES, 0.0, vb)
    }

    fn new(config: &BertConfig, names: &BertNames, attention_dropout: f64, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let linear = |from, to, name: &str| Linear::with_bias(from, to, std, &vb.pp(name));
        let norm = |name: &str| LayerNorm::new(width, config.layer_norm_eps, &vb.pp(name));
        Ok(Self {
            attention: Attention {
                query: linear(width, width, names.query)?,
                key: linear(width, width, names.key)?,
                value: linear(width, width, names.value)?,
                output: linear(width, width, names.output)?,
                heads: config.num_attention_heads,
                scale: ((width / config.num_attention_heads) as f64).powf(-0.5),
                dropout: config.attention_probs_dropout_prob,
            },
            attention_norm: norm(names.attention_norm)?,
            attention_dropout,
            inner: linear(width, inner, names.inner)?,
            outer: linear(inner, width, names.outer)?,
            feed_forward_norm: norm(names.feed_forward_norm)?,
            activation: config.activation()?,
            dropout: config.hidden_dropout_prob,
        })
    }

    fn forward(&self, xs: &Tensor, bias: &Tensor, mode: &mut Mode) -> Result<Tensor> {
        let ys = self.attention.attend(xs, xs, bias, mode)?;
        let ys = mode.dropout(ys, self.attention_dropout)?;
        let xs = self.attention_norm.forward(&(xs + ys)?, mode)?;
        let ys = self.activation.forward(&self.inner.forward(&xs)?)?;
        let ys = mode.dropout(self.outer.forward(&ys)?, self.dropout)?;
        self.feed_forward_norm.forward(&(xs + ys)?, mode)
    }
}
