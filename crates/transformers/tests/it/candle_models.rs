//! Models of candle-transformers against `transformers`. The fixtures are from `scripts/reference/candle_parity.py`.

use std::{
    collections::HashMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use candle_core::{
    Device, Tensor,
    quantized::{
        GgmlDType, QTensor,
        gguf_file::{self, Value},
    },
};
use serde::Deserialize;
use sporran_checkpoint::Error;
use sporran_transformers::{
    Batch, CandleLm, CausalCache, CausalLm, Checkpoint, DeviceName, Engine, GenerationOptions, Gguf,
    Precision, generate_causal,
};

use crate::common::near;

#[derive(Deserialize)]
struct Expected {
    prompt: Vec<u32>,
    logits: Vec<Vec<f32>>,
    tokens: Vec<u32>,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn open(model: &Path) -> CandleLm {
    CandleLm::open(model, DeviceName::Cpu, Precision::F32).unwrap()
}

fn expected(name: &str) -> Expected {
    serde_json::from_str(&fs::read_to_string(data("candle").join(name).join("expected.json")).unwrap())
        .unwrap()
}

fn greedy(model: &dyn CausalLm, prompt: &[u32], tokens: usize) -> Vec<u32> {
    let options = GenerationOptions { max_new_tokens: Some(tokens), ..GenerationOptions::default() };
    generate_causal(model, &[prompt.to_vec()], &options).unwrap()[0][0].tokens.clone()
}

fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(found, expected)| (found - expected).abs()).fold(0.0, f32::max)
}

/// The architectures of the fixtures that the packed engine has too.
const BOTH: [&str; 20] = [
    "deepseek_v2",
    "falcon",
    "gemma",
    "gemma2",
    "gemma3_text",
    "glm4",
    "gpt_bigcode",
    "granite",
    "helium",
    "mistral",
    "mixtral",
    "olmo",
    "olmo2",
    "phi",
    "phi3",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "stablelm",
    "starcoder2",
];

