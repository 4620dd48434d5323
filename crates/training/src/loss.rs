//! Cross-entropy of the positions that count, fused into one differentiable operation.
//!
//! Written out in tensor operations, log-softmax, gather and the masked mean make about ten passes over the logits
//! and keep most of them for the backward pass. Here the forward pass reads the logits once and the backward pass
//! writes their gradient once.

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp1, DType, Layout, Shape, Tensor};
use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Isa, exp_sum, max, scaled_exp};

use crate::data::IGNORED_LABEL;

struct CrossEntropy {
    labels: Vec<u32>,
    smoothing: f32,
    /// The logarithms of the sums of exponentials, which the forward pass leaves for the backward pass. Those of ignored rows
    /// mean nothing.
    normalisers: OnceLock<Vec<f32>>,
}

/// The logarithm of the sum of the exponentials of a row.
fn log_sum_exp(isa: Isa, row: &[f32]) -> f32 {
    let greatest = max(isa, row);
    greatest + (exp_sum(isa, row, greatest) as f32).ln()
}

impl CustomOp1 for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross-entropy"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (_, classes) = layout.shape().dims2()?;
        let logits = contiguous(storage, layout)?;
        let (mut losses, isa) = (vec![0f32; self.labels.len()], Isa::detected());
        let mut normalisers = losses.clone();
        let rows = logits.par_chunks_exact(classes).zip(&self.labels).zip(&mut losses).zip(&mut normalisers);
        let rows = rows.filter(|(((_, label), _), _)| **label != IGNORED_LABEL);
        rows.for_each(|(((row, &label), out), kept)| {
            let normaliser = log_sum_exp(isa, row);
            *kept = normaliser;
            let mut loss = (1.0 - self.smoothing) * (normaliser - row[label as usize]);
            if self.smoothing > 0.0 {
                let mean = row.iter().sum::<f32>() / classes as f32;
                loss += self.smoothing * (normaliser - mean);
            }
            *out = loss;
        });
        // The forward pass of an operation runs once.
        let _ = self.normalisers.set(normalisers);
        Ok((CpuStorage::F32(losses), Shape::from(self.labels.len())))
    }

    fn bwd(&self, logits: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let Some(normalisers) = self.normalisers.get() else {
            candle_core::bail!("cross-entropy: the backward pass came before the forward pass");
        };
        let scales = gradient.to_vec1::<f32>()?;
        Ok(Some(logits.apply_op1_no_bwd(&CrossEntropyGradient { forward: self, normalisers, scales })?))
    }
}

struct CrossEntropyGradient<'a> {
    forward: &'a CrossEntropy,
    normalisers: &'a [f32],
    /// The weight of each row's loss.
    scales: Vec<f32>,
}

impl CustomOp1 for CrossEntropyGradient<'_> {
    fn name(&self) -> &'static str {
        "cross-entropy-gradient"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        let (_, classes) = layout.shape().dims2()?;
        let logits = contiguous(storage, layout)?;
        let (smoothing, isa) = (self.forward.smoothing, Isa::detected());
        let mut out = vec![0f32; logits.len()];
        let rows = logits.par_chunks_exact(classes).zip(out.par_chunks_exact_mut(classes));
        let rows = rows.zip(&self.forward.labels).zip(&self.scales).zip(self.normalisers);
        let rows = rows.filter(|(((_, label), _), _)| **label != IGNORED_LABEL);
        rows.for_each(|((((row, out), &label), &scale), &normaliser)| {
            scaled_exp(isa, row, normaliser, smoothing / classes as f32, scale, out);
            out[label as usize] -= scale * (1.0 - smoothing);
        });
        Ok((CpuStorage::F32(out), layout.shape().clone()))
    }
}

fn contiguous<'a>(storage: &'a CpuStorage, layout: &Layout) -> candle_core::Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice::<f32>()?[start..end]),
        None => candle_core::bail!("cross-entropy needs contiguous logits"),
    }
}

/// The sum of -log softmax(logits)\[label\] over the labels that are not [`IGNORED_LABEL`]: a differentiable scalar.
///
/// # Errors
/// As for `cross_entropies`.
pub fn cross_entropy(logits: &Tensor, labels: &[u32], smoothing: f32) -> Result<Tensor> {
    Ok(cross_entropies(logits, labels, smoothing)?.sum_all()?)
}

/// -log softmax(logits)\[label\] of each row, 0 where the label is [`IGNORED_LABEL`]: differentiable, of shape (rows).
///
/// `logits` is f32 of shape (.., classes) with one label a row. With `smoothing` e the target gives 1 - e to the
/// label and e to all classes in equal shares (Szegedy et al. 2016).
///
/// # Errors
/// Fails when the number of labels differs from the number of rows, a label is not a class, the smoothing is not in
/// 0..1, or the logits are not f32.
pub(crate) fn cross_entropies(logits: &Tensor, labels: &[u32], smoothing: f32) -> Result<Tensor> {
    let classes = logits.dims().last().copied().unwrap_or(0);
    let rows = logits.elem_count().checked_div(classes).unwrap_or(0);
    if rows != labels.len() {
        return Err(Error::Batch { expected: format!("{rows} labels"), found: labels.len().to_string() });
    }
    if let Some(label) = labels.iter().find(|&&l| l != IGNORED_LABEL && l as usize >= classes) {
        return Err(Error::Batch {
            expected: format!("labels below {classes}"),
            found: format!("label {label}"),
        });
    }
    if !(0.0..1.0).contains(&smoothing) {
        return Err(Error::Options {
            option: "label-smoothing",
            expected: "at least 0 and below 1".into(),
            found: smoothing.to_string(),
        });
    }
    if logits.dtype() != DType::F32 {
        return Err(Error::Dtype { expected: "F32 logits", found: logits.dtype() });
    }
    let logits = logits.reshape((rows, classes))?;
    if logits.device().is_cpu() {
        return Ok(logits.contiguous()?.apply_op1(CrossEntropy {
            labels: labels.to_vec(),
            smoothing,
            normalisers: OnceLock::new(),
        })?);
    }
    composed(&logits, labels, smoothing)
}

