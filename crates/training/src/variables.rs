//! The variables of a model in training: initialised from a seed, or taken from a checkpoint.

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Shape, Tensor, Var};
use candle_nn::Init;
use candle_nn::var_builder::{SimpleBackend, VarBuilder};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

type Table = Arc<Mutex<BTreeMap<String, Var>>>;

/// A collection of variables that a model is built from and an optimiser updates.
///
/// candle's own `VarMap` draws from a generator that cannot be seeded on a CPU. Here the first value of a variable is
/// a function of the seed, its name and its shape alone, so that it does not depend on the order in which a model
/// asks for its variables.
#[derive(Debug, Clone)]
pub struct Variables {
    seed: u64,
    table: Table,
    initial: Arc<BTreeMap<String, Tensor>>,
}

impl Variables {
    /// No variables yet; those that a model requests are initialised from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, table: Table::default(), initial: Arc::default() }
    }

    /// The same, but variables that `tensors` has start with its values: how a checkpoint is tuned further.
    #[must_use]
    pub fn with_initial(seed: u64, tensors: impl IntoIterator<Item = (String, Tensor)>) -> Self {
        Self { seed, table: Table::default(), initial: Arc::new(tensors.into_iter().collect()) }
    }

    /// The same, where variables that `tensors` has also start with its values.
    #[must_use]
    pub fn and_initial(self, tensors: impl IntoIterator<Item = (String, Tensor)>) -> Self {
        let mut initial = (*self.initial).clone();
        initial.extend(tensors);
        Self { initial: Arc::new(initial), ..self }
    }

    /// The same, where the initial tensor `name` has more rows, as of an embedding table. New rows are normal with the
    /// standard deviation `std`, from the seed. Nothing changes without such a tensor, or if it has that many rows.
    ///
    /// # Errors
    /// A tensor error.
    pub fn with_rows(self, name: &str, rows: usize, std: f64) -> candle_core::Result<Self> {
        let mut initial = (*self.initial).clone();
        if let Some(tensor) = initial.get_mut(name) {
            let (known, width) = tensor.dims2()?;
            let shape = Shape::from((rows.saturating_sub(known), width));
            if rows > known {
                let init = Init::Randn { mean: 0.0, stdev: std };
                let added = Tensor::from_vec(self.draw(&shape, name, init)?, &shape, tensor.device())?;
                *tensor = Tensor::cat(&[&*tensor, &added.to_dtype(tensor.dtype())?], 0)?;
            }
        }
        Ok(Self { initial: Arc::new(initial), ..self })
    }

    /// The variables of several models as one collection, each under its name with the prefix of its model before it.
    #[must_use]
    pub fn joined(parts: &[(&str, &Self)]) -> Self {
        let named = |(prefix, part): &(&str, &Self)| {
            part.all().into_iter().map(|(name, var)| (format!("{prefix}{name}"), var)).collect::<Vec<_>>()
        };
        let table = parts.iter().flat_map(named).collect();
        Self { seed: 0, table: Arc::new(Mutex::new(table)), initial: Arc::default() }
    }

    /// The source of a model's f32 weights.
    #[must_use]
    pub fn builder(&self, device: &Device) -> VarBuilder<'static> {
        VarBuilder::from_backend(Box::new(self.clone()), DType::F32, device.clone())
    }

    /// All requested variables, in the order of their names.
    #[must_use]
    pub fn all(&self) -> Vec<(String, Var)> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.iter().map(|(name, var)| (name.clone(), var.clone())).collect()
    }

    /// The variable called `name`, if a model requested it.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Var> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The number of the variable called `name` in the order of names, which is that of gradients.
    #[must_use]
    pub fn place(&self, name: &str) -> Option<usize> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.keys().position(|other| other == name)
    }

    /// The number of values in all variables together.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.all().iter().map(|(_, var)| var.elem_count()).sum()
    }

    fn draw(&self, shape: &Shape, name: &str, init: Init) -> candle_core::Result<Vec<f32>> {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(fnv1a(name.as_bytes()));
        let count = shape.elem_count();
        match init {
            Init::Const(value) => Ok(vec![value as f32; count]),
            Init::Uniform { lo, up } => {
                Ok((0..count).map(|_| (lo + (up - lo) * rng.random::<f64>()) as f32).collect())
            }
            Init::Randn { mean, stdev } => {
                Ok((0..count).map(|_| (mean + stdev * normal(&mut rng)) as f32).collect())
            }
            Init::Kaiming { .. } => {
                candle_core::bail!(
                    "variable {name}: expected a constant, uniform or normal start, found {init:?}"
                )
            }
        }
    }
}

/// Box and Muller's transform of two uniform draws; the first is taken from (0, 1], where the logarithm is finite.
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (TAU * rng.random::<f64>()).cos()
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

