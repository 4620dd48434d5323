//! Decoders that differ from LLaMA in their norms, feed-forward parts or positions: their states against `transformers`,
//! their gradients, and what is not supported. The fixtures are from `scripts/reference/decoder_parity.py`.

use std::{collections::HashMap, fs, path::Path};

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use sporran_transformers::{Batch, CausalCache, Checkpoint, Mode, Precision};
use tempfile::TempDir;

use crate::{
    common::near,
    decoders::{FOLDERS, Fixture, batch, fixture, models, values, worst, worst_logits},
    device::device,
};

#[test]
fn whole_states_equal_transformers_alone_and_in_a_batch() {
    for &name in FOLDERS {
        let Fixture { folder, expected, tensors, .. } = fixture("decoders", name);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let states: Vec<Vec<f32>> =
            (0..expected.rows.len()).map(|row| values(&tensors[&format!("states.{row}")])).collect();
        for (engine, model) in [
            ("candle", checkpoint.encoder(DType::F32, &device()).unwrap()),
            ("packed", checkpoint.fast_encoder(Precision::F32).unwrap()),
        ] {
            let mut most: f32 = 0.0;
            for (row, states) in expected.rows.iter().zip(&states) {
                let input = Batch::new(&[row], 0, model.body.device()).unwrap();
                most = most.max(worst(&values(&model.body.states(&input).unwrap()), states));
            }
            let found = model.body.states(&batch(&expected.rows, false)).unwrap();
            for (at, (row, states)) in expected.rows.iter().zip(&states).enumerate() {
                let own = found.get(at).unwrap().narrow(0, 0, row.len()).unwrap();
                most = most.max(worst(&values(&own), states));
            }
            near(name, &format!("states, {engine}"), most, 1e-4);
        }
    }
}

#[test]
fn every_weight_has_the_gradient_that_differences_show() {
    // Training of these is refused.
    let is_trained = |name: &&&str| !name.starts_with("phimoe") && !name.starts_with("gemma3n");
    for &name in FOLDERS.iter().filter(is_trained) {
        let Fixture { folder, expected, .. } = fixture("decoders", name);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        // In f64, so that differences of the loss show its gradient to many digits.
        let weights = checkpoint.var_map(DType::F64, &Device::Cpu).unwrap();
        let vb = VarBuilder::from_varmap(&weights, DType::F64, &Device::Cpu);
        let tokens = checkpoint.special_tokens().unwrap().clone();
        let defaults = checkpoint.generation_defaults().clone();
        let model = checkpoint.config().build_causal(&vb, tokens, defaults).unwrap();
        let input = Batch::new(&[&expected.rows[2], &expected.rows[1]], 0, &Device::Cpu).unwrap();
        let loss = || {
            let states = model.states_in(&input, &mut Mode::training(0)).unwrap();
            let logits = model.logits_of(&states.flatten_to(1).unwrap()).unwrap();
            let mask = input.mask.to_dtype(DType::F64).unwrap().flatten_all().unwrap();
            let log_p = candle_nn::ops::log_softmax(&logits, 1).unwrap().narrow(1, 10, 20).unwrap();
            (log_p.mean(1).unwrap() * mask).unwrap().sum_all().unwrap()
        };
        let value = || loss().to_scalar::<f64>().unwrap();
        let grads = loss().backward().unwrap();
        let weights = weights.data().lock().unwrap().clone();
        let mut names: Vec<_> = weights.keys().cloned().collect();
        names.sort();
        for weight in names {
            let var = &weights[&weight];
            let grad = match grads.get(var) {
                Some(grad) => grad,
                // No token chose this expert.
                None if weight.contains(".experts.") => continue,
                // They are buffers in `transformers`.
                None if [".beta", ".eps", "correction_bias", "expert_bias", "layer_scalar"]
                    .iter()
                    .any(|end| weight.ends_with(end)) =>
                {
                    continue;
                }
                None => panic!("{name}: {weight} has no gradient"),
            };
            // The derivative along the gradient's own direction is its norm.
            let norm = grad.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap().sqrt();
            if norm == 0.0 && weight.contains(".experts.") {
                // Only padding chose this expert.
                continue;
            }
            assert!(norm.is_finite() && norm > 0.0, "{name}: {weight}: {norm}");
            let (before, step) = (var.as_tensor().copy().unwrap(), 1e-6);
            let at = |sign: f64| {
                var.set(&(&before + (grad * (sign * step / norm)).unwrap()).unwrap()).unwrap();
                value()
            };
            let slope = (at(1.0) - at(-1.0)) / (2.0 * step);
            var.set(&before).unwrap();
            assert!((slope - norm).abs() < 1e-4 * norm + 1e-7, "{name}: {weight}: {slope} for {norm}");
        }
    }
}

