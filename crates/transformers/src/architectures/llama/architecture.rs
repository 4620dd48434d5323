//! What opening a folder needs to know of a model of LLaMA's shape.

use std::path::Path;

use candle_nn::VarBuilder;
use serde_json::{Value, json};
use sporran_checkpoint::{
    Architecture, Embedding, Parameter, Result, SpecialTokens, TokenFields, json::parse, parameters,
};

use super::{config::LlamaConfig, kind::LlamaKind, model::Llama, names::EXPERTS_TOGETHER};
use crate::architectures::{bert::Head, decoder::DecoderHead};

impl LlamaConfig {
    /// The head of the model as an encoder.
    pub(crate) fn encoder_head(&self, vb: &VarBuilder) -> Result<Head> {
        let classes = self.kind.encoder_classes();
        let rates = (self.initializer_range, self.label_dropout());
        self.head.of_encoder(classes, self.embedding_width(), self.pad_token_id, rates, vb)
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
    /// [`Error::Json`](sporran_checkpoint::Error::Json) where a field has the wrong type, and
    /// [`Error::Config`](sporran_checkpoint::Error::Config) for a number of labels that no model has.
    pub fn from_json(kind: LlamaKind, path: &Path, text: &str) -> Result<Self> {
        let head = match kind.encoder_classes() {
            Some(classes) => DecoderHead::of_classes(classes, path, text)?,
            None => DecoderHead::of(path, text, kind.class_of_labels())?,
        };
        let text = &*kind.by_new_fields(path, text)?;
        let defaults = kind.defaults();
        let read: Self = if defaults == Self::default() {
            parse(path, text)?
        } else {
            // A field that is null is set.
            let given = kind.renamed(parse(path, text)?);
            let mut fields = json!(defaults);
            if let Value::Object(fields) = &mut fields {
                fields.extend(given.clone());
                kind.set_inner_width(&given, fields);
            }
            parse(path, &fields.to_string()).map_err(|error| kind.with_own_field(error))?
        };
        // A model whose tokens see later ones cannot continue a text.
        let head = if read.is_bidirectional() && head.is_language_model() { DecoderHead::None } else { head };
        let mut config = Self { kind, head, ..read };
        if let Some(attention) = config.attn_config.as_mut().filter(|_| kind == LlamaKind::Mpt) {
            // `transformers` does not read it.
            attention.alibi_bias_max = None;
        }
        Ok(config)
    }
}

impl LlamaConfig {
    /// Whether a tensor is one of the layers that guess tokens after the next one, which DeepSeek and others store after those of
    /// the model.
    fn is_of_later_tokens(&self, name: &str) -> bool {
        let has_such = self.kind.is_latent()
            || self.kind.has_delta_rule()
            || matches!(self.kind, LlamaKind::Ernie45Moe | LlamaKind::Glm4Moe);
        let layer = name.strip_prefix("model.layers.").and_then(|end| end.split('.').next());
        let is_later = layer
            .and_then(|layer| layer.parse::<usize>().ok())
            .is_some_and(|layer| layer >= self.num_hidden_layers);
        has_such && (is_later || name.contains("mtp"))
    }
}

impl Architecture for LlamaConfig {
    fn model_type(&self) -> &'static str {
        self.kind.model_type()
    }

