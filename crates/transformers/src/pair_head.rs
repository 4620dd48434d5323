//! The labels of ordered pairs of marked positions in a text, from an encoder's hidden states.

use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::VarBuilder;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result, tensors_under};

use crate::{
    layers::{Activation, Embedding, Linear},
    mode::Mode,
};

/// The prefix of a pair head's tensor names in a folder of weights.
pub const PAIR_HEAD: &str = "pair_head";

/// The sizes of a pair head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PairHeadConfig {
    /// Width of the states, d.
    pub width: usize,
    /// Width of the inner layer, and of the products.
    pub inner: usize,
    /// How many features there are; those of a pair are numbers below this.
    pub features: usize,
    /// Labels of a pair, each of which may hold.
    pub labels: usize,
    /// Share of the inner values that training drops.
    pub dropout: f64,
}

/// An ordered pair of positions of a row, with the features of the pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePair {
    /// The index of the first hidden state.
    pub first: u32,
    /// The index of the second hidden state.
    pub second: u32,
    /// The features of the pair, each a number below the head's number of features.
    pub features: Vec<u32>,
}

/// Labels of ordered pairs of states, after the entity markers of Baldini Soares et al. (2019), whose two states are read
/// here together and by their products:
/// `output([gelu(A x + B y + sum of features); tanh(C x) * tanh(D y)])`. Since `A x` and the others are made once for each
/// state, a text with many pairs costs little more than one with few.
#[derive(Debug, Clone)]
pub struct PairHead {
    first: Linear,
    second: Linear,
    product_first: Linear,
    product_second: Linear,
    features: Embedding,
    output: Linear,
    config: PairHeadConfig,
}

impl PairHead {
    /// Takes the weights from `vb` under [`PAIR_HEAD`].
    ///
    /// # Errors
    /// A tensor error where they are missing or have other shapes.
    pub fn new(config: &PairHeadConfig, vb: &VarBuilder) -> Result<Self> {
        let vb = vb.pp(PAIR_HEAD);
        let (width, inner) = (config.width, config.inner);
        let std = (1.0 / width as f64).sqrt();
        Ok(Self {
            first: Linear::with_bias(width, inner, std, &vb.pp("first"))?,
            second: Linear::new(width, inner, std, &vb.pp("second"))?,
            product_first: Linear::with_bias(width, inner, std, &vb.pp("product_first"))?,
            product_second: Linear::with_bias(width, inner, std, &vb.pp("product_second"))?,
            features: Embedding::new(config.features, inner, 0.1, &vb.pp("features"))?,
            output: Linear::with_bias(2 * inner, config.labels, 0.02, &vb.pp("output"))?,
            config: config.clone(),
        })
    }

    /// Reads the head from the weights of an encoder's folder.
    ///
    /// # Errors
    /// Those of opening weights, and a tensor error where it has no such head.
    pub fn open(folder: &Path, config: &PairHeadConfig, device: &Device) -> Result<Self> {
        let tensors = tensors_under(folder, PAIR_HEAD, DType::F32, device)?;
        Self::new(config, &VarBuilder::from_tensors(tensors, DType::F32, device))
    }

    /// Its sizes.
    #[must_use]
    pub fn config(&self) -> &PairHeadConfig {
        &self.config
    }

