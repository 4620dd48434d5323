//! The `config.json` of a model of LLaMA's shape.

use std::path::{Path, PathBuf};

use candle_nn::VarBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Error, Parameter, Result, SpecialTokens, TokenFields,
    json::{deserialize_id, deserialize_ids, parse, serialize_ids},
    parameters,
};

use super::{
    kind::{LlamaKind, NormKind},
    model::Llama,
    rope::{Rope, RopeContext, RopeParameters},
};
use crate::{
    architectures::{bert::Head, decoder::DecoderHead},
    layers::Activation,
};

/// The layer type of attention to a sliding window.
const SLIDING: &str = "sliding_attention";
/// The layer type of attention to everything before.
const FULL: &str = "full_attention";

/// The fields of the `config.json`, with the defaults of `transformers` for LLaMA.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// The kind of model, from `model_type`.
    #[serde(skip)]
    pub kind: LlamaKind,
    /// The head.
    #[serde(skip)]
    pub head: DecoderHead,
    /// The number of logits and of embeddings.
    pub vocab_size: usize,
    /// The width of the hidden states.
    pub hidden_size: usize,
    /// The inner width of the feed-forward part.
    pub intermediate_size: usize,
    /// The number of layers.
    pub num_hidden_layers: usize,
    /// The number of attention heads.
    pub num_attention_heads: usize,
    /// The number of heads that keys and values have; as many as there are heads where it is not set.
    pub num_key_value_heads: Option<usize>,
    /// The width of a head; the heads' part of the width where it is not set.
    pub head_dim: Option<usize>,
    /// The activation of the gate.
    pub hidden_act: String,
    /// The most tokens of a sequence.
    pub max_position_embeddings: usize,
    /// Added to the mean square before its root is taken.
    pub rms_norm_eps: f64,
    /// The base of the angles, in older files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// How positions turn queries and keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<RopeParameters>,
    /// How angles are stretched, in older files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeParameters>,
    /// The base of the angles of layers with a sliding window, in older files (Gemma 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_local_base_freq: Option<f64>,
    /// The part of a head that is turned, in older files (Phi 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partial_rotary_factor: Option<f64>,
    /// The longest sequence of the first training, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<usize>,
    /// The divisors of the steps of the angles, which a GGUF file has for each pair.
    #[serde(skip)]
    pub rope_divisors: Option<Vec<f32>>,
    /// For each layer, whether it turns queries and keys: 1 or 0 (SmolLM 3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_rope_layers: Option<Vec<u32>>,
    /// Every layer at a multiple of this does not turn them, where `no_rope_layers` is not set; 4 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_rope_layer_interval: Option<usize>,
    /// Whether layers attend to a sliding window (Qwen, SmolLM 3).
    pub use_sliding_window: bool,
    /// The tokens that a layer with a sliding window attends to, the own one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_window: Option<usize>,
    /// The first layer with a sliding window (Qwen), where `layer_types` is not set; 28 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window_layers: Option<usize>,
    /// Every layer at a multiple of this attends to everything (Gemma 3), where `layer_types` is not set; 6 where it is
    /// not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sliding_window_pattern: Option<usize>,
    /// For each layer, `full_attention` or `sliding_attention`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_types: Option<Vec<String>>,
    /// Whether tokens attend to later ones; not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_bidirectional_attention: Option<bool>,
    /// Whether tokens see those before them only; `false`, which some embedders set, is not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_causal: Option<bool>,
    /// The activation of the gate (Gemma); `gelu_pytorch_tanh` where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden_activation: Option<String>,
    /// Scores are divided by its square root (Gemma); 256 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_pre_attn_scalar: Option<f64>,
    /// The bound of the scores of attention (Gemma 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attn_logit_softcapping: Option<f64>,
    /// The bound of the logits (Gemma).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub final_logit_softcapping: Option<f64>,
    /// The factor of embeddings (Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_multiplier: Option<f64>,
    /// The factor of what a part adds to the states (Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual_multiplier: Option<f64>,
    /// The factor of the products of queries and keys (Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_multiplier: Option<f64>,
    /// Logits are divided by it (Granite).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits_scaling: Option<f64>,
    /// The factor of the logits (Cohere); 0.0625 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logit_scale: Option<f64>,
    /// Added to the variance before its root is taken, in layer norms; 1e-5 where it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_norm_eps: Option<f64>,
    /// The bound of the values of queries, keys and values (OLMo 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_qkv: Option<f64>,
    /// Whether both parts of a layer read the states before it (GPT-NeoX, StableLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_parallel_residual: Option<bool>,
    /// Whether queries and keys are normalised (Phi, StableLM); not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qk_layernorm: Option<bool>,
    /// The same of Cohere; not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_qk_norm: Option<bool>,
    /// The width of embeddings (OPT); only that of the states is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub word_embed_proj_dim: Option<usize>,
    /// Whether parts read normalised states (OPT); `false` is not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub do_layer_norm_before: Option<bool>,
    /// Whether norms have weights (OPT); `false` is not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_norm_elementwise_affine: Option<bool>,
    /// Whether there is no last norm (OPT); not supported.
    #[serde(rename = "_remove_final_layer_norm", skip_serializing_if = "Option::is_none")]
    pub remove_final_layer_norm: Option<bool>,
    /// Whether projections have a bias (OPT, StarCoder 2), or those to queries, keys and values (StableLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_bias: Option<bool>,
    /// Whether the projections of attention have a bias.
    pub attention_bias: bool,
    /// Whether those of the feed-forward part have one.
    pub mlp_bias: bool,
    /// The dropout rate of the attention weights in training.
    pub attention_dropout: f64,
    /// The dropout rate of what a part adds to the states, in training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resid_pdrop: Option<f64>,
    /// The dropout rate of the embeddings, in training.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embd_pdrop: Option<f64>,
    /// The standard deviation of fresh weights.
    pub initializer_range: f64,
    /// Whether the head is the embedding table.
    pub tie_word_embeddings: bool,
    /// The token that begins a sequence.
    #[serde(deserialize_with = "deserialize_id")]
    pub bos_token_id: Option<u32>,
    /// The end token or tokens.
    #[serde(deserialize_with = "deserialize_ids", serialize_with = "serialize_ids")]
    pub eos_token_id: Vec<u32>,
    /// The padding token; the end token where it is not set.
    #[serde(deserialize_with = "deserialize_id")]
    pub pad_token_id: Option<u32>,
}

