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

/// What a module writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// The vector of a text, which modules read too.
    Vector,
    /// The scores of a pair of texts.
    Scores,
}

impl Output {
    /// The name in a module's config.
    fn name(self) -> &'static str {
        match self {
            Self::Vector => "sentence_embedding",
            Self::Scores => "scores",
        }
    }
}

/// The epsilon of PyTorch's `LayerNorm`; the module has no field for it.
const EPSILON: f64 = 1e-5;

/// An activation.
type Activate = fn(&Tensor) -> candle_core::Result<Tensor>;

/// The classes of `torch.nn` that a `Dense` module may have, without arguments.
const ACTIVATIONS: [(&str, Activate); 13] = [
    ("Tanh", Tensor::tanh),
    ("ReLU", Tensor::relu),
    ("GELU", Tensor::gelu_erf),
    ("SiLU", Tensor::silu),
    ("Sigmoid", candle_nn::ops::sigmoid),
    ("ELU", |xs| xs.elu(1.0)),
    ("LeakyReLU", |xs| candle_nn::ops::leaky_relu(xs, 0.01)),
    ("Mish", |xs| xs * softplus(xs)?.tanh()?),
    ("ReLU6", |xs| xs.clamp(0.0, 6.0)),
    // The constants with which mean and variance stay (Klambauer et al. 2017).
    ("SELU", |xs| xs.elu(1.673_263_242_354_377_2)? * 1.050_700_987_355_480_5),
    ("Softplus", softplus),
    ("Softsign", |xs| xs / (xs.abs()? + 1.0)?),
    ("LogSigmoid", |xs| softplus(&xs.neg()?)?.neg()),
];

/// `ln(1 + exp(x))`, for large values too.
fn softplus(xs: &Tensor) -> candle_core::Result<Tensor> {
    xs.relu()? + (xs.abs()?.neg()?.exp()? + 1.0)?.log()?
}

/// A step that maps a vector (b, in) after pooling.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// `activation(x W^T + b)`, and with a residual part `x` or `x R^T` added.
    Dense { weight: Tensor, bias: Option<Tensor>, activation: Option<Activate>, residual: Residual },
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
                    ys = activation(&ys)?;
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
    /// Checks that the module reads the vector of the text and writes `output`. What it reads is the default of both.
    fn check(&self, path: &Path, output: Output) -> Result<()> {
        let fields = [
            ("module_input_name", &self.module_input_name, Output::Vector),
            ("module_output_name", &self.module_output_name, output),
        ];
        for (field, name, expected) in fields {
            let (name, expected) = (name.as_deref().unwrap_or(Output::Vector.name()), expected.name());
            if name != expected {
                return Err(wrong(path, field, &format!("`{expected}`"), &format!("`{name}`")));
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
        parse::<Places>(&path, &text)?.check(&path, Output::Vector)?;
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

/// The folder of a `Dense` module that writes `output`.
pub(super) fn read_dense(folder: &Path, output: Output, dtype: DType, device: &Device) -> Result<Step> {
    let (path, text) = module_config(folder)?;
    let config: DenseConfig = parse(&path, &text)?;
    parse::<Places>(&path, &text)?.check(&path, output)?;
    let name = config.activation_function.as_deref().unwrap_or("torch.nn.Tanh");
    let activation = match name.strip_prefix("torch.nn.").and_then(|name| name.rsplit('.').next()) {
        Some("Identity") => None,
        class => {
            let found = ACTIVATIONS.iter().find(|(known, _)| class == Some(*known));
            let Some((_, activate)) = found else {
                let names: Vec<&str> = ACTIVATIONS.iter().map(|(known, _)| *known).collect();
                let expected = format!("Identity, {} of torch.nn", names.join(", "));
                return Err(wrong(&path, "activation_function", &expected, &format!("`{name}`")));
            };
            Some(*activate)
        }
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

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::ACTIVATIONS;

    /// The values are those of PyTorch.
    #[test]
    fn activations_are_those_of_torch() {
        let expected: [(&str, [f32; 5]); 13] = [
            ("Tanh", [-0.964028, -0.462117, 0.244919, 0.905148, 0.999909]),
            ("ReLU", [0.0, 0.0, 0.25, 1.5, 5.0]),
            ("GELU", [-0.0455003, -0.154269, 0.149677, 1.39979, 5.0]),
            ("SiLU", [-0.238406, -0.18877, 0.140544, 1.22636, 4.96654]),
            ("Sigmoid", [0.119203, 0.377541, 0.562177, 0.817574, 0.993307]),
            ("ELU", [-0.864665, -0.393469, 0.25, 1.5, 5.0]),
            ("LeakyReLU", [-0.02, -0.005, 0.25, 1.5, 5.0]),
            ("Mish", [-0.252501, -0.220744, 0.169572, 1.40338, 4.99955]),
            ("ReLU6", [0.0, 0.0, 0.25, 1.5, 5.0]),
            ("SELU", [-1.52017, -0.691758, 0.262675, 1.57605, 5.2535]),
            ("Softplus", [0.126928, 0.474077, 0.825939, 1.70141, 5.00672]),
            ("Softsign", [-0.666667, -0.333333, 0.2, 0.6, 0.833333]),
            ("LogSigmoid", [-2.12693, -0.974077, -0.575939, -0.201413, -0.00671535]),
        ];
        let xs = Tensor::new(&[-2.0f32, -0.5, 0.25, 1.5, 5.0], &Device::Cpu).unwrap();
        for ((name, activate), (expected_name, expected)) in ACTIVATIONS.iter().zip(expected) {
            let found = activate(&xs).unwrap().to_vec1::<f32>().unwrap();
            let near = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-5);
            assert!(near && *name == expected_name, "{name}: {found:?}, {expected:?}");
        }
    }
}
