//! The `config.json` of a T5 model.

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Parameter, Result, SpecialTokens, TokenFields,
    json::{deserialize_id, deserialize_ids, parse, serialize_ids},
    parameters,
};

use super::{model::T5, sizes::SwitchSizes};
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
    /// LongT5 (Guo et al. 2022), whose encoder attends to a window, and to summaries of blocks of tokens.
    LongT5,
    /// Switch Transformers (Fedus et al. 2022), some of whose layers have experts, of which a token is read by one.
    Switch,
}

impl T5Family {
    /// The `model_type` of a `config.json`.
    #[must_use]
    pub fn model_type(self) -> &'static str {
        match self {
            Self::T5 => "t5",
            Self::Mt5 => "mt5",
            Self::Umt5 => "umt5",
            Self::LongT5 => "longt5",
            Self::Switch => "switch_transformers",
        }
    }

    /// The family with this `model_type`.
    #[must_use]
    pub fn named(model_type: &str) -> Option<Self> {
        let all = [Self::T5, Self::Mt5, Self::Umt5, Self::LongT5, Self::Switch];
        all.into_iter().find(|family| family.model_type() == model_type)
    }

    /// The class of the encoder alone.
    #[must_use]
    pub fn encoder_class(self) -> &'static str {
        match self {
            Self::T5 => "T5EncoderModel",
            Self::Mt5 => "MT5EncoderModel",
            Self::Umt5 => "UMT5EncoderModel",
            Self::LongT5 => "LongT5EncoderModel",
            Self::Switch => "SwitchTransformersEncoderModel",
        }
    }
}

/// The kinds of attention of a LongT5's encoder.
const LOCAL: &str = "local";
const SUMMARISED: &str = "transient-global";
/// The norm of the summaries of blocks, in attention.
pub(crate) const SUMMARY_NORM: &str = "global_input_layer_norm";
/// The biases of the scores of summaries, in attention.
pub(crate) const SUMMARY_BIASES: &str = "global_relative_attention_bias";
/// The most experts of a layer.
const MOST_EXPERTS: usize = 1 << 12;

impl T5Family {
    /// The defaults of `transformers` that differ from T5's.
    fn defaults(self) -> Value {
        match self {
            Self::T5 => json!({}),
            Self::Mt5 | Self::Umt5 => json!({
                "vocab_size": 250_112, "d_ff": 1024, "num_layers": 8, "num_heads": 6,
                "feed_forward_proj": "gated-gelu",
            }),
            Self::LongT5 => json!({
                "local_radius": 127, "global_block_size": 16, "encoder_attention_type": LOCAL,
            }),
            Self::Switch => json!({
                "d_model": 768, "num_layers": 12, "num_decoder_layers": 12, "num_heads": 12, "dense_act_fn": "relu",
                "num_sparse_encoder_layers": 3, "num_sparse_decoder_layers": 3, "num_experts": 8,
                "expert_capacity": 64,
            }),
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
    /// The tokens that the encoder attends to on either side (LongT5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_radius: Option<usize>,
    /// The tokens of a block that has a summary (LongT5).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_block_size: Option<usize>,
    /// Whether the encoder attends to summaries too (LongT5): `local` or `transient-global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoder_attention_type: Option<String>,
    /// The activation (Switch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense_act_fn: Option<String>,
    /// The number of encoder layers with experts (Switch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_sparse_encoder_layers: Option<usize>,
    /// The number of decoder layers with experts (Switch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_sparse_decoder_layers: Option<usize>,
    /// The number of experts of a layer (Switch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_experts: Option<usize>,
    /// The most tokens of a sequence that an expert reads (Switch). The part adds nothing to the states of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expert_capacity: Option<usize>,
    /// Whether the layer that scores experts has a bias (Switch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_bias: Option<bool>,
    /// The type of the scores of experts (Switch); only `float32` is supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_dtype: Option<String>,
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
            local_radius: None,
            global_block_size: None,
            encoder_attention_type: None,
            dense_act_fn: None,
            num_sparse_encoder_layers: None,
            num_sparse_decoder_layers: None,
            num_experts: None,
            expert_capacity: None,
            router_bias: None,
            router_dtype: None,
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
    /// The heads of mT5, UMT5 and LongT5 are the embeddings unless the weights have others, whatever the config says, as in
    /// `transformers`.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type.
    pub fn from_json(family: T5Family, path: &Path, text: &str) -> Result<Self> {
        if family == T5Family::T5 {
            return parse(path, text);
        }
        let mut fields: Map<String, Value> = parse(path, text)?;
        if let Value::Object(defaults) = family.defaults() {
            for (name, value) in defaults {
                fields.entry(name).or_insert(value);
            }
        }
        let read: Self = parse(path, &Value::Object(fields).to_string())?;
        if family == T5Family::Switch {
            // The experts have no gate, whatever another field says.
            let feed_forward_proj = read.dense_act_fn.clone().unwrap_or_else(|| "relu".into());
            return Ok(Self { family, feed_forward_proj, ..read });
        }
        let scales = family != T5Family::Mt5 && read.scales_decoder_outputs();
        Ok(Self { family, tie_word_embeddings: true, scale_decoder_outputs: Some(scales), ..read })
    }

    /// The name of a stack's attention to itself.
    pub(crate) fn own_attention(&self, is_decoder: bool) -> &'static str {
        match (self.window(), self.summary_size()) {
            (Some(_), Some(_)) if !is_decoder => "TransientGlobalSelfAttention",
            (Some(_), None) if !is_decoder => "LocalSelfAttention",
            _ => "SelfAttention",
        }
    }

    /// The name of the feed-forward part.
    pub(crate) fn feed_forward_name(&self) -> &'static str {
        if self.family == T5Family::Switch { "mlp" } else { "DenseReluDense" }
    }

