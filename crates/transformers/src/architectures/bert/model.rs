//! The body of BERT and its kin: an encoder with layer normalisation after each part, or before it in some.

use candle_core::{Device, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    adapter::Adapter,
    config::{BertConfig, FamilySettings, LayerGroups},
    disentangled::{ByHeads, DistanceAttention, DistanceTable, Distances},
    family::BertFamily,
    rotary::{self, GTE_NAMES, JINA_NAMES, NOMIC_NAMES, Rotation},
    state_convolution::{ConvolutionSettings, StateConvolution},
};
use crate::{
    architectures::{alibi::Alibi, t5},
    attention::Attention,
    batch::Batch,
    encoder::Encoder,
    layers::{Activation, Embedding, LayerNorm, Linear, Stacked},
    mode::Mode,
    seq2seq::{padding_bias, too_long, window_bias},
};

/// The body of BERT (Devlin et al. 2019) or of another [`BertFamily`]: token ids to states.
#[derive(Debug, Clone)]
pub struct Bert {
    words: Embedding,
    positions: Option<Embedding>,
    types: Option<Embedding>,
    /// In some ERNIEs.
    tasks: Option<Embedding>,
    embedding_norm: Option<LayerNorm>,
    /// From embeddings to hidden states of another width.
    projection: Option<Linear>,
    layers: Vec<Layer>,
    /// Where norms come before the parts.
    final_norm: Option<LayerNorm>,
    /// The layers that run, by their numbers.
    order: Vec<usize>,
    /// MPNet's biases of distances (buckets, heads).
    distance_biases: Option<Tensor>,
    /// DeBERTa's embeddings of distances.
    distances: Option<DistanceTable>,
    /// The convolution over embeddings of some DeBERTas.
    convolution: Option<StateConvolution>,
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
        let (width, std) = (config.embedding_width(), config.initializer_range);
        let embeddings = vb.pp("embeddings");
        let table = |rows, name: &str| Embedding::new(rows, width, std, &embeddings.pp(name));
        let positions = || table(config.max_position_embeddings, "position_embeddings");
        let types = || table(config.type_vocab_size, "token_type_embeddings");
        let types = config.has_types().then(types).transpose()?;
        // Variables are created in a fixed order, because sums over all of them, such as the norm of gradients, follow it.
        let layers = || -> Result<Vec<Layer>> {
            config.layer_prefixes().iter().map(|prefix| Layer::new(config, &vb.pp(prefix))).collect()
        };
        let projection = |name: &str| Linear::with_bias(width, config.hidden_size, std, &vb.pp(name));
        let biases = || {
            let init = Init::Randn { mean: 0.0, stdev: std };
            let shape = (MPNET_BUCKETS, config.num_attention_heads);
            vb.get_with_hints(shape, MPNET_BIASES, init)
        };
        let distances = config.disentangled().filter(|settings| settings.is_relative);
        let tasks = || table(config.task_types(), "task_type_embeddings");
        let embedding_norm = || LayerNorm::new(width, config.layer_norm_eps, &vb.pp(config.embedding_norm()));
        let final_norm = |name: &str| LayerNorm::new(config.hidden_size, config.layer_norm_eps, &vb.pp(name));
        Ok(Self {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: config.has_positions().then(positions).transpose()?,
            types,
            tasks: (config.task_types() > 0).then(tasks).transpose()?,
            embedding_norm: config.family.norms_embeddings().then(embedding_norm).transpose()?,
            projection: config.projection_name().map(projection).transpose()?,
            layers: layers()?,
            final_norm: config.final_norm().map(final_norm).transpose()?,
            order: config.order(),
            distance_biases: (config.family == BertFamily::Mpnet).then(biases).transpose()?,
            distances: distances
                .map(|settings| DistanceTable::new(config, settings, &vb.pp("encoder")))
                .transpose()?,
            convolution: config
                .convolution()
                .map(|settings| StateConvolution::new(config, settings, &vb.pp("encoder.conv")))
                .transpose()?,
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

    /// The last hidden states; `see` is shown the embeddings and the states after each layer, of which the last are normalised
    /// where norms come before the parts.
    fn each_layer(&self, input: &Batch, mode: &mut Mode, see: &mut dyn FnMut(&Tensor)) -> Result<Tensor> {
        let mut xs = self.embed(input, mode)?;
        see(&xs);
        let mut bias = padding_bias(&input.mask, xs.dtype())?;
        if let Some(weights) = &self.distance_biases {
            bias = t5::position_bias(weights, (input.length(), 0), true, MPNET_DISTANCE)?
                .broadcast_add(&bias)?;
        }
        if let Some(alibi) = self.config.alibi() {
            bias = alibi_bias(&alibi, input.length(), &bias)?;
        }
        let distances = match (&self.distances, self.config.disentangled()) {
            (Some(table), Some(settings)) => Some(Distances::new(table, settings, input.length(), mode)?),
            _ => None,
        };
        let rotation = self.config.rotation(input.length(), xs.dtype(), &self.device)?;
        let near = self.near_biases(input.length(), &bias)?;
        let embeddings = self.convolution.as_ref().map(|_| xs.clone());
        for (at, layer) in self.order.iter().enumerate() {
            let places = Places {
                bias: near.get(at).unwrap_or(&bias),
                all: &bias,
                distances: distances.as_ref(),
                rotation: rotation.as_ref(),
            };
            xs = self.layers[*layer].forward(&xs, places, mode)?;
            if let (0, Some(convolution), Some(embeddings)) = (at, &self.convolution, &embeddings) {
                xs = convolution.forward(embeddings, &xs, &input.mask, mode)?;
            }
            if let Some(norm) = self.final_norm.as_ref().filter(|_| at + 1 == self.order.len()) {
                xs = norm.forward(&xs, mode)?;
            }
            see(&xs);
        }
        Ok(xs)
    }

    /// For each layer with a window that is smaller than inputs of this length, the bias on scores; none where none has.
    fn near_biases(&self, length: usize, bias: &Tensor) -> Result<Vec<Tensor>> {
        let windows = self.config.windows();
        if windows.iter().all(|window| window + 1 >= length) {
            return Ok(Vec::new());
        }
        let mut biases: Vec<Tensor> = Vec::with_capacity(windows.len());
        for (layer, window) in windows.iter().enumerate() {
            let again = layer.checked_sub(1).filter(|last| windows[*last] == *window);
            biases.push(match again {
                Some(last) => biases[last].clone(),
                None => {
                    let hidden = window_bias(length, *window, bias.dtype(), bias.device())?;
                    let seen = match self.config.sees_first() {
                        // All attend to the first token.
                        true => {
                            let first = hidden.narrow(3, 0, 1)?.zeros_like()?;
                            // candle joins the last dimension with another layout.
                            Tensor::cat(&[&first, &hidden.narrow(3, 1, length - 1)?], 3)?.contiguous()?
                        }
                        false => hidden,
                    };
                    bias.broadcast_add(&seen)?
                }
            });
        }
        Ok(biases)
    }

    /// The sum of the embeddings of words, types, positions and tasks, normalised where the family does so.
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
        xs = match &self.positions {
            Some(positions) if self.config.first_position() == 0 => {
                xs.broadcast_add(&positions.table().narrow(0, 0, length)?)?
            }
            Some(positions) => {
                let rows = self.shifted_positions(&input.ids.to_vec2()?);
                (xs + positions.forward(&Tensor::from_vec(rows, (batch, length), &self.device)?)?)?
            }
            None => xs,
        };
        if let Some(tasks) = &self.tasks {
            xs = xs.broadcast_add(&tasks.table().narrow(0, 0, 1)?)?;
        }
        // BigBird drops out before the norm.
        let drops_first = self.config.family == BertFamily::BigBird;
        let rate = self.config.hidden_dropout_prob;
        if drops_first {
            xs = mode.dropout(xs, rate)?;
        }
        if let Some(norm) = &self.embedding_norm {
            xs = norm.forward(&xs, mode)?;
        }
        let xs = if drops_first { xs } else { mode.dropout(xs, rate)? };
        match &self.projection {
            Some(projection) => projection.forward(&xs),
            None => Ok(xs),
        }
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

/// The biases of distances in both directions on the scores between `length` positions, added to `bias` (b, 1, 1, t).
fn alibi_bias(alibi: &Alibi, length: usize, bias: &Tensor) -> Result<Tensor> {
    let of_head = |head: usize| {
        let pairs = (0..length).flat_map(move |query| (0..length).map(move |key| query.abs_diff(key)));
        pairs.map(move |distance| alibi.bias(head, distance, 0))
    };
    let values: Vec<f32> = (0..alibi.heads()).flat_map(of_head).collect();
    let shape = (1, alibi.heads(), length, length);
    let biases = Tensor::from_vec(values, shape, bias.device())?.to_dtype(bias.dtype())?;
    Ok(biases.broadcast_add(bias)?)
}

impl Encoder for Bert {
    fn states(&self, input: &Batch) -> Result<Tensor> {
        Ok(self.forward(input, &mut Mode::Inference)?.detach())
    }

    fn layers(&self, input: &Batch) -> Result<Vec<Tensor>> {
        let mut layers = Vec::with_capacity(1 + self.order.len());
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

/// What all layers know of the places of tokens.
#[derive(Clone, Copy)]
struct Places<'a> {
    /// On the scores.
    bias: &'a Tensor,
    /// On those of a token that attends to all.
    all: &'a Tensor,
    /// In DeBERTa.
    distances: Option<&'a Distances>,
    /// The angles of positions, where they are rotary.
    rotation: Option<&'a Rotation>,
}

/// One layer: self-attention and the feed-forward part, each added, and normalised before or afterwards.
#[derive(Debug, Clone)]
struct Layer {
    attention: Attention,
    /// That of the first token to all, in some Longformers.
    first: Option<Attention>,
    /// In the first DeBERTa, whose projections are made of it.
    by_heads: Option<ByHeads>,
    /// In DeBERTa.
    distances: Option<DistanceAttention>,
    attention_norm: LayerNorm,
    /// The dropout rate of the output of attention.
    attention_dropout: f64,
    inner: Linear,
    /// What the activated states are multiplied with, in some.
    gated: Option<Linear>,
    /// The dropout rate inside the feed-forward part.
    inner_dropout: f64,
    outer: Linear,
    /// What is made of the states after the feed-forward part, in X-MOD.
    adapter: Option<Adapter>,
    feed_forward_norm: LayerNorm,
    activation: Activation,
    dropout: f64,
    norms_first: bool,
}

/// Where the tensors of a layer are.
#[derive(Debug, Clone, Copy)]
pub struct BertNames {
    /// Of one projection to queries, keys and values, which then have none of their own.
    pub fused: Option<&'static str>,
    /// Of one that has those of each head one under the other, and biases of queries and values apart.
    pub by_heads: Option<&'static str>,
    /// Of the projection of distances to what queries read, under the name of attention.
    pub distance_key: &'static str,
    /// Of that to what reads keys.
    pub distance_query: &'static str,
    /// Of the projection to queries.
    pub query: &'static str,
    /// Of that to keys.
    pub key: &'static str,
    /// Of that to values.
    pub value: &'static str,
    /// Of the projection after the heads.
    pub output: &'static str,
    /// Of the normalisation after attention, or before it.
    pub attention_norm: &'static str,
    /// Of the first layer of the feed-forward part.
    pub inner: &'static str,
    /// Of the layer that it is multiplied with.
    pub gated: Option<&'static str>,
    /// Of one layer that has this one before the first, which then have none of their own.
    pub fused_inner: Option<&'static str>,
    /// Whether that layer has the first one before the other.
    pub activated_first: bool,
    /// Of the second layer of the feed-forward part.
    pub outer: &'static str,
    /// Of the normalisation after this part, or before it.
    pub feed_forward_norm: &'static str,
}

/// The names of BERT and RoBERTa.
pub const BERT_NAMES: BertNames = BertNames {
    fused: None,
    by_heads: None,
    distance_key: "pos_key_proj",
    distance_query: "pos_query_proj",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    inner: "intermediate.dense",
    gated: None,
    fused_inner: None,
    activated_first: false,
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
    ..BERT_NAMES
};

/// The names of MPNet.
const MPNET_NAMES: BertNames = BertNames {
    query: "attention.attn.q",
    key: "attention.attn.k",
    value: "attention.attn.v",
    output: "attention.attn.o",
    attention_norm: "attention.LayerNorm",
    ..BERT_NAMES
};

/// The names of ALBERT.
const ALBERT_NAMES: BertNames = BertNames {
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    output: "attention.dense",
    attention_norm: "attention.LayerNorm",
    inner: "ffn",
    outer: "ffn_output",
    feed_forward_norm: "full_layer_layer_norm",
    ..BERT_NAMES
};

/// The names of DeBERTa.
const DEBERTA_NAMES: BertNames = BertNames {
    query: "attention.self.query_proj",
    key: "attention.self.key_proj",
    value: "attention.self.value_proj",
    ..BERT_NAMES
};

/// The names of the first DeBERTa.
const FIRST_DEBERTA_NAMES: BertNames = BertNames {
    by_heads: Some("attention.self"),
    distance_key: "pos_proj",
    distance_query: "pos_q_proj",
    ..BERT_NAMES
};

/// The names of RoBERTa with norms before each part.
const PRE_NORM_NAMES: BertNames = BertNames {
    attention_norm: "attention.LayerNorm",
    feed_forward_norm: "intermediate.LayerNorm",
    ..BERT_NAMES
};

/// The names of XLM-RoBERTa XL.
const XL_NAMES: BertNames = BertNames {
    attention_norm: "attention.self_attn_layer_norm",
    feed_forward_norm: "LayerNorm",
    ..BERT_NAMES
};

/// The names of Megatron's BERT.
const MEGATRON_NAMES: BertNames =
    BertNames { attention_norm: "attention.ln", feed_forward_norm: "ln", ..BERT_NAMES };

/// The names of JinaBERT. Both layers before the activation are in one tensor.
const JINA_BERT_NAMES: BertNames = BertNames {
    fused_inner: Some("mlp.gated_layers"),
    activated_first: true,
    outer: "mlp.wo",
    feed_forward_norm: "mlp.layernorm",
    ..BERT_NAMES
};

/// The projections of a Longformer's tokens that attend to everything: to queries, keys and values.
pub(crate) const GLOBAL_NAMES: [&str; 3] =
    ["attention.self.query_global", "attention.self.key_global", "attention.self.value_global"];

/// The names of SqueezeBERT.
const SQUEEZE_NAMES: BertNames = BertNames {
    query: "attention.query",
    key: "attention.key",
    value: "attention.value",
    output: "post_attention.conv1d",
    attention_norm: "post_attention.layernorm",
    inner: "intermediate.conv1d",
    outer: "output.conv1d",
    feed_forward_norm: "output.layernorm",
    ..BERT_NAMES
};

/// The name of MPNet's biases of distances.
pub(crate) const MPNET_BIASES: &str = "encoder.relative_attention_bias.weight";

/// The buckets of distances in MPNet, in both directions together; no config field sets them.
pub(crate) const MPNET_BUCKETS: usize = 32;

/// From this distance on, all positions share a bucket in MPNet.
pub(crate) const MPNET_DISTANCE: usize = 128;

impl BertConfig {
    /// Where the tensors of a layer are, under its [prefix](Self::layer_prefixes).
    pub(crate) fn names(&self) -> &'static BertNames {
        match self.family {
            BertFamily::DistilBert => &DISTIL_NAMES,
            BertFamily::Mpnet => &MPNET_NAMES,
            BertFamily::Albert => &ALBERT_NAMES,
            BertFamily::Deberta => &DEBERTA_NAMES,
            BertFamily::FirstDeberta => &FIRST_DEBERTA_NAMES,
            BertFamily::RobertaPreLayerNorm => &PRE_NORM_NAMES,
            BertFamily::XlmRobertaXl => &XL_NAMES,
            BertFamily::MegatronBert => &MEGATRON_NAMES,
            BertFamily::NomicBert => &NOMIC_NAMES,
            BertFamily::Gte | BertFamily::New => &GTE_NAMES,
            BertFamily::JinaEmbeddingsV3 | BertFamily::JinaXlmRoberta => &JINA_NAMES,
            BertFamily::JinaBert => &JINA_BERT_NAMES,
            BertFamily::SqueezeBert => &SQUEEZE_NAMES,
            _ => &BERT_NAMES,
        }
    }

    /// The groups of values that a layer called `name` reads, where it is stored by groups.
    pub(crate) fn groups_of(&self, name: &str) -> Option<usize> {
        let FamilySettings::Groups(groups) = self.own else { return None };
        let LayerGroups { inputs: [query, key, value], output, feed_forward } = groups;
        let names = self.names();
        [
            (names.query, query),
            (names.key, key),
            (names.value, value),
            (names.output, output),
            (names.inner, feed_forward[0]),
            (names.outer, feed_forward[1]),
        ]
        .into_iter()
        .find_map(|(own, groups)| (own == name).then_some(groups))
    }

    /// The prefixes of the layers that have weights, under that of the body.
    pub(crate) fn layer_prefixes(&self) -> Vec<String> {
        if let FamilySettings::Sharing(sharing) = self.own {
            let of = |group: usize| {
                let name = move |at: usize| format!("encoder.albert_layer_groups.{group}.albert_layers.{at}");
                (0..sharing.inner).map(name)
            };
            return (0..sharing.groups).flat_map(of).collect();
        }
        let name = match self.family {
            BertFamily::DistilBert => "transformer.layer",
            BertFamily::NomicBert
            | BertFamily::JinaEmbeddingsV3
            | BertFamily::JinaXlmRoberta
            | BertFamily::SqueezeBert => "encoder.layers",
            _ => "encoder.layer",
        };
        (0..self.num_hidden_layers).map(|at| format!("{name}.{at}")).collect()
    }

    /// The name of the projection of embeddings, under the prefix of the body.
    pub(crate) fn projection_name(&self) -> Option<&'static str> {
        self.embedding_size.map(|_| match self.family {
            BertFamily::Albert | BertFamily::RemBert => "encoder.embedding_hidden_mapping_in",
            _ => "embeddings_project",
        })
    }

    /// The name of the normalisation of embeddings, under the prefix of the body.
    pub(crate) fn embedding_norm(&self) -> &'static str {
        match self.family {
            BertFamily::NomicBert | BertFamily::JinaEmbeddingsV3 | BertFamily::JinaXlmRoberta => "emb_ln",
            _ => "embeddings.LayerNorm",
        }
    }

    /// The name of the normalisation of the last states, under the prefix of the body.
    pub(crate) fn final_norm(&self) -> Option<&'static str> {
        match self.family {
            BertFamily::RobertaPreLayerNorm => Some("LayerNorm"),
            BertFamily::XlmRobertaXl => Some("encoder.LayerNorm"),
            BertFamily::MegatronBert => Some("encoder.ln"),
            BertFamily::Xmod if self.norms_first() => Some("encoder.LayerNorm"),
            _ => None,
        }
    }

