//! Configs that models' own code writes, where their fields differ from those of `transformers`: NomicBERT, Alibaba's GTE
//! (`new`), Jina's BERT with biases of distances, and Jina's XLM-RoBERTa.

use serde_json::{Map, Value, json};
use sporran_checkpoint::Result;

use super::family::BertFamily;
use crate::architectures::wrong::wrong;

/// The field that a config of Jina's XLM-RoBERTa has, with any value.
pub(super) const FLASH: &str = "use_flash_attn";

/// The kind of feed-forward parts that JinaBERT has.
pub(super) const GATED: &str = "geglu";

/// The family of a config whose `model_type` is that of `family`: two models have the type of another.
pub(super) fn family_of(family: BertFamily, fields: &Map<String, Value>) -> BertFamily {
    let positions = fields.get("position_embedding_type").and_then(Value::as_str);
    match family {
        BertFamily::Bert if positions == Some("alibi") => BertFamily::JinaBert,
        BertFamily::XlmRoberta if fields.contains_key(FLASH) => BertFamily::JinaXlmRoberta,
        _ => family,
    }
}

/// The fields by the names of `transformers`. Settings that it does not have are checked.
pub(super) fn renamed(family: BertFamily, mut fields: Map<String, Value>) -> Result<Map<String, Value>> {
    match family {
        BertFamily::NomicBert if fields.contains_key("n_embd") => rename_nomic(&mut fields)?,
        BertFamily::New => {
            allow(&fields, "position_embedding_type", &json!("rope"))?;
            allow(&fields, "layer_norm_type", &json!("layer_norm"))?;
            allow(&fields, "pack_qkv", &json!(true))?;
            allow(&fields, "logn_attention_scale", &json!(false))?;
        }
        BertFamily::JinaBert => {
            require(&fields, "feed_forward_type", &json!(GATED))?;
            allow(&fields, "hidden_act", &json!("gelu"))?;
            let names = ["_name_or_path", "auto_map"].map(|field| fields.get(field).map(Value::to_string));
            if names.into_iter().flatten().any(|name| name.contains("qk-post-norm")) {
                let expected = "JinaBERT without norms of queries and keys";
                return Err(wrong("auto_map", expected, "`jina-bert-v2-qk-post-norm`"));
            }
        }
        _ => {}
    }
    Ok(fields)
}

/// Renames the fields of NomicBERT's own code, which are GPT-2's.
fn rename_nomic(fields: &mut Map<String, Value>) -> Result<()> {
    for (field, only) in [
        ("rotary_emb_fraction", json!(1.0)),
        ("qkv_proj_bias", json!(false)),
        ("mlp_fc1_bias", json!(false)),
        ("mlp_fc2_bias", json!(false)),
    ] {
        require(fields, field, &only)?;
    }
    for field in ["rotary_emb_interleaved", "prenorm", "parallel_block", "causal", "use_rms_norm"] {
        allow(fields, field, &json!(false))?;
    }
    // Scaled positions and mixtures of experts.
    for field in ["rotary_emb_scale_base", "rotary_scaling_factor", "num_experts"] {
        allow(fields, field, &json!(0))?;
    }
    let activation = match fields.remove("activation_function") {
        Some(Value::String(name)) if name == "swiglu" => "silu",
        Some(Value::String(name)) if name == "geglu" => "gelu",
        other => {
            let found = other.map_or_else(|| "none".into(), |other| other.to_string());
            return Err(wrong("activation_function", "`swiglu` or `geglu`", &found));
        }
    };
    fields.insert("hidden_act".into(), json!(activation));
    if fields.get("n_inner").is_none_or(Value::is_null) {
        let width = fields.get("n_embd").and_then(Value::as_u64).unwrap_or(0);
        fields.insert("n_inner".into(), json!(width.saturating_mul(4)));
    }
    fields.entry("rotary_emb_base").or_insert(json!(10_000.0));
    fields.entry("layer_norm_epsilon").or_insert(json!(1e-5));
    for (own, here) in [
        ("n_embd", "hidden_size"),
        ("n_head", "num_attention_heads"),
        ("n_layer", "num_hidden_layers"),
        ("n_inner", "intermediate_size"),
        ("n_positions", "max_position_embeddings"),
        ("layer_norm_epsilon", "layer_norm_eps"),
        ("resid_pdrop", "hidden_dropout_prob"),
        ("attn_pdrop", "attention_probs_dropout_prob"),
        ("rotary_emb_base", "rope_theta"),
    ] {
        match fields.remove(own) {
            Some(value) => _ = fields.insert(here.into(), value),
            None if own.ends_with("pdrop") => {}
            None => return Err(wrong(own, "a number", "none")),
        }
    }
    Ok(())
}

