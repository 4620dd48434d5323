//! The `config.json` of a BART or of another [`BartFamily`].

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Parameter, Result, SpecialTokens, TokenFields,
    json::{deserialize_id, deserialize_ids, parse, serialize_ids},
    parameters,
};

use super::model::Bart;
use crate::{architectures::wrong::wrong, decode::GenerationOptions, layers::Activation};

/// The vocabulary of a Marian whose config has none; its last token is the padding.
const MARIAN_VOCABULARY: u32 = 58101;

/// The names of the projections of attention to queries, keys and values, and of its output.
pub(crate) const PROJECTIONS: [&str; 4] = ["q_proj", "k_proj", "v_proj", "out_proj"];

/// The models of BART's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BartFamily {
    /// BART (Lewis et al. 2020): norms after each part.
    #[default]
    Bart,
    /// mBART (Liu et al. 2020): norms before each part and at the end of a stack. A decoder begins with the code of a language.
    Mbart,
    /// Pegasus (Zhang et al. 2020): mBART's norms, but none of the embeddings, and sinusoidal positions.
    Pegasus,
    /// Marian (Junczys-Dowmunt et al. 2018), as Opus-MT's models have it: BART's norms, but none of the embeddings, and
    /// sinusoidal positions. The decoder begins with the padding token, which is never generated.
    Marian,
    /// M2M100 (Fan et al. 2020) and NLLB: mBART's norms, but none of the embeddings, and sinusoidal positions that count the
    /// tokens which are no padding. The first token of a decoder's output is the code of a language.
    M2m100,
    /// Blenderbot (Roller et al. 2020): mBART's norms, but none of the embeddings, and learned positions.
    Blenderbot,
    /// Blenderbot of 90 million parameters: BART's norms. The decoder normalises the embeddings of tokens without a factor, and
    /// adds positions afterwards.
    BlenderbotSmall,
    /// PLBART (Ahmad et al. 2021), which is BART for programs.
    PlBart,
    /// MVP (Tang et al. 2023) without prompts, which is BART.
    Mvp,
    /// Pegasus with BigBird's attention (Zaheer et al. 2020): mBART's norms, but none of the embeddings, and learned positions. Inputs
    /// are as long as `transformers` attends to them as a whole.
    BigBirdPegasus,
    /// LED (Beltagy et al. 2020): BART whose encoder attends to a window. No token attends to everything, as in
    /// `transformers` without a mask that says so.
    Led,
}

/// How a family adds positions to embeddings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PositionKind {
    /// A vector is learned for each. The first rows of the table, as many as `offset`, belong to none.
    Learned {
        /// The row of an input's first position.
        offset: usize,
    },
    /// They are sinusoids.
    Sinusoids,
    /// They are sinusoids of the number of tokens that are no padding, counted from after the padding token's id. Padding has
    /// none.
    CountedSinusoids,
}

impl BartFamily {
    const ALL: [Self; 11] = [
        Self::Bart,
        Self::Mbart,
        Self::Pegasus,
        Self::Marian,
        Self::M2m100,
        Self::Blenderbot,
        Self::BlenderbotSmall,
        Self::PlBart,
        Self::Mvp,
        Self::BigBirdPegasus,
        Self::Led,
    ];