    /// The convolution over embeddings of some DeBERTas.
    pub(crate) fn convolution(&self) -> Option<&ConvolutionSettings> {
        self.disentangled()?.convolution.as_ref()
    }

    /// The factor of the products of queries and keys.
    pub(crate) fn scale(&self) -> f64 {
        let width = self.hidden_size / self.num_attention_heads;
        match self.disentangled() {
            Some(settings) => settings.scale(width),
            None => (width as f64).powf(-0.5),
        }
    }
}

impl Layer {
    fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let names = config.names();
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let linear = |from: usize, to: usize, has_bias: bool, name: &str| match config.groups_of(name) {
            Some(groups) => Linear::grouped((from, to), groups, std, &vb.pp(name)),
            None if has_bias => Linear::with_bias(from, to, std, &vb.pp(name)),
            None => Linear::new(from, to, std, &vb.pp(name)),
        };
        let norm = |name: &str| LayerNorm::new(width, config.layer_norm_eps, &vb.pp(name));
        let has_bias = config.family.attention_has_bias();
        let (inner_bias, outer_bias) = config.family.feed_forward_biases();
        let mut by_heads = None;
        let [query, key, value] = match (names.fused, names.by_heads) {
            (_, Some(name)) => by_heads.insert(ByHeads::new(config, &vb.pp(name))?).projections()?,
            (Some(name), None) => {
                let stacked = Stacked::new((width, width), 3, std, has_bias, &vb.pp(name))?;
                [stacked.part(0)?, stacked.part(1)?, stacked.part(2)?]
            }
            (None, None) => [
                linear(width, width, has_bias, names.query)?,
                linear(width, width, has_bias, names.key)?,
                linear(width, width, has_bias, names.value)?,
            ],
        };
        let output = linear(width, width, has_bias, names.output)?;
        let (heads, scale) = (config.num_attention_heads, config.scale());
        let dropout = config.attention_probs_dropout_prob;
        let of_first = || -> Result<Attention> {
            let [query, key, value] = GLOBAL_NAMES.map(|name| linear(width, width, has_bias, name));
            let output = output.clone();
            Ok(Attention { query: query?, key: key?, value: value?, output, heads, scale, dropout })
        };
        let of_first = config.sees_first().then(of_first).transpose()?;
        // Fresh weights are drawn in this order.
        let distances = config
            .disentangled()
            .map(|settings| DistanceAttention::new(config, settings, &vb.pp("attention.self")))
            .transpose()?;
        let attention_norm = norm(names.attention_norm)?;
        let (gated, first) = match names.fused_inner {
            Some(name) => {
                let stacked = Stacked::new((width, inner), 2, std, inner_bias, &vb.pp(name))?;
                let activated = usize::from(!names.activated_first);
                (Some(stacked.part(1 - activated)?), stacked.part(activated)?)
            }
            None => {
                let gated = names.gated.map(|name| linear(width, inner, inner_bias, name)).transpose()?;
                (gated, linear(width, inner, inner_bias, names.inner)?)
            }
        };
        let outer = linear(inner, width, outer_bias, names.outer)?;
        let feed_forward_norm = norm(names.feed_forward_norm)?;
        let adapter =
            config.adapters().map(|adapters| Adapter::new(config, adapters, &feed_forward_norm, vb));
        Ok(Self {
            attention: Attention { query, key, value, output, heads, scale, dropout },
            first: of_first,
            by_heads,
            distances,
            attention_norm,
            // DistilBERT has none there.
            attention_dropout: match config.family {
                BertFamily::DistilBert => 0.0,
                _ => config.hidden_dropout_prob,
            },
            inner: first,
            gated,
            inner_dropout: match config.family {
                BertFamily::Gte | BertFamily::New | BertFamily::JinaBert => config.hidden_dropout_prob,
                _ => 0.0,
            },
            outer,
            adapter: adapter.transpose()?,
            feed_forward_norm,
            activation: config.activation()?,
            // ALBERT has none there.
            dropout: match config.family {
                BertFamily::Albert => 0.0,
                _ => config.hidden_dropout_prob,
            },
            norms_first: config.norms_first(),
        })
    }

    /// The input of a part.
    fn before(&self, norm: &LayerNorm, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        if self.norms_first { norm.forward(xs, mode) } else { Ok(xs.clone()) }
    }

    /// The sum of the states and a part's output.
    fn after(&self, norm: &LayerNorm, sum: Tensor, mode: &Mode) -> Result<Tensor> {
        if self.norms_first { Ok(sum) } else { norm.forward(&sum, mode) }
    }

    fn forward(&self, xs: &Tensor, places: Places<'_>, mode: &mut Mode) -> Result<Tensor> {
        let Places { bias, all, distances, rotation } = places;
        let input = self.before(&self.attention_norm, xs, mode)?;
        let made = self.by_heads.as_ref().map(|by_heads| by_heads.attention(&self.attention)).transpose()?;
        let attention = made.as_ref().unwrap_or(&self.attention);
        let ys = match (&self.distances, rotation) {
            (Some(with), _) => with.attend(attention, &input, distances, bias, mode)?,
            (None, Some(rotation)) => rotary::attend(attention, &input, rotation, bias, mode)?,
            (None, None) => attention.attend(&input, &input, bias, mode)?,
        };
        let ys = match &self.first {
            Some(first) => {
                let own = first.attend(&input.narrow(1, 0, 1)?.contiguous()?, &input, all, mode)?;
                Tensor::cat(&[&own, &ys.narrow(1, 1, ys.dim(1)? - 1)?], 1)?
            }
            None => ys,
        };
        let ys = mode.dropout(ys, self.attention_dropout)?;
        let xs = self.after(&self.attention_norm, (xs + ys)?, mode)?;
        let input = self.before(&self.feed_forward_norm, &xs, mode)?;
        let mut ys = self.activation.forward(&self.inner.forward(&input)?)?;
        if let Some(gated) = &self.gated {
            ys = (ys * gated.forward(&input)?)?;
        }
        let ys = mode.dropout(ys, self.inner_dropout)?;
        let ys = mode.dropout(self.outer.forward(&ys)?, self.dropout)?;
        let sum = (xs + ys)?;
        let sum = match &self.adapter {
            Some(adapter) => adapter.forward(&sum, mode)?,
            None => sum,
        };
        self.after(&self.feed_forward_norm, sum, mode)
    }
}
