//! Operations with a hand-written gradient, for training on a CPU.
//!
//! candle's automatic gradient allocates, zeroes and adds a tensor for every elementary operation. On the small models
//! that are trained on a CPU that traffic costs more than the products themselves. Each operation here does the
//! same arithmetic as its composition of elementary ones, in one pass forward and one backward.

mod activation;
mod attention;
mod gate;
mod layer_norm;
mod linear;
mod norm;
pub mod product;
mod rotary;
mod sums;
mod transposed;

use candle_core::{CpuStorage, DType, DeviceLocation, Layout, Result, Tensor};

pub use activation::activation;
pub use attention::{AttentionDropout, attention};
pub use gate::gate;
pub use layer_norm::layer_norm;
pub use linear::{linear, relu};
pub use norm::rms_norm;
pub use product::in_precision;
pub use rotary::rotary;
pub use sums::{WeightSums, backward};
pub use transposed::linear_transposed;

/// Whether an operation on `xs` should run here: the values are f32 in main memory. Gradients are supported.
pub fn applies(xs: &Tensor) -> bool {
    takes(xs.device().location(), xs.dtype())
}

/// GPUs use the operations in `cuda`; other dtypes use candle's elementary operations.
fn takes(place: DeviceLocation, dtype: DType) -> bool {
    place == DeviceLocation::Cpu && dtype == DType::F32
}

/// The values of a contiguous f32 tensor.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice::<f32>()?[start..end]),
        None => candle_core::bail!("a fused operation needs contiguous values"),
    }
}

/// Runs `f` on the f32 values of a contiguous tensor in main memory.
fn with_values<T>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        candle_core::Storage::Cpu(storage) => f(values(storage, layout)?),
        _ => candle_core::bail!("a fused operation needs values in main memory"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    #[test]
    fn fused_operations_are_for_f32_in_main_memory_alone() {
        assert!(takes(DeviceLocation::Cpu, DType::F32));
        assert!(!takes(DeviceLocation::Cuda { gpu_id: 0 }, DType::F32));
        for dtype in [DType::F16, DType::BF16] {
            let half = wave(&[2, 4], 1.0).to_dtype(dtype).unwrap();
            assert!(!applies(&half));
            // The operation refuses unsupported inputs.
            assert!(relu(&half).is_err() && rms_norm(&half, &half.get(0).unwrap(), 1e-6).is_err());
            assert!(linear(&half, &half).is_err());
        }
    }

    /// Values that differ everywhere and are neither large nor tiny.
    pub(super) fn wave(shape: &[usize], frequency: f64) -> Tensor {
        let count = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..count).map(|i| ((i as f64 + 0.5) * frequency).sin() as f32).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
    }

    /// The value of `f` and the gradients of a weighted sum of it by each of `inputs`.
    pub(super) fn gradients(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Vec<Vec<f32>> {
        let variables: Vec<Var> = inputs.iter().map(|x| Var::from_tensor(x).unwrap()).collect();
        let tensors: Vec<Tensor> = variables.iter().map(|v| v.as_tensor().clone()).collect();
        let out = f(&tensors).unwrap();
        let loss = (&out * wave(out.dims(), 2.0)).unwrap().sum_all().unwrap();
        let store = loss.backward().unwrap();
        let flat = |t: &Tensor| t.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        std::iter::once(flat(&out)).chain(variables.iter().map(|v| flat(store.get(v).unwrap()))).collect()
    }

    pub(super) fn assert_close(a: &[Vec<f32>], b: &[Vec<f32>]) {
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            assert_eq!(a.len(), b.len());
            for (x, y) in a.iter().zip(b) {
                assert!((x - y).abs() < 2e-5 * (1.0 + y.abs()), "{i}: {x} {y}");
            }
        }
    }
}