/// Whether two values are the same. Numbers are the same whether they have a point or not.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// Refuses another value of a field than `only`. A field that is null or not there may stay so.
fn allow(fields: &Map<String, Value>, field: &str, only: &Value) -> Result<()> {
    match fields.get(field).filter(|found| !found.is_null() && !is_same(found, only)) {
        Some(found) => Err(wrong(field, &only.to_string(), &found.to_string())),
        None => Ok(()),
    }
}

/// Refuses another value of a field than `only`, and a file without it.
fn require(fields: &Map<String, Value>, field: &str, only: &Value) -> Result<()> {
    match fields.get(field) {
        Some(_) => allow(fields, field, only),
        None => Err(wrong(field, &only.to_string(), "none")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{BertConfig, BertFamily};

    fn read(family: BertFamily, text: &str) -> sporran_checkpoint::Result<BertConfig> {
        BertConfig::from_json(family, Path::new("config.json"), text)
    }

    /// As nomic-embed-text-v1.5 has it, with other numbers.
    const NOMIC: &str = r#"{
        "activation_function": "swiglu", "attn_pdrop": 0.0, "causal": false, "layer_norm_epsilon": 1e-12,
        "mlp_fc1_bias": false, "mlp_fc2_bias": false, "n_embd": 24, "n_head": 3, "n_inner": 40, "n_layer": 5,
        "n_positions": 70, "parallel_block": false, "prenorm": false, "qkv_proj_bias": false, "resid_pdrop": 0.25,
        "rotary_emb_base": 1000, "rotary_emb_fraction": 1, "rotary_emb_interleaved": false,
        "rotary_emb_scale_base": null, "rotary_scaling_factor": null, "type_vocab_size": 2, "vocab_size": 64
    }"#;

    #[test]
    fn the_fields_of_nomic_s_own_code_are_renamed() {
        let config = read(BertFamily::NomicBert, NOMIC).unwrap();
        assert_eq!((config.hidden_size, config.num_attention_heads, config.num_hidden_layers), (24, 3, 5));
        assert_eq!((config.intermediate_size, config.max_input_length()), (40, 70));
        assert_eq!((config.hidden_act.as_str(), config.hidden_dropout_prob), ("silu", 0.25));
        assert_eq!(config.rotary().unwrap().theta, 1000.0);
        for (from, to, field) in [
            (r#""rotary_emb_fraction": 1"#, r#""rotary_emb_fraction": 0.5"#, "rotary_emb_fraction"),
            (r#""qkv_proj_bias": false"#, r#""qkv_proj_bias": true"#, "qkv_proj_bias"),
            (r#""mlp_fc1_bias": false,"#, "", "mlp_fc1_bias"),
            (r#""rotary_scaling_factor": null"#, r#""rotary_scaling_factor": 2.0"#, "rotary_scaling_factor"),
            (r#""prenorm": false"#, r#""prenorm": true"#, "prenorm"),
            (r#""causal": false"#, r#""num_experts": 8"#, "num_experts"),
            ("swiglu", "gelu", "activation_function"),
            (r#""n_positions": 70,"#, "", "n_positions"),
        ] {
            let error = read(BertFamily::NomicBert, &NOMIC.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: field `{field}`")), "{error}");
        }
    }

    #[test]
    fn a_model_of_its_own_code_is_told_from_the_one_whose_type_it_has() {
        let jina = r#"{"position_embedding_type": "alibi", "feed_forward_type": "geglu"}"#;
        let config = read(BertFamily::Bert, jina).unwrap();
        assert_eq!(config.family, BertFamily::JinaBert);
        assert!(!config.has_positions() && config.has_types() && !config.is_plain());
        let config = read(BertFamily::XlmRoberta, r#"{"use_flash_attn": true}"#).unwrap();
        assert_eq!(config.family, BertFamily::JinaXlmRoberta);
        assert!(config.has_positions() && !config.is_plain());
        assert_eq!(read(BertFamily::XlmRoberta, "{}").unwrap().family, BertFamily::XlmRoberta);
        for (family, text, field) in [
            (BertFamily::Bert, r#"{"position_embedding_type": "alibi"}"#, "feed_forward_type"),
            (
                BertFamily::Bert,
                r#"{"position_embedding_type": "alibi", "feed_forward_type": "geglu",
                "auto_map": {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}}"#,
                "auto_map",
            ),
            (
                BertFamily::XlmRoberta,
                r#"{"use_flash_attn": true, "position_embedding_type": "rotary"}"#,
                "position_embedding_type",
            ),
            (BertFamily::New, r#"{"layer_norm_type": "rms_norm"}"#, "layer_norm_type"),
            (BertFamily::New, r#"{"rope_scaling": {"type": "linear", "factor": 2}}"#, "rope_scaling"),
            (
                BertFamily::New,
                r#"{"rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0.6}}"#,
                "rope_scaling",
            ),
            (BertFamily::New, r#"{"rope_scaling": {"type": "ntk", "factor": 0}}"#, "rope_scaling"),
        ] {
            let error = read(family, text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("config.json: field `{field}`")), "{error}");
        }
    }
}
