//! The steps after pooling: the modules `Dense`, `LayerNorm` and `Normalize` of sentence-transformers.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use candle_core::{D, DType, Device, Shape, Tensor};
use serde::Deserialize;
use sporran_checkpoint::{
    Error, Result,
    json::{self, parse},
    sentence::module_config,
    tensors,
};

use crate::layers::Activation;

/// The vector that modules read and write.
const VECTOR: &str = "sentence_embedding";

/// The epsilon of PyTorch's `LayerNorm`; the module has no field for it.
const EPSILON: f64 = 1e-5;

/// A step that maps a vector (b, in) after pooling.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// `activation(x W^T + b)`, and with a residual part `x` or `x R^T` added.
    Dense { weight: Tensor, bias: Option<Tensor>, activation: Option<Activation>, residual: Residual },
    /// To mean 0 and variance 1, then scaled and shifted.
    LayerNorm { weight: Tensor, bias: Tensor },
    /// To a length of 1.
    Normalize,
}

/// The residual connection of a layer.
#[derive(Debug, Clone)]
pub(super) enum Residual {
    None,
    Same,
    Projected(Tensor),
}

impl Step {
    /// (b, in) to (b, out).
    pub(super) fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        match self {
            Self::Normalize => {
                let norm = xs.sqr()?.sum_keepdim(D::Minus1)?.sqrt()?.maximum(1e-12)?;
                Ok(xs.broadcast_div(&norm)?)
            }
            Self::LayerNorm { weight, bias } => {
                let wide = xs.to_dtype(DType::F32)?;
                let centred = wide.broadcast_sub(&wide.mean_keepdim(D::Minus1)?)?;
                let deviation = (centred.sqr()?.mean_keepdim(D::Minus1)? + EPSILON)?.sqrt()?;
                let scaled = centred.broadcast_div(&deviation)?.to_dtype(xs.dtype())?;
                Ok(scaled.broadcast_mul(weight)?.broadcast_add(bias)?)
            }
            Self::Dense { weight, bias, activation, residual } => {
                let mut ys = xs.matmul(&weight.t()?)?;
                if let Some(bias) = bias {
                    ys = ys.broadcast_add(bias)?;
                }
                if let Some(activation) = activation {
                    ys = activation.forward(&ys)?;
                }
                Ok(match residual {
                    Residual::None => ys,
                    Residual::Same => (ys + xs)?,
                    Residual::Projected(weight) => (ys + xs.matmul(&weight.t()?)?)?,
                })
            }
        }
    }

    /// The width of the inputs that it takes, where it takes those of one width only.
    pub(super) fn inputs(&self) -> Option<usize> {
        match self {
            Self::Dense { weight, .. } => Some(weight.dims()[1]),
            Self::LayerNorm { weight, .. } => Some(weight.dims()[0]),
            Self::Normalize => None,
        }
    }

    /// The width of its results for inputs of `width` values.
    pub(super) fn width(&self, width: usize) -> usize {
        match self {
            Self::Dense { weight, .. } => weight.dims()[0],
            Self::LayerNorm { .. } | Self::Normalize => width,
        }
    }

    /// Whether the result has the input's direction.
    pub(super) fn keeps_direction(&self) -> bool {
        matches!(self, Self::Normalize)
    }

    /// The field of the input width in its module's config.
    pub(super) fn inputs_field(&self) -> &'static str {
        if matches!(self, Self::LayerNorm { .. }) { "dimension" } else { "in_features" }
    }
}

/// Where a module reads from and writes to.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Places {
    module_input_name: Option<String>,
    module_output_name: Option<String>,
}

