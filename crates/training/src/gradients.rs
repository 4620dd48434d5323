//! The gradients of all parameters together.

use std::ops::{Deref, DerefMut};

use candle_core::{CpuStorage, Storage, Tensor, Var, backprop::GradStore};
use rayon::prelude::*;
use sporran_checkpoint::{Error, Result};
use sporran_transformers::fused::{WeightSums, backward};

/// Values that a thread adds up, at least.
const SHARE: usize = 1 << 14;

/// Gradients of all parameters, in the optimiser's parameter order: a flat vector for each that is in main memory, and a tensor for
/// each that is on a GPU, where the vector is empty. They are reached as a slice of the vectors.
#[derive(Debug, Clone, Default)]
pub struct Gradients {
    here: Vec<Vec<f32>>,
    /// None for one that is in main memory, or that nothing was added to.
    on_device: Vec<Option<Tensor>>,
}

impl Gradients {
    /// Zero for each of the variables.
    pub fn zeros<'a>(variables: impl IntoIterator<Item = &'a Var>) -> Self {
        let size = |var: &Var| if var.device().is_cpu() { var.elem_count() } else { 0 };
        variables.into_iter().map(|var| vec![0.0; size(var)]).collect()
    }

    /// Back to zero.
    pub fn clear(&mut self) {
        self.here.par_iter_mut().for_each(|gradient| gradient.fill(0.0));
        self.on_device.fill(None);
    }

    /// Adds to that of parameter `at`.
    ///
    /// # Errors
    /// [`Error::Training`] where there is no such parameter or it has another size; a tensor error.
    pub fn add(&mut self, at: usize, gradient: &Tensor) -> Result<()> {
        let (Some(here), Some(on_device)) = (self.here.get_mut(at), self.on_device.get_mut(at)) else {
            return Err(other(self.here.len(), at + 1));
        };
        if !gradient.device().is_cpu() {
            *on_device = Some(match on_device.take() {
                Some(sum) => (sum + gradient)?,
                None => gradient.clone(),
            });
            return Ok(());
        }
        if gradient.elem_count() != here.len() {
            return Err(Error::Training {
                what: format!("gradient {at}"),
                expected: format!("{} values", here.len()),
                found: gradient.elem_count().to_string(),
            });
        }
        let gradient = gradient.contiguous()?;
        let (storage, layout) = gradient.storage_and_layout();
        let (Storage::Cpu(CpuStorage::F32(values)), Some((first, end))) =
            (&*storage, layout.contiguous_offsets())
        else {
            return Err(Error::Dtype { expected: "F32 gradients", found: gradient.dtype() });
        };
        let pairs = here.par_iter_mut().zip(&values[first..end]).with_min_len(SHARE);
        pairs.for_each(|(sum, value)| *sum += value);
        Ok(())
    }

    /// Adds the gradients in `store` of `variables`, the variables of these gradients. A variable that the loss does not
    /// depend on has no gradient.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_stored(&mut self, store: &GradStore, variables: &[Var]) -> Result<()> {
        if variables.len() != self.here.len() {
            return Err(other(variables.len(), self.here.len()));
        }
        for (at, var) in variables.iter().enumerate() {
            if let Some(gradient) = store.get(var) {
                self.add(at, gradient)?;
            }
        }
        Ok(())
    }

    /// Adds the gradients of a scalar `loss` by `variables`, the variables of these gradients.
    ///
    /// # Errors
    /// As for [`add_stored`](Self::add_stored).
    pub fn add_backward(&mut self, loss: &Tensor, variables: &[Var]) -> Result<()> {
        add_backward(loss, [(variables, self)]).map(drop)
    }

    /// Takes away those of the parameters from `at` on.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        Self { here: self.here.split_off(at), on_device: self.on_device.split_off(at) }
    }

    /// Appends the gradients of other parameters.
    pub(crate) fn append(&mut self, mut others: Self) {
        self.here.append(&mut others.here);
        self.on_device.append(&mut others.on_device);
    }

    /// Adds other gradients of the same parameters.
    ///
    /// # Errors
    /// A tensor error.
    pub fn add_all(&mut self, other: &Self) -> Result<()> {
        self.here.par_iter_mut().zip(&other.here).for_each(|(sum, part)| {
            sum.iter_mut().zip(part).for_each(|(a, b)| *a += b);
        });
        for (at, part) in other.on_device.iter().enumerate() {
            if let Some(part) = part {
                self.add(at, part)?;
            }
        }
        Ok(())
    }

    /// That of parameter `at`, where it is on a GPU and something was added to it.
    pub(crate) fn on_device(&self, at: usize) -> Option<&Tensor> {
        self.on_device.get(at)?.as_ref()
    }

    /// The values of that of parameter `at`, wherever it is. Empty where it is on a GPU and nothing was added to it.
    ///
    /// # Errors
    /// A tensor error.
    pub fn values(&self, at: usize) -> Result<Vec<f32>> {
        match self.on_device(at) {
            Some(gradient) => Ok(gradient.flatten_all()?.to_vec1()?),
            None => Ok(self.here[at].clone()),
        }
    }

    /// The Euclidean norm over all gradients together, summed in f64.
    ///
    /// # Errors
    /// A tensor error.
    pub fn global_norm(&self) -> Result<f64> {
        // One partial sum a parameter, added in parameter order, so that threads cannot change the result.
        let parts: Vec<f64> =
            self.here.par_iter().map(|g| g.iter().map(|&x| f64::from(x) * f64::from(x)).sum()).collect();
        Ok((parts.iter().sum::<f64>() + self.squares_on_device()?).sqrt())
    }

    #[cfg(feature = "cuda")]
    fn squares_on_device(&self) -> Result<f64> {
        Ok(sporran_transformers::cuda::sum_of_squares(&self.on_device.iter().flatten().collect::<Vec<_>>())?)
    }

    #[cfg(not(feature = "cuda"))]
    #[allow(clippy::unnecessary_wraps, reason = "as with the feature")]
    fn squares_on_device(&self) -> Result<f64> {
        Ok(0.0)
    }

    /// Scales the gradients down to a global norm of `limit` where it is larger; returns the norm before.
    ///
    /// # Errors
    /// A tensor error.
    pub fn clip_global_norm(&mut self, limit: f64) -> Result<f64> {
        let norm = self.global_norm()?;
        if norm > limit {
            let scale = limit / norm;
            self.here.par_iter_mut().for_each(|g| g.iter_mut().for_each(|x| *x *= scale as f32));
            for gradient in self.on_device.iter_mut().flatten() {
                *gradient = (&*gradient * scale)?;
            }
        }
        Ok(norm)
    }
}

