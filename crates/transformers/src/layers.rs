//! The layers that every architecture here is made of. Each has one definition for inference and training.

use candle_core::{D, DType, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Error, Result};

use crate::{fused, mode::Mode};

/// `x W^T + b`, with `W` of shape (out, in) as checkpoints store it.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    /// Whether `weight` has the shape (in, out).
    is_transposed: bool,
}

impl Linear {
    /// Takes `weight` from `vb`; a fresh one is normal with standard deviation `std`.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn new(inputs: usize, outputs: usize, std: f64, vb: &VarBuilder) -> Result<Self> {
        let weight = vb.get_with_hints((outputs, inputs), "weight", normal(std))?;
        Ok(Self { weight, bias: None, is_transposed: false })
    }

    /// The same with a `bias`, which starts at zero.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn with_bias(inputs: usize, outputs: usize, std: f64, vb: &VarBuilder) -> Result<Self> {
        let bias = vb.get_with_hints(outputs, "bias", Init::Const(0.0))?;
        Ok(Self { bias: Some(bias), ..Self::new(inputs, outputs, std, vb)? })
    }

    /// The same from a weight of shape (in, out), as GPT-2 stores it.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn transposed(inputs: usize, outputs: usize, std: f64, vb: &VarBuilder) -> Result<Self> {
        let weight = vb.get_with_hints((inputs, outputs), "weight", normal(std))?;
        let bias = vb.get_with_hints(outputs, "bias", Init::Const(0.0))?;
        Ok(Self { weight, bias: Some(bias), is_transposed: true })
    }

    /// A layer whose outputs are in `groups`, each of which reads a group of inputs alone. The weight (out, in / groups, 1)
    /// is that of a convolution over one position. It is copied, so that the layer cannot be trained.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub(crate) fn grouped(
        (inputs, outputs): (usize, usize),
        groups: usize,
        std: f64,
        vb: &VarBuilder,
    ) -> Result<Self> {
        let own = (inputs / groups, outputs / groups);
        let stored = vb.get_with_hints((outputs, own.0, 1), "weight", normal(std))?.squeeze(2)?;
        let bias = vb.get_with_hints(outputs, "bias", Init::Const(0.0))?;
        let block = |group: usize| -> Result<Tensor> {
            let block = stored.narrow(0, group * own.1, own.1)?;
            Ok(block.pad_with_zeros(1, group * own.0, inputs - (group + 1) * own.0)?)
        };
        let blocks = (0..groups).map(block).collect::<Result<Vec<_>>>()?;
        Ok(Self::of(Tensor::cat(&blocks, 0)?, Some(bias)))
    }

    /// A head that shares its weight (out, in), such as an embedding table.
    #[must_use]
    pub fn shared(weight: Tensor) -> Self {
        Self::of(weight, None)
    }

    /// A layer of these tensors: the weight (out, in), and a bias (out).
    pub(crate) fn of(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight, bias, is_transposed: false }
    }

    /// A layer of a weight (in, out) and a bias (out).
    #[must_use]
    pub(crate) fn of_transposed(weight: Tensor, bias: Tensor) -> Self {
        Self { weight, bias: Some(bias), is_transposed: true }
    }

    /// (..., in) to (..., out).
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        if let Some(bias) = self.bias.as_ref().filter(|_| self.is_transposed)
            && self.weight.is_variable()
            && fused::applies(xs)
        {
            let flat = xs.reshape(((), xs.dim(D::Minus1)?))?;
            let ys = fused::linear_transposed(&flat, &self.weight, bias)?;
            return Ok(ys.reshape(self.shape_of_result(xs)?)?);
        }
        let ys = self.product(xs)?;
        Ok(match &self.bias {
            #[cfg(feature = "cuda")]
            Some(bias) if crate::cuda::infers(&ys) => crate::cuda::add_bias(&ys, bias)?,
            Some(bias) => ys.broadcast_add(bias)?,
            None => ys,
        })
    }

    /// The bias of the products.
    #[cfg(feature = "cuda")]
    pub(crate) fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// [`forward`](Self::forward) without the bias.
    ///
    /// # Errors
    /// A tensor error.
    pub fn product(&self, xs: &Tensor) -> Result<Tensor> {
        let inputs = xs.dim(D::Minus1)?;
        // One flat product: a broadcast product would run one small product for each row.
        let flat = xs.reshape(((), inputs))?;
        let ys = match self.weight.is_variable() {
            _ if self.is_transposed => flat.matmul(&self.weight)?,
            true if fused::applies(xs) => fused::linear(&flat, &self.weight)?,
            #[cfg(feature = "cuda")]
            true if crate::cuda::applies(xs) => crate::cuda::linear(&flat, &self.weight)?,
            _ => flat.matmul(&self.weight.t()?)?,
        };
        Ok(ys.reshape(self.shape_of_result(xs)?)?)
    }

    fn shape_of_result(&self, xs: &Tensor) -> Result<Vec<usize>> {
        let mut shape = xs.dims().to_vec();
        if let Some(last) = shape.last_mut() {
            *last = self.weight.dim(usize::from(self.is_transposed))?;
        }
        Ok(shape)
    }
}

