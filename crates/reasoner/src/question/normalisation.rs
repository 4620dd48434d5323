//! Batch normalisation (Ioffe and Szegedy, 2015) of complex vectors: one channel of the real parts, one of the imaginary parts.

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::Init;
use sporran_training::Variables;

use crate::{Error, Result};

/// The share of a batch in the running statistics.
const MOMENTUM: f64 = 0.1;
/// The addend to variances.
const EPSILON: f64 = 1e-5;
const MEAN: &str = "running-mean";
const VARIANCE: &str = "running-variance";

/// Whether a variable is a statistic. Variances can be too small for 16 bits.
pub(super) fn is_statistic(name: &str) -> bool {
    name.ends_with(MEAN) || name.ends_with(VARIANCE)
}

/// A normalisation. Its running statistics are variables without gradients, so that checkpoints have them.
#[derive(Debug)]
pub(super) struct ComplexNorm {
    /// The scale of each channel, (2).
    scale: Tensor,
    /// The addend of each channel, (2).
    shift: Tensor,
    /// The running mean of each channel, (2).
    mean: Var,
    /// The running variance of each channel, (2).
    variance: Var,
}

impl ComplexNorm {
    /// A normalisation whose variables have `name` as prefix.
    pub(super) fn new(name: &str, variables: &Variables) -> Result<Self> {
        let vb = variables.builder(&Device::Cpu).pp(name);
        let get = |own: &str, value: f64| vb.get_with_hints(2, own, Init::Const(value));
        let (scale, shift) = (get("scale", 1.0)?, get("shift", 0.0)?);
        let statistic = |own: &str, value: f64| -> Result<Var> {
            get(own, value)?;
            let path = format!("{name}.{own}");
            variables.named(&path).ok_or_else(|| Error::Argument(format!("expected a variable `{path}`")))
        };
        Ok(Self { scale, shift, mean: statistic(MEAN, 0.0)?, variance: statistic(VARIANCE, 1.0)? })
    }

    /// Normalises vectors (inputs, 2k): by their own statistics in training, which change the running ones, else by these.
    pub(super) fn forward(&self, vectors: &Tensor, is_training: bool) -> Result<Tensor> {
        let (inputs, width) = vectors.dims2()?;
        let parts = vectors.reshape((inputs, 2, width / 2))?;
        let channel = |values: &Tensor| values.reshape((1, 2, 1));
        let (mean, variance) = if is_training {
            let mean = parts.mean_keepdim((0, 2))?;
            let variance = parts.broadcast_sub(&mean)?.sqr()?.mean_keepdim((0, 2))?;
            self.count(&mean, &variance, inputs * width / 2)?;
            (mean, variance)
        } else {
            (channel(self.mean.as_tensor())?, channel(self.variance.as_tensor())?)
        };
        let normal = parts.broadcast_sub(&mean)?.broadcast_div(&(variance + EPSILON)?.sqrt()?)?;
        let normal = normal.broadcast_mul(&channel(&self.scale)?)?.broadcast_add(&channel(&self.shift)?)?;
        Ok(normal.reshape((inputs, width))?)
    }

    /// Adds the statistics of a batch of `values` values a channel to the running ones.
    fn count(&self, mean: &Tensor, variance: &Tensor, values: usize) -> Result<()> {
        // The variance of the population, of which the batch is a sample.
        let of_all = (variance.detach() * (values as f64 / (values.max(2) - 1) as f64))?;
        for (running, batch) in [(&self.mean, mean.detach()), (&self.variance, of_all)] {
            let batch = batch.reshape(2)?.to_dtype(DType::F32)?;
            running.set(&((running.as_tensor() * (1.0 - MOMENTUM))? + (batch * MOMENTUM)?)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_mean_0_and_variance_1_in_training_and_the_running_statistics_follow() {
        let norm = ComplexNorm::new("n", &Variables::new(1)).unwrap();
        // Real parts 1, 3, 5, 7; imaginary parts 0, 0, 2, 2.
        let vectors = Tensor::new(&[[1f32, 3.0, 0.0, 0.0], [5.0, 7.0, 2.0, 2.0]], &Device::Cpu).unwrap();
        let found: Vec<Vec<f32>> = norm.forward(&vectors, true).unwrap().to_vec2().unwrap();
        let root = 5f32.sqrt();
        let expected = [[-3.0 / root, -1.0 / root, -1.0, -1.0], [1.0 / root, 3.0 / root, 1.0, 1.0]];
        for (found, expected) in found.iter().flatten().zip(expected.as_flattened()) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        // A tenth of the batch's mean and of its variance over n - 1.
        let [mean, variance] = [&norm.mean, &norm.variance].map(|var| var.to_vec1::<f32>().unwrap());
        let close = |found: &[f32], expected: [f32; 2]| {
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5)
        };
        assert!(close(&mean, [0.4, 0.1]), "{mean:?}");
        assert!(close(&variance, [0.9 + 2.0 / 3.0, 0.9 + 0.4 / 3.0]), "{variance:?}");
        // Inference uses them and changes nothing.
        let found: Vec<Vec<f32>> = norm.forward(&vectors, false).unwrap().to_vec2().unwrap();
        let first = (1.0 - 0.4) / (0.9f32 + 2.0 / 3.0 + 1e-5).sqrt();
        assert!((found[0][0] - first).abs() < 1e-5, "{found:?}");
        assert_eq!(norm.mean.to_vec1::<f32>().unwrap(), mean);
    }
}
