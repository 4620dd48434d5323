//! The config of Gemma 4: its default values, fields that are by layer, and what is refused.

use std::path::Path;

use serde_json::{Map, Value, json};
use sporran_checkpoint::{Result, json::parse};

use super::{
    config::LlamaConfig,
    kind::LlamaKind,
    positions::{FULL, SLIDING},
    rope::RopeParameters,
};
use crate::architectures::wrong::wrong;

/// The settings of single layers in files of newer versions of `transformers`.
const BY_LAYER: &str = "per_layer_config";
const BOTH_WAYS: &str = "use_bidirectional_attention";

/// The config of `transformers`.
pub(super) fn defaults() -> LlamaConfig {
    let rope = |kind: &str, theta: f64, part: Option<f64>| {
        Some(Box::new(RopeParameters {
            rope_type: Some(kind.into()),
            rope_theta: Some(theta),
            partial_rotary_factor: part,
            ..RopeParameters::default()
        }))
    };
    LlamaConfig {
        hidden_size: 2304,
        intermediate_size: 9216,
        num_hidden_layers: 30,
        num_attention_heads: 8,
        num_key_value_heads: Some(4),
        head_dim: Some(256),
        global_head_dim: Some(512),
        rope_parameters: Some(RopeParameters {
            full_attention: rope("proportional", 1e6, Some(0.25)),
            sliding_attention: rope("default", 1e4, None),
            ..RopeParameters::default()
        }),
        sliding_window: Some(512),
        vocab_size_per_layer_input: Some(262_144),
        hidden_size_per_layer_input: Some(256),
        tie_word_embeddings: true,
        pad_token_id: Some(0),
        eos_token_id: vec![1],
        bos_token_id: Some(2),
        ..LlamaKind::Gemma4.sized(262_144, 131_072)
    }
}

/// The text of a `config.json` with its settings of single layers as fields for all layers of a type.
pub(super) fn read_gemma_4(path: &Path, text: &str) -> Result<String> {
    let mut given: Map<String, Value> = parse(path, text)?;
    for field in ["layer_types", "rope_parameters", BY_LAYER] {
        // Null stands for the default.
        if given.get(field).is_some_and(Value::is_null) {
            given.remove(field);
        }
    }
    match given.get(BOTH_WAYS).and_then(Value::as_str) {
        // Tokens of images alone see later ones.
        Some("vision") => {
            given.remove(BOTH_WAYS);
        }
        Some(other) => {
            return Err(wrong(BOTH_WAYS, "`vision` or null", &format!("`{other}`")).within(path));
        }
        None => {}
    }
    if let Some(own) = given.remove(BY_LAYER) {
        let (width, groups) = global_heads(&given, &own).map_err(|error| error.within(path))?;
        given.insert("global_head_dim".into(), width);
        given.insert("num_global_key_value_heads".into(), groups);
    }
    Ok(Value::Object(given).to_string())
}

/// The width of heads and the number of keys of layers that attend to everything, of settings by layer.
fn global_heads(given: &Map<String, Value>, own: &Value) -> Result<(Value, Value)> {
    let refuse = |expected: &str| wrong(BY_LAYER, expected, &own.to_string());
    let own = own.as_object().ok_or_else(|| refuse("an object"))?;
    let types = given.get("layer_types").and_then(Value::as_array);
    let count = given.get("num_hidden_layers").and_then(Value::as_u64).unwrap_or(30) as usize;
    let is_full = |layer: usize| match types {
        _ if layer + 1 == count => true,
        Some(types) => types.get(layer).is_none_or(|kind| kind != SLIDING),
        None => (layer + 1).is_multiple_of(6),
    };
    let full = match types {
        Some(types) => (0..types.len().min(count)).filter(|layer| is_full(*layer)).count(),
        None => count.div_ceil(6),
    };
    let mut settings = own.iter().filter(|(_, fields)| **fields != json!({}));
    let Some((_, first)) = settings.clone().next() else {
        return Ok((given.get("head_dim").cloned().unwrap_or(json!(256)), Value::Null));
    };
    let is_known = |field: &String| ["head_dim", "num_key_value_heads"].contains(&field.as_str());
    let first = first.as_object().filter(|fields| fields.keys().all(is_known));
    let first = first.ok_or_else(|| refuse("`head_dim` and `num_key_value_heads` by layer"))?;
    let is_same = |(layer, fields): (&String, &Value)| {
        fields.as_object() == Some(first) && layer.parse().is_ok_and(&is_full)
    };
    if settings.clone().count() != full || !settings.all(is_same) {
        return Err(refuse(&format!("the same for each layer of the type `{FULL}`, and for no other")));
    }
    let base = |field: &str, default: u64| given.get(field).cloned().unwrap_or(json!(default));
    let width = first.get("head_dim").cloned().unwrap_or_else(|| base("head_dim", 256));
    let groups = first.get("num_key_value_heads").filter(|own| **own != base("num_key_value_heads", 4));
    if groups.is_some() && given.get("attention_k_eq_v") != Some(&json!(true)) {
        return Err(refuse("`num_key_value_heads` of layers whose values are keys (`attention_k_eq_v`)"));
    }
    Ok((width, groups.cloned().unwrap_or(Value::Null)))
}