/// Layers whose weights and biases lie one under the other in one tensor.
pub(crate) struct Stacked {
    /// (layers * outputs, in)
    weight: Tensor,
    bias: Option<Tensor>,
    outputs: usize,
}

impl Stacked {
    /// Takes the tensors of `count` layers from `vb`; a fresh weight is normal with standard deviation `std`.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub(crate) fn new(
        (inputs, outputs): (usize, usize),
        count: usize,
        std: f64,
        has_bias: bool,
        vb: &VarBuilder,
    ) -> Result<Self> {
        let weight = vb.get_with_hints((count * outputs, inputs), "weight", normal(std))?;
        let bias = || vb.get_with_hints(count * outputs, "bias", Init::Const(0.0));
        Ok(Self { weight, bias: has_bias.then(bias).transpose()?, outputs })
    }

    /// One of the layers.
    ///
    /// # Errors
    /// A tensor error.
    pub(crate) fn part(&self, at: usize) -> Result<Linear> {
        let part = |tensor: &Tensor| tensor.narrow(0, at * self.outputs, self.outputs);
        let bias = self.bias.as_ref().map(part).transpose()?;
        Ok(Linear { weight: part(&self.weight)?, bias, is_transposed: false })
    }
}

/// A table of vectors (vocabulary, width).
#[derive(Debug, Clone)]
pub struct Embedding {
    table: Tensor,
}

impl Embedding {
    /// A table whose fresh values have the deviation `std`.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn new(rows: usize, width: usize, std: f64, vb: &VarBuilder) -> Result<Self> {
        Ok(Self { table: vb.get_with_hints((rows, width), "weight", normal(std))? })
    }

    /// The vectors.
    #[must_use]
    pub fn table(&self) -> &Tensor {
        &self.table
    }

    /// Ids (b, t) of type u32 to vectors (b, t, width).
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let (batch, length) = ids.dims2()?;
        let rows = self.table.index_select(&ids.flatten_all()?, 0)?;
        Ok(rows.reshape((batch, length, ()))?)
    }
}

/// Root mean square normalisation (Zhang and Sennrich 2019), as T5 uses it: a scale, no shift, no mean.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    weight: Tensor,
    /// Added to the weight.
    offset: f64,
    eps: f64,
}

