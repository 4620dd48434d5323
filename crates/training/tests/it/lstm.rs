//! LSTMs against PyTorch's `nn.LSTM`, by the figures that `scripts/reference/lstm_parity.py` makes.

use std::{collections::HashMap, path::PathBuf};

use candle_core::{Device, Tensor};
use sporran_training::{BiLstm, Gradients, Variables};
use sporran_transformers::{LstmOptions, PackedBiLstm};

/// As in the script.
const SHAPE: LstmOptions = LstmOptions { inputs: 6, hidden: 10, layers: 2, dropout: 0.0 };

fn fixture() -> HashMap<String, Tensor> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/lstm.safetensors");
    candle_core::safetensors::load(path, &Device::Cpu).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_close(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    let size = expected.iter().map(|value| value.abs()).fold(1e-2, f32::max);
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 1e-5 * size, "{name}: {a} for {b}, of at most {size}");
    }
}

#[test]
fn states_and_gradients_of_packed_sequences_are_those_of_pytorch() {
    let given = fixture();
    let lengths: Vec<usize> = values(&given["lengths"]).into_iter().map(|length| length as usize).collect();
    let weights = given.iter().filter(|(name, _)| name.starts_with("lstm.") && !name.ends_with(".gradient"));
    let variables = Variables::with_initial(0, weights.map(|(name, tensor)| (name.clone(), tensor.clone())));
    let lstm = BiLstm::new(SHAPE, "lstm", &variables).unwrap();
    let xs = values(&given["xs"]);
    let packed = PackedBiLstm::open(SHAPE, "lstm", &given).unwrap();
    assert_close("packed states", &packed.states(&xs, &lengths).unwrap(), &values(&given["states"]));
    let pass = lstm.forward(&xs, &lengths, None).unwrap();
    assert_close("states", pass.states(), &values(&given["states"]));
    let mut gradients: Gradients =
        variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
    let to_xs = lstm.backward(pass, &values(&given["to_states"]), &mut gradients).unwrap();
    assert_close("inputs", &to_xs, &values(&given["to_xs"]));
    for ((name, _), gradient) in variables.all().iter().zip(&gradients) {
        assert_close(name, gradient, &values(&given[&format!("{name}.gradient")]));
    }
}
