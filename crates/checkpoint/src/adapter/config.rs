//! An adapter's `adapter_config.json`, as PEFT writes it.

use std::{collections::BTreeMap, path::Path};

use regex::Regex;
use serde::Deserialize;
use serde_json::Value;

use crate::error::{Error, Result};

/// Settings that change what an adapter's tensors mean. Each must be off: null, false or empty.
const UNSUPPORTED: [&str; 17] = [
    "use_dora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "velora_config",
    "monteclora_config",
    "megatron_config",
    "loftq_config",
    "corda_config",
    "lora_ga_config",
    "use_kasa",
];

/// The fields of an adapter of LoRA (Hu et al. 2022).
#[derive(Debug, Deserialize)]
pub(crate) struct AdapterConfig {
    peft_type: Option<String>,
    pub(crate) base_model_name_or_path: Option<String>,
    /// The base model's branch, tag or commit on the hub.
    pub(crate) revision: Option<String>,
    #[serde(default = "default_rank")]
    pub(crate) r: usize,
    #[serde(default = "default_alpha")]
    pub(crate) lora_alpha: f64,
    #[serde(default)]
    pub(crate) use_rslora: bool,
    target_modules: Option<Targets>,
    #[serde(default)]
    rank_pattern: Option<BTreeMap<String, usize>>,
    #[serde(default)]
    alpha_pattern: Option<BTreeMap<String, f64>>,
    pub(crate) task_type: Option<String>,
    init_lora_weights: Option<Value>,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

fn default_rank() -> usize {
    8
}

fn default_alpha() -> f64 {
    8.0
}

/// The modules that have an adapter: the ends of their names, or a pattern of whole names.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Targets {
    Ends(Vec<String>),
    Pattern(String),
}

impl AdapterConfig {
    /// Checks that the tensors can be merged as those of plain LoRA; `path` is for the error.
    pub(crate) fn check(&self, path: &Path) -> Result<()> {
        let wrong = |field: &str, expected: &str, found: String| Error::Config {
            path: path.into(),
            field: field.into(),
            expected: expected.into(),
            found,
        };
        let kind = self.peft_type.as_deref().unwrap_or("none");
        if kind != "LORA" {
            return Err(wrong("peft_type", "`LORA`", format!("`{kind}`")));
        }
        let is_off = |value: &Value| match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        let mut others = UNSUPPORTED.iter().filter_map(|field| Some((*field, self.others.get(*field)?)));
        if let Some((field, value)) = others.find(|(_, value)| !is_off(value)) {
            let shown: String = value.to_string().chars().take(80).collect();
            return Err(wrong(field, "plain LoRA, where it is off", shown));
        }
        // Such initial values change the base model, and the adapter is no sum with the base on the hub.
        if let Some(Value::String(name)) = &self.init_lora_weights
            && !["gaussian", "eva", "orthogonal"].contains(&name.as_str())
        {
            let expected = "true, false, `gaussian`, `eva` or `orthogonal`, which keep the base model";
            return Err(wrong("init_lora_weights", expected, format!("`{name}`")));
        }
        if self.r == 0 || !self.lora_alpha.is_finite() {
            return Err(wrong("r", "a rank of at least 1 with a finite `lora_alpha`", self.r.to_string()));
        }
        Ok(())
    }

    /// Whether the config lets `module` have an adapter.
    pub(crate) fn targets(&self, module: &str) -> bool {
        match &self.target_modules {
            None => true,
            Some(Targets::Ends(ends)) => ends.iter().any(|end| ends_with(module, end)),
            Some(Targets::Pattern(pattern)) if pattern == "all-linear" => true,
            // A pattern that only Python reads excludes nothing: the tensors decide.
            Some(Targets::Pattern(pattern)) => {
                Regex::new(&format!("^(?:{pattern})$")).map_or(true, |pattern| pattern.is_match(module))
            }
        }
    }

    /// The rank of `module`, and the factor of its product.
    pub(crate) fn scale(&self, module: &str) -> (usize, f64) {
        let rank = own(self.rank_pattern.as_ref(), module).unwrap_or(self.r);
        let alpha = own(self.alpha_pattern.as_ref(), module).unwrap_or(self.lora_alpha);
        let divisor = if self.use_rslora { (rank as f64).sqrt() } else { rank as f64 };
        (rank, alpha / divisor)
    }
}

/// The value of the first pattern that the end of `module` has.
fn own<T: Copy>(patterns: Option<&BTreeMap<String, T>>, module: &str) -> Option<T> {
    let matches = |pattern: &str| {
        ends_with(module, pattern)
            || Regex::new(&format!(r"^(?:.*\.)?(?:{pattern})$")).is_ok_and(|pattern| pattern.is_match(module))
    };
    patterns?.iter().find(|(pattern, _)| matches(pattern)).map(|(_, value)| *value)
}

/// Whether `name` is `end`, or ends with it after a dot.
pub(crate) fn ends_with(name: &str, end: &str) -> bool {
    name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::AdapterConfig;

    fn config(fields: &str) -> AdapterConfig {
        let text = format!(r#"{{"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_dora": false{fields}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_factor_is_alpha_by_the_rank_or_by_its_root() {
        assert_eq!(config("").scale("layers.0.q_proj"), (4, 2.0));
        assert_eq!(config(r#", "use_rslora": true"#).scale("q_proj"), (4, 4.0));
        let own = config(r#", "rank_pattern": {"q_proj": 16}, "alpha_pattern": {"layers.0.*": 32}"#);
        assert_eq!(own.scale("model.layers.0.q_proj"), (16, 2.0));
        assert_eq!(own.scale("model.layers.1.q_proj"), (16, 0.5));
        assert_eq!(own.scale("model.layers.1.xq_proj"), (4, 2.0));
    }

    #[test]
    fn modules_are_named_by_their_ends_or_by_a_pattern() {
        let ends = config(r#", "target_modules": ["query", "attn.c_proj"]"#);
        assert!(
            ends.targets("bert.layer.0.query") && ends.targets("query") && ends.targets("h.0.attn.c_proj")
        );
        assert!(!ends.targets("bert.subquery") && !ends.targets("h.0.mlp.c_proj"));
        let pattern = config(r#", "target_modules": ".*decoder.*\\.q""#);
        assert!(pattern.targets("decoder.block.0.q") && !pattern.targets("encoder.block.0.q"));
        assert!(config(r#", "target_modules": "all-linear""#).targets("x"));
    }

    #[test]
    fn other_adapters_are_refused_by_name() {
        let check = |config: AdapterConfig| config.check(Path::new("adapter_config.json"));
        check(config("")).unwrap();
        check(config(r#", "loftq_config": {}, "layer_replication": null, "init_lora_weights": true"#))
            .unwrap();
        for (fields, expected) in [
            (r#", "lora_bias": true"#, "field `lora_bias`: expected plain LoRA, where it is off, found true"),
            (r#", "layer_replication": [[0, 2]]"#, "field `layer_replication`"),
            (r#", "init_lora_weights": "pissa""#, "found `pissa`"),
        ] {
            let error = check(config(fields)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let dora: AdapterConfig = serde_json::from_str(r#"{"peft_type": "LORA", "use_dora": true}"#).unwrap();
        assert!(check(dora).unwrap_err().to_string().contains("field `use_dora`"));
        let other: AdapterConfig = serde_json::from_str(r#"{"peft_type": "IA3"}"#).unwrap();
        let error = check(other).unwrap_err().to_string();
        assert!(error.ends_with("field `peft_type`: expected `LORA`, found `IA3`"), "{error}");
    }
}
