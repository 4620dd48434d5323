//! Models with images: their parts for text, which are read without the others.

use std::path::Path;

use serde_json::{Map, Value, json};
use sporran_checkpoint::{Result, json::parse};

use super::{config::LlamaConfig, kind::LlamaKind};
use crate::architectures::wrong::wrong;

/// A part for text of a model with images.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextPart {
    /// Its `model_type`.
    model_type: &'static str,
    /// The kind that it is where there are no images.
    kind: LlamaKind,
    /// The default values that are not those of the kind.
    defaults: fn() -> Value,
    /// Whether older files have its fields beside those of the images.
    may_be_flat: bool,
    /// Whether the whole model's head is the embedding table where its config does not say it.
    is_tied: bool,
}

impl TextPart {
    /// A part that is a kind of its own.
    const fn of(kind: LlamaKind) -> Self {
        let defaults = || json!({});
        Self { model_type: kind.model_type(), kind, defaults, may_be_flat: false, is_tied: true }
    }
}

/// The part of Gemma 3.
pub(crate) const GEMMA_3: &[TextPart] = &[TextPart::of(LlamaKind::Gemma3)];
/// The part of Gemma 3n.
pub(crate) const GEMMA_3N: &[TextPart] = &[TextPart::of(LlamaKind::Gemma3n)];
/// The part of Gemma 4.
pub(crate) const GEMMA_4: &[TextPart] = &[TextPart::of(LlamaKind::Gemma4)];
/// The parts of Mistral 3. The first is that of a file that does not say it.
pub(crate) const MISTRAL_3: &[TextPart] = &[
    TextPart::of(LlamaKind::Mistral),
    TextPart::of(LlamaKind::Ministral3),
    TextPart::of(LlamaKind::Mistral4),
];
/// The part of Qwen 2 VL: in texts all positions of a token are its place.
pub(crate) const QWEN_2_VL: &[TextPart] = &[TextPart {
    model_type: "qwen2_vl_text",
    kind: LlamaKind::Qwen2,
    defaults: qwen_2_vl,
    may_be_flat: true,
    is_tied: false,
}];
/// The part of Qwen 2.5 VL.
pub(crate) const QWEN_2_5_VL: &[TextPart] = &[TextPart { model_type: "qwen2_5_vl_text", ..QWEN_2_VL[0] }];
/// The part of Qwen 3 VL.
pub(crate) const QWEN_3_VL: &[TextPart] = &[TextPart {
    model_type: "qwen3_vl_text",
    kind: LlamaKind::Qwen3,
    defaults: || json!({"rope_theta": 5e5, "max_position_embeddings": 128_000}),
    may_be_flat: false,
    is_tied: false,
}];

/// The part of Qwen 3.5.
pub(crate) const QWEN_3_5: &[TextPart] = &[TextPart { is_tied: false, ..TextPart::of(LlamaKind::Qwen35) }];
/// The part of Qwen 3.5 with experts.
pub(crate) const QWEN_3_5_MOE: &[TextPart] =
    &[TextPart { is_tied: false, ..TextPart::of(LlamaKind::Qwen35Moe) }];

fn qwen_2_vl() -> Value {
    json!({
        "vocab_size": 152_064, "hidden_size": 8192, "intermediate_size": 29_568, "num_hidden_layers": 80,
        "num_attention_heads": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_window_layers": 80,
        "rope_theta": 1e6, "bos_token_id": 151_643, "eos_token_id": 151_645,
    })
}

/// Calls angles for times, heights and widths what they are in texts.
fn without_images(rope: &mut Map<String, Value>) {
    let kind = rope.get("rope_type").or_else(|| rope.get("type"));
    if kind.is_some_and(|kind| kind == "mrope") {
        rope.insert("rope_type".into(), "default".into());
    }
}

impl LlamaConfig {
    /// Reads the text of the `config.json` of a model with images: its part for text alone, which is one of `parts`. The first is
    /// that of a part that does not say it.
    ///
    /// # Errors
    /// As for [`from_json`](Self::from_json), and [`Error::Config`](sporran_checkpoint::Error::Config) where it has no such part.
    pub(crate) fn of_text_part(parts: &[TextPart], path: &Path, text: &str) -> Result<Self> {
        let whole: Map<String, Value> = parse(path, text)?;
        let may_be_flat = parts.iter().any(|part| part.may_be_flat);
        let mut fields = match whole.get("text_config") {
            Some(Value::Object(own)) => own.clone(),
            None | Some(Value::Null) if may_be_flat => {
                let mut own = whole.clone();
                // They are the whole model's.
                own.retain(|field, _| !["architectures", "model_type"].contains(&field.as_str()));
                own
            }
            _ => return Err(wrong("text_config", "an object", "none").within(path)),
        };
        let found = fields.get("model_type").and_then(Value::as_str);
        let known = |part: &&TextPart| found.is_none_or(|found| part.model_type == found);
        let Some(part) = parts.iter().find(known) else {
            let expected = parts.iter().map(|part| format!("`{}`", part.model_type));
            let expected = expected.collect::<Vec<_>>().join(" or ");
            let found = format!("`{}`", found.unwrap_or_default());
            return Err(wrong("text_config.model_type", &expected, &found).within(path));
        };
        // The whole model's counts, whatever its part says.
        let is_tied = whole.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(part.is_tied);
        fields.insert("tie_word_embeddings".into(), is_tied.into());
        for rope in ["rope_parameters", "rope_scaling"] {
            if let Some(rope) = fields.get_mut(rope).and_then(Value::as_object_mut) {
                without_images(rope);
            }
        }
        if let Value::Object(defaults) = (part.defaults)() {
            for (field, value) in defaults {
                fields.entry(field).or_insert(value);
            }
        }
        Self::from_json(part.kind, path, &Value::Object(fields).to_string())
    }
}