impl Default for LlamaConfig {
    fn default() -> Self {
        Self {
            kind: LlamaKind::Llama,
            head: DecoderHead::LanguageModel,
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            hidden_act: "silu".into(),
            max_position_embeddings: 2048,
            rms_norm_eps: 1e-6,
            rope_theta: None,
            rope_parameters: None,
            rope_scaling: None,
            rope_local_base_freq: None,
            partial_rotary_factor: None,
            original_max_position_embeddings: None,
            rope_divisors: None,
            no_rope_layers: None,
            no_rope_layer_interval: None,
            use_sliding_window: false,
            sliding_window: None,
            max_window_layers: None,
            sliding_window_pattern: None,
            layer_types: None,
            use_bidirectional_attention: None,
            is_causal: None,
            hidden_activation: None,
            query_pre_attn_scalar: None,
            attn_logit_softcapping: None,
            final_logit_softcapping: None,
            embedding_multiplier: None,
            residual_multiplier: None,
            attention_multiplier: None,
            logits_scaling: None,
            logit_scale: None,
            layer_norm_eps: None,
            clip_qkv: None,
            use_parallel_residual: None,
            qk_layernorm: None,
            use_qk_norm: None,
            word_embed_proj_dim: None,
            do_layer_norm_before: None,
            layer_norm_elementwise_affine: None,
            remove_final_layer_norm: None,
            use_bias: None,
            attention_bias: false,
            mlp_bias: false,
            attention_dropout: 0.0,
            resid_pdrop: None,
            embd_pdrop: None,
            initializer_range: 0.02,
            tie_word_embeddings: false,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            pad_token_id: None,
        }
    }
}

impl LlamaConfig {
    /// The head of the model as an encoder.
    pub(crate) fn encoder_head(&self, vb: &VarBuilder) -> Result<Head> {
        self.head.of_encoder(self.hidden_size, self.pad_token_id, self.initializer_range, vb)
    }

    /// The special tokens that the config names. The decoder has no separate start token, so the
    /// beginning-of-sequence token takes that role, or the end token if there is none.
    #[must_use]
    pub fn special_tokens(&self) -> SpecialTokens {
        let end = self.eos_token_id.first().copied().unwrap_or(0);
        SpecialTokens {
            pad: self.pad_token_id.unwrap_or(end),
            eos: self.eos_token_id.clone(),
            bos: self.bos_token_id,
            decoder_start: self.bos_token_id.unwrap_or(end),
        }
    }

