//! The feed-forward parts of layers: projections, or a mixture of such experts.

use candle_core::{D, DType, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    config::LlamaConfig,
    derived::{Gate, SLOPES},
    names::{Inner, PartNames},
};
use crate::{
    architectures::wrong::wrong,
    layers::{Activation, Linear},
    mode::Mode,
};

/// Two projections with a function between them.
#[derive(Debug, Clone)]
pub(super) struct FeedForward {
    gates: Gates,
    down: Linear,
    function: Function,
}

/// The inner projections.
#[derive(Debug, Clone)]
enum Gates {
    Apart {
        gate: Linear,
        up: Linear,
    },
    /// One has the gate and then what it multiplies.
    Fused(Linear),
    /// The columns of the gate alternate with those that they multiply.
    Alternating(Linear),
    /// There is no gate.
    Plain(Linear),
}

/// What is done with the inner values.
#[derive(Debug, Clone)]
enum Function {
    Plain(Activation),
    Scaled {
        activation: Activation,
        gate: f64,
        result: f64,
    },
    Learned(Slopes),
    Bounded {
        alpha: f64,
        most: f64,
    },
    /// What is above the mean of the values and this many of their deviations is activated.
    Sparse(Activation, f64),
}

/// The slopes of an activation, each (1) or ().
#[derive(Debug, Clone)]
struct Slopes {
    /// The growth of the slope with values above 0, and with those below.
    above: Tensor,
    below: Tensor,
    /// The slope at 0.
    zero: Tensor,
    /// The greatest value below 0.
    most: Tensor,
}

impl Slopes {
    /// Those of the layer whose tensors are under `vb`. A fresh layer has those of `transformers`.
    fn new(vb: &VarBuilder) -> Result<Self> {
        let [above, below, zero, most] = SLOPES;
        let learned = |name, growth: f64| vb.get_with_hints(1, name, Init::Const(growth.exp_m1().ln()));
        let fixed =
            |name, value| -> Result<_> { Ok(vb.get_with_hints((), name, Init::Const(value))?.detach()) };
        Ok(Self {
            above: learned(above, 0.8)?,
            below: learned(below, 0.3)?,
            zero: fixed(zero, 0.5)?,
            most: fixed(most, -1e-6)?,
        })
    }

    /// The activation of each value.
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        // In 16 bits the difference below 0 has few digits.
        let wide = match xs.dtype() {
            DType::F16 | DType::BF16 => DType::F32,
            own => own,
        };
        let ys = xs.to_dtype(wide)?;
        let of = |tensor: &Tensor| tensor.to_dtype(wide);
        let positive = |tensor: &Tensor| (of(tensor)?.exp()? + 1.0)?.log();
        let above = ys.sqr()?.broadcast_mul(&positive(&self.above)?)?;
        let most = of(&self.most)?.broadcast_as(ys.shape())?.contiguous()?;
        let below = ((ys.minimum(&most)?.exp()? - 1.0)? - &ys)?;
        let below = below.broadcast_mul(&positive(&self.below)?.broadcast_add(&of(&self.zero)?)?)?;
        let curved = ys.gt(0f64)?.where_cond(&above, &below)?;
        Ok((curved + ys.broadcast_mul(&of(&self.zero)?)?)?.to_dtype(xs.dtype())?)
    }
}

/// A projection with a bias or without one.
pub(super) fn linear(
    config: &LlamaConfig,
    (inputs, outputs): (usize, usize),
    has_bias: bool,
    vb: &VarBuilder,
) -> Result<Linear> {
    let std = config.initializer_range;
    if has_bias { Linear::with_bias(inputs, outputs, std, vb) } else { Linear::new(inputs, outputs, std, vb) }
}

impl FeedForward {
    /// A part of this inner width, whose tensors have these names under `vb`, and biases where it is said.
    pub(super) fn new(
        config: &LlamaConfig,
        inner: usize,
        (names, has_bias): (PartNames, bool),
        vb: &VarBuilder,
    ) -> Result<Self> {
        let width = config.hidden_size;
        let up = |outputs: usize, name: &str| linear(config, (width, outputs), has_bias, &vb.pp(name));
        let gates = match names.inner {
            Inner::Gated(gate, name) => Gates::Apart { gate: up(inner, gate)?, up: up(inner, name)? },
            Inner::Fused(name) => Gates::Fused(up(2 * inner, name)?),
            Inner::Plain(name) => Gates::Plain(up(inner, name)?),
        };
        let down = linear(config, (inner, width), has_bias, &vb.pp(names.outer))?;
        Ok(Self { gates, down, function: Function::new(config, vb)? })
    }