/// A copy of a fixture's folder with another config or with other tensors.
fn changed(
    name: &str,
    config: impl FnOnce(&mut serde_json::Value),
    tensors: impl FnOnce(HashMap<String, Tensor>) -> HashMap<String, Tensor>,
) -> TempDir {
    let (Fixture { folder, .. }, place) = (fixture("decoders", name), TempDir::new().unwrap());
    let read = |folder: &Path| fs::read_to_string(folder.join("config.json")).unwrap();
    let mut fields: serde_json::Value = serde_json::from_str(&read(&folder)).unwrap();
    config(&mut fields);
    fs::write(place.path().join("config.json"), fields.to_string()).unwrap();
    let weights = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    candle_core::safetensors::save(&tensors(weights), place.path().join("model.safetensors")).unwrap();
    place
}

#[test]
fn what_is_not_supported_is_an_error_that_names_the_field() {
    for (name, field, value) in [
        ("deepseek_v2", "norm_topk_prob", true.into()),
        ("deepseek_v2", "scoring_func", "sigmoid".into()),
        ("deepseek_v2", "topk_group", 1.into()),
        ("deepseek_v2", "topk_method", "noaux_tc".into()),
        ("deepseek_v2", "v_head_dim", 11.into()),
        ("deepseek_v3", "kv_lora_rank", 0.into()),
        ("deepseek_v3", "n_group", 4.into()),
        ("deepseek_v3", "num_key_value_heads", 2.into()),
        ("deepseek_v3", "qk_rope_head_dim", 3.into()),
        ("deepseek_v3", "quantization_config.quant_method", serde_json::json!({"quant_method": "gptq"})),
        ("dots1", "n_routed_experts", 0.into()),
        ("ernie4_5_moe", "moe_k", 6.into()),
        ("gemma3n_text", "altup_active_idx", 3.into()),
        ("gemma3n_text", "intermediate_size", serde_json::json!([24, 24, 24, 24, 24, 32])),
        ("gemma4_text", "num_kv_shared_layers", 7.into()),
        ("gemma4_text", "per_layer_config", serde_json::json!({"0": {"head_dim": 4}})),
        ("gemma4_text-experts", "top_k_experts", 6.into()),
        ("glm4_moe", "n_shared_experts", 0.into()),
        ("glm4_moe", "routed_scaling_factor", 0.into()),
        ("gpt_oss", "quantization_config.quant_method", serde_json::json!({"load_in_4bit": true})),
        ("gpt_oss", "swiglu_limit", 0.into()),
        ("granitemoe", "num_local_experts", 0.into()),
        ("minicpm3", "scale_depth", 0.into()),
        ("minicpm3", "num_key_value_heads", 2.into()),
        ("ministral3", "rope_parameters.llama_4_scaling_beta", serde_json::json!({"rope_theta": 1e4})),
        (
            "phi3-longrope",
            "rope_parameters.long_factor",
            serde_json::json!({"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1]}),
        ),
        (
            "phimoe-longrope",
            "rope_parameters.long_mscale",
            serde_json::json!({"rope_type": "longrope", "short_mscale": 1, "short_factor": [1, 1]}),
        ),
        ("phimoe", "num_experts_per_tok", 3.into()),
        ("xglm", "add_cross_attention", true.into()),
        ("cwm", "layer_rope_theta", serde_json::json!([1e4, 1e4, 1e4, 1e4])),
        ("granite_swa", "layer_rope_theta", serde_json::json!([1e4, 1e4])),
        ("granite_swa", "layer_rope_theta", serde_json::json!([1e4, 1e4, -1, 1e4])),
        ("hunyuan_v1_moe", "moe_topk", 6.into()),
        ("internlm3", "mlp_bias", false.into()),
        ("minimax_m2", "num_local_experts", 0.into()),
        ("mistral4", "rope_parameters.llama_4_scaling_beta", serde_json::json!({"rope_theta": 1e4})),
        ("mistral4", "scoring_func", "sigmoid".into()),
        ("solar_open", "partial_rotary_factor", serde_json::json!(0.5)),
        ("bloom", "apply_residual_connection_post_layernorm", true.into()),
        ("bloom", "n_head", 3.into()),
        ("codegen", "n_head", 2.into()),
        ("cohere", "logit_scale", 0.into()),
        ("falcon", "num_ln_in_parallel_attn", 2.into()),
        ("falcon-groups", "num_kv_heads", 3.into()),
        ("falcon-groups", "parallel_attn", false.into()),
        ("gemma", "hidden_act", "prelu".into()),
        ("gpt_neo", "attention_types", serde_json::json!([[["global"], 2]])),
        ("gpt_neo", "attention_types", serde_json::json!([[["near"], 4]])),
        ("gpt_neox", "num_key_value_heads", 2.into()),
        ("gpt_neox", "hidden_dropout", 1.into()),
        ("gpt_neox", "layer_types", serde_json::json!(["full_attention"])),
        ("gptj", "rotary_dim", 3.into()),
        ("mixtral", "num_experts_per_tok", 6.into()),
        ("mixtral", "num_local_experts", 0.into()),
        ("mpt", "attn_config.alibi", serde_json::json!({"alibi": false})),
        ("mpt", "attn_config.softmax_scale", serde_json::json!({"softmax_scale": -1})),
        ("olmo", "clip_qkv", (-1).into()),
        ("olmo", "partial_rotary_factor", 0.5.into()),
        ("opt", "activation_function", "prelu".into()),
        ("opt", "ffn_dim", 0.into()),
        ("opt", "word_embed_proj_dim", 0.into()),
        ("phi", "tie_word_embeddings", true.into()),
        ("starcoder2", "head_dim", 8.into()),
        ("starcoder2", "sliding_window", 0.into()),
    ] {
        // A dot is between an object and its field.
        let place = field.split('.').next().unwrap();
        let folder = changed(name, |config| config[place] = value, |tensors| tensors);
        let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("field `{field}`: expected")), "{name}: {error}");
    }
    let folder =
        changed("hunyuan_v1_moe", |config| config["moe_topk"] = vec![2, 1].into(), |tensors| tensors);
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("field `moe_topk`"), "{error}");
    let same = changed("hunyuan_v1_moe", |config| config["moe_topk"] = vec![2, 2].into(), |tensors| tensors);
    assert!(Checkpoint::open(same.path()).is_ok());
    let folder = changed("starcoder2", |config| config["norm_epsilon"] = "x".into(), |tensors| tensors);
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("field `norm_epsilon`"), "{error}");
}

