//! The `config.json` of a GPT-2 model, and of the first GPT.

use std::path::Path;

use candle_nn::VarBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Parameter, Result, TokenFields,
    json::{deserialize_id, deserialize_ids, parse, serialize_ids},
    parameters,
};

use super::model::Gpt2;
use crate::{
    architectures::wrong::wrong,
    architectures::{bert::Head, decoder::DecoderHead},
    layers::Activation,
};

/// The id of `<|endoftext|>` in GPT-2's own vocabulary.
pub(super) const END_OF_TEXT: u32 = 50256;

/// The fields of a GPT-2 `config.json`, with the defaults of `transformers`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpt2Config {
    /// Whether it is the first GPT (Radford et al. 2018), which normalises the states after each part.
    #[serde(skip)]
    pub is_first: bool,
    /// The head.
    #[serde(skip)]
    pub head: DecoderHead,
    /// The number of logits and of embeddings.
    pub vocab_size: usize,
    /// The most tokens of a sequence.
    pub n_positions: usize,
    /// The width of the hidden states.
    pub n_embd: usize,
    /// The number of layers.
    pub n_layer: usize,
    /// The number of attention heads.
    pub n_head: usize,
    /// The inner width of the feed-forward part; four times the width where it is not set.
    pub n_inner: Option<usize>,
    /// The activation of the feed-forward part.
    pub activation_function: String,
    /// Added to the variance before its root is taken.
    pub layer_norm_epsilon: f64,
    /// The standard deviation of fresh weights.
    pub initializer_range: f64,
    /// The dropout rate of both parts' results in training.
    pub resid_pdrop: f64,
    /// The dropout rate of the embeddings in training.
    pub embd_pdrop: f64,
    /// The dropout rate of the attention weights in training.
    pub attn_pdrop: f64,
    /// Whether attention scores are divided by the root of a head's width.
    pub scale_attn_weights: bool,
    /// Whether attention scores are divided by the layer's number too.
    pub scale_attn_by_inverse_layer_idx: bool,
    /// Whether layers attend to an encoder; only `false` is supported.
    pub add_cross_attention: bool,
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

impl Default for Gpt2Config {
    fn default() -> Self {
        Self {
            is_first: false,
            head: DecoderHead::LanguageModel,
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: "gelu_new".into(),
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            resid_pdrop: 0.1,
            embd_pdrop: 0.1,
            attn_pdrop: 0.1,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            add_cross_attention: false,
            tie_word_embeddings: true,
            bos_token_id: Some(END_OF_TEXT),
            eos_token_id: vec![END_OF_TEXT],
            pad_token_id: None,
        }
    }
}

/// The class with a head of labels.
const CLASS_OF_LABELS: &str = "GPT2ForSequenceClassification";
/// That of the first GPT.
const FIRST_CLASS_OF_LABELS: &str = "OpenAIGPTForSequenceClassification";
/// The field of the first GPT's activation.
const FIRST_ACTIVATION: &str = "afn";
/// The first GPT calls the approximation so.
const GELU: [&str; 2] = ["gelu", "gelu_new"];

impl Gpt2Config {
    /// Reads the text of a `config.json`; `path` names it in errors.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type, and those of the head.
    pub fn from_json(path: &Path, text: &str) -> Result<Self> {
        Ok(Self { head: DecoderHead::of(path, text, CLASS_OF_LABELS)?, ..parse(path, text)? })
    }

