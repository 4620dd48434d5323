//! The parameters of a network.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::options::NetworkOptions;

/// A parameter.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) shape: [usize; 2],
    pub(super) values: Vec<f32>,
}

impl Tensor {
    /// Whether it holds values of each step.
    fn is_of_steps(&self) -> bool {
        self.name == "queries" || self.name.ends_with(".edges") || self.name.ends_with(".edge-bias")
    }
}

/// Offsets of a layer's tensors from its first.
pub(super) const EDGES: usize = 0;
pub(super) const EDGE_BIAS: usize = 1;
pub(super) const ROWS: usize = 2;
pub(super) const SUMS: usize = 3;
pub(super) const SCALE: usize = 4;
pub(super) const SHIFT: usize = 5;
pub(super) const BIAS: usize = 6;
const OF_LAYER: usize = 7;
/// Offsets of the tensors after the layers.
pub(super) const ANSWER_ROWS: usize = 0;
pub(super) const ANSWER_QUERY: usize = 1;
pub(super) const ANSWER_BIAS: usize = 2;
pub(super) const ANSWER_OUT: usize = 3;

/// The sizes that determine all shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) dim: usize,
    pub(super) layers: usize,
    /// Two for each relation.
    pub(super) steps: usize,
}

impl Sizes {
    pub(super) fn new(options: &NetworkOptions, relations: usize) -> Self {
        Self { dim: options.dim, layers: options.layers, steps: 2 * relations }
    }

    /// The size of the hidden layer that scores a node.
    pub(super) fn hidden(&self) -> usize {
        2 * self.dim
    }

    /// Name, shape and fan-in of every tensor; the fan-in of the queries is 0.
    fn tensors(&self) -> Vec<(String, [usize; 2], usize)> {
        let Self { dim, layers, steps } = *self;
        let hidden = self.hidden();
        let mut all = vec![("queries".to_owned(), [steps, dim], 0)];
        for layer in 0..layers {
            let named = |name: &str| format!("layers.{layer}.{name}");
            all.push((named("edges"), [dim, steps * dim], dim));
            all.push((named("edge-bias"), [steps, dim], dim));
            all.push((named("rows"), [dim, dim], 2 * dim));
            all.push((named("sums"), [dim, dim], 2 * dim));
            all.push((named("scale"), [1, dim], 2 * dim));
            all.push((named("shift"), [1, dim], 2 * dim));
            all.push((named("bias"), [1, dim], 2 * dim));
        }
        all.push(("answer.rows".into(), [dim, hidden], 2 * dim));
        all.push(("answer.query".into(), [dim, hidden], 2 * dim));
        all.push(("answer.bias".into(), [1, hidden], 2 * dim));
        all.push(("answer.out".into(), [hidden, 1], hidden));
        all
    }

    /// The offset of a layer's shared tensors in a row of their gradients, in the order of [`ROWS`] to
    /// [`BIAS`].
    pub(super) fn shared_of_layer(&self) -> usize {
        2 * self.dim * self.dim + 3 * self.dim
    }

    /// The number of values in the shared tensors, without queries and edges.
    pub(super) fn shared(&self) -> usize {
        self.layers * self.shared_of_layer() + (2 * self.dim + 2) * self.hidden()
    }
}

/// The parameters, in the order of [`Sizes::tensors`].
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    pub(super) sizes: Sizes,
    pub(super) tensors: Vec<Tensor>,
}

impl Parameters {
    /// Initial values. Queries are uniform with variance 1. Products and biases are uniform within 1 /
    /// sqrt(fan-in). Normalisations start as the identity.
    pub(super) fn new(sizes: Sizes, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        Self::of(sizes, |name, shape, incoming| {
            let count = shape[0] * shape[1];
            let bound = if incoming == 0 { 3f32.sqrt() } else { 1.0 / (incoming as f32).sqrt() };
            Ok::<_, std::convert::Infallible>(if name.ends_with(".scale") {
                vec![1.0; count]
            } else if name.ends_with(".shift") {
                vec![0.0; count]
            } else {
                (0..count).map(|_| rng.random_range(-bound..bound)).collect()
            })
        })
        .unwrap_or_else(|never| match never {})
    }

    /// Creates values by calling `of` with the name, shape and fan-in of each tensor.
    pub(super) fn of<E>(
        sizes: Sizes,
        mut of: impl FnMut(&str, [usize; 2], usize) -> Result<Vec<f32>, E>,
    ) -> Result<Self, E> {
        let tensors = sizes
            .tensors()
            .into_iter()
            .map(|(name, shape, incoming)| Ok(Tensor { values: of(&name, shape, incoming)?, name, shape }))
            .collect::<Result<_, E>>()?;
        Ok(Self { sizes, tensors })
    }

    /// Copies values from a network of the same size: relation steps by (own index, other index), and all
    /// shared tensors.
    pub(super) fn take_over(&mut self, other: &Self, steps: &[(usize, usize)]) {
        let dim = self.sizes.dim;
        for (own, other) in self.tensors.iter_mut().zip(&other.tensors) {
            if own.shape == other.shape && !own.is_of_steps() {
                own.values.copy_from_slice(&other.values);
                continue;
            }
            // Every row of the shape holds `dim` values of each step. Rows of steps are one such row each.
            let (width, other_width) = match own.shape[1] == dim {
                true => (own.values.len(), other.values.len()),
                false => (own.shape[1], other.shape[1]),
            };
            for (own, other) in own.values.chunks_exact_mut(width).zip(other.values.chunks_exact(other_width))
            {
                for &(to, from) in steps {
                    own[to * dim..][..dim].copy_from_slice(&other[from * dim..][..dim]);
                }
            }
        }
    }

    /// The index of a layer's tensor.
    pub(super) fn layer(layer: usize, which: usize) -> usize {
        1 + layer * OF_LAYER + which
    }

    /// The index of a tensor after the layers.
    pub(super) fn answer(&self, which: usize) -> usize {
        1 + self.sizes.layers * OF_LAYER + which
    }

    /// Whether [`Sizes::shared`] counts the tensor.
    pub(super) fn is_shared(&self, tensor: usize) -> bool {
        tensor >= self.answer(0) || (tensor > 0 && (tensor - 1) % OF_LAYER >= ROWS)
    }

    pub(super) fn of_layer(&self, layer: usize, which: usize) -> &[f32] {
        &self.tensors[Self::layer(layer, which)].values
    }

    pub(super) fn of_answer(&self, which: usize) -> &[f32] {
        &self.tensors[self.answer(which)].values
    }

    /// The same with shifts that keep each rectifier open or shut, so that finite differences cross no kink.
    #[cfg(test)]
    pub(super) fn without_kinks(mut self) -> Self {
        for tensor in &mut self.tensors {
            let far = match tensor.name.as_str() {
                "answer.bias" => 40.0,
                name if name.ends_with(".shift") => 8.0,
                _ => continue,
            };
            for (at, value) in tensor.values.iter_mut().enumerate() {
                *value = if at % 2 == 0 { far } else { -far };
            }
        }
        self
    }
}
