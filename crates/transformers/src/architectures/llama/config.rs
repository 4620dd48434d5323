//! The `config.json` of a model of LLaMA's shape.

use std::path::Path;

use candle_nn::VarBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Parameter, Result, SpecialTokens, TokenFields,
    json::{deserialize_id, deserialize_ids, parse, serialize_ids},
    parameters,
};

use super::{kind::LlamaKind, model::Llama, rope::RopeParameters};
use crate::architectures::{bert::Head, decoder::DecoderHead, wrong::wrong};

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

    /// Reads the text of a `config.json` of this kind; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type.
    pub fn from_json(kind: LlamaKind, path: &Path, text: &str) -> Result<Self> {
        let head = DecoderHead::of(path, text, kind.class_of_labels())?;
        let own: Self = parse(path, text)?;
        let defaults = kind.defaults();
        if defaults == Self::default() {
            return Ok(Self { head, ..own });
        }
        // A field that is null is set.
        let mut given: Map<String, Value> = parse(path, text)?;
        for (own, here) in kind.field_names() {
            if let Some(value) = given.remove(*own) {
                given.insert((*here).into(), value);
            }
        }
        let mut fields = json!(defaults);
        if let Value::Object(fields) = &mut fields {
            fields.extend(given);
        }
        let read = parse(path, &fields.to_string()).map_err(|error| kind.with_own_field(error))?;
        Ok(Self { kind, head, ..read })
    }

    /// Reads the text of the `config.json` of a Gemma 3 with images: its part for text alone.
    ///
    /// # Errors
    /// As for [`from_json`](Self::from_json), and [`Error::Config`](sporran_checkpoint::Error::Config) where it has no such part.
    pub fn of_text_part(path: &Path, text: &str) -> Result<Self> {
        let whole: Map<String, Value> = parse(path, text)?;
        let part = whole.get("text_config").filter(|part| part.is_object());
        let part = part.ok_or_else(|| wrong("text_config", "an object", "none").within(path))?;
        Self::from_json(LlamaKind::Gemma3, path, &part.to_string())
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
        self.check().map_err(|error| self.kind.with_own_field(error))
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LlamaConfig, LlamaKind};
    use sporran_checkpoint::Architecture;

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
}