    /// The `model_type` of a `config.json`.
    #[must_use]
    pub fn model_type(self) -> &'static str {
        match self {
            Self::Bart => "bart",
            Self::Mbart => "mbart",
            Self::Pegasus => "pegasus",
            Self::Marian => "marian",
            Self::M2m100 => "m2m_100",
            Self::Blenderbot => "blenderbot",
            Self::BlenderbotSmall => "blenderbot-small",
            Self::PlBart => "plbart",
            Self::Mvp => "mvp",
            Self::BigBirdPegasus => "bigbird_pegasus",
            Self::Led => "led",
        }
    }

    /// The family with this `model_type`.
    #[must_use]
    pub fn named(model_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|family| family.model_type() == model_type)
    }

    /// Whether normalisation comes before each part and at the end of a stack.
    fn normalises_before(self) -> bool {
        matches!(self, Self::Mbart | Self::Pegasus | Self::M2m100 | Self::Blenderbot | Self::BigBirdPegasus)
    }

    /// Whether embeddings are normalised. The config of a BART can say otherwise.
    fn normalises_embeddings(self) -> bool {
        use BartFamily::{Bart, BlenderbotSmall, Led, Mbart, Mvp, PlBart};
        matches!(self, Bart | Mbart | BlenderbotSmall | PlBart | Mvp | Led)
    }

    /// How positions are added to embeddings.
    pub(crate) fn positions(self) -> PositionKind {
        match self {
            Self::Bart | Self::Mbart | Self::PlBart | Self::Mvp => PositionKind::Learned { offset: 2 },
            Self::Blenderbot | Self::BlenderbotSmall | Self::BigBirdPegasus | Self::Led => {
                PositionKind::Learned { offset: 0 }
            }
            Self::Pegasus | Self::Marian => PositionKind::Sinusoids,
            Self::M2m100 => PositionKind::CountedSinusoids,
        }
    }

    /// Everything but the head is under it.
    pub(crate) fn body(self) -> &'static str {
        if self == Self::Led { "led" } else { "model" }
    }

    /// Whether a number is added to the logit of each token.
    pub(crate) fn has_logits_bias(self) -> bool {
        self != Self::M2m100
    }

    /// Whether a decoder normalises the embeddings of tokens as the table has them, and adds positions afterwards.
    pub(crate) fn norms_bare_tokens(self) -> bool {
        self == Self::BlenderbotSmall
    }

    /// The names of the projections of a stack's attention to itself, of queries, keys and values and then of its output.
    pub(crate) fn own_projections(self, is_decoder: bool) -> [&'static str; 4] {
        match self {
            Self::BigBirdPegasus if !is_decoder => ["self.query", "self.key", "self.value", "output"],
            Self::Led if !is_decoder => [
                "longformer_self_attn.query",
                "longformer_self_attn.key",
                "longformer_self_attn.value",
                "output",
            ],
            _ => PROJECTIONS,
        }
    }

    /// The name of the norm at the end of a stack.
    pub(crate) fn final_norm(self) -> &'static str {
        if self == Self::BigBirdPegasus { "layernorm_embedding" } else { "layer_norm" }
    }

    /// The defaults of `transformers` that differ from BART's.
    fn defaults(self) -> Value {
        match self {
            Self::Bart | Self::Mbart => json!({}),
            Self::Mvp => json!({ "vocab_size": 50_267, "forced_eos_token_id": null }),
            Self::Led => json!({
                "max_encoder_position_embeddings": 16_384, "max_decoder_position_embeddings": 1024,
                "attention_window": 512, "forced_eos_token_id": null,
            }),
            Self::PlBart => json!({
                "vocab_size": 50_005, "d_model": 768, "encoder_layers": 6, "encoder_ffn_dim": 3072,
                "encoder_attention_heads": 12, "decoder_layers": 6, "decoder_ffn_dim": 3072,
                "decoder_attention_heads": 12, "attention_dropout": 0.1, "scale_embedding": true,
            }),
            Self::BigBirdPegasus => json!({
                "vocab_size": 96_103, "max_position_embeddings": 4096, "encoder_layers": 16, "decoder_layers": 16,
                "activation_function": "gelu_new", "scale_embedding": true, "pad_token_id": 0, "bos_token_id": 2,
                "eos_token_id": 1, "forced_eos_token_id": null, "attention_type": "block_sparse", "block_size": 64,
                "num_random_blocks": 3, "use_bias": false,
            }),
            Self::Pegasus => json!({
                "pad_token_id": 0, "bos_token_id": null, "eos_token_id": 1, "decoder_start_token_id": 0,
                "forced_eos_token_id": 1,
            }),
            Self::Marian => json!({
                "vocab_size": MARIAN_VOCABULARY, "pad_token_id": MARIAN_VOCABULARY - 1, "bos_token_id": null,
                "eos_token_id": 0, "decoder_start_token_id": MARIAN_VOCABULARY - 1, "forced_eos_token_id": 0,
            }),
            Self::M2m100 => json!({
                "vocab_size": 128_112, "activation_function": "relu", "attention_dropout": 0.1,
                "encoder_layerdrop": 0.05, "decoder_layerdrop": 0.05, "scale_embedding": true,
                "decoder_start_token_id": 2, "forced_eos_token_id": null,
            }),
            Self::Blenderbot => json!({
                "vocab_size": 8008, "max_position_embeddings": 128, "d_model": 2560, "encoder_layers": 2,
                "encoder_ffn_dim": 10240, "encoder_attention_heads": 32, "decoder_layers": 24,
                "decoder_ffn_dim": 10240, "decoder_attention_heads": 32, "pad_token_id": 0, "bos_token_id": 1,
                "decoder_start_token_id": 1,
            }),
            Self::BlenderbotSmall => json!({
                "max_position_embeddings": 512, "d_model": 512, "encoder_layers": 8, "encoder_ffn_dim": 2048,
                "decoder_layers": 8, "decoder_ffn_dim": 2048, "pad_token_id": 0, "bos_token_id": 1,
                "decoder_start_token_id": 1,
            }),
        }
    }
}

