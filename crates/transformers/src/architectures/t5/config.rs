//! The `config.json` of a T5 model.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Parameter, Result, SpecialTokens, TokenFields,
    json::{deserialize_id, deserialize_ids, parse, serialize_ids},
    parameters,
};

use super::model::T5;
use crate::{architectures::wrong::wrong, layers::Activation};

/// The models of T5's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum T5Family {
    /// T5 (Raffel et al. 2020), version 1.0 or 1.1.
    #[default]
    T5,
    /// mT5 (Xue et al. 2021): T5 1.1 for many languages. Its decoder's states are never scaled.
    Mt5,
    /// UMT5 (Chung et al. 2023): mT5 with position biases in every layer.
    Umt5,
}

impl T5Family {
    /// The `model_type` of a `config.json`.
    #[must_use]
    pub fn model_type(self) -> &'static str {
        match self {
            Self::T5 => "t5",
            Self::Mt5 => "mt5",
            Self::Umt5 => "umt5",
        }
    }

    /// The family with this `model_type`.
    #[must_use]
    pub fn named(model_type: &str) -> Option<Self> {
        [Self::T5, Self::Mt5, Self::Umt5].into_iter().find(|family| family.model_type() == model_type)
    }

    /// The class of the encoder alone.
    #[must_use]
    pub fn encoder_class(self) -> &'static str {
        match self {
            Self::T5 => "T5EncoderModel",
            Self::Mt5 => "MT5EncoderModel",
            Self::Umt5 => "UMT5EncoderModel",
        }
    }
}

/// The fields of a T5 `config.json`, with the defaults of `transformers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct T5Config {
    /// The model's family.
    #[serde(skip)]
    pub family: T5Family,
    /// The number of logits and of embeddings.
    pub vocab_size: usize,
    /// The width of the hidden states.
    pub d_model: usize,
    /// The width of one attention head.
    pub d_kv: usize,
    /// The inner width of the feed-forward part.
    pub d_ff: usize,
    /// The number of encoder layers.
    pub num_layers: usize,
    /// The number of decoder layers; as many as the encoder has where it is not set.
    pub num_decoder_layers: Option<usize>,
    /// The number of attention heads.
    pub num_heads: usize,
    /// The number of relative position buckets.
    pub relative_attention_num_buckets: usize,
    /// From this distance on, all positions share a bucket.
    pub relative_attention_max_distance: usize,
    /// The dropout rate, in training.
    pub dropout_rate: f64,
    /// Added to the mean square before its root is taken.
    pub layer_norm_epsilon: f64,
    /// A factor on the standard deviations of fresh weights.
    pub initializer_factor: f64,
    /// The activation, with `gated-` before it where the feed-forward part is gated.
    pub feed_forward_proj: String,
    /// Whether the head is the embedding table.
    pub tie_word_embeddings: bool,
    /// Whether the decoder's states are scaled by `d_model`^-0.5 before the head; where it is not set, they are
    /// if the head is tied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_decoder_outputs: Option<bool>,
    /// The padding token.
    #[serde(deserialize_with = "padding")]
    pub pad_token_id: u32,
    /// The end token or tokens.
    #[serde(deserialize_with = "deserialize_ids", serialize_with = "serialize_ids")]
    pub eos_token_id: Vec<u32>,
    /// The decoder's first token; the padding token where it is not set.
    #[serde(deserialize_with = "deserialize_id")]
    pub decoder_start_token_id: Option<u32>,
}

/// A model without a padding token pads with the usual one, which is never attended to.
fn padding<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(deserialize_id(deserializer)?.unwrap_or(0))
}

impl Default for T5Config {
    fn default() -> Self {
        Self {
            family: T5Family::T5,
            vocab_size: 32128,
            d_model: 512,
            d_kv: 64,
            d_ff: 2048,
            num_layers: 6,
            num_decoder_layers: None,
            num_heads: 8,
            relative_attention_num_buckets: 32,
            relative_attention_max_distance: 128,
            dropout_rate: 0.1,
            layer_norm_epsilon: 1e-6,
            initializer_factor: 1.0,
            feed_forward_proj: "relu".into(),
            tie_word_embeddings: true,
            scale_decoder_outputs: None,
            pad_token_id: 0,
            eos_token_id: vec![1],
            decoder_start_token_id: None,
        }
    }
}