    pub(crate) fn groups(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    pub(crate) fn head_width(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Whether `layer` attends to a sliding window, where the model has one.
    fn is_sliding(&self, layer: usize) -> bool {
        if let Some(types) = &self.layer_types {
            return types.get(layer).is_some_and(|kind| kind == SLIDING);
        }
        match self.kind {
            LlamaKind::Qwen2 | LlamaKind::Qwen3 => layer >= self.max_window_layers.unwrap_or(28),
            LlamaKind::Gemma2 => !(layer + 1).is_multiple_of(2),
            LlamaKind::Gemma3 => !(layer + 1).is_multiple_of(self.sliding_window_pattern.unwrap_or(6)),
            LlamaKind::SmolLm3 => self.use_sliding_window && !self.turns(layer),
            _ => false,
        }
    }

    /// Whether `layer` turns queries and keys by their positions.
    fn turns(&self, layer: usize) -> bool {
        if self.kind != LlamaKind::SmolLm3 {
            return self.kind.position_offset().is_none();
        }
        match &self.no_rope_layers {
            Some(turned) => turned.get(layer).is_some_and(|turned| *turned != 0),
            None => !(layer + 1).is_multiple_of(self.no_rope_layer_interval.unwrap_or(4)),
        }
    }

    /// The tokens that `layer` attends to, the own one included; none for all before.
    pub(crate) fn window(&self, layer: usize) -> Option<usize> {
        let is_windowed = match self.kind {
            LlamaKind::Mistral | LlamaKind::Phi3 | LlamaKind::Starcoder2 => true,
            LlamaKind::Qwen2 | LlamaKind::Qwen3 => self.use_sliding_window && self.is_sliding(layer),
            LlamaKind::Gemma2 | LlamaKind::Gemma3 | LlamaKind::SmolLm3 => self.is_sliding(layer),
            _ => false,
        };
        self.sliding_window.filter(|_| is_windowed)
    }

    /// The different angles of the layers; [`rope_of`](Self::rope_of) says which are a layer's.
    pub(crate) fn ropes(&self) -> Result<Vec<Rope>> {
        if self.kind.position_offset().is_some() {
            return Ok(Vec::new());
        }
        let old = self.rope_scaling.as_ref().map(|rope| ("rope_scaling", rope));
        let new = self.rope_parameters.as_ref().map(|rope| ("rope_parameters", rope));
        let none = RopeParameters::default();
        let (field, own) = old.or(new).unwrap_or(("rope_parameters", &none));
        let build = |field: &str, parameters: &RopeParameters, theta: Option<f64>| {
            let theta = parameters.rope_theta.or(theta).unwrap_or(self.kind.theta());
            if !(theta > 0.0 && theta.is_finite()) {
                return Err(wrong("rope_theta", "a number above 0", &theta.to_string()));
            }
            let context = RopeContext {
                theta,
                width: self.turned_width(parameters)?,
                longest: self.max_position_embeddings,
                original: self.original_max_position_embeddings,
            };
            Rope::new(parameters, context).map_err(|(inner, expected, found)| {
                let field = if inner == "head_dim" { inner.into() } else { format!("{field}.{inner}") };
                wrong(&field, &expected, &found)
            })
        };
        if self.kind != LlamaKind::Gemma3 {
            if own.full_attention.is_some() || own.sliding_attention.is_some() {
                return Err(wrong(field, "one set of angles for all layers", "angles by layer type"));
            }
            let theta = new.and_then(|(_, rope)| rope.rope_theta).or(self.rope_theta);
            let rope = build(field, own, theta)?;
            return Ok(vec![match &self.rope_divisors {
                Some(divisors) => rope.divided(divisors),
                None => rope,
            }]);
        }
        let by_layer = self.rope_parameters.as_ref();
        let full = by_layer.and_then(|rope| rope.full_attention.as_deref());
        let (field, full) = match &self.rope_scaling {
            Some(scaling) => ("rope_scaling", scaling),
            None => ("rope_parameters.full_attention", full.unwrap_or(&none)),
        };
        let sliding = by_layer.and_then(|rope| rope.sliding_attention.as_deref()).unwrap_or(&none);
        let local = self.rope_local_base_freq.or(Some(10_000.0));
        Ok(vec![
            build(field, full, self.rope_theta)?,
            build("rope_parameters.sliding_attention", sliding, local)?,
        ])
    }

    /// The place of the angles of `layer` in [`ropes`](Self::ropes); none where it turns nothing.
    pub(crate) fn rope_of(&self, layer: usize) -> Option<usize> {
        let own = usize::from(self.kind == LlamaKind::Gemma3 && self.is_sliding(layer));
        self.turns(layer).then_some(own)
    }

    /// The width of the part of a head that is turned.
    fn turned_width(&self, parameters: &RopeParameters) -> Result<usize> {
        let part = parameters.partial_rotary_factor.or(self.partial_rotary_factor);
        let part = part.or(self.kind.turned_part()).unwrap_or(1.0);
        if part == 1.0 {
            return Ok(self.head_width());
        }
        if self.kind.turned_part().is_none() {
            return Err(wrong("partial_rotary_factor", "1", &part.to_string()));
        }
        let width = (self.head_width() as f64 * part) as usize;
        if !(0.0..1.0).contains(&part) || width == 0 || !width.is_multiple_of(2) {
            let expected = format!("an even part of a head of {}", self.head_width());
            return Err(wrong("partial_rotary_factor", &expected, &part.to_string()));
        }
        Ok(width)
    }

    pub(crate) fn projections_have_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Qwen2 => true,
            LlamaKind::StableLm => self.use_bias.unwrap_or(false),
            _ => self.output_has_bias(),
        }
    }

