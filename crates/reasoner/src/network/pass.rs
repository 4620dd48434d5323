//! The forward and backward pass of one question.

use sporran_kernels::{Activation, Adjacency, Dropout, Isa, ResidualNorm, add_columns, multiply};

use super::parameters::{
    ANSWER_BIAS, ANSWER_OUT, ANSWER_QUERY, ANSWER_ROWS, BIAS, Parameters, ROWS, SCALE, SHIFT, SUMS, Sizes,
};
use crate::product::{View, product};

/// An edge: from a node by a step to a node.
pub(super) type Edge = (u32, u32, u32);

/// The inputs of a question.
pub(super) struct Inputs<'a> {
    /// The node of the question.
    pub(super) head: usize,
    /// The row of its step.
    pub(super) query: &'a [f32],
    /// For each layer the edge rows of this question.
    pub(super) edges: Vec<&'a [f32]>,
    /// Edges to hide, each in both directions.
    pub(super) omitted: &'a [Edge],
}

/// The activations of a layer, for its gradients.
struct Layer {
    /// The input: one row a node.
    rows: Vec<f32>,
    /// The sums of the messages.
    sums: Vec<f32>,
    /// The normalised values, and the inverse standard deviation of each row.
    normed: Vec<f32>,
    deviations: Vec<f32>,
}

/// The buffers of one forward and backward pass, reused by later questions.
pub(super) struct Trace {
    layers: Vec<Layer>,
    /// The output of the last layer.
    rows: Vec<f32>,
    /// The hidden layer of the score, before and after its activation.
    inputs: Vec<f32>,
    hidden: Vec<f32>,
    /// Gradients of rows, of sums, and of a layer's input.
    pulls: [Vec<f32>; 3],
}

impl Trace {
    pub(super) fn new(sizes: Sizes, nodes: usize) -> Self {
        let rows = || vec![0.0; nodes * sizes.dim];
        let wide = || vec![0.0; nodes * sizes.hidden()];
        let layer = || Layer { rows: rows(), sums: rows(), normed: rows(), deviations: vec![0.0; nodes] };
        Self {
            layers: (0..sizes.layers).map(|_| layer()).collect(),
            rows: rows(),
            inputs: wide(),
            hidden: wide(),
            pulls: [rows(), rows(), rows()],
        }
    }
}

/// The gradient buffers of a question. All gradients are added.
pub(super) struct Gradients<'a> {
    /// Of the question's row.
    pub(super) query: &'a mut [f32],
    /// Of each layer's edge rows.
    pub(super) edges: Vec<&'a mut [f32]>,
    /// Of the shared tensors: by layer rows, sums, scale, shift and bias; then the answers' rows, query, bias
    /// and output.
    pub(super) shared: &'a mut [f32],
}

/// The messages of a layer. A message is the product of a node row and an edge row. Its gradient is that of
/// the sum that it is added to.
pub(super) struct Messages<'a> {
    /// One row a sending node.
    pub(super) rows: &'a [f32],
    /// One row a step.
    pub(super) edges: &'a [f32],
    /// The gradient of each node's sum.
    pub(super) pulls: &'a [f32],
}

/// The constant added to variances.
const EPSILON: f32 = 1e-5;

fn norm(parameters: &Parameters, layer: usize) -> ResidualNorm<'_> {
    ResidualNorm {
        bias: Some(parameters.of_layer(layer, BIAS)),
        dropout: Dropout::new(0.0, 0),
        scale: parameters.of_layer(layer, SCALE),
        shift: parameters.of_layer(layer, SHIFT),
        eps: EPSILON,
    }
}

fn row(rows: &[f32], width: usize, at: usize) -> &[f32] {
    &rows[at * width..][..width]
}

fn row_mut(rows: &mut [f32], width: usize, at: usize) -> &mut [f32] {
    &mut rows[at * width..][..width]
}

/// `sums += factor * a * b`, elementwise.
fn add_products(sums: &mut [f32], factor: f32, a: &[f32], b: &[f32]) {
    sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += factor * a * b);
}

