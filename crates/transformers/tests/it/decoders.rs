//! The kinds of LLaMA's shape, and the ways in which angles are stretched, against `transformers`. The fixtures are from
//! `scripts/reference/decoder_parity.py`, and those of quantised weights from `quantised_parity.py`.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use candle_core::{
    DType, Device, Tensor,
    quantized::{
        GgmlDType, QTensor,
        gguf_file::{self, Content, Value},
    },
};
use serde::Deserialize;
use sporran_checkpoint::{Error, GgufFile};
use sporran_transformers::{
    Batch, CausalLm, Checkpoint, DeviceName, GenerationOptions, Gguf, Precision, generate_causal,
};
use tempfile::TempDir;

use crate::{common::near, device::device};

const KINDS: [&str; 8] = ["qwen3", "mistral", "gemma2", "gemma3_text", "phi3", "smollm3", "olmo2", "granite"];
/// Other kinds, and variants of theirs.
pub(crate) const FOLDERS: &[&str] = &[
    "arcee",
    "bloom",
    "codegen",
    "cohere",
    "cohere-norms",
    "cohere2",
    "ernie4_5",
    "exaone4",
    "falcon",
    "falcon-alibi",
    "falcon-groups",
    "falcon-groups-one-norm",
    "gemma",
    "glm",
    "glm4",
    "gpt_bigcode",
    "gpt_bigcode-heads",
    "gpt_neo",
    "gpt_neox",
    "gpt_neox-sequential",
    "gptj",
    "helium",
    "hunyuan_v1_dense",
    "hunyuan_v1_dense-alpha",
    "ministral",
    "mixtral",
    "mpt",
    "nemotron",
    "olmo",
    "olmo3",
    "olmoe",
    "opt",
    "opt-after",
    "opt-bare",
    "phi",
    "phi-norms",
    "phi3-longrope",
    "qwen2_moe",
    "qwen2_moe-all",
    "qwen2_moe-sliding",
    "qwen3_moe",
    "qwen3_moe-all",
    "seed_oss",
    "stablelm",
    "stablelm-norms",
    "stablelm-sequential",
    "starcoder2",
    "apertus",
    "biogpt",
    "deepseek_v2",
    "deepseek_v2-lite",
    "deepseek_v3",
    "deepseek_v3-halves",
    "dots1",
    "ernie4_5_moe",
    "glm4_moe",
    "gpt_oss",
    "granitemoe",
    "granitemoeshared",
    "minicpm3",
    "ministral3",
    "persimmon",
    "persimmon-plain",
    "phimoe",
    "phimoe-longrope",
    "xglm",
    "openai-gpt",
    "cwm",
    "flex_olmo",
    "granite_swa",
    "hunyuan_v1_moe",
    "hyperclovax",
    "hyperclovax-before",
    "internlm3",
    "jais2",
    "minimax_m2",
    "mistral4",
    "nanochat",
    "qwen2_5_vl",
    "qwen2_vl",
    "bamba",
    "falcon_h1",
    "falcon_h1-bare",
    "falcon_h1-before",
    "granitemoehybrid",
    "granitemoehybrid-dense",
    "lfm2",
    "lfm2-plain",
    "lfm2_moe",
    "lfm2_moe-uncorrected",
    "qwen3_5_moe_text",
    "qwen3_5_moe_text-images",
    "qwen3_5_text",
    "qwen3_5_text-images",
    "qwen3_next",
    "qwen3_vl",
    "solar_open",
    "vaultgemma",
    "gemma3n_text",
    "gemma4_text",
    "gemma4_text-experts",
    "gemma4_text-keys",
    "deepseek_v3-fp8",
    "gpt_oss-mxfp4",
    "ministral3-fp8",
    "qwen3-fp8",
];
/// Those of these with a GGUF file.
const FILES: [&str; 25] = [
    "arcee",
    "bloom",
    "cohere",
    "cohere-norms",
    "cohere2",
    "ernie4_5",
    "exaone4",
    "falcon",
    "falcon-groups-one-norm",
    "gemma",
    "glm4",
    "gpt_neox",
    "gpt_neox-sequential",
    "mixtral",
    "mpt",
    "nemotron",
    "olmo3",
    "olmoe",
    "phi",
    "phi3-longrope",
    "qwen2_moe-all",
    "qwen3_moe-all",
    "seed_oss",
    "stablelm",
    "starcoder2",
];
const ROPES: [&str; 5] = ["linear", "dynamic", "yarn", "llama3", "longrope"];

