//! A layer of LLaMA's shape: attention or a recurrence, and the feed-forward part.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::Result;

use super::{
    alternating::Alternating,
    attention::{Attention, Shared, Turns},
    beside::Beside,
    config::LlamaConfig,
    convolution::Convolution,
    delta::Delta,
    layer_inputs::LayerInput,
    linear_attention::Recurrence,
    mixture::Part,
    names,
    norm::Norm,
    norms::PartNorms,
    state_space::StateSpace,
};
use crate::{cache::LayerCache, causal::Biases, mode::Mode};

#[derive(Debug, Clone)]
pub(super) struct Layer {
    mixer: Mixer,
    /// Another one, which reads the same states.
    beside: Option<StateSpace>,
    mixer_norms: [Option<Norm>; 2],
    feed_forward_norms: [Option<Norm>; 2],
    /// Whether the feed-forward part reads the states before the layer, and not those after attention.
    is_parallel: bool,
    /// Whether the second norms are those of states, after a part is added to them.
    norms_sums: bool,
    part: Part,
    /// The experts beside it.
    experts_beside: Option<Beside>,
    /// What the embeddings of the layer add to the states.
    input: Option<LayerInput>,
    /// What it does with streams of states.
    alternating: Option<Alternating>,
    /// The factor of the states afterwards (1).
    scale_after: Option<Tensor>,
    /// The factor of what a part adds to the states.
    residual_scale: f64,
    /// The dropout rates of what the parts add to the states.
    part_dropouts: [f64; 2],
}

/// The part of a layer that reads other tokens.
#[derive(Debug, Clone)]
enum Mixer {
    Attention(Box<Attention>),
    Delta(Box<Delta>),
    Convolution(Convolution),
    StateSpace(Box<StateSpace>),
}

/// What layers leave to later ones, beside states.
#[derive(Debug, Default)]
pub(super) struct Between {
    pub(super) shared: Shared,
    /// The streams of states, of which layers read one.
    pub(super) streams: Vec<Tensor>,
}

pub(super) fn scaled(xs: Tensor, scale: f64) -> Result<Tensor> {
    if scale == 1.0 { Ok(xs) } else { Ok((xs * scale)?) }
}

impl Layer {
    pub(super) fn new(config: &LlamaConfig, at: usize, vb: &VarBuilder) -> Result<Self> {
        let width = config.hidden_size;
        let part_norm =
            |name: Option<&str>| name.map(|name| Norm::new(config, width, &vb.pp(name))).transpose();
        let part_norms =
            |norms: PartNorms| -> Result<_> { Ok([part_norm(norms.before())?, part_norm(norms.after())?]) };
        let (recurrence, beside) = match config.recurrence(at) {
            Some(Recurrence::StateSpace(sizes)) if config.attends_beside() => {
                (None, Some(StateSpace::new(config, sizes, vb)?))
            }
            recurrence => (recurrence, None),
        };
        let mixer = match recurrence {
            Some(Recurrence::Delta(sizes)) => Mixer::Delta(Box::new(Delta::new(config, sizes, vb)?)),
            Some(Recurrence::StateSpace(sizes)) => {
                Mixer::StateSpace(Box::new(StateSpace::new(config, sizes, vb)?))
            }
            Some(Recurrence::Convolution(sizes)) => Mixer::Convolution(Convolution::new(config, sizes, vb)?),
            None => Mixer::Attention(Box::new(Attention::new(config, at, vb)?)),
        };
        let mixer_norms = part_norms(config.attention_norms())?;
        let feed_forward_norms =
            if config.shares_norm() { mixer_norms.clone() } else { part_norms(config.feed_forward_norms())? };
        let experts_beside = config.experts_beside().map(|sizes| Beside::new(config, sizes, vb));
        let input = config.layer_input_width().map(|width| LayerInput::new(config, width, vb));
        let alternating = config.streams().map(|sizes| Alternating::new(config, sizes, vb));
        let scale_after = || vb.get_with_hints(1, names::LAYER_SCALE, Init::Const(1.0));
        let scale_after = config.scales_layers().then(scale_after).transpose()?;
        Ok(Self {
            mixer,
            beside,
            mixer_norms,
            feed_forward_norms,
            is_parallel: config.is_parallel(),
            norms_sums: config.norms_sums(),
            part: Part::new(config, at, vb)?,
            experts_beside: experts_beside.transpose()?,
            input: input.transpose()?,
            alternating: alternating.transpose()?,
            // It is no parameter.
            scale_after: scale_after.map(|scale| scale.detach()),
            residual_scale: config.residual_scale(),
            part_dropouts: config.part_dropouts(),
        })
    }

