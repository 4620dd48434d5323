//! One layer of a packed body: self-attention and the feed-forward part, each with a residual connection and a norm.

use rayon::prelude::*;
use sporran_checkpoint::Result;
use sporran_kernels::{Activation, Dropout, Isa, ResidualNorm, add_columns, multiply};
use sporran_transformers::{BertConfig, BertFamily, BertNames};

use super::{
    PORTION, Seeds,
    attention::Attention,
    weights::{Finder, Linear, Weight, add},
    workspace::{Buffer, Normed, Workspace},
};
use crate::gradients::Gradients;

/// The weights of a layer.
#[derive(Debug)]
pub(super) struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    attention_norm: Norm,
    inner: Linear,
    outer: Linear,
    feed_forward_norm: Norm,
    activation: Activation,
    heads: usize,
    weights_dropout: f64,
    attention_dropout: f64,
    dropout: f64,
    /// The number of the layer, which seeds its dropout.
    number: u64,
}

/// Scale and shift of a normalisation.
#[derive(Debug)]
pub(super) struct Norm {
    scale: Weight,
    shift: Weight,
    eps: f32,
}

impl Norm {
    pub(super) fn new(name: &str, eps: f64, finder: &mut Finder) -> Result<Self> {
        Ok(Self {
            scale: finder.weight(&format!("{name}.weight"))?,
            shift: finder.weight(&format!("{name}.bias"))?,
            eps: eps as f32,
        })
    }

    /// Normalises `dropout(xs + bias)`, with `adds` plus `states`, into `states`. `kept` holds `xs`, and
    /// afterwards the activations for the backward pass.
    pub(super) fn forward(
        &self,
        bias: Option<&Weight>,
        dropout: Dropout,
        tokens: usize,
        states: &mut [f32],
        adds: bool,
        kept: &mut Normed,
    ) -> Result<()> {
        let bias = bias.map(Weight::read).transpose()?;
        let (scale, shift) = (self.scale.read()?, self.shift.read()?);
        let norm =
            ResidualNorm { bias: bias.as_deref(), dropout, scale: &scale, shift: &shift, eps: self.eps };
        let (isa, width) = (Isa::detected(), scale.len());
        let (values, deviations) = (kept.values.fit(tokens * width), kept.deviations.fit(tokens));
        let size = PORTION * width;
        values
            .par_chunks_mut(size)
            .zip(states.par_chunks_mut(size))
            .zip(deviations.par_chunks_mut(PORTION))
            .enumerate()
            .for_each(|(at, ((values, states), deviations))| {
                norm.forward(isa, at * PORTION, values, adds, states, deviations);
            });
        Ok(())
    }

    /// The result of `forward` once more.
    pub(super) fn again(&self, tokens: usize, kept: &Normed, states: &mut [f32]) -> Result<()> {
        let (scale, shift) = (self.scale.read()?, self.shift.read()?);
        let dropout = Dropout::new(0.0, 0);
        let norm = ResidualNorm { bias: None, dropout, scale: &scale, shift: &shift, eps: self.eps };
        let (isa, size) = (Isa::detected(), PORTION * scale.len());
        let values = kept.values.first(tokens * scale.len());
        states
            .par_chunks_mut(size)
            .zip(values.par_chunks(size))
            .for_each(|(states, values)| norm.again(isa, values, states));
        Ok(())
    }

    /// From the gradient of the result, in `gradient`, to the gradient of the sum, in place, and to that of the sublayer's
    /// output, in `to_xs`. Adds the gradients of the weights.
    #[expect(
        clippy::too_many_arguments,
        reason = "the operands of one formula, which come from different sources"
    )]
    pub(super) fn backward(
        &self,
        bias: Option<&Weight>,
        dropout: Dropout,
        kept: &Normed,
        tokens: usize,
        gradient: &mut [f32],
        to_xs: &mut [f32],
        partial: &mut Buffer,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let (scale, shift) = (self.scale.read()?, self.shift.read()?);
        let norm = ResidualNorm { bias: None, dropout, scale: &scale, shift: &shift, eps: self.eps };
        let (isa, width) = (Isa::detected(), scale.len());
        let size = PORTION * width;
        let partial = partial.fit(tokens.div_ceil(PORTION) * 3 * width);
        gradient
            .par_chunks_mut(size)
            .zip(to_xs.par_chunks_mut(size))
            .zip(kept.values.first(tokens * width).par_chunks(size))
            .zip(kept.deviations.first(tokens).par_chunks(PORTION))
            .zip(partial.par_chunks_mut(3 * width))
            .enumerate()
            .for_each(|(at, ((((gradient, to_xs), values), deviations), sums))| {
                sums.fill(0.0);
                norm.backward(isa, at * PORTION, values, deviations, gradient, to_xs, sums);
            });
        for sums in partial.chunks_exact(3 * width) {
            add(gradients, &self.scale, &sums[..width]);
            add(gradients, &self.shift, &sums[width..2 * width]);
            if let Some(bias) = bias {
                add(gradients, bias, &sums[2 * width..]);
            }
        }
        Ok(())
    }
}

