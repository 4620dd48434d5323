//! XLNet (Yang et al. 2019) as an encoder of whole inputs: attention to contents, to distances, and to whether two tokens are of
//! one type.

use std::f64::consts::LN_10;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Init, VarBuilder};
use serde::{Deserialize, Serialize};
use sporran_checkpoint::Result;

use super::{
    config::{BertConfig, BertTask, FamilySettings},
    family::BertFamily,
    layered::Layers,
};
use crate::{
    architectures::{t5::MOST_TOKENS, wrong::wrong},
    batch::Batch,
    layers::{Activation, Embedding, LayerNorm, Linear, softmax},
    mode::Mode,
    seq2seq::padding_bias,
};

/// The fields of the `config.json` of XLNet.
#[derive(Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct XlnetFields {
    vocab_size: usize,
    d_model: usize,
    n_layer: usize,
    n_head: usize,
    d_inner: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    d_head: Option<usize>,
    ff_activation: String,
    attn_type: String,
    initializer_range: f64,
    layer_norm_eps: f64,
    dropout: f64,
    bi_data: bool,
    clamp_len: i64,
    same_length: bool,
    summary_type: String,
    summary_use_proj: bool,
    summary_activation: Option<String>,
    summary_last_dropout: f64,
    pad_token_id: Option<u32>,
}

impl Default for XlnetFields {
    fn default() -> Self {
        Self {
            vocab_size: 32000,
            d_model: 1024,
            n_layer: 24,
            n_head: 16,
            d_inner: 4096,
            d_head: None,
            ff_activation: "gelu".into(),
            attn_type: "bi".into(),
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            dropout: 0.1,
            bi_data: false,
            clamp_len: -1,
            same_length: false,
            summary_type: "last".into(),
            summary_use_proj: true,
            summary_activation: Some("tanh".into()),
            summary_last_dropout: 0.1,
            pad_token_id: Some(5),
        }
    }
}

impl XlnetFields {
    fn check(&self, task: BertTask) -> Result<()> {
        if self.attn_type != "bi" {
            return Err(wrong("attn_type", "`bi`", &format!("`{}`", self.attn_type)));
        }
        for (field, set) in [("bi_data", self.bi_data), ("same_length", self.same_length)] {
            if set {
                return Err(wrong(field, "false", "true"));
            }
        }
        if self.clamp_len > 0 {
            return Err(wrong("clamp_len", "-1: distances without a bound", &self.clamp_len.to_string()));
        }
        if let Some(width) = self.d_head.filter(|width| width.checked_mul(self.n_head) != Some(self.d_model))
        {
            return Err(wrong("d_head", "d_model / n_head", &width.to_string()));
        }
        if !self.d_model.is_multiple_of(2) {
            return Err(wrong("d_model", "an even width", &self.d_model.to_string()));
        }
        if task != BertTask::SequenceClassification {
            return Ok(());
        }
        if self.summary_type != "last" {
            return Err(wrong("summary_type", "`last`", &format!("`{}`", self.summary_type)));
        }
        if !self.summary_use_proj {
            return Err(wrong("summary_use_proj", "true", "false"));
        }
        match self.summary_activation.as_deref() {
            Some("tanh") => Ok(()),
            other => Err(wrong("summary_activation", "`tanh`", &format!("`{}`", other.unwrap_or("null")))),
        }
    }

    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) for a value that cannot be used.
    pub(crate) fn config(self, task: BertTask, labels: Vec<String>) -> Result<BertConfig> {
        self.check(task)?;
        Ok(BertConfig {
            family: BertFamily::Xlnet,
            task,
            vocab_size: self.vocab_size,
            hidden_size: self.d_model,
            num_hidden_layers: self.n_layer,
            num_attention_heads: self.n_head,
            intermediate_size: self.d_inner,
            hidden_act: self.ff_activation,
            hidden_dropout_prob: self.dropout,
            attention_probs_dropout_prob: self.dropout,
            head_dropout: if task == BertTask::SequenceClassification {
                self.summary_last_dropout
            } else {
                0.0
            },
            // Its distances have no end.
            max_position_embeddings: MOST_TOKENS,
            type_vocab_size: 0,
            initializer_range: self.initializer_range,
            layer_norm_eps: self.layer_norm_eps,
            pad_token_id: self.pad_token_id.unwrap_or(5),
            projection_dim: 0,
            embedding_size: None,
            own: FamilySettings::None,
            labels,
            tie_word_embeddings: true,
        })
    }

    pub(crate) fn of(config: &BertConfig) -> Self {
        Self {
            vocab_size: config.vocab_size,
            d_model: config.hidden_size,
            n_layer: config.num_hidden_layers,
            n_head: config.num_attention_heads,
            d_inner: config.intermediate_size,
            ff_activation: config.hidden_act.clone(),
            initializer_range: config.initializer_range,
            layer_norm_eps: config.layer_norm_eps,
            dropout: config.hidden_dropout_prob,
            summary_last_dropout: config.head_dropout,
            pad_token_id: Some(config.pad_token_id),
            ..Self::default()
        }
    }
}