/// The fields of a BART `config.json`, with the defaults of `transformers`. Layer dropout is not supported in
/// training and is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BartConfig {
    /// The model's family.
    #[serde(skip)]
    pub family: BartFamily,
    /// The number of logits and of embeddings.
    pub vocab_size: usize,
    /// The most tokens of an input and of an output.
    pub max_position_embeddings: usize,
    /// The width of the hidden states.
    pub d_model: usize,
    /// The number of encoder layers.
    pub encoder_layers: usize,
    /// The inner width of the encoder's feed-forward part.
    pub encoder_ffn_dim: usize,
    /// The number of attention heads in the encoder.
    pub encoder_attention_heads: usize,
    /// The number of decoder layers.
    pub decoder_layers: usize,
    /// The inner width of the decoder's feed-forward part.
    pub decoder_ffn_dim: usize,
    /// The number of attention heads in the decoder.
    pub decoder_attention_heads: usize,
    /// The rate at which whole encoder layers are left out in training; only 0 is supported.
    pub encoder_layerdrop: f64,
    /// The rate at which whole decoder layers are left out in training; only 0 is supported.
    pub decoder_layerdrop: f64,
    /// The activation of the feed-forward part.
    pub activation_function: String,
    /// The dropout rate of embeddings and of each sublayer\'s output, in training.
    pub dropout: f64,
    /// The dropout rate of attention weights, in training.
    pub attention_dropout: f64,
    /// The dropout rate inside the feed-forward part, in training.
    pub activation_dropout: f64,
    /// The standard deviation of fresh weights.
    pub init_std: f64,
    /// Whether token embeddings are multiplied by the root of the width.
    pub scale_embedding: bool,
    /// Whether the sum of token and position embeddings is normalised, as it always is in a released BART. `transformers` had
    /// this field once; models of Marian and ParlAI have no such norm.
    pub normalize_embedding: bool,
    /// Whether normalisation comes before each part and at the end of a stack: in mBART and Pegasus, and not in BART.
    pub normalize_before: bool,
    /// Whether the projections of attention have a bias (BigBird-Pegasus); they have in other families.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_bias: Option<bool>,
    /// How the encoder attends (BigBird-Pegasus): `original_full`, or `block_sparse` for inputs that are longer than the blocks that a
    /// token would attend to, which are not supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_type: Option<String>,
    /// The tokens of a block (BigBird-Pegasus).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_size: Option<usize>,
    /// The blocks that a token attends to by chance (BigBird-Pegasus).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_random_blocks: Option<usize>,
    /// The most tokens of an input (LED).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_encoder_position_embeddings: Option<usize>,
    /// The most tokens of an output (LED).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_decoder_position_embeddings: Option<usize>,
    /// The tokens that an encoder layer attends to, half of them on either side, beside the own one (LED): one number for all
    /// layers, or one for each.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "deserialize_windows",
        serialize_with = "serialize_windows"
    )]
    pub attention_window: Option<Vec<usize>>,
    /// Whether the head is the embedding table.
    pub tie_word_embeddings: bool,
    /// The padding token.
    #[serde(deserialize_with = "padding")]
    pub pad_token_id: u32,
    /// The token that begins an input.
    #[serde(deserialize_with = "deserialize_id")]
    pub bos_token_id: Option<u32>,
    /// The end token or tokens.
    #[serde(deserialize_with = "deserialize_ids", serialize_with = "serialize_ids")]
    pub eos_token_id: Vec<u32>,
    /// The decoder's first token.
    #[serde(deserialize_with = "start")]
    pub decoder_start_token_id: u32,
    /// The token at the last position of a sequence that does not end before it.
    pub forced_eos_token_id: Option<u32>,
}

