//! The names of fields in the `config.json` of each kind.

use serde_json::{Map, Value, json};
use sporran_checkpoint::Error;

use super::kind::LlamaKind;

impl LlamaKind {
    /// The names of fields in this kind's `config.json`, and those that they have here.
    pub(crate) fn field_names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::BioGpt => &[
                ("attention_probs_dropout_prob", "attention_dropout"),
                ("hidden_dropout_prob", "resid_pdrop"),
            ],
            Self::Bloom => &[
                ("hidden_dropout", "resid_pdrop"),
                ("layer_norm_epsilon", "layer_norm_eps"),
                ("n_head", "num_attention_heads"),
                ("n_layer", "num_hidden_layers"),
            ],
            Self::CodeGen | Self::GptBigCode | Self::GptJ => &[
                ("activation_function", "hidden_act"),
                ("attn_pdrop", "attention_dropout"),
                ("layer_norm_epsilon", "layer_norm_eps"),
                ("n_embd", "hidden_size"),
                ("n_head", "num_attention_heads"),
                ("n_inner", "intermediate_size"),
                ("n_layer", "num_hidden_layers"),
                ("n_positions", "max_position_embeddings"),
            ],
            Self::DeepSeekV2 | Self::DeepSeekV3 | Self::Dots1 | Self::Glm4Moe => {
                &[("n_routed_experts", "num_experts")]
            }
            Self::Ernie45Moe => &[
                ("moe_k", "num_experts_per_tok"),
                ("moe_num_experts", "num_experts"),
                ("moe_num_shared_experts", "n_shared_experts"),
            ],
            Self::Falcon => &[
                ("activation", "hidden_act"),
                ("bias", "use_bias"),
                ("ffn_hidden_size", "intermediate_size"),
                ("hidden_dropout", "resid_pdrop"),
                ("layer_norm_epsilon", "layer_norm_eps"),
                ("num_kv_heads", "num_key_value_heads"),
            ],
            Self::GptNeo => &[
                ("activation_function", "hidden_act"),
                ("embed_dropout", "embd_pdrop"),
                ("layer_norm_epsilon", "layer_norm_eps"),
                ("num_heads", "num_attention_heads"),
                ("num_layers", "num_hidden_layers"),
                ("resid_dropout", "resid_pdrop"),
                ("window_size", "sliding_window"),
            ],
            Self::GptNeox => &[
                ("hidden_dropout", "resid_pdrop"),
                ("rotary_pct", "partial_rotary_factor"),
                ("rotary_emb_base", "rope_theta"),
            ],
            Self::GptOss | Self::GraniteMoe | Self::Mixtral | Self::PhiMoe => {
                &[("num_local_experts", "num_experts")]
            }
            Self::GraniteMoeShared => &[
                ("num_local_experts", "num_experts"),
                ("shared_intermediate_size", "shared_expert_intermediate_size"),
            ],
            Self::Mpt => &[
                ("d_model", "hidden_size"),
                ("emb_pdrop", "embd_pdrop"),
                ("layer_norm_epsilon", "layer_norm_eps"),
                ("max_seq_len", "max_position_embeddings"),
                ("n_heads", "num_attention_heads"),
                ("n_layers", "num_hidden_layers"),
            ],
            Self::Nemotron => &[("norm_eps", "layer_norm_eps")],
            Self::Opt => &[
                ("activation_function", "hidden_act"),
                ("dropout", "resid_pdrop"),
                ("enable_bias", "use_bias"),
                ("ffn_dim", "intermediate_size"),
                ("init_std", "initializer_range"),
            ],
            Self::Persimmon => &[("hidden_dropout", "resid_pdrop")],
            Self::SeedOss => &[("residual_dropout", "resid_pdrop")],
            Self::StableLm => &[("hidden_dropout", "resid_pdrop"), ("use_qkv_bias", "use_bias")],
            Self::Starcoder2 => &[
                ("embedding_dropout", "embd_pdrop"),
                ("norm_epsilon", "layer_norm_eps"),
                ("residual_dropout", "resid_pdrop"),
            ],
            Self::Xglm => &[
                ("activation_function", "hidden_act"),
                ("attention_heads", "num_attention_heads"),
                ("d_model", "hidden_size"),
                ("dropout", "resid_pdrop"),
                ("ffn_dim", "intermediate_size"),
                ("init_std", "initializer_range"),
                ("num_layers", "num_hidden_layers"),
            ],
            _ => &[],
        }
    }

    /// The fields that a `config.json` gives, by their names here.
    pub(super) fn renamed(self, mut given: Map<String, Value>) -> Map<String, Value> {
        for (own, here) in self.field_names() {
            if let Some(value) = given.remove(*own) {
                given.insert((*here).into(), value);
            }
        }
        match self {
            // Older files have this name.
            Self::Bloom | Self::Falcon => {
                if let Some(width) = given.remove("n_embed").filter(|width| !width.is_null()) {
                    given.insert("hidden_size".into(), width);
                }
            }
            // `num_local_experts` and `num_experts` are one field.
            Self::Olmoe | Self::Qwen3Moe => {
                if let Some(count) = given.remove("num_local_experts") {
                    given.entry("num_experts").or_insert(count);
                }
            }
            _ => {}
        }
        given
    }

    /// Sets the inner width of the feed-forward parts where it follows from that of the states.
    pub(super) fn set_inner_width(self, given: &Map<String, Value>, fields: &mut Map<String, Value>) {
        const INNER: &str = "intermediate_size";
        let follows = match self {
            Self::Bloom | Self::Mpt => true,
            Self::CodeGen | Self::Falcon | Self::GptBigCode | Self::GptJ | Self::GptNeo => {
                given.get(INNER).is_none_or(Value::is_null)
            }
            _ => false,
        };
        if let Some(width) = fields.get("hidden_size").and_then(Value::as_u64).filter(|_| follows) {
            fields.insert(INNER.into(), json!(width.saturating_mul(4)));
        }
    }

    /// The error with its field as this kind's `config.json` calls it.
    pub(super) fn with_own_field(self, error: Error) -> Error {
        let own = |field: String| match self.field_names().iter().find(|(_, here)| *here == field) {
            Some((own, _)) => (*own).into(),
            None => field,
        };
        match error {
            Error::Config { path, field, expected, found } => {
                Error::Config { path, field: own(field), expected, found }
            }
            Error::Json { path, field, source } => Error::Json { path, field: own(field), source },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::config::LlamaConfig, LlamaKind};

    fn read(kind: LlamaKind, text: &str) -> LlamaConfig {
        LlamaConfig::from_json(kind, Path::new("config.json"), text).unwrap()
    }

    /// `transformers` writes GPT-Neo's `intermediate_size` and GPT-J's `n_inner` as null by default.
    #[test]
    fn an_inner_width_that_is_null_is_four_times_the_width() {
        let neo = r#"{"hidden_size": 24, "intermediate_size": null}"#;
        assert_eq!(read(LlamaKind::GptNeo, neo).intermediate_size, 96);
        assert_eq!(read(LlamaKind::GptJ, r#"{"n_embd": 24, "n_inner": null}"#).intermediate_size, 96);
    }

    /// `transformers` ties the head of the whole model by its own setting, which is true by default.
    #[test]
    fn the_whole_model_says_whether_the_head_of_its_text_part_is_tied() {
        let is_tied = |whole: &str| {
            let text = format!(r#"{{{whole} "text_config": {{"tie_word_embeddings": false}}}}"#);
            let read = LlamaConfig::of_text_part(&[LlamaKind::Mistral], Path::new("config.json"), &text);
            read.unwrap().tie_word_embeddings
        };
        assert!(is_tied("") && is_tied(r#""tie_word_embeddings": true,"#));
        assert!(!is_tied(r#""tie_word_embeddings": false,"#));
    }

    /// `MptModel` of `transformers` computes its biases without `alibi_bias_max`.
    #[test]
    fn the_slopes_of_mpt_are_those_of_its_default() {
        let config = |most: &str| {
            read(
                LlamaKind::Mpt,
                &format!(r#"{{"attn_config": {{"alibi": true, "alibi_bias_max": {most}}}}}"#),
            )
        };
        let default = read(LlamaKind::Mpt, r#"{"attn_config": {"alibi": true}}"#);
        assert_eq!((config("4"), config("8")), (default.clone(), default));
    }
}