/// Adds a bias to every row.
fn add_bias(values: &mut [f32], width: usize, biases: [&[f32]; 3]) {
    values.par_chunks_mut(PORTION * width).for_each(|rows| {
        for row in rows.chunks_exact_mut(width) {
            let mut at = 0;
            for bias in biases {
                let columns = &mut row[at..at + bias.len()];
                columns.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
                at += bias.len();
            }
        }
    });
}

/// The sums of the columns of `values`, portion by portion.
fn column_sums<'a>(values: &[f32], width: usize, partial: &'a mut Buffer) -> impl Iterator<Item = &'a [f32]> {
    let isa = Isa::detected();
    let rows = values.len() / width;
    let partial = partial.fit(rows.div_ceil(PORTION) * width);
    partial.par_chunks_mut(width).zip(values.par_chunks(PORTION * width)).for_each(|(sums, rows)| {
        sums.fill(0.0);
        add_columns(isa, rows, sums);
    });
    partial.chunks_exact(width)
}

impl Layer {
    pub(super) fn new(
        config: &BertConfig,
        names: &BertNames,
        prefix: &str,
        number: u64,
        finder: &mut Finder,
    ) -> Result<Self> {
        let eps = config.layer_norm_eps;
        let at = |name: &str| format!("{prefix}.{name}");
        Ok(Self {
            query: finder.linear(&at(names.query))?,
            key: finder.linear(&at(names.key))?,
            value: finder.linear(&at(names.value))?,
            output: finder.linear(&at(names.output))?,
            attention_norm: Norm::new(&at(names.attention_norm), eps, finder)?,
            inner: finder.linear(&at(names.inner))?,
            outer: finder.linear(&at(names.outer))?,
            feed_forward_norm: Norm::new(&at(names.feed_forward_norm), eps, finder)?,
            activation: config.activation()?.into(),
            heads: config.num_attention_heads,
            weights_dropout: config.attention_probs_dropout_prob,
            // DistilBERT has no dropout on the output of attention.
            attention_dropout: match config.family {
                BertFamily::DistilBert => 0.0,
                _ => config.hidden_dropout_prob,
            },
            dropout: config.hidden_dropout_prob,
            number,
        })
    }

    /// The dropout of one of the layer's three uses; number 0 is that of the embeddings.
    fn drops(&self, seeds: Seeds, rate: f64, which: u64) -> Dropout {
        seeds.dropout(rate, 1 + 3 * self.number + which)
    }