impl RmsNorm {
    /// A scale that starts at `init`.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn new(width: usize, eps: f64, init: f64, vb: &VarBuilder) -> Result<Self> {
        Ok(Self { weight: vb.get_with_hints(width, "weight", Init::Const(init))?, offset: 0.0, eps })
    }

    /// A scale of 1 plus a weight that starts at 0, as Gemma has it.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn around_one(width: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        Ok(Self { offset: 1.0, ..Self::new(width, eps, 0.0, vb)? })
    }

    /// Without a scale. `vb` says the type and the device.
    ///
    /// # Errors
    /// A tensor error.
    pub fn without_weights(width: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        Ok(Self { weight: Tensor::ones(width, vb.dtype(), vb.device())?, offset: 0.0, eps })
    }

    /// Vectors (.., width) to normalised ones of the same shape.
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        if self.offset == 0.0 {
            return self.scaled(xs, &self.weight, mode);
        }
        self.scaled(xs, &(&self.weight + self.offset)?, mode)
    }

    fn scaled(&self, xs: &Tensor, weight: &Tensor, mode: &Mode) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if mode.is_training() && crate::cuda::applies(xs) {
            return Ok(crate::cuda::norm(xs, weight, self.eps as f32, false)?);
        }
        if mode.is_training() && fused::applies(xs) {
            Ok(fused::rms_norm(xs, weight, self.eps as f32)?)
        } else if mode.is_training() {
            Ok(candle_nn::ops::rms_norm_slow(xs, weight, self.eps as f32)?)
        } else if is_half(xs.dtype()) && xs.device().is_cpu() {
            // On the CPU candle rounds the mean before it divides by it.
            let (wide, weight) = (xs.contiguous()?.to_dtype(DType::F32)?, weight.to_dtype(DType::F32)?);
            Ok(candle_nn::ops::rms_norm(&wide, &weight, self.eps as f32)?.to_dtype(xs.dtype())?)
        } else {
            Ok(candle_nn::ops::rms_norm(&xs.contiguous()?, weight, self.eps as f32)?)
        }
    }
}

/// Layer normalisation (Ba et al. 2016) with scale and shift.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: Tensor,
    /// Added to the weight.
    offset: f64,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    /// A scale that starts at 1 and a shift that starts at 0.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn new(width: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        let weight = vb.get_with_hints(width, "weight", Init::Const(1.0))?;
        Ok(Self { weight, offset: 0.0, bias: vb.get_with_hints(width, "bias", Init::Const(0.0))?, eps })
    }

    /// A scale of 1 plus a weight, and a shift, which both start at 0, as Nemotron has them.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn around_one(width: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        let zero = |name: &str| vb.get_with_hints(width, name, Init::Const(0.0));
        Ok(Self { weight: zero("weight")?, offset: 1.0, bias: zero("bias")?, eps })
    }

    /// A scale that starts at 1, without a shift.
    ///
    /// # Errors
    /// A tensor error where `vb` has another shape.
    pub fn without_shift(width: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        let weight = vb.get_with_hints(width, "weight", Init::Const(1.0))?;
        let bias = weight.zeros_like()?;
        Ok(Self { weight, offset: 0.0, bias, eps })
    }

    /// Without a scale and a shift. `vb` says the type and the device.
    ///
    /// # Errors
    /// A tensor error.
    pub fn without_weights(width: usize, eps: f64, vb: &VarBuilder) -> Result<Self> {
        let weight = Tensor::ones(width, vb.dtype(), vb.device())?;
        let bias = weight.zeros_like()?;
        Ok(Self { weight, offset: 0.0, bias, eps })
    }

    /// Vectors (.., width) to normalised ones of the same shape.
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let (eps, weight) = (self.eps as f32, &self.scale()?);
        #[cfg(feature = "cuda")]
        if mode.is_training() && crate::cuda::applies(xs) {
            let normed = crate::cuda::norm(xs, weight, eps, true)?;
            return Ok(crate::cuda::add_bias(&normed, &self.bias)?);
        }
        if mode.is_training() {
            Ok(candle_nn::ops::layer_norm_slow(xs, weight, &self.bias, eps)?)
        } else {
            Ok(candle_nn::ops::layer_norm(&xs.contiguous()?, weight, &self.bias, eps)?)
        }
    }

    /// [`forward`](Self::forward), but in training on a CPU one operation in place of many. It rounds differently.
    pub(crate) fn forward_fused(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        if mode.is_training() && fused::applies(xs) {
            return Ok(fused::layer_norm(xs, &self.scale()?, &self.bias, self.eps as f32)?);
        }
        self.forward(xs, mode)
    }

    fn scale(&self) -> Result<Tensor> {
        Ok(if self.offset == 0.0 { self.weight.clone() } else { (&self.weight + self.offset)? })
    }
}