/// A model without a padding token pads with the usual one, which is never attended to.
fn padding<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(deserialize_id(deserializer)?.unwrap_or(1))
}

fn start<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(deserialize_id(deserializer)?.unwrap_or(2))
}

/// A number, or a list of numbers.
pub(crate) fn deserialize_windows<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<usize>>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Null => None,
        many @ Value::Array(_) => Some(Vec::deserialize(many).map_err(D::Error::custom)?),
        one => Some(vec![usize::deserialize(one).map_err(D::Error::custom)?]),
    })
}

pub(crate) fn serialize_windows<S: Serializer>(
    windows: &Option<Vec<usize>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match windows.as_deref() {
        Some([one]) => one.serialize(serializer),
        windows => windows.serialize(serializer),
    }
}

impl Default for BartConfig {
    fn default() -> Self {
        Self {
            family: BartFamily::Bart,
            vocab_size: 50265,
            max_position_embeddings: 1024,
            d_model: 1024,
            encoder_layers: 12,
            encoder_ffn_dim: 4096,
            encoder_attention_heads: 16,
            decoder_layers: 12,
            decoder_ffn_dim: 4096,
            decoder_attention_heads: 16,
            encoder_layerdrop: 0.0,
            decoder_layerdrop: 0.0,
            activation_function: "gelu".into(),
            dropout: 0.1,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            init_std: 0.02,
            scale_embedding: false,
            normalize_embedding: true,
            normalize_before: false,
            use_bias: None,
            attention_type: None,
            block_size: None,
            num_random_blocks: None,
            max_encoder_position_embeddings: None,
            max_decoder_position_embeddings: None,
            attention_window: None,
            tie_word_embeddings: true,
            pad_token_id: 1,
            bos_token_id: Some(0),
            eos_token_id: vec![2],
            decoder_start_token_id: 2,
            forced_eos_token_id: Some(2),
        }
    }
}

impl BartConfig {
    /// Reads the text of a `config.json` of a family; `path` names it in errors. The places of norms are those of the family,
    /// whatever the config of another family than BART says, as in `transformers`.
    ///
    /// # Errors
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type, and
    /// [`Error::Config`](sporran_checkpoint::Error::Config) for a Marian whose encoder and decoder have embeddings of their own.
    pub fn from_json(family: BartFamily, path: &Path, text: &str) -> Result<Self> {
        if family == BartFamily::Bart {
            return parse(path, text);
        }
        let mut fields: Map<String, Value> = parse(path, text)?;
        for (of, field, only) in [
            (BartFamily::Marian, "share_encoder_decoder_embeddings", true),
            (BartFamily::Mvp, "use_prompt", false),
        ] {
            if family == of && fields.get(field) == Some(&json!(!only)) {
                return Err(wrong(field, &only.to_string(), &(!only).to_string()).within(path));
            }
        }
        if let Value::Object(defaults) = family.defaults() {
            for (name, value) in defaults {
                fields.entry(name).or_insert(value);
            }
        }
        let no_start = fields.get("decoder_start_token_id").is_none_or(Value::is_null);
        let read: Self = parse(path, &Value::Object(fields).to_string())?;
        let decoder_start_token_id = match read.bos_token_id {
            Some(begin) if no_start => begin,
            _ => read.decoder_start_token_id,
        };
        Ok(Self {
            family,
            normalize_before: family.normalises_before(),
            normalize_embedding: family.normalises_embeddings(),
            scale_embedding: read.scale_embedding && family != BartFamily::Led,
            decoder_start_token_id,
            ..read
        })
    }

