//! Batches of questions: prepared inputs, scores and gradients.

use std::sync::Mutex;

use rayon::prelude::*;
use sporran_kernels::{Adjacency, Isa, TrainingPrecision, add_columns, max, scaled_softmax};
use sporran_kilt::kb::EntityId;

use super::{
    parameters::{EDGE_BIAS, EDGES, Parameters, Sizes},
    pass::{Edge, Gradients, Inputs, Trace, backward, forward},
    paths::{Path, Search},
};
use crate::product::{View, shared_product};

/// A question: a node and a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) head: u32,
    pub(super) step: u32,
}

/// A training example: a question with its target answers.
#[derive(Clone, Debug)]
pub(super) struct Example<'a> {
    pub(super) question: Question,
    /// All known answers, targets included.
    pub(super) answers: &'a [EntityId],
    pub(super) targets: Vec<u32>,
    /// Edges to hide from the question, each in both directions.
    pub(super) omitted: Vec<Edge>,
}

/// A pool of unused traces.
#[derive(Default)]
pub(super) struct Traces(Mutex<Vec<Trace>>);

impl Traces {
    fn with<T>(&self, sizes: Sizes, nodes: usize, work: impl FnOnce(&mut Trace) -> T) -> T {
        let free = || self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let taken = free().pop();
        let mut trace = taken.unwrap_or_else(|| Trace::new(sizes, nodes));
        let made = work(&mut trace);
        free().push(trace);
        made
    }
}

/// Question rows and, for each layer, the edge rows of each question.
struct Prepared {
    queries: Vec<f32>,
    edges: Vec<Vec<f32>>,
}

impl Prepared {
    fn new(parameters: &Parameters, questions: impl Iterator<Item = Question>) -> Self {
        let Sizes { dim, layers, steps } = parameters.sizes;
        let table = &parameters.tensors[0].values;
        let queries: Vec<f32> =
            questions.flat_map(|question| &table[question.step as usize * dim..][..dim]).copied().collect();
        let count = queries.len() / dim;
        let edges = (0..layers)
            .map(|layer| {
                let mut rows = parameters.of_layer(layer, EDGE_BIAS).repeat(count);
                let weights = (parameters.of_layer(layer, EDGES), View::packed(dim, steps * dim));
                shared_product(
                    TrainingPrecision::F32,
                    &mut rows,
                    (&queries, View::packed(count, dim)),
                    weights,
                    true,
                );
                rows
            })
            .collect();
        Self { queries, edges }
    }

    fn inputs<'a>(&'a self, sizes: Sizes, at: usize, head: u32, omitted: &'a [Edge]) -> Inputs<'a> {
        let many = sizes.steps * sizes.dim;
        Inputs {
            head: head as usize,
            query: &self.queries[at * sizes.dim..][..sizes.dim],
            edges: self.edges.iter().map(|rows| &rows[at * many..][..many]).collect(),
            omitted,
        }
    }
}

/// Scores all nodes for each question, one row a question.
pub(super) fn score(
    parameters: &Parameters,
    graph: &Adjacency,
    traces: &Traces,
    questions: &[Question],
    scores: &mut [f32],
) {
    /// The number of questions whose edge rows are held at once.
    const HELD: usize = 32;
    let nodes = graph.nodes().max(1);
    for (questions, scores) in questions.chunks(HELD).zip(scores.chunks_mut(HELD * nodes)) {
        let prepared = Prepared::new(parameters, questions.iter().copied());
        scores.par_chunks_mut(nodes).zip(questions).enumerate().for_each(|(at, (scores, question))| {
            let inputs = prepared.inputs(parameters.sizes, at, question.head, &[]);
            traces.with(parameters.sizes, nodes, |trace| forward(parameters, graph, &inputs, trace, scores));
        });
    }
}

