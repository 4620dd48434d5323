//! A conditional random field under training.

use candle_core::{Device, Tensor};
use candle_nn::Init;
use sporran_checkpoint::{Error, Result};
use sporran_transformers::{CRF_WEIGHTS, Crf, CrfGradients, CrfGrammar};

use crate::{gradients::Gradients, variables::Variables};

/// A conditional random field under training.
#[derive(Clone, Debug)]
pub struct CrfVariables {
    grammar: CrfGrammar,
    name: String,
    variables: Variables,
}

impl CrfVariables {
    /// A field whose weights are `NAME.transitions`, `NAME.start` and `NAME.end` in `variables`, where they start at 0.
    ///
    /// # Errors
    /// A tensor error where variables have another shape.
    pub fn new(grammar: CrfGrammar, name: &str, variables: &Variables) -> Result<Self> {
        let builder = variables.builder(&Device::Cpu);
        let labels = grammar.labels();
        for at in CRF_WEIGHTS {
            let shape = if at == CRF_WEIGHTS[0] { vec![labels, labels] } else { vec![labels] };
            builder.get_with_hints(shape, &format!("{name}.{at}"), Init::Const(0.0))?;
        }
        Ok(Self { grammar, name: name.into(), variables: variables.clone() })
    }

    /// The grammar.
    #[must_use]
    pub fn grammar(&self) -> &CrfGrammar {
        &self.grammar
    }

    /// The field with its current weights.
    ///
    /// # Errors
    /// A tensor error.
    pub fn now(&self) -> Result<Crf> {
        let read = |at: usize| -> Result<Vec<f32>> {
            match self.variables.named(&format!("{}.{}", self.name, CRF_WEIGHTS[at])) {
                Some(var) => Ok(var.flatten_all()?.to_vec1()?),
                None => Ok(Vec::new()),
            }
        };
        Ok(Crf::new(self.grammar.clone(), [read(0)?, read(1)?, read(2)?]))
    }

    /// Gradients of zero.
    #[must_use]
    pub fn zeros(&self) -> CrfGradients {
        CrfGradients::zeros(&self.grammar)
    }

    /// Adds the gradients of a batch to those of all variables.
    ///
    /// # Errors
    /// [`Error::Training`] where `gradients` are not those of the variables.
    pub fn add(&self, own: &CrfGradients, gradients: &mut Gradients) -> Result<()> {
        for (at, own) in CRF_WEIGHTS.iter().zip(own.of_weights()) {
            let name = format!("{}.{at}", self.name);
            let missing = || Error::Training {
                what: format!("the gradient of `{name}`"),
                expected: format!("{} values in the order of the variables", own.len()),
                found: "another number".into(),
            };
            let place = self.variables.place(&name).ok_or_else(missing)?;
            let var = self
                .variables
                .named(&name)
                .filter(|var| var.elem_count() == own.len())
                .ok_or_else(missing)?;
            let values: Vec<f32> = own.iter().map(|value| *value as f32).collect();
            gradients.add(place, &Tensor::from_vec(values, var.shape(), var.device())?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_the_weights_of_its_variables_and_gives_them_their_gradients() {
        let (grammar, variables) = (CrfGrammar::bio(2), Variables::new(0));
        let field = CrfVariables::new(grammar.clone(), "crf", &variables).unwrap();
        let labels = grammar.labels();
        let wave = |count: usize| (0..count).map(|at| (at as f32 * 0.7).sin()).collect::<Vec<_>>();
        let weights = [wave(labels * labels), wave(labels), wave(labels)];
        for (name, values) in CRF_WEIGHTS.iter().zip(&weights) {
            let var = variables.named(&format!("crf.{name}")).unwrap();
            var.set(&Tensor::from_slice(values, var.shape(), &Device::Cpu).unwrap()).unwrap();
        }
        let (scores, plain) = (wave(4 * labels), Crf::new(grammar, weights));
        let now = field.now().unwrap();
        assert_eq!(now.marginals(&scores), plain.marginals(&scores));
        let (mut to_scores, mut own) = (vec![0.0; scores.len()], field.zeros());
        now.learn(&scores, &[0b11111, 0b00010, 0b11110, 0b11111], 3.0, &mut to_scores, &mut own).unwrap();
        let mut gradients: Gradients =
            variables.all().iter().map(|(_, var)| vec![0.0; var.elem_count()]).collect();
        field.add(&own, &mut gradients).unwrap();
        for (name, own) in CRF_WEIGHTS.iter().zip(own.of_weights()) {
            let added = &gradients[variables.place(&format!("crf.{name}")).unwrap()];
            let own: Vec<f32> = own.iter().map(|value| *value as f32).collect();
            assert_eq!(added, &own, "{name}");
        }
        assert!(field.add(&own, &mut Gradients::default()).is_err());
    }
}
