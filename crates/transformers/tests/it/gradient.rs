//! The training form: every weight has its exact gradient, and dropout follows its seed.

use std::path::Path;

use crate::device::device;
use candle_core::{DType, Tensor};
use candle_nn::{VarBuilder, VarMap};
use sporran_transformers::{Batch, Checkpoint, Mode, ModelConfig, Trainable};

struct Model {
    weights: VarMap,
    model: Box<dyn Trainable>,
}

/// A fixture's model over trainable variables, with this dropout rate.
fn model(name: &str, rate: f64, dtype: DType) -> Model {
    let checkpoint =
        Checkpoint::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap();
    let weights = checkpoint.var_map(dtype, &device()).unwrap();
    let mut config = checkpoint.config().clone();
    match &mut config {
        ModelConfig::T5(config) => config.dropout_rate = rate,
        ModelConfig::Bart(config) => {
            config.dropout = rate;
            (config.encoder_layerdrop, config.decoder_layerdrop) = (0.0, 0.0);
        }
        other => panic!("{other:?}"),
    }
    let vb = VarBuilder::from_varmap(&weights, dtype, &device());
    let defaults = (checkpoint.special_tokens().unwrap().clone(), checkpoint.generation_defaults().clone());
    Model { model: config.build(&vb, defaults.0, defaults.1).unwrap(), weights }
}

/// A smooth function of all logits at the positions that are not padding.
fn loss(model: &Model, mode: &mut Mode) -> f64 {
    tensor_loss(model, mode).to_scalar().unwrap()
}

fn tensor_loss(model: &Model, mode: &mut Mode) -> Tensor {
    let batch = Batch::new(&[vec![5u32, 9, 30, 4, 2], vec![7, 2]], 0, &device()).unwrap();
    let decoder = Batch::new(&[vec![2u32, 8, 11, 40], vec![2, 6]], 0, &device()).unwrap();
    let logits = model.model.forward(&batch, &decoder.ids, &decoder.mask, mode).unwrap();
    let log_p = candle_nn::ops::log_softmax(&logits, 2).unwrap();
    let picked = log_p.narrow(2, 10, 20).unwrap().mean(2).unwrap().to_dtype(DType::F64).unwrap();
    (picked * decoder.mask.to_dtype(DType::F64).unwrap()).unwrap().sum_all().unwrap()
}

#[test]
fn every_weight_has_the_gradient_that_differences_show() {
    for name in [
        "t5-relu",
        "t5-gated",
        "bart",
        "umt5",
        "mbart",
        "pegasus",
        "m2m100",
        "plbart",
        "mvp",
        "bigbird_pegasus",
    ] {
        // In f64, so that differences of the loss show its gradient to many digits.
        let model = model(name, 0.0, DType::F64);
        let grads = tensor_loss(&model, &mut Mode::training(0)).backward().unwrap();
        let weights = model.weights.data().lock().unwrap().clone();
        let mut names: Vec<_> = weights.keys().cloned().collect();
        names.sort();
        for weight in names {
            let var = &weights[&weight];
            let grad = grads.get(var).unwrap_or_else(|| panic!("{name}: {weight} has no gradient"));
            // The derivative along the gradient's own direction is its norm.
            let norm = grad.sqr().unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap().sqrt();
            assert!(norm.is_finite() && norm > 0.0, "{name}: {weight}: {norm}");
            let (before, step) = (var.as_tensor().copy().unwrap(), 1e-5);
            let at = |sign: f64| {
                var.set(&(&before + (grad * (sign * step / norm)).unwrap()).unwrap()).unwrap();
                loss(&model, &mut Mode::training(0))
            };
            let slope = (at(1.0) - at(-1.0)) / (2.0 * step);
            var.set(&before).unwrap();
            assert!((slope - norm).abs() < 1e-5 * norm + 1e-8, "{name}: {weight}: {slope} for {norm}");
        }
    }
}

#[test]
fn training_without_dropout_gives_the_numbers_of_inference() {
    for name in ["t5-relu", "t5-gated", "bart", "umt5", "mbart", "pegasus"] {
        let model = model(name, 0.0, DType::F32);
        let (infer, train) = (loss(&model, &mut Mode::Inference), loss(&model, &mut Mode::training(0)));
        assert!((infer - train).abs() < 1e-4, "{name}: {infer} and {train}");
    }
}

#[test]
fn dropout_follows_its_seed() {
    for name in ["t5-relu", "bart"] {
        let model = model(name, 0.2, DType::F32);
        let at = |seed| loss(&model, &mut Mode::training(seed));
        assert_eq!(at(1), at(1), "{name}");
        assert_ne!(at(1), at(2), "{name}");
        assert_ne!(at(1), loss(&model, &mut Mode::Inference), "{name}");
    }
}

#[test]
fn generation_from_trainable_weights_keeps_no_history() {
    for name in ["t5-relu", "bart"] {
        let model = model(name, 0.1, DType::F32);
        let batch = Batch::new(&[vec![5u32, 9, 30, 4, 2]], 0, &device()).unwrap();
        let memory = model.model.encode(&batch).unwrap();
        assert!(!memory.hidden().track_op(), "{name}");
    }
}