/// The paths with the largest weights for a node as the answer, best first, at most `most`.
pub(super) fn explain(
    parameters: &Parameters,
    graph: &Adjacency,
    traces: &Traces,
    question: Question,
    answer: u32,
    most: usize,
) -> Vec<Path> {
    let sizes = parameters.sizes;
    let nodes = graph.nodes();
    let prepared = Prepared::new(parameters, std::iter::once(question));
    let inputs = prepared.inputs(sizes, 0, question.head, &[]);
    let (mut query, mut shared) = (vec![0.0; sizes.dim], vec![0.0; sizes.shared()]);
    let mut edges = vec![vec![0.0; sizes.steps * sizes.dim]; sizes.layers];
    let edges = edges.iter_mut().map(Vec::as_mut_slice).collect();
    let mut out = Gradients { query: &mut query, edges, shared: &mut shared };
    let mut search = Search::new(graph, sizes.dim, answer, most);
    traces.with(sizes, nodes, |trace| {
        let mut scores = vec![0.0; nodes];
        forward(parameters, graph, &inputs, trace, &mut scores);
        // The gradient of the answer's log-probability among all nodes.
        scaled_softmax(Isa::detected(), &mut scores, -1.0);
        scores[answer as usize] += 1.0;
        backward(parameters, graph, &inputs, trace, &scores, &mut out, |messages| search.back(messages));
    });
    search.from(question.head)
}