#[test]
fn logits_and_greedy_tokens_are_those_of_transformers() {
    let names = [
        "deepseek_v2",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm4",
        "gpt_bigcode",
        "granite",
        "helium",
        "mamba",
        "mamba2",
        "mistral",
        "mixtral",
        "olmo",
        "olmo2",
        "phi",
        "phi3",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "recurrent_gemma",
        "stablelm",
        "starcoder2",
    ];
    // All are compared, so that a failure lists every model that differs.
    let wrong: Vec<String> = names.iter().filter_map(|name| differs(name).err()).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Compares a model with `transformers`.
fn differs(name: &str) -> Result<(), String> {
    let named = |error: Error| format!("{name}: {error} {error:?}").chars().take(400).collect::<String>();
    let folder = data("candle").join(name);
    let model = CandleLm::open(&folder, DeviceName::Cpu, Precision::F32).map_err(named)?;
    let expected = expected(name);
    // Candle's Falcon approximates the GELU.
    let limit = if name == "falcon" { 2e-2 } else { 2e-4 };
    let batch = Batch::new(&[expected.prompt.as_slice()], 0, &Device::Cpu).map_err(named)?;
    let last = model.begin(&batch, &mut CausalCache::new()).map_err(named)?;
    let all: Vec<f32> = model.forward(&batch).map_err(named)?.flatten_all().unwrap().to_vec1().unwrap();
    for (what, worst) in [
        ("logits of a prompt", worst(&last, expected.logits.last().unwrap())),
        ("logits token by token", worst(&all, &expected.logits.concat())),
    ] {
        if worst > limit {
            return Err(format!("{name}: {what}: {worst}"));
        }
        near(name, what, worst, limit);
    }
    let options = GenerationOptions { max_new_tokens: Some(8), ..GenerationOptions::default() };
    let found = generate_causal(&model, std::slice::from_ref(&expected.prompt), &options).map_err(named)?;
    let mut tokens = expected.tokens.clone();
    // The end token is not part of an answer.
    if tokens.last() == Some(&1) && found[0][0].tokens.last() != Some(&1) {
        tokens.pop();
    }
    if found[0][0].tokens != tokens {
        return Err(format!("{name}: tokens: expected {tokens:?}, found {:?}", found[0][0].tokens));
    }
    assert!(Engine::Candle.is_candle(&folder).unwrap() && !Engine::Packed.is_candle(&folder).unwrap());
    assert_eq!(Engine::Auto.is_candle(&folder).unwrap(), !BOTH.contains(&name), "{name}");
    Ok(())
}

#[test]
fn architectures_of_both_engines_are_packed_by_default_and_agree_with_transformers() {
    for name in BOTH {
        let (folder, expected) = (data("candle").join(name), expected(name));
        let model = Checkpoint::open(&folder).unwrap().causal(DeviceName::Cpu, Precision::F32).unwrap();
        let batch = Batch::new(&[expected.prompt.as_slice()], 0, &Device::Cpu).unwrap();
        let all: Vec<f32> = model.forward(&batch).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        near(name, "logits of the packed engine", worst(&all, &expected.logits.concat()), 2e-4);
    }
}

#[test]
fn sequences_do_not_disturb_each_other_and_padding_is_left_out() {
    for name in ["phi", "stablelm"] {
        let (model, expected) = (open(&data("candle").join(name)), expected(name));
        let prompt = &expected.prompt;
        let (mut first, mut second) = (CausalCache::new(), CausalCache::new());
        model.decode(&prompt[..3], 1, &mut first).unwrap();
        model.decode(&prompt[3..], 1, &mut second).unwrap();
        assert_eq!((first.rows(), first.length()), (1, 3));
        // A clone reads its tokens again.
        let mut copy = first.clone();
        let rest = model.decode(&prompt[3..], 1, &mut first).unwrap();
        let again = model.decode(&prompt[3..], 1, &mut copy).unwrap();
        let last = expected.logits.last().unwrap();
        assert!(worst(&rest, last) < 2e-4 && worst(&again, last) < 2e-4, "{name}");
        first.select(&[0]).unwrap();
        assert!(first.select(&[0, 0]).is_err());
        let rows = [&[5u32, 9][..], prompt.as_slice()];
        let batch = Batch::new(&rows, 0, &Device::Cpu).unwrap();
        let all = model.forward(&batch).unwrap().to_vec3::<f32>().unwrap();
        assert!(worst(&all[1].concat(), &expected.logits.concat()) < 2e-4, "{name}");
        let error = model.begin(&batch, &mut CausalCache::new()).unwrap_err().to_string();
        assert!(error.contains("one sequence at a time with the engine `candle`, found 2"), "{error}");
        let error = model.decode(&[0; 65], 1, &mut CausalCache::new()).unwrap_err().to_string();
        assert!(error.contains("at most 64 sequence tokens, found 65"), "{error}");
    }
}

#[test]
fn beams_are_refused_by_name() {
    let model = open(&data("candle/phi"));
    let beams = GenerationOptions { num_beams: Some(2), ..GenerationOptions::default() };
    let error = generate_causal(&model, &[vec![5, 9]], &beams).unwrap_err();
    assert!(matches!(error, Error::Options { option: "num-beams", .. }), "{error}");
    let several = GenerationOptions {
        do_sample: Some(true),
        num_return_sequences: Some(3),
        ..GenerationOptions::default()
    };
    assert!(generate_causal(&model, &[vec![5, 9]], &several).is_err());
    let one = GenerationOptions { do_sample: Some(true), seed: Some(1), ..GenerationOptions::default() };
    assert_eq!(generate_causal(&model, &[vec![5, 9]], &one).unwrap()[0].len(), 1);
    let int8 = CandleLm::open(&data("candle/phi"), DeviceName::Cpu, Precision::Int8).err().unwrap();
    assert!(matches!(int8, Error::Options { option: "precision", .. }), "{int8}");
}

/// A copy of a folder whose config has another field.
fn changed(name: &str, field: &str, value: serde_json::Value) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(data("candle").join(name)).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, place.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = place.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    config[field] = value;
    fs::write(path, config.to_string()).unwrap();
    place
}

