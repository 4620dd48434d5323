//! The config that the fields of a GGUF file are.

use candle_core::{Device, quantized::gguf_file::Value};
use candle_nn::Init;
use sporran_checkpoint::{GgufFields, GgufFile, Parameter, Result};

use crate::architectures::llama::{LlamaConfig, LlamaKind, MptAttention, NormKind, rope::RopeParameters};

/// The kind of the model whose `general.architecture` is `name`.
fn kind(fields: &GgufFields<'_>, name: &str) -> Result<LlamaKind> {
    Ok(match name {
        // Mistral and Mixtral have LLaMA's name.
        "llama" if fields.size_or_none("llama.expert_count")?.is_some_and(|count| count > 0) => {
            LlamaKind::Mixtral
        }
        "llama" if window(fields, name)?.is_some() => LlamaKind::Mistral,
        "llama" => LlamaKind::Llama,
        "qwen2" => LlamaKind::Qwen2,
        "qwen3" => LlamaKind::Qwen3,
        "gemma2" => LlamaKind::Gemma2,
        "gemma3" => LlamaKind::Gemma3,
        "smollm3" => LlamaKind::SmolLm3,
        "phi3" => LlamaKind::Phi3,
        // OLMo 3 has OLMo 2's name.
        "olmo2" if window(fields, name)?.is_some() => LlamaKind::Olmo3,
        "olmo2" => LlamaKind::Olmo2,
        "granite" => LlamaKind::Granite,
        "arcee" => LlamaKind::Arcee,
        "ernie4_5" => LlamaKind::Ernie45,
        "gemma" => LlamaKind::Gemma,
        "olmoe" => LlamaKind::Olmoe,
        "qwen2moe" => LlamaKind::Qwen2Moe,
        "qwen3moe" => LlamaKind::Qwen3Moe,
        "seed_oss" => LlamaKind::SeedOss,
        "bloom" => LlamaKind::Bloom,
        "cohere2" => LlamaKind::Cohere2,
        "command-r" => LlamaKind::Cohere,
        "exaone4" => LlamaKind::Exaone4,
        "falcon" => LlamaKind::Falcon,
        "glm4" => LlamaKind::Glm4,
        "gptneox" => LlamaKind::GptNeox,
        "mpt" => LlamaKind::Mpt,
        "nemotron" => LlamaKind::Nemotron,
        "phi2" => LlamaKind::Phi,
        "stablelm" => LlamaKind::StableLm,
        "starcoder2" => LlamaKind::Starcoder2,
        other => {
            let expected = "`llama`, `qwen2`, `qwen3`, `gemma`, `gemma2`, `gemma3`, `smollm3`, `phi3`, `olmo2`, \
                            `granite`, `arcee`, `ernie4_5`, `olmoe`, `qwen2moe`, `qwen3moe`, `seed_oss`, `bloom`, \
                            `cohere2`, `command-r`, `exaone4`, `falcon`, `glm4`, `gptneox`, `mpt`, `nemotron`, `phi2`, \
                            `stablelm` or `starcoder2`";
            return Err(fields.wrong("general.architecture", expected, format!("`{other}`")));
        }
    })
}

/// The tokens that layers with a sliding window attend to; 0 stands for none.
fn window(fields: &GgufFields<'_>, name: &str) -> Result<Option<usize>> {
    Ok(fields.size_or_none(&format!("{name}.attention.sliding_window"))?.filter(|window| *window > 0))
}

/// How angles are stretched.
fn scaling(fields: &GgufFields<'_>, name: &str) -> Result<Option<RopeParameters>> {
    let field = |field: &str| format!("{name}.rope.scaling.{field}");
    let kind = match fields.optional(&field("type")) {
        None => return Ok(None),
        Some(_) => fields.text(&field("type"))?,
    };
    let number = |name: &str| fields.number(&field(name));
    let scaling = RopeParameters {
        rope_type: Some(kind.into()),
        factor: number("factor")?,
        ..RopeParameters::default()
    };
    match kind {
        "none" => Ok(None),
        "linear" => Ok(Some(scaling)),
        "yarn" => {
            if let Some(part) = number("yarn_ext_factor")?.filter(|part| *part != 1.0) {
                return Err(fields.wrong(&field("yarn_ext_factor"), "1", part.to_string()));
            }
            // The factor of what the logarithm of `factor` gives.
            let own = number("yarn_attn_factor")?.or(number("attn_factor")?);
            let grown =
                scaling.factor.filter(|factor| *factor > 1.0).map_or(1.0, |factor| 0.1 * factor.ln() + 1.0);
            Ok(Some(RopeParameters {
                original_max_position_embeddings: fields.size_or_none(&field("original_context_length"))?,
                attention_factor: own.map(|own| own * grown),
                beta_fast: number("yarn_beta_fast")?,
                beta_slow: number("yarn_beta_slow")?,
                ..scaling
            }))
        }
        other => Err(fields.wrong(&field("type"), "`none`, `linear` or `yarn`", format!("`{other}`"))),
    }
}

