//! AdamW (Loshchilov and Hutter 2019): Adam with weight decay applied to the weights themselves, outside the moments.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Tensor, Var};
use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};
use sporran_kernels::{AdamStep, Isa};

use crate::gradients::Gradients;

/// The constants of AdamW.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the running mean of gradients.
    pub beta1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta2: f64,
    /// Added to the root of the second moment, so that a weight without gradients stays where it is.
    pub epsilon: f64,
    /// Share of a decayed weight that a step takes away, times the learning rate.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }
}

struct Parameter {
    name: String,
    var: Var,
    decayed: bool,
    /// The factor of its learning rate.
    scale: f64,
    moments: Moments,
}

/// The running means of a parameter's gradients and of their squares, where its values are.
enum Moments {
    Here { first: Vec<f32>, second: Vec<f32> },
    OnDevice([Tensor; 2]),
}

impl Moments {
    /// The moments of `var`: zero, or the given ones.
    fn new(var: &Var, given: Option<[Vec<f32>; 2]>) -> Result<Self> {
        let size = var.elem_count();
        if var.device().is_cpu() {
            let [first, second] = given.unwrap_or_else(|| [vec![0.0; size], vec![0.0; size]]);
            return Ok(Self::Here { first, second });
        }
        let [first, second] = match given {
            Some(given) => given.map(|values| Tensor::from_vec(values, size, var.device())),
            // Each in separate memory, since it is updated in place.
            None => [0, 1].map(|_| Tensor::zeros(size, DType::F32, var.device())),
        };
        Ok(Self::OnDevice([first?, second?]))
    }
}

/// AdamW over named f32 variables. Its moments are where the variables are; its saved state is the same for every device.
pub struct AdamW {
    config: AdamWConfig,
    parameters: Vec<Parameter>,
    step: u64,
}

/// Norm scales, biases and relative position biases are not decayed: decay would change the function of a
/// layer instead of the size of its weights. Biases of experts are one tensor of rank 2.
fn is_decayed(name: &str, rank: usize) -> bool {
    let others = ["relative_attention_bias", "_proj_bias", "e_score_correction_bias"];
    rank >= 2 && !others.iter().any(|part| name.contains(part))
}

impl AdamW {
    /// An optimiser without history over `variables`, which are put in the order of their names.
    ///
    /// # Errors
    /// Fails when a variable is not f32.
    pub fn new(variables: impl IntoIterator<Item = (String, Var)>, config: AdamWConfig) -> Result<Self> {
        let sorted: BTreeMap<String, Var> = variables.into_iter().collect();
        let mut parameters = Vec::with_capacity(sorted.len());
        for (name, var) in sorted {
            if var.dtype() != DType::F32 {
                return Err(Error::Dtype { expected: "F32 variables to train", found: var.dtype() });
            }
            let (decayed, moments) = (is_decayed(&name, var.rank()), Moments::new(&var, None)?);
            parameters.push(Parameter { name, var, decayed, scale: 1.0, moments });
        }
        Ok(Self { config, parameters, step: 0 })
    }