    /// Adds the result of a part to the states `xs`, with its norm and its dropout rate.
    fn add(
        &self,
        xs: &Tensor,
        result: Tensor,
        (norm, dropout): (Option<&Norm>, f64),
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let (own, of_sum) = if self.norms_sums { (None, norm) } else { (norm, None) };
        let result = match own {
            Some(norm) => norm.forward(&result, mode)?,
            None => result,
        };
        let result = mode.dropout(result, dropout)?;
        let sum = (xs + scaled(result, self.residual_scale)?)?;
        match of_sum {
            Some(norm) => norm.forward(&sum, mode),
            None => Ok(sum),
        }
    }

    /// The states after the layer of `xs` (r, t, d), of which its own embeddings are `own` (r, t, w).
    pub(super) fn forward(
        &self,
        (xs, own): (&Tensor, Option<&Tensor>),
        turns: &[Turns],
        biases: &Biases,
        (kept, between): (&mut LayerCache, &mut Between),
        mode: &mut Mode,
    ) -> Result<Tensor> {
        let [before, after] = &self.mixer_norms;
        let begun = self.alternating.as_ref().map(|own| own.begin(&mut between.streams, mode)).transpose()?;
        let xs = begun.as_ref().unwrap_or(xs);
        let read = match before {
            Some(norm) => norm.forward(xs, mode)?,
            None => xs.clone(),
        };
        let mixed = match &self.mixer {
            Mixer::Attention(attention) => {
                attention.forward(&read, turns, biases, (&mut *kept, &mut between.shared), mode)?
            }
            Mixer::Delta(delta) => delta.forward(&read, &biases.alignment, kept, mode)?,
            Mixer::StateSpace(space) => space.forward(&read, &biases.alignment, kept, mode)?,
            Mixer::Convolution(convolution) => convolution.forward(&read, &biases.alignment, kept, mode)?,
        };
        let mixed = match &self.beside {
            Some(space) => (mixed + space.forward(&read, &biases.alignment, kept, mode)?)?,
            None => mixed,
        };
        let ys = self.add(xs, mixed, (after.as_ref(), self.part_dropouts[0]), mode)?;
        let ys = match &self.alternating {
            Some(own) => scaled((ys + own.residual(&read, mode)?)?, 0.5f64.sqrt())?,
            None => ys,
        };
        let [before, after] = &self.feed_forward_norms;
        let source = if self.is_parallel { xs } else { &ys };
        let inner = match before {
            Some(norm) => norm.forward(source, mode)?,
            None => source.clone(),
        };
        let with = (after.as_ref(), self.part_dropouts[1]);
        let result = self.part.forward(&inner, mode)?;
        let result = match &self.experts_beside {
            Some(beside) => beside.add(&ys, &result, mode)?,
            None => result,
        };
        let ys = self.add(&ys, result, with, mode)?;
        let ys = match (&self.alternating, &self.input, own) {
            (Some(alternating), Some(input), Some(own)) => {
                alternating.end(&mut between.streams, &ys, mode, |xs| input.forward(xs, own, mode))?;
                ys
            }
            (None, Some(input), Some(own)) => (&ys + input.forward(&ys, own, mode)?)?,
            _ => ys,
        };
        match &self.scale_after {
            Some(scale) => Ok(ys.broadcast_mul(scale)?),
            None => Ok(ys),
        }
    }
}
