//! The loss, gradients and steps of decoder-only models against PyTorch, on the tiny checkpoints of `gpt2`, `llama` and
//! `qwen2` and the figures that `scripts/reference/causal_training_parity.py` makes.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc};

use candle_core::{DType, Device};
use serde::Deserialize;
use sporran_training::{
    AdamW, AdamWConfig, CausalObjective, Gradients, Objective, Row, TrainingOptions, export, mean_loss,
    session::{InitialModel, TrainableModel},
};
use sporran_transformers::{Batch, Checkpoint, TrainableCausal};

use crate::device::device;

#[derive(Deserialize)]
struct Expected {
    rows: Vec<Pair>,
    losses: Vec<f64>,
    gradients: BTreeMap<String, Gradient>,
}

#[derive(Deserialize)]
struct Pair {
    prompt: Vec<u32>,
    target: Vec<u32>,
}

/// The norm of a gradient, its largest absolute value, and the values at six places from the first to the last.
#[derive(Deserialize)]
struct Gradient {
    norm: f64,
    largest: f64,
    at: Vec<f64>,
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data").join(name)
}

fn expected(name: &str) -> Expected {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/causal").join(format!("{name}.json"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn initial(name: &str) -> TrainableModel<dyn TrainableCausal> {
    InitialModel::of_folder(&folder(name), 0).unwrap().build_causal(&device(), |_| String::new()).unwrap()
}

#[test]
fn loss_gradients_and_steps_are_those_of_pytorch() {
    for name in ["gpt2", "llama", "qwen2"] {
        let Expected { rows, losses, gradients: expected } = expected(name);
        let rows: Vec<Row> =
            rows.into_iter().map(|pair| Row { source: pair.prompt, target: pair.target }).collect();
        let rows = Arc::new(rows);
        let TrainableModel { model, variables, .. } = initial(name);
        let options = TrainingOptions { tokens_per_batch: 1000, ..TrainingOptions::default() };
        let given = |_| Ok(rows.clone());
        let objective = CausalObjective::new(&*model, &variables, &options, &given);
        let mut batches = objective.epoch(0).unwrap();
        assert_eq!(batches.len(), 1, "one padded batch");
        let batch = batches.remove(0);
        let decay = AdamWConfig { weight_decay: 0.1, ..AdamWConfig::default() };
        let mut optimizer = AdamW::new(variables.all(), decay).unwrap();
        for (step, loss) in losses.iter().enumerate() {
            let mut gradients = Gradients::zeros(optimizer.variables().map(|(_, var)| var));
            let found = objective.learn(&batch, objective.weight(&batch), 0, &mut gradients).unwrap();
            // Rounding in the first gradients decides the signs of some steps.
            let allowed = if step == 0 { 1e-5 } else { 2e-3 };
            assert!((found - loss).abs() < allowed * loss, "{name}, step {step}: {found} for {loss}");
            if step == 0 {
                assert_eq!(gradients.len(), expected.len(), "{name}");
                assert!((mean_loss(&*model, &rows).unwrap() - loss).abs() < 1e-5 * loss, "{name}");
                for (at, (weight, _)) in optimizer.variables().enumerate() {
                    let Gradient { norm, largest, at: places } = &expected[weight];
                    let values = gradients.values(at).unwrap();
                    let own = values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
                    assert!((own - norm).abs() < 1e-4 * norm, "{name}, {weight}: {own} for {norm}");
                    for (place, value) in places.iter().enumerate() {
                        let found = f64::from(values[place * (values.len() - 1) / (places.len() - 1)]);
                        let difference = (found - value).abs();
                        assert!(difference < 1e-4 * largest, "{name}, {weight}: {found} for {value}");
                    }
                }
            }
            optimizer.step(&gradients, 1e-2).unwrap();
        }
    }
}