#[test]
fn a_sequence_ends_at_the_learned_positions() {
    for (engine, model) in models(&fixture("decoders", "opt").folder) {
        assert!(model.has_learned_positions() && model.max_length() == 64, "{engine}");
        let mut cache = CausalCache::new();
        model.decode(&[5; 64], 1, &mut cache).unwrap();
        for error in [
            model.decode(&[5], 1, &mut cache).unwrap_err(),
            model.decode(&[5; 65], 1, &mut CausalCache::new()).unwrap_err(),
        ] {
            assert_eq!(error.to_string(), "batch: expected at most 64 sequence tokens, found 65", "{engine}");
        }
    }
}

#[test]
fn other_names_of_tensors_are_read_and_stored_masks_are_not() {
    let renamed = |tensors: HashMap<String, Tensor>, from: &str, to: &str| -> HashMap<String, Tensor> {
        tensors.into_iter().map(|(name, tensor)| (name.replacen(from, to, 1), tensor)).collect()
    };
    let neox = changed(
        "gpt_neox",
        |_| {},
        |tensors| {
            let mut tensors = renamed(tensors, "embed_out.", "lm_head.");
            let mask = Tensor::ones((1, 1, 64, 64), DType::U8, &Device::Cpu).unwrap();
            tensors.insert("gpt_neox.layers.0.attention.bias".into(), mask);
            tensors
        },
    );
    let opt = changed("opt", |_| {}, |tensors| renamed(tensors, "model.decoder.", "decoder."));
    let phi = changed("phi", |_| {}, |tensors| renamed(tensors, "model.layers.", "layers."));
    for (name, folder) in [("gpt_neox", neox), ("opt", opt), ("phi", phi)] {
        let Fixture { expected, tensors, .. } = fixture("decoders", name);
        for (engine, model) in models(folder.path()) {
            near(name, &format!("other names, {engine}"), worst_logits(&*model, &expected, &tensors), 1e-4);
        }
    }
}

