//! Checks of a config: what is not supported is an error that names its field.

use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    experts::{Experts, Weighing},
    kind::LlamaKind,
    names::Inputs,
    positions::{FULL, GLOBAL, LOCAL},
};
use crate::architectures::wrong::wrong;

/// The most experts of a layer.
const MOST_EXPERTS: usize = 1 << 12;
/// The most experts of all layers.
const MOST_EXPERTS_OF_ALL: usize = 1 << 17;
/// The most attention heads.
const MOST_HEADS: usize = 1 << 12;

impl LlamaConfig {
    /// Checks the settings of layers with a sliding window.
    fn check_windows(&self) -> Result<()> {
        // `transformers` writes 0 for a Qwen with experts and without a window.
        let is_none = self.kind == LlamaKind::Qwen2Moe && !self.use_sliding_window;
        if self.sliding_window == Some(0) && !is_none {
            return Err(wrong("sliding_window", "at least 1", "0"));
        }
        // `transformers` writes 0 for an EXAONE 4 without a window.
        let is_none = self.kind == LlamaKind::Exaone4 && self.sliding_window.is_none();
        if self.sliding_window_pattern == Some(0) && !is_none {
            return Err(wrong("sliding_window_pattern", "at least 1", "0"));
        }
        if self.use_bidirectional_attention == Some(true) && self.kind != LlamaKind::Gemma3 {
            return Err(wrong("use_bidirectional_attention", "false", "true"));
        }
        if self.is_bidirectional() && self.has_biases() {
            return Err(wrong("is_causal", "true", "false"));
        }
        let layers = self.num_hidden_layers;
        if let Some(types) = &self.attention_types {
            let count = types.iter().fold(0usize, |count, (types, times)| {
                count.saturating_add(types.len().saturating_mul(*times))
            });
            if count != layers {
                let expected = format!("types for {layers} layers");
                return Err(wrong("attention_types", &expected, &format!("for {count}")));
            }
            let mut all = types.iter().flat_map(|(types, _)| types);
            if let Some(other) = all.find(|kind| ![LOCAL, GLOBAL].contains(&kind.as_str())) {
                let expected = format!("`{GLOBAL}` or `{LOCAL}`");
                return Err(wrong("attention_types", &expected, &format!("`{other}`")));
            }
        }
        if let Some(types) = &self.layer_types {
            if types.len() < layers {
                let expected = format!("a type for each of {layers} layers");
                return Err(wrong("layer_types", &expected, &types.len().to_string()));
            }
            let other = self.other_layer_type();
            if let Some(found) = types.iter().find(|kind| ![FULL, other].contains(&kind.as_str())) {
                let (expected, other) = (format!("`{FULL}` or `{other}`"), found);
                return Err(wrong("layer_types", &expected, &format!("`{other}`")));
            }
        }
        if self.use_sliding_window && !self.kind.has_window() {
            return Err(wrong("use_sliding_window", "false", "true"));
        }
        if let Some(turned) = self.no_rope_layers.as_ref().filter(|turned| turned.len() < layers) {
            let expected = format!("a number for each of {layers} layers");
            return Err(wrong("no_rope_layers", &expected, &turned.len().to_string()));
        }
        if let Some(thetas) = &self.layer_rope_theta {
            if self.kind != LlamaKind::GraniteSwa {
                return Err(wrong("layer_rope_theta", "null", &format!("{thetas:?}")));
            }
            if thetas.len() < layers {
                let expected = format!("a number for each of {layers} layers");
                return Err(wrong("layer_rope_theta", &expected, &thetas.len().to_string()));
            }
            if let Some(theta) = thetas.iter().find(|theta| !(**theta >= 0.0 && theta.is_finite())) {
                return Err(wrong("layer_rope_theta", "numbers from 0", &theta.to_string()));
            }
        }
        if self.no_rope_layer_interval == Some(0) {
            return Err(wrong("no_rope_layer_interval", "at least 1", "0"));
        }
        Ok(())
    }

