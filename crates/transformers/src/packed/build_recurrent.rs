//! Packs the tensors of recurrent layers of decoders.

use sporran_checkpoint::Result;
use sporran_kernels::{Norm, Precision};

use super::{
    build_causal::Source,
    delta::Delta,
    layers::Linear,
    packer::named,
    recurrence::{GatedConvolution, Recurrence},
    short_convolution::ShortConvolution,
    state_space::StateSpace,
};
use crate::architectures::llama::{
    self, CONVOLUTION, ConvolutionSizes, DELTA, DeltaSizes, STATE_SPACE, StateSpaceSizes,
};

impl Source<'_, '_> {
    /// The recurrence of the layer under `at`, and its output projection.
    pub(super) fn recurrence(
        &mut self,
        recurrence: llama::Recurrence,
        at: &str,
    ) -> Result<(Recurrence, Linear)> {
        Ok(match recurrence {
            llama::Recurrence::Delta(sizes) => {
                let delta = Recurrence::Delta(Box::new(self.delta(sizes, at)?));
                (delta, self.packer.linear(&named(at, &[DELTA.output]), sizes.values(), false)?)
            }
            llama::Recurrence::StateSpace(sizes) => {
                let space = Recurrence::StateSpace(Box::new(self.state_space(sizes, at)?));
                let name = named(at, &[STATE_SPACE.output]);
                (space, self.packer.linear(&name, sizes.inner(), sizes.output_has_bias)?)
            }
            llama::Recurrence::Convolution(ConvolutionSizes { has_bias, .. }) => {
                let convolution = Recurrence::Convolution(self.convolution(has_bias, at)?);
                let name = named(at, &[CONVOLUTION.output]);
                (convolution, self.packer.linear(&name, self.config.hidden_size, has_bias)?)
            }
        })
    }

    /// The delta rule of the layer under `at`.
    fn delta(&mut self, sizes: DeltaSizes, at: &str) -> Result<Delta> {
        let (width, eps) = (self.config.hidden_size, self.config.norm_eps());
        let packer = &mut self.packer;
        let [places, gates, rates] = sizes.places();
        let kept = packer.precision;
        let [inputs, gate] = match sizes.is_by_head {
            true => {
                let parts = [(&places[..], kept), (&gates, kept)];
                packer.parts(&format!("{at}.{}", DELTA.inputs_by_head), width, parts, false)?
            }
            false => [
                packer.linear(&named(at, &[DELTA.inputs]), width, false)?,
                packer.linear(&named(at, &[DELTA.gate]), width, false)?,
            ],
        };
        // Small differences of rates grow with the length of a sequence: they are not rounded.
        let rates = match sizes.is_by_head {
            true => {
                let name = format!("{at}.{}", DELTA.rates_by_head);
                let [rates] = packer.parts(&name, width, [(&rates[..], Precision::F32)], false)?;
                rates
            }
            false => {
                packer.precision = Precision::F32;
                let rates = packer.linear(&named(at, &DELTA.rates), width, false)?;
                packer.precision = kept;
                rates
            }
        };
        let convolution = packer.values(&format!("{at}.{}", DELTA.convolution))?;
        let decay = packer.values(&format!("{at}.{}", DELTA.decay))?;
        Ok(Delta {
            sizes,
            inputs,
            gate,
            rates,
            convolution: ShortConvolution::new(&convolution, None, sizes.channels()),
            activation: self.config.activation()?.into(),
            decay: decay.into_iter().map(f32::exp).collect(),
            bias: self.packer.values(&format!("{at}.{}", DELTA.bias))?,
            norm: self.packer.norm(&format!("{at}.{}", DELTA.norm), false, eps)?,
        })
    }

    /// The state space of the layer under `at`.
    fn state_space(&mut self, sizes: StateSpaceSizes, at: &str) -> Result<StateSpace> {
        let (width, eps) = (self.config.hidden_size, self.config.norm_eps() as f32);
        let packer = &mut self.packer;
        let kept = packer.precision;
        let [gates, inputs, steps] = sizes.places().map(|place| [place]);
        // Small differences of steps grow with the length of a sequence: they are not rounded.
        let parts = [(&gates[..], kept), (&inputs, kept), (&steps, Precision::F32)];
        let name = format!("{at}.{}", STATE_SPACE.inputs);
        let [gate, inputs, steps] = packer.parts(&name, width, parts, sizes.has_bias)?;
        let name = format!("{at}.{}", STATE_SPACE.convolution);
        let weights = packer.values(&format!("{name}.weight"))?;
        let bias = sizes.convolution_has_bias.then(|| packer.values(&format!("{name}.bias"))).transpose()?;
        let mut of = |name: &str| packer.values(&format!("{at}.{name}"));
        let weights: Vec<f32> = {
            // A factor of a channel is one of its weights.
            let factors = sizes.channel_factors().into_iter().flat_map(|factor| vec![factor; sizes.kernel]);
            weights.iter().zip(factors).map(|(weight, factor)| weight * factor).collect()
        };
        let norms = sizes.norm.map(|_| of(STATE_SPACE.norm)).transpose()?.unwrap_or_default();
        let norm = |weight: &[f32]| Norm { weight: weight.into(), bias: None, eps };
        Ok(StateSpace {
            sizes,
            inputs,
            gate,
            steps,
            convolution: ShortConvolution::new(&weights, bias, sizes.channels()),
            activation: self.config.activation()?.into(),
            decay: of(STATE_SPACE.decay)?.into_iter().map(f32::exp).collect(),
            bias: of(STATE_SPACE.bias)?,
            skip: of(STATE_SPACE.skip)?,
            norms: norms.chunks_exact(sizes.inner() / sizes.groups).map(norm).collect(),
        })
    }

    /// The convolution of the layer under `at`.
    fn convolution(&mut self, has_bias: bool, at: &str) -> Result<GatedConvolution> {
        let width = self.config.hidden_size;
        let inputs = self.packer.linear(&named(at, &[CONVOLUTION.inputs]), width, has_bias)?;
        let name = format!("{at}.{}", CONVOLUTION.convolution);
        let weights = self.packer.values(&format!("{name}.weight"))?;
        let bias = has_bias.then(|| self.packer.values(&format!("{name}.bias"))).transpose()?;
        Ok(GatedConvolution { inputs, convolution: ShortConvolution::new(&weights, bias, width) })
    }
}