impl T5Config {
    /// Reads the text of a `config.json` of a family; `path` names it in errors.
    ///
    /// The heads of mT5 and UMT5 are the embeddings unless the weights have others, whatever the config says, as in
    /// `transformers`.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type.
    pub fn from_json(family: T5Family, path: &Path, text: &str) -> Result<Self> {
        if family == T5Family::T5 {
            return parse(path, text);
        }
        let mut fields: Map<String, Value> = parse(path, text)?;
        let defaults = [
            ("vocab_size", json!(250_112)),
            ("d_ff", json!(1024)),
            ("num_layers", json!(8)),
            ("num_heads", json!(6)),
            ("feed_forward_proj", json!("gated-gelu")),
        ];
        for (name, value) in defaults {
            fields.entry(name).or_insert(value);
        }
        let read: Self = parse(path, &Value::Object(fields).to_string())?;
        let scales = family == T5Family::Umt5 && read.scales_decoder_outputs();
        Ok(Self { family, tie_word_embeddings: true, scale_decoder_outputs: Some(scales), ..read })
    }

    /// The number of layers of a stack that have position biases, from the first on; other layers share those of the first.
    pub(crate) fn biased_layers(&self, count: usize) -> usize {
        if self.family == T5Family::Umt5 { count } else { 1 }
    }

    /// The number of decoder layers.
    #[must_use]
    pub fn decoder_layers(&self) -> usize {
        self.num_decoder_layers.unwrap_or(self.num_layers)
    }

    /// The special tokens that the config names.
    #[must_use]
    pub fn special_tokens(&self) -> SpecialTokens {
        SpecialTokens {
            pad: self.pad_token_id,
            eos: self.eos_token_id.clone(),
            bos: None,
            decoder_start: self.decoder_start_token_id.unwrap_or(self.pad_token_id),
        }
    }

    pub(crate) fn scales_decoder_outputs(&self) -> bool {
        self.scale_decoder_outputs.unwrap_or(self.tie_word_embeddings)
    }

    /// The activation of the feed-forward part, and whether it is gated.
    pub(crate) fn activation(&self) -> Result<(Activation, bool)> {
        let (name, gated) = match self.feed_forward_proj.strip_prefix("gated-") {
            // Only here the name means the tanh approximation.
            Some("gelu") => ("gelu_new", true),
            Some(name) => (name, true),
            None => (self.feed_forward_proj.as_str(), false),
        };
        let activation = Activation::named(name).ok_or_else(|| {
            wrong("feed_forward_proj", "a known activation, or `gated-` and one", &self.feed_forward_proj)
        })?;
        Ok((activation, gated))
    }
}

