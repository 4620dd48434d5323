//! Adapters of LoRA against PEFT's merge. The fixtures are from `scripts/reference/lora.py`.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::{Adapter, Error, Hub, Merged, tensors, tensors_of, weight_types};
use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/lora").join(name)
}

/// The adapter `name` merged with its base model, in a new folder.
fn merge(name: &str) -> (TempDir, Merged) {
    let (to, folder) = (TempDir::new().unwrap(), data(name).join("adapter"));
    let adapter = Adapter::open(&folder).unwrap();
    let base = adapter.base(Hub::new(to.path().join("cache"))).unwrap();
    let merged = adapter.merge(&base, &to.path().join("model")).unwrap();
    (to, merged)
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Compares every tensor of PEFT's merge with ours, within `bound` of its size.
fn compare(name: &str, folder: &Path, bound: f32) {
    let (found, _) = tensors(folder, DType::F32, &Device::Cpu).unwrap();
    let expected: HashMap<String, Tensor> =
        tensors_of(&data(name), "merged.safetensors", DType::F32, &Device::Cpu).unwrap();
    assert!(expected.len() > 10);
    for (key, expected) in expected {
        let own = found.get(&key).or_else(|| found.get(key.strip_prefix("bert.")?));
        let own = own.unwrap_or_else(|| panic!("{name}: {key}"));
        assert_eq!(own.dims(), expected.dims(), "{name}: {key}");
        for (own, expected) in values(own).into_iter().zip(values(&expected)) {
            let most = bound * expected.abs().max(1.0);
            assert!((own - expected).abs() <= most, "{name}: {key}: {own} {expected}");
        }
    }
}

#[test]
fn gpt2s_matrices_are_transposed_and_ranks_stabilised() {
    let (to, merged) = merge("gpt2");
    compare("gpt2", &to.path().join("model"), 1e-5);
    assert_eq!((merged.layers, merged.rank, merged.is_rank_stabilised), (2, 2, true));
    let text = merged.to_string();
    assert!(text.starts_with("rsLoRA of 2 layers (c_attn, c_proj), r 2, alpha 3; base model "), "{text}");
}

#[test]
fn a_layer_of_the_base_model_beside_its_matrices_keeps_them() {
    let folder = edited("gpt2", "\"r\": 2", "\"r\": 2");
    let file = folder.path().join("adapter_model.safetensors");
    let mut stored = candle_core::safetensors::load(&file, &Device::Cpu).unwrap();
    let matrices: Vec<String> = stored.keys().filter(|name| name.contains(".lora_A.")).cloned().collect();
    for name in matrices {
        // PEFT writes the base model's values; others show that they are not read.
        let own = name.replace(".lora_A.", ".base_layer.");
        stored.insert(own, Tensor::zeros((2, 2), DType::F32, &Device::Cpu).unwrap());
    }
    candle_core::safetensors::save(&stored, &file).unwrap();
    let to = TempDir::new().unwrap();
    let model = to.path().join("model");
    let merged = Adapter::open(folder.path()).unwrap().merge(&data("gpt2").join("base"), &model).unwrap();
    compare("gpt2", &model, 1e-5);
    assert_eq!((merged.layers, merged.replaced.len()), (2, 0));
}

#[test]
fn half_precision_stays_as_the_base_model_has_it() {
    let (to, merged) = merge("llama");
    let folder = to.path().join("model");
    // A unit in the last place of bf16: PEFT rounds the product before the sum.
    compare("llama", &folder, 0.5f32.powi(7));
    assert_eq!(merged.layers, 4);
    let types = weight_types(&folder.join("model.safetensors")).unwrap();
    assert_eq!(types.keys().collect::<Vec<_>>(), ["bf16"]);
}

#[test]
fn saved_modules_and_biases_come_with_the_class_of_their_task() {
    let (to, merged) = merge("bert");
    let folder = to.path().join("model");
    compare("bert", &folder, 1e-5);
    assert_eq!((merged.layers, merged.replaced.len()), (2, 2));
    assert_eq!(merged.added, ["classifier.bias", "classifier.weight"]);
    let config: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("config.json")).unwrap()).unwrap();
    assert_eq!(config["architectures"][0], "BertForSequenceClassification");
    assert_eq!(config["id2label"].as_object().unwrap().len(), 3);
}

/// A copy of an adapter, whose config is edited.
fn edited(name: &str, from: &str, to: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    let text = fs::read_to_string(data(name).join("adapter/adapter_config.json")).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(folder.path().join("adapter_config.json"), text.replace(from, to)).unwrap();
    let file = "adapter_model.safetensors";
    fs::copy(data(name).join("adapter").join(file), folder.path().join(file)).unwrap();
    folder
}

#[test]
fn an_adapter_without_its_base_model_is_told_what_to_do() {
    for base in ["../base", "org/never-cached"] {
        let folder = edited("bert", "\"../base\"", &format!("\"{base}\""));
        let adapter = Adapter::open(folder.path()).unwrap();
        let error = adapter.base(Hub::new(folder.path().join("cache"))).unwrap_err();
        assert!(matches!(error, Error::MissingBase { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&format!("base model `{base}`")) && text.contains("--base"), "{text}");
    }
    // A model cannot be opened from it.
    let error = tensors(&data("bert/adapter"), DType::F32, &Device::Cpu).unwrap_err().to_string();
    assert!(error.contains("found an adapter") && error.contains("sporran models import"), "{error}");
}

#[test]
fn other_kinds_and_other_base_models_are_refused() {
    let dora = edited("bert", "\"use_dora\": false", "\"use_dora\": true");
    let error = Adapter::open(dora.path()).unwrap_err().to_string();
    assert!(error.contains("field `use_dora`: expected plain LoRA, where it is off, found true"), "{error}");
    let to = TempDir::new().unwrap();
    let merge = |adapter: &Path, base: &str| {
        let into = to.path().join("model");
        let error = Adapter::open(adapter).unwrap().merge(&data(base), &into).unwrap_err();
        assert!(!into.exists());
        error.to_string()
    };
    let error = merge(&data("bert/adapter"), "llama/base");
    assert!(error.contains("bert.encoder.layer.0.attention.self.query.weight` in the base model"), "{error}");
    let rank = edited("bert", "\"r\": 2", "\"r\": 3");
    assert!(merge(rank.path(), "bert/base").contains("expected matrices of rank 3"));
    let targets = edited("bert", "\"query\"", "\"key\"");
    assert!(merge(targets.path(), "bert/base").contains("expected modules of `target_modules`"));
}

#[test]
fn an_adapters_folder_has_the_tensors_of_its_merge() {
    for name in ["gpt2", "llama", "bert"] {
        let (to, _) = merge(name);
        let folder = data(name).join("adapter");
        assert!(Adapter::is_alone_in(&folder) && !Adapter::is_alone_in(&to.path().join("model")));
        let adapter = Adapter::open(&folder).unwrap();
        let config = adapter.model_config(&adapter.local_base().unwrap()).unwrap();
        let written = fs::read_to_string(to.path().join("model/config.json")).unwrap();
        let [own, merged] =
            [config, written].map(|text| serde_json::from_str::<serde_json::Value>(&text).unwrap());
        assert_eq!(own, merged, "{name}");
    }
}
