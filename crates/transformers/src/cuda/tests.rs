//! Compares each operation with the equivalent composition of candle's operations, forward and backward. Needs a GPU:
//! `cargo test --release --features cuda -p sporran-transformers -- --include-ignored`.

use candle_core::{D, DType, Device, Result, Tensor, Var};
use sporran_kernels::AdamStep;

use super::*;
use crate::DeviceName;

fn gpu() -> Device {
    DeviceName::Cuda(0).open().unwrap()
}

/// Values that differ everywhere and are neither large nor tiny.
fn wave(shape: &[usize], frequency: f64) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i as f64 + 0.5) * frequency).sin() as f32).collect();
    Tensor::from_vec(values, shape, &gpu()).unwrap()
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The value of `f`, and the gradients of a weighted sum of it by each of `inputs`.
fn both_ways(inputs: &[Tensor], f: &dyn Fn(&[Tensor]) -> Result<Tensor>) -> Vec<Vec<f32>> {
    let variables: Vec<Var> = inputs.iter().map(|x| Var::from_tensor(x).unwrap()).collect();
    let tensors: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
    let out = f(&tensors).unwrap();
    let store = (&out * wave(out.dims(), 2.0)).unwrap().sum_all().unwrap().backward().unwrap();
    let gradients = variables.iter().map(|v| flat(store.get(v).unwrap()));
    std::iter::once(flat(&out)).chain(gradients).collect()
}

fn assert_close(name: &str, found: &[f32], expected: &[f32], limit: f32) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < limit * (1.0 + b.abs()), "{name}: {a} for {b}");
    }
}

type Operation<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

fn assert_same(name: &str, inputs: &[Tensor], own: Operation<'_>, plain: Operation<'_>) {
    for (at, (found, expected)) in both_ways(inputs, own).iter().zip(&both_ways(inputs, plain)).enumerate() {
        assert_close(&format!("{name}, {at}"), found, expected, 5e-5);
    }
}

#[test]
#[ignore = "needs a GPU"]
fn operations_and_their_gradients_are_those_of_candle() {
    // More rows than a block has, and a width that no warp divides.
    let (xs, weight) = (wave(&[3, 37, 70], 0.7), wave(&[70], 1.3));
    let rows = xs.reshape((111, 70)).unwrap();
    let matrix = wave(&[24, 70], 0.3);
    assert_same("linear", &[rows, matrix], &|x| linear(&x[0], &x[1]), &|x| x[0].matmul(&x[1].t()?));
    let both = [xs.clone(), weight];
    assert_same("add-bias", &both, &|x| add_bias(&x[0], &x[1]), &|x| x[0].broadcast_add(&x[1]));
    assert_same("gelu", &both[..1], &|x| gelu(&x[0]), &|x| x[0].gelu_erf());
    let plain = |x: &[Tensor]| candle_nn::ops::rms_norm_slow(&x[0], &x[1], 1e-5);
    assert_same("rms norm", &both, &|x| norm(&x[0], &x[1], 1e-5, false), &plain);
    let plain = |x: &[Tensor]| candle_nn::ops::layer_norm_slow(&x[0], &x[1], &x[1].zeros_like()?, 1e-5);
    assert_same("layer norm", &both, &|x| norm(&x[0], &x[1], 1e-5, true), &plain);
}

fn split(xs: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, length, _) = xs.dims3()?;
    xs.reshape((batch, length, heads, ()))?.transpose(1, 2)?.contiguous()
}

#[test]
#[ignore = "needs a GPU"]
fn attention_around_its_products_is_that_of_candle() {
    let (xs, bias) = (wave(&[3, 37, 70], 0.7), wave(&[70], 1.3));
    let plain = |x: &[Tensor]| split(&x[0].broadcast_add(&x[1])?, 5);
    assert_same("split", &[xs.clone(), bias], &|x| split_heads(&x[0], Some(&x[1]), 5), &plain);
    assert_same("split without bias", &[xs], &|x| split_heads(&x[0], None, 5), &|x| split(&x[0], 5));
    let heads = wave(&[3, 5, 37, 14], 0.7);
    let plain = |x: &[Tensor]| x[0].transpose(1, 2)?.flatten_from(D::Minus2);
    assert_same("merge", &[heads], &|x| merge_heads(&x[0]), &plain);
    let scores = wave(&[3, 5, 11, 37], 0.9);
    let softmax = |x: &Tensor| {
        let exp = x.broadcast_sub(&x.max_keepdim(D::Minus1)?.detach())?.exp()?;
        exp.broadcast_div(&exp.sum_keepdim(D::Minus1)?)
    };
    assert_same("weights", std::slice::from_ref(&scores), &|x| attention_weights(&x[0], None, 0.5), &|x| {
        softmax(&(&x[0] * 0.5)?)
    });
    for shape in [[3, 1, 1, 37], [1, 5, 11, 37], [3, 5, 11, 37], [1, 1, 11, 37], [1, 5, 1, 37]] {
        let bias = wave(&shape, 3.1);
        let own = |x: &[Tensor]| attention_weights(&x[0], Some(&bias), 0.5);
        let plain = |x: &[Tensor]| softmax(&(&x[0] * 0.5)?.broadcast_add(&bias)?);
        assert_same(&format!("weights, {shape:?}"), std::slice::from_ref(&scores), &own, &plain);
    }
    assert!(attention_weights(&scores, Some(&wave(&[3, 2, 1, 37], 1.0)), 1.0).is_err());
}

