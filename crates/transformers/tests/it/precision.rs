//! The paths that half precision and other devices take, on the CPU: f16 and bf16 against f32 on the tiny checkpoints of
//! `scripts/reference/transformers_parity.py`.

use std::path::Path;

use crate::device::device;
use candle_core::{DType, Tensor};
use sporran_transformers::{Batch, Cache, Checkpoint, GenerationOptions, Mode, Seq2Seq, Trainable, generate};

const FOLDERS: [&str; 3] = ["t5-relu", "t5-gated", "bart"];

fn model(name: &str, dtype: DType) -> Box<dyn Trainable> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    Checkpoint::open(&folder).unwrap().model(dtype, &device()).unwrap()
}

/// Rows of different lengths, so that there is padding.
fn input(model: &dyn Seq2Seq) -> Batch {
    let pad = model.special_tokens().pad;
    Batch::new(&[vec![5, 6, 7, 8, 9, 4, 3], vec![9, 4], vec![7]], pad, model.device()).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The greatest difference, as a share of the greatest value.
fn difference(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().all(|value| value.is_finite()));
    let greatest = expected.iter().fold(0f32, |greatest, value| greatest.max(value.abs()));
    found.iter().zip(expected).fold(0f32, |most, (a, b)| most.max((a - b).abs())) / greatest
}

/// Logits of teacher forcing, and of decoding step by step with a cache.
fn logits(model: &dyn Trainable) -> (Tensor, Vec<f32>) {
    let input = input(model);
    let start = model.special_tokens().decoder_start;
    let tokens = [[start, 5, 6], [start, 7, 8], [start, 3, 4]];
    let ids = Tensor::new(&tokens, model.device()).unwrap();
    let mask = Tensor::ones((3, 3), DType::F32, model.device()).unwrap();
    let forced = model.forward(&input, &ids, &mask, &mut Mode::Inference).unwrap();
    let memory = model.encode(&input).unwrap();
    let mut cache = Cache::default();
    let mut steps = Vec::new();
    for step in 0..3 {
        steps.extend(model.decode(&tokens.map(|row| row[step]), 3, &memory, &mut cache).unwrap());
    }
    (forced, steps)
}

/// PyTorch's own halves are up to 0.0058 (f16) and 0.036 (bf16) from its f32 with these inputs; ours may be twice as far.
fn tolerance(dtype: DType) -> f32 {
    match dtype {
        DType::F32 => 1e-5,
        DType::F16 => 0.0116,
        _ => 0.072,
    }
}

#[test]
fn half_precision_gives_f32s_logits_within_its_spacing() {
    for name in FOLDERS {
        let (exact, exact_steps) = logits(model(name, DType::F32).as_ref());
        for dtype in [DType::F16, DType::BF16] {
            let half = model(name, dtype);
            let (forced, steps) = logits(half.as_ref());
            assert_eq!(forced.dtype(), dtype, "{name}");
            let forced = difference(&values(&forced), &values(&exact));
            let steps = difference(&steps, &exact_steps);
            assert!(forced.max(steps) < tolerance(dtype), "{name} {dtype:?}: {forced} {steps}");
            assert!(forced > 0.0, "{name} {dtype:?}: the numbers are those of f32");
        }
    }
}

#[test]
fn padding_is_hidden_in_every_precision() {
    for name in FOLDERS {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let model = model(name, dtype);
            let padded = values(model.encode(&input(model.as_ref())).unwrap().hidden());
            let pad = model.special_tokens().pad;
            let alone = Batch::new(&[vec![9, 4]], pad, model.device()).unwrap();
            let alone = values(model.encode(&alone).unwrap().hidden());
            // Row 1 of 3, its first 2 of 7 tokens.
            let width = padded.len() / 21;
            let row = &padded[7 * width..9 * width];
            assert!(difference(row, &alone) < tolerance(dtype), "{name} {dtype:?}");
        }
    }
}

#[test]
fn half_precision_searches_and_scores_in_f32() {
    let options = GenerationOptions { num_beams: Some(3), max_new_tokens: Some(6), ..Default::default() };
    for name in FOLDERS {
        for dtype in [DType::F16, DType::BF16] {
            let model = model(name, dtype);
            let found = generate(model.as_ref(), &input(model.as_ref()), &options).unwrap();
            assert_eq!(found.len(), 3);
            for hypotheses in found {
                assert!(hypotheses.iter().all(|hypothesis| hypothesis.score.is_finite()), "{name} {dtype:?}");
            }
        }
    }
}