    /// Reads the text of a `config.json` of the first GPT; `path` names it in errors.
    ///
    /// # Errors
    /// As for [`from_json`](Self::from_json).
    pub fn of_first(path: &Path, text: &str) -> Result<Self> {
        let mut fields: Map<String, Value> = parse(path, text)?;
        for (name, value) in [
            ("vocab_size", json!(40478)),
            ("n_positions", json!(512)),
            ("bos_token_id", Value::Null),
            ("eos_token_id", Value::Null),
            (FIRST_ACTIVATION, json!(GELU[0])),
        ] {
            fields.entry(name).or_insert(value);
        }
        let activation = match fields.remove(FIRST_ACTIVATION) {
            Some(name) if name == GELU[0] => json!(GELU[1]),
            name => name.unwrap_or_default(),
        };
        fields.insert("activation_function".into(), activation);
        // These are GPT-2's.
        for name in ["n_inner", "scale_attn_weights", "scale_attn_by_inverse_layer_idx"] {
            fields.remove(name);
        }
        let head = DecoderHead::of(path, text, FIRST_CLASS_OF_LABELS)?;
        let read: Self = parse(path, &Value::Object(fields).to_string())?;
        Ok(Self { is_first: true, head, ..read })
    }

    /// The names of the tables of tokens and of positions.
    pub(super) fn tables(&self) -> [&'static str; 2] {
        if self.is_first { ["tokens_embed", "positions_embed"] } else { ["wte", "wpe"] }
    }

    /// The head of the model as an encoder.
    pub(crate) fn encoder_head(&self, vb: &VarBuilder) -> Result<Head> {
        self.head.of_encoder(None, self.n_embd, self.pad_token_id, (self.initializer_range, 0.0), vb)
    }

    /// The inner width of the feed-forward part.
    #[must_use]
    pub fn inner(&self) -> usize {
        self.n_inner.unwrap_or(4 * self.n_embd)
    }

    /// The factor of the attention scores of layer `at`.
    pub(super) fn scale(&self, at: usize) -> f64 {
        let scale =
            if self.scale_attn_weights { ((self.n_embd / self.n_head) as f64).powf(-0.5) } else { 1.0 };
        if self.scale_attn_by_inverse_layer_idx { scale / (at + 1) as f64 } else { scale }
    }

    pub(super) fn activation(&self) -> Result<Activation> {
        let field = if self.is_first { FIRST_ACTIVATION } else { "activation_function" };
        Activation::named(&self.activation_function)
            .ok_or_else(|| wrong(field, "a known activation", &self.activation_function))
    }
}