    /// The special tokens that the config names.
    #[must_use]
    pub fn special_tokens(&self) -> SpecialTokens {
        SpecialTokens {
            pad: self.pad_token_id,
            eos: self.eos_token_id.clone(),
            bos: self.bos_token_id,
            decoder_start: self.decoder_start_token_id,
        }
    }

    /// The generation options of the architecture, for a folder without a `generation_config.json`.
    pub(crate) fn generation_defaults(&self) -> GenerationOptions {
        GenerationOptions {
            forced_eos_token_id: self.forced_eos_token_id,
            bad_words_ids: (self.family == BartFamily::Marian).then(|| vec![vec![self.pad_token_id]]),
            encoder_no_repeat_ngram_size: (self.family == BartFamily::Blenderbot).then_some(3),
            ..GenerationOptions::default()
        }
    }

    /// Whether the projections of attention have a bias.
    pub(crate) fn attention_has_bias(&self) -> bool {
        self.family != BartFamily::BigBirdPegasus || self.use_bias == Some(true)
    }

    /// The number of positions of the encoder or of the decoder.
    pub(crate) fn positions(&self, is_decoder: bool) -> usize {
        let own = match is_decoder {
            true => self.max_decoder_position_embeddings,
            false => self.max_encoder_position_embeddings,
        };
        own.filter(|_| self.family == BartFamily::Led).unwrap_or(self.max_position_embeddings)
    }

