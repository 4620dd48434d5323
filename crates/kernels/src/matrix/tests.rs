use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

fn random(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn rows(values: &[f32], width: usize) -> Rows {
    let mut rows = Rows::new(values.len() / width, width);
    values.chunks_exact(width).enumerate().for_each(|(at, row)| rows.row_mut(at).copy_from_slice(row));
    rows
}

/// Rows, inputs and outputs: single ones, whole tiles and panels, and one more.
const SHAPES: [(usize, usize, usize); 11] = [
    (1, 1, 1),
    (1, 64, 32),
    (3, 7, 5),
    (12, 96, 64),
    (13, 33, 65),
    (32, 64, 31),
    (65, 130, 100),
    (200, 48, 600),
    // Deeper than AMX splits at once, and odd numbers of its tiles.
    (53, 832, 70),
    (545, 64, 40),
    // Several pieces of a panel, in int8 too.
    (40, 2_501, 33),
];

fn run(isa: Isa, product: &Product<'_>, input: &Rows, out: &mut Rows) {
    product.run(&mut Machine::new(isa), input, 0..input.count(), out, 0);
}

#[test]
fn a_product_in_f32_is_that_of_the_definition() {
    for isa in Isa::available() {
        for (m, k, n) in SHAPES {
            let (a, w, bias) = (random(m * k, 1), random(n * k, 2), random(n, 3));
            let matrix = Matrix::pack(&[&w], k, Precision::F32);
            for store in [Store::Set, Store::Add, Store::Multiply] {
                let product = Product {
                    bias: Some(&bias),
                    activation: Some(Activation::Relu),
                    store,
                    ..Product::new(&matrix)
                };
                let mut out = rows(&vec![2.0; m * n], n);
                run(isa, &product, &rows(&a, k), &mut out);
                for i in 0..m {
                    for j in 0..n {
                        let sum: f64 =
                            (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(w[j * k + l])).sum();
                        let value = (sum + f64::from(bias[j])).max(0.0);
                        let expected = match store {
                            Store::Set => value,
                            Store::Add => 2.0 + value,
                            Store::Multiply => 2.0 * value,
                        };
                        let found = f64::from(out.row(i)[j]);
                        let bound = 2e-5 * (k as f64 / 100.0).max(1.0);
                        assert!((found - expected).abs() < bound, "{isa:?} {m} {k} {n}: {found} {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn every_instruction_set_gives_the_same_sums_in_int8_near_those_of_f32() {
    for (m, k, n) in SHAPES {
        let (a, w) = (random(m * k, 4), random(n * k, 5));
        let matrix = Matrix::pack(&[&w], k, Precision::Int8);
        let mut first: Option<Rows> = None;
        for isa in Isa::available() {
            let mut out = Rows::new(m, n);
            run(isa, &Product::new(&matrix), &rows(&a, k), &mut out);
            for i in 0..m {
                for j in 0..n {
                    let sum: f32 = (0..k).map(|l| a[i * k + l] * w[j * k + l]).sum();
                    // Each factor is off by at most half a step of 1/127: a random walk of k such errors.
                    let bound = 6.0 * (k as f32).sqrt() / 127.0 * 0.5;
                    assert!((out.row(i)[j] - sum).abs() < bound, "{isa:?} {m} {k} {n}");
                }
            }
            if let Some(first) = &first {
                assert!(
                    (0..m).all(|i| first.row(i).iter().zip(out.row(i)).all(|(a, b)| (a - b).abs() < 1e-5))
                );
            }
            first.get_or_insert(out);
        }
    }
}

#[test]
fn a_row_is_the_same_among_few_and_among_many() {
    for (isa, precision) in
        Isa::available().into_iter().flat_map(|isa| [(isa, Precision::F32), (isa, Precision::Int8)])
    {
        // Several pieces in f32.
        let (m, k, n) = (700, 1_102, 130);
        let (a, w) = (random(m * k, 6), random(n * k, 7));
        let matrix = Matrix::pack(&[&w[..30 * k], &w[30 * k..]], k, precision);
        let input = rows(&a, k);
        let mut all = Rows::new(m, n);
        run(isa, &Product::new(&matrix), &input, &mut all);
        // In f32, AMX rounds differently from the other sets, which AMX uses for few rows.
        let fewest = if (isa, precision) == (Isa::Amx, Precision::F32) { 48 } else { 1 };
        // Tiles of every height, and of nine to twelve rows in strips that share prefetches.
        let heights = (1..12).map(|more| (fewest + more, 9 * more)).chain([(33, 5), (37, 2), (49, 3)]);
        let heights = heights.filter(|(count, _)| *count >= fewest);
        for (count, first) in [(fewest, 0), (fewest, 37), (600, 100)].into_iter().chain(heights) {
            let mut some = Rows::new(count, n);
            Product::new(&matrix).run(&mut Machine::new(isa), &input, first..first + count, &mut some, 0);
            for row in 0..count {
                assert_eq!(some.row(row), all.row(first + row), "{isa:?} {precision:?} {count}");
            }
        }
    }
}

#[test]
fn a_sum_in_f32_is_as_near_to_the_exact_one_on_every_instruction_set() {
    let (m, k, n) = (64, 2_000, 64);
    // Magnitudes from 2^-20 to 2^20: small values must not lose parts next to large ones.
    let scaled = |seed: u64| -> Vec<f32> {
        let exponents = random(64 * k, seed + 1);
        random(64 * k, seed).iter().zip(exponents).map(|(x, e)| x * (20.0 * e).exp2()).collect()
    };
    let (a, w) = (scaled(9), scaled(11));
    let matrix = Matrix::pack(&[&w], k, Precision::F32);
    let mut worst = Vec::new();
    for isa in Isa::available() {
        let mut out = Rows::new(m, n);
        run(isa, &Product::new(&matrix), &rows(&a, k), &mut out);
        let mut greatest = 0f64;
        for (i, a) in a.chunks_exact(k).enumerate() {
            for (j, w) in w.chunks_exact(k).enumerate() {
                let terms = || a.iter().zip(w).map(|(a, w)| f64::from(*a) * f64::from(*w));
                let error = f64::from(out.row(i)[j]) - terms().sum::<f64>();
                greatest = greatest.max(error.abs() / terms().map(f64::abs).sum::<f64>());
            }
        }
        worst.push(greatest);
    }
    // The simplest set adds sequentially, as all except AMX do.
    assert!(worst.iter().all(|error| *error > 0.0 && *error < 1.5 * worst[0]), "{worst:?}");
}

#[test]
fn values_are_the_rows_without_their_gaps() {
    let (m, k, n) = (70, 33, 65);
    let (a, w) = (random(m * k, 12), random(n * k, 13));
    let matrix = Matrix::pack(&[&w], k, Precision::F32);
    for isa in Isa::available() {
        let mut out = Rows::new(m, n);
        run(isa, &Product::new(&matrix), &rows(&a, k), &mut out);
        let values = Product::new(&matrix).values(&mut Machine::new(isa), &rows(&a, k));
        assert!(values.len() == m * n && values.chunks(n).enumerate().all(|(at, row)| row == out.row(at)));
    }
    assert!(Product::new(&matrix).values(&mut Machine::alone(), &Rows::new(0, k)).is_empty());
}

#[test]
fn the_weights_of_an_output_come_back() {
    let w = random(70 * 9, 8);
    for (precision, tolerance) in [(Precision::F32, 0.0), (Precision::Int8, 0.5 / 127.0)] {
        let matrix = Matrix::pack(&[&w], 9, precision);
        for at in [0, 31, 32, 69] {
            let mut out = [0.0; 9];
            matrix.output(at, &mut out);
            assert!(out.iter().zip(&w[at * 9..]).all(|(a, b)| (a - b).abs() <= tolerance + 1e-7));
        }
    }
}