#[test]
fn what_candle_does_not_have_is_an_error_that_says_so() {
    for (name, field, value, part) in [
        ("phi", "model_type", "rwkv9".into(), "expected one of `deepseek_v2`, `falcon`, `gemma`, `gemma2`"),
        (
            "phi",
            "max_position_embeddings",
            2_000_000_000.into(),
            "field `max_position_embeddings`: expected at most",
        ),
        (
            "phi",
            "num_hidden_layers",
            1_000_000.into(),
            "field `num_hidden_layers`: expected no more layers than",
        ),
        ("phi", "vocab_size", 41.into(), "expected shape [41, 16], found [40, 16]"),
        ("phi", "num_hidden_layers", 1.into(), "model.layers.1."),
        (
            "granite",
            "embedding_multiplier",
            12.into(),
            "field `embedding_multiplier`: expected 1 with the engine",
        ),
        ("stablelm", "use_parallel_residual", true.into(), "field `use_parallel_residual`: expected false"),
        ("mistral", "rms_norm_eps", "x".into(), "field `rms_norm_eps`"),
        (
            "deepseek_v2",
            "topk_method",
            "group_limited_greedy".into(),
            "field `topk_method`: expected \"greedy\"",
        ),
        ("deepseek_v2", "qk_rope_head_dim", 1_000_000.into(), "field `head_dim`: expected 1000000"),
        ("phi", "head_dim", 32.into(), "field `head_dim`: expected"),
        ("phi", "qk_layernorm", true.into(), "field `qk_layernorm`: expected false"),
        ("qwen3", "use_sliding_window", true.into(), "field `use_sliding_window`: expected false"),
        ("../llama", "head_dim", 32.into(), "field `head_dim`: expected"),
        // Its loader panics where a tensor is not as it expects it.
        ("../llama", "intermediate_size", 99.into(), "expected shape [99, "),
        ("falcon", "multi_query", false.into(), "field `multi_query`: expected true"),
        ("gpt_bigcode", "multi_query", false.into(), "field `multi_query`: expected true"),
        ("mamba", "state_size", 8.into(), "field `state_size`: expected 16"),
        ("mamba2", "n_groups", 2.into(), "field `n_groups`: expected 1"),
        (
            "recurrent_gemma",
            "attention_window_size",
            0.into(),
            "field `attention_window_size`: expected at least",
        ),
        ("recurrent_gemma", "hidden_size", 2560.into(), "field `hidden_size`: expected a number whose root"),
    ] {
        let place = changed(name, field, value);
        let error = CandleLm::open(place.path(), DeviceName::Cpu, Precision::F32).err().unwrap();
        let text = format!("{error}: {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(text.contains(part), "{field}: {text}");
    }
    let unknown = changed("phi", "model_type", "rwkv9".into());
    let error = Engine::Auto.is_candle(unknown.path()).unwrap_err().to_string();
    assert!(error.contains("`llama`") && error.contains("or, with the engine `candle`, `mamba`"), "{error}");
}

#[test]
fn a_llama_of_candle_is_the_packed_one() {
    let prompt = [5u32, 9, 30, 7];
    for name in ["llama", "qwen2"] {
        let folder = data(name);
        assert!(!Engine::Auto.is_candle(&folder).unwrap() && Engine::Candle.is_candle(&folder).unwrap());
        let packed = Checkpoint::open(&folder).unwrap().causal(DeviceName::Cpu, Precision::F32).unwrap();
        let model = open(&folder);
        let batch = Batch::new(&[prompt], 0, &Device::Cpu).unwrap();
        let packed = packed.begin(&batch, &mut CausalCache::new()).unwrap();
        let found = model.begin(&batch, &mut CausalCache::new()).unwrap();
        near(name, "logits of candle and of the packed engine", worst(&found, &packed), 2e-4);
    }
}

#[test]
fn a_gguf_file_is_read_with_its_weights_as_they_are() {
    let file = data("llama/model.gguf");
    assert!(!Engine::Auto.is_candle(&file).unwrap());
    let batch = Batch::new(&[[5u32, 9, 30, 7]], 0, &Device::Cpu).unwrap();
    let packed = Gguf::open(&file).unwrap().causal(DeviceName::Cpu, Precision::F32).unwrap();
    let packed = packed.begin(&batch, &mut CausalCache::new()).unwrap();
    let found = open(&file).begin(&batch, &mut CausalCache::new()).unwrap();
    let greatest = packed.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    // Products with quantised weights round their inputs too.
    near("llama", "logits of a GGUF file, of the greatest", worst(&found, &packed) / greatest, 5e-2);
}

/// Writes the folder of a Qwen 3 as a GGUF file in f32.
fn write_qwen3(path: &Path, fields: &[(&str, Value)]) {
    let folder = data("candle/qwen3");
    let tensors = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    let name = |name: &str| {
        let name = name.replace("model.layers.", "blk.").replace("self_attn.o_proj", "attn_output");
        let name = name.replace("self_attn.q_norm", "attn_q_norm").replace("self_attn.k_norm", "attn_k_norm");
        let name = ["q", "k", "v"].iter().fold(name, |name, which| {
            name.replace(&format!("self_attn.{which}_proj"), &format!("attn_{which}"))
        });
        let name = ["gate", "up", "down"]
            .iter()
            .fold(name, |name, which| name.replace(&format!("mlp.{which}_proj"), &format!("ffn_{which}")));
        name.replace("input_layernorm", "attn_norm")
            .replace("post_attention_layernorm", "ffn_norm")
            .replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm")
            .replace("lm_head", "output")
    };
    let quantised: HashMap<String, QTensor> = tensors
        .iter()
        .map(|(of, tensor): (&String, &Tensor)| {
            (name(of), QTensor::quantize(tensor, GgmlDType::F32).unwrap())
        })
        .collect();
    let tokens = (0..40).map(|at| Value::String(format!("t{at}"))).collect();
    let mut all = vec![
        ("general.architecture", Value::String("qwen3".into())),
        ("general.dtype", Value::U32(0)),
        ("qwen3.attention.head_count", Value::U32(4)),
        ("qwen3.attention.head_count_kv", Value::U32(2)),
        ("qwen3.attention.key_length", Value::U32(8)),
        ("qwen3.block_count", Value::U32(2)),
        ("qwen3.embedding_length", Value::U32(16)),
        ("qwen3.context_length", Value::U32(64)),
        ("qwen3.attention.layer_norm_rms_epsilon", Value::F32(1e-6)),
        ("qwen3.rope.freq_base", Value::F32(10_000.0)),
        ("tokenizer.ggml.tokens", Value::Array(tokens)),
        ("tokenizer.ggml.eos_token_id", Value::U32(1)),
    ];
    for (field, value) in fields {
        all.retain(|(known, _)| known != field);
        all.push((field, value.clone()));
    }
    let all: Vec<(&str, &Value)> = all.iter().map(|(field, value)| (*field, value)).collect();
    let quantised: Vec<(&str, &QTensor)> =
        quantised.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut File::create(path).unwrap(), &all, &quantised).unwrap();
}

