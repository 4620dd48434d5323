//! FNet (Lee-Thorp et al. 2021): in place of attention, the real part of the Fourier transform of a whole input.

use std::f64::consts::TAU;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use sporran_checkpoint::Result;

use super::{config::BertConfig, convbert::summed, layered::Layers};
use crate::{
    batch::Batch,
    layers::{Activation, Embedding, LayerNorm, Linear},
    mode::Mode,
    seq2seq::too_long,
};

/// The cosines and sines of a transform, each (b, n, n) or (1, n, n).
struct Waves {
    cosines: Tensor,
    sines: Tensor,
}

impl Waves {
    /// Those of sequences of these lengths, with zeros up to `most`.
    fn new(lengths: &[usize], most: usize, dtype: DType, device: &Device) -> Result<Self> {
        let mut values = [vec![0f32; lengths.len() * most * most], vec![0f32; lengths.len() * most * most]];
        for (row, length) in lengths.iter().enumerate() {
            for at in 0..*length {
                for other in 0..*length {
                    let angle = TAU * (at * other % length) as f64 / *length as f64;
                    let place = (row * most + at) * most + other;
                    (values[0][place], values[1][place]) = (angle.cos() as f32, angle.sin() as f32);
                }
            }
        }
        let [cosines, sines] = values
            .map(|values| Tensor::from_vec(values, (lengths.len(), most, most), device)?.to_dtype(dtype));
        Ok(Self { cosines: cosines?, sines: sines? })
    }
}

/// The real part of the transform of states (b, s, d) over their positions and their values.
fn transformed(xs: &Tensor, positions: &Waves, values: &Waves) -> Result<Tensor> {
    let over = |waves: &Tensor, values: &Tensor| -> Result<Tensor> {
        Ok(waves.broadcast_matmul(&xs.broadcast_matmul(values)?)?)
    };
    Ok((over(&positions.cosines, &values.cosines)? - over(&positions.sines, &values.sines)?)?)
}

#[derive(Debug, Clone)]
struct Layer {
    fourier_norm: LayerNorm,
    inner: Linear,
    outer: Linear,
    norm: LayerNorm,
    activation: Activation,
}

impl Layer {
    fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        let (width, inner, std) = (config.hidden_size, config.intermediate_size, config.initializer_range);
        let norm = |name: &str| LayerNorm::new(width, config.layer_norm_eps, &vb.pp(name));
        Ok(Self {
            fourier_norm: norm("fourier.output.LayerNorm")?,
            inner: Linear::with_bias(width, inner, std, &vb.pp("intermediate.dense"))?,
            outer: Linear::with_bias(inner, width, std, &vb.pp("output.dense"))?,
            norm: norm("output.LayerNorm")?,
            activation: config.activation()?,
        })
    }

    fn forward(&self, xs: &Tensor, positions: &Waves, values: &Waves) -> Result<Tensor> {
        let mixed = (transformed(xs, positions, values)? + xs)?;
        let xs = self.fourier_norm.forward(&mixed, &Mode::Inference)?;
        let inner = self.activation.forward(&self.inner.forward(&xs)?)?;
        self.norm.forward(&(self.outer.forward(&inner)? + xs)?, &Mode::Inference)
    }
}

/// The body of FNet, for inference. Each input is transformed at its own length: padding is no part of it.
#[derive(Debug, Clone)]
pub(crate) struct Fnet {
    words: Embedding,
    positions: Embedding,
    types: Embedding,
    embedding_norm: LayerNorm,
    projection: Linear,
    layers: Vec<Layer>,
    config: BertConfig,
    device: Device,
}

impl Fnet {
    /// Takes the body's weights from `vb`, which is that of the whole model.
    ///
    /// # Errors
    /// [`Error::Config`](sporran_checkpoint::Error::Config) where the config names something unsupported, and a tensor error
    /// where `vb` lacks a tensor or has another shape.
    pub(crate) fn new(config: &BertConfig, vb: &VarBuilder) -> Result<Self> {
        config.check()?;
        let vb = match config.prefix() {
            "" => vb.clone(),
            prefix => vb.pp(prefix),
        };
        let (width, std) = (config.hidden_size, config.initializer_range);
        let at = vb.pp("embeddings");
        let table = |rows, name: &str| Embedding::new(rows, width, std, &at.pp(name));
        let layer = |at: usize| Layer::new(config, &vb.pp("encoder.layer").pp(at));
        Ok(Self {
            words: table(config.vocab_size, "word_embeddings")?,
            positions: table(config.max_position_embeddings, "position_embeddings")?,
            types: table(config.type_vocab_size, "token_type_embeddings")?,
            embedding_norm: LayerNorm::new(width, config.layer_norm_eps, &at.pp("LayerNorm"))?,
            projection: Linear::with_bias(width, width, std, &at.pp("projection"))?,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_>>()?,
            config: config.clone(),
            device: vb.device().clone(),
        })
    }
}

/// The tokens of a row before its padding.
fn seen(mask: &[f32]) -> usize {
    mask.iter().rposition(|seen| *seen != 0.0).map_or(0, |last| last + 1)
}

impl Layers for Fnet {
    fn config(&self) -> &BertConfig {
        &self.config
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn table(&self) -> &Tensor {
        self.words.table()
    }

    fn each_layer(&self, input: &Batch, see: &mut dyn FnMut(&Tensor)) -> Result<Tensor> {
        let (length, most) = (input.length(), self.config.max_input_length());
        if length > most {
            return Err(too_long("input", most, length));
        }
        let xs = summed(&self.words, (&self.positions, 0), &self.types, input)?;
        let mut xs = self.projection.forward(&self.embedding_norm.forward(&xs, &Mode::Inference)?)?;
        see(&xs);
        let lengths: Vec<usize> = input.mask.to_vec2::<f32>()?.iter().map(|row| seen(row)).collect();
        let distinct = if lengths.iter().all(|own| *own == lengths[0]) { &lengths[..1] } else { &lengths };
        let positions = Waves::new(distinct, length, xs.dtype(), &self.device)?;
        let width = self.config.hidden_size;
        let values = Waves::new(&[width], width, xs.dtype(), &self.device)?;
        for layer in &self.layers {
            xs = layer.forward(&xs, &positions, &values)?.detach();
            see(&xs);
        }
        Ok(xs)
    }
}