    pub(crate) fn output_has_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Mistral | LlamaKind::Phi3 | LlamaKind::StableLm => false,
            LlamaKind::Opt | LlamaKind::Starcoder2 => self.use_bias.unwrap_or(true),
            LlamaKind::Phi => true,
            _ => self.attention_bias,
        }
    }

    pub(crate) fn feed_forward_has_bias(&self) -> bool {
        match self.kind {
            LlamaKind::Llama | LlamaKind::SmolLm3 | LlamaKind::Granite => self.mlp_bias,
            LlamaKind::Opt | LlamaKind::Starcoder2 => self.use_bias.unwrap_or(true),
            LlamaKind::GptNeox | LlamaKind::Phi => true,
            _ => false,
        }
    }

    /// Whether both parts of a layer read the states before it.
    pub(crate) fn is_parallel(&self) -> bool {
        match self.kind {
            LlamaKind::Cohere | LlamaKind::Phi => true,
            LlamaKind::GptNeox => self.use_parallel_residual.unwrap_or(true),
            LlamaKind::StableLm => self.use_parallel_residual.unwrap_or(false),
            _ => false,
        }
    }

    /// Whether both parts of a layer read the states that one norm gives.
    pub(crate) fn shares_norm(&self) -> bool {
        self.is_parallel() && self.kind != LlamaKind::GptNeox
    }

    /// What norms add before they take the root.
    pub(crate) fn norm_eps(&self) -> f64 {
        match self.kind.norm_kind() {
            NormKind::Root | NormKind::RootAroundOne => self.rms_norm_eps,
            NormKind::Layer | NormKind::LayerWithoutShift => self.layer_norm_eps.unwrap_or(1e-5),
            NormKind::LayerWithoutWeights => 1e-5,
        }
    }

    /// The bound of the values of queries, keys and values.
    pub(crate) fn clip(&self) -> Option<f64> {
        self.clip_qkv.filter(|_| self.kind == LlamaKind::Olmo)
    }

    /// The factor of the products of queries and keys.
    pub(crate) fn score_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Gemma2 | LlamaKind::Gemma3 => self.query_pre_attn_scalar.unwrap_or(256.0).powf(-0.5),
            LlamaKind::Granite => self.attention_multiplier.unwrap_or(1.0),
            _ => (self.head_width() as f64).powf(-0.5),
        }
    }

    /// The bound of the scores of attention.
    pub(crate) fn score_cap(&self) -> Option<f64> {
        self.attn_logit_softcapping.filter(|_| self.kind == LlamaKind::Gemma2)
    }

    /// The factor of embeddings.
    pub(crate) fn embedding_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Gemma | LlamaKind::Gemma2 | LlamaKind::Gemma3 => (self.hidden_size as f64).sqrt(),
            LlamaKind::Granite => self.embedding_multiplier.unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// The factor of what a part adds to the states.
    pub(crate) fn residual_scale(&self) -> f64 {
        self.residual_multiplier.filter(|_| self.kind == LlamaKind::Granite).unwrap_or(1.0)
    }

    /// The factor of the logits.
    pub(crate) fn logit_scale(&self) -> f64 {
        match self.kind {
            LlamaKind::Cohere => self.logit_scale.unwrap_or(0.0625),
            LlamaKind::Granite => 1.0 / self.logits_scaling.unwrap_or(1.0),
            _ => 1.0,
        }
    }

    /// The bound of the logits.
    pub(crate) fn logit_cap(&self) -> Option<f64> {
        self.final_logit_softcapping.filter(|_| self.kind.is_new_gemma())
    }

    /// The dropout rates of what attention and the feed-forward part add to the states, in training.
    pub(crate) fn part_dropouts(&self) -> [f64; 2] {
        let rate = self.resid_pdrop.unwrap_or(0.0);
        match self.kind {
            LlamaKind::StableLm => [0.0, rate],
            LlamaKind::GptNeox
            | LlamaKind::Opt
            | LlamaKind::Phi
            | LlamaKind::Phi3
            | LlamaKind::Starcoder2 => [rate; 2],
            _ => [0.0; 2],
        }
    }

    /// The dropout rate of the embeddings, in training.
    pub(crate) fn embedding_dropout(&self) -> f64 {
        match self.kind {
            LlamaKind::GptNeox => self.resid_pdrop.unwrap_or(0.0),
            LlamaKind::Phi | LlamaKind::Starcoder2 => self.embd_pdrop.unwrap_or(0.0),
            _ => 0.0,
        }
    }

    pub(crate) fn activation(&self) -> Result<Activation> {
        let (field, name) = match self.kind {
            LlamaKind::Gemma2 | LlamaKind::Gemma3 => {
                ("hidden_activation", self.hidden_activation.as_deref().unwrap_or("gelu_pytorch_tanh"))
            }
            // The first files say `gelu`, and mean its approximation.
            LlamaKind::Gemma if self.hidden_act == "gelu" => ("hidden_act", "gelu_pytorch_tanh"),
            _ => ("hidden_act", self.hidden_act.as_str()),
        };
        Activation::named(name).ok_or_else(|| wrong(field, "a known activation", name))
    }

    /// Reads the text of a `config.json` of this kind; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`] where a field has the wrong type.
    pub fn from_json(kind: LlamaKind, path: &Path, text: &str) -> Result<Self> {
        let head = DecoderHead::of(path, text, kind.class_of_labels())?;
        // A field that is null is set.
        let mut given: Map<String, Value> = parse(path, text)?;
        for (own, here) in kind.field_names() {
            if let Some(value) = given.remove(*own) {
                given.entry(*here).or_insert(value);
            }
        }
        let own: Self = parse(path, &Value::from(given.clone()).to_string())?;
        let defaults = kind.defaults();
        if defaults == Self::default() {
            return Ok(Self { head, ..own });
        }
        let mut fields = json!(defaults);
        if let Value::Object(fields) = &mut fields {
            fields.extend(given);
        }
        Ok(Self { kind, head, ..parse(path, &fields.to_string())? })
    }

    /// Reads the text of the `config.json` of a Gemma 3 with images: its part for text alone.
    ///
    /// # Errors
    /// As for [`from_json`](Self::from_json), and [`Error::Config`] where it has no such part.
    pub fn of_text_part(path: &Path, text: &str) -> Result<Self> {
        let whole: Map<String, Value> = parse(path, text)?;
        let part = whole.get("text_config").filter(|part| part.is_object());
        let part = part.ok_or_else(|| wrong("text_config", "an object", "none").within(path))?;
        Self::from_json(LlamaKind::Gemma3, path, &part.to_string())
    }

    /// Checks the settings of layers with a sliding window.
    fn check_windows(&self) -> Result<()> {
        if self.sliding_window == Some(0) {
            return Err(wrong("sliding_window", "at least 1", "0"));
        }
        if self.sliding_window_pattern == Some(0) {
            return Err(wrong("sliding_window_pattern", "at least 1", "0"));
        }
        if self.use_bidirectional_attention == Some(true) {
            return Err(wrong("use_bidirectional_attention", "false", "true"));
        }
        if self.is_causal == Some(false) {
            return Err(wrong("is_causal", "true", "false"));
        }
        let layers = self.num_hidden_layers;
        if let Some(types) = &self.layer_types {
            if types.len() < layers {
                let expected = format!("a type for each of {layers} layers");
                return Err(wrong("layer_types", &expected, &types.len().to_string()));
            }
            if let Some(other) = types.iter().find(|kind| ![FULL, SLIDING].contains(&kind.as_str())) {
                let expected = format!("`{FULL}` or `{SLIDING}`");
                return Err(wrong("layer_types", &expected, &format!("`{other}`")));
            }
        }
        let has_window = matches!(
            self.kind,
            LlamaKind::Qwen2
                | LlamaKind::Qwen3
                | LlamaKind::Mistral
                | LlamaKind::Gemma2
                | LlamaKind::Gemma3
                | LlamaKind::SmolLm3
                | LlamaKind::Phi3
                | LlamaKind::Starcoder2
        );
        if self.use_sliding_window && !has_window {
            return Err(wrong("use_sliding_window", "false", "true"));
        }
        if let Some(turned) = self.no_rope_layers.as_ref().filter(|turned| turned.len() < layers) {
            let expected = format!("a number for each of {layers} layers");
            return Err(wrong("no_rope_layers", &expected, &turned.len().to_string()));
        }
        if self.no_rope_layer_interval == Some(0) {
            return Err(wrong("no_rope_layer_interval", "at least 1", "0"));
        }
        Ok(())
    }

    /// Checks all settings, whose fields errors call as they are called here.
    fn check(&self) -> Result<()> {
        for (field, size) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.groups()),
            ("max_position_embeddings", self.max_position_embeddings),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        if self.head_dim.is_none() && !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let expected = format!("a divisor of hidden_size, {}", self.hidden_size);
            return Err(wrong("num_attention_heads", &expected, &self.num_attention_heads.to_string()));
        }
        let width = self.head_width();
        if width == 0 || !width.is_multiple_of(2) {
            return Err(wrong("head_dim", "an even number", &width.to_string()));
        }
        if self.num_attention_heads.checked_mul(width).is_none_or(|width| width > i32::MAX as usize) {
            let expected = format!("at most {} as the width of all heads", i32::MAX);
            let found = format!("{width} for each of {}", self.num_attention_heads);
            return Err(wrong("head_dim", &expected, &found));
        }
        if !self.num_attention_heads.is_multiple_of(self.groups()) {
            let expected = format!("a divisor of num_attention_heads, {}", self.num_attention_heads);
            return Err(wrong("num_key_value_heads", &expected, &self.groups().to_string()));
        }
        self.check_kind()?;
        self.check_windows()?;
        self.check_factors()?;
        let ropes = self.ropes()?;
        if let (Some(divisors), Some(rope)) = (&self.rope_divisors, ropes.first())
            && divisors.len() != rope.pairs()
        {
            let expected = format!("a number for each of {} pairs", rope.pairs());
            return Err(wrong("rope_divisors", &expected, &divisors.len().to_string()));
        }
        self.activation().map(|_| ())
    }

    /// Checks the settings of single kinds.
    fn check_kind(&self) -> Result<()> {
        let width = self.hidden_size / self.num_attention_heads;
        if !self.kind.has_head_dim()
            && let Some(found) = self.head_dim.filter(|found| *found != width)
        {
            let expected = format!("hidden_size by num_attention_heads, {width}");
            return Err(wrong("head_dim", &expected, &found.to_string()));
        }
        if matches!(self.kind, LlamaKind::GptNeox | LlamaKind::Opt)
            && self.groups() != self.num_attention_heads
        {
            let expected = format!("num_attention_heads, {}", self.num_attention_heads);
            return Err(wrong("num_key_value_heads", &expected, &self.groups().to_string()));
        }
        for (field, value, only) in [
            ("qk_layernorm", self.qk_layernorm, false),
            ("use_qk_norm", self.use_qk_norm, false),
            ("do_layer_norm_before", self.do_layer_norm_before, true),
            ("layer_norm_elementwise_affine", self.layer_norm_elementwise_affine, true),
            ("_remove_final_layer_norm", self.remove_final_layer_norm, false),
        ] {
            if let Some(found) = value.filter(|found| *found != only) {
                return Err(wrong(field, &only.to_string(), &found.to_string()));
            }
        }
        if let Some(found) = self.word_embed_proj_dim.filter(|found| *found != self.hidden_size) {
            let expected = format!("hidden_size, {}", self.hidden_size);
            return Err(wrong("word_embed_proj_dim", &expected, &found.to_string()));
        }
        if self.tie_word_embeddings && self.kind.head_has_bias() {
            return Err(wrong("tie_word_embeddings", "false", "true"));
        }
        Ok(())
    }

    /// Checks the factors and bounds of states, scores and logits.
    fn check_factors(&self) -> Result<()> {
        for (field, value) in [
            ("query_pre_attn_scalar", self.query_pre_attn_scalar),
            ("attn_logit_softcapping", self.attn_logit_softcapping),
            ("final_logit_softcapping", self.final_logit_softcapping),
            ("embedding_multiplier", self.embedding_multiplier),
            ("residual_multiplier", self.residual_multiplier),
            ("attention_multiplier", self.attention_multiplier),
            ("logits_scaling", self.logits_scaling),
            ("logit_scale", self.logit_scale),
            ("clip_qkv", self.clip_qkv),
        ] {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(wrong(field, "a number above 0", &value.to_string()));
            }
        }
        if let Some(cap) = self.attn_logit_softcapping.filter(|_| self.kind == LlamaKind::Gemma3) {
            return Err(wrong("attn_logit_softcapping", "null", &cap.to_string()));
        }
        let [_, part_dropout] = self.part_dropouts();
        for (field, rate) in [
            ("attention_dropout", self.attention_dropout),
            ("resid_pdrop", part_dropout),
            ("embd_pdrop", self.embedding_dropout()),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return Err(wrong(field, "at least 0 and below 1", &rate.to_string()));
            }
        }
        Ok(())
    }
}