pub(super) fn config(file: &GgufFile) -> Result<LlamaConfig> {
    let fields = file.fields();
    let name = fields.text("general.architecture")?;
    let kind = kind(&fields, name)?;
    let field = |field: &str| format!("{name}.{field}");
    let number = |name: &str| fields.number(&field(name));
    let heads = fields.size(&field("attention.head_count"))?;
    let width = fields.size(&field("embedding_length"))?;
    let layers = fields.size(&field("block_count"))?;
    let head = fields.size_or_none(&field("attention.key_length"))?;
    let head = head.unwrap_or(width / heads.max(1));
    let may_turn_part = kind.turned_part().is_some();
    let turned = fields.size_or_none(&field("rope.dimension_count"))?.filter(|turned| *turned != head);
    if let Some(turned) = turned.filter(|turned| !may_turn_part || *turned > head) {
        let expected = format!("the width of a head, {head}");
        return Err(fields.wrong(&field("rope.dimension_count"), &expected, turned.to_string()));
    }
    let has_roots = matches!(kind.norm_kind(), NormKind::Root | NormKind::RootAroundOne);
    let epsilon =
        field(if has_roots { "attention.layer_norm_rms_epsilon" } else { "attention.layer_norm_epsilon" });
    let eps = fields.number(&epsilon)?.ok_or_else(|| fields.wrong(&epsilon, "a number", "none"))?;
    let has_output_bias = file.has_tensor("blk.0.attn_output.bias");
    let has_input_bias = file.has_tensor("blk.0.attn_q.bias");
    let may_differ = matches!(
        kind,
        LlamaKind::Glm4 | LlamaKind::Qwen2 | LlamaKind::Qwen2Moe | LlamaKind::SeedOss | LlamaKind::StableLm
    );
    if has_input_bias && !has_output_bias && !may_differ {
        return Err(fields.wrong("blk.0.attn_q.bias", "no such tensor", "one"));
    }
    let defaults = kind.defaults();
    let mut config = LlamaConfig {
        kind,
        vocab_size: fields.list("tokenizer.ggml.tokens")?.len(),
        hidden_size: width,
        intermediate_size: fields.size(&field("feed_forward_length"))?,
        num_hidden_layers: layers,
        num_attention_heads: heads,
        num_key_value_heads: fields.size_or_none(&field("attention.head_count_kv"))?,
        head_dim: Some(head),
        max_position_embeddings: fields.size(&field("context_length"))?,
        rms_norm_eps: eps,
        layer_norm_eps: (!has_roots).then_some(eps),
        rope_theta: number("rope.freq_base")?,
        rope_scaling: match long_scaling(file, kind, turned.unwrap_or(head) / 2)? {
            None => scaling(&fields, name)?,
            long => long,
        },
        original_max_position_embeddings: None,
        rope_divisors: divisors(file, turned.unwrap_or(head) / 2)?,
        partial_rotary_factor: may_turn_part.then(|| turned.unwrap_or(head) as f64 / head as f64),
        attention_bias: if may_differ { has_input_bias } else { has_output_bias },
        attention_out_bias: Some(has_output_bias),
        use_bias: Some(if kind == LlamaKind::StableLm { has_input_bias } else { has_output_bias }),
        qkv_bias: Some(has_input_bias),
        clip_qkv: number("attention.clamp_kqv")?.filter(|most| *most > 0.0),
        mlp_bias: file.has_tensor("blk.0.ffn_down.bias"),
        tie_word_embeddings: !file.has_tensor("output.weight"),
        bos_token_id: fields.token("tokenizer.ggml.bos_token_id")?,
        eos_token_id: ends(&fields)?,
        pad_token_id: fields.token("tokenizer.ggml.padding_token_id")?,
        ..defaults
    };
    match kind {
        LlamaKind::Cohere2
        | LlamaKind::Exaone4
        | LlamaKind::Mistral
        | LlamaKind::Olmo3
        | LlamaKind::Phi3
        | LlamaKind::Starcoder2 => {
            config.sliding_window = window(&fields, name)?;
        }
        LlamaKind::Falcon => {
            let has_two_norms = file.has_tensor("blk.0.attn_norm_2.weight");
            let is_new = has_two_norms || config.num_key_value_heads.is_some_and(|groups| groups != 1);
            config.new_decoder_architecture = Some(is_new);
            config.num_ln_in_parallel_attn = Some(if has_two_norms { 2 } else { 1 });
        }
        LlamaKind::GptNeox | LlamaKind::StableLm => {
            if file.has_tensor("blk.0.attn_q_norm.weight") {
                return Err(fields.wrong("blk.0.attn_q_norm.weight", "no such tensor", "one"));
            }
            let parallel = field("use_parallel_residual");
            config.use_parallel_residual = match fields.optional(&parallel) {
                Some(Value::Bool(parallel)) => Some(*parallel),
                Some(other) => return Err(fields.wrong(&parallel, "true or false", format!("{other:?}"))),
                None => None,
            };
        }
        LlamaKind::Mpt => {
            config.attn_config = Some(MptAttention {
                clip_qkv: config.clip_qkv,
                alibi_bias_max: number("attention.max_alibi_bias")?,
                ..MptAttention::default()
            });
        }
        LlamaKind::Gemma2 | LlamaKind::Gemma3 => {
            config.sliding_window = window(&fields, name)?.or(config.sliding_window);
            let caps = (number("attn_logit_softcapping")?, number("final_logit_softcapping")?);
            config.attn_logit_softcapping = caps.0.or(config.attn_logit_softcapping);
            config.final_logit_softcapping = caps.1.or(config.final_logit_softcapping);
            // These files do not say it: models of 27 billion weights divide by the width for each head.
            let is_wide = layers == if kind == LlamaKind::Gemma2 { 46 } else { 62 };
            let scalar = if is_wide { width / heads.max(1) } else { head };
            config.query_pre_attn_scalar = Some(scalar as f64);
            config.rope_local_base_freq = number("rope.freq_base_swa")?;
        }
        LlamaKind::Mixtral | LlamaKind::Olmoe | LlamaKind::Qwen2Moe | LlamaKind::Qwen3Moe => {
            config.num_experts = Some(fields.size(&field("expert_count"))?);
            config.num_experts_per_tok = Some(fields.size(&field("expert_used_count"))?);
            config.moe_intermediate_size = fields.size_or_none(&field("expert_feed_forward_length"))?;
            config.shared_expert_intermediate_size =
                fields.size_or_none(&field("expert_shared_feed_forward_length"))?;
            // These files do not say it.
            config.norm_topk_prob = Some(kind == LlamaKind::Qwen3Moe);
        }
        LlamaKind::Granite => {
            config.embedding_multiplier = number("embedding_scale")?;
            config.residual_multiplier = number("residual_scale")?;
            config.attention_multiplier = number("attention.scale")?.or(Some((head as f64).powf(-0.5)));
            config.logits_scaling = number("logit_scale")?;
        }
        _ => {}
    }
    if matches!(kind, LlamaKind::Cohere | LlamaKind::Cohere2) {
        config.logit_scale = number("logit_scale")?;
        config.use_qk_norm = Some(file.has_tensor("blk.0.attn_q_norm.weight"));
    }
    if kind.has_two_ropes() && config.rope_divisors.is_some() {
        return Err(fields.wrong("rope_freqs.weight", "no such tensor", "one"));
    }
    Ok(config)
}