impl Places {
    /// Checks that the module works on the vector of the text.
    fn check(&self, path: &Path) -> Result<()> {
        let fields = [
            ("module_input_name", &self.module_input_name),
            ("module_output_name", &self.module_output_name),
        ];
        for (field, name) in fields {
            if let Some(name) = name
                && name != VECTOR
            {
                return Err(wrong(path, field, &format!("`{VECTOR}`"), &format!("`{name}`")));
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct DenseConfig {
    in_features: usize,
    out_features: usize,
    #[serde(default = "yes")]
    bias: bool,
    activation_function: Option<String>,
    #[serde(default)]
    use_residual: bool,
}

#[derive(Deserialize)]
struct LayerNormConfig {
    dimension: usize,
}

fn yes() -> bool {
    true
}

fn wrong(path: &Path, field: &str, expected: &str, found: &str) -> Error {
    Error::Config { path: path.into(), field: field.into(), expected: expected.into(), found: found.into() }
}

/// The folder of a `Normalize` module, which older versions left empty.
pub(super) fn read_normalize(folder: &Path) -> Result<Step> {
    let path = folder.join("config.json");
    if let Some(text) = json::text(&path)? {
        parse::<Places>(&path, &text)?.check(&path)?;
    }
    Ok(Step::Normalize)
}

/// The folder of a `LayerNorm` module.
pub(super) fn read_layer_norm(folder: &Path, dtype: DType, device: &Device) -> Result<Step> {
    let (path, text) = module_config(folder)?;
    let LayerNormConfig { dimension } = parse(&path, &text)?;
    let mut weights = Weights::open(folder, dtype, device)?;
    let (weight, bias) = (weights.take("norm.weight", dimension)?, weights.take("norm.bias", dimension)?);
    Ok(Step::LayerNorm { weight, bias })
}

/// The folder of a `Dense` module.
pub(super) fn read_dense(folder: &Path, dtype: DType, device: &Device) -> Result<Step> {
    let (path, text) = module_config(folder)?;
    let config: DenseConfig = parse(&path, &text)?;
    parse::<Places>(&path, &text)?.check(&path)?;
    let activation = match config.activation_function.as_deref() {
        None => Some(Activation::Tanh),
        Some(name) => match name.strip_prefix("torch.nn.").and_then(|name| name.rsplit('.').next()) {
            Some("Identity") => None,
            Some("Tanh") => Some(Activation::Tanh),
            Some("ReLU") => Some(Activation::Relu),
            Some("GELU") => Some(Activation::Gelu),
            Some("SiLU") => Some(Activation::Silu),
            _ => {
                let expected = "Identity, Tanh, ReLU, GELU or SiLU of torch.nn";
                return Err(wrong(&path, "activation_function", expected, &format!("`{name}`")));
            }
        },
    };
    let (inputs, outputs) = (config.in_features, config.out_features);
    let mut weights = Weights::open(folder, dtype, device)?;
    let weight = weights.take("linear.weight", (outputs, inputs))?;
    let bias = if config.bias { Some(weights.take("linear.bias", outputs)?) } else { None };
    let residual = match (config.use_residual, inputs == outputs) {
        (false, _) => Residual::None,
        (true, true) => Residual::Same,
        (true, false) => Residual::Projected(weights.take("residual.weight", (outputs, inputs))?),
    };
    Ok(Step::Dense { weight, bias, activation, residual })
}

/// The tensors of a module.
struct Weights {
    tensors: HashMap<String, Tensor>,
    path: PathBuf,
}

impl Weights {
    fn open(folder: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let (tensors, path) = tensors(folder, dtype, device)?;
        Ok(Self { tensors, path })
    }

    fn take(&mut self, name: &str, shape: impl Into<Shape>) -> Result<Tensor> {
        let (path, expected) = (self.path.clone(), shape.into());
        match self.tensors.remove(name) {
            None => Err(Error::MissingTensor { path, tensor: name.into(), expected }),
            Some(tensor) if tensor.shape() != &expected => {
                let found = tensor.shape().clone();
                Err(Error::TensorShape { path, tensor: name.into(), expected, found })
            }
            Some(tensor) => Ok(tensor),
        }
    }
}