#[derive(Deserialize)]
pub(crate) struct Expected {
    pub(crate) rows: Vec<Vec<u32>>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    options: GenerationOptions,
    outputs: Vec<Vec<Output>>,
}

#[derive(Deserialize)]
struct Output {
    tokens: Vec<u32>,
    score: f32,
}

pub(crate) struct Fixture {
    name: String,
    pub(crate) folder: PathBuf,
    pub(crate) expected: Expected,
    pub(crate) tensors: HashMap<String, Tensor>,
    /// Holds the folder where it was put together.
    _kept: Option<TempDir>,
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

pub(crate) fn fixture(of: &str, name: &str) -> Fixture {
    let source = data(of).join(name);
    let expected = fs::read_to_string(source.join("expected.json")).unwrap();
    let tensors = candle_core::safetensors::load(source.join("expected.safetensors"), &Device::Cpu).unwrap();
    let (mut folder, mut kept) = (source.clone(), None);
    if of == "ropes" {
        // The weights are those of the fixture `llama`.
        let whole = TempDir::new().unwrap();
        fs::copy(source.join("config.json"), whole.path().join("config.json")).unwrap();
        for file in ["model.safetensors", "generation_config.json"] {
            fs::copy(data("llama").join(file), whole.path().join(file)).unwrap();
        }
        folder = whole.path().to_owned();
        kept = Some(whole);
    }
    let expected = serde_json::from_str(&expected).unwrap();
    Fixture { name: name.into(), folder, expected, tensors, _kept: kept }
}

fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.into_iter().chain(FOLDERS.iter().copied())
}

fn fixtures() -> impl Iterator<Item = Fixture> {
    let kinds = kinds().map(|name| fixture("decoders", name));
    kinds.chain(ROPES.into_iter().map(|name| fixture("ropes", name)))
}