    /// For each encoder layer, the tokens that it attends to on either side; none where it attends to all.
    pub(crate) fn windows(&self) -> Vec<usize> {
        match self.attention_window.as_deref() {
            Some(windows) if self.family == BartFamily::Led => {
                let of = |layer: usize| windows.get(layer).or(windows.last()).map_or(0, |window| window / 2);
                (0..self.encoder_layers).map(of).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The most tokens of an input.
    pub(crate) fn most_input(&self) -> usize {
        let positions = self.positions(false);
        match (self.attention_type.as_deref(), self.block_size, self.num_random_blocks) {
            (Some("block_sparse"), Some(size), Some(random)) if self.family == BartFamily::BigBirdPegasus => {
                random.saturating_mul(2).saturating_add(5).saturating_mul(size).min(positions)
            }
            _ => positions,
        }
    }

    pub(crate) fn activation(&self) -> Result<Activation> {
        Activation::named(&self.activation_function)
            .ok_or_else(|| wrong("activation_function", "a known activation", &self.activation_function))
    }

    /// Whether the config can be trained as it says.
    pub(crate) fn validate_training(&self) -> Result<()> {
        if self.family == BartFamily::Marian {
            // A Marian's targets are split by a vocabulary file of their own.
            let found = format!("`{}`", self.family.model_type());
            return Err(wrong("model_type", &format!("another than {found} in training"), &found));
        }
        for (field, rate) in
            [("encoder_layerdrop", self.encoder_layerdrop), ("decoder_layerdrop", self.decoder_layerdrop)]
        {
            if rate != 0.0 {
                return Err(wrong(field, "0 in training", &rate.to_string()));
            }
        }
        Ok(())
    }
}

impl Architecture for BartConfig {
    fn model_type(&self) -> &'static str {
        self.family.model_type()
    }

    fn class(&self) -> &'static str {
        match self.family {
            BartFamily::Bart => "BartForConditionalGeneration",
            BartFamily::Mbart => "MBartForConditionalGeneration",
            BartFamily::Pegasus => "PegasusForConditionalGeneration",
            BartFamily::Marian => "MarianMTModel",
            BartFamily::M2m100 => "M2M100ForConditionalGeneration",
            BartFamily::Blenderbot => "BlenderbotForConditionalGeneration",
            BartFamily::BlenderbotSmall => "BlenderbotSmallForConditionalGeneration",
            BartFamily::PlBart => "PLBartForConditionalGeneration",
            BartFamily::Mvp => "MvpForConditionalGeneration",
            BartFamily::BigBirdPegasus => "BigBirdPegasusForConditionalGeneration",
            BartFamily::Led => "LEDForConditionalGeneration",
        }
    }

    /// Checks constraints beyond the types: sizes that must not be zero, heads that divide the width, rates, and what is
    /// not supported.
    fn validate(&self) -> Result<()> {
        for (field, size) in [
            ("vocab_size", self.vocab_size),
            ("max_position_embeddings", self.max_position_embeddings),
            ("max_encoder_position_embeddings", self.positions(false)),
            ("max_decoder_position_embeddings", self.positions(true)),
            ("d_model", self.d_model),
            ("encoder_layers", self.encoder_layers),
            ("encoder_ffn_dim", self.encoder_ffn_dim),
            ("decoder_layers", self.decoder_layers),
            ("decoder_ffn_dim", self.decoder_ffn_dim),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        for (field, heads) in [
            ("encoder_attention_heads", self.encoder_attention_heads),
            ("decoder_attention_heads", self.decoder_attention_heads),
        ] {
            if heads == 0 || !self.d_model.is_multiple_of(heads) {
                let expected = format!("a divisor of d_model, {}", self.d_model);
                return Err(wrong(field, &expected, &heads.to_string()));
            }
        }
        for (field, rate) in [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("activation_dropout", self.activation_dropout),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return Err(wrong(field, "from 0 to below 1", &rate.to_string()));
            }
        }
        if let Some(windows) = self.attention_window.as_ref().filter(|_| self.family == BartFamily::Led) {
            if windows.len() != 1 && windows.len() != self.encoder_layers {
                let expected = format!("a number, or one for each of {} layers", self.encoder_layers);
                return Err(wrong("attention_window", &expected, &windows.len().to_string()));
            }
            if let Some(odd) = windows.iter().find(|window| **window == 0 || !window.is_multiple_of(2)) {
                return Err(wrong("attention_window", "an even number above 0", &odd.to_string()));
            }
        }
        let known = ["original_full", "block_sparse"];
        if let Some(other) = self.attention_type.as_deref().filter(|kind| !known.contains(kind)) {
            return Err(wrong("attention_type", "`original_full` or `block_sparse`", &format!("`{other}`")));
        }
        if self.most_input() == 0 {
            return Err(wrong("block_size", "at least 1", "0"));
        }
        if self.normalize_before && !self.family.normalises_before() {
            return Err(wrong("normalize_before", "false", "true"));
        }
        if self.family == BartFamily::M2m100 && self.d_model < 4 {
            return Err(wrong(
                "d_model",
                "at least 4, for sinusoids of two frequencies",
                &self.d_model.to_string(),
            ));
        }
        self.activation().map(|_| ())
    }

    fn layers(&self) -> Vec<(&'static str, usize)> {
        vec![("encoder_layers", self.encoder_layers), ("decoder_layers", self.decoder_layers)]
    }

    fn fields(&self) -> Value {
        let mut value = json!(self);
        if let Value::Object(fields) = &mut value {
            fields.insert("is_encoder_decoder".into(), json!(true));
            if self.family == BartFamily::Led {
                fields.remove("max_position_embeddings");
            }
        }
        value
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| Bart::new(self, vb))
    }