/// Released files of Gemma 4 have the heads of layers by type, tensors of audio, and keys of layers that do not use them.
#[test]
fn gemma_4_is_read_as_it_is_released() {
    for name in ["gemma4_text", "gemma4_text-keys"] {
        let Fixture { expected, tensors, .. } = fixture("decoders", name);
        let folder = changed(
            name,
            |config| {
                let mut text = config.take();
                let fields = text.as_object_mut().unwrap();
                let by_layer = fields.remove("per_layer_config").unwrap();
                fields.insert("global_head_dim".into(), by_layer["6"]["head_dim"].clone());
                let groups = by_layer["6"]["num_key_value_heads"].clone();
                fields.insert("num_global_key_value_heads".into(), groups);
                *config =
                    serde_json::json!({"model_type": "gemma4", "text_config": text, "audio_config": {}});
            },
            |weights| {
                let placed = |name: String| name.replacen("model.", "model.language_model.", 1);
                let mut all: HashMap<String, Tensor> =
                    weights.into_iter().map(|(name, weight)| (placed(name), weight)).collect();
                for unused in [
                    "model.audio_tower.layers.0.norm.weight",
                    "model.embed_audio.embedding_projection.weight",
                    "model.embed_vision.embedding_projection.weight",
                    "model.vision_tower.patch_embedder.input_proj.weight",
                    "model.language_model.layers.6.self_attn.k_proj.weight",
                    "model.language_model.layers.6.self_attn.k_norm.weight",
                ] {
                    all.insert(unused.into(), Tensor::ones(3, DType::F32, &Device::Cpu).unwrap());
                }
                all
            },
        );
        for (engine, model) in models(folder.path()) {
            near(name, &format!("released, {engine}"), worst_logits(&*model, &expected, &tensors), 1e-4);
        }
    }
    let folder = changed(
        "gemma4_text",
        |config| config["vocab_size_per_layer_input"] = 50.into(),
        |mut tensors| {
            let table = tensors.get_mut("model.embed_tokens_per_layer.weight").unwrap();
            *table = table.narrow(0, 0, 50).unwrap().contiguous().unwrap();
            tensors
        },
    );
    for (engine, model) in models(folder.path()) {
        let read = |token| model.forward(&Batch::new(&[[token]], 0, &device()).unwrap());
        assert!(read(49).is_ok() && read(50).is_err(), "{engine}");
    }
}