/// Scores every node as an answer of the question.
pub(super) fn forward(
    parameters: &Parameters,
    graph: &Adjacency,
    asked: &Inputs<'_>,
    trace: &mut Trace,
    scores: &mut [f32],
) {
    let isa = Isa::detected();
    let Sizes { dim, layers, .. } = parameters.sizes;
    let (nodes, hidden) = (graph.nodes(), parameters.sizes.hidden());
    let of_rows = View::packed(nodes, dim);
    let square = View::packed(dim, dim);
    trace.layers[0].rows.fill(0.0);
    row_mut(&mut trace.layers[0].rows, dim, asked.head).copy_from_slice(asked.query);
    for at in 0..layers {
        let (done, tail) = trace.layers.split_at_mut(at + 1);
        let layer = &mut done[at];
        let next = tail.first_mut().map_or(&mut trace.rows, |next| &mut next.rows);
        let edges = asked.edges[at];
        layer.sums.fill(0.0);
        row_mut(&mut layer.sums, dim, asked.head).copy_from_slice(asked.query);
        graph.gather(isa, dim, &layer.rows, edges, &mut layer.sums);
        for &(from, step, to) in asked.omitted {
            let from = row(&layer.rows, dim, from as usize);
            let sums = row_mut(&mut layer.sums, dim, to as usize);
            add_products(sums, -1.0, from, row(edges, dim, step as usize));
        }
        let weights = |which| (parameters.of_layer(at, which), square);
        product((&mut layer.normed, of_rows), (&layer.rows, of_rows), weights(ROWS), false);
        product((&mut layer.normed, of_rows), (&layer.sums, of_rows), weights(SUMS), true);
        norm(parameters, at).forward(isa, 0, &mut layer.normed, false, next, &mut layer.deviations);
        Activation::Relu.forward(isa, next);
        add_columns(isa, &layer.rows, next);
    }
    let mut bias = parameters.of_answer(ANSWER_BIAS).to_vec();
    for (value, weights) in asked.query.iter().zip(parameters.of_answer(ANSWER_QUERY).chunks_exact(hidden)) {
        bias.iter_mut().zip(weights).for_each(|(bias, weight)| *bias += value * weight);
    }
    let wide = View::packed(nodes, hidden);
    let weights = (parameters.of_answer(ANSWER_ROWS), View::packed(dim, hidden));
    product((&mut trace.inputs, wide), (&trace.rows, of_rows), weights, false);
    Activation::Relu.biased(isa, &bias, &mut trace.inputs, &mut trace.hidden);
    let out = (parameters.of_answer(ANSWER_OUT), View::packed(hidden, 1));
    product((scores, View::packed(nodes, 1)), (&trace.hidden, wide), out, false);
}

