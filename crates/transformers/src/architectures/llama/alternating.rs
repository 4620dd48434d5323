//! Streams of states of which layers read one (Baykal et al. 2023, "alternating updates"), and learned parts of residuals (Menghani
//! et al. 2025, "LAuReL"), over candle.

use candle_core::{D, Tensor};
use candle_nn::{Init, VarBuilder};
use sporran_checkpoint::{Error, Result};

use super::{
    config::LlamaConfig, feed_forward::linear, gemma3n::StreamSizes, layer::scaled, names::ALTERNATING,
    norm::Norm,
};
use crate::{layers::Linear, mode::Mode};

/// The projections between embeddings and streams.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    /// From the embeddings to each stream but the first, and from each of these to what the head reads.
    projections: [Vec<Linear>; 2],
}

/// The mean square of each state (.., 1).
fn power(xs: &Tensor) -> Result<Tensor> {
    Ok(xs.sqr()?.mean_keepdim(D::Minus1)?)
}

/// States `xs` (r, t, d) with the sizes (r, t, 1) of others.
fn resized(xs: &Tensor, sizes: &Tensor) -> Result<Tensor> {
    let own = power(xs)?.maximum(1e-5)?.sqrt()?;
    Ok(xs.broadcast_mul(sizes)?.broadcast_div(&own)?)
}

impl Streams {
    /// Those of a model whose body is under `vb`.
    pub(super) fn new(config: &LlamaConfig, sizes: StreamSizes, vb: &VarBuilder) -> Result<Self> {
        let width = config.hidden_size;
        let [inner, outer] = ALTERNATING.projections.map(|name| {
            let one = |at: usize| linear(config, (width, width), false, &vb.pp(name).pp(at));
            (0..sizes.count - 1).map(one).collect::<Result<Vec<_>>>()
        });
        Ok(Self { projections: [inner?, outer?] })
    }

    /// The streams of the embeddings `xs` (r, t, d).
    pub(super) fn begin(&self, xs: &Tensor) -> Result<Vec<Tensor>> {
        let sizes = power(xs)?.sqrt()?;
        let mut all = vec![xs.clone()];
        for layer in &self.projections[0] {
            all.push(resized(&layer.forward(xs)?, &sizes)?);
        }
        Ok(all)
    }

    /// What the head reads of streams.
    pub(super) fn end(&self, streams: &[Tensor]) -> Result<Tensor> {
        let Some((first, others)) = streams.split_first() else {
            return Err(Error::Batch { expected: "streams of states".into(), found: "none".into() });
        };
        let sizes = power(first)?.sqrt()?;
        let mut sum = first.clone();
        for (layer, stream) in self.projections[1].iter().zip(others) {
            sum = (sum + resized(&layer.forward(stream)?, &sizes)?)?;
        }
        scaled(sum, 1.0 / streams.len() as f64)
    }
}

/// What a layer does with streams.
#[derive(Debug, Clone)]
pub(super) struct Alternating {
    sizes: StreamSizes,
    router_norm: Norm,
    router: Linear,
    /// One over the width of the states.
    router_scale: f64,
    before: Linear,
    after: Linear,
    /// (d)
    scale: Tensor,
    residual: [Linear; 2],
    residual_norm: Norm,
}

impl Alternating {
    /// That of a layer whose tensors are under `vb`.
    pub(super) fn new(config: &LlamaConfig, sizes: StreamSizes, vb: &VarBuilder) -> Result<Self> {
        let (width, count, rank) = (config.hidden_size, sizes.count, sizes.rank);
        let layer = |inputs: usize, outputs: usize, name: &str| {
            linear(config, (inputs, outputs), false, &vb.pp(name))
        };
        let [left, right] = ALTERNATING.residual;
        Ok(Self {
            sizes,
            router_norm: Norm::new(config, width, &vb.pp(ALTERNATING.router_norm))?,
            router: layer(width, count, ALTERNATING.router)?,
            router_scale: 1.0 / width as f64,
            before: layer(count, count * count, ALTERNATING.before)?,
            after: layer(count, count, ALTERNATING.after)?,
            scale: vb.get_with_hints(width, ALTERNATING.scale, Init::Const(0.0))?,
            residual: [layer(width, rank, left)?, layer(rank, width, right)?],
            residual_norm: Norm::new(config, width, &vb.pp(ALTERNATING.residual_norm))?,
        })
    }

    /// What coefficients are made of (r, t, streams), from the states `xs` (r, t, d).
    fn routed(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let normed = scaled(self.router_norm.forward(xs, mode)?, self.router_scale)?;
        Ok(self.router.forward(&normed)?.tanh()?)
    }

    /// Makes streams those before the layer, and returns the one that it reads.
    pub(super) fn begin(&self, streams: &mut Vec<Tensor>, mode: &Mode) -> Result<Tensor> {
        let routed = self.routed(&streams[self.sizes.active], mode)?;
        let coefficients = self.before.forward(&routed)?;
        let mut all = Vec::with_capacity(streams.len());
        for (to, stream) in streams.iter().enumerate() {
            let mut sum = stream.clone();
            for (from, other) in streams.iter().enumerate() {
                let own = coefficients.narrow(2, to * streams.len() + from, 1)?;
                sum = (sum + other.broadcast_mul(&own)?)?;
            }
            all.push(sum);
        }
        *streams = all;
        Ok(streams[self.sizes.active].clone())
    }

    /// What the normalised states `xs` that a layer reads add to those after attention.
    pub(super) fn residual(&self, xs: &Tensor, mode: &Mode) -> Result<Tensor> {
        let [left, right] = &self.residual;
        let learned = right.forward(&left.forward(xs)?)?;
        Ok((xs + self.residual_norm.forward(&learned, mode)?)?)
    }

    /// Makes streams those after the layer, which gives the states `xs`. `add` gives what the layer's embeddings make of a stream,
    /// which is added to all but the first.
    pub(super) fn end(
        &self,
        streams: &mut [Tensor],
        xs: &Tensor,
        mode: &Mode,
        add: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<()> {
        let coefficients = (self.after.forward(&self.routed(xs, mode)?)? + 1.0)?;
        let change = (xs - &streams[self.sizes.active])?;
        for (at, stream) in streams.iter_mut().enumerate() {
            *stream = (&*stream + change.broadcast_mul(&coefficients.narrow(2, at, 1)?)?)?;
        }
        let active = &streams[self.sizes.active];
        let added = match self.sizes.is_scaled {
            true => add(&active.broadcast_mul(&self.scale)?)?,
            false => add(active)?,
        };
        for stream in &mut streams[1..] {
            *stream = (&*stream + &added)?;
        }
        Ok(())
    }
}
