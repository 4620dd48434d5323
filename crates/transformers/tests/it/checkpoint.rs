//! Model folders: every way in which one can be wrong, the names that tensors go by, and writing one.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use candle_core::{DType, Device, Tensor};
use sporran_checkpoint::{Adapter, Error, save};
use sporran_transformers::{
    Batch, CausalCache, Checkpoint, DeviceName, ModelConfig, Precision, Seq2Seq, T5Config,
};
use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A copy of a fixture's folder that a test may spoil.
fn copy(name: &str) -> TempDir {
    let folder = TempDir::new().unwrap();
    for file in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        fs::copy(data(name).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

/// Writes the weights of `folder` again after `change`.
fn change(folder: &Path, change: impl FnOnce(&mut HashMap<String, Tensor>)) {
    let path = folder.join("model.safetensors");
    let mut tensors = candle_core::safetensors::load(&path, &Device::Cpu).unwrap();
    change(&mut tensors);
    fs::remove_file(&path).unwrap();
    candle_core::safetensors::save(&tensors, &path).unwrap();
}

fn edit_config(folder: &Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

fn message(folder: &Path) -> String {
    Checkpoint::open(folder).unwrap_err().to_string().replace(&format!("{}/", folder.display()), "")
}

/// The encoder's states of a fixed input.
fn states(checkpoint: &Checkpoint, dtype: DType) -> Vec<f32> {
    let model = checkpoint.model(dtype, &Device::Cpu).unwrap();
    let batch = Batch::new(&[[5u32, 9, 30, 1]], 0, &Device::Cpu).unwrap();
    let memory = model.encode(&batch).unwrap();
    memory.hidden().to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn logits(model: &dyn Seq2Seq) -> Vec<f32> {
    let batch = Batch::new(&[[5u32, 9, 30, 1]], 0, &Device::Cpu).unwrap();
    let memory = model.encode(&batch).unwrap();
    model.decode(&[0, 8], 1, &memory, &mut sporran_transformers::Cache::new()).unwrap()
}

#[test]
fn a_missing_file_is_named() {
    let folder = copy("t5-relu");
    fs::remove_file(folder.path().join("tokenizer.json")).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap().tokenizer().unwrap_err();
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");
    assert!(
        error.to_string().contains("tokenizer.json, vocab.txt, or vocab.json with merges.txt"),
        "{error}"
    );
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::MissingFile { .. }), "{error}");
    assert!(error.to_string().contains("model.safetensors or model.safetensors.index.json"), "{error}");
    fs::remove_file(folder.path().join("config.json")).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::MissingFile { expected: "config.json", .. }), "{error}");
}

#[test]
fn a_wrong_field_of_the_config_is_named() {
    let folder = copy("t5-relu");
    edit_config(folder.path(), "\"d_model\": 24", "\"d_model\": \"24\"");
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(matches!(error, Error::Json { .. }), "{error:?}");
    assert_eq!(message(folder.path()), "config.json: field `d_model`");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("invalid type: string \"24\"") && cause.contains("line"), "{cause}");
}

#[test]
fn an_invalid_json_config_names_its_position() {
    let folder = copy("t5-relu");
    fs::write(folder.path().join("config.json"), "{\"model_type\": \"t5\",\n \"d_model\" 3}").unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(matches!(error, Error::Json { .. }) && cause.contains("line 2"), "{cause}");
}

#[test]
fn an_architecture_that_is_not_here_is_named() {
    let folder = copy("t5-relu");
    edit_config(folder.path(), "\"model_type\": \"t5\"", "\"model_type\": \"mamba\"");
    let message = message(folder.path());
    let expected = "config.json: field `model_type`: found `mamba`, which is not supported; expected one of `t5`, `mt5`, `umt5`, ";
    assert!(message.starts_with(expected) && message.contains("`llama`"), "{message}");
}

#[test]
fn a_value_that_cannot_be_used_is_named_with_its_file() {
    let folder = copy("bart");
    edit_config(folder.path(), "\"decoder_attention_heads\": 4", "\"decoder_attention_heads\": 5");
    let expected = "config.json: field `decoder_attention_heads`: expected a divisor of d_model, 24, found 5";
    assert_eq!(message(folder.path()), expected);
}