    fn canonical(&self, stored: &str) -> String {
        // Some checkpoints leave the name of the body out.
        let body = self.family.body();
        let inner = stored.strip_prefix(body).and_then(|inner| inner.strip_prefix('.'));
        let whole = inner.is_some() || matches!(stored, "lm_head.weight" | "final_logits_bias");
        if whole { stored.into() } else { format!("{body}.{stored}") }
    }

    fn embedding(&self) -> Option<Embedding> {
        let (name, others): (_, &[&str]) = match self.family {
            BartFamily::Led => {
                ("led.shared.weight", &["led.encoder.embed_tokens.weight", "led.decoder.embed_tokens.weight"])
            }
            _ => (
                "model.shared.weight",
                &["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"],
            ),
        };
        Some(Embedding { name, others, tied_head: self.tie_word_embeddings.then_some("lm_head.weight") })
    }

    fn untie(&mut self) {
        self.tie_word_embeddings = false;
    }

    fn is_optional(&self, name: &str) -> bool {
        name == "final_logits_bias" && self.family.has_logits_bias()
    }

    fn is_ignorable(&self, name: &str) -> bool {
        // Sinusoids are computed, whether a checkpoint has them or not.
        let is_table = name.contains("coder.embed_positions.weight");
        matches!(name, "model.encoder.version" | "model.decoder.version")
            // Those of tokens that attend to everything, of which there are none.
            || (self.family == BartFamily::Led && name.contains("_global."))
            || (is_table && !matches!(self.family.positions(), PositionKind::Learned { .. }))
    }

