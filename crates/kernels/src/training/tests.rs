use super::*;

const KEEP: f64 = 0.0;

fn wave(count: usize, frequency: f64) -> Vec<f32> {
    (0..count).map(|i| ((i as f64 + 0.5) * frequency).sin() as f32).collect()
}

#[test]
fn dropout_drops_at_its_rate_keeps_the_mean_and_repeats_from_any_place() {
    for isa in Isa::available() {
        let dropout = Dropout::new(0.3, 5);
        let mut values = vec![1.0; 20_000];
        dropout.apply(isa, 0, &mut values);
        let zeros = values.iter().filter(|v| **v == 0.0).count();
        // The standard deviation of the count is 65.
        assert!((5_700..6_300).contains(&zeros), "{zeros}");
        assert!(values.iter().all(|v| *v == 0.0 || (*v - 1.0 / 0.7).abs() < 1e-6));
        let mut part = vec![1.0; 100];
        dropout.apply(isa, 7_000, &mut part);
        assert_eq!(part, values[7_000..7_100]);
        let mut other = vec![1.0; 100];
        Dropout::new(0.3, 6).apply(isa, 7_000, &mut other);
        assert_ne!(part, other);
    }
}

#[test]
fn neighbours_and_seeds_drop_independently() {
    let mask = |seed: u64| {
        let mut values = vec![1.0; 40_000];
        Dropout::new(0.5, seed).apply(Isa::Portable, 0, &mut values);
        values.into_iter().map(|v| v == 0.0).collect::<Vec<bool>>()
    };
    let (one, two) = (mask(1), mask(2));
    let both = |pairs: &mut dyn Iterator<Item = (bool, bool)>| pairs.filter(|(a, b)| *a && *b).count();
    // A quarter of 40,000, with a standard deviation of 87.
    for count in [
        both(&mut one.iter().copied().zip(two.iter().copied())),
        both(&mut one.iter().copied().zip(one.iter().copied().skip(1))),
        both(&mut one.iter().copied().zip(one.iter().copied().skip(384))),
    ] {
        assert!((9_600..10_400).contains(&count), "{count}");
    }
}

#[test]
fn derivatives_of_activations_are_those_that_differences_show() {
    let all = [
        Activation::Relu,
        Activation::SquaredRelu,
        Activation::Gelu,
        Activation::GeluTanh,
        Activation::Silu,
        Activation::Tanh,
        Activation::ClippedGelu,
        Activation::QuickGelu,
        Activation::Mish,
        Activation::Sigmoid,
        Activation::LeakyRelu,
        Activation::Relu6,
        Activation::HardSwish,
        Activation::Laplace,
        Activation::Linear,
    ];
    for isa in Isa::available() {
        for activation in all {
            for i in -60..60 {
                let x = (i as f32 + 0.5) / 10.0;
                let at = |x: f32| {
                    let mut value = [x];
                    activation.forward(isa, &mut value);
                    f64::from(value[0])
                };
                let (mut slope, mut value) = ([x], [0.0]);
                activation.differentiate(isa, &mut slope, &mut value);
                assert!((f64::from(value[0]) - at(x)).abs() < 1e-6, "{activation:?} {x}");
                let expected = (at(x + 1e-2) - at(x - 1e-2)) / 2e-2;
                // The error of a difference is a sixth of the third derivative times 1e-4; that of Laplace reaches 17.
                let near = if activation == Activation::Laplace { 5e-4 } else { 2e-4 * at(x).abs().max(1.0) };
                assert!((f64::from(slope[0]) - expected).abs() < near, "{activation:?} {x}");
            }
        }
    }
}