#[test]
fn a_truncated_file_reports_its_expected_length() {
    let folder = copy("t5-relu");
    let path = folder.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    // In the tensors, in the header, and before the end of the header's length.
    for length in [whole.len() - 1, 100, 5] {
        fs::write(&path, &whole[..length]).unwrap();
        match Checkpoint::open(folder.path()).unwrap_err() {
            Error::Truncated { expected, found, .. } => {
                assert_eq!(found, length as u64);
                assert!(expected > found && (length < 101 || expected == whole.len() as u64));
            }
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn a_file_that_is_not_safetensors_is_named() {
    let folder = copy("t5-relu");
    fs::write(folder.path().join("model.safetensors"), b"\x08\0\0\0\0\0\0\0notjson!").unwrap();
    assert!(matches!(Checkpoint::open(folder.path()), Err(Error::Safetensors { .. })));
}

#[test]
fn a_missing_tensor_is_named_with_its_shape() {
    let folder = copy("t5-relu");
    change(folder.path(), |tensors| {
        tensors.remove("decoder.block.1.layer.1.EncDecAttention.k.weight").unwrap();
    });
    let expected = "model.safetensors: expected tensor `decoder.block.1.layer.1.EncDecAttention.k.weight` of shape \
                    [24, 24], found none";
    assert_eq!(message(folder.path()), expected);
}

#[test]
fn a_misshaped_tensor_is_named_with_both_shapes() {
    let folder = copy("t5-relu");
    change(folder.path(), |tensors| {
        let wrong = Tensor::zeros((24, 7), DType::F32, &Device::Cpu).unwrap();
        tensors.insert("encoder.block.0.layer.1.DenseReluDense.wo.weight".into(), wrong);
    });
    let expected = "model.safetensors: tensor `encoder.block.0.layer.1.DenseReluDense.wo.weight`: expected shape \
                    [24, 40], found [24, 7]";
    assert_eq!(message(folder.path()), expected);
}

#[test]
fn a_tensor_of_integers_is_refused() {
    let folder = copy("t5-relu");
    change(folder.path(), |tensors| {
        let wrong = Tensor::zeros(24, DType::I64, &Device::Cpu).unwrap();
        tensors.insert("encoder.final_layer_norm.weight".into(), wrong);
    });
    let expected = "model.safetensors: tensor `encoder.final_layer_norm.weight`: expected dtype F32, F16 or BF16, \
                    found I64";
    assert_eq!(message(folder.path()), expected);
}

#[test]
fn a_surplus_tensor_is_listed_and_changes_nothing() {
    let folder = copy("t5-relu");
    change(folder.path(), |tensors| {
        tensors.insert("surplus".into(), Tensor::zeros(1, DType::F32, &Device::Cpu).unwrap());
    });
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.surplus(), ["surplus"]);
    let with = states(&checkpoint, DType::F32);
    assert_eq!(with, states(&Checkpoint::open(&data("t5-relu")).unwrap(), DType::F32));
}

#[test]
fn the_embedding_table_is_found_under_each_of_its_names() {
    let expected = states(&Checkpoint::open(&data("t5-relu")).unwrap(), DType::F32);
    for name in ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"] {
        let folder = copy("t5-relu");
        change(folder.path(), |tensors| {
            let table = tensors.remove("shared.weight").unwrap();
            tensors.insert(name.into(), table);
        });
        assert_eq!(states(&Checkpoint::open(folder.path()).unwrap(), DType::F32), expected, "{name}");
    }
}

#[test]
fn two_different_embedding_tables_are_refused() {
    let folder = copy("t5-relu");
    change(folder.path(), |tensors| {
        let other = (&tensors["shared.weight"] * 2.0).unwrap();
        tensors.insert("decoder.embed_tokens.weight".into(), other);
    });
    assert!(message(folder.path()).contains("expected the same values as `shared.weight`"));
}

#[test]
fn an_untied_head_is_found_in_every_config_form() {
    // transformers 5 writes `tie_word_embeddings: true` with two different tensors; older ones write `false`.
    let expected =
        logits(&*Checkpoint::open(&data("t5-gated")).unwrap().model(DType::F32, &Device::Cpu).unwrap());
    let folder = copy("t5-gated");
    edit_config(folder.path(), "\"scale_decoder_outputs\": false,", "");
    edit_config(folder.path(), "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false");
    let found = logits(&*Checkpoint::open(folder.path()).unwrap().model(DType::F32, &Device::Cpu).unwrap());
    assert_eq!(found, expected);
}

#[test]
fn bart_is_found_without_the_prefix_of_its_names() {
    let folder = copy("bart");
    change(folder.path(), |tensors| {
        let all: Vec<_> = tensors.drain().collect();
        tensors.extend(
            all.into_iter().map(|(name, tensor)| (name.trim_start_matches("model.").to_string(), tensor)),
        );
    });
    let expected = states(&Checkpoint::open(&data("bart")).unwrap(), DType::F32);
    assert_eq!(states(&Checkpoint::open(folder.path()).unwrap(), DType::F32), expected);
}

#[test]
fn bart_without_a_bias_of_its_logits_has_none() {
    let folder = copy("bart");
    let mut bias = Vec::new();
    change(folder.path(), |tensors| {
        bias = tensors.remove("final_logits_bias").unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    });
    let model = |folder: &Path| Checkpoint::open(folder).unwrap().model(DType::F32, &Device::Cpu).unwrap();
    let (with, without) = (logits(&*model(&data("bart"))), logits(&*model(folder.path())));
    assert!(bias.iter().any(|bias| *bias != 0.0));
    for ((with, without), bias) in with.iter().zip(&without).zip(&bias) {
        assert!((with - without - bias).abs() < 1e-5);
    }
}

#[test]
fn bart_refuses_more_tokens_than_it_has_positions() {
    let model = Checkpoint::open(&data("bart")).unwrap().model(DType::F32, &Device::Cpu).unwrap();
    let batch = Batch::new(&[vec![5u32; 513]], 1, &Device::Cpu).unwrap();
    let error = model.encode(&batch).unwrap_err().to_string();
    assert_eq!(error, "batch: expected at most 512 input tokens, found 513");
}

#[test]
fn shards_give_the_same_model_as_one_file() {
    let folder = copy("t5-relu");
    let path = folder.path().join("model.safetensors");
    let mut tensors: Vec<_> =
        candle_core::safetensors::load(&path, &Device::Cpu).unwrap().into_iter().collect();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    fs::remove_file(&path).unwrap();
    let mut places = serde_json::Map::new();
    let half = tensors.len() / 2;
    for (shard, part) in [&tensors[..half], &tensors[half..]].into_iter().enumerate() {
        let name = format!("model-0000{}-of-00002.safetensors", shard + 1);
        let part: HashMap<String, Tensor> = part.iter().cloned().collect();
        candle_core::safetensors::save(&part, folder.path().join(&name)).unwrap();
        places.extend(part.into_keys().map(|tensor| (tensor, name.clone().into())));
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": places });
    fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    let expected = states(&Checkpoint::open(&data("t5-relu")).unwrap(), DType::F32);
    assert_eq!(states(&Checkpoint::open(folder.path()).unwrap(), DType::F32), expected);
    fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    assert!(matches!(Checkpoint::open(folder.path()), Err(Error::MissingShard { .. })));
}

#[test]
fn a_written_folder_holds_the_same_model_and_the_same_bytes() {
    let original = Checkpoint::open(&data("t5-gated")).unwrap();
    let weights = original.var_map(DType::F32, &Device::Cpu).unwrap();
    let tokenizer = original.tokenizer().unwrap();
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let inside = first.path().join("models/reader");
    save(&inside, original.config(), &weights, &tokenizer, DType::F32).unwrap();
    save(second.path(), original.config(), &weights, &tokenizer, DType::F32).unwrap();
    for file in ["config.json", "model.safetensors", "tokenizer.json"] {
        assert_eq!(
            fs::read(inside.join(file)).unwrap(),
            fs::read(second.path().join(file)).unwrap(),
            "{file}"
        );
    }
    let again = Checkpoint::open(&inside).unwrap();
    assert_eq!(again.config(), original.config());
    assert_eq!(again.special_tokens().unwrap(), original.special_tokens().unwrap());
    let logits = |checkpoint: &Checkpoint| logits(&*checkpoint.model(DType::F32, &Device::Cpu).unwrap());
    assert_eq!(logits(&again), logits(&original));
    // Over an old folder too.
    save(&inside, original.config(), &weights, &tokenizer, DType::F16).unwrap();
    assert_eq!(fs::read_dir(&inside).unwrap().count(), 3);
    let worst = std::iter::zip(
        states(&Checkpoint::open(&inside).unwrap(), DType::F32),
        states(&original, DType::F32),
    )
    .map(|(a, b)| (a - b).abs())
    .fold(0.0, f32::max);
    // f16 keeps eleven bits.
    assert!(worst > 0.0 && worst < 0.05, "{worst}");
}

#[test]
fn half_precision_is_read_and_computed_in() {
    for name in ["t5-relu", "bart"] {
        let exact = Checkpoint::open(&data(name)).unwrap();
        let expected = states(&exact, DType::F32);
        let worst = |found: Vec<f32>| {
            std::iter::zip(found, &expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        // Eleven bits of f16 and eight of bf16, through some layers.
        let computed = worst(states(&exact, DType::F16));
        assert!(computed > 0.0 && computed < 0.1, "{name}: {computed}");
        let folder = copy(name);
        change(folder.path(), |tensors| {
            tensors.values_mut().for_each(|tensor| *tensor = tensor.to_dtype(DType::BF16).unwrap());
        });
        let read = worst(states(&Checkpoint::open(folder.path()).unwrap(), DType::F32));
        assert!(read > 0.0 && read < 0.8, "{name}: {read}");
    }
}

#[test]
fn weights_that_are_not_those_of_the_config_are_not_written() {
    let original = Checkpoint::open(&data("t5-relu")).unwrap();
    let (weights, tokenizer) =
        (original.var_map(DType::F32, &Device::Cpu).unwrap(), original.tokenizer().unwrap());
    let ModelConfig::T5(config) = original.config().clone() else { panic!("not a T5") };
    let wider = ModelConfig::T5(T5Config { d_ff: 41, ..config });
    let folder = TempDir::new().unwrap();
    let error = save(folder.path(), &wider, &weights, &tokenizer, DType::F32).unwrap_err();
    assert!(matches!(error, Error::TensorShape { .. }), "{error}");
    let error = save(folder.path(), original.config(), &weights, &tokenizer, DType::U32).unwrap_err();
    assert!(matches!(error, Error::Dtype { .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn fresh_models_of_each_architecture_are_written_and_opened() {
    for name in ["t5-relu", "bart"] {
        let original = Checkpoint::open(&data(name)).unwrap();
        let weights = original.config().initialise(3, DType::F32, &Device::Cpu).unwrap();
        let folder = TempDir::new().unwrap();
        save(folder.path(), original.config(), &weights, &original.tokenizer().unwrap(), DType::F32).unwrap();
        let opened = Checkpoint::open(folder.path()).unwrap();
        assert_eq!(opened.config(), original.config());
        assert!(states(&opened, DType::F32).iter().all(|value| value.is_finite()));
    }
}

/// The error of opening a fixture whose config has `value` in a field.
fn refused(name: &str, field: &str, value: u64) -> String {
    let folder = TempDir::new().unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(data(name).join(file), folder.path().join(file)).unwrap();
    }
    let path = folder.path().join("config.json");
    let mut config: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    assert!(config.get(field).is_some(), "{name} has no {field}");
    config[field] = value.into();
    fs::write(&path, config.to_string()).unwrap();
    message(folder.path())
}

#[test]
fn counts_that_the_weights_cannot_have_are_refused_before_anything_is_made_of_them() {
    const MANY: u64 = i32::MAX as u64;
    for (name, field) in [
        ("gpt2", "n_layer"),
        ("llama", "num_hidden_layers"),
        ("bart", "encoder_layers"),
        ("bart", "decoder_layers"),
        ("t5-relu", "num_layers"),
        ("encoders/bert-sequence", "num_hidden_layers"),
    ] {
        let said = refused(name, field, MANY);
        let expected = format!("field `{field}`: expected no more layers than the weights have tensors");
        assert!(said.contains(&expected), "{name}: {said}");
    }
    for (name, field, value) in [
        ("llama", "head_dim", 1 << 62),
        ("llama", "max_position_embeddings", MANY + 1),
        ("gpt2", "n_embd", 3 << 40),
        ("t5-relu", "d_kv", MANY),
        ("t5-relu", "vocab_size", u64::from(u32::MAX)),
    ] {
        let said = refused(name, field, value);
        assert!(said.contains(&format!("field `{field}`: expected at most 2147483647")), "{name}: {said}");
    }
    // Rotary positions take no memory, and learned ones are missed in the weights.
    assert!(refused("bart", "max_position_embeddings", MANY).contains("embed_positions.weight"));
}

/// A fixture of the adapters in the crate `checkpoint`.
fn adapter(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../checkpoint/tests/data/lora").join(name)
}

#[test]
fn an_adapter_is_opened_as_the_model_that_its_merge_is() {
    let to = TempDir::new().unwrap();
    for name in ["llama", "bert"] {
        let folder = adapter(name).join("adapter");
        let merged = to.path().join(name);
        Adapter::open(&folder).unwrap().merge(&adapter(name).join("base"), &merged).unwrap();
        let (own, whole) = (Checkpoint::open(&folder).unwrap(), Checkpoint::open(&merged).unwrap());
        assert_eq!(own.config(), whole.config(), "{name}");
        assert_eq!(own.surplus(), whole.surplus(), "{name}");
        let values =
            |checkpoint: &Checkpoint, parameter: &str| checkpoint.stored().values(parameter).unwrap();
        for parameter in whole.parameters() {
            assert_eq!(values(&own, &parameter.name), values(&whole, &parameter.name), "{}", parameter.name);
        }
        assert_eq!(own.stored_types(), whole.stored_types(), "{name}");
    }
}

#[test]
fn outputs_of_an_adapter_are_those_of_its_merge_and_not_of_its_base() {
    let to = TempDir::new().unwrap();
    let folder = adapter("llama").join("adapter");
    let base = adapter("llama").join("base");
    let merged = to.path().join("merged");
    Adapter::open(&folder).unwrap().merge(&base, &merged).unwrap();
    let logits = |folder: &Path| {
        let model = Checkpoint::open(folder).unwrap();
        let model = model.causal(DeviceName::Cpu, Precision::F32).unwrap();
        let input = Batch::new(&[vec![3, 5, 7, 2], vec![4, 9]], 0, model.device()).unwrap();
        model.begin(&input, &mut CausalCache::default()).unwrap()
    };
    assert_eq!(logits(&folder), logits(&merged));
    assert_ne!(logits(&folder), logits(&base));
}

#[test]
fn an_adapter_without_its_base_is_told_by_the_bases_name() {
    let folder = TempDir::new().unwrap();
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(adapter("llama/adapter").join(file), folder.path().join(file)).unwrap();
    }
    let error = Checkpoint::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("base model `../base`"), "{error}");
    // The base may also lie beside the adapter.
    let text = fs::read_to_string(folder.path().join("adapter_config.json")).unwrap();
    fs::write(folder.path().join("adapter_config.json"), text.replace("../base", "base")).unwrap();
    fs::create_dir(folder.path().join("base")).unwrap();
    for file in ["config.json", "model.safetensors"] {
        fs::copy(adapter("llama/base").join(file), folder.path().join("base").join(file)).unwrap();
    }
    assert!(Checkpoint::open(folder.path()).is_ok());
}