/// Propagates the gradients `scores` back through the last [`forward`] with this trace. `seen` receives the
/// messages of each layer, the last layer's first.
pub(super) fn backward(
    parameters: &Parameters,
    graph: &Adjacency,
    asked: &Inputs<'_>,
    trace: &mut Trace,
    scores: &[f32],
    out: &mut Gradients<'_>,
    mut seen: impl FnMut(&Messages<'_>),
) {
    let isa = Isa::detected();
    let Sizes { dim, layers, .. } = parameters.sizes;
    let (nodes, hidden) = (graph.nodes(), parameters.sizes.hidden());
    let of_rows = View::packed(nodes, dim);
    let square = View::packed(dim, dim);
    let Trace { layers: kept, rows, inputs, hidden: active, pulls: [pulls, sum_pulls, input_pulls] } = trace;
    {
        let wide = View::packed(nodes, hidden);
        let shared = &mut out.shared[layers * parameters.sizes.shared_of_layer()..];
        let (to_rows, shared) = shared.split_at_mut(dim * hidden);
        let (to_query, shared) = shared.split_at_mut(dim * hidden);
        let (to_bias, to_out) = shared.split_at_mut(hidden);
        let pulled = (scores, View::packed(1, nodes));
        product((to_out, View::packed(1, hidden)), pulled, (active, wide), true);
        let weights = (parameters.of_answer(ANSWER_OUT), View::packed(1, hidden));
        let slopes = &mut *inputs;
        Activation::Relu.differentiate(isa, slopes, active);
        product((active, wide), (scores, View::packed(nodes, 1)), weights, false);
        multiply(isa, active, slopes);
        product((to_rows, View::packed(dim, hidden)), (rows, of_rows.transposed()), (active, wide), true);
        let mut bias = vec![0.0; hidden];
        add_columns(isa, active, &mut bias);
        to_bias.iter_mut().zip(&bias).for_each(|(sum, bias)| *sum += bias);
        let weights = parameters.of_answer(ANSWER_QUERY).chunks_exact(hidden);
        let places = to_query.chunks_exact_mut(hidden);
        for (((pull, value), weights), places) in
            out.query.iter_mut().zip(asked.query).zip(weights).zip(places)
        {
            *pull += weights.iter().zip(&bias).map(|(weight, bias)| weight * bias).sum::<f32>();
            places.iter_mut().zip(&bias).for_each(|(place, bias)| *place += value * bias);
        }
        let weights = (parameters.of_answer(ANSWER_ROWS), View::packed(dim, hidden).transposed());
        product((pulls, of_rows), (active, wide), weights, false);
    }
    for at in (0..layers).rev() {
        let layer = &kept[at];
        let edges = asked.edges[at];
        let shared = parameters.sizes.shared_of_layer();
        let (to_rows, shared) = out.shared[at * shared..][..shared].split_at_mut(dim * dim);
        let (to_sums, to_norm) = shared.split_at_mut(dim * dim);
        // The output is the activation of the normalised values, plus the input rows. The derivative of the
        // activation uses the buffer of the sums' gradients, which is still unused.
        let norm = norm(parameters, at);
        norm.again(isa, &layer.normed, sum_pulls);
        Activation::Relu.differentiate(isa, sum_pulls, input_pulls);
        multiply(isa, sum_pulls, pulls);
        norm.backward(isa, 0, &layer.normed, &layer.deviations, sum_pulls, input_pulls, to_norm);
        let pulled = (&*input_pulls as &[f32], of_rows);
        product((to_rows, square), (&layer.rows, of_rows.transposed()), pulled, true);
        product((to_sums, square), (&layer.sums, of_rows.transposed()), pulled, true);
        let weights = |which| (parameters.of_layer(at, which), square.transposed());
        product((pulls, of_rows), pulled, weights(ROWS), true);
        product((sum_pulls, of_rows), pulled, weights(SUMS), false);
        seen(&Messages { rows: &layer.rows, edges, pulls: sum_pulls });
        let boundary = row(sum_pulls, dim, asked.head);
        out.query.iter_mut().zip(boundary).for_each(|(sum, pull)| *sum += pull);
        let to_edges = &mut *out.edges[at];
        graph.gather_back(isa, dim, sum_pulls, (&layer.rows, edges), (pulls, to_edges));
        for &(from, step, to) in asked.omitted {
            let (from, step) = (from as usize, step as usize);
            let pull = row(sum_pulls, dim, to as usize);
            add_products(row_mut(pulls, dim, from), -1.0, pull, row(edges, dim, step));
            add_products(row_mut(to_edges, dim, step), -1.0, pull, row(&layer.rows, dim, from));
        }
    }
    let head = row(pulls, dim, asked.head);
    out.query.iter_mut().zip(head).for_each(|(sum, pull)| *sum += pull);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::options::NetworkOptions;

    const TRIPLES: [(u32, u32, u32); 7] =
        [(0, 0, 1), (0, 1, 2), (2, 0, 1), (3, 1, 3), (1, 1, 4), (4, 0, 0), (3, 0, 4)];

    fn values(count: usize, by: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * by) % 23) as f32 / 23.0 - 0.45).collect()
    }

    /// The weighted sum of the scores and, if requested, its gradients.
    fn run(
        parameters: &Parameters,
        query: &[f32],
        edges: &[Vec<f32>],
        gradients: bool,
    ) -> (f64, [Vec<f32>; 3]) {
        let sizes = parameters.sizes;
        let graph = Adjacency::new(5, 2, &TRIPLES);
        let mut trace = Trace::new(sizes, 5);
        let omitted = [(0, 0, 1), (1, 1, 0)];
        let asked =
            Inputs { head: 0, query, edges: edges.iter().map(Vec::as_slice).collect(), omitted: &omitted };
        let mut scores = vec![0.0; 5];
        let weights = [0.7, -1.2, 0.4, 0.9, -0.3];
        forward(parameters, &graph, &asked, &mut trace, &mut scores);
        let value = scores.iter().zip(weights).map(|(score, weight)| f64::from(score * weight)).sum();
        let mut found =
            [vec![0.0; 32], vec![0.0; sizes.layers * sizes.steps * 32], vec![0.0; sizes.shared()]];
        if gradients {
            let [query, edges, shared] = &mut found;
            let edges = edges.chunks_exact_mut(sizes.steps * 32).collect();
            let mut out = Gradients { query, edges, shared };
            backward(parameters, &graph, &asked, &mut trace, &weights, &mut out, |_| {});
        }
        (value, found)
    }

    #[test]
    fn gradients_are_those_of_differences() {
        let sizes = Sizes::new(&NetworkOptions { layers: 2, ..NetworkOptions::default() }, 2);
        let parameters = Parameters::new(sizes, 3).without_kinks();
        let query = values(32, 7);
        let edges: Vec<Vec<f32>> = (0..2).map(|layer| values(sizes.steps * 32, 5 + layer)).collect();
        let (_, [to_query, to_edges, shared]) = run(&parameters, &query, &edges, true);
        let check = |found: f32, moved: &dyn Fn(f32) -> f64, what: &str| {
            let numeric = (moved(4e-3) - moved(-4e-3)) / 8e-3;
            let error = (f64::from(found) - numeric).abs();
            assert!(error < 2e-2 * (1.0 + numeric.abs()), "{what}: {found} {numeric}");
        };
        assert!(to_query.iter().all(|pull| *pull != 0.0));
        for at in (0..32).step_by(5) {
            let moved = |by: f32| {
                let mut query = query.clone();
                query[at] += by;
                run(&parameters, &query, &edges, false).0
            };
            check(to_query[at], &moved, "query");
        }
        for layer in 0..2 {
            for at in (0..sizes.steps * 32).step_by(17) {
                let moved = |by: f32| {
                    let mut edges = edges.clone();
                    edges[layer][at] += by;
                    run(&parameters, &query, &edges, false).0
                };
                check(to_edges[layer * sizes.steps * 32 + at], &moved, "edges");
            }
        }
        let mut first = 0;
        let shared_tensors = (0..2)
            .flat_map(|layer| [ROWS, SUMS, SCALE, SHIFT, BIAS].map(|which| Parameters::layer(layer, which)))
            .chain(
                [ANSWER_ROWS, ANSWER_QUERY, ANSWER_BIAS, ANSWER_OUT].map(|which| parameters.answer(which)),
            );
        for tensor in shared_tensors {
            let count = parameters.tensors[tensor].values.len();
            for at in (0..count).step_by(count.div_ceil(9)) {
                let moved = |by: f32| {
                    let mut parameters = parameters.clone();
                    parameters.tensors[tensor].values[at] += by;
                    run(&parameters, &query, &edges, false).0
                };
                check(shared[first + at], &moved, &parameters.tensors[tensor].name);
            }
            first += count;
        }
        assert_eq!(first, shared.len());
    }

    #[test]
    fn an_edge_that_is_omitted_is_as_one_that_is_not_there() {
        let sizes = Sizes::new(&NetworkOptions { layers: 3, ..NetworkOptions::default() }, 2);
        let parameters = Parameters::new(sizes, 4);
        let (query, edges) = (values(32, 7), values(sizes.steps * 32, 5));
        let scored = |graph: &Adjacency, omitted: &[Edge]| {
            let mut scores = vec![0.0; 5];
            let asked = Inputs { head: 4, query: &query, edges: vec![&edges; 3], omitted };
            forward(&parameters, graph, &asked, &mut Trace::new(sizes, 5), &mut scores);
            scores
        };
        let whole = Adjacency::new(5, 2, &TRIPLES);
        let without = Adjacency::new(5, 2, &TRIPLES[1..]);
        let (found, expected) = (scored(&whole, &[(0, 0, 1), (1, 1, 0)]), scored(&without, &[]));
        assert_ne!(scored(&whole, &[]), expected);
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }
}