#[test]
fn normalisation_has_the_gradients_that_differences_show() {
    let (rows, width) = (3, 40);
    let (xs, residual) = (wave(rows * width, 0.9), wave(rows * width, 0.31));
    let (bias, scale, shift) = (wave(width, 0.7), wave(width, 0.43), wave(width, 0.2));
    let weights = wave(rows * width, 2.0);
    for isa in Isa::available() {
        for rate in [KEEP, 0.4] {
            // The weighted sum of the results, in f64.
            let loss = |xs: &[f32], residual: &[f32], bias: &[f32], scale: &[f32], shift: &[f32]| -> f64 {
                let norm = ResidualNorm {
                    bias: Some(bias),
                    dropout: Dropout::new(rate, 3),
                    scale,
                    shift,
                    eps: 1e-5,
                };
                let (mut xs, mut out) = (xs.to_vec(), residual.to_vec());
                let mut deviations = vec![0.0; rows];
                norm.forward(isa, 5, &mut xs, true, &mut out, &mut deviations);
                let mut again = vec![0.0; out.len()];
                norm.again(isa, &xs, &mut again);
                assert_eq!(out, again);
                out.iter().zip(&weights).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let norm = ResidualNorm {
                bias: Some(&bias),
                dropout: Dropout::new(rate, 3),
                scale: &scale,
                shift: &shift,
                eps: 1e-5,
            };
            let (mut normed, mut out, mut deviations) = (xs.clone(), residual.clone(), vec![0.0; rows]);
            norm.forward(isa, 5, &mut normed, true, &mut out, &mut deviations);
            let (mut gradient, mut to_xs, mut sums) =
                (weights.clone(), vec![0.0; xs.len()], vec![0.0; 3 * width]);
            norm.backward(isa, 5, &normed, &deviations, &mut gradient, &mut to_xs, &mut sums);
            let check = |found: f32, change: &dyn Fn(f32) -> f64, what: &str| {
                let expected = (change(1e-2) - change(-1e-2)) / 2e-2;
                assert!((f64::from(found) - expected).abs() < 4e-3, "{what}: {found} {expected}");
            };
            let moved = |values: &[f32], at: usize, by: f32| {
                let mut values = values.to_vec();
                values[at] += by;
                values
            };
            for at in [0, 17, 60, 119] {
                let change = |by| loss(&moved(&xs, at, by), &residual, &bias, &scale, &shift);
                check(to_xs[at], &change, "xs");
                let change = |by| loss(&xs, &moved(&residual, at, by), &bias, &scale, &shift);
                check(gradient[at], &change, "residual");
            }
            for at in [0, 13, 39] {
                let change = |by| loss(&xs, &residual, &bias, &moved(&scale, at, by), &shift);
                check(sums[at], &change, "scale");
                let change = |by| loss(&xs, &residual, &bias, &scale, &moved(&shift, at, by));
                check(sums[width + at], &change, "shift");
                let change = |by| loss(&xs, &residual, &moved(&bias, at, by), &scale, &shift);
                check(sums[2 * width + at], &change, "bias");
            }
        }
    }
}

#[test]
fn softmax_is_made_again_from_its_sums_and_has_the_gradient_that_differences_show() {
    let (rows, width) = (2, 37);
    let (scores, weights) = (wave(rows * width, 1.7), wave(rows * width, 0.6));
    for isa in Isa::available() {
        for rate in [KEEP, 0.25] {
            let softmax = SoftmaxRows { width, scale: 0.8, dropout: Dropout::new(rate, 9), first: 11 };
            let forward = |scores: &[f32]| {
                let (mut scores, mut sums) = (scores.to_vec(), vec![0.0; rows]);
                softmax.forward(isa, &mut scores, &mut sums);
                (scores, sums)
            };
            let (dropped, sums) = forward(&scores);
            let (mut again, mut dropped_again) = (scores.clone(), vec![0.0; scores.len()]);
            softmax.again(isa, &sums, &mut again, &mut dropped_again);
            for (a, b) in dropped.iter().zip(&dropped_again) {
                assert!((a - b).abs() < 1e-6, "{a} {b}");
            }
            let dot = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            // The result of a head is a sum of its dropped weights, as is the weighted sum here.
            let pulls: Vec<f32> =
                dropped.chunks(width).zip(weights.chunks(width)).map(|(p, w)| dot(p, w) as f32).collect();
            let mut gradient = weights.clone();
            softmax.backward(isa, &again, &pulls, &mut gradient);
            for at in [0, 20, 37, 73] {
                let loss = |by: f32| {
                    let mut scores = scores.clone();
                    scores[at] += by;
                    dot(&forward(&scores).0, &weights)
                };
                let expected = (loss(1e-2) - loss(-1e-2)) / 2e-2;
                assert!((f64::from(gradient[at]) - expected).abs() < 1e-4, "{at}: {expected}");
            }
        }
    }
}

#[test]
fn a_bias_is_added_before_the_activation_and_columns_are_summed() {
    let bias = wave(40, 0.3);
    for isa in Isa::available() {
        let (mut inputs, mut out) = (wave(80, 0.8), vec![0.0; 80]);
        let mut expected: Vec<f32> = inputs.iter().zip(bias.iter().cycle()).map(|(x, b)| x + b).collect();
        Activation::Gelu.biased(isa, &bias, &mut inputs, &mut out);
        assert_eq!(inputs, expected);
        Activation::Gelu.forward(isa, &mut expected[..40]);
        Activation::Gelu.forward(isa, &mut expected[40..]);
        assert_eq!(out, expected);
        let mut sums = vec![1.0; 40];
        add_columns(isa, &out, &mut sums);
        for at in 0..40 {
            assert_eq!(sums[at], 1.0 + out[at] + out[40 + at]);
        }
        multiply(isa, &mut sums, &[2.0; 40]);
        assert_eq!(sums[3], 2.0 * (1.0 + out[3] + out[43]));
    }
}

#[test]
fn exponentials_are_moved_and_scaled() {
    let values: Vec<f32> = (0..37).map(|at| (at as f32 * 0.7).sin() * 5.0).collect();
    for isa in Isa::available() {
        let mut out = vec![0.0; values.len()];
        scaled_exp(isa, &values, 1.5, 0.25, -2.0, &mut out);
        for (x, y) in values.iter().zip(out) {
            let expected = -2.0 * ((x - 1.5).exp() - 0.25);
            assert!((y - expected).abs() < 1e-5 * (1.0 + expected.abs()), "{isa:?}: {y} {expected}");
        }
    }
}