impl Architecture for LlamaConfig {
    fn model_type(&self) -> &'static str {
        self.kind.model_type()
    }

    fn class(&self) -> &'static str {
        match self.head {
            DecoderHead::Labels(_) => self.kind.class_of_labels(),
            DecoderHead::LanguageModel | DecoderHead::None => self.kind.class(),
        }
    }

    fn validate(&self) -> Result<()> {
        self.check().map_err(|error| match error {
            Error::Config { path, field, expected, found } => {
                let named = self.kind.field_names().iter().find(|(_, here)| *here == field);
                let field = named.map_or(field, |(own, _)| (*own).into());
                Error::Config { path, field, expected, found }
            }
            other => other,
        })
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        vec![("num_hidden_layers", self.num_hidden_layers)]
    }

    fn fields(&self) -> Value {
        let mut fields = json!(self);
        // A field that is null is written where the kind would set another value.
        if let (Value::Object(fields), Value::Object(defaults)) = (&mut fields, json!(self.kind.defaults())) {
            for (field, _) in defaults {
                fields.entry(field).or_insert(Value::Null);
            }
        }
        if let Value::Object(fields) = &mut fields {
            if !self.kind.has_head_dim() {
                // `transformers` would take null for the width of a head.
                fields.remove("head_dim");
            }
            for (own, here) in self.kind.field_names() {
                if let Some(value) = fields.remove(*here) {
                    fields.insert((*own).into(), value);
                }
            }
            self.head.write(fields);
        }
        fields
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| Ok((Llama::new(self, vb)?, self.encoder_head(vb)?)))
    }

    fn drop_missing_head(&mut self, has: &dyn Fn(&str) -> bool) -> bool {
        let head = format!("{}.", self.kind.names().head);
        self.head.drop_missing(self.tie_word_embeddings, &|_| has(&head))
    }

    fn embedding(&self) -> Option<Embedding> {
        let is_tied = self.tie_word_embeddings && self.head.is_language_model();
        let names = self.kind.names();
        let head = if names.head == "lm_head" { "lm_head.weight" } else { "embed_out.weight" };
        Some(Embedding { name: names.table, others: &[], tied_head: is_tied.then_some(head) })
    }

    fn untie(&mut self) {
        self.tie_word_embeddings = false;
    }

    fn canonical(&self, stored: &str) -> String {
        // Embedders have the body alone.
        let names = self.kind.names();
        if let Some(placed) = names.placed(stored) {
            return placed;
        }
        if self.kind == LlamaKind::Opt && stored.starts_with("decoder.") {
            return format!("model.{stored}");
        }
        if let Some(end) = stored.strip_prefix("lm_head.") {
            return format!("{}.{end}", names.head);
        }
        if self.kind != LlamaKind::Gemma3 {
            return stored.into();
        }
        // A model with images has its decoder under one of these names.
        match stored.strip_prefix("model.language_model.") {
            Some(inner) => format!("model.{inner}"),
            None => stored.strip_prefix("language_model.").unwrap_or(stored).into(),
        }
    }

    fn is_ignorable(&self, name: &str) -> bool {
        const IMAGES: [&str; 2] = ["vision_tower.", "multi_modal_projector."];
        let inner = name.strip_prefix("model.").unwrap_or(name);
        let is_of_images = IMAGES.iter().any(|part| inner.starts_with(part));
        // The steps of the angles, which older versions stored.
        name.ends_with(".rotary_emb.inv_freq")
            // The masks of attention, which older versions of GPT-NeoX stored.
            || name.ends_with(".attention.bias")
            || name.ends_with(".attention.masked_bias")
            || self.head.ignores(name)
            || (self.kind == LlamaKind::Gemma3 && is_of_images)
    }

    fn default_tokens(&self) -> Option<TokenFields> {
        let tokens = self.special_tokens();
        // LLaMA's config has none, and its vocabulary has this one.
        let end = match self.kind {
            LlamaKind::Llama => Some(2),
            kind => kind.defaults().eos_token_id.first().copied(),
        };
        Some(TokenFields::defaults(self.pad_token_id, end, tokens.bos, Some(tokens.decoder_start)))
    }
}