impl LlamaConfig {
    /// Checks the settings of layers that differ (Gemma 4).
    pub(super) fn check_gemma_4(&self) -> Result<()> {
        if self.kind != LlamaKind::Gemma4 {
            return Ok(());
        }
        let (heads, width) = (self.num_attention_heads, self.global_head_width());
        let is_wide = heads.checked_mul(width).is_none_or(|all| all > i32::MAX as usize);
        if width == 0 || !width.is_multiple_of(2) || is_wide {
            let expected = format!("an even number, at most {} for {heads} heads", i32::MAX);
            return Err(wrong("global_head_dim", &expected, &width.to_string()));
        }
        let groups = self.global_groups();
        if groups == 0 || !heads.is_multiple_of(groups) {
            let expected = format!("a divisor of num_attention_heads, {heads}");
            return Err(wrong("num_global_key_value_heads", &expected, &groups.to_string()));
        }
        self.check_layers_of_gemma()?;
        if self.enable_moe_block == Some(true) && self.moe_intermediate_size.is_none() {
            return Err(wrong("moe_intermediate_size", "a number with enable_moe_block", "none"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use sporran_checkpoint::{Architecture, Result};

    use super::{LlamaConfig, LlamaKind};

    fn read(fields: serde_json::Value) -> Result<LlamaConfig> {
        LlamaConfig::from_json(LlamaKind::Gemma4, Path::new("config.json"), &fields.to_string())
    }

    #[test]
    fn settings_by_layer_are_those_by_type() {
        let sizes = json!({"num_hidden_layers": 7, "attention_k_eq_v": true, "head_dim": 64});
        let with = |fields: serde_json::Value| {
            let mut all = sizes.clone();
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            read(all)
        };
        let old = with(json!({"global_head_dim": 128, "num_global_key_value_heads": 2})).unwrap();
        // The last layer attends to everything, as the sixth does.
        let own = json!({"head_dim": 128, "num_key_value_heads": 2});
        let new = with(json!({"per_layer_config": {"5": own, "6": own}})).unwrap();
        assert_eq!(old, new);
        assert_eq!([4, 5, 6].map(|layer| new.layer_head_width(layer)), [64, 128, 128]);
        let plain = with(json!({"per_layer_config": {}})).unwrap();
        assert_eq!((plain.layer_head_width(5), plain.layer_groups(5)), (64, 4));
        for wrong in [
            json!({"5": own}),
            json!({"4": own, "6": own}),
            json!({"5": own, "6": {"head_dim": 128}}),
            json!({"5": {"rms_norm_eps": 1.0}, "6": {"rms_norm_eps": 1.0}}),
            json!([]),
        ] {
            let error = with(json!({"per_layer_config": wrong})).unwrap_err().to_string();
            assert!(error.contains("field `per_layer_config`"), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let keys =
            read(json!({"attention_k_eq_v": true, "num_global_key_value_heads": 2, "top_k_experts": 3}))
                .unwrap();
        assert_eq!((keys.window(0), keys.fields()["top_k_experts"].as_u64()), (Some(512), Some(3)));
        let images = read(json!({"use_bidirectional_attention": "vision", "rope_parameters": null})).unwrap();
        assert_eq!(images, read(json!({})).unwrap());
        for config in [keys, images] {
            assert_eq!(read(config.fields()).unwrap(), config);
        }
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (field, value) in [
            ("num_kv_shared_layers", json!(30)),
            ("num_kv_shared_layers", json!(25)),
            ("global_head_dim", json!(3)),
            ("vocab_size_per_layer_input", json!(0)),
            ("hidden_size_per_layer_input", json!(1u64 << 40)),
        ] {
            let error = read(json!({field: value})).unwrap().validate().unwrap_err().to_string();
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        }
        let experts = |fields: serde_json::Value| {
            let mut all = json!({"enable_moe_block": true, "num_experts": 4, "moe_intermediate_size": 8});
            all.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            read(all).unwrap().validate()
        };
        assert!(experts(json!({"top_k_experts": 2})).is_ok());
        for (field, value) in [("top_k_experts", json!(5)), ("moe_intermediate_size", json!(null))] {
            let error = experts(json!({"top_k_experts": 2, field: value})).unwrap_err().to_string();
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        }
        let error = read(json!({"use_bidirectional_attention": "all"})).unwrap_err().to_string();
        assert!(error.contains("expected `vision` or null, found `all`"), "{error}");
    }
}