    /// States (n, d) to logits (pairs, labels).
    ///
    /// # Errors
    /// [`Error::Batch`] where there is no pair, or a pair has a state or a feature that does not exist, or another number of
    /// features than the first; a tensor error.
    pub fn forward(&self, states: &Tensor, pairs: &[StatePair], mode: &mut Mode) -> Result<Tensor> {
        let count = states.dim(0)?;
        let known = pairs.first().map_or(0, |pair| pair.features.len());
        if pairs.is_empty() || known == 0 {
            let expected = "at least one pair with at least one feature".into();
            return Err(Error::Batch { expected, found: "none".into() });
        }
        for pair in pairs {
            if pair.first as usize >= count || pair.second as usize >= count {
                let found = format!("a pair of {} and {}", pair.first, pair.second);
                return Err(Error::Batch { expected: format!("states below {count}"), found });
            }
            if pair.features.len() != known
                || pair.features.iter().any(|&feature| feature as usize >= self.config.features)
            {
                let expected = format!("{known} features below {}", self.config.features);
                return Err(Error::Batch { expected, found: format!("{:?}", pair.features) });
            }
        }
        let device = states.device();
        let column =
            |of: fn(&StatePair) -> u32| Tensor::new(pairs.iter().map(of).collect::<Vec<_>>(), device);
        let (first, second) = (column(|pair| pair.first)?, column(|pair| pair.second)?);
        let features: Vec<u32> = pairs.iter().flat_map(|pair| pair.features.iter().copied()).collect();
        let features = Tensor::from_vec(features, (pairs.len(), known), device)?;
        let states = mode.dropout(states.clone(), self.config.dropout)?;
        let pick = |layer: &Linear, places: &Tensor| -> Result<Tensor> {
            Ok(layer.forward(&states)?.index_select(places, 0)?)
        };
        let sum = (pick(&self.first, &first)? + pick(&self.second, &second)?)?;
        let inner = Activation::Gelu.forward(&(sum + self.features.forward(&features)?.sum(1)?)?)?;
        let product =
            (pick(&self.product_first, &first)?.tanh()? * pick(&self.product_second, &second)?.tanh()?)?;
        let both = mode.dropout(Tensor::cat(&[inner, product], D::Minus1)?, self.config.dropout)?;
        self.output.forward(&both)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;
    use sporran_checkpoint::{initialise, parameters};

    use super::*;

    fn head() -> PairHead {
        let config = PairHeadConfig { width: 4, inner: 6, features: 5, labels: 3, dropout: 0.0 };
        let parameters = parameters(|vb| PairHead::new(&config, vb)).unwrap();
        let weights = initialise(&parameters, 5, DType::F32, &Device::Cpu).unwrap();
        PairHead::new(&config, &VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu)).unwrap()
    }

    fn states() -> Tensor {
        let values: Vec<f32> = (0..12).map(|at| (at as f32 * 0.7).sin()).collect();
        Tensor::from_vec(values, (3, 4), &Device::Cpu).unwrap()
    }

    fn pair(first: u32, second: u32, features: &[u32]) -> StatePair {
        StatePair { first, second, features: features.to_vec() }
    }

    #[test]
    fn logits_do_not_depend_on_other_pairs_and_order_matters() {
        let (head, states) = (head(), states());
        let of = |pairs: &[StatePair]| {
            head.forward(&states, pairs, &mut Mode::Inference).unwrap().to_vec2::<f32>().unwrap()
        };
        let (one, other) = (pair(0, 2, &[1, 4]), pair(2, 0, &[1, 4]));
        let both = of(&[one.clone(), other.clone()]);
        for (alone, together) in [of(&[one]), of(&[other])].iter().zip(&both) {
            assert!(alone[0].iter().zip(together).all(|(a, b)| (a - b).abs() < 1e-6));
        }
        assert!((both[0][0] - both[1][0]).abs() > 1e-4);
        // A sum of features does not know their order.
        assert!(of(&[pair(0, 2, &[4, 1])])[0].iter().zip(&both[0]).all(|(a, b)| (a - b).abs() < 1e-6));
    }

    #[test]
    fn pairs_that_cannot_be_are_refused() {
        let error_of = |pairs: &[StatePair]| {
            head().forward(&states(), pairs, &mut Mode::Inference).unwrap_err().to_string()
        };
        assert!(error_of(&[]).contains("at least one pair"));
        assert!(error_of(&[pair(0, 3, &[0])]).contains("states below 3"));
        assert!(error_of(&[pair(0, 1, &[5])]).contains("features below 5"));
        assert!(error_of(&[pair(0, 1, &[0]), pair(0, 1, &[0, 1])]).contains("1 features"));
    }
}
