//! The loaders of model folders whose architectures candle has; the registry lists them.

use candle_core::{DType, Result as CandleResult, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{
    bigcode, deepseek2, falcon, gemma, gemma2, gemma3, glm4_new, granite, helium, llama, mistral, mixtral,
    olmo, olmo2, phi, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, stable_lm, starcoder2,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sporran_checkpoint::{Error, Result};

use super::{
    config::Settings,
    sequence::{CandleModel, Cloned, Made, Read},
    weights::Weights,
};

/// Makes a model from its settings, which it completes, and its weights.
pub(crate) type Load = fn(&mut Settings, &Weights) -> Result<Box<dyn CandleModel>>;

/// A model that is cloned for each sequence.
pub(super) fn cloned<C: DeserializeOwned, M: Clone + Send + Sync + 'static>(
    settings: &Settings,
    weights: &Weights,
    new: impl FnOnce(&C, VarBuilder<'static>) -> CandleResult<M>,
    read: Read<M>,
) -> Result<Box<dyn CandleModel>> {
    let config = settings.typed()?;
    let model = new(&config, weights.vb.clone()).map_err(|error| weights.error(error))?;
    Ok(Box::new(Cloned { model, read }))
}

/// Checks settings that a model does not read.
pub(super) fn must_be(settings: &Settings, fixed: &[(&str, Value)]) -> Result<()> {
    fixed.iter().try_for_each(|(field, expected)| settings.must_be(field, expected))
}

/// Checks that heads share the width of the states, as models do that do not read `head_dim`.
fn heads_share_the_width(settings: &Settings) -> Result<()> {
    let width = settings.needed("hidden_size")? / settings.needed("num_attention_heads")?;
    settings.must_be("head_dim", &json!(width))
}

/// A model that is made for each sequence.
fn made<M: Send + Sync + 'static>(
    weights: &Weights,
    new: impl Fn(VarBuilder<'static>) -> CandleResult<M> + Send + Sync + 'static,
    read: Read<M>,
) -> Result<Box<dyn CandleModel>> {
    let vb = weights.vb.clone();
    let make = std::sync::Arc::new(move || new(vb.clone()));
    let model = make().map_err(|error| weights.error(error))?;
    Ok(Box::new(Made { make, model, read }))
}

/// Of DeepSeek V2's ways to choose experts, candle has `greedy` as `transformers` has it.
pub(crate) fn load_deepseek2(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    let (heads, turned) = (settings.needed("num_attention_heads")?, settings.needed("qk_rope_head_dim")?);
    must_be(
        settings,
        &[
            ("head_dim", json!(turned)),
            ("mlp_bias", json!(false)),
            ("moe_layer_freq", json!(1)),
            ("norm_topk_prob", json!(false)),
            ("num_key_value_heads", json!(heads)),
            // `transformers` has it so in the norms within attention.
            ("rms_norm_eps", json!(1e-6)),
            ("scoring_func", json!("softmax")),
            ("topk_method", json!("greedy")),
        ],
    )?;
    for field in ["n_routed_experts", "n_shared_experts", "num_experts_per_tok"] {
        settings.needed(field)?;
    }
    for (field, default) in
        [("attention_bias", json!(false)), ("rms_norm_eps", json!(1e-6)), ("rope_theta", json!(10_000.0))]
    {
        settings.set_missing(field, default);
    }
    settings.check_angles(turned)?;
    // It reads these for the other ways.
    settings.set("n_group", 1);
    settings.set("topk_group", 1);
    let config: deepseek2::DeepSeekV2Config = settings.typed()?;
    let new = move |vb| deepseek2::DeepSeekV2::new(&config, vb);
    made(weights, new, deepseek2::DeepSeekV2::forward)
}

/// The most positions of GPT-BigCode: its mask is a table of all pairs of them.
const MOST_PAIRED: usize = 1 << 14;

pub(crate) fn load_bigcode(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    must_be(
        settings,
        &[
            ("activation_function", json!("gelu_pytorch_tanh")),
            ("add_cross_attention", json!(false)),
            ("multi_query", json!(true)),
            ("scale_attn_weights", json!(true)),
            ("tie_word_embeddings", json!(true)),
        ],
    )?;
    if weights.vb.dtype() != DType::F32 {
        return Err(Error::Options {
            option: "precision",
            expected: "`f32` for GPT-BigCode with the engine `candle`".into(),
            found: format!("`{}`", weights.vb.dtype().as_str()),
        });
    }
    let positions = settings.needed("max_position_embeddings")?;
    if positions > MOST_PAIRED {
        return Err(settings.wrong("n_positions", &format!("at most {MOST_PAIRED}"), &positions.into()));
    }
    let epsilon = settings.get("layer_norm_epsilon").cloned().unwrap_or(json!(1e-5));
    let layer_norm_epsilon =
        epsilon.as_f64().ok_or_else(|| settings.wrong("layer_norm_epsilon", "a number", &epsilon))?;
    let (vocab_size, hidden_size) = (settings.needed("vocab_size")?, settings.needed("hidden_size")?);
    let num_hidden_layers = settings.needed("num_hidden_layers")?;
    let num_attention_heads = settings.needed("num_attention_heads")?;
    let n_inner = settings.size("n_inner");
    let new = move |vb| {
        let config = bigcode::Config {
            vocab_size,
            max_position_embeddings: positions,
            num_hidden_layers,
            hidden_size,
            layer_norm_epsilon,
            n_inner,
            num_attention_heads,
            multi_query: true,
            use_cache: true,
        };
        bigcode::GPTBigCode::load(vb, config)
    };
    made(weights, new, bigcode::GPTBigCode::forward)
}

/// Its GELU is the approximation by tanh, so its logits differ slightly from those of `transformers`.
pub(crate) fn load_falcon(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    let width = settings.needed("hidden_size")?;
    must_be(
        settings,
        &[
            ("activation", json!("gelu")),
            ("alibi", json!(false)),
            ("multi_query", json!(true)),
            ("new_decoder_architecture", json!(false)),
            ("ffn_hidden_size", json!(4 * width)),
            ("rope_theta", json!(10_000)),
        ],
    )?;
    // It counts heads of keys by `multi_query` alone, and has this many positions.
    settings.remove("num_kv_heads");
    let positions = settings.size("max_position_embeddings").unwrap_or(2048);
    settings.set("max_position_embeddings", positions.min(5000));
    cloned(
        settings,
        weights,
        |config: &falcon::Config, vb| falcon::Falcon::load(vb, config.clone()),
        |model, ids, _| model.forward(ids),
    )
}

pub(crate) fn load_gemma(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    // `transformers` reads `hidden_act` alone, of which the first files say `gelu` and mean its approximation.
    settings.remove("hidden_activation");
    if settings.get("hidden_act").is_none_or(|activation| activation == "gelu") {
        settings.set("hidden_act", "gelu_pytorch_tanh");
    }
    must_be(settings, &[("use_bidirectional_attention", json!(false))])?;
    cloned(settings, weights, |config, vb| gemma::Model::new(false, config, vb), gemma::Model::forward)
}

pub(crate) fn load_gemma2(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    must_be(settings, &[("use_bidirectional_attention", json!(false))])?;
    settings.must_say("query_pre_attn_scalar", &json!(settings.needed("head_dim")?))?;
    cloned(settings, weights, |config, vb| gemma2::Model::new(false, config, vb), gemma2::Model::forward)
}

pub(crate) fn load_gemma3(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    let pattern = settings.size("sliding_window_pattern").or(settings.size("_sliding_window_pattern"));
    let pattern = pattern.unwrap_or(6).max(1);
    settings.set("sliding_window_pattern", pattern);
    let layers = settings.needed("num_hidden_layers")?;
    let kind = |layer: usize| {
        if layer.is_multiple_of(pattern) { "full_attention" } else { "sliding_attention" }
    };
    let kinds: Vec<&str> = (1..=layers).map(kind).collect();
    must_be(settings, &[("layer_types", json!(kinds)), ("use_bidirectional_attention", json!(false))])?;
    settings.must_say("query_pre_attn_scalar", &json!(settings.needed("head_dim")?))?;
    // Its cache takes several tokens at once only where values have one head.
    let read = match settings.size("num_key_value_heads") {
        Some(1) => gemma3::Model::forward as Read<gemma3::Model>,
        _ => read_one_by_one,
    };
    cloned(settings, weights, |config, vb| gemma3::Model::new(false, config, vb), read)
}

fn read_one_by_one(model: &mut gemma3::Model, ids: &Tensor, past: usize) -> CandleResult<Tensor> {
    let mut logits = model.forward(&ids.narrow(1, 0, 1)?, past)?;
    for at in 1..ids.dim(1)? {
        logits = model.forward(&ids.narrow(1, at, 1)?, past + at)?;
    }
    Ok(logits)
}

/// Candle's model has none of Granite's multipliers, and divides the scores of attention as LLaMA does.
pub(crate) fn load_granite(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    let ones = ["embedding_multiplier", "residual_multiplier", "logits_scaling"];
    must_be(settings, &ones.map(|field| (field, json!(1))))?;
    let width = settings.needed("hidden_size")? / settings.needed("num_attention_heads")?;
    settings.must_say("attention_multiplier", &json!(1.0 / (width as f64).sqrt()))?;
    let config = settings.typed::<granite::GraniteConfig>()?.into_config(false);
    let vb = weights.vb.clone();
    let cache = granite::Cache::new(true, vb.dtype(), &config, vb.device());
    let model = cache.and_then(|cache| Ok((granite::Granite::load(vb, &config)?, cache)));
    let model = model.map_err(|error| weights.error(error))?;
    Ok(Box::new(Cloned { model, read: |(model, cache), ids, past| model.forward(ids, past, cache) }))
}

pub(crate) fn load_llama(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    must_be(settings, &[("hidden_act", json!("silu"))])?;
    let config = settings.typed::<llama::LlamaConfig>()?.into_config(false);
    let vb = weights.vb.clone();
    let cache = llama::Cache::new(true, vb.dtype(), &config, vb.device());
    let model = cache.and_then(|cache| Ok((llama::Llama::load(vb, &config)?, cache)));
    let model = model.map_err(|error| weights.error(error))?;
    Ok(Box::new(Cloned { model, read: |(model, cache), ids, past| model.forward(ids, past, cache) }))
}

pub(crate) fn load_mixtral(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    settings.set("use_flash_attn", false);
    see_everything(settings)?;
    cloned(settings, weights, mixtral::Model::new, mixtral::Model::forward)
}

pub(crate) fn load_olmo2(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    settings.must_be("clip_qkv", &Value::Null)?;
    cloned(settings, weights, olmo2::Model::new, olmo2::Model::forward)
}

pub(crate) fn load_qwen2(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    must_be(settings, &[("use_sliding_window", json!(false))])?;
    settings.set("use_sliding_window", false);
    see_everything(settings)?;
    settings.set("max_window_layers", 0);
    cloned(settings, weights, qwen2::ModelForCausalLM::new, qwen2::ModelForCausalLM::forward)
}

pub(crate) fn load_qwen2_moe(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    let fixed =
        [("use_sliding_window", json!(false)), ("mlp_only_layers", json!([])), ("qkv_bias", json!(true))];
    must_be(settings, &fixed)?;
    settings.set("use_sliding_window", false);
    see_everything(settings)?;
    cloned(settings, weights, qwen2_moe::Model::new, qwen2_moe::Model::forward)
}

pub(crate) fn load_qwen3_moe(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    must_be(settings, &[("use_sliding_window", json!(false))])?;
    must_be(settings, &[("mlp_only_layers", json!([]))])?;
    if let Some(experts) = settings.size("num_local_experts") {
        settings.set("num_experts", experts);
    }
    if settings.get("max_window_layers").is_none() {
        settings.set("max_window_layers", 0);
    }
    cloned(settings, weights, qwen3_moe::ModelForCausalLM::new, qwen3_moe::ModelForCausalLM::forward)
}

pub(crate) fn load_stable_lm(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    must_be(settings, &[("use_parallel_residual", json!(false)), ("qk_layernorm", json!(false))])?;
    settings.set("use_cache", true);
    let config: stable_lm::Config = settings.typed()?;
    made(weights, move |vb| stable_lm::Model::new(&config, vb), stable_lm::Model::forward)
}

pub(crate) fn load_glm4(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    cloned(settings, weights, glm4_new::ModelForCausalLM::new, glm4_new::ModelForCausalLM::forward)
}

pub(crate) fn load_helium(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    cloned(settings, weights, helium::Model::new, helium::Model::forward)
}

pub(crate) fn load_mistral(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    cloned(settings, weights, mistral::Model::new, mistral::Model::forward)
}

pub(crate) fn load_olmo(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    cloned(settings, weights, olmo::Model::new, olmo::Model::forward)
}

pub(crate) fn load_phi(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    must_be(settings, &[("qk_layernorm", json!(false))])?;
    heads_share_the_width(settings)?;
    cloned(settings, weights, phi::Model::new, |model, ids, _| model.forward(ids))
}

pub(crate) fn load_phi3(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    cloned(settings, weights, phi3::Model::new, phi3::Model::forward)
}

pub(crate) fn load_qwen3(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    must_be(settings, &[("use_sliding_window", json!(false))])?;
    cloned(settings, weights, qwen3::ModelForCausalLM::new, qwen3::ModelForCausalLM::forward)
}

pub(crate) fn load_starcoder2(settings: &mut Settings, weights: &Weights) -> Result<Box<dyn CandleModel>> {
    heads_share_the_width(settings)?;
    cloned(settings, weights, starcoder2::Model::new, starcoder2::Model::forward)
}

/// Sets a window of attention that is missing to all positions, because the model always has one.
fn see_everything(settings: &mut Settings) -> Result<()> {
    if settings.size("sliding_window").is_none_or(|window| window == 0)
        || settings.is_off("use_sliding_window")
    {
        settings.set("sliding_window", settings.needed("max_position_embeddings")?);
    }
    Ok(())
}