/// Computes the mean loss over the targets of a batch, and the gradients of all tensors in order.
///
/// The loss of a target is the cross-entropy of a softmax over the target and all nodes that are not answers.
pub(super) fn learn(
    parameters: &Parameters,
    graph: &Adjacency,
    traces: &Traces,
    examples: &[Example<'_>],
) -> (f64, Vec<Vec<f32>>) {
    let sizes = parameters.sizes;
    let Sizes { dim, layers, steps } = sizes;
    let (count, nodes) = (examples.len(), graph.nodes());
    let targets: usize = examples.iter().map(|example| example.targets.len()).sum();
    let prepared = Prepared::new(parameters, examples.iter().map(|example| example.question));
    let mut queries = vec![0.0; count * dim];
    let mut edges = vec![vec![0.0; count * steps * dim]; layers];
    let mut shared = vec![0.0; count * sizes.shared()];
    let mut edges_by_example: Vec<Vec<&mut [f32]>> = (0..count).map(|_| Vec::with_capacity(layers)).collect();
    for rows in &mut edges {
        edges_by_example
            .iter_mut()
            .zip(rows.chunks_exact_mut(steps * dim))
            .for_each(|(edges, rows)| edges.push(rows));
    }
    let work = examples.par_iter().zip(edges_by_example).zip(queries.par_chunks_exact_mut(dim));
    let losses: Vec<f64> = work
        .zip(shared.par_chunks_exact_mut(sizes.shared()))
        .enumerate()
        .map(|(at, (((example, edges), query), shared))| {
            let inputs = prepared.inputs(sizes, at, example.question.head, &example.omitted);
            traces.with(sizes, nodes, |trace| {
                let mut scores = vec![0.0; nodes];
                forward(parameters, graph, &inputs, trace, &mut scores);
                let loss = differentiate(&mut scores, example, targets);
                let mut out = Gradients { query, edges, shared };
                backward(parameters, graph, &inputs, trace, &scores, &mut out, |_| {});
                loss
            })
        })
        .collect();
    let mut gradients: Vec<Vec<f32>> =
        parameters.tensors.iter().map(|tensor| vec![0.0; tensor.values.len()]).collect();
    let of_questions = View::packed(count, dim);
    for (layer, rows) in edges.iter().enumerate() {
        let of_edges = (rows.as_slice(), View::packed(count, steps * dim));
        let place = &mut gradients[Parameters::layer(layer, EDGES)];
        shared_product(
            TrainingPrecision::F32,
            place,
            (&prepared.queries, of_questions.transposed()),
            of_edges,
            false,
        );
        add_columns(Isa::detected(), rows, &mut gradients[Parameters::layer(layer, EDGE_BIAS)]);
        let weights = (parameters.of_layer(layer, EDGES), View::packed(dim, steps * dim).transposed());
        shared_product(TrainingPrecision::F32, &mut queries, of_edges, weights, true);
    }
    for (example, row) in examples.iter().zip(queries.chunks_exact(dim)) {
        let place = &mut gradients[0][example.question.step as usize * dim..][..dim];
        place.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    let mut sums = vec![0.0; sizes.shared()];
    add_columns(Isa::detected(), &shared, &mut sums);
    let mut rest = sums.as_slice();
    for (tensor, gradient) in gradients.iter_mut().enumerate() {
        if parameters.is_shared(tensor) {
            let (values, tail) = rest.split_at(gradient.len());
            gradient.copy_from_slice(values);
            rest = tail;
        }
    }
    (losses.iter().sum::<f64>() / targets as f64, gradients)
}

/// Replaces scores by the gradient of the example's part of the mean loss over `targets`. Returns the sum of
/// its losses.
fn differentiate(scores: &mut [f32], example: &Example<'_>, targets: usize) -> f64 {
    /// A score this far below the greatest has a zero exponential.
    const NOTHING: f32 = 1000.0;
    let isa = Isa::detected();
    let target_scores: Vec<f64> =
        example.targets.iter().map(|target| f64::from(scores[*target as usize])).collect();
    let least = max(isa, scores) - NOTHING;
    example.answers.iter().for_each(|answer| scores[answer.index()] = least);
    let others = scaled_softmax(isa, scores, 1.0);
    let share = 1.0 / targets as f64;
    let (mut loss, mut pulled) = (0.0, 0.0);
    example.answers.iter().for_each(|answer| scores[answer.index()] = 0.0);
    for (target, score) in example.targets.iter().zip(target_scores) {
        // The probability of all others, and ln(e^others + e^score) - score.
        let wrong = 1.0 / (1.0 + (score - others).exp());
        loss += if others > score {
            others - score + (score - others).exp().ln_1p()
        } else {
            (others - score).exp().ln_1p()
        };
        pulled += wrong * share;
        scores[*target as usize] = -(wrong * share) as f32;
    }
    let pulled = pulled as f32;
    let answers: Vec<f32> = example.targets.iter().map(|target| scores[*target as usize]).collect();
    scores.iter_mut().for_each(|score| *score *= pulled);
    example.targets.iter().zip(answers).for_each(|(target, pull)| scores[*target as usize] = pull);
    loss
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::options::NetworkOptions;

    #[test]
    fn gradients_of_a_batch_are_those_of_differences() {
        let triples = [(0, 0, 1), (0, 0, 2), (0, 1, 2), (2, 0, 1), (3, 1, 3), (1, 1, 4), (4, 0, 0)];
        let graph = Adjacency::new(6, 2, &triples);
        let sizes = Sizes::new(&NetworkOptions { layers: 2, ..NetworkOptions::default() }, 2);
        let parameters = Parameters::new(sizes, 3).without_kinks();
        let traces = Traces::default();
        let examples = [
            Example {
                question: Question { head: 0, step: 0 },
                answers: &[EntityId(1), EntityId(2)],
                targets: vec![2],
                omitted: vec![(0, 0, 2), (2, 1, 0)],
            },
            Example {
                question: Question { head: 4, step: 3 },
                answers: &[EntityId(1)],
                targets: vec![1],
                omitted: vec![(4, 3, 1), (1, 2, 4)],
            },
        ];
        let (_, gradients) = learn(&parameters, &graph, &traces, &examples);
        for (tensor, gradient) in gradients.iter().enumerate() {
            for at in (0..gradient.len()).step_by(gradient.len().div_ceil(7)) {
                let moved = |by: f32| {
                    let mut parameters = parameters.clone();
                    parameters.tensors[tensor].values[at] += by;
                    learn(&parameters, &graph, &traces, &examples).0
                };
                let numeric = (moved(4e-3) - moved(-4e-3)) / 8e-3;
                let (name, found) = (&parameters.tensors[tensor].name, f64::from(gradient[at]));
                assert!(
                    (found - numeric).abs() < 1e-2 * (0.1 + numeric.abs()),
                    "{name} {at}: {found} {numeric}"
                );
            }
        }
    }

    #[test]
    fn a_target_is_compared_with_what_is_no_answer() {
        let scores = [0.3f32, 2.0, -1.0, 0.9, 0.1];
        let example = Example {
            question: Question { head: 0, step: 0 },
            answers: &[EntityId(1), EntityId(3), EntityId(4)],
            targets: vec![3, 4],
            omitted: Vec::new(),
        };
        let expected = |scores: &[f32]| -> f64 {
            let exp = |at: usize| f64::from(scores[at]).exp();
            [3, 4].iter().map(|&at| ((exp(0) + exp(2) + exp(at)) / exp(at)).ln()).sum()
        };
        let mut row = scores;
        assert!((differentiate(&mut row, &example, 4) - expected(&scores)).abs() < 1e-6);
        for at in 0..5 {
            let moved = |by: f32| {
                let mut scores = scores;
                scores[at] += by;
                expected(&scores)
            };
            let numeric = (moved(1e-3) - moved(-1e-3)) / 2e-3 / 4.0;
            assert!((f64::from(row[at]) - numeric).abs() < 1e-4, "{at}: {} {numeric}", row[at]);
        }
    }
}
