//! Inference or training: dropout of a forward pass, and whether it must be differentiable.

use candle_core::Tensor;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sporran_checkpoint::Result;

/// How a forward pass runs.
///
/// In training every operation has a gradient in candle, and dropout is on with the rates of the model's
/// config. In inference dropout is off, and fused operations without a gradient may be used.
#[derive(Debug, Clone)]
pub enum Mode {
    /// No dropout, no gradient.
    Inference,
    /// Dropout from this source, and a gradient for every operation.
    Training(Box<Dropout>),
}

impl Mode {
    /// Training with dropout masks drawn from `seed`. The same seed and the same calls give the same masks.
    #[must_use]
    pub fn training(seed: u64) -> Self {
        Self::Training(Box::new(Dropout::new(seed)))
    }

    /// Whether every operation must have a gradient.
    #[must_use]
    pub fn is_training(&self) -> bool {
        matches!(self, Self::Training(_))
    }

    /// A seed for a random choice in training; `None` in inference, or where the rate is zero.
    pub(crate) fn seed(&mut self, rate: f64) -> Option<u64> {
        match self {
            Self::Training(dropout) if rate > 0.0 => Some(dropout.rng.next_u64()),
            _ => None,
        }
    }

    /// Drops elements of `xs` with probability `rate` in training; returns `xs` in inference.
    ///
    /// # Errors
    /// A tensor error.
    pub fn dropout(&mut self, xs: Tensor, rate: f64) -> Result<Tensor> {
        match self {
            Self::Training(dropout) if rate > 0.0 => dropout.apply(&xs, rate),
            _ => Ok(xs),
        }
    }
}

/// A seeded source of inverted dropout masks (Srivastava et al. 2014).
///
/// The masks are drawn on the host by `ChaCha8`, since candle's own generator cannot be seeded on a CPU. In f32 on a GPU they are
/// made there instead, from a number that is drawn so: other masks, which follow the seed as well.
#[derive(Debug, Clone)]
pub struct Dropout {
    rng: ChaCha8Rng,
}

impl Dropout {
    /// A source whose masks depend only on `seed` and on the order of its uses.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// Sets each element to zero with probability `rate` and scales the others so that the mean is kept.
    /// `rate` is taken in steps of 1/65536, so that one element costs two random bytes; on a GPU in steps of 2^-24.
    fn apply(&mut self, xs: &Tensor, rate: f64) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if crate::cuda::applies(xs) {
            return Ok(crate::cuda::dropout(xs, rate, self.rng.next_u64())?);
        }
        let steps = (rate * 65536.0).round().clamp(0.0, 65535.0);
        let threshold = steps as u16;
        let kept = (65536.0 / (65536.0 - steps)) as f32;
        let mut bytes = vec![0u8; xs.elem_count() * 2];
        self.rng.fill_bytes(&mut bytes);
        let mask: Vec<f32> = bytes
            .chunks_exact(2)
            .map(|pair| if u16::from_le_bytes([pair[0], pair[1]]) < threshold { 0.0 } else { kept })
            .collect();
        let mask = Tensor::from_vec(mask, xs.shape(), xs.device())?.to_dtype(xs.dtype())?;
        Ok((xs * mask)?)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::Mode;

    fn ones() -> Tensor {
        Tensor::ones((100, 100), candle_core::DType::F32, &Device::Cpu).unwrap()
    }

    #[test]
    fn dropout_repeats_with_its_seed_and_differs_between_calls() {
        let (mut a, mut b) = (Mode::training(7), Mode::training(7));
        let first: Vec<f32> = a.dropout(ones(), 0.3).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let again: Vec<f32> = b.dropout(ones(), 0.3).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let second: Vec<f32> = a.dropout(ones(), 0.3).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        assert_eq!(first, again);
        assert_ne!(first, second);
    }

    #[test]
    fn dropout_keeps_the_mean_and_drops_at_the_rate() {
        let dropped = Mode::training(1).dropout(ones(), 0.25).unwrap();
        let values: Vec<f32> = dropped.flatten_all().unwrap().to_vec1().unwrap();
        let zeros = values.iter().filter(|v| **v == 0.0).count();
        // 10,000 draws at 0.25: the standard deviation of the count is 43.
        assert!((2300..2700).contains(&zeros), "{zeros}");
        assert!(values.iter().all(|v| *v == 0.0 || (*v - 1.0 / 0.75).abs() < 1e-4));
    }

    #[test]
    fn inference_drops_nothing() {
        let xs = Mode::Inference.dropout(ones(), 0.9).unwrap();
        assert_eq!(xs.sum_all().unwrap().to_scalar::<f32>().unwrap(), 10_000.0);
    }
}