#[test]
fn a_gguf_file_of_another_architecture_is_read() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("model.gguf");
    write_qwen3(&path, &[]);
    assert!(!Engine::Auto.is_candle(&path).unwrap() && Engine::Candle.is_candle(&path).unwrap());
    let (model, expected) = (open(&path), expected("qwen3"));
    assert_eq!((model.max_length(), model.vocab_size()), (64, 40));
    let batch = Batch::new(&[expected.prompt.as_slice()], 0, &Device::Cpu).unwrap();
    let last = model.begin(&batch, &mut CausalCache::new()).unwrap();
    near("qwen3", "logits of a GGUF file", worst(&last, expected.logits.last().unwrap()), 2e-3);
    assert_eq!(greedy(&model, &expected.prompt, 8), expected.tokens);
    for (field, value, part) in [
        ("general.architecture", Value::String("rwkv9".into()), "expected one of `gemma3`, `glm4`, `llama`"),
        ("qwen3.context_length", Value::U32(u32::MAX), "field `qwen3.context_length`: expected 1 to"),
        ("qwen3.block_count", Value::U32(1_000_000), "field `qwen3.block_count`: expected 1 to"),
        ("qwen3.attention.head_count", Value::U32(0), "field `qwen3.attention.head_count`: expected 1 to 16"),
        ("qwen3.rope.scaling.type", Value::String("yarn".into()), "field `qwen3.rope.scaling.type`"),
    ] {
        write_qwen3(&path, &[(field, value)]);
        let error = CandleLm::open(&path, DeviceName::Cpu, Precision::F32).err().unwrap().to_string();
        assert!(error.contains(part) && error.contains("model.gguf"), "{error}");
    }
}