    /// The same, where gates below their mean and `least` of their deviations are 0.
    pub(super) fn with_least(self, least: Option<f64>) -> Self {
        match (&self.function, least) {
            (Function::Plain(activation), Some(least)) => {
                Self { function: Function::Sparse(*activation, least), ..self }
            }
            _ => self,
        }
    }

    /// An expert of these projections, of which the inner one has gates that may alternate with what they multiply.
    pub(super) fn of(config: &LlamaConfig, inner: Linear, down: Linear, alternates: bool) -> Result<Self> {
        let function = match config.gate()? {
            Gate::Plain(activation) => Function::Plain(activation),
            Gate::Bounded { alpha, most } => Function::Bounded { alpha, most },
            Gate::Scaled { activation, gate, result } => Function::Scaled { activation, gate, result },
            Gate::Learned => return Err(wrong("hidden_act", "another than `xielu` in experts", "`xielu`")),
        };
        let gates = if alternates { Gates::Alternating(inner) } else { Gates::Fused(inner) };
        Ok(Self { gates, down, function })
    }

    /// States (n, width) or (r, t, width) to what the part adds to them.
    pub(super) fn forward(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let (gate, up) = match &self.gates {
            Gates::Apart { gate, up } => (gate.forward(xs)?, Some(up.forward(xs)?)),
            Gates::Fused(both) => {
                let both = both.forward(xs)?.chunk(2, D::Minus1)?;
                (both[0].contiguous()?, Some(both[1].contiguous()?))
            }
            Gates::Alternating(both) => {
                let both = both.forward(xs)?;
                let pairs = both.reshape((both.elem_count() / 2, 2))?;
                let mut shape = both.dims().to_vec();
                if let Some(last) = shape.last_mut() {
                    *last /= 2;
                }
                let part = |at: usize| pairs.narrow(1, at, 1)?.contiguous()?.reshape(shape.as_slice());
                (part(0)?, Some(part(1)?))
            }
            Gates::Plain(all) => (all.forward(xs)?, None),
        };
        self.down.forward(&match (&self.function, up) {
            (Function::Bounded { alpha, most }, Some(up)) => {
                let gate = gate.minimum(*most)?;
                let active = (candle_nn::ops::sigmoid(&(&gate * *alpha)?)? * gate)?;
                (active * (up.clamp(-*most, *most)? + 1.0)?)?
            }
            (Function::Scaled { activation, gate: factor, result }, Some(up)) => {
                let active = activation.forward_fused(&(gate * *factor)?, mode)?;
                ((active * up)? * *result)?
            }
            (Function::Plain(activation), Some(up)) => activation.gate(&gate, &up, mode)?,
            (function, Some(up)) => (function.activate(&gate, mode)? * up)?,
            (function, None) => function.activate(&gate, mode)?,
        })
    }
}

impl Function {
    /// That of the feed-forward part whose layer is under `vb`.
    fn new(config: &LlamaConfig, vb: &VarBuilder) -> Result<Self> {
        Ok(match config.gate()? {
            Gate::Plain(activation) => Self::Plain(activation),
            Gate::Scaled { activation, gate, result } => Self::Scaled { activation, gate, result },
            Gate::Learned => Self::Learned(Slopes::new(vb)?),
            Gate::Bounded { alpha, most } => Self::Bounded { alpha, most },
        })
    }

    /// The function of gates.
    fn activate(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        match self {
            Self::Plain(activation) | Self::Scaled { activation, .. } => activation.forward_fused(xs, mode),
            Self::Learned(slopes) => slopes.forward(xs),
            Self::Sparse(activation, least) => {
                let mean = xs.mean_keepdim(D::Minus1)?;
                let deviation = xs.broadcast_sub(&mean)?.sqr()?.mean_keepdim(D::Minus1)?.sqrt()?;
                let bound = (mean + (deviation * *least)?)?;
                activation.forward_fused(&xs.broadcast_sub(&bound)?.relu()?, mode)
            }
            Self::Bounded { alpha, .. } => Ok((candle_nn::ops::sigmoid(&(xs * *alpha)?)? * xs)?),
        }
    }
}
