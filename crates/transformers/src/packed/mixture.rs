//! Packed mixtures of experts.

use sporran_kernels::Rows;

use super::layers::{Dense, Linear, Machine};
use crate::architectures::llama::Experts;

/// The feed-forward part of a decoder's layer.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a layer has one")]
pub(super) enum Part {
    /// Every token reads it.
    Dense(Dense),
    Experts(Mixture),
}

impl Part {
    /// Adds the part of the rows of `input` to those of `xs`; `inner` is overwritten.
    pub(super) fn add(&self, machine: &mut Machine, input: &Rows, inner: &mut Rows, xs: &mut Rows) {
        match self {
            Self::Dense(part) => part.add(machine, Some(input), inner, xs),
            Self::Experts(mixture) => mixture.add(machine, input, inner, xs),
        }
    }
}

/// Experts, of which each token is read by a few.
#[derive(Debug)]
pub(super) struct Mixture {
    pub(super) sizes: Experts,
    /// Scores experts.
    pub(super) router: Linear,
    /// What is added to the weights of experts where they are chosen; empty where nothing is.
    pub(super) corrections: Vec<f32>,
    /// The factors of the weights of experts afterwards; empty where there are none.
    pub(super) factors: Vec<f32>,
    pub(super) experts: Vec<Dense>,
    /// The part that every token reads, and the layer that weighs it.
    pub(super) shared: Option<(Dense, Option<Linear>)>,
}

impl Mixture {
    fn add(&self, machine: &mut Machine, input: &Rows, inner: &mut Rows, xs: &mut Rows) {
        let scores = self.router.values(machine, input);
        self.add_scored(machine, &scores, input, inner, xs);
    }

    /// The same, where the router gives these scores, token after token.
    pub(super) fn add_scored(
        &self,
        machine: &mut Machine,
        scores: &[f32],
        input: &Rows,
        inner: &mut Rows,
        xs: &mut Rows,
    ) {
        // For each expert, its tokens and what its results of them weigh.
        let mut tokens: Vec<Vec<(usize, f32)>> = vec![Vec::new(); self.sizes.count];
        for (token, scores) in scores.chunks_exact(self.sizes.count).enumerate() {
            for (expert, weight) in self.sizes.weigh(scores, &self.corrections) {
                tokens[expert].push((token, weight * self.factors.get(expert).unwrap_or(&1.0)));
            }
        }
        for (expert, tokens) in self.experts.iter().zip(&tokens) {
            if tokens.is_empty() {
                continue;
            }
            let places: Vec<usize> = tokens.iter().map(|(token, _)| *token).collect();
            let picked = input.pick(&places, input.width());
            add_weighed(machine, expert, &picked, inner, tokens, xs);
        }
        match &self.shared {
            Some((part, Some(gate))) => {
                let weights = gate.values(machine, input).into_iter().map(sigmoid);
                let tokens: Vec<(usize, f32)> = weights.enumerate().collect();
                add_weighed(machine, part, input, inner, &tokens, xs);
            }
            Some((part, None)) => part.add(machine, Some(input), inner, xs),
            None => {}
        }
    }
}

/// Adds the part of the rows of `input`, weighed, to rows of `xs`: `places` has a row and a weight for each.
fn add_weighed(
    machine: &mut Machine,
    part: &Dense,
    input: &Rows,
    inner: &mut Rows,
    places: &[(usize, f32)],
    xs: &mut Rows,
) {
    let mut result = Rows::new(input.count(), xs.width());
    part.add(machine, Some(input), inner, &mut result);
    for (at, (place, weight)) in places.iter().enumerate() {
        let values = xs.row_mut(*place).iter_mut().zip(result.row(at));
        values.for_each(|(value, added)| *value += weight * added);
    }
}

fn sigmoid(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}