    /// Checks all settings, whose fields errors call as they are called here.
    pub(super) fn check(&self) -> Result<()> {
        for (field, size) in [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.dense_width()),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("num_key_value_heads", self.groups()),
            ("max_position_embeddings", self.max_position_embeddings),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        let heads = self.num_attention_heads;
        if heads > MOST_HEADS {
            return Err(wrong("num_attention_heads", &format!("at most {MOST_HEADS}"), &heads.to_string()));
        }
        let is_latent = self.kind.is_latent();
        if self.head_dim.is_none() && !is_latent && !self.hidden_size.is_multiple_of(self.num_attention_heads)
        {
            let expected = format!("a divisor of hidden_size, {}", self.hidden_size);
            return Err(wrong("num_attention_heads", &expected, &self.num_attention_heads.to_string()));
        }
        let width = self.head_width();
        if width == 0 || !(width.is_multiple_of(2) || is_latent) {
            return Err(wrong("head_dim", "an even number", &width.to_string()));
        }
        if self.num_attention_heads.checked_mul(width).is_none_or(|width| width > i32::MAX as usize) {
            let expected = format!("at most {} as the width of all heads", i32::MAX);
            let found = format!("{width} for each of {}", self.num_attention_heads);
            return Err(wrong("head_dim", &expected, &found));
        }
        if !self.num_attention_heads.is_multiple_of(self.groups()) {
            let expected = format!("a divisor of num_attention_heads, {}", self.num_attention_heads);
            return Err(wrong("num_key_value_heads", &expected, &self.groups().to_string()));
        }
        self.check_kind()?;
        self.check_windows()?;
        self.check_factors()?;
        self.check_experts()?;
        self.query_growth()?;
        let ropes = self.ropes()?;
        if let (Some(divisors), Some(rope)) = (&self.rope_divisors, ropes.first())
            && divisors.len() != rope.pairs()
        {
            let expected = format!("a number for each of {} pairs", rope.pairs());
            return Err(wrong("rope_divisors", &expected, &divisors.len().to_string()));
        }
        self.gate().map(|_| ())
    }

    /// Checks the settings of single kinds.
    fn check_kind(&self) -> Result<()> {
        let width = self.hidden_size / self.num_attention_heads;
        if !self.kind.has_head_dim()
            && let Some(found) = self.head_dim.filter(|found| *found != width)
        {
            let expected = format!("hidden_size by num_attention_heads, {width}");
            return Err(wrong("head_dim", &expected, &found.to_string()));
        }
        if matches!(self.kind, LlamaKind::GptNeox | LlamaKind::Opt)
            && self.groups() != self.num_attention_heads
        {
            let expected = format!("num_attention_heads, {}", self.num_attention_heads);
            return Err(wrong("num_key_value_heads", &expected, &self.groups().to_string()));
        }
        if matches!(self.inputs(), Inputs::InQuarters(_)) && !self.num_attention_heads.is_multiple_of(4) {
            let found = self.num_attention_heads.to_string();
            return Err(wrong("num_attention_heads", "a multiple of 4", &found));
        }
        if self.apply_residual_connection_post_layernorm == Some(true) {
            return Err(wrong("apply_residual_connection_post_layernorm", "false", "true"));
        }
        if self.embedding_width() == 0 {
            return Err(wrong("word_embed_proj_dim", "at least 1", "0"));
        }
        if self.kind == LlamaKind::InternLm3 && self.attention_bias != self.mlp_bias {
            let (expected, found) = (format!("{} as attention_bias", self.attention_bias), self.mlp_bias);
            return Err(wrong("mlp_bias", &expected, &found.to_string()));
        }
        if self.add_cross_attention == Some(true) {
            return Err(wrong("add_cross_attention", "false", "true"));
        }
        self.check_latent()?;
        self.check_recurrence()?;
        self.check_gemma_3n()?;
        self.check_gemma_4()?;
        self.check_falcon()?;
        self.check_mpt()?;
        if self.tie_word_embeddings && self.head_has_bias() {
            return Err(wrong("tie_word_embeddings", "false", "true"));
        }
        Ok(())
    }