    fn default_tokens(&self) -> Option<TokenFields> {
        let (pad, start) = (Some(self.pad_token_id), Some(self.decoder_start_token_id));
        let end = match self.family {
            BartFamily::BigBirdPegasus | BartFamily::Pegasus => 1,
            BartFamily::Marian => 0,
            _ => 2,
        };
        Some(TokenFields::defaults(pad, Some(end), self.bos_token_id, start))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{BartConfig, BartFamily};
    use crate::layers::Activation;
    use sporran_checkpoint::Architecture;

    #[test]
    fn gelu_is_the_error_function() {
        assert_eq!(BartConfig::default().activation().unwrap(), Activation::Gelu);
        let unknown = BartConfig { activation_function: "prelu".into(), ..BartConfig::default() };
        assert!(unknown.validate().unwrap_err().to_string().contains("`activation_function`"));
    }

    #[test]
    fn heads_must_divide_the_width() {
        let config = BartConfig { decoder_attention_heads: 3, ..BartConfig::default() };
        let error = config.validate().unwrap_err().to_string();
        assert!(error.ends_with("expected a divisor of d_model, 1024, found 3"), "{error}");
        assert!(BartConfig::default().validate().is_ok());
    }

    #[test]
    fn families_have_their_tokens_and_norms() {
        let read =
            |family, text: &str| BartConfig::from_json(family, Path::new("config.json"), text).unwrap();
        let mbart = read(BartFamily::Mbart, r#"{"normalize_before": false, "decoder_start_token_id": null}"#);
        assert!(mbart.normalize_before && mbart.normalize_embedding && mbart.validate().is_ok());
        // Without a start token the decoder begins with the token that begins a sequence.
        assert_eq!((mbart.decoder_start_token_id, mbart.forced_eos_token_id), (0, Some(2)));
        assert_eq!(read(BartFamily::Mbart, r#"{"decoder_start_token_id": 9}"#).decoder_start_token_id, 9);
        let pegasus = read(BartFamily::Pegasus, r#"{"normalize_embedding": true}"#);
        assert!(pegasus.normalize_before && !pegasus.normalize_embedding);
        let tokens = pegasus.special_tokens();
        assert_eq!((tokens.pad, tokens.bos, tokens.decoder_start), (0, None, 0));
        assert_eq!((tokens.eos, pegasus.forced_eos_token_id), (vec![1], Some(1)));
        let marian = read(BartFamily::Marian, r#"{"normalize_before": true, "normalize_embedding": true}"#);
        assert!(!marian.normalize_before && !marian.normalize_embedding);
        let tokens = marian.special_tokens();
        assert_eq!((tokens.pad, tokens.decoder_start, tokens.eos, tokens.bos), (58100, 58100, vec![0], None));
        assert_eq!(marian.generation_defaults().bad_words_ids, Some(vec![vec![58100]]));
        assert!(marian.validate().is_ok());
        assert!(marian.validate_training().unwrap_err().to_string().contains("found `marian`"));
        let m2m100 = read(BartFamily::M2m100, "{}");
        assert!(m2m100.normalize_before && !m2m100.normalize_embedding && m2m100.validate().is_ok());
        let tokens = m2m100.special_tokens();
        assert_eq!((tokens.pad, tokens.bos, tokens.decoder_start, tokens.eos), (1, Some(0), 2, vec![2]));
        assert_eq!((m2m100.forced_eos_token_id, m2m100.vocab_size), (None, 128_112));
        assert!(m2m100.validate_training().unwrap_err().to_string().contains("field `encoder_layerdrop`"));
        let blenderbot = read(BartFamily::Blenderbot, "{}");
        assert!(blenderbot.normalize_before && !blenderbot.normalize_embedding);
        let tokens = blenderbot.special_tokens();
        assert_eq!((tokens.pad, tokens.bos, tokens.decoder_start, tokens.eos), (0, Some(1), 1, vec![2]));
        assert_eq!((blenderbot.d_model, blenderbot.forced_eos_token_id), (2560, Some(2)));
        let small = read(BartFamily::BlenderbotSmall, r#"{"normalize_before": true}"#);
        assert!(!small.normalize_before && small.normalize_embedding && small.validate().is_ok());
        assert_eq!((small.d_model, small.max_position_embeddings), (512, 512));
        let led = read(BartFamily::Led, r#"{"encoder_layers": 2, "attention_window": [8, 4]}"#);
        assert_eq!((led.windows(), led.positions(false), led.positions(true)), (vec![4, 2], 16_384, 1024));
        assert_eq!(read(BartFamily::Led, r#"{"encoder_layers": 3}"#).windows(), [256; 3]);
        for window in ["[8]", "[8, 8, 8]", "7", "0", "[]"] {
            let text = format!(r#"{{"encoder_layers": 2, "attention_window": {window}}}"#);
            let checked = read(BartFamily::Led, &text).validate();
            assert_eq!(checked.is_ok(), window == "[8]", "{window}");
        }
        for config in [mbart, pegasus, marian, m2m100, blenderbot, small, led] {
            assert_eq!(read(config.family, &config.to_json().to_string()), config);
        }
        assert_eq!(BartFamily::named("marian"), Some(BartFamily::Marian));
        assert_eq!(BartFamily::named("longt5"), None);
    }

    #[test]
    fn two_embedding_tables_and_prompts_are_refused_by_the_field() {
        let refused = |family, text: &str| {
            BartConfig::from_json(family, Path::new("a/config.json"), text).unwrap_err().to_string()
        };
        let error = refused(BartFamily::Marian, r#"{"share_encoder_decoder_embeddings": false}"#);
        let expected = "a/config.json: field `share_encoder_decoder_embeddings`: expected true, found false";
        assert_eq!(error, expected);
        let error = refused(BartFamily::Mvp, r#"{"use_prompt": true}"#);
        assert_eq!(error, "a/config.json: field `use_prompt`: expected false, found true");
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        assert!(BartConfig { normalize_before: true, ..BartConfig::default() }.validate().is_err());
        // Layer dropout only matters in training.
        let dropped = BartConfig { decoder_layerdrop: 0.1, ..BartConfig::default() };
        assert!(dropped.validate().is_ok() && dropped.validate_training().is_err());
    }
}