/// The same in tensor operations, for devices that the fused operation has no kernel for.
fn composed(logits: &Tensor, labels: &[u32], smoothing: f32) -> Result<Tensor> {
    let device = logits.device();
    let count = labels.len();
    let weights: Vec<f32> = labels.iter().map(|&l| f32::from(u8::from(l != IGNORED_LABEL))).collect();
    let safe: Vec<u32> = labels.iter().map(|&l| if l == IGNORED_LABEL { 0 } else { l }).collect();
    let weights = Tensor::from_vec(weights, count, device)?;
    let safe = Tensor::from_vec(safe, (count, 1), device)?;
    let log_probabilities = candle_nn::ops::log_softmax(logits, 1)?;
    let chosen = (log_probabilities.gather(&safe, 1)?.squeeze(1)? * f64::from(1.0 - smoothing))?;
    let spread = (log_probabilities.mean(1)? * f64::from(smoothing))?;
    Ok(((chosen + spread)? * weights)?.neg()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    fn logits() -> Var {
        let values: Vec<f32> = (0..20).map(|i| ((i * 37 % 11) as f32 - 5.0) * 0.4).collect();
        Var::from_tensor(&Tensor::from_vec(values, (4, 5), &Device::Cpu).unwrap()).unwrap()
    }

    const LABELS: [u32; 4] = [2, IGNORED_LABEL, 0, 4];

    #[test]
    fn even_logits_cost_the_logarithm_of_the_number_of_classes() {
        let zeros = Tensor::zeros((3, 8), DType::F32, &Device::Cpu).unwrap();
        let loss = cross_entropy(&zeros, &[1, IGNORED_LABEL, 5], 0.1).unwrap().to_scalar::<f32>().unwrap();
        assert!((loss - 2.0 * 8f32.ln()).abs() < 1e-5);
    }

    #[test]
    fn the_fused_operation_equals_the_composed_one_with_its_gradient() {
        for smoothing in [0.0, 0.2] {
            let (a, b) = (logits(), logits());
            let fused = (cross_entropy(&a, &LABELS, smoothing).unwrap() * 0.5).unwrap();
            let plain = (composed(&b, &LABELS, smoothing).unwrap().sum_all().unwrap() * 0.5).unwrap();
            let (x, y) = (fused.to_scalar::<f32>().unwrap(), plain.to_scalar::<f32>().unwrap());
            assert!((x - y).abs() < 1e-5, "{x} {y}");
            let gradient = |loss: &Tensor, var: &Var| -> Vec<f32> {
                loss.backward().unwrap().get(var).unwrap().flatten_all().unwrap().to_vec1().unwrap()
            };
            for (x, y) in gradient(&fused, &a).iter().zip(gradient(&plain, &b)) {
                assert!((x - y).abs() < 1e-6, "{x} {y}");
            }
        }
    }

    #[test]
    fn rows_can_count_differently() {
        let (a, b) = (logits(), logits());
        let counts = Tensor::new(&[2f32, 5.0, -1.0, 0.5], &Device::Cpu).unwrap();
        let weighed = |losses: Tensor| (losses * &counts).unwrap().sum_all().unwrap();
        let fused = weighed(cross_entropies(&a, &LABELS, 0.0).unwrap());
        let plain = weighed(composed(&b, &LABELS, 0.0).unwrap());
        assert!((fused.to_scalar::<f32>().unwrap() - plain.to_scalar::<f32>().unwrap()).abs() < 1e-5);
        let gradient = |loss: &Tensor, var: &Var| -> Vec<f32> {
            loss.backward().unwrap().get(var).unwrap().flatten_all().unwrap().to_vec1().unwrap()
        };
        for (x, y) in gradient(&fused, &a).iter().zip(gradient(&plain, &b)) {
            assert!((x - y).abs() < 1e-6, "{x} {y}");
        }
    }

    #[test]
    fn ignored_rows_have_no_gradient() {
        let var = logits();
        let loss = cross_entropy(&var, &LABELS, 0.1).unwrap();
        let gradient = loss.backward().unwrap().get(&var).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(gradient[1], [0.0; 5]);
        // Softmax minus target sums to zero in every row that counts.
        assert!(gradient[0].iter().sum::<f32>().abs() < 1e-6);
    }

    #[test]
    fn wrong_labels_are_errors() {
        let var = logits();
        assert!(cross_entropy(&var, &[0, 1, 2], 0.0).is_err());
        assert!(cross_entropy(&var, &[0, 1, 2, 5], 0.0).unwrap_err().to_string().contains("label 5"));
        assert!(cross_entropy(&var, &LABELS, 1.0).is_err());
    }
}