/// The definition over candle, and the packed model.
pub(crate) fn models(folder: &Path) -> [(&'static str, Box<dyn CausalLm>); 2] {
    let checkpoint = Checkpoint::open(folder).unwrap();
    assert!(checkpoint.surplus().is_empty(), "{}: {:?}", folder.display(), checkpoint.surplus());
    let candle = checkpoint.causal_model(DType::F32, &device()).unwrap();
    [("candle", candle), ("packed", checkpoint.causal(DeviceName::Cpu, Precision::F32).unwrap())]
}

pub(crate) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

pub(crate) fn worst(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// All rows in one batch, padded on the left or on the right.
pub(crate) fn batch(rows: &[Vec<u32>], is_left: bool) -> Batch {
    let longest = rows.iter().map(Vec::len).max().unwrap();
    let pad = |row: &Vec<u32>, fill: u32| {
        let (row, rest) = (row.clone(), vec![fill; longest - row.len()]);
        if is_left { [rest, row].concat() } else { [row, rest].concat() }
    };
    let ids: Vec<u32> = rows.iter().flat_map(|row| pad(row, 0)).collect();
    let mask: Vec<f32> =
        rows.iter().flat_map(|row| pad(&vec![1; row.len()], 0)).map(|token| token as f32).collect();
    let shape = (rows.len(), longest);
    let ids = Tensor::from_vec(ids, shape, &device()).unwrap();
    Batch::from_tensors(ids, &Tensor::from_vec(mask, shape, &device()).unwrap()).unwrap()
}

/// The greatest difference of a model's logits from the expected ones, for prompts alone and together.
pub(crate) fn worst_logits(
    model: &dyn CausalLm,
    expected: &Expected,
    tensors: &HashMap<String, Tensor>,
) -> f32 {
    let logits: Vec<Vec<f32>> =
        (0..expected.rows.len()).map(|row| values(&tensors[&format!("logits.{row}")])).collect();
    let mut most: f32 = 0.0;
    for (row, logits) in expected.rows.iter().zip(&logits) {
        let input = Batch::new(&[row], 0, &device()).unwrap();
        most = most.max(worst(&values(&model.forward(&input).unwrap()), logits));
    }
    for is_left in [true, false] {
        let found = model.forward(&batch(&expected.rows, is_left)).unwrap();
        let longest = found.dim(1).unwrap();
        for (at, (row, logits)) in expected.rows.iter().zip(&logits).enumerate() {
            let start = if is_left { longest - row.len() } else { 0 };
            let own = found.get(at).unwrap().narrow(0, start, row.len()).unwrap();
            most = most.max(worst(&values(&own), logits));
        }
    }
    most
}

#[test]
fn whole_logits_equal_transformers_alone_and_in_a_batch() {
    for Fixture { name, folder, expected, tensors, .. } in fixtures() {
        for (engine, model) in models(&folder) {
            let most = worst_logits(&*model, &expected, &tensors);
            near(&name, &format!("logits, {engine}"), most, 1e-4);
        }
    }
}

#[test]
fn generations_equal_transformers_in_any_order() {
    for Fixture { name, folder, expected, .. } in fixtures() {
        for (engine, model) in models(&folder) {
            for Case { name: case, options, outputs } in &expected.cases {
                let mut most: f32 = 0.0;
                let mut compare = |rows: &[Vec<u32>], outputs: &[&Vec<Output>]| {
                    let found = generate_causal(&*model, rows, options).unwrap();
                    for (row, (found, outputs)) in found.iter().zip(outputs).enumerate() {
                        assert_eq!(found.len(), outputs.len());
                        for (found, output) in found.iter().zip(*outputs) {
                            assert_eq!(found.tokens, output.tokens, "{name}, {engine}, {case}, row {row}");
                            most = most.max((found.score - output.score).abs());
                        }
                    }
                };
                compare(&expected.rows, &outputs.iter().collect::<Vec<_>>());
                let reversed: Vec<Vec<u32>> = expected.rows.iter().rev().cloned().collect();
                compare(&reversed, &outputs.iter().rev().collect::<Vec<_>>());
                for (row, outputs) in expected.rows.iter().zip(outputs) {
                    compare(std::slice::from_ref(row), &[outputs]);
                }
                near(&name, &format!("{case}, {engine}: same tokens, scores"), most, 1e-4);
            }
        }
    }
}

#[test]
fn samples_from_the_first_token_alone_are_greedy() {
    for Fixture { name, folder, expected, .. } in fixtures() {
        for (engine, model) in models(&folder) {
            let greedy = &expected.cases[0];
            let options = GenerationOptions {
                do_sample: Some(true),
                top_k: Some(1),
                seed: Some(3),
                ..greedy.options.clone()
            };
            let found = generate_causal(&*model, &expected.rows, &options).unwrap();
            for (found, output) in found.iter().zip(&greedy.outputs) {
                assert_eq!(found[0].tokens, output[0].tokens, "{name}, {engine}");
            }
        }
    }
}

#[test]
fn a_prompt_ends_as_it_is_read_token_by_token() {
    // The first keys of this one keep the angles of short inputs, which a whole prompt does not have.
    for name in kinds().filter(|name| *name != "minicpm3") {
        let Fixture { folder, expected, tensors, .. } = fixture("decoders", name);
        let logits = values(&tensors["logits.0"]);
        for (engine, model) in models(&folder) {
            let mut cache = Default::default();
            let mut last = Vec::new();
            for token in &expected.rows[0] {
                last = model.decode(&[*token], 1, &mut cache).unwrap();
            }
            near(
                name,
                &format!("token by token, {engine}"),
                worst(&last, &logits[logits.len() - last.len()..]),
                1e-4,
            );
        }
    }
}

/// Whether the weights are those of a mixture of experts.
fn tensors_of_experts(folder: &Path) -> bool {
    let weights = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    weights.keys().any(|name| name.contains(".experts."))
}

#[test]
fn eight_bits_stay_near() {
    // The first GPT has no packed form.
    for name in kinds().filter(|name| *name != "openai-gpt") {
        let Fixture { folder, expected, tensors, .. } = fixture("decoders", name);
        let rounded = Checkpoint::open(&folder).unwrap().causal(DeviceName::Cpu, Precision::Int8).unwrap();
        let input = Batch::new(&[&expected.rows[0]], 0, &Device::Cpu).unwrap();
        let found = values(&rounded.forward(&input).unwrap());
        let logits = values(&tensors["logits.0"]);
        let range = logits.iter().copied().fold(0f32, |most, logit| most.max(logit.abs()));
        let mean = found.iter().zip(&logits).map(|(a, b)| (a - b).abs()).sum::<f32>() / logits.len() as f32;
        // Rounded states may be read by other experts.
        let part = if tensors_of_experts(&folder) { 0.3 } else { 0.1 };
        assert!(mean > 0.0 && mean < part * range, "{name}: {mean} of {range}");
    }
}

#[test]
fn a_gguf_file_of_each_kind_holds_the_same_model() {
    for name in KINDS.into_iter().chain(FILES) {
        let Fixture { folder, expected, tensors, .. } = fixture("decoders", name);
        if name == "qwen3" {
            // llama.cpp has no such window for Qwen: this file is of the model without it.
            let file = Gguf::open(&folder.join("model.gguf")).unwrap();
            let whole = TempDir::new().unwrap();
            let text = fs::read_to_string(folder.join("config.json")).unwrap();
            let mut config: serde_json::Value = serde_json::from_str(&text).unwrap();
            config["use_sliding_window"] = false.into();
            fs::write(whole.path().join("config.json"), config.to_string()).unwrap();
            fs::copy(folder.join("model.safetensors"), whole.path().join("model.safetensors")).unwrap();
            let input = batch(&expected.rows, false);
            let [(_, own), _] = models(whole.path());
            let again = file.causal_model(DType::F32, &device()).unwrap();
            let own = values(&own.forward(&input).unwrap());
            near(name, "GGUF", worst(&values(&again.forward(&input).unwrap()), &own), 1e-5);
            continue;
        }
        let file = Gguf::open(&folder.join("model.gguf")).unwrap();
        let packed = file.causal(DeviceName::Cpu, Precision::F32).unwrap();
        near(name, "GGUF, packed", worst_logits(&*packed, &expected, &tensors), 1e-4);
        let candle = file.causal_model(DType::F32, &device()).unwrap();
        near(name, "GGUF, candle", worst_logits(&*candle, &expected, &tensors), 1e-4);
    }
}

/// The GGUF file of the fixture `llama` with these fields and tensors added.
fn changed_gguf(folder: &Path, fields: &[(&str, Value)], tensors: &[(&str, &Tensor)]) -> PathBuf {
    let mut file = fs::File::open(data("llama/model.gguf")).unwrap();
    let content = Content::read(&mut file).unwrap();
    let mut metadata = content.metadata.clone();
    metadata.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(name, value)| (name.as_str(), value)).collect();
    let mut all: Vec<(String, QTensor)> = content
        .tensor_infos
        .keys()
        .map(|name| (name.clone(), content.tensor(&mut file, name, &Device::Cpu).unwrap()))
        .collect();
    all.extend(
        tensors
            .iter()
            .map(|(name, tensor)| ((*name).into(), QTensor::quantize(tensor, GgmlDType::F32).unwrap())),
    );
    let tensors: Vec<(&str, &QTensor)> = all.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let changed = folder.join("changed.gguf");
    gguf_file::write(&mut fs::File::create(&changed).unwrap(), &metadata, &tensors).unwrap();
    changed
}

#[test]
fn a_gguf_file_stretches_angles_by_its_fields_and_by_its_divisors() {
    let text = |text: &str| Value::String(text.into());
    for (name, fields) in [
        (
            "linear",
            vec![("llama.rope.scaling.type", text("linear")), ("llama.rope.scaling.factor", Value::F32(4.0))],
        ),
        (
            "yarn",
            vec![
                ("llama.rope.scaling.type", text("yarn")),
                ("llama.rope.scaling.factor", Value::F32(4.0)),
                ("llama.rope.scaling.original_context_length", Value::U32(16)),
                ("llama.rope.scaling.yarn_beta_fast", Value::F32(4.0)),
            ],
        ),
        ("llama3", Vec::new()),
    ] {
        let Fixture { expected, tensors, .. } = fixture("ropes", name);
        let divisors: Vec<(&str, &Tensor)> =
            tensors.get("divisors").map(|divisors| ("rope_freqs.weight", divisors)).into_iter().collect();
        let folder = TempDir::new().unwrap();
        let file = Gguf::open(&changed_gguf(folder.path(), &fields, &divisors)).unwrap();
        let packed = file.causal(DeviceName::Cpu, Precision::F32).unwrap();
        near(name, "GGUF, packed", worst_logits(&*packed, &expected, &tensors), 1e-4);
        let candle = file.causal_model(DType::F32, &device()).unwrap();
        near(name, "GGUF, candle", worst_logits(&*candle, &expected, &tensors), 1e-4);
    }
}

#[test]
fn what_a_gguf_file_cannot_ask_for_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let three = Tensor::ones(3, DType::F32, &Device::Cpu).unwrap();
    let longrope = vec![("llama.rope.scaling.type", Value::String("longrope".into()))];
    for (fields, tensors, expected) in [
        (longrope, vec![], "expected `none`, `linear` or `yarn`, found `longrope`"),
        (
            vec![],
            vec![("rope_factors_long.weight", &three)],
            "field `rope_factors_long.weight`: expected no such tensor in a model that is not Phi 3",
        ),
        (vec![("general.architecture", Value::String("gemma4".into()))], vec![], "found `gemma4`"),
        (vec![("llama.rope.scaling.type", Value::U32(1))], vec![], "expected a text, found 1"),
    ] {
        let error = Gguf::open(&changed_gguf(folder.path(), &fields, &tensors)).unwrap_err();
        assert!(matches!(&error, Error::Config { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let error = Gguf::open(&changed_gguf(folder.path(), &[], &[("rope_freqs.weight", &three)])).unwrap_err();
    assert!(matches!(&error, Error::TensorShape { tensor, .. } if tensor == "rope_freqs.weight"), "{error}");
}

#[test]
fn models_with_images_are_read_without_them() {
    for (whole, part) in [
        ("gemma3", "gemma3_text"),
        ("gemma3n", "gemma3n_text"),
        ("gemma4", "gemma4_text"),
        ("mistral3", "ministral3"),
        ("mistral3", "mistral4"),
    ] {
        a_model_with_images_is_read_without_them(whole, part);
    }
    let folder = TempDir::new().unwrap();
    let read = |text: &str| {
        fs::write(folder.path().join("config.json"), text).unwrap();
        Checkpoint::open(folder.path()).unwrap_err().to_string()
    };
    let error = read(r#"{"model_type": "gemma3"}"#);
    assert!(error.ends_with("config.json: field `text_config`: expected an object, found none"), "{error}");
    let error = read(r#"{"model_type": "mistral3", "text_config": {"model_type": "llama"}}"#);
    let expected =
        "field `text_config.model_type`: expected `mistral` or `ministral3` or `mistral4`, found `llama`";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn experts_may_be_stored_together() {
    let Fixture { folder, expected, tensors, .. } = fixture("decoders", "qwen3_5_moe_text");
    let mut weights = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    for layer in 0..4 {
        let place = format!("model.layers.{layer}.mlp.experts");
        let mut all = |part: &str| -> Vec<Tensor> {
            let name = |expert: usize| format!("{place}.{expert}.{part}_proj.weight");
            (0..5).map(|expert| weights.remove(&name(expert)).unwrap()).collect()
        };
        let (gates, up, down) = (all("gate"), all("up"), all("down"));
        let both = gates.iter().zip(&up).map(|(gate, up)| Tensor::cat(&[gate, up], 0).unwrap());
        let both = Tensor::stack(&both.collect::<Vec<_>>(), 0).unwrap();
        weights.insert(format!("{place}.gate_up_proj"), both);
        weights.insert(format!("{place}.down_proj"), Tensor::stack(&down, 0).unwrap());
    }
    let whole = TempDir::new().unwrap();
    fs::copy(folder.join("config.json"), whole.path().join("config.json")).unwrap();
    candle_core::safetensors::save(&weights, whole.path().join("model.safetensors")).unwrap();
    for (engine, model) in models(whole.path()) {
        let most = worst_logits(&*model, &expected, &tensors);
        near("qwen3_5_moe_text", &format!("logits of experts together, {engine}"), most, 1e-4);
    }
}

#[test]
fn fields_of_texts_may_lie_beside_those_of_images() {
    let Fixture { folder, expected, tensors, .. } = fixture("decoders", "qwen2_vl");
    let text = fs::read_to_string(folder.join("config.json")).unwrap();
    let nested: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    // As the first files of this kind have them.
    let mut flat = nested["text_config"].as_object().unwrap().clone();
    for own in ["model_type", "architectures", "vision_config"] {
        flat.insert(own.into(), nested[own].clone());
    }
    let mut rope = flat.remove("rope_parameters").unwrap();
    flat.insert("rope_theta".into(), rope["rope_theta"].clone());
    rope.as_object_mut().unwrap().retain(|field, _| field == "mrope_section");
    rope["type"] = "mrope".into();
    flat.insert("rope_scaling".into(), rope);
    let whole = TempDir::new().unwrap();
    fs::write(whole.path().join("config.json"), serde_json::Value::from(flat).to_string()).unwrap();
    fs::copy(folder.join("model.safetensors"), whole.path().join("model.safetensors")).unwrap();
    for (engine, model) in models(whole.path()) {
        near("flat", &format!("logits, {engine}"), worst_logits(&*model, &expected, &tensors), 1e-4);
    }
}

fn a_model_with_images_is_read_without_them(model_type: &str, part: &str) {
    let Fixture { folder, expected, tensors, .. } = fixture("decoders", part);
    let text: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
    let weights = candle_core::safetensors::load(folder.join("model.safetensors"), &Device::Cpu).unwrap();
    for (prefix, images) in [
        ("language_model.model.", "vision_tower.post_norm.bias"),
        ("model.language_model.", "model.vision_tower.x"),
    ] {
        let whole = TempDir::new().unwrap();
        let config =
            serde_json::json!({ "model_type": model_type, "text_config": text, "eos_token_id": [0, 5] });
        fs::write(whole.path().join("config.json"), config.to_string()).unwrap();
        let renamed = |name: &String| match name.strip_prefix("model.") {
            Some(inner) => format!("{prefix}{inner}"),
            None if prefix.starts_with("language_model.") => format!("language_model.{name}"),
            None => name.clone(),
        };
        let mut all: HashMap<String, Tensor> =
            weights.iter().map(|(name, tensor)| (renamed(name), tensor.clone())).collect();
        all.insert(images.into(), Tensor::ones(3, DType::F32, &Device::Cpu).unwrap());
        candle_core::safetensors::save(&all, whole.path().join("model.safetensors")).unwrap();
        for (engine, model) in models(whole.path()) {
            assert_eq!(model.special_tokens().eos, [0, 5]);
            near(prefix, &format!("logits, {engine}"), worst_logits(&*model, &expected, &tensors), 1e-4);
        }
    }
}

#[test]
fn pieces_of_sentencepiece_are_merged_by_their_scores() {
    // The ids and texts are those of a `tokenizer.json` that `transformers` makes of the same pieces.
    let tokens = [
        "<unk>",
        "<s>",
        "</s>",
        "<0xC3>",
        "<0xA9>",
        "\u{2581}",
        "h",
        "e",
        "l",
        "o",
        "he",
        "ll",
        "hell",
        "hello",
        "\u{2581}hello",
        "\u{2581}h",
        "<|end|>",
    ];
    let scores = [0., 0., 0., 0., 0., -9., -10., -11., -12., -13., -1., -2., -3., -4., -5., -6., -1000.];
    let types = [2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3];
    let list = |values: &mut dyn Iterator<Item = Value>| Value::Array(values.collect());
    let tokens = list(&mut tokens.iter().map(|token| Value::String((*token).into())));
    let scores = list(&mut scores.iter().map(|score| Value::F32(*score)));
    let fields = |prefixes: bool| {
        vec![
            ("tokenizer.ggml.model", Value::String("llama".into())),
            ("tokenizer.ggml.tokens", tokens.clone()),
            ("tokenizer.ggml.scores", scores.clone()),
            ("tokenizer.ggml.token_type", list(&mut types.iter().map(|kind| Value::I32(*kind)))),
            ("tokenizer.ggml.unknown_token_id", Value::U32(0)),
            ("tokenizer.ggml.bos_token_id", Value::U32(1)),
            ("tokenizer.ggml.add_space_prefix", Value::Bool(prefixes)),
        ]
    };
    let folder = TempDir::new().unwrap();
    for (prefixes, text, ids, decoded) in [
        (true, "hello hello", vec![14, 14], "hello hello"),
        (true, "hé<|end|>hell o", vec![15, 3, 4, 16, 5, 12, 5, 9], "hé hell o"),
        (true, "zz", vec![5, 0], ""),
        (false, "hello hello", vec![13, 14], "hello hello"),
        (false, "hé<|end|>hell o", vec![6, 3, 4, 16, 12, 5, 9], "héhell o"),
        (false, "zz", vec![0], ""),
    ] {
        let file = GgufFile::open(&changed_gguf(folder.path(), &fields(prefixes), &[])).unwrap();
        let tokenizer = file.tokenizer().unwrap();
        // The mark at the beginning is the default of these files.
        assert_eq!(
            tokenizer.encode(text, None).unwrap(),
            [vec![1], ids.clone()].concat(),
            "{prefixes}, {text}"
        );
        assert_eq!(tokenizer.decode(&ids).unwrap(), decoded, "{prefixes}, {text}");
    }
    let short = ("tokenizer.ggml.scores", list(&mut std::iter::once(Value::F32(0.0))));
    let fields = [fields(true), vec![short]].concat();
    let file = GgufFile::open(&changed_gguf(folder.path(), &fields, &[])).unwrap();
    let error = file.tokenizer().unwrap_err().to_string();
    assert!(error.contains("expected a score for each of 17 tokens, found 1"), "{error}");
}

#[test]
fn what_is_written_is_read_again() {
    for name in kinds() {
        let folder = data("decoders").join(name);
        let config = Checkpoint::open(&folder).unwrap().config().clone();
        let path = Path::new("config.json");
        let again =
            sporran_transformers::ModelConfig::from_json(path, &config.to_json().to_string()).unwrap();
        assert_eq!(again, config, "{name}");
        assert!(name.starts_with(config.model_type()), "{name}");
    }
}
