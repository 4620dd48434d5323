//! The `config.json` of a model of LLaMA's shape: LLaMA itself, SmolLM, TinyLlama, and Qwen 2.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Error, Parameter, Result, SpecialTokens, TokenFields,
    json::{deserialize_id, deserialize_ids, serialize_ids},
    parameters,
};

use super::model::Llama;
use crate::layers::Activation;

/// The kinds of models of this shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LlamaKind {
    /// LLaMA and models with its `model_type`.
    #[default]
    Llama,
    /// Qwen 2 and 2.5, whose queries, keys and values have a bias.
    Qwen2,
}

/// How positions turn queries and keys.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RopeParameters {
    /// The base of the angles.
    pub rope_theta: Option<f64>,
    /// The kind; only `default` is supported.
    #[serde(alias = "type")]
    pub rope_type: Option<String>,
}

/// The fields of the `config.json`, with the defaults of `transformers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// The kind of model, from `model_type`.
    #[serde(skip)]
    pub kind: LlamaKind,
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
    /// How angles are stretched, in older files; not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<RopeParameters>,
    /// Whether layers attend to a sliding window only; not supported.
    pub use_sliding_window: bool,
    /// Whether the projections of attention have a bias.
    pub attention_bias: bool,
    /// Whether those of the feed-forward part have one.
    pub mlp_bias: bool,
    /// The dropout rate of the attention weights in training.
    pub attention_dropout: f64,
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
            use_sliding_window: false,
            attention_bias: false,
            mlp_bias: false,
            attention_dropout: 0.0,
            initializer_range: 0.02,
            tie_word_embeddings: false,
            bos_token_id: None,
            eos_token_id: Vec::new(),
            pad_token_id: None,
        }
    }
}

impl LlamaConfig {
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

    pub(crate) fn theta(&self) -> f64 {
        let own = self.rope_parameters.as_ref().and_then(|rope| rope.rope_theta);
        own.or(self.rope_theta).unwrap_or(10_000.0)
    }

    pub(crate) fn projections_have_bias(&self) -> bool {
        self.kind == LlamaKind::Qwen2 || self.attention_bias
    }

    pub(crate) fn activation(&self) -> Result<Activation> {
        Activation::named(&self.hidden_act)
            .ok_or_else(|| wrong("hidden_act", "a known activation", &self.hidden_act))
    }
}

impl Architecture for LlamaConfig {
    fn model_type(&self) -> &'static str {
        match self.kind {
            LlamaKind::Llama => "llama",
            LlamaKind::Qwen2 => "qwen2",
        }
    }

    fn class(&self) -> &'static str {
        match self.kind {
            LlamaKind::Llama => "LlamaForCausalLM",
            LlamaKind::Qwen2 => "Qwen2ForCausalLM",
        }
    }

    fn validate(&self) -> Result<()> {
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
        for (field, rope) in
            [("rope_parameters", &self.rope_parameters), ("rope_scaling", &self.rope_scaling)]
        {
            let kind = rope.as_ref().and_then(|rope| rope.rope_type.as_deref()).unwrap_or("default");
            if kind != "default" {
                return Err(wrong(field, "the rope type `default`", &format!("`{kind}`")));
            }
        }
        if !(0.0..1.0).contains(&self.attention_dropout) {
            let found = self.attention_dropout.to_string();
            return Err(wrong("attention_dropout", "at least 0 and below 1", &found));
        }
        if self.use_sliding_window {
            return Err(wrong("use_sliding_window", "false", "true"));
        }
        self.activation().map(|_| ())
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        vec![("num_hidden_layers", self.num_hidden_layers)]
    }

    fn fields(&self) -> Value {
        json!(self)
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| Llama::new(self, vb))
    }

    fn embedding(&self) -> Option<Embedding> {
        let tied_head = self.tie_word_embeddings.then_some("lm_head.weight");
        Some(Embedding { name: "model.embed_tokens.weight", others: &[], tied_head })
    }

    fn untie(&mut self) {
        self.tie_word_embeddings = false;
    }

    fn is_ignorable(&self, name: &str) -> bool {
        // The steps of the angles, which older versions stored.
        name.ends_with(".rotary_emb.inv_freq")
    }

    fn default_tokens(&self) -> Option<TokenFields> {
        let tokens = self.special_tokens();
        // Those of LLaMA's own vocabulary; Qwen 2 has none.
        let end = (self.kind == LlamaKind::Llama).then_some(2);
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
    use super::{LlamaConfig, LlamaKind, RopeParameters};
    use sporran_checkpoint::Architecture;

    #[test]
    fn what_is_not_supported_is_refused() {
        assert!(LlamaConfig::default().validate().is_ok());
        let scaled = RopeParameters { rope_theta: None, rope_type: Some("yarn".into()) };
        let error =
            LlamaConfig { rope_scaling: Some(scaled), ..LlamaConfig::default() }.validate().unwrap_err();
        let expected = "config.json: field `rope_scaling`: expected the rope type `default`, found `yarn`";
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
        assert_eq!(LlamaConfig::default().theta(), 10_000.0);
        let old = LlamaConfig { rope_theta: Some(5e5), ..LlamaConfig::default() };
        assert_eq!(old.theta(), 5e5);
        let rope = RopeParameters { rope_theta: Some(1e6), rope_type: None };
        assert_eq!(LlamaConfig { rope_parameters: Some(rope), ..old }.theta(), 1e6);
    }

    #[test]
    fn qwen_has_biases_that_llama_has_not() {
        let qwen = LlamaConfig { kind: LlamaKind::Qwen2, ..LlamaConfig::default() };
        assert!(qwen.projections_have_bias() && !LlamaConfig::default().projections_have_bias());
    }
}