    /// The tokens that the encoder attends to on either side; none where it attends to all.
    pub(crate) fn window(&self) -> Option<usize> {
        self.local_radius.filter(|_| self.family == T5Family::LongT5)
    }

    /// The tokens of a block that has a summary; none where the encoder attends to tokens alone.
    pub(crate) fn summary_size(&self) -> Option<usize> {
        let has_summaries = self.encoder_attention_type.as_deref() == Some(SUMMARISED);
        self.global_block_size.filter(|_| self.family == T5Family::LongT5 && has_summaries)
    }

    /// The experts of a layer; none where every token reads its feed-forward part.
    pub(crate) fn experts(&self, layer: usize, is_decoder: bool) -> Option<SwitchSizes> {
        let (layers, sparse) = match is_decoder {
            true => (self.decoder_layers(), self.num_sparse_decoder_layers),
            false => (self.num_layers, self.num_sparse_encoder_layers),
        };
        let step = layers.checked_div(sparse.unwrap_or(0)).unwrap_or(layers);
        let is_sparse = step == 1 || (step > 0 && layer % step == 1);
        (self.family == T5Family::Switch && is_sparse).then(|| SwitchSizes {
            count: self.num_experts.unwrap_or(0),
            capacity: self.expert_capacity.unwrap_or(0),
            has_bias: self.router_bias == Some(true),
        })
    }