impl SimpleBackend for Variables {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        init: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(var) = table.get(name) {
            if var.shape() != &shape {
                candle_core::bail!("variable {name}: expected shape {shape:?}, found {:?}", var.shape());
            }
            return Ok(var.as_tensor().clone());
        }
        let value = match self.initial.get(name) {
            Some(tensor) if tensor.shape() == &shape => tensor.to_dtype(dtype)?.to_device(device)?,
            Some(tensor) => {
                candle_core::bail!("tensor {name}: expected shape {shape:?}, found {:?}", tensor.shape())
            }
            None => Tensor::from_vec(self.draw(&shape, name, init)?, &shape, device)?.to_dtype(dtype)?,
        };
        let var = Var::from_tensor(&value)?;
        table.insert(name.to_owned(), var.clone());
        Ok(var.as_tensor().clone())
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> candle_core::Result<Tensor> {
        match self.initial.get(name) {
            Some(tensor) => self.get(tensor.shape().clone(), name, Init::Const(0.0), dtype, device),
            None => candle_core::bail!("variable {name} has no shape to be drawn with"),
        }
    }

    fn contains_tensor(&self, name: &str) -> bool {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.contains_key(name) || self.initial.contains_key(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, names: &[&str]) -> Vec<Vec<f32>> {
        let variables = Variables::new(seed);
        let vb = variables.builder(&Device::Cpu);
        for name in names {
            vb.get_with_hints((50, 40), name, Init::Randn { mean: 1.0, stdev: 0.5 }).unwrap();
        }
        variables.all().iter().map(|(_, v)| v.flatten_all().unwrap().to_vec1().unwrap()).collect()
    }

    #[test]
    fn values_depend_on_the_seed_and_the_name_and_not_on_the_order() {
        assert_eq!(drawn(1, &["a", "b"]), drawn(1, &["b", "a"]));
        assert_ne!(drawn(1, &["a"]), drawn(2, &["a"]));
        let both = drawn(1, &["a", "b"]);
        assert_ne!(both[0], both[1]);
    }

    #[test]
    fn normal_draws_have_their_mean_and_deviation() {
        let values = &drawn(3, &["a"])[0];
        let mean = values.iter().sum::<f32>() / 2000.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / 2000.0;
        // The standard error of the mean is 0.5 / sqrt(2000) = 0.011, that of the variance about 0.008.
        assert!((mean - 1.0).abs() < 0.04 && (variance - 0.25).abs() < 0.03, "{mean} {variance}");
    }

    #[test]
    fn a_variable_is_shared_by_all_who_ask_for_it() {
        let variables = Variables::new(0);
        let vb = variables.builder(&Device::Cpu);
        let one = vb.get_with_hints(3, "w", Init::Const(2.0)).unwrap();
        let two = vb.get(3, "w").unwrap();
        assert_eq!(one.id(), two.id());
        assert_eq!(variables.parameter_count(), 3);
        assert!(vb.get(4, "w").is_err());
    }

    #[test]
    fn joined_variables_are_those_of_their_parts() {
        let (one, two) = (Variables::new(0), Variables::new(1));
        for variables in [&one, &two] {
            variables.builder(&Device::Cpu).get_with_hints(2, "w", Init::Const(1.0)).unwrap();
        }
        let both = Variables::joined(&[("b.", &two), ("a.", &one)]);
        let names: Vec<String> = both.all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a.w", "b.w"]);
        both.named("b.w").unwrap().set(&Tensor::new(&[3f32, 4.0], &Device::Cpu).unwrap()).unwrap();
        assert_eq!(two.named("w").unwrap().to_vec1::<f32>().unwrap(), [3.0, 4.0]);
        assert_eq!(one.named("w").unwrap().to_vec1::<f32>().unwrap(), [1.0, 1.0]);
    }

    #[test]
    fn a_table_can_get_more_rows() {
        let table = Tensor::new(&[[1f32, 2.0], [3.0, 4.0]], &Device::Cpu).unwrap();
        let rows = |seed, rows| {
            let variables = Variables::with_initial(seed, [("w".to_owned(), table.clone())]);
            let variables = variables.with_rows("w", rows, 0.5).unwrap().with_rows("other", 9, 0.5).unwrap();
            let rows = rows.max(2);
            variables.builder(&Device::Cpu).get((rows, 2), "w").unwrap().to_vec2::<f32>().unwrap()
        };
        let four = rows(1, 4);
        assert_eq!(four[..2], [[1.0, 2.0], [3.0, 4.0]]);
        assert!(four[2..].iter().flatten().all(|value| *value != 0.0 && value.abs() < 4.0));
        assert_eq!(four, rows(1, 4));
        assert_ne!(four, rows(2, 4));
        assert_eq!(rows(1, 1), [[1.0, 2.0], [3.0, 4.0]]);
    }

    #[test]
    fn initial_tensors_are_taken_over_and_must_fit() {
        let tensor = Tensor::new(&[1f32, 2.0], &Device::Cpu).unwrap();
        let variables = Variables::with_initial(0, [("w".to_owned(), tensor)]);
        let vb = variables.builder(&Device::Cpu);
        assert_eq!(vb.get(2, "w").unwrap().to_vec1::<f32>().unwrap(), [1.0, 2.0]);
        let other = Variables::with_initial(0, [("u".to_owned(), vb.get(2, "w").unwrap())]);
        assert!(other.builder(&Device::Cpu).get(3, "u").unwrap_err().to_string().contains("tensor u"));
    }
}
