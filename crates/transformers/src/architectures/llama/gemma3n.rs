//! The config of Gemma 3n: its default values, fields that are by layer, and what is refused.

use std::path::Path;

use candle_core::cpu::erf::erf_inv;
use serde_json::{Map, Value};
use sporran_checkpoint::{Result, json::parse};

use super::{config::LlamaConfig, kind::LlamaKind};
use crate::architectures::wrong::wrong;

/// The streams of states of a model (Baykal et al. 2023, "alternating updates").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamSizes {
    pub(crate) count: usize,
    /// The stream that layers read.
    pub(crate) active: usize,
    /// The width of the learned part of residuals (Menghani et al. 2025, "LAuReL").
    pub(crate) rank: usize,
    /// Whether the states that embeddings of a layer are multiplied with are scaled.
    pub(crate) is_scaled: bool,
}

/// The config of `transformers`.
pub(super) fn defaults() -> LlamaConfig {
    LlamaConfig {
        hidden_size: 2048,
        intermediate_size: 16_384,
        num_hidden_layers: 35,
        num_attention_heads: 8,
        num_key_value_heads: Some(2),
        head_dim: Some(256),
        sliding_window: Some(512),
        final_logit_softcapping: Some(30.0),
        vocab_size_per_layer_input: Some(262_144),
        hidden_size_per_layer_input: Some(256),
        num_kv_shared_layers: Some(15),
        altup_num_inputs: Some(4),
        altup_active_idx: Some(0),
        altup_correct_scale: Some(true),
        laurel_rank: Some(64),
        tie_word_embeddings: true,
        pad_token_id: Some(0),
        eos_token_id: vec![1],
        bos_token_id: Some(2),
        ..LlamaKind::Gemma3n.sized(262_400, 32_768)
    }
}

/// The text of a `config.json` with one inner width for all layers.
pub(super) fn read_gemma_3n(path: &Path, text: &str) -> Result<String> {
    const INNER: &str = "intermediate_size";
    let mut given: Map<String, Value> = parse(path, text)?;
    if let Some(Value::Array(widths)) = given.get(INNER) {
        let one = widths.first().filter(|first| widths.iter().all(|width| width == *first)).cloned();
        let found = Value::from(widths.clone()).to_string();
        let one = one.ok_or_else(|| wrong(INNER, "one number for all layers", &found).within(path))?;
        given.insert(INNER.into(), one);
    }
    Ok(Value::Object(given).to_string())
}

impl LlamaConfig {
    /// The streams of states; none where there is one.
    pub(crate) fn streams(&self) -> Option<StreamSizes> {
        (self.kind == LlamaKind::Gemma3n).then(|| StreamSizes {
            count: self.altup_num_inputs.unwrap_or(4),
            active: self.altup_active_idx.unwrap_or(0),
            rank: self.laurel_rank.unwrap_or(64),
            is_scaled: self.altup_correct_scale.unwrap_or(true),
        })
    }

    /// The part of the inner values of `layer` that are 0.
    fn sparsity(&self, layer: usize) -> f64 {
        match &self.activation_sparsity_pattern {
            Some(parts) => parts.get(layer).copied().unwrap_or(0.0),
            None if self.num_hidden_layers > 10 && layer < 10 => 0.95,
            None => 0.0,
        }
    }

    /// Inner values of `layer` below their mean and this many of their deviations are 0, as if they were normally distributed;
    /// none where all are used.
    pub(crate) fn least_deviation(&self, layer: usize) -> Option<f64> {
        if self.kind != LlamaKind::Gemma3n {
            return None;
        }
        let part = f64::from(self.sparsity(layer) as f32);
        (part > 0.0).then(|| 2f64.sqrt() * erf_inv(2.0 * part - 1.0))
    }

    /// Checks the settings of Gemma 3n.
    pub(super) fn check_gemma_3n(&self) -> Result<()> {
        const MOST: usize = 64;
        let Some(sizes) = self.streams() else { return Ok(()) };
        if !(1..=MOST).contains(&sizes.count) {
            return Err(wrong("altup_num_inputs", &format!("1 to {MOST}"), &sizes.count.to_string()));
        }
        if sizes.active >= sizes.count {
            let expected = format!("less than altup_num_inputs, {}", sizes.count);
            return Err(wrong("altup_active_idx", &expected, &sizes.active.to_string()));
        }
        if sizes.rank == 0 {
            return Err(wrong("laurel_rank", "at least 1", "0"));
        }
        if self.layer_input_width().is_none() {
            return Err(wrong("hidden_size_per_layer_input", "at least 1", "0"));
        }
        if let Some(parts) = &self.activation_sparsity_pattern {
            let layers = self.num_hidden_layers;
            if parts.len() != layers || parts.iter().any(|part| !(0.0..1.0).contains(part)) {
                let expected = format!("a number from 0 and below 1 for each of {layers} layers");
                return Err(wrong("activation_sparsity_pattern", &expected, &format!("{parts:?}")));
            }
        }
        self.check_layers_of_gemma()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;
    use sporran_checkpoint::{Architecture, Result};

    use super::{LlamaConfig, LlamaKind};

    fn read(fields: serde_json::Value) -> Result<LlamaConfig> {
        LlamaConfig::from_json(LlamaKind::Gemma3n, Path::new("config.json"), &fields.to_string())
    }

    #[test]
    fn the_first_layers_use_the_greatest_of_their_inner_values() {
        let config = read(json!({"intermediate_size": vec![64; 35]})).unwrap();
        assert_eq!((config.intermediate_size, config.validate().is_ok()), (64, true));
        // The quantile of the normal distribution.
        assert!((config.least_deviation(9).unwrap() - 1.644_853_6).abs() < 1e-6);
        assert_eq!(config.least_deviation(10), None);
        assert_eq!(read(json!({"num_hidden_layers": 10})).unwrap().least_deviation(0), None);
        assert_eq!([18, 19, 20, 24].map(|layer| config.key_source(layer)), [None, None, Some(18), Some(19)]);
        assert_eq!(read(config.fields()).unwrap(), config);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        for (field, value) in [
            ("altup_num_inputs", json!(0)),
            ("altup_active_idx", json!(4)),
            ("laurel_rank", json!(0)),
            ("hidden_size_per_layer_input", json!(0)),
            ("activation_sparsity_pattern", json!([0.5])),
            ("num_kv_shared_layers", json!(35)),
        ] {
            let error = read(json!({field: value})).unwrap().validate().unwrap_err().to_string();
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        }
        let error = read(json!({"intermediate_size": [64, 32]})).unwrap_err().to_string();
        assert!(error.contains("field `intermediate_size`: expected one number for all layers"), "{error}");
    }
}