    fn attention<'a>(&self, seeds: Seeds, lengths: &'a [usize]) -> Attention<'a> {
        let width = self.query.outputs / self.heads;
        Attention {
            lengths,
            heads: self.heads,
            width,
            scale: (width as f32).powf(-0.5),
            dropout: self.drops(seeds, self.weights_dropout, 0),
        }
    }

    pub(super) fn forward(&self, seeds: Seeds, kept: usize, workspace: &mut Workspace) -> Result<()> {
        let Workspace { lengths, tokens, states, layers, wide, .. } = workspace;
        let (tokens, kept, width) = (*tokens, &mut layers[kept], self.query.outputs);
        let states = states.fit(tokens * width);
        let projected = kept.projected.fit(tokens * 3 * width);
        for (at, linear) in [&self.query, &self.key, &self.value].into_iter().enumerate() {
            linear.forward(states, projected, at * width, 3 * width)?;
        }
        add_bias(
            projected,
            3 * width,
            [&self.query.bias.read()?, &self.key.bias.read()?, &self.value.bias.read()?],
        );
        let mixed = kept.mixed.fit(tokens * width);
        self.attention(seeds, lengths).forward(projected, mixed, kept.sums.fit(tokens * self.heads));
        self.output.forward(mixed, kept.attention.values.fit(tokens * width), 0, width)?;
        let dropout = self.drops(seeds, self.attention_dropout, 1);
        let bias = Some(&self.output.bias);
        self.attention_norm.forward(bias, dropout, tokens, states, true, &mut kept.attention)?;

        let depth = self.inner.outputs;
        let inner = kept.inner.fit(tokens * depth);
        self.inner.forward(states, inner, 0, depth)?;
        let active = wide.fit(tokens * depth);
        let (isa, bias, size) = (Isa::detected(), self.inner.bias.read()?, PORTION * depth);
        inner
            .par_chunks_mut(size)
            .zip(active.par_chunks_mut(size))
            .for_each(|(inner, active)| self.activation.biased(isa, &bias, inner, active));
        drop(bias);
        self.outer.forward(active, kept.feed_forward.values.fit(tokens * width), 0, width)?;
        let dropout = self.drops(seeds, self.dropout, 2);
        let bias = Some(&self.outer.bias);
        self.feed_forward_norm.forward(bias, dropout, tokens, states, true, &mut kept.feed_forward)
    }

    /// Recomputes the layer's output into the first narrow buffer.
    pub(super) fn states_again(&self, kept: usize, workspace: &mut Workspace) -> Result<()> {
        let Workspace { tokens, layers, narrow: [below, _], .. } = workspace;
        let below = below.fit(*tokens * self.query.outputs);
        self.feed_forward_norm.again(*tokens, &layers[kept].feed_forward, below)
    }

    /// The backward pass of the layer, whose input is in the first narrow buffer.
    pub(super) fn backward(
        &self,
        seeds: Seeds,
        kept: usize,
        workspace: &mut Workspace,
        gradients: &mut Gradients,
    ) -> Result<()> {
        let Workspace { lengths, tokens, states, layers, narrow: [below, other], wide, partial, .. } =
            workspace;
        let (tokens, kept, isa) = (*tokens, &mut layers[kept], Isa::detected());
        let (width, depth) = (self.query.outputs, self.inner.outputs);
        let (gradient, other) = (states.fit(tokens * width), other.fit(tokens * width));

        let dropout = self.drops(seeds, self.dropout, 2);
        let (norm, bias) = (&self.feed_forward_norm, Some(&self.outer.bias));
        norm.backward(bias, dropout, &kept.feed_forward, tokens, gradient, other, partial, gradients)?;
        let (inner, active) = (kept.inner.fit(tokens * depth), wide.fit(tokens * depth));
        let size = PORTION * depth;
        inner
            .par_chunks_mut(size)
            .zip(active.par_chunks_mut(size))
            .for_each(|(inner, active)| self.activation.differentiate(isa, inner, active));
        self.outer.weight_gradient(active, other, 0, width, gradients);
        self.outer.input_gradient(other, 0, width, active, false)?;
        active
            .par_chunks_mut(size)
            .zip(inner.par_chunks(size))
            .for_each(|(gradient, slopes)| multiply(isa, gradient, slopes));
        for sums in column_sums(active, depth, partial) {
            add(gradients, &self.inner.bias, sums);
        }
        self.attention_norm.again(tokens, &kept.attention, other)?;
        self.inner.weight_gradient(other, active, 0, depth, gradients);
        self.inner.input_gradient(active, 0, depth, gradient, true)?;

        let dropout = self.drops(seeds, self.attention_dropout, 1);
        let (norm, bias) = (&self.attention_norm, Some(&self.output.bias));
        norm.backward(bias, dropout, &kept.attention, tokens, gradient, other, partial, gradients)?;
        let mixed = kept.mixed.first(tokens * width);
        self.output.weight_gradient(mixed, other, 0, width, gradients);
        // The normalised states are not needed any more; the next gradient reuses their buffer.
        let to_mixed = kept.attention.values.fit(tokens * width);
        self.output.input_gradient(other, 0, width, to_mixed, false)?;
        let to_projected = wide.fit(tokens * 3 * width);
        let (projected, sums) =
            (kept.projected.first(tokens * 3 * width), kept.sums.first(tokens * self.heads));
        self.attention(seeds, lengths).backward(projected, mixed, sums, to_mixed, to_projected);
        let linears = [&self.query, &self.key, &self.value];
        for sums in column_sums(to_projected, 3 * width, partial) {
            for (linear, sums) in linears.iter().zip(sums.chunks_exact(width)) {
                add(gradients, &linear.bias, sums);
            }
        }
        let below = below.first(tokens * width);
        for (at, linear) in linears.into_iter().enumerate() {
            linear.weight_gradient(below, to_projected, at * width, 3 * width, gradients);
            linear.input_gradient(to_projected, at * width, 3 * width, gradient, true)?;
        }
        Ok(())
    }
}