#[test]
#[ignore = "needs a GPU"]
fn halves_are_rounded_once() {
    let (xs, bias) = (wave(&[3, 37, 70], 0.7), wave(&[70], 1.3));
    for (dtype, limit) in [(DType::F16, 1e-3), (DType::BF16, 8e-3)] {
        let [x, b] = [&xs, &bias].map(|tensor| tensor.to_dtype(dtype).unwrap());
        let [x32, b32] = [&x, &b].map(|tensor| tensor.to_dtype(DType::F32).unwrap());
        let scores = |x: &Tensor| x.reshape((3, 1, 37, 70)).unwrap();
        let pairs = [
            ("add-bias", add_bias(&x, &b), add_bias(&x32, &b32)),
            ("gelu", gelu(&x), gelu(&x32)),
            ("split", split_heads(&x, Some(&b), 5), split_heads(&x32, Some(&b32), 5)),
            ("merge", merge_heads(&scores(&x)), merge_heads(&scores(&x32))),
            (
                "weights",
                attention_weights(&scores(&x), Some(&b.reshape((1, 1, 1, 70)).unwrap()), 2.0),
                attention_weights(&scores(&x32), Some(&b32.reshape((1, 1, 1, 70)).unwrap()), 2.0),
            ),
        ];
        for (name, half, whole) in pairs {
            // The rounded result is candle's rounding of the exact result, or its neighbour.
            let (half, whole) = (half.unwrap(), whole.unwrap());
            assert_eq!(half.dtype(), dtype);
            assert_close(&format!("{name}, {dtype:?}"), &flat(&half), &flat(&whole), limit);
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn dropout_keeps_the_mean_and_goes_back_through_the_same_mask() {
    let ones = Tensor::ones((300, 400), DType::F32, &gpu()).unwrap();
    let [kept, to_ones] =
        <[Vec<f32>; 2]>::try_from(both_ways(std::slice::from_ref(&ones), &|x| dropout(&x[0], 0.25, 7)))
            .unwrap();
    let zeros = kept.iter().filter(|value| **value == 0.0).count();
    // 120,000 draws at 0.25: the standard deviation of the count is 150.
    assert!((29_300..30_700).contains(&zeros), "{zeros}");
    assert!(kept.iter().all(|value| *value == 0.0 || (value - 4.0 / 3.0).abs() < 1e-5));
    let weights = flat(&wave(&[300, 400], 2.0));
    for ((kept, weight), gradient) in kept.iter().zip(weights).zip(to_ones) {
        assert!((kept * weight - gradient).abs() < 1e-6);
    }
    assert_eq!(flat(&dropout(&ones, 0.25, 7).unwrap()), kept);
    assert_ne!(flat(&dropout(&ones, 0.25, 8).unwrap()), kept);
}

#[test]
#[ignore = "needs a GPU"]
fn steps_norms_and_values_are_those_of_the_cpu() {
    // More values than one pass of all threads takes.
    let count = 300_001;
    let [values, gradient, first, second] = [0.1, 0.2, 0.3, 0.4].map(|frequency| wave(&[count], frequency));
    let second = second.abs().unwrap();
    let here = [&values, &gradient, &first, &second].map(flat);
    assert_eq!(read(&values).unwrap(), here[0]);
    assert_eq!(read(&values.narrow(0, 5, 9).unwrap()).unwrap(), here[0][5..14]);
    let squares: f64 = here[0].iter().chain(&here[1]).map(|x| f64::from(*x).powi(2)).sum();
    let found = sum_of_squares(&[&values, &gradient]).unwrap();
    assert!((found - squares).abs() < 1e-9 * squares, "{found} for {squares}");
    let step = AdamStep {
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        rate: 0.01,
        keep: 0.99,
        first_scale: 3.0,
        second_scale: 500.0,
    };
    let moments = [first, second];
    adam(&step, &values, &gradient, &moments).unwrap();
    let [mut expected, gradient, mut first, mut second] = here;
    step.update(sporran_kernels::Isa::detected(), &mut expected, &gradient, &mut first, &mut second);
    assert_close("values", &flat(&values), &expected, 1e-6);
    assert_close("first", &flat(&moments[0]), &first, 1e-6);
    assert_close("second", &flat(&moments[1]), &second, 1e-6);
}
