//! The variables of a packed body: where their values are, and where their gradients go.

use std::ops::Deref;

use candle_core::{CpuStorage, Storage, Tensor, Var};
use sporran_checkpoint::{Error, Result};
use sporran_transformers::fused::product::{View, add_weight_product, weight_product};

use crate::{gradients::Gradients, variables::Variables};

/// Finds variables by their names in the body.
pub(super) struct Finder {
    prefix: &'static str,
    /// In the order of the optimiser's parameters.
    all: Vec<(String, Var)>,
}

impl Finder {
    pub(super) fn new(prefix: &'static str, variables: &Variables) -> Self {
        Self { prefix, all: variables.all() }
    }

    pub(super) fn weight(&mut self, name: &str) -> Result<Weight> {
        let name = if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) };
        match self.all.binary_search_by(|(other, _)| other.as_str().cmp(&name)) {
            Ok(place) => Ok(Weight { tensor: self.all[place].1.as_tensor().clone(), place }),
            Err(_) => Err(Error::Training {
                what: format!("variable `{name}`"),
                expected: "one of the body".into(),
                found: "none".into(),
            }),
        }
    }

    pub(super) fn linear(&mut self, name: &str) -> Result<Linear> {
        let weight = self.weight(&format!("{name}.weight"))?;
        let (outputs, inputs) = weight.tensor.dims2()?;
        Ok(Linear { weight, bias: self.weight(&format!("{name}.bias"))?, inputs, outputs })
    }
}

/// A variable.
#[derive(Debug)]
pub(super) struct Weight {
    tensor: Tensor,
    /// Its number among the gradients.
    pub(super) place: usize,
}

impl Weight {
    /// The values. They are not written during the borrow.
    pub(super) fn read(&self) -> Result<impl Deref<Target = [f32]> + use<'_>> {
        let (storage, layout) = self.tensor.storage_and_layout();
        let range = layout.contiguous_offsets();
        match (&*storage, range) {
            (Storage::Cpu(CpuStorage::F32(_)), Some(range)) => Ok(Values { storage, range }),
            _ => Err(Error::Dtype { expected: "F32 in main memory", found: self.tensor.dtype() }),
        }
    }
}

/// The values of a variable.
struct Values<G> {
    /// The guard against changes of the values.
    storage: G,
    range: (usize, usize),
}

impl<G: Deref<Target = Storage>> Deref for Values<G> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match &*self.storage {
            Storage::Cpu(CpuStorage::F32(values)) => &values[self.range.0..self.range.1],
            // `Weight::read` has seen that it is the other.
            _ => &[],
        }
    }
}

/// A weight (outputs, inputs) with its bias.
#[derive(Debug)]
pub(super) struct Linear {
    weight: Weight,
    pub(super) bias: Weight,
    inputs: usize,
    pub(super) outputs: usize,
}

impl Linear {
    /// Writes `xs W^T` into the columns from `column` on of `out`, whose rows have `stride` values. The bias is the
    /// caller's.
    pub(super) fn forward(&self, xs: &[f32], out: &mut [f32], column: usize, stride: usize) -> Result<()> {
        let rows = xs.len() / self.inputs;
        let weight = self.weight.read()?;
        let view = View::rows(0, self.outputs, self.inputs, self.inputs).transposed();
        weight_product(
            (out, View::rows(column, rows, self.outputs, stride)),
            (xs, View::rows(0, rows, self.inputs, self.inputs)),
            (&weight, view),
        );
        Ok(())
    }

    /// Adds the gradient of the weight: that of the result, in the columns from `column` on of `gradient`, times
    /// the inputs.
    pub(super) fn weight_gradient(
        &self,
        xs: &[f32],
        gradient: &[f32],
        column: usize,
        stride: usize,
        gradients: &mut Gradients,
    ) {
        let rows = xs.len() / self.inputs;
        add_weight_product(
            (&mut gradients[self.weight.place], View::rows(0, self.outputs, self.inputs, self.inputs)),
            (gradient, View::rows(column, rows, self.outputs, stride).transposed()),
            (xs, View::rows(0, rows, self.inputs, self.inputs)),
        );
    }

    /// Writes the gradient of the inputs to `to_xs`, or adds it there.
    pub(super) fn input_gradient(
        &self,
        gradient: &[f32],
        column: usize,
        stride: usize,
        to_xs: &mut [f32],
        adds: bool,
    ) -> Result<()> {
        let rows = to_xs.len() / self.inputs;
        let weight = self.weight.read()?;
        let out = (to_xs, View::rows(0, rows, self.inputs, self.inputs));
        let gradient = (gradient, View::rows(column, rows, self.outputs, stride));
        let weight = (&*weight, View::rows(0, self.outputs, self.inputs, self.inputs));
        if adds {
            add_weight_product(out, gradient, weight);
        } else {
            weight_product(out, gradient, weight);
        }
        Ok(())
    }
}

/// Adds `sums` to the gradient of a variable.
pub(super) fn add(gradients: &mut Gradients, weight: &Weight, sums: &[f32]) {
    gradients[weight.place].iter_mut().zip(sums).for_each(|(gradient, sum)| *gradient += sum);
}