    /// Checks the sizes of attention over narrow vectors.
    fn check_latent(&self) -> Result<()> {
        let Some(sizes) = self.latent() else { return Ok(()) };
        for (field, size) in [
            ("q_lora_rank", sizes.queries.unwrap_or(1)),
            ("kv_lora_rank", sizes.sources),
            ("qk_rope_head_dim", sizes.turned),
            ("qk_nope_head_dim", sizes.plain),
            ("v_head_dim", sizes.values),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        if sizes.values > sizes.width() {
            let expected = format!("at most qk_nope_head_dim and qk_rope_head_dim, {}", sizes.width());
            return Err(wrong("v_head_dim", &expected, &sizes.values.to_string()));
        }
        let heads = self.num_attention_heads;
        match self.num_key_value_heads.filter(|found| *found != heads) {
            Some(found) => Err(wrong(
                "num_key_value_heads",
                &format!("num_attention_heads, {heads}"),
                &found.to_string(),
            )),
            None => Ok(()),
        }
    }

    /// Checks how experts are chosen.
    fn check_choice(&self, experts: &Experts) -> Result<()> {
        let (methods, scoring): (&[&str], _) = match self.kind {
            LlamaKind::DeepSeekV2 => (&["greedy", "group_limited_greedy"], "softmax"),
            LlamaKind::Mistral4 => (&["noaux_tc"], "softmax"),
            _ => (&["noaux_tc"], "sigmoid"),
        };
        if let Some(other) = self.topk_method.as_deref().filter(|method| !methods.contains(method)) {
            let expected = methods.iter().map(|method| format!("`{method}`")).collect::<Vec<_>>();
            return Err(wrong("topk_method", &expected.join(" or "), &format!("`{other}`")));
        }
        if let Some(other) = self.scoring_func.as_deref().filter(|found| *found != scoring) {
            return Err(wrong("scoring_func", &format!("`{scoring}`"), &format!("`{other}`")));
        }
        if self.kind == LlamaKind::DeepSeekV2 && self.norm_topk_prob == Some(true) {
            return Err(wrong("norm_topk_prob", "false", "true"));
        }
        if matches!(experts.weighing, Weighing::Near(_)) && experts.chosen != 2 {
            return Err(wrong("num_experts_per_tok", "2", &experts.chosen.to_string()));
        }
        for (field, value) in
            [("routed_scaling_factor", self.routed_scaling_factor), ("swiglu_limit", self.swiglu_limit)]
        {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(wrong(field, "a number above 0", &value.to_string()));
            }
        }
        let Some(groups) = experts.groups else { return Ok(()) };
        let size = experts.count / groups.count.max(1);
        if size < groups.summed || !experts.count.is_multiple_of(groups.count.max(1)) || groups.count == 0 {
            let expected = format!("a divisor of n_routed_experts, {}, with larger groups", experts.count);
            return Err(wrong("n_group", &expected, &groups.count.to_string()));
        }
        let least = experts.chosen.div_ceil(size);
        if !(least..=groups.count).contains(&groups.chosen) {
            let expected = format!("{least} to n_group, {}", groups.count);
            return Err(wrong("topk_group", &expected, &groups.chosen.to_string()));
        }
        Ok(())
    }

    /// Checks the shape of Falcon's layers.
    fn check_falcon(&self) -> Result<()> {
        if self.kind != LlamaKind::Falcon {
            return Ok(());
        }
        let is_new = self.new_decoder_architecture == Some(true);
        if is_new && self.parallel_attn == Some(false) {
            return Err(wrong("parallel_attn", "true with new_decoder_architecture", "false"));
        }
        let most = if is_new { 2 } else { 1 };
        match self.num_ln_in_parallel_attn.filter(|norms| !(1..=most).contains(norms)) {
            Some(norms) => Err(wrong("num_ln_in_parallel_attn", &format!("1 to {most}"), &norms.to_string())),
            None => Ok(()),
        }
    }