/// What attention reads beside the states.
struct Places {
    /// The sines and cosines of the distances from the length of the inputs down to one less than it below 0: (2s, d).
    distances: Tensor,
    /// 1 where two tokens have different types: (b, 1, s, s).
    differ: Option<Tensor>,
    /// Hides padding: (b, 1, 1, s).
    bias: Tensor,
}

#[derive(Debug, Clone)]
struct Attention {
    /// The projections to queries, keys, values and keys of distances, each (d, d).
    inputs: [Tensor; 4],
    /// From mixed values to states, (d, d).
    output: Tensor,
    /// What queries add before they read contents, distances and types, each (heads, 1, width).
    biases: [Tensor; 3],
    /// The keys of one type and of two, (2, heads, width).
    types: Tensor,
    norm: LayerNorm,
    heads: usize,
}

impl Attention {
    fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let (width, heads) = (config.hidden_size, config.num_attention_heads);
        let (each, init) = (width / heads, Init::Randn { mean: 0.0, stdev: config.initializer_range });
        let matrix = |name: &str| -> Result<Tensor> {
            Ok(vb.get_with_hints((width, heads, each), name, init)?.reshape((width, width))?)
        };
        let bias = |name: &str| -> Result<Tensor> {
            Ok(vb.get_with_hints((heads, each), name, init)?.unsqueeze(1)?)
        };
        Ok(Self {
            inputs: [matrix("q")?, matrix("k")?, matrix("v")?, matrix("r")?],
            output: matrix("o")?.t()?,
            biases: [bias("r_w_bias")?, bias("r_r_bias")?, bias("r_s_bias")?],
            types: vb.get_with_hints((2, heads, each), "seg_embed", init)?,
            norm: LayerNorm::new(width, config.layer_norm_eps, &vb.pp("layer_norm"))?,
            heads,
        })
    }

    /// (b, s, d) to (b, heads, s, width).
    fn split(&self, xs: &Tensor, matrix: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = xs.dims3()?;
        let xs = xs.broadcast_matmul(matrix)?.reshape((batch, length, self.heads, width / self.heads))?;
        Ok(xs.transpose(1, 2)?.contiguous()?)
    }

    fn forward(&self, xs: &Tensor, places: &Places) -> Result<Tensor> {
        let (batch, length, width) = xs.dims3()?;
        let [query, key, value, distance] = &self.inputs;
        let (queries, keys) = (self.split(xs, query)?, self.split(xs, key)?);
        let [of_contents, of_distances, of_types] = &self.biases;
        let mut scores = queries.broadcast_add(of_contents)?.matmul(&keys.t()?)?;
        let distances = self.split(&places.distances.unsqueeze(0)?, distance)?.t()?.contiguous()?;
        let of_distance = queries.broadcast_add(of_distances)?.broadcast_matmul(&distances)?;
        scores = (scores + by_pair(&of_distance, length)?)?;
        if let Some(differ) = &places.differ {
            let types = self.types.permute((1, 2, 0))?.contiguous()?;
            let of_type = queries.broadcast_add(of_types)?.broadcast_matmul(&types)?;
            let (same, other) = (of_type.narrow(D::Minus1, 0, 1)?, of_type.narrow(D::Minus1, 1, 1)?);
            scores = scores.broadcast_add(&same)?;
            scores = (scores + differ.broadcast_mul(&(other - same)?)?)?;
        }
        let scale = ((width / self.heads) as f64).powf(-0.5);
        let scores = (scores * scale)?.broadcast_add(&places.bias)?;
        let mixed = softmax(&scores, &Mode::Inference)?.matmul(&self.split(xs, value)?)?;
        let mixed = mixed.transpose(1, 2)?.reshape((batch, length, width))?;
        self.norm.forward(&(mixed.broadcast_matmul(&self.output)? + xs)?, &Mode::Inference)
    }
}

