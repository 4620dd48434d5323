//! A cross-encoder's loss, gradients and steps against PyTorch, on the tiny checkpoints of `encoders` and the figures that
//! `scripts/reference/training_parity.py` makes.

use std::{collections::HashMap, path::PathBuf};

use crate::device::device;
use candle_core::{Device, Tensor};
use sporran_training::{
    AdamW, AdamWConfig, Gradients, Objective, RankingLoss, RankingObjective, RankingQuery, TrainingOptions,
    TunedEncoder,
};
use sporran_transformers::{BertTask, Checkpoint, EncoderRow, ModelConfig};

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data")
}

fn tensors(path: PathBuf) -> HashMap<String, Tensor> {
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// The rows of the fixture's batch, without padding at their ends. A word replaces the padding token elsewhere, as in the script.
fn rows(given: &HashMap<String, Tensor>, pad: u32) -> Vec<EncoderRow> {
    let read = |name: &str| {
        let tensor = given.get(name)?.to_dtype(candle_core::DType::U32).unwrap();
        Some(tensor.to_vec2::<u32>().unwrap())
    };
    let (mut ids, mask) = (read("input_ids").unwrap(), read("attention_mask").unwrap());
    ids.iter_mut().flatten().filter(|id| **id == pad).for_each(|id| *id = 5);
    let types = read("token_type_ids");
    (0..ids.len())
        .map(|row| {
            let length = mask[row].iter().sum::<u32>() as usize;
            EncoderRow {
                ids: ids[row][..length].to_vec(),
                types: types.as_ref().map_or_else(|| vec![0; length], |types| types[row][..length].to_vec()),
            }
        })
        .collect()
}

fn assert_close(name: &str, found: &[f32], expected: &Tensor, share: f32) {
    let expected = values(expected);
    assert_eq!(found.len(), expected.len(), "{name}");
    let size = expected.iter().map(|value| value.abs()).fold(0.0, f32::max);
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() <= share * size.max(1e-2), "{name}: {a} for {b}, of at most {size}");
    }
}

#[test]
fn loss_gradients_and_steps_are_those_of_pytorch() {
    for (name, labels) in [
        ("bert-sequence", 1),
        ("roberta-sequence", 2),
        ("modernbert-sequence", 1),
        ("modernbert-first", 2),
        ("eurobert-sequence", 1),
        ("eurobert-mean", 2),
    ] {
        let folder = data().join("encoders").join(name);
        let checkpoint = Checkpoint::open(&folder).unwrap();
        let given = tensors(folder.join("expected.safetensors"));
        let expected = tensors(
            PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join("tests/data/tuned")
                .join(format!("{name}.safetensors")),
        );
        let mut encoder =
            TunedEncoder::open(&checkpoint, BertTask::SequenceClassification, labels, 0, &device()).unwrap();
        // Without dropout, as the fixture was made.
        let mut config = encoder.config().clone();
        if let ModelConfig::Bert(config) = &mut config {
            config.hidden_dropout_prob = 0.0;
            config.attention_probs_dropout_prob = 0.0;
            config.head_dropout = 0.0;
        }
        encoder = TunedEncoder::new(&config, encoder.variables().clone(), &device()).unwrap();

        let pad = match &config {
            ModelConfig::Bert(config) => config.pad_token_id,
            ModelConfig::ModernBert(config) => config.pad_token_id,
            ModelConfig::Llama(config) => config.pad_token_id.unwrap(),
            other => panic!("{}", other.model_type()),
        };
        let query = RankingQuery {
            query: None,
            rows: rows(&given, pad),
            targets: vec![0.9, 0.0, 0.6, 0.3],
            offsets: Vec::new(),
        };
        let options = TrainingOptions::default();
        let objective =
            RankingObjective::new(&encoder, vec![query], RankingLoss::Binary, None, &options).unwrap();
        let batch = objective.epoch(0).unwrap().remove(0);
        let decay = AdamWConfig { weight_decay: 0.1, ..AdamWConfig::default() };
        let mut optimizer = AdamW::new(encoder.variables().all(), decay).unwrap();
        for step in 0..3 {
            let mut gradients = Gradients::zeros(optimizer.variables().map(|(_, var)| var));
            let loss = objective.learn(&batch, objective.weight(&batch), 0, &mut gradients).unwrap();
            if step == 0 {
                assert_close("loss", &[loss as f32], &expected["loss"], 1e-5);
                let mut reached = 0;
                for (at, (name, _)) in optimizer.variables().enumerate() {
                    let gradient = gradients.values(at).unwrap();
                    assert_close(name, &gradient, &expected[&format!("gradient.{name}")], 1e-4);
                    reached += usize::from(gradient.iter().any(|value| *value != 0.0));
                }
                assert_eq!(reached, gradients.len(), "a weight of {name} has no gradient");
                assert_eq!(expected.keys().filter(|key| key.starts_with("gradient.")).count(), reached);
            }
            optimizer.step(&gradients, 1e-2).unwrap();
        }
        for (name, var) in optimizer.variables() {
            // A key's bias has no gradient but rounding, whose sign decides the step.
            if !name.ends_with("key.bias") && !name.ends_with("Wqkv.bias") {
                assert_close(name, &values(var.as_tensor()), &expected[&format!("weight.{name}")], 1e-2);
            }
        }
    }
}

#[test]
fn a_body_starts_from_its_folder_and_a_missing_head_from_its_seed() {
    let checkpoint = Checkpoint::open(&data().join("encoders/bert-states")).unwrap();
    let open =
        |seed| TunedEncoder::open(&checkpoint, BertTask::SequenceClassification, 1, seed, &device()).unwrap();
    let of =
        |encoder: &TunedEncoder, name: &str| values(encoder.variables().named(name).unwrap().as_tensor());
    let (one, two) = (open(1), open(2));
    let body = "bert.encoder.layer.1.output.dense.weight";
    let stored =
        checkpoint.tensor("encoder.layer.1.output.dense.weight", candle_core::DType::F32, &device()).unwrap();
    assert_eq!(of(&one, body), values(&stored));
    assert_eq!(of(&two, body), values(&stored));
    // BERT's pooler is in the folder, though its states alone do not need it.
    let pooler = "bert.pooler.dense.weight";
    assert_eq!(of(&one, pooler), of(&two, pooler));
    assert_ne!(of(&one, "classifier.weight"), of(&two, "classifier.weight"));
    let generator = Checkpoint::open(&data().join("t5-relu")).unwrap();
    let error =
        TunedEncoder::open(&generator, BertTask::SequenceClassification, 1, 0, &device()).unwrap_err();
    assert!(error.to_string().contains("`t5`"), "{error}");
}