fn wrong(field: &str, expected: &str, found: &str) -> Error {
    Error::Config {
        path: PathBuf::from("config.json"),
        field: field.into(),
        expected: expected.into(),
        found: found.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FULL, LlamaConfig, LlamaKind, RopeParameters, SLIDING};
    use sporran_checkpoint::Architecture;

    #[test]
    fn what_is_not_supported_is_refused() {
        assert!(LlamaConfig::default().validate().is_ok());
        let scaled = RopeParameters { rope_type: Some("longrope".into()), ..RopeParameters::default() };
        let error =
            LlamaConfig { rope_scaling: Some(scaled), ..LlamaConfig::default() }.validate().unwrap_err();
        let expected = "config.json: field `rope_scaling.rope_type`: expected the rope type `default`, `linear`, \
                        `dynamic`, `yarn` or `llama3`, found `longrope`";
        assert_eq!(error.to_string(), expected);
        assert!(LlamaConfig { use_sliding_window: true, ..LlamaConfig::default() }.validate().is_err());
        assert!(LlamaConfig { num_key_value_heads: Some(5), ..LlamaConfig::default() }.validate().is_err());
        assert!(LlamaConfig { head_dim: Some(3), ..LlamaConfig::default() }.validate().is_err());
        assert!(LlamaConfig { head_dim: Some(1 << 62), ..LlamaConfig::default() }.validate().is_err());
    }

    #[test]
    fn counts_that_no_file_can_hold_are_refused_by_name() {
        let many = LlamaConfig { num_hidden_layers: 2_147_483_647, ..LlamaConfig::default() };
        assert!(many.check_sizes().is_ok());
        let error = many.check_layers(29).unwrap_err().to_string();
        let expected = "config.json: field `num_hidden_layers`: expected no more layers than the weights have tensors, \
                        29, found 2147483647";
        assert_eq!(error, expected);
        let wide = LlamaConfig { hidden_size: 1 << 40, ..LlamaConfig::default() };
        let error = wide.check_sizes().unwrap_err().to_string();
        assert_eq!(
            error,
            "config.json: field `hidden_size`: expected at most 2147483647, found 1099511627776"
        );
        assert!(LlamaConfig::default().check_layers(32).is_ok());
    }

    #[test]
    fn the_base_of_the_angles_is_found_in_new_files_and_in_old_ones() {
        // The angle of the second of two pairs is the base to the power of -1/2.
        let base = |config: &LlamaConfig| {
            let config = LlamaConfig { head_dim: Some(4), ..config.clone() };
            config.ropes().unwrap()[0].steps(1)[1].powi(-2).round()
        };
        assert_eq!(base(&LlamaConfig::default()), 10_000.0);
        let old = LlamaConfig { rope_theta: Some(250_000.0), ..LlamaConfig::default() };
        assert_eq!(base(&old), 250_000.0);
        let rope = RopeParameters { rope_theta: Some(1e6), ..RopeParameters::default() };
        assert_eq!(base(&LlamaConfig { rope_parameters: Some(rope), ..old }), 1e6);
    }

    #[test]
    fn a_kind_has_its_own_defaults_and_null_is_a_value() {
        let read = |kind, text: &str| LlamaConfig::from_json(kind, Path::new("config.json"), text).unwrap();
        let mistral = read(LlamaKind::Mistral, "{}");
        assert_eq!((mistral.window(0), mistral.groups()), (Some(4096), 8));
        let whole = read(LlamaKind::Mistral, r#"{"sliding_window": null}"#);
        assert_eq!(whole.window(0), None);
        // What is written is read again.
        for config in [mistral, whole, read(LlamaKind::Gemma2, r#"{"final_logit_softcapping": null}"#)] {
            let text = config.to_json().to_string();
            assert_eq!(read(config.kind, &text), config, "{text}");
        }
        let gemma = read(LlamaKind::Gemma2, "{}");
        assert_eq!(
            (gemma.score_cap(), gemma.logit_cap(), gemma.score_scale()),
            (Some(50.0), Some(30.0), 0.0625)
        );
        assert!(gemma.tie_word_embeddings && !read(LlamaKind::Llama, "{}").tie_word_embeddings);
    }

    #[test]
    fn layers_have_windows_and_angles_by_their_places() {
        let of = |kind: LlamaKind| LlamaConfig { num_hidden_layers: 6, ..kind.defaults() };
        let windows = |config: &LlamaConfig| -> Vec<bool> {
            (0..6).map(|layer| config.window(layer).is_some()).collect()
        };
        assert_eq!(windows(&of(LlamaKind::Gemma2)), [true, false, true, false, true, false]);
        let gemma = of(LlamaKind::Gemma3);
        assert_eq!(windows(&gemma), [true, true, true, true, true, false]);
        assert_eq!([0, 5].map(|layer| gemma.rope_of(layer)), [Some(1), Some(0)]);
        let types = (0..6).map(|layer| [FULL, SLIDING][layer % 2].into()).collect();
        let gemma = LlamaConfig { layer_types: Some(types), ..gemma };
        assert_eq!(windows(&gemma), [false, true, false, true, false, true]);
        let qwen = LlamaConfig {
            use_sliding_window: true,
            sliding_window: Some(8),
            max_window_layers: Some(4),
            ..of(LlamaKind::Qwen3)
        };
        assert_eq!(windows(&qwen), [false, false, false, false, true, true]);
        assert_eq!(windows(&LlamaConfig { use_sliding_window: false, ..qwen }), [false; 6]);
        let smol = of(LlamaKind::SmolLm3);
        let turned: Vec<bool> = (0..6).map(|layer| smol.rope_of(layer).is_some()).collect();
        assert_eq!(turned, [true, true, true, false, true, true]);
        let own = LlamaConfig { no_rope_layers: Some(vec![0, 1, 1, 1, 1, 0]), ..smol };
        assert_eq!((own.rope_of(0), own.rope_of(3)), (None, Some(0)));
    }

    #[test]
    fn settings_of_other_kinds_are_refused_by_name() {
        let refused = |config: LlamaConfig, field: &str| {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        };
        let types = Some(vec!["chunked_attention".into(); 32]);
        refused(LlamaConfig { layer_types: types, ..LlamaKind::Qwen3.defaults() }, "layer_types");
        let short = Some(vec!["full_attention".into()]);
        refused(LlamaConfig { layer_types: short, ..LlamaKind::Qwen3.defaults() }, "layer_types");
        let part = Some(0.5);
        refused(
            LlamaConfig { partial_rotary_factor: part, ..LlamaConfig::default() },
            "partial_rotary_factor",
        );
        assert!(LlamaConfig { partial_rotary_factor: part, ..LlamaKind::Phi3.defaults() }.validate().is_ok());
        let cap = Some(50.0);
        refused(
            LlamaConfig { attn_logit_softcapping: cap, ..LlamaKind::Gemma3.defaults() },
            "attn_logit_softcapping",
        );
        let other = Some("mish".into());
        refused(
            LlamaConfig { hidden_activation: other, ..LlamaKind::Gemma2.defaults() },
            "hidden_activation",
        );
        let both = Some(true);
        refused(
            LlamaConfig { use_bidirectional_attention: both, ..LlamaKind::Gemma3.defaults() },
            "use_bidirectional_attention",
        );
        refused(
            LlamaConfig { attention_multiplier: Some(0.0), ..LlamaKind::Granite.defaults() },
            "attention_multiplier",
        );
    }

    #[test]
    fn qwen_has_biases_that_llama_has_not() {
        let qwen = LlamaConfig { kind: LlamaKind::Qwen2, ..LlamaConfig::default() };
        assert!(qwen.projections_have_bias() && !LlamaConfig::default().projections_have_bias());
    }
}