    /// Checks the settings of single families.
    fn check_family(&self) -> Result<()> {
        if self.family == T5Family::LongT5 {
            let kind = self.encoder_attention_type.as_deref().unwrap_or(LOCAL);
            if ![LOCAL, SUMMARISED].contains(&kind) {
                let expected = format!("`{LOCAL}` or `{SUMMARISED}`");
                return Err(wrong("encoder_attention_type", &expected, &format!("`{kind}`")));
            }
        }
        let is_switch = self.family == T5Family::Switch;
        for (field, size) in [
            ("local_radius", self.window().unwrap_or(1)),
            ("global_block_size", self.summary_size().unwrap_or(1)),
            ("num_experts", self.num_experts.filter(|_| is_switch).unwrap_or(1)),
            ("expert_capacity", self.expert_capacity.filter(|_| is_switch).unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        if let Some(count) = self.num_experts.filter(|count| is_switch && *count > MOST_EXPERTS) {
            return Err(wrong("num_experts", &format!("at most {MOST_EXPERTS}"), &count.to_string()));
        }
        match self.router_dtype.as_deref().filter(|kind| is_switch && *kind != "float32") {
            Some(other) => Err(wrong("router_dtype", "`float32`", &format!("`{other}`"))),
            None => Ok(()),
        }
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
            T5Family::LongT5 => "LongT5ForConditionalGeneration",
            T5Family::Switch => "SwitchTransformersForConditionalGeneration",
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
        self.check_family()?;
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

    use super::{super::sizes::SwitchSizes, T5Config, T5Family};
    use crate::layers::Activation;
    use sporran_checkpoint::Architecture;

    #[test]
    fn gated_gelu_is_the_tanh_approximation_and_plain_gelu_is_not() {
        let with =
            |proj: &str| T5Config { feed_forward_proj: proj.into(), ..T5Config::default() }.activation();
        assert_eq!(with("gated-gelu").unwrap(), (Activation::GeluTanh, true));
        assert_eq!(with("gelu").unwrap(), (Activation::Gelu, false));
        assert_eq!(with("relu").unwrap(), (Activation::Relu, false));
        assert!(with("gated-prelu").unwrap_err().to_string().contains("`feed_forward_proj`"));
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
        assert_eq!(T5Family::named("longt6"), None);
    }

    #[test]
    fn a_long_t5_has_a_window_and_may_have_summaries() {
        let read = |text: &str| {
            let config = T5Config::from_json(T5Family::LongT5, Path::new("config.json"), text).unwrap();
            (config.window(), config.summary_size(), config.own_attention(false), config.validate().is_ok())
        };
        assert_eq!(read("{}"), (Some(127), None, "LocalSelfAttention", true));
        let text = r#"{"encoder_attention_type": "transient-global", "local_radius": 3}"#;
        assert_eq!(read(text), (Some(3), Some(16), "TransientGlobalSelfAttention", true));
        for text in [
            r#"{"local_radius": 0}"#,
            r#"{"encoder_attention_type": "global"}"#,
            r#"{"global_block_size": 0,
                "encoder_attention_type": "transient-global"}"#,
        ] {
            assert!(!read(text).3, "{text}");
        }
    }

    #[test]
    fn every_third_layer_of_a_switch_transformer_has_experts_that_read_so_many_tokens() {
        let read =
            |text: &str| T5Config::from_json(T5Family::Switch, Path::new("config.json"), text).unwrap();
        let config =
            read(r#"{"num_layers": 6, "num_sparse_encoder_layers": 2, "num_sparse_decoder_layers": 0}"#);
        let of =
            |is_decoder| (0..6).map(|layer| config.experts(layer, is_decoder).is_some()).collect::<Vec<_>>();
        assert_eq!(of(false), [false, true, false, false, true, false]);
        // No layer of the decoder is at a multiple of all.
        assert_eq!(of(true), [false, true, false, false, false, false]);
        let sizes = SwitchSizes { count: 2, capacity: 1, has_bias: false };
        // e^0 and e^0; the first of equal scores is the best.
        let routed = sizes.route(&[0.0, 0.0, 1.0, 0.0, 0.0, 2f32.ln()]);
        assert_eq!(routed, [Some((0, 0.5)), None, Some((1, 1.0 / 1.5))]);
        for text in [r#"{"num_experts": 0}"#, r#"{"expert_capacity": 0}"#, r#"{"router_dtype": "bfloat16"}"#]
        {
            assert!(read(text).validate().is_err(), "{text}");
        }
        assert!(config.validate().is_ok() && config.scales_decoder_outputs());
    }

    #[test]
    fn only_an_untied_head_is_left_unscaled() {
        assert!(T5Config::default().scales_decoder_outputs());
        let untied = T5Config { tie_word_embeddings: false, ..T5Config::default() };
        assert!(!untied.scales_decoder_outputs());
        assert!(T5Config { scale_decoder_outputs: Some(true), ..untied }.scales_decoder_outputs());
    }
}