/// An activation function, by the names that `transformers` configs use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)^2`
    SquaredRelu,
    /// With the error function.
    Gelu,
    /// With the tanh approximation (`gelu_new`).
    GeluTanh,
    /// `x / (1 + exp(-x))`
    Silu,
    /// `tanh(x)`
    Tanh,
    /// `Gelu` between -10 and 10.
    ClippedGelu,
    /// `x / (1 + exp(-1.702 x))`
    QuickGelu,
    /// `x tanh(ln(1 + exp(x)))`
    Mish,
    /// `1 / (1 + exp(-x))`
    Sigmoid,
    /// `x` above 0, and `x / 100` below.
    LeakyRelu,
    /// `min(max(x, 0), 6)`
    Relu6,
    /// `x min(max(x + 3, 0), 6) / 6`
    HardSwish,
    /// The share of a normal distribution below `x` (see the kernels' function).
    Laplace,
    /// `x`
    Linear,
}

impl Activation {
    /// The function called `name`, or `None` where this crate does not have it.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "relu" => Self::Relu,
            "relu2" => Self::SquaredRelu,
            "gelu" | "gelu_python" => Self::Gelu,
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_python_tanh" | "gelu_fast" | "gelu_accurate" => {
                Self::GeluTanh
            }
            "gelu_10" => Self::ClippedGelu,
            "quick_gelu" => Self::QuickGelu,
            "silu" | "swish" => Self::Silu,
            "mish" => Self::Mish,
            "tanh" => Self::Tanh,
            "sigmoid" => Self::Sigmoid,
            "leaky_relu" => Self::LeakyRelu,
            "relu6" => Self::Relu6,
            "hardswish" => Self::HardSwish,
            "laplace" => Self::Laplace,
            "linear" => Self::Linear,
            _ => return None,
        })
    }

    /// The function of each value.
    ///
    /// # Errors
    /// A tensor error.
    pub fn forward(self, xs: &Tensor) -> Result<Tensor> {
        #[cfg(feature = "cuda")]
        if self == Self::Gelu && crate::cuda::infers(xs) {
            return Ok(crate::cuda::gelu(xs)?);
        }
        if self != Self::Relu && is_half(xs.dtype()) {
            // candle's formulas round after every step of theirs.
            return Ok(self.forward(&xs.to_dtype(DType::F32)?)?.to_dtype(xs.dtype())?);
        }
        Ok(match self {
            Self::Relu if fused::applies(xs) => fused::relu(xs)?,
            Self::Relu => xs.relu()?,
            Self::SquaredRelu => xs.relu()?.sqr()?,
            Self::Gelu => xs.gelu_erf()?,
            Self::GeluTanh => xs.gelu()?,
            Self::Silu => xs.silu()?,
            Self::Tanh => xs.tanh()?,
            Self::ClippedGelu => xs.gelu_erf()?.clamp(-10.0, 10.0)?,
            Self::QuickGelu => (xs * candle_nn::ops::sigmoid(&(xs * 1.702)?)?)?,
            // Above 20 the factor is 1 in f32.
            Self::Mish => (xs * (xs.minimum(20.0)?.exp()? + 1.0)?.log()?.tanh()?)?,
            Self::Sigmoid => candle_nn::ops::sigmoid(xs)?,
            Self::LeakyRelu => xs.maximum(&(xs * 0.01)?)?,
            Self::Relu6 => xs.clamp(0.0, 6.0)?,
            Self::HardSwish => (xs * ((xs + 3.0)?.clamp(0.0, 6.0)? / 6.0)?)?,
            Self::Laplace => {
                let distance =
                    ((xs - std::f64::consts::FRAC_1_SQRT_2)? * (2.0 * std::f64::consts::PI).sqrt())?;
                ((distance.erf()? + 1.0)? * 0.5)?
            }
            Self::Linear => xs.clone(),
        })
    }

    /// [`forward`](Self::forward), but in training on a CPU one operation in place of many. It rounds differently.
    pub(crate) fn forward_fused(self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        if !(mode.is_training() && fused::applies(xs)) {
            return self.forward(xs);
        }
        match self {
            Self::Relu => self.forward(xs),
            other => Ok(fused::activation(xs, other.into())?),
        }
    }

    /// The function of `gates` times `xs`, of the same shape; in training on a CPU as one operation.
    pub(crate) fn gate(self, gates: &Tensor, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        if mode.is_training() && fused::applies(gates) {
            return Ok(fused::gate(gates, xs, self.into())?);
        }
        Ok((self.forward(gates)? * xs)?)
    }
}