/// Scores of distances (b, heads, s, 2s) as those of pairs (b, heads, s, s): the key j of the query i has the distance
/// i - j, which is at s - i + j.
fn by_pair(scores: &Tensor, length: usize) -> Result<Tensor> {
    let (batch, heads, _, _) = scores.dims4()?;
    let shifted = scores.reshape((batch, heads, 2 * length, length))?.narrow(2, 1, 2 * length - 1)?;
    Ok(shifted.contiguous()?.reshape((batch, heads, length, 2 * length - 1))?.narrow(3, 0, length)?)
}

#[derive(Debug, Clone)]
struct Layer {
    attention: Attention,
    inner: Linear,
    outer: Linear,
    norm: LayerNorm,
    activation: Activation,
}

impl Layer {
    fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let part = vb.pp("ff");
        Ok(Self {
            attention: Attention::new(config, &vb.pp("rel_attn"))?,
            inner: Linear::with_bias(width, inner, std, &part.pp("layer_1"))?,
            outer: Linear::with_bias(inner, width, std, &part.pp("layer_2"))?,
            norm: LayerNorm::new(width, config.layer_norm_eps, &part.pp("layer_norm"))?,
            activation: config.activation()?,
        })
    }

    fn forward(&self, xs: &Tensor, places: &Places) -> Result<Tensor> {
        let xs = self.attention.forward(xs, places)?;
        let inner = self.activation.forward(&self.inner.forward(&xs)?)?;
        self.norm.forward(&(self.outer.forward(&inner)? + xs)?, &Mode::Inference)
    }
}

/// The body of XLNet, for inference.
#[derive(Debug, Clone)]
pub(crate) struct Xlnet {
    words: Embedding,
    layers: Vec<Layer>,
    config: BertConfig,
    device: Device,
}

impl Xlnet {
    /// Takes the body's weights from `vb`, which is that of the whole model.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape.
    pub(crate) fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        config.check()?;
        let vb = match config.prefix() {
            "" => vb.clone(),
            prefix => vb.pp(prefix),
        };
        let (width, std) = (config.hidden_size, config.initializer_range);
        let layer = |at: usize| Layer::new(config, &vb.pp("layer").pp(at));
        Ok(Self {
            words: Embedding::new(config.vocab_size, width, std, &vb.pp("word_embedding"))?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }

    fn places(&self, input: &Batch, dtype: DType) -> Result<Places> {
        let differ = match &input.types {
            Some(types) => {
                let (rows, columns) = (types.unsqueeze(2)?, types.unsqueeze(1)?);
                Some(rows.broadcast_ne(&columns)?.to_dtype(dtype)?.unsqueeze(1)?)
            }
            // One type for all adds the same to all scores of a query.
            None => None,
        };
        Ok(Places {
            distances: distances(input.length(), self.config.hidden_size, dtype, &self.device)?,
            differ,
            bias: padding_bias(&input.mask, dtype)?,
        })
    }
}

/// The sines and then the cosines of the distances from `length` down to 1 - `length`: (2 length, width).
fn distances(length: usize, width: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let step = |at: usize| (-4.0 * LN_10 * (2 * at) as f64 / width as f64).exp();
    let steps: Vec<f64> = (0..width / 2).map(step).collect();
    let mut values = Vec::with_capacity(2 * length * width);
    for row in 0..2 * length {
        let distance = length as f64 - row as f64;
        values.extend(steps.iter().map(|step| (distance * step).sin() as f32));
        values.extend(steps.iter().map(|step| (distance * step).cos() as f32));
    }
    Ok(Tensor::from_vec(values, (2 * length, width), device)?.to_dtype(dtype)?)
}

impl Layers for Xlnet {
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
        let mut xs = self.words.forward(&input.ids)?;
        see(&xs);
        let places = self.places(input, xs.dtype())?;
        for layer in &self.layers {
            xs = layer.forward(&xs, &places)?.detach();
            see(&xs);
        }
        Ok(xs)
    }
}
