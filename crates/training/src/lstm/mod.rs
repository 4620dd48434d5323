//! An LSTM that reads in both directions, under training.

use candle_core::{Device, Var};
use candle_nn::Init;
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{LstmGradients, LstmOptions, LstmPass, PackedBiLstm};

use crate::{gradients::Gradients, variables::Variables};

/// An LSTM under training, over variables that are called as PyTorch calls its parameters (`NAME.weight_ih_l0_reverse`).
#[derive(Clone, Debug)]
pub struct BiLstm {
    options: LstmOptions,
    name: String,
    variables: Variables,
    /// In the order of [`LstmOptions::parameters`].
    weights: Vec<Var>,
}

impl BiLstm {
    /// An LSTM over `variables`, which initialise missing parameters as PyTorch does.
    ///
    /// # Errors
    /// [`Error::Options`] for a shape without cells; a tensor error where variables have another shape.
    pub fn new(options: LstmOptions, name: &str, variables: &Variables) -> Result<Self> {
        options.check()?;
        let builder = variables.builder(&Device::Cpu);
        let bound = (options.hidden as f64).powf(-0.5);
        let mut weights = Vec::new();
        for (name, shape) in options.parameters(name) {
            builder.get_with_hints(shape, &name, Init::Uniform { lo: -bound, up: bound })?;
            let missing = || Error::Training {
                what: format!("variable `{name}`"),
                expected: "one of the LSTM".into(),
                found: "none".into(),
            };
            weights.push(variables.named(&name).ok_or_else(missing)?);
        }
        Ok(Self { options, name: name.into(), variables: variables.clone(), weights })
    }

    /// The shape.
    #[must_use]
    pub fn options(&self) -> &LstmOptions {
        &self.options
    }

    fn weight(&self, at: usize) -> Result<Vec<f32>> {
        Ok(self.weights[at].flatten_all()?.to_vec1()?)
    }

    /// The current weights, packed for inference.
    ///
    /// # Errors
    /// A tensor error.
    pub fn pack(&self) -> Result<PackedBiLstm> {
        PackedBiLstm::new(self.options, |at| self.weight(at))
    }

    /// Reads sequences: `xs` (tokens, inputs) has the tokens of all, sequence after sequence. Dropout between the layers is
    /// drawn from `seed`; without one there is none.
    ///
    /// # Errors
    /// [`Error::Batch`] where `xs` is not as long as the sequences; a tensor error.
    pub fn forward(&self, xs: &[f32], lengths: &[usize], seed: Option<u64>) -> Result<LstmPass> {
        self.pack()?.pass(xs, lengths, seed)
    }

    /// The backward pass from the gradient of the states. Adds the gradients of the weights to `gradients`, in the order of
    /// the variables' names, and returns the gradient of the inputs.
    ///
    /// # Errors
    /// [`Error::Batch`] where `to_states` is not as long as the states; [`Error::Training`] where the gradients are not those
    /// of the variables.
    pub fn backward(&self, pass: LstmPass, to_states: &[f32], gradients: &mut Gradients) -> Result<Vec<f32>> {
        let names = self.options.parameters(&self.name);
        let mut places = Vec::with_capacity(names.len());
        for ((name, _), var) in names.iter().zip(&self.weights) {
            let place = self.variables.place(name);
            match place.filter(|place| gradients.get(*place).is_some_and(|g| g.len() == var.elem_count())) {
                Some(place) => places.push(place),
                None => {
                    return Err(Error::Training {
                        what: format!("the gradient of `{name}`"),
                        expected: format!("{} values in the order of the variables", var.elem_count()),
                        found: "another number".into(),
                    });
                }
            }
        }
        let LstmGradients { weights, xs } = pass.backward(to_states, |at| self.weight(at))?;
        for (place, sums) in places.into_iter().zip(weights) {
            gradients[place].iter_mut().zip(sums).for_each(|(gradient, sum)| *gradient += sum);
        }
        Ok(xs)
    }
}

#[cfg(test)]
mod tests;