/// The function of the kernels.
impl From<Activation> for sporran_kernels::Activation {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::Relu => Self::Relu,
            Activation::SquaredRelu => Self::SquaredRelu,
            Activation::Gelu => Self::Gelu,
            Activation::GeluTanh => Self::GeluTanh,
            Activation::Silu => Self::Silu,
            Activation::Tanh => Self::Tanh,
            Activation::ClippedGelu => Self::ClippedGelu,
            Activation::QuickGelu => Self::QuickGelu,
            Activation::Mish => Self::Mish,
            Activation::Sigmoid => Self::Sigmoid,
            Activation::LeakyRelu => Self::LeakyRelu,
            Activation::Relu6 => Self::Relu6,
            Activation::HardSwish => Self::HardSwish,
            Activation::Laplace => Self::Laplace,
            Activation::Linear => Self::Linear,
        }
    }
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Values in main memory as f32, row after row.
///
/// # Errors
/// A tensor error.
pub fn values(xs: &Tensor) -> Result<Vec<f32>> {
    let xs = xs.to_dtype(DType::F32)?;
    #[cfg(feature = "cuda")]
    if crate::cuda::applies(&xs) {
        return Ok(crate::cuda::read(&xs)?);
    }
    Ok(xs.flatten_all()?.to_vec1()?)
}

/// Softmax over the last dimension.
///
/// # Errors
/// A tensor error.
pub fn softmax(xs: &Tensor, mode: &Mode) -> Result<Tensor> {
    if is_half(xs.dtype()) && xs.device().is_cpu() {
        // On the CPU candle adds up the weights in the dtype that they have, and a long row of halves stops growing.
        return Ok(softmax(&xs.to_dtype(DType::F32)?, mode)?.to_dtype(xs.dtype())?);
    }
    if !mode.is_training() {
        return Ok(candle_nn::ops::softmax_last_dim(&xs.contiguous()?)?);
    }
    #[cfg(feature = "cuda")]
    if crate::cuda::applies(xs) && xs.rank() == 4 {
        return Ok(crate::cuda::attention_weights(xs, None, 1.0)?);
    }
    // The maximum only keeps the exponentials in range; its gradient cancels, so it is left out.
    let max = xs.max_keepdim(D::Minus1)?.detach();
    let exp = xs.broadcast_sub(&max)?.exp()?;
    Ok(exp.broadcast_div(&exp.sum_keepdim(D::Minus1)?)?)
}

/// The value added to the attention score of a key that must not be seen. It is finite, so that a query
/// without any key gives numbers, and so large that the weight of a hidden key is exactly zero otherwise.
///
/// # Errors
/// [`Error::Dtype`] for another type.
pub fn hidden_score(dtype: DType) -> Result<f64> {
    match dtype {
        DType::F32 | DType::BF16 | DType::F64 => Ok(-1e30),
        DType::F16 => Ok(-6e4),
        found => Err(Error::Dtype { expected: "F32, F16, BF16 or F64", found }),
    }
}