    /// The variables with their names, in parameter order.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &Var)> {
        self.parameters.iter().map(|p| (p.name.as_str(), &p.var))
    }

    /// Multiplies the learning rate of each variable by a factor from now on.
    pub fn scale_rates(&mut self, of: impl Fn(&str) -> f64) {
        self.parameters.iter_mut().for_each(|p| p.scale = of(&p.name));
    }

    /// How many updates were made.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// One update of every variable by `gradients`, with learning rate `rate`.
    ///
    /// # Errors
    /// Fails when the gradients do not fit the variables, or when a tensor cannot be read or written.
    pub fn step(&mut self, gradients: &Gradients, rate: f64) -> Result<()> {
        if gradients.len() != self.parameters.len() {
            return Err(Error::Training {
                what: "gradients".into(),
                expected: format!("those of {} variables", self.parameters.len()),
                found: gradients.len().to_string(),
            });
        }
        self.step += 1;
        let AdamWConfig { beta1, beta2, epsilon, weight_decay } = self.config;
        let step = self.step as i32;
        // The two bias corrections are folded into the step size and epsilon's place is kept after the root.
        let first_scale = (1.0 / (1.0 - beta1.powi(step))) as f32;
        let second_scale = (1.0 / (1.0 - beta2.powi(step))) as f32;
        for (at, p) in self.parameters.iter_mut().enumerate() {
            let rate = rate * p.scale;
            let step = AdamStep {
                beta1: beta1 as f32,
                beta2: beta2 as f32,
                epsilon: epsilon as f32,
                rate: rate as f32,
                keep: if p.decayed { 1.0 - (rate * weight_decay) as f32 } else { 1.0 },
                first_scale,
                second_scale,
            };
            match &mut p.moments {
                Moments::OnDevice(moments) => match gradients.on_device(at) {
                    Some(gradient) if gradient.elem_count() == p.var.elem_count() => {
                        step_on_device(&step, &p.var, gradient, moments)?;
                    }
                    Some(gradient) => return Err(p.other_size(gradient.elem_count())),
                    None => {
                        let zero = Tensor::zeros(p.var.elem_count(), DType::F32, p.var.device())?;
                        step_on_device(&step, &p.var, &zero, moments)?;
                    }
                },
                Moments::Here { first, second } => {
                    let gradient = &gradients[at];
                    if gradient.len() != first.len() {
                        return Err(p.other_size(gradient.len()));
                    }
                    let update = Update { step, gradient, moments: Mutex::new((first, second)) };
                    if p.var.is_contiguous() {
                        p.var.inplace_op1(&update)?;
                    } else {
                        let mut values = p.var.flatten_all()?.to_vec1::<f32>()?;
                        update.run(&mut values);
                        p.var.set(&Tensor::from_vec(values, p.var.shape(), p.var.device())?)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The moments as tensors named `first.NAME` and `second.NAME`; with [`step_count`](Self::step_count) they are
    /// the whole state.
    ///
    /// # Errors
    /// Fails when a tensor cannot be made.
    pub fn state(&self) -> Result<BTreeMap<String, Tensor>> {
        let mut tensors = BTreeMap::new();
        for p in &self.parameters {
            let moments = match &p.moments {
                Moments::Here { first, second } => {
                    [first, second].map(|values| Tensor::from_slice(values, p.var.shape(), &Device::Cpu))
                }
                Moments::OnDevice(moments) => {
                    moments.each_ref().map(|values| values.to_device(&Device::Cpu)?.reshape(p.var.shape()))
                }
            };
            for (moment, tensor) in ["first", "second"].iter().zip(moments) {
                tensors.insert(format!("{moment}.{}", p.name), tensor?);
            }
        }
        Ok(tensors)
    }

    /// Takes over a state that [`state`](Self::state) gave after `step` updates.
    ///
    /// # Errors
    /// Fails when a moment is missing or has another size; nothing is taken over then.
    pub fn restore(&mut self, tensors: &BTreeMap<String, Tensor>, step: u64) -> Result<()> {
        let mut restored = Vec::with_capacity(self.parameters.len());
        for p in &self.parameters {
            let read = |moment: &str| -> Result<Vec<f32>> {
                let name = format!("{moment}.{}", p.name);
                let found = tensors.get(&name).map(|t| t.dims().to_vec());
                let tensor = match tensors.get(&name) {
                    Some(tensor) if tensor.dims() == p.var.dims() => tensor,
                    _ => {
                        return Err(Error::Training {
                            what: format!("optimiser state, tensor `{name}`"),
                            expected: format!("shape {:?}", p.var.dims()),
                            found: found.map_or_else(|| "none".into(), |dims| format!("shape {dims:?}")),
                        });
                    }
                };
                Ok(tensor.flatten_all()?.to_vec1::<f32>()?)
            };
            restored.push(Moments::new(&p.var, Some([read("first")?, read("second")?]))?);
        }
        for (p, moments) in self.parameters.iter_mut().zip(restored) {
            p.moments = moments;
        }
        self.step = step;
        Ok(())
    }
}

impl Parameter {
    fn other_size(&self, found: usize) -> Error {
        Error::Training {
            what: format!("gradient of `{}`", self.name),
            expected: format!("{} values", self.var.elem_count()),
            found: found.to_string(),
        }
    }
}

#[cfg(feature = "cuda")]
fn step_on_device(step: &AdamStep, var: &Var, gradient: &Tensor, moments: &mut [Tensor; 2]) -> Result<()> {
    Ok(sporran_transformers::cuda::adam(step, var, gradient, moments)?)
}

/// Without the feature nothing is on a GPU.
#[cfg(not(feature = "cuda"))]
fn step_on_device(_: &AdamStep, var: &Var, _: &Tensor, _: &mut [Tensor; 2]) -> Result<()> {
    Err(Error::Dtype { expected: "variables in main memory", found: var.dtype() })
}

/// Values that one thread updates at a time.
const PORTION: usize = 1 << 14;

/// The update of one parameter, in place where its values are in main memory.
struct Update<'a> {
    step: AdamStep,
    gradient: &'a [f32],
    moments: Mutex<(&'a mut [f32], &'a mut [f32])>,
}

impl Update<'_> {
    fn run(&self, values: &mut [f32]) {
        let mut moments = self.moments.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, second) = &mut *moments;
        let isa = Isa::detected();
        values
            .par_chunks_mut(PORTION)
            .zip(self.gradient.par_chunks(PORTION))
            .zip(first.par_chunks_mut(PORTION))
            .zip(second.par_chunks_mut(PORTION))
            .for_each(|(((values, gradient), first), second)| {
                self.step.update(isa, values, gradient, first, second);
            });
    }
}

impl InplaceOp1 for Update<'_> {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        match (storage, layout.contiguous_offsets()) {
            (CpuStorage::F32(values), Some((start, end))) => {
                self.run(&mut values[start..end]);
                Ok(())
            }
            _ => candle_core::bail!("adamw: expected contiguous f32 values"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(values: &[f32]) -> Var {
        Var::from_tensor(&Tensor::from_slice(values, (1, values.len()), &Device::Cpu).unwrap()).unwrap()
    }

    fn values(var: &Var) -> Vec<f32> {
        var.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn the_first_step_moves_by_the_rate_against_the_sign_and_decays() {
        let var = matrix(&[1.0, -2.0]);
        let config = AdamWConfig { weight_decay: 0.5, ..AdamWConfig::default() };
        let mut optimizer = AdamW::new([("w".into(), var.clone())], config).unwrap();
        optimizer.step(&vec![vec![3.0, -0.01]].into(), 0.1).unwrap();
        // After one step m / (1 - b1) = g and sqrt(v / (1 - b2)) = |g|, so the update is sign(g);
        // decay keeps 1 - 0.1 * 0.5 = 0.95: 0.95 - 0.1 = 0.85 and -1.9 + 0.1 = -1.8.
        let got = values(&var);
        assert!((got[0] - 0.85).abs() < 1e-5 && (got[1] + 1.8).abs() < 1e-5, "{got:?}");
    }

    #[test]
    fn a_factor_scales_the_rate_of_one_variable() {
        let (head, body) = (matrix(&[0.0]), matrix(&[0.0]));
        let config = AdamWConfig { weight_decay: 0.0, ..AdamWConfig::default() };
        let named = [("body".into(), body.clone()), ("head".into(), head.clone())];
        let mut optimizer = AdamW::new(named, config).unwrap();
        optimizer.scale_rates(|name| if name == "head" { 5.0 } else { 1.0 });
        optimizer.step(&vec![vec![1.0], vec![1.0]].into(), 0.1).unwrap();
        assert!((values(&head)[0] + 0.5).abs() < 1e-5 && (values(&body)[0] + 0.1).abs() < 1e-5);
    }

    #[test]
    fn the_second_step_follows_the_formula() {
        let var = matrix(&[0.0]);
        let config = AdamWConfig { weight_decay: 0.0, ..AdamWConfig::default() };
        let mut optimizer = AdamW::new([("w".into(), var.clone())], config).unwrap();
        optimizer.step(&vec![vec![1.0]].into(), 0.1).unwrap();
        optimizer.step(&vec![vec![-3.0]].into(), 0.1).unwrap();
        let m = (0.9 * 0.1 + 0.1 * -3.0) / (1.0 - 0.81);
        let v: f64 = (0.999 * 0.001 + 0.001 * 9.0) / (1.0 - 0.998001);
        let expected = -0.1 - 0.1 * m / v.sqrt();
        assert!((f64::from(values(&var)[0]) - expected).abs() < 1e-5);
    }

    #[test]
    fn norms_biases_and_relative_positions_are_not_decayed() {
        let ones = Tensor::ones((2, 2), DType::F32, &Device::Cpu).unwrap();
        let one = Tensor::ones(2, DType::F32, &Device::Cpu).unwrap();
        let variables = [
            ("block.experts.down_proj_bias", Var::from_tensor(&ones).unwrap()),
            ("block.layer_norm.weight", Var::from_tensor(&one).unwrap()),
            ("block.relative_attention_bias.weight", Var::from_tensor(&ones).unwrap()),
            ("block.wi.weight", Var::from_tensor(&ones).unwrap()),
        ];
        let config = AdamWConfig { weight_decay: 1.0, ..AdamWConfig::default() };
        let named = variables.iter().map(|(n, v)| (n.to_string(), v.clone()));
        let mut optimizer = AdamW::new(named, config).unwrap();
        optimizer.step(&vec![vec![0.0; 4], vec![0.0; 2], vec![0.0; 4], vec![0.0; 4]].into(), 0.25).unwrap();
        let means: Vec<f32> = variables.iter().map(|(_, v)| values(v)[0]).collect();
        assert_eq!(means, [1.0, 1.0, 1.0, 0.75]);
    }

    #[test]
    fn a_restored_optimiser_continues_bit_for_bit() {
        let gradients = |i: u64| Gradients::from(vec![vec![(i as f32).sin(), 0.3 - i as f32]]);
        let (one, two) = (matrix(&[0.5, 0.25]), matrix(&[0.5, 0.25]));
        let mut whole = AdamW::new([("w".into(), one.clone())], AdamWConfig::default()).unwrap();
        let mut first = AdamW::new([("w".into(), two.clone())], AdamWConfig::default()).unwrap();
        for i in 0..6 {
            whole.step(&gradients(i), 0.01).unwrap();
        }
        for i in 0..3 {
            first.step(&gradients(i), 0.01).unwrap();
        }
        let mut second = AdamW::new([("w".into(), two.clone())], AdamWConfig::default()).unwrap();
        second.restore(&first.state().unwrap(), first.step_count()).unwrap();
        for i in 3..6 {
            second.step(&gradients(i), 0.01).unwrap();
        }
        assert_eq!(values(&one), values(&two));
    }

    #[test]
    fn a_state_of_another_model_is_refused_with_the_name_of_the_tensor() {
        let mut optimizer = AdamW::new([("w".into(), matrix(&[0.0]))], AdamWConfig::default()).unwrap();
        let other = AdamW::new([("u".into(), matrix(&[0.0]))], AdamWConfig::default()).unwrap();
        let message = optimizer.restore(&other.state().unwrap(), 1).unwrap_err().to_string();
        assert!(message.contains("first.w"), "{message}");
    }
}