impl Architecture for Gpt2Config {
    fn model_type(&self) -> &'static str {
        if self.is_first { "openai-gpt" } else { "gpt2" }
    }

    fn class(&self) -> &'static str {
        match (&self.head, self.is_first) {
            (DecoderHead::Labels(_), true) => FIRST_CLASS_OF_LABELS,
            (_, true) => "OpenAIGPTLMHeadModel",
            (DecoderHead::Labels(_), false) => CLASS_OF_LABELS,
            _ => "GPT2LMHeadModel",
        }
    }

    fn validate(&self) -> Result<()> {
        for (field, size) in [
            ("vocab_size", self.vocab_size),
            ("n_positions", self.n_positions),
            ("n_embd", self.n_embd),
            ("n_layer", self.n_layer),
            ("n_inner", self.inner()),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        if self.n_head == 0 || !self.n_embd.is_multiple_of(self.n_head) {
            let expected = format!("a divisor of n_embd, {}", self.n_embd);
            return Err(wrong("n_head", &expected, &self.n_head.to_string()));
        }
        let rates = [
            ("resid_pdrop", self.resid_pdrop),
            ("embd_pdrop", self.embd_pdrop),
            ("attn_pdrop", self.attn_pdrop),
        ];
        if let Some((field, rate)) = rates.into_iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
            return Err(wrong(field, "at least 0 and below 1", &rate.to_string()));
        }
        if self.add_cross_attention {
            return Err(wrong("add_cross_attention", "false", "true"));
        }
        self.activation().map(|_| ())
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        vec![("n_layer", self.n_layer)]
    }

    fn fields(&self) -> Value {
        let mut value = json!(self);
        if let Value::Object(fields) = &mut value {
            self.head.write(None, fields);
            if self.is_first
                && let Some(name) = fields.remove("activation_function")
            {
                let name = if name == GELU[1] { json!(GELU[0]) } else { name };
                fields.insert(FIRST_ACTIVATION.into(), name);
            }
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| Ok((Gpt2::new(self, vb)?, self.encoder_head(vb)?)))
    }

    fn adapt_to_weights(&mut self, has: &dyn Fn(&str) -> bool) -> bool {
        self.head.drop_missing(self.tie_word_embeddings, has)
    }

    fn canonical(&self, stored: &str) -> String {
        // The first checkpoints leave `transformer.` out.
        let whole = ["transformer.", "lm_head.", "score."].iter().any(|part| stored.starts_with(part));
        if whole { stored.into() } else { format!("transformer.{stored}") }
    }

    fn embedding(&self) -> Option<Embedding> {
        let is_tied = self.tie_word_embeddings && self.head.is_language_model();
        let tied_head = is_tied.then_some("lm_head.weight");
        let name = match self.is_first {
            true => "transformer.tokens_embed.weight",
            false => "transformer.wte.weight",
        };
        Some(Embedding { name, others: &[], tied_head })
    }

    fn untie(&mut self) {
        self.tie_word_embeddings = false;
    }

    fn is_ignorable(&self, name: &str) -> bool {
        // The causal mask and its mask value, which older versions stored.
        name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || self.head.ignores(name)
    }

    fn default_tokens(&self) -> Option<TokenFields> {
        let tokens = self.special_tokens();
        let (pad, start) = (self.pad_token_id, Some(tokens.decoder_start));
        let end = (!self.is_first).then_some(END_OF_TEXT);
        Some(TokenFields::defaults(pad, end, tokens.bos, start))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Gpt2Config;
    use sporran_checkpoint::Architecture;

    #[test]
    fn names_without_prefix_and_stored_masks_are_recognised() {
        let config = Gpt2Config::default();
        assert_eq!(config.canonical("h.0.attn.c_attn.bias"), "transformer.h.0.attn.c_attn.bias");
        assert_eq!(config.canonical("lm_head.weight"), "lm_head.weight");
        assert!(config.is_ignorable("transformer.h.0.attn.bias"));
        assert!(!config.is_ignorable("transformer.h.0.attn.c_attn.bias"));
    }

    #[test]
    fn the_first_gpt_has_fields_of_its_own() {
        let read = |text: &str| Gpt2Config::of_first(Path::new("config.json"), text).unwrap();
        let first = read(r#"{"n_embd": 24, "n_head": 4}"#);
        assert_eq!((first.vocab_size, first.n_positions, first.inner()), (40478, 512, 96));
        assert_eq!((first.activation_function.as_str(), &first.eos_token_id[..]), ("gelu_new", &[][..]));
        assert_eq!(first.model_type(), "openai-gpt");
        for config in [first, read(r#"{"afn": "relu"}"#)] {
            assert_eq!(read(&config.to_json().to_string()), config);
        }
        let error = read(r#"{"afn": "prelu"}"#).validate().unwrap_err().to_string();
        assert!(error.contains("field `afn`"), "{error}");
    }

    #[test]
    fn the_scale_can_depend_on_the_layer() {
        // Heads of width 64: 1 / 8, and 1 / 24 in the third layer.
        let config = Gpt2Config { scale_attn_by_inverse_layer_idx: true, ..Gpt2Config::default() };
        assert_eq!((Gpt2Config::default().scale(2), config.scale(2)), (0.125, 0.125 / 3.0));
        assert_eq!(Gpt2Config { scale_attn_weights: false, ..config }.scale(0), 1.0);
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        let error = Gpt2Config { n_head: 7, ..Gpt2Config::default() }.validate().unwrap_err().to_string();
        assert!(error.ends_with("field `n_head`: expected a divisor of n_embd, 768, found 7"), "{error}");
        assert!(Gpt2Config { add_cross_attention: true, ..Gpt2Config::default() }.validate().is_err());
        assert!(Gpt2Config { attn_pdrop: 1.0, ..Gpt2Config::default() }.validate().is_err());
        assert!(Gpt2Config::default().validate().is_ok());
    }
}
