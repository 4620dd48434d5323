//! The tensors of a model, and their initialisation from a seed.

use std::{
    collections::HashMap,
    f64::consts::TAU,
    sync::{Mutex, PoisonError},
};

use candle_core::{DType, Device, Shape, Tensor, Var};
use candle_nn::{Init, VarBuilder, VarMap, var_builder::SimpleBackend};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::error::{Error, Result};

/// A tensor that a model is built from.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// The name, as `transformers` writes it.
    pub name: String,
    /// The shape that the config asks for.
    pub shape: Shape,
    /// The initialisation of the tensor.
    pub init: Init,
}

/// The values of the tensor `name` among those of a file, in 32 bits.
///
/// # Errors
/// [`Error::Stored`] where there is none or it has another shape.
pub fn stored_values(tensors: &HashMap<String, Tensor>, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    match tensors.get(name) {
        Some(tensor) if tensor.dims() == shape => {
            Ok(tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?)
        }
        other => Err(Error::Stored {
            tensor: name.to_owned(),
            expected: shape.to_vec(),
            found: other.map(|tensor| tensor.dims().to_vec()),
        }),
    }
}

/// Returns zeros that take no memory, and records each requested parameter.
struct Recorder<'a>(&'a Mutex<Vec<Parameter>>);

impl SimpleBackend for Recorder<'_> {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        init: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let zeros = Tensor::zeros((), dtype, device)?.broadcast_as(&shape)?;
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Parameter { name: name.into(), shape, init });
        Ok(zeros)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        candle_core::bail!("the tensor {name} was requested without a shape")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

/// The parameters that `build` asks its builder for, in that order. Nothing is read and almost no memory is used,
/// so the model's definition is the one list of its tensors.
///
/// # Errors
/// Those of `build`.
pub fn parameters<M>(build: impl FnOnce(&VarBuilder) -> Result<M>) -> Result<Vec<Parameter>> {
    let seen = Mutex::new(Vec::new());
    build(&VarBuilder::from_backend(Box::new(Recorder(&seen)), DType::F32, Device::Cpu))?;
    Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Fresh trainable variables for `parameters`. The values depend on `seed` and on the parameters only: they are
/// drawn on the host by `ChaCha8`, each parameter from a separate stream, since candle's generator cannot be
/// seeded on a CPU.
///
/// # Errors
/// [`Error::Options`] for an initialisation that is neither constant nor normal; a tensor error where memory ends.
pub fn initialise(parameters: &[Parameter], seed: u64, dtype: DType, device: &Device) -> Result<VarMap> {
    let map = VarMap::new();
    for (stream, parameter) in parameters.iter().enumerate() {
        let tensor = fresh(parameter, seed, stream as u64, device)?.to_dtype(dtype)?;
        insert(&map, &parameter.name, &tensor)?;
    }
    Ok(map)
}

/// A fresh tensor (f32) for `parameter`, from a stream of the generator that `seed` starts.
pub(crate) fn fresh(parameter: &Parameter, seed: u64, stream: u64, device: &Device) -> Result<Tensor> {
    let count = parameter.shape.elem_count();
    let values = match parameter.init {
        Init::Const(value) => vec![value as f32; count],
        Init::Randn { mean, stdev } => {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(stream);
            normal(&mut rng, count, mean, stdev)
        }
        other => {
            let (expected, found) = ("a constant or a normal distribution".into(), format!("{other:?}"));
            return Err(Error::Options { option: "init", expected, found });
        }
    };
    Ok(Tensor::from_vec(values, &parameter.shape, device)?)
}

/// Adds a copy of `tensor` to `map` as a trainable variable.
pub(crate) fn insert(map: &VarMap, name: &str, tensor: &Tensor) -> Result<()> {
    let var = Var::from_tensor(tensor)?;
    let mut data = map.data().lock().unwrap_or_else(PoisonError::into_inner);
    data.insert(name.into(), var);
    Ok(())
}

/// `count` normal values, two at a time (Box and Muller 1958).
fn normal(rng: &mut ChaCha8Rng, count: usize, mean: f64, std: f64) -> Vec<f32> {
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        // 1 - u is never 0, whose logarithm would be infinite.
        let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
        let (sin, cos) = (TAU * rng.random::<f64>()).sin_cos();
        values.push((mean + std * radius * cos) as f32);
        values.push((mean + std * radius * sin) as f32);
    }
    values.truncate(count);
    values
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use candle_nn::{Init, VarMap};

    use super::{Parameter, initialise};

    fn fresh(seed: u64) -> VarMap {
        let parameters = [("a", Init::Randn { mean: 0.0, stdev: 0.5 }), ("b", Init::Const(2.0))]
            .map(|(name, init)| Parameter { name: name.into(), shape: (100, 50).into(), init });
        initialise(&parameters, seed, DType::F32, &Device::Cpu).unwrap()
    }

    fn values(map: &VarMap, name: &str) -> Vec<f32> {
        map.data().lock().unwrap()[name].flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn fresh_weights_depend_on_the_seed_only() {
        assert_eq!(values(&fresh(3), "a"), values(&fresh(3), "a"));
        assert_ne!(values(&fresh(3), "a"), values(&fresh(4), "a"));
        assert!(values(&fresh(3), "b").iter().all(|value| *value == 2.0));
    }

    #[test]
    fn fresh_weights_have_the_requested_mean_and_deviation() {
        let values = values(&fresh(1), "a");
        let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / 5000.0;
        let variance = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum::<f64>() / 5000.0;
        // Standard errors: 0.5 / sqrt(5000) = 0.007 and 0.25 sqrt(2 / 5000) = 0.005; four of them each.
        assert!(mean.abs() < 0.028, "{mean}");
        assert!((variance - 0.25).abs() < 0.02, "{variance}");
    }
}