/// Adds the gradients of a scalar `loss` to each of `parts`, by its variables. The store has those by other leaves.
pub(crate) fn add_backward<const N: usize>(
    loss: &Tensor,
    mut parts: [(&[Var], &mut Gradients); N],
) -> Result<GradStore> {
    let mut sums = WeightSums::new();
    for (variables, gradients) in &mut parts {
        if variables.len() != gradients.here.len() {
            return Err(other(variables.len(), gradients.here.len()));
        }
        let here = variables.iter().zip(&mut gradients.here).filter(|(var, _)| var.device().is_cpu());
        sums.extend(here.map(|(var, sum)| (var.id(), std::mem::take(sum))));
    }
    let store = backward(loss, &mut sums);
    for (variables, gradients) in &mut parts {
        for (var, sum) in variables.iter().zip(&mut gradients.here) {
            if let Some(own) = sums.remove(&var.id()) {
                *sum = own;
            }
        }
    }
    let store = store?;
    for (variables, gradients) in &mut parts {
        gradients.add_stored(&store, variables)?;
    }
    Ok(store)
}

fn other(expected: usize, found: usize) -> Error {
    Error::Training {
        what: "gradients".into(),
        expected: format!("those of {expected} variables"),
        found: found.to_string(),
    }
}

impl From<Vec<Vec<f32>>> for Gradients {
    fn from(here: Vec<Vec<f32>>) -> Self {
        Self { on_device: vec![None; here.len()], here }
    }
}

impl FromIterator<Vec<f32>> for Gradients {
    fn from_iter<T: IntoIterator<Item = Vec<f32>>>(gradients: T) -> Self {
        gradients.into_iter().collect::<Vec<_>>().into()
    }
}

impl<'a> IntoIterator for &'a Gradients {
    type Item = &'a Vec<f32>;
    type IntoIter = std::slice::Iter<'a, Vec<f32>>;

    fn into_iter(self) -> Self::IntoIter {
        self.here.iter()
    }
}

impl Deref for Gradients {
    type Target = [Vec<f32>];

    fn deref(&self) -> &Self::Target {
        &self.here
    }
}

impl DerefMut for Gradients {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_norm_is_over_everything_and_clipping_keeps_the_direction() {
        let mut gradients = Gradients::from(vec![vec![3.0], vec![0.0, 4.0]]);
        assert_eq!(gradients.clip_global_norm(10.0).unwrap(), 5.0);
        assert_eq!(gradients[0], [3.0]);
        assert_eq!(gradients.clip_global_norm(1.0).unwrap(), 5.0);
        assert!((gradients[0][0] - 0.6).abs() < 1e-6 && (gradients[1][1] - 0.8).abs() < 1e-6);
    }

    #[test]
    fn gradients_of_other_parameters_are_refused() {
        let mut gradients = Gradients::from(vec![vec![3.0]]);
        let two = Tensor::new(&[1f32, 2.0], &candle_core::Device::Cpu).unwrap();
        assert!(gradients.add(0, &two).unwrap_err().to_string().contains("2"));
        assert!(gradients.add(1, &two).is_err());
        gradients.add(0, &two.narrow(0, 1, 1).unwrap()).unwrap();
        assert_eq!(gradients.values(0).unwrap(), [5.0]);
        let other = gradients.clone();
        gradients.add_all(&other).unwrap();
        assert_eq!(gradients[0], [10.0]);
        gradients.clear();
        assert_eq!(gradients[0], [0.0]);
    }
}