    /// Checks the settings of MPT's attention.
    fn check_mpt(&self) -> Result<()> {
        let Some(attention) = self.attn_config.as_ref().filter(|_| self.kind == LlamaKind::Mpt) else {
            return Ok(());
        };
        if let Some(other) = attention.attn_type.as_deref().filter(|kind| *kind != "multihead_attention") {
            return Err(wrong("attn_config.attn_type", "`multihead_attention`", &format!("`{other}`")));
        }
        for (field, value, only) in [
            ("prefix_lm", attention.prefix_lm, false),
            ("qk_ln", attention.qk_ln, false),
            ("alibi", attention.alibi, true),
        ] {
            if let Some(found) = value.filter(|found| *found != only) {
                return Err(wrong(&format!("attn_config.{field}"), &only.to_string(), &found.to_string()));
            }
        }
        for (field, value) in [
            ("softmax_scale", attention.softmax_scale),
            ("clip_qkv", attention.clip_qkv),
            ("alibi_bias_max", attention.alibi_bias_max),
        ] {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(wrong(&format!("attn_config.{field}"), "a number above 0", &value.to_string()));
            }
        }
        Ok(())
    }

    /// Checks the mixtures of experts.
    fn check_experts(&self) -> Result<()> {
        let Some(experts) = self.expert_sizes() else { return Ok(()) };
        for (field, size) in [
            ("num_experts", experts.count),
            ("num_experts_per_tok", experts.chosen),
            ("moe_intermediate_size", experts.width),
            (self.shared_field(), experts.shared.map_or(1, |shared| shared.width)),
            ("moe_layer_interval", self.moe_layer_interval.unwrap_or(1)),
            ("decoder_sparse_step", self.decoder_sparse_step.unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(wrong(field, "at least 1", "0"));
            }
        }
        if experts.count > MOST_EXPERTS {
            return Err(wrong("num_experts", &format!("at most {MOST_EXPERTS}"), &experts.count.to_string()));
        }
        let all = experts.count.saturating_mul(self.num_hidden_layers);
        if all > MOST_EXPERTS_OF_ALL {
            let expected = format!("at most {MOST_EXPERTS_OF_ALL} in all layers");
            return Err(wrong("num_experts", &expected, &all.to_string()));
        }
        if experts.chosen > experts.count {
            let expected = format!("at most num_experts, {}", experts.count);
            return Err(wrong("num_experts_per_tok", &expected, &experts.chosen.to_string()));
        }
        self.check_choice(&experts)
    }

    /// The field that the width of the part follows from that every token reads beside experts.
    fn shared_field(&self) -> &'static str {
        match self.kind {
            LlamaKind::GraniteHybrid
            | LlamaKind::GraniteMoeShared
            | LlamaKind::Qwen2Moe
            | LlamaKind::Qwen35Moe
            | LlamaKind::Qwen3Next => "shared_expert_intermediate_size",
            _ => "n_shared_experts",
        }
    }

    /// Checks the factors and bounds of states, scores and logits.
    fn check_factors(&self) -> Result<()> {
        for (field, value) in [
            ("query_pre_attn_scalar", self.query_pre_attn_scalar),
            ("attn_logit_softcapping", self.attn_logit_softcapping),
            ("final_logit_softcapping", self.final_logit_softcapping),
            ("attention_in_multiplier", self.attention_in_multiplier),
            ("attention_out_multiplier", self.attention_out_multiplier),
            ("key_multiplier", self.key_multiplier),
            ("ssm_in_multiplier", self.ssm_in_multiplier),
            ("ssm_out_multiplier", self.ssm_out_multiplier),
            ("embedding_multiplier", self.embedding_multiplier),
            ("residual_multiplier", self.residual_multiplier),
            ("attention_multiplier", self.attention_multiplier),
            ("logits_scaling", self.logits_scaling),
            ("logit_scale", self.logit_scale),
            ("clip_qkv", self.clip_qkv),
            ("scale_emb", self.scale_emb),
            ("scale_depth", self.scale_depth),
            ("dim_model_base", self.dim_model_base.map(|base| base as f64)),
        ] {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return Err(wrong(field, "a number above 0", &value.to_string()));
            }
        }
        if let Some(cap) = self.attn_logit_softcapping.filter(|_| self.kind == LlamaKind::Gemma3) {
            return Err(wrong("attn_logit_softcapping", "null", &cap.to_string()));
        }
        let [_, part_dropout] = self.part_dropouts();
        for (field, rate) in [
            ("attention_dropout", self.score_dropout()),
            ("resid_pdrop", part_dropout),
            ("embd_pdrop", self.embedding_dropout()),
            ("classifier_dropout", self.label_dropout()),
        ] {
            if !(0.0..1.0).contains(&rate) {
                return Err(wrong(field, "at least 0 and below 1", &rate.to_string()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{LlamaConfig, LlamaKind};
    use crate::architectures::llama::rope::RopeParameters;
    use sporran_checkpoint::Architecture;

    #[test]
    fn what_is_not_supported_is_refused() {
        assert!(LlamaConfig::default().validate().is_ok());
        let scaled = RopeParameters { rope_type: Some("axial".into()), ..RopeParameters::default() };
        let error =
            LlamaConfig { rope_scaling: Some(scaled), ..LlamaConfig::default() }.validate().unwrap_err();
        let expected = "config.json: field `rope_scaling.rope_type`: expected the rope type `default`, `linear`, \
                        `dynamic`, `yarn`, `llama3`, `longrope` or `proportional`, found `axial`";
        assert_eq!(error.to_string(), expected);
        assert!(LlamaConfig { use_sliding_window: true, ..LlamaConfig::default() }.validate().is_err());
        assert!(LlamaConfig { num_key_value_heads: Some(5), ..LlamaConfig::default() }.validate().is_err());
        assert!(LlamaConfig { head_dim: Some(3), ..LlamaConfig::default() }.validate().is_err());
        assert!(LlamaConfig { head_dim: Some(1 << 62), ..LlamaConfig::default() }.validate().is_err());
    }

    #[test]
    fn counts_that_no_file_can_hold_are_refused_by_name() {
        let many = LlamaConfig { num_hidden_layers: 2_147_483_647, ..LlamaConfig::default() };
        assert!(many.check_sizes().is_ok());
        let error = many.check_layers(29).unwrap_err().to_string();
        let expected = "config.json: field `num_hidden_layers`: expected no more layers than the weights have tensors, \
                        29, found 2147483647";
        assert_eq!(error, expected);
        let wide = LlamaConfig { hidden_size: 1 << 40, ..LlamaConfig::default() };
        let error = wide.check_sizes().unwrap_err().to_string();
        assert_eq!(
            error,
            "config.json: field `hidden_size`: expected at most 2147483647, found 1099511627776"
        );
        assert!(LlamaConfig::default().check_layers(32).is_ok());
    }

    #[test]
    fn settings_of_other_kinds_are_refused_by_name() {
        let refused = |config: LlamaConfig, field: &str| {
            let error = config.validate().unwrap_err().to_string();
            assert!(error.contains(&format!("field `{field}`")), "{error}");
        };
        let types = Some(vec!["chunked_attention".into(); 32]);
        refused(LlamaConfig { layer_types: types, ..LlamaKind::Qwen3.defaults() }, "layer_types");
        let short = Some(vec!["full_attention".into()]);
        refused(LlamaConfig { layer_types: short, ..LlamaKind::Qwen3.defaults() }, "layer_types");
        let part = Some(0.5);
        refused(
            LlamaConfig { partial_rotary_factor: part, ..LlamaConfig::default() },
            "partial_rotary_factor",
        );
        assert!(LlamaConfig { partial_rotary_factor: part, ..LlamaKind::Phi3.defaults() }.validate().is_ok());
        let cap = Some(50.0);
        refused(
            LlamaConfig { attn_logit_softcapping: cap, ..LlamaKind::Gemma3.defaults() },
            "attn_logit_softcapping",
        );
        let other = Some("prelu".into());
        refused(
            LlamaConfig { hidden_activation: other, ..LlamaKind::Gemma2.defaults() },
            "hidden_activation",
        );
        let both = Some(true);
        refused(
            LlamaConfig { use_bidirectional_attention: both, ..LlamaKind::Qwen3.defaults() },
            "use_bidirectional_attention",
        );
        refused(LlamaConfig { is_causal: Some(false), ..LlamaKind::Mpt.defaults() }, "is_causal");
        refused(
            LlamaConfig { num_experts_per_tok: Some(9), ..LlamaKind::Mixtral.defaults() },
            "num_experts_per_tok",
        );
        refused(LlamaConfig { num_experts: Some(0), ..LlamaKind::Olmoe.defaults() }, "num_experts");
        refused(LlamaConfig { num_hidden_layers: 1 << 17, ..LlamaKind::Olmoe.defaults() }, "num_experts");
        // A mixture of a layer after many others is checked too.
        let late = LlamaConfig {
            num_hidden_layers: 1100,
            decoder_sparse_step: Some(1100),
            num_experts: Some(64),
            num_experts_per_tok: Some(65),
            ..LlamaKind::Qwen3Moe.defaults()
        };
        refused(late, "num_experts_per_tok");
        refused(
            LlamaConfig { num_attention_heads: 1 << 13, ..LlamaConfig::default() },
            "num_attention_heads",
        );
        let none = LlamaConfig {
            sliding_window: None,
            sliding_window_pattern: Some(0),
            ..LlamaKind::Exaone4.defaults()
        };
        assert!(none.validate().is_ok());
        refused(LlamaConfig { sliding_window: Some(8), ..none }, "sliding_window_pattern");
        refused(
            LlamaConfig { num_ln_in_parallel_attn: Some(2), ..LlamaKind::Falcon.defaults() },
            "num_ln_in_parallel_attn",
        );
        refused(LlamaConfig { rotary_dim: None, ..LlamaKind::GptJ.defaults() }, "rotary_dim");
        refused(LlamaConfig { num_attention_heads: 2, ..LlamaKind::CodeGen.defaults() }, "n_head");
        refused(
            LlamaConfig { attention_multiplier: Some(0.0), ..LlamaKind::Granite.defaults() },
            "attention_multiplier",
        );
    }
}
