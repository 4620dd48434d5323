//! The activations of a batch, in memory that the next batch reuses: fresh memory is costly, since the system clears it
//! page by page.

use super::embeddings::Token;

/// Values that are made long enough when a batch needs them.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<f32>);

impl Buffer {
    /// The first `count` values. Their content is unspecified.
    pub(super) fn fit(&mut self, count: usize) -> &mut [f32] {
        if self.0.len() < count {
            // The old values are not needed, so they are not copied.
            self.0 = Vec::new();
            self.0.resize(count, 0.0);
        }
        &mut self.0[..count]
    }

    /// The first `count` values, which a call of `fit` has made.
    pub(super) fn first(&self, count: usize) -> &[f32] {
        &self.0[..count]
    }
}

/// Normalised states before scale and shift, and one over the deviation of each row.
#[derive(Debug, Default)]
pub(super) struct Normed {
    pub(super) values: Buffer,
    pub(super) deviations: Buffer,
}

/// The activations of a layer for its gradient.
#[derive(Debug, Default)]
pub(super) struct Activations {
    /// Queries, keys and values of each token.
    pub(super) projected: Buffer,
    /// The output of attention.
    pub(super) mixed: Buffer,
    /// For each sequence, head and query: the logarithm of the sum of the scores' exponentials.
    pub(super) sums: Buffer,
    pub(super) attention: Normed,
    /// The input of the activation.
    pub(super) inner: Buffer,
    pub(super) feed_forward: Normed,
}

/// A batch's states, the activations of its layers, and scratch buffers.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The number of tokens of each sequence.
    pub(super) lengths: Vec<usize>,
    pub(super) tokens: usize,
    /// Which rows of the tables each token is made of.
    pub(super) rows: Vec<Token>,
    /// The states, and on the way back the gradient of the states.
    pub(super) states: Buffer,
    pub(super) embedded: Normed,
    pub(super) layers: Vec<Activations>,
    /// As wide as the states.
    pub(super) narrow: [Buffer; 2],
    /// As wide as the inner part of the feed-forward part, or as queries, keys and values.
    pub(super) wide: Buffer,
    /// Sums over the tokens of each portion.
    pub(super) partial: Buffer,
}

impl Workspace {
    /// Begins a batch of sequences of these lengths in `layers` layers.
    pub(super) fn open(&mut self, lengths: impl Iterator<Item = usize>, layers: usize) {
        self.lengths.clear();
        self.lengths.extend(lengths);
        self.tokens = self.lengths.iter().sum();
        if self.layers.len() < layers {
            self.layers.resize_with(layers, Activations::default);
        }
    }

    /// The number of tokens of each sequence.
    pub(crate) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// The states of all tokens, or their gradients.
    pub(crate) fn states(&mut self, width: usize) -> &mut [f32] {
        self.states.fit(self.tokens * width)
    }
}