/// Angles that are others in long sequences, where the file has the divisors of the steps of `pairs` for both (Phi 3).
fn long_scaling(file: &GgufFile, kind: LlamaKind, pairs: usize) -> Result<Option<RopeParameters>> {
    const NAMES: [&str; 2] = ["rope_factors_short.weight", "rope_factors_long.weight"];
    let fields = file.fields();
    let Some(first) = NAMES.into_iter().find(|name| file.has_tensor(name)) else { return Ok(None) };
    if kind != LlamaKind::Phi3 {
        return Err(fields.wrong(first, "no such tensor in a model that is not Phi 3", "one"));
    }
    let divisors = |name: &str| -> Result<Option<Vec<f64>>> {
        let parameter = Parameter { name: name.into(), shape: pairs.into(), init: Init::Const(1.0) };
        file.check_tensor(name, parameter)?;
        let divisors: Vec<f32> = file.tensor(name, &Device::Cpu)?.to_vec1()?;
        Ok(Some(divisors.into_iter().map(f64::from).collect()))
    };
    Ok(Some(RopeParameters {
        rope_type: Some("longrope".into()),
        original_max_position_embeddings: fields.size_or_none("phi3.rope.scaling.original_context_length")?,
        attention_factor: fields.number("phi3.rope.scaling.attn_factor")?.or(Some(1.0)),
        short_factor: divisors(NAMES[0])?,
        long_factor: divisors(NAMES[1])?,
        ..RopeParameters::default()
    }))
}

/// The divisor of each of `pairs` steps of the angles, where the file has them, as for LLaMA 3.
fn divisors(file: &GgufFile, pairs: usize) -> Result<Option<Vec<f32>>> {
    const NAME: &str = "rope_freqs.weight";
    if !file.has_tensor(NAME) {
        return Ok(None);
    }
    let parameter = Parameter { name: NAME.into(), shape: pairs.into(), init: Init::Const(1.0) };
    file.check_tensor(NAME, parameter)?;
    Ok(Some(file.tensor(NAME, &Device::Cpu)?.to_vec1()?))
}

/// The tokens that end a sequence, and those that end a turn of it.
fn ends(fields: &GgufFields<'_>) -> Result<Vec<u32>> {
    let mut ends = Vec::new();
    for name in ["eos_token_id", "eot_token_id", "eom_token_id"] {
        let id = fields.token(&format!("tokenizer.ggml.{name}"))?;
        ends.extend(id.filter(|id| !ends.contains(id)));
    }
    Ok(ends)
}
