//! The fields of LFM2's `config.json` that stand for others.

use std::path::Path;

use serde_json::{Map, Value, json};
use sporran_checkpoint::Result;

use super::{
    kind::LlamaKind,
    positions::{FULL, SHORT},
};
use crate::architectures::wrong::wrong;

/// The inner width of LFM2's feed-forward parts by the rule of `transformers`: two thirds of `width`, times a factor, as a multiple.
fn inner_width(given: &Map<String, Value>, width: u64) -> Result<u64> {
    let width = 2 * width / 3;
    let factor = match given.get("block_ffn_dim_multiplier") {
        None => 1.0,
        // Then there is no multiple either.
        Some(Value::Null) => return Ok(width),
        Some(value) => match value.as_f64().filter(|factor| *factor > 0.0 && *factor <= 1024.0) {
            Some(factor) => factor,
            None => {
                let expected = "a number above 0, at most 1024";
                return Err(wrong("block_ffn_dim_multiplier", expected, &value.to_string()));
            }
        },
    };
    let multiple = match given.get("block_multiple_of") {
        None => 256,
        Some(value) => match value.as_u64().filter(|multiple| (1..=1 << 20).contains(multiple)) {
            Some(multiple) => multiple,
            None => return Err(wrong("block_multiple_of", "1 to 1048576", &value.to_string())),
        },
    };
    Ok(((factor * width as f64) as u64).div_ceil(multiple) * multiple)
}

impl LlamaKind {
    /// The fields of LFM2 without those that stand for others.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where a field has a value that cannot be used.
    pub(super) fn by_plain_fields(
        self,
        path: &Path,
        mut given: Map<String, Value>,
    ) -> Result<Map<String, Value>> {
        for (own, plain) in [("tie_embedding", "tie_word_embeddings"), ("block_ff_dim", "intermediate_size")]
        {
            if let Some(value) = given.remove(own) {
                given.insert(plain.into(), value);
            }
        }
        if self != Self::Lfm2 {
            return Ok(given);
        }
        let defaults = self.defaults();
        let attending = given.remove("full_attn_idxs");
        if given.get("layer_types").is_none_or(Value::is_null) {
            let layers = given.get("num_hidden_layers").and_then(Value::as_u64);
            let layers = layers.unwrap_or(defaults.num_hidden_layers as u64).min(1 << 20);
            let attends = |layer: u64| match &attending {
                Some(Value::Array(places)) => places.contains(&json!(layer)),
                _ => true,
            };
            let kind = |layer: u64| if attends(layer) { FULL } else { SHORT };
            given.insert("layer_types".into(), (0..layers).map(kind).collect());
        }
        let width = given.get("intermediate_size").and_then(Value::as_u64);
        let width = width.unwrap_or(defaults.intermediate_size as u64);
        if given.get("block_auto_adjust_ff_dim") != Some(&json!(false)) && width <= i32::MAX as u64 {
            let width = inner_width(&given, width).map_err(|error| error.within(path))?;
            given.insert("intermediate_size".into(), json!(width));
        }
        given.insert("block_auto_adjust_ff_dim".into(), json!(false));
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::LlamaKind;
    use crate::architectures::llama::LlamaConfig;

    fn read(text: &str) -> sporran_checkpoint::Result<LlamaConfig> {
        LlamaConfig::from_json(LlamaKind::Lfm2, Path::new("config.json"), text)
    }

    #[test]
    fn the_inner_width_follows_from_three_fields() {
        let width = |text: &str| read(text).unwrap().intermediate_size;
        // Two thirds of 12,288 are a multiple of 256.
        assert_eq!((width("{}"), width(r#"{"intermediate_size": 1000}"#)), (8192, 768));
        assert_eq!(width(r#"{"block_ff_dim": 1000, "block_auto_adjust_ff_dim": false}"#), 1000);
        assert_eq!(width(r#"{"intermediate_size": 90, "block_multiple_of": 7}"#), 63);
        assert_eq!(width(r#"{"intermediate_size": 90, "block_ffn_dim_multiplier": null}"#), 60);
        let text = r#"{"intermediate_size": 90, "block_ffn_dim_multiplier": 1.5, "block_multiple_of": 1}"#;
        assert_eq!(width(text), 90);
        for (field, value) in [("block_multiple_of", "0"), ("block_ffn_dim_multiplier", "-1")] {
            let error = read(&format!(r#"{{"{field}": {value}}}"#)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: field `{field}`: expected ")), "{error}");
        }
    }

    #[test]
    fn older_files_list_the_layers_that_attend() {
        let recurrent = |text: &str| -> Vec<bool> {
            let config = read(text).unwrap();
            (0..3).map(|layer| config.recurrence(layer).is_some()).collect()
        };
        assert_eq!(recurrent("{}"), [false; 3]);
        assert_eq!(recurrent(r#"{"full_attn_idxs": [1], "num_hidden_layers": 3}"#), [true, false, true]);
        assert!(!read(r#"{"tie_embedding": false}"#).unwrap().tie_word_embeddings);
    }
}