impl Architecture for T5Config {
    fn model_type(&self) -> &'static str {
        self.family.model_type()
    }

    fn class(&self) -> &'static str {
        match self.family {
            T5Family::T5 => "T5ForConditionalGeneration",
            T5Family::Mt5 => "MT5ForConditionalGeneration",
            T5Family::Umt5 => "UMT5ForConditionalGeneration",
        }
    }

    /// Checks constraints beyond the types: sizes that must not be zero, and rates between 0 and 1.
    fn validate(&self) -> Result<()> {
        for (field, size) in [
            ("vocab_size", self.vocab_size),
            ("d_model", self.d_model),
            ("d_kv", self.d_kv),
            ("d_ff", self.d_ff),
            ("num_layers", self.num_layers),
            ("num_decoder_layers", self.decoder_layers()),
            ("num_heads", self.num_heads),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        if self.num_heads.checked_mul(self.d_kv).is_none_or(|width| width > i32::MAX as usize) {
            let expected = format!("at most {} as the width of all heads", i32::MAX);
            return Err(wrong("d_kv", &expected, &format!("{} for each of {}", self.d_kv, self.num_heads)));
        }
        let buckets = self.relative_attention_num_buckets;
        if buckets < 4 || !buckets.is_multiple_of(2) {
            return Err(wrong(
                "relative_attention_num_buckets",
                "an even number from 4",
                &buckets.to_string(),
            ));
        }
        if self.relative_attention_max_distance <= buckets / 2 {
            let found = self.relative_attention_max_distance.to_string();
            return Err(wrong("relative_attention_max_distance", "more than half the buckets", &found));
        }
        if !(0.0..1.0).contains(&self.dropout_rate) {
            return Err(wrong("dropout_rate", "from 0 to below 1", &self.dropout_rate.to_string()));
        }
        self.activation().map(|_| ())
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        vec![("num_layers", self.num_layers), ("num_decoder_layers", self.decoder_layers())]
    }

    fn fields(&self) -> Value {
        let mut value = json!(self);
        if let Value::Object(fields) = &mut value {
            // Spelt out, as `transformers` cannot generate without it.
            fields.insert("decoder_start_token_id".into(), json!(self.special_tokens().decoder_start));
            fields.insert("is_encoder_decoder".into(), json!(true));
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| T5::new(self, vb))
    }

    /// Fusion-in-Decoder's released models wrap the encoder and each of its blocks.
    fn canonical(&self, stored: &str) -> String {
        match stored.strip_prefix("encoder.encoder.") {
            Some(inner) => format!("encoder.{}", inner.replacen(".module.", ".", 1)),
            None => stored.into(),
        }
    }

    fn embedding(&self) -> Option<Embedding> {
        Some(Embedding {
            name: "shared.weight",
            others: &["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"],
            tied_head: self.tie_word_embeddings.then_some("lm_head.weight"),
        })
    }

    fn untie(&mut self) {
        // The scaling of the config stays.
        self.scale_decoder_outputs = Some(self.scales_decoder_outputs());
        self.tie_word_embeddings = false;
    }

    fn is_ignorable(&self, name: &str) -> bool {
        name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    }

    fn default_tokens(&self) -> Option<TokenFields> {
        let pad = Some(self.pad_token_id);
        Some(TokenFields::defaults(pad, Some(1), None, pad))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{T5Config, T5Family};
    use crate::layers::Activation;
    use sporran_checkpoint::Architecture;

    #[test]
    fn gated_gelu_is_the_tanh_approximation_and_plain_gelu_is_not() {
        let with =
            |proj: &str| T5Config { feed_forward_proj: proj.into(), ..T5Config::default() }.activation();
        assert_eq!(with("gated-gelu").unwrap(), (Activation::GeluTanh, true));
        assert_eq!(with("gelu").unwrap(), (Activation::Gelu, false));
        assert_eq!(with("relu").unwrap(), (Activation::Relu, false));
        assert!(with("gated-mish").unwrap_err().to_string().contains("`feed_forward_proj`"));
    }

    #[test]
    fn sizes_that_no_model_can_have_are_refused() {
        let error = T5Config { num_heads: 0, ..T5Config::default() }.validate().unwrap_err();
        assert_eq!(error.to_string(), "config.json: field `num_heads`: expected at least 1, found 0");
        assert!(T5Config { relative_attention_num_buckets: 3, ..T5Config::default() }.validate().is_err());
        assert!(T5Config { dropout_rate: 1.0, ..T5Config::default() }.validate().is_err());
        assert!(T5Config::default().validate().is_ok());
    }

    #[test]
    fn multilingual_families_have_their_defaults_and_their_scaling() {
        let read = |family, text: &str| T5Config::from_json(family, Path::new("config.json"), text).unwrap();
        let mt5 = read(T5Family::Mt5, r#"{"num_heads": 4}"#);
        assert_eq!((mt5.vocab_size, mt5.d_ff, mt5.num_layers, mt5.num_heads), (250_112, 1024, 8, 4));
        assert_eq!(mt5.activation().unwrap(), (Activation::GeluTanh, true));
        assert!(mt5.tie_word_embeddings && !mt5.scales_decoder_outputs());
        for (text, scales) in [
            ("{}", true),
            (r#"{"tie_word_embeddings": false}"#, false),
            (r#"{"tie_word_embeddings": true, "scale_decoder_outputs": false}"#, false),
        ] {
            let umt5 = read(T5Family::Umt5, text);
            assert_eq!(umt5.scales_decoder_outputs(), scales, "{text}");
            assert!(umt5.tie_word_embeddings);
            // What is written is read alike.
            let mut untied = umt5.clone();
            untied.untie();
            for config in [umt5, untied] {
                let again = read(T5Family::Umt5, &config.to_json().to_string());
                assert_eq!(again.scales_decoder_outputs(), scales, "{text}");
            }
        }
        assert_eq!((mt5.biased_layers(3), read(T5Family::Umt5, "{}").biased_layers(3)), (1, 3));
        assert_eq!(T5Family::named("umt5"), Some(T5Family::Umt5));
        assert_eq!(T5Family::named("longt5"), None);
    }

    #[test]
    fn only_an_untied_head_is_left_unscaled() {
        assert!(T5Config::default().scales_decoder_outputs());
        let untied = T5Config { tie_word_embeddings: false, ..T5Config::default() };
        assert!(!untied.scales_decoder_outputs());
        assert!(T5Config { scale_decoder_outputs: Some(true), ..untied }.scales_decoder_outputs());
    }
}
