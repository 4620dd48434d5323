//! The names of fields in the `config.json` of each kind.

use std::{borrow::Cow, path::Path};

use serde_json::{Map, Value, json};
use sporran_checkpoint::{Error, Result, json::parse};

use super::{
    gemma3n::read_gemma_3n,
    gemma4::read_gemma_4,
    kind::LlamaKind,
    positions::{FULL, SLIDING},
};

/// The fields of state space layers, and those of delta rules that they are here.
const STATE_SPACE_FIELDS: [(&str, &str); 6] = [
    ("mamba_conv_bias", "use_bias"),
    ("mamba_d_conv", "linear_conv_kernel_dim"),
    ("mamba_d_head", "linear_value_head_dim"),
    ("mamba_d_state", "linear_key_head_dim"),
    ("mamba_n_groups", "linear_num_key_heads"),
    ("mamba_n_heads", "linear_num_value_heads"),
];

/// The same with the factor of logits.
const FALCON_H1_FIELDS: [(&str, &str); 7] = [
    ("lm_head_multiplier", "logit_scale"),
    STATE_SPACE_FIELDS[0],
    STATE_SPACE_FIELDS[1],
    STATE_SPACE_FIELDS[2],
    STATE_SPACE_FIELDS[3],
    STATE_SPACE_FIELDS[4],
    STATE_SPACE_FIELDS[5],
];

/// The same with the fields of experts.
const GRANITE_HYBRID_FIELDS: [(&str, &str); 8] = [
    ("num_local_experts", "num_experts"),
    ("shared_intermediate_size", "shared_expert_intermediate_size"),
    STATE_SPACE_FIELDS[0],
    STATE_SPACE_FIELDS[1],
    STATE_SPACE_FIELDS[2],
    STATE_SPACE_FIELDS[3],
    STATE_SPACE_FIELDS[4],
    STATE_SPACE_FIELDS[5],
];

impl LlamaKind {
    /// The names of fields in this kind's `config.json`, and those that they have here.
    pub(crate) fn field_names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Bamba => &STATE_SPACE_FIELDS,
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
            Self::DeepSeekV2
            | Self::DeepSeekV3
            | Self::Dots1
            | Self::Glm4Moe
            | Self::Mistral4
            | Self::SolarOpen => &[("n_routed_experts", "num_experts")],
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
            Self::FalconH1 => &FALCON_H1_FIELDS,
            Self::Gemma4 => &[("top_k_experts", "num_experts_per_tok")],
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
            Self::GptOss | Self::GraniteMoe | Self::MiniMaxM2 | Self::Mixtral | Self::PhiMoe => {
                &[("num_local_experts", "num_experts")]
            }
            Self::GraniteMoeShared => &[
                ("num_local_experts", "num_experts"),
                ("shared_intermediate_size", "shared_expert_intermediate_size"),
            ],
            Self::GraniteHybrid => &GRANITE_HYBRID_FIELDS,
            Self::HunYuanMoe => &[("moe_topk", "num_experts_per_tok")],
            Self::Lfm2 | Self::Lfm2Moe => &[
                ("conv_L_cache", "linear_conv_kernel_dim"),
                ("conv_bias", "use_bias"),
                ("norm_eps", "rms_norm_eps"),
                ("num_dense_layers", "first_k_dense_replace"),
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
        for (other, here) in self.other_names() {
            if let Some(value) = given.remove(*other) {
                given.entry(*here).or_insert(value);
            }
        }
        // Older files have this name.
        if let Self::Bloom | Self::Falcon = self
            && let Some(width) = given.remove("n_embed").filter(|width| !width.is_null())
        {
            given.insert("hidden_size".into(), width);
        }
        given
    }

    /// The text of a `config.json` by the fields of today's files.
    pub(super) fn by_new_fields<'a>(self, path: &Path, text: &'a str) -> Result<Cow<'a, str>> {
        match self {
            Self::UltraBert => Self::by_types(parse(path, text)?),
            Self::Bamba | Self::FalconH1 | Self::GraniteHybrid => {
                Ok(self.by_mamba_fields(parse(path, text)?))
            }
            Self::Gemma3n => return read_gemma_3n(path, text).map(Cow::Owned),
            Self::Gemma4 => return read_gemma_4(path, text).map(Cow::Owned),
            Self::Lfm2 | Self::Lfm2Moe => self.by_plain_fields(path, parse(path, text)?),
            _ => return Ok(text.into()),
        }
        .map(|given| Value::Object(given).to_string().into())
    }

    /// The fields of UltraBERT, whose first files have windows and bases of angles by layer and not by type.
    fn by_types(mut given: Map<String, Value>) -> Result<Map<String, Value>> {
        let is_unset = |given: &Map<String, Value>, field: &str| given.get(field).is_none_or(Value::is_null);
        if let Some(Value::Array(windows)) = given.remove("attention_windows") {
            let is_near = |window: &Value| !window.is_null() && window != &json!(0);
            if let Some(first) = windows.iter().find(|window| is_near(window)) {
                given.insert("sliding_window".into(), first.clone());
            }
            if is_unset(&given, "layer_types") {
                let types = windows.iter().map(|window| if is_near(window) { SLIDING } else { FULL });
                given.insert("layer_types".into(), types.collect());
            }
        }
        if let Some(Value::Array(thetas)) = given.get("rope_theta").cloned() {
            given.remove("rope_theta");
            if is_unset(&given, "rope_parameters") {
                let usual = |layer: usize| json!(if (layer + 1).is_multiple_of(3) { FULL } else { SLIDING });
                let types = given.get("layer_types").and_then(Value::as_array);
                let kind = |layer: usize| match types {
                    Some(types) => types.get(layer).cloned(),
                    None => Some(usual(layer)),
                };
                // The last layer of a type decides.
                let named = |(layer, theta)| {
                    let kind = kind(layer)?.as_str()?.to_owned();
                    Some((kind, json!({"rope_type": "default", "rope_theta": theta})))
                };
                let ropes: Map<String, Value> = thetas.into_iter().enumerate().filter_map(named).collect();
                given.insert("rope_parameters".into(), ropes.into());
            }
        }
        Ok(given)
    }

    /// Second names of fields, which count where the first is not given, and the names of these here.
    fn other_names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::DeepSeekV3
            | Self::Dots1
            | Self::FlexOlmo
            | Self::Glm4Moe
            | Self::HunYuanMoe
            | Self::Mistral4
            | Self::Olmoe
            | Self::Qwen3Moe
            | Self::SolarOpen => &[("num_local_experts", "num_experts")],
            Self::InternLm3 => &[("qkv_bias", "attention_bias"), ("bias", "mlp_bias")],
            _ => &[],
        }
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

    use super::{
        super::{
            config::LlamaConfig,
            text_part::{MISTRAL_3, QWEN_3_VL, TextPart},
        },
        LlamaKind,
    };

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
        let is_tied = |parts: &[TextPart], whole: &str, own: bool| {
            let text = format!(r#"{{{whole} "text_config": {{"tie_word_embeddings": {own}}}}}"#);
            LlamaConfig::of_text_part(parts, Path::new("config.json"), &text).unwrap().tie_word_embeddings
        };
        let (tied, untied) = (r#""tie_word_embeddings": true,"#, r#""tie_word_embeddings": false,"#);
        assert!(is_tied(MISTRAL_3, "", false) && is_tied(MISTRAL_3, tied, false));
        assert!(!is_tied(MISTRAL_3, untied, true));
        assert!(is_tied(QWEN_3_VL, tied, false) && !is_tied(QWEN_3_VL, "", true));
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
