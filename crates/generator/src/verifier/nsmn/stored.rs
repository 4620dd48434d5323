//! The tensors of a checkpoint without a config of shapes.

use std::{collections::HashMap, path::Path};

use candle_core::{Shape, Tensor};
use candle_nn::Linear;
use sporran_checkpoint::{Error, Result};

/// Tensors with a common name prefix.
pub(super) struct Stored<'a> {
    path: &'a Path,
    tensors: &'a HashMap<String, Tensor>,
    prefix: String,
}

impl<'a> Stored<'a> {
    /// All tensors of the file `path`.
    pub(super) fn new(path: &'a Path, tensors: &'a HashMap<String, Tensor>) -> Self {
        Self { path, tensors, prefix: String::new() }
    }

    /// The tensors whose names continue with `name` and a dot.
    pub(super) fn under(&self, name: &str) -> Self {
        Self { prefix: format!("{}{name}.", self.prefix), ..*self }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(&format!("{}{name}", self.prefix))
    }

    /// A tensor of these sizes; `None` accepts any size.
    pub(super) fn tensor(&self, name: &str, sizes: &[Option<usize>]) -> Result<Tensor> {
        let tensor = format!("{}{name}", self.prefix);
        let path = || self.path.to_owned();
        let Some(found) = self.tensors.get(&tensor) else {
            let expected = Shape::from(sizes.iter().map(|size| size.unwrap_or(1)).collect::<Vec<_>>());
            return Err(Error::MissingTensor { path: path(), tensor, expected });
        };
        let dims = found.dims();
        if dims.len() != sizes.len()
            || sizes.iter().zip(dims).any(|(size, dim)| size.is_some_and(|size| size != *dim))
        {
            let known = |at: usize| dims.get(at).copied().unwrap_or(1);
            let expected: Vec<usize> =
                sizes.iter().enumerate().map(|(at, size)| size.unwrap_or_else(|| known(at))).collect();
            let (expected, found) = (Shape::from(expected), found.shape().clone());
            return Err(Error::TensorShape { path: path(), tensor, expected, found });
        }
        Ok(found.clone())
    }

    pub(super) fn matrix(&self, name: &str, rows: Option<usize>, columns: Option<usize>) -> Result<Tensor> {
        self.tensor(name, &[rows, columns])
    }

    /// A layer of a `weight`, (outputs, inputs), and a `bias`.
    pub(super) fn linear(&self, name: &str, outputs: Option<usize>, inputs: usize) -> Result<Linear> {
        let weight = self.matrix(&format!("{name}.weight"), outputs, Some(inputs))?;
        let bias = self.tensor(&format!("{name}.bias"), &[Some(weight.dim(0)?)])?;
        Ok(Linear::new(weight, Some(bias)))
    }

    pub(super) fn number(&self, name: &str) -> Result<f32> {
        Ok(self.tensor(name, &[Some(1)])?.get(0)?.to_scalar()?)
    }
}