fn normal(std: f64) -> Init {
    Init::Randn { mean: 0.0, stdev: std }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor, Var};

    use super::{Activation, LayerNorm, RmsNorm, softmax};

    #[test]
    fn long_rows_of_halves_have_weights_that_sum_to_one() {
        for dtype in [DType::F16, DType::BF16] {
            let scores = Tensor::zeros((1, 4096), dtype, &Device::Cpu).unwrap();
            let weights = softmax(&scores, &Mode::Inference).unwrap();
            assert_eq!(weights.dtype(), dtype);
            // 2^-12 each, which both can write; a sum in bf16 would have stopped at 256.
            let weights =
                weights.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert!(weights.iter().all(|&weight| weight == 1.0 / 4096.0), "{dtype:?}");
        }
    }
    use crate::mode::Mode;

    fn values() -> Tensor {
        Tensor::new(&[[0.5f32, -1.25, 3.0, 0.0], [2.0, 2.0, -7.5, 1e-3]], &Device::Cpu).unwrap()
    }

    fn difference(a: &Tensor, b: &Tensor) -> f32 {
        (a - b).unwrap().abs().unwrap().max_all().unwrap().to_scalar().unwrap()
    }

    #[test]
    fn named_activations_are_those_of_the_kernels() {
        let names = [
            "relu",
            "relu2",
            "relu6",
            "leaky_relu",
            "gelu",
            "gelu_python",
            "gelu_new",
            "gelu_fast",
            "gelu_10",
            "quick_gelu",
            "silu",
            "mish",
            "tanh",
            "sigmoid",
            "hardswish",
            "laplace",
            "linear",
        ];
        for name in names {
            let activation = Activation::named(name).unwrap();
            let found = activation.forward(&(values() * 2.0).unwrap()).unwrap();
            let mut expected = (values() * 2.0).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            sporran_kernels::Activation::from(activation)
                .forward(sporran_kernels::Isa::Portable, &mut expected);
            let expected = Tensor::from_vec(expected, (2, 4), &Device::Cpu).unwrap();
            assert!(difference(&found, &expected) < 2e-6, "{name}: {found} {expected}");
        }
        assert!(Activation::named("prelu").is_none());
    }

    #[test]
    fn inference_and_training_give_the_same_numbers() {
        let (infer, train) = (Mode::Inference, Mode::training(0));
        let weight = Tensor::new(&[1.0f32, 0.5, -2.0, 3.0], &Device::Cpu).unwrap();
        let rms = RmsNorm { weight: weight.clone(), offset: 0.0, eps: 1e-6 };
        let layer = LayerNorm { weight: weight.clone(), offset: 0.0, bias: weight, eps: 1e-5 };
        let xs = values();
        assert!(difference(&rms.forward(&xs, &infer).unwrap(), &rms.forward(&xs, &train).unwrap()) < 1e-5);
        assert!(
            difference(&layer.forward(&xs, &infer).unwrap(), &layer.forward(&xs, &train).unwrap()) < 1e-5
        );
        assert!(difference(&softmax(&xs, &infer).unwrap(), &softmax(&xs, &train).unwrap()) < 1e-6);
        let fused = layer.forward_fused(&xs, &train).unwrap();
        assert!(difference(&layer.forward(&xs, &infer).unwrap(), &fused) < 1e-5);
        for function in ["relu", "relu2", "gelu", "gelu_new", "silu", "tanh"] {
            let function = Activation::named(function).unwrap();
            let fused = function.forward_fused(&xs, &train).unwrap();
            assert!(difference(&function.forward(&xs).unwrap(), &fused) < 1e-5, "{function:?}");
        }
    }

    #[test]
    fn softmax_in_training_has_the_exact_gradient() {
        // d p_0 / d x_j = p_0 ([j = 0] - p_j)
        let xs = Var::from_tensor(&values().narrow(0, 0, 1).unwrap()).unwrap();
        let p = softmax(xs.as_tensor(), &Mode::training(0)).unwrap();
        let grads = p.narrow(1, 0, 1).unwrap().sum_all().unwrap().backward().unwrap();
        let got: Vec<Vec<f32>> = grads.get(&xs).unwrap().to_vec2().unwrap();
        let p: Vec<Vec<f32>> = p.to_vec2().unwrap();
        for j in 0..4 {
            let expected = p[0][0] * (f32::from(u8::from(j == 0)) - p[0][j]);
            assert!((got[0][j] - expected).abs() < 1e-6);
        }
    }

    #[test]
    fn gelu_is_the_error_function_and_gelu_new_its_tanh_approximation() {
        let one = Tensor::new(&[1.0f32], &Device::Cpu).unwrap();
        let at_one =
            |name| Activation::named(name).unwrap().forward(&one).unwrap().to_vec1::<f32>().unwrap()[0];
        // 0.5 (1 + erf(1 / sqrt 2)) = 0.841345; 0.5 (1 + tanh(sqrt(2 / pi) 1.044715)) = 0.841192
        assert!((at_one("gelu") - 0.841_345).abs() < 1e-6);
        assert!((at_one("gelu_new") - 0.841_192).abs() < 1e-6);
        assert_eq!(Activation::named("prelu"), None);
    }
}