#[test]
fn a_trained_model_is_opened_with_its_weights_and_its_tokenizer() {
    for name in ["gpt2", "llama", "qwen2"] {
        let TrainableModel { model, tokenizer, variables, extra_files } = initial(name);
        let place = tempfile::tempdir().unwrap();
        let [snapshot, saved] = ["snapshot", "model"].map(|part| place.path().join(part));
        fs::create_dir(&snapshot).unwrap();
        let tensors = variables.all().into_iter().map(|(name, var)| (name, var.as_tensor().clone()));
        let tensors: std::collections::HashMap<_, _> = tensors.collect();
        candle_core::safetensors::save(&tensors, snapshot.join("model.safetensors")).unwrap();
        export(&snapshot, &saved, DType::F32, &extra_files).unwrap();
        let opened = Checkpoint::open(&saved).unwrap();
        assert!(opened.surplus().is_empty(), "{name}: {:?}", opened.surplus());
        assert_eq!(opened.config(), Checkpoint::open(&folder(name)).unwrap().config());
        let again = opened.causal_model(DType::F32, &Device::Cpu).unwrap();
        let batch = Batch::new(&[vec![5u32, 9, 30, 4, 2]], 0, &Device::Cpu).unwrap();
        let logits = |model: &dyn TrainableCausal| -> Vec<f32> {
            model.forward(&batch).unwrap().flatten_all().unwrap().to_vec1().unwrap()
        };
        if device().is_cpu() {
            let both = logits(&*model).into_iter().zip(logits(&*again));
            let worst = both.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{name}: {worst}");
        }
        let text = "Where was the author born?";
        let own = tokenizer.encode(text, None).unwrap();
        assert_eq!(opened.tokenizer().unwrap().encode(text, None).unwrap(), own);
        assert!(
            saved.join("tokenizer_config.json").is_file() && saved.join("generation_config.json").is_file()
        );
    }
}

#[test]
fn added_tokens_get_rows_in_the_embeddings_and_a_place_in_the_tokenizer() {
    for name in ["gpt2", "llama", "qwen2"] {
        let initial = InitialModel::of_folder(&folder(name), 3).unwrap();
        let added = ["<speaker1>", "<speaker2>"].map(str::to_owned);
        let model = initial.with_added_tokens(&added).unwrap();
        let TrainableModel { model, tokenizer, variables, extra_files } =
            model.build_causal(&Device::Cpu, |_| String::new()).unwrap();
        let ids = added.clone().map(|token| tokenizer.token_id(&token).unwrap());
        assert!(ids[1] == ids[0] + 1 && model.vocab_size() > ids[1] as usize, "{name}: {ids:?}");
        assert_eq!(tokenizer.encode_plain("<speaker2>a<speaker1>").unwrap()[0], ids[1]);
        let original = Checkpoint::open(&folder(name)).unwrap();
        let table = if name == "gpt2" { "transformer.wte.weight" } else { "model.embed_tokens.weight" };
        let before = original.tensor(table, DType::F32, &Device::Cpu).unwrap();
        let after = variables.named(table).unwrap();
        assert_eq!(after.dims()[0], model.vocab_size());
        let kept = after.narrow(0, 0, before.dims()[0]).unwrap();
        let values = |tensor: &candle_core::Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(values(&kept), values(&before));
        let text = |file: &str| {
            let (_, content) = extra_files.iter().find(|(name, _)| name == file).unwrap();
            String::from_utf8(content.clone()).unwrap()
        };
        assert!(text("tokenizer.json").contains("<speaker2>"));
        let vocabulary = serde_json::from_str::<serde_json::Value>(&text("config.json")).unwrap();
        assert_eq!(vocabulary["vocab_size"].as_u64(), Some(model.vocab_size() as u64));
    }
    let t5 = InitialModel::of_folder(&folder("t5-relu"), 0).unwrap();
    assert!(t5.with_added_tokens(&["<x>".to_owned()]).err().unwrap().to_string().contains("`t5`"));
}
