use std::collections::HashMap;

use candle_core::Tensor;

use super::*;

const SHAPE: LstmOptions = LstmOptions { inputs: 7, hidden: 11, layers: 2, dropout: 0.3 };
const LENGTHS: [usize; 5] = [3, 0, 9, 1, 5];

fn wave(count: usize, pace: f64) -> Vec<f32> {
    (0..count).map(|at| ((at as f64 + 0.5) * pace).sin() as f32).collect()
}

fn zeros(variables: &Variables) -> Gradients {
    variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect()
}

/// A weighted sum of the states.
fn loss(lstm: &BiLstm, xs: &[f32], seed: Option<u64>) -> f64 {
    let pass = lstm.forward(xs, &LENGTHS, seed).unwrap();
    let weights = wave(pass.states().len(), 0.9);
    pass.states().iter().zip(&weights).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
}

#[test]
fn every_gradient_is_the_slope_that_differences_show_with_dropout_too() {
    let variables = Variables::new(5);
    let lstm = BiLstm::new(SHAPE, "lstm", &variables).unwrap();
    let tokens: usize = LENGTHS.iter().sum();
    let xs = wave(tokens * SHAPE.inputs, 0.37);
    for seed in [None, Some(3)] {
        let mut gradients = zeros(&variables);
        let pass = lstm.forward(&xs, &LENGTHS, seed).unwrap();
        let weights = wave(pass.states().len(), 0.9);
        let to_xs = lstm.backward(pass, &weights, &mut gradients).unwrap();
        for ((name, var), gradient) in variables.all().iter().zip(&gradients) {
            let norm = gradient.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
            assert!(norm > 1e-3, "{name} has no gradient");
            let before = var.as_tensor().copy().unwrap();
            let direction = Tensor::from_slice(gradient, var.shape(), &Device::Cpu).unwrap();
            let at = |step: f64| {
                var.set(&(&before + (&direction * (step / norm)).unwrap()).unwrap()).unwrap();
                loss(&lstm, &xs, seed)
            };
            let slope = (at(4e-3) - at(-4e-3)) / 8e-3;
            var.set(&before).unwrap();
            assert!((slope - norm).abs() < 0.01 * norm + 1e-3, "{name}: {slope} {norm}");
        }
        let norm = to_xs.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let moved = |step: f64| -> Vec<f32> {
            xs.iter().zip(&to_xs).map(|(x, g)| x + (f64::from(*g) * step / norm) as f32).collect()
        };
        let slope = (loss(&lstm, &moved(4e-3), seed) - loss(&lstm, &moved(-4e-3), seed)) / 8e-3;
        assert!((slope - norm).abs() < 0.01 * norm + 1e-3, "inputs: {slope} {norm}");
    }
}

#[test]
fn the_states_of_a_sequence_do_not_depend_on_the_others() {
    let variables = Variables::new(5);
    let packed = BiLstm::new(SHAPE, "lstm", &variables).unwrap().pack().unwrap();
    let tokens: usize = LENGTHS.iter().sum();
    let xs = wave(tokens * SHAPE.inputs, 0.37);
    let together = packed.states(&xs, &LENGTHS).unwrap();
    let mut start = 0;
    for length in LENGTHS {
        let own = &xs[start * SHAPE.inputs..(start + length) * SHAPE.inputs];
        let alone = packed.states(own, &[length]).unwrap();
        assert_eq!(alone, &together[start * SHAPE.width()..(start + length) * SHAPE.width()]);
        start += length;
    }
}

#[test]
fn saved_weights_give_the_same_states_and_others_are_refused_by_name() {
    let variables = Variables::new(5);
    let lstm = BiLstm::new(SHAPE, "lstm", &variables).unwrap();
    let mut tensors: HashMap<String, Tensor> =
        variables.all().into_iter().map(|(name, var)| (name, var.as_tensor().clone())).collect();
    let xs = wave(4 * SHAPE.inputs, 0.2);
    let states = |packed: &PackedBiLstm| packed.states(&xs, &[4]).unwrap();
    let opened = PackedBiLstm::open(SHAPE, "lstm", &tensors).unwrap();
    assert_eq!(states(&opened), states(&lstm.pack().unwrap()));
    tensors.remove("lstm.bias_hh_l1_reverse");
    let message = PackedBiLstm::open(SHAPE, "lstm", &tensors).unwrap_err().to_string();
    assert!(message.contains("lstm.bias_hh_l1_reverse") && message.contains("[44]"), "{message}");
    let many = LstmOptions { layers: usize::MAX, hidden: usize::MAX, ..SHAPE };
    assert!(matches!(
        PackedBiLstm::open(many, "lstm", &tensors),
        Err(sporran_checkpoint::Error::Stored { .. })
    ));
}

#[test]
fn what_does_not_fit_is_refused() {
    let variables = Variables::new(5);
    let lstm = BiLstm::new(SHAPE, "lstm", &variables).unwrap();
    let message = lstm.forward(&[0.0; 8], &[1], None).unwrap_err().to_string();
    assert!(message.contains("1 tokens of 7 values") && message.contains("8 values"), "{message}");
    let wrong = LstmOptions { hidden: 0, ..SHAPE };
    assert!(BiLstm::new(wrong, "other", &variables).unwrap_err().to_string().contains("hidden"));
    assert!(lstm.pack().unwrap().states(&[], &[]).unwrap().is_empty());
}