    fn class(&self) -> &'static str {
        match (&self.head, self.kind.encoder_classes()) {
            (DecoderHead::PooledLabels(..), Some(classes)) => classes.labels[0],
            (DecoderHead::TokenLabels(_), Some(classes)) => classes.labels[1],
            (_, Some(classes)) => classes.body,
            (DecoderHead::Labels(_), None) => self.kind.class_of_labels(),
            (_, None) => self.kind.class(),
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
            if self.head_dim.is_none() && self.kind.defaults().head_dim.is_none() {
                // `transformers` would take null for the width of a head.
                fields.remove("head_dim");
            }
            for (own, here) in self.kind.field_names() {
                if let Some(value) = fields.remove(*here) {
                    fields.insert((*own).into(), value);
                }
            }
            self.head.write(self.kind.encoder_classes(), fields);
        }
        fields
    }

    fn parameters(&self) -> Result<Vec<Parameter>> {
        parameters(|vb| Ok((Llama::new(self, vb)?, self.encoder_head(vb)?)))
    }

    fn adapt_to_weights(&mut self, has: &dyn Fn(&str) -> bool) -> bool {
        let head = format!("{}.", self.kind.names().head);
        let has_changed = self.head.drop_missing(self.tie_word_embeddings, &|_| has(&head));
        let first = (0..self.num_hidden_layers).find(|layer| self.experts(*layer).is_some());
        self.experts_are_together = self.kind.may_have_experts_together()
            && first.is_some_and(|layer| has(&format!("model.layers.{layer}.{}", EXPERTS_TOGETHER[0])));
        has_changed || self.experts_are_together
    }

    fn embedding(&self) -> Option<Embedding> {
        let is_tied = self.tie_word_embeddings && self.head.is_language_model();
        let names = self.kind.names();
        let head = match names.head {
            "embed_out" => "embed_out.weight",
            "output_projection" => "output_projection.weight",
            _ => "lm_head.weight",
        };
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
        if let Some(inner) = stored.strip_prefix("ultrabert.").filter(|_| self.kind == LlamaKind::UltraBert) {
            return format!("model.{inner}");
        }
        if let Some(end) = stored.strip_prefix("lm_head.") {
            return format!("{}.{end}", names.head);
        }
        if !self.kind.may_have_images() {
            return stored.into();
        }
        // A model with images has its decoder under one of these names.
        match stored.strip_prefix("model.language_model.") {
            Some(inner) => format!("model.{inner}"),
            None => stored.strip_prefix("language_model.").unwrap_or(stored).into(),
        }
    }

    fn is_ignorable(&self, name: &str) -> bool {
        const MASKS: [&str; 5] = [
            ".attention.bias",
            ".attention.masked_bias",
            ".attn.bias",
            ".attn.masked_bias",
            ".attn.causal_mask",
        ];
        // UltraBERT's head of words.
        const WORDS: [&str; 2] = ["head.", "cls."];
        // Gemma 4 has audio too.
        const IMAGES: [&str; 6] = [
            "vision_tower.",
            "multi_modal_projector.",
            "visual.",
            "embed_vision.",
            "audio_tower.",
            "embed_audio.",
        ];
        let inner = name.strip_prefix("model.").unwrap_or(name);
        let is_of_images = IMAGES.iter().any(|part| inner.starts_with(part));
        // The steps of the angles, which older versions stored.
        name.ends_with(".rotary_emb.inv_freq")
            // The masks of attention, which older versions stored.
            || MASKS.iter().any(|mask| name.ends_with(mask))
            || self.head.ignores(name)
            || (self.kind == LlamaKind::UltraBert && WORDS.iter().any(|part| name.starts_with(part)))
            || (self.kind.may_have_images() && is_of_images)
            || self.is_of_later_tokens(name)
            || self.is_of_unused_keys(name)
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

    use super::{DecoderHead, LlamaConfig, LlamaKind};
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

    #[test]
    fn a_pattern_of_layers_is_a_number_or_a_text() {
        let read = |pattern: &str| {
            let text = format!(r#"{{"sliding_window_pattern": {pattern}}}"#);
            LlamaConfig::from_json(LlamaKind::Exaone4, Path::new("config.json"), &text)
        };
        for (pattern, expected) in [("3", Some(3)), ("\"LLG\"", Some(3)), ("\"G\"", Some(1)), ("null", None)]
        {
            assert_eq!(read(pattern).unwrap().sliding_window_pattern, expected, "{pattern}");
        }
        for pattern in ["\"LLL\"", "\"LGLG\"", "\"\"", "-1"] {
            let error = read(pattern).unwrap_err();
            assert!(error.to_string().contains("field `sliding_window_pattern`"), "{error}");
        }
    }

    #[test]
    fn windows_and_angles_by_layer_are_those_by_type() {
        let read = |text: &str| {
            LlamaConfig::from_json(LlamaKind::UltraBert, Path::new("config.json"), text).unwrap()
        };
        let old = read(
            r#"{"num_hidden_layers": 3, "attention_windows": [64, 0, 64], "rope_theta": [500.0, 8000.0, 500.0]}"#,
        );
        let new = read(
            r#"{
                "num_hidden_layers": 3, "sliding_window": 64,
                "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 8000.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}
                }
            }"#,
        );
        assert_eq!(old, new);
        // All on either side, beside the own one.
        assert_eq!([0, 1, 2].map(|layer| old.window(layer)), [Some(65), None, Some(65)]);
        let usual = read(r#"{"num_hidden_layers": 3, "rope_theta": [500.0, 500.0, 8000.0]}"#);
        assert_eq!(usual.rope_parameters, new.rope_parameters);
    }

    #[test]
    fn a_model_whose_tokens_see_later_ones_has_no_head_of_words() {
        for kind in [LlamaKind::Llama, LlamaKind::Qwen2] {
            let read = LlamaConfig::from_json(kind, Path::new("config.json"), r#"{"is_causal": false}"#);
            assert_eq!(read.unwrap().head, DecoderHead::None);
        }
    }

    #[test]
    fn labels_are_read_off_states_of_the_width_of_embeddings() {
        let text = r#"{
            "architectures": ["OPTForSequenceClassification"], "num_labels": 3, "hidden_size": 24,
            "word_embed_proj_dim": 16, "num_hidden_layers": 1, "num_attention_heads": 2
        }"#;
        let config = LlamaConfig::from_json(LlamaKind::Opt, Path::new("config.json"), text).unwrap();
        let parameters = config.parameters().unwrap();
        let score = parameters.iter().find(|parameter| parameter.name == "score.weight").unwrap();
        assert_eq!(score.shape.dims(), [3, 16]);
    }
}
