//! Message passing on a graph. Each node sums its neighbours' rows, each multiplied by the weight row of the
//! edge between them, as in neural Bellman-Ford networks (Zhu et al., 2021).

use crate::{
    isa::{Isa, dispatch},
    simd::{LANES, Simd},
};

/// The edges of a graph for message passing: every triple in both directions. A node's edges are grouped by
/// step, so that rows of one step are summed before they are multiplied.
///
/// Step `2r` leads from the subject of relation `r` to its object, `2r + 1` back.
#[derive(Clone, Debug)]
pub struct Adjacency {
    steps: usize,
    /// The start of each node's runs; the last entry is their number.
    starts: Vec<usize>,
    /// The step of a run and the start of its ends; one more at the end.
    runs: Vec<(u32, usize)>,
    /// The nodes that each run leads to.
    ends: Vec<u32>,
}

impl Adjacency {
    /// The graph of triples `(subject, relation, object)`; duplicates count once.
    ///
    /// # Panics
    /// For a node or a relation that is not below its count.
    #[must_use]
    pub fn new(nodes: usize, relations: usize, triples: &[(u32, u32, u32)]) -> Self {
        let mut edges: Vec<(u32, u32, u32)> = triples
            .iter()
            .flat_map(|&(subject, relation, object)| {
                [(subject, 2 * relation, object), (object, 2 * relation + 1, subject)]
            })
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let steps = 2 * relations;
        assert!(edges.iter().all(|&(node, step, _)| (node as usize) < nodes && (step as usize) < steps));
        let (mut starts, mut runs) = (Vec::with_capacity(nodes + 1), Vec::new());
        let mut last = None;
        for (at, &(node, step, _)) in edges.iter().enumerate() {
            starts.resize(starts.len().max(node as usize + 1), runs.len());
            if last.replace((node, step)) != Some((node, step)) {
                runs.push((step, at));
            }
        }
        starts.resize(nodes + 1, runs.len());
        runs.push((0, edges.len()));
        Self { steps, starts, runs, ends: edges.into_iter().map(|(_, _, end)| end).collect() }
    }

    /// The number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of steps: two for each relation.
    #[must_use]
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The outgoing steps of a node, each with the nodes that it leads to.
    pub fn edges(&self, node: usize) -> impl Iterator<Item = (usize, &[u32])> {
        let runs = &self.runs[self.starts[node]..=self.starts[node + 1]];
        runs.windows(2).map(|pair| (pair[0].0 as usize, &self.ends[pair[0].1..pair[1].1]))
    }

    fn check(&self, width: usize, nodes: &[&[f32]], steps: &[&[f32]]) {
        assert!(width.is_multiple_of(LANES), "expected rows of a multiple of {LANES} values, found {width}");
        assert!(nodes.iter().all(|rows| rows.len() == self.nodes() * width));
        assert!(steps.iter().all(|rows| rows.len() == self.steps * width));
    }

    /// Adds the messages of every node's edges to its row in `sums`: the neighbour's row in `rows` times the
    /// row in `weights` of the step from the neighbour. All rows have `width` values.
    ///
    /// # Panics
    /// If a size does not match, or `width` is not a multiple of 32.
    pub fn gather(&self, isa: Isa, width: usize, rows: &[f32], weights: &[f32], sums: &mut [f32]) {
        #[inline(always)]
        fn body<S: Simd>(graph: &Adjacency, width: usize, rows: &[f32], weights: &[f32], sums: &mut [f32]) {
            for (node, sums) in sums.chunks_exact_mut(width).enumerate() {
                for (block, sums) in sums.chunks_exact_mut(LANES).enumerate() {
                    let first = block * LANES;
                    // SAFETY: every end is below the number of nodes and every step below that of steps (`new`), whose rows all have
                    // `width` values (`check`), of which `first` is followed by 32; so is `sums`.
                    unsafe {
                        let mut sum = S::load_floats(sums.as_ptr());
                        for (step, ends) in graph.edges(node) {
                            let total = total::<S>(rows, ends, width, first);
                            let weight = S::load_floats(weights.as_ptr().add((step ^ 1) * width + first));
                            sum = S::add_products(sum, total, weight);
                        }
                        S::store_floats(sums.as_mut_ptr(), sum);
                    }
                }
            }
        }
        self.check(width, &[rows, sums], &[weights]);
        let graph = self;
        dispatch!(isa, body(
            graph: &Adjacency,
            width: usize,
            rows: &[f32],
            weights: &[f32],
            sums: &mut [f32],
        ));
    }

    /// The backward pass of [`gather`](Self::gather): adds the gradients of rows and weights from the
    /// gradients `pulls` of the sums.
    ///
    /// # Panics
    /// As [`gather`](Self::gather).
    pub fn gather_back(
        &self,
        isa: Isa,
        width: usize,
        pulls: &[f32],
        (rows, weights): (&[f32], &[f32]),
        (row_gradients, weight_gradients): (&mut [f32], &mut [f32]),
    ) {
        #[inline(always)]
        fn body<S: Simd>(
            graph: &Adjacency,
            width: usize,
            pulls: &[f32],
            inputs: (&[f32], &[f32]),
            out: (&mut [f32], &mut [f32]),
        ) {
            let (rows, weights) = inputs;
            let (row_gradients, weight_gradients) = out;
            for (node, gradients) in row_gradients.chunks_exact_mut(width).enumerate() {
                for (block, gradients) in gradients.chunks_exact_mut(LANES).enumerate() {
                    let first = block * LANES;
                    // SAFETY: as in `gather`.
                    unsafe {
                        let row = S::load_floats(rows.as_ptr().add(node * width + first));
                        let mut gradient = S::load_floats(gradients.as_ptr());
                        for (step, ends) in graph.edges(node) {
                            // The message used this step, to the nodes of these gradients.
                            let total = total::<S>(pulls, ends, width, first);
                            let at = step * width + first;
                            let weight = S::load_floats(weights.as_ptr().add(at));
                            gradient = S::add_products(gradient, total, weight);
                            let place = weight_gradients.as_mut_ptr().add(at);
                            S::store_floats(place, S::add_products(S::load_floats(place), total, row));
                        }
                        S::store_floats(gradients.as_mut_ptr(), gradient);
                    }
                }
            }
        }
        self.check(width, &[pulls, rows, row_gradients], &[weights, weight_gradients]);
        let graph = self;
        let inputs = (rows, weights);
        let out = (row_gradients, weight_gradients);
        dispatch!(isa, body(
            graph: &Adjacency,
            width: usize,
            pulls: &[f32],
            inputs: (&[f32], &[f32]),
            out: (&mut [f32], &mut [f32]),
        ));
    }
}

/// The sum of the rows of some nodes, 32 values from `first` on.
///
/// # Safety
/// The machine must support `S`, and `rows` must have a row of `width` values for each of `ends`, with 32 values from `first` on.
#[inline(always)]
unsafe fn total<S: Simd>(rows: &[f32], ends: &[u32], width: usize, first: usize) -> S::Floats {
    // SAFETY: by the contract.
    unsafe {
        let mut total = S::zero_floats();
        for end in ends {
            total =
                S::add_product(total, 1.0, S::load_floats(rows.as_ptr().add(*end as usize * width + first)));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIPLES: [(u32, u32, u32); 6] = [(0, 0, 1), (0, 1, 1), (2, 0, 1), (0, 0, 1), (3, 1, 3), (1, 1, 5)];

    fn values(count: usize, by: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * by) % 17) as f32 / 4.0 - 2.0).collect()
    }

    #[test]
    fn sums_are_those_of_the_edges_one_by_one() {
        let (width, nodes) = (64, 7);
        let graph = Adjacency::new(nodes, 2, &TRIPLES);
        let (rows, weights) = (values(nodes * width, 5), values(4 * width, 3));
        let mut expected = vec![0.5; nodes * width];
        let mut distinct = TRIPLES.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        for (subject, relation, object) in distinct {
            for (from, to, step) in [(subject, object, 2 * relation), (object, subject, 2 * relation + 1)] {
                for at in 0..width {
                    expected[to as usize * width + at] +=
                        rows[from as usize * width + at] * weights[step as usize * width + at];
                }
            }
        }
        for isa in Isa::available() {
            let mut sums = vec![0.5; nodes * width];
            graph.gather(isa, width, &rows, &weights, &mut sums);
            for (found, expected) in sums.iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-5, "{isa:?}");
            }
        }
    }

    #[test]
    fn gradients_are_those_of_a_sum_that_is_linear_in_both() {
        // The sums are linear in the rows for given weights, and the reverse. So the inner product of pulls
        // and sums equals that of the gradient and the rows (weights).
        let (width, nodes) = (32, 7);
        let graph = Adjacency::new(nodes, 2, &TRIPLES);
        let (rows, weights) = (values(nodes * width, 5), values(4 * width, 3));
        let pulls = values(nodes * width, 7);
        for isa in Isa::available() {
            let mut sums = vec![0.0; nodes * width];
            graph.gather(isa, width, &rows, &weights, &mut sums);
            let (mut to_rows, mut to_weights) = (vec![0.0; nodes * width], vec![0.0; 4 * width]);
            graph.gather_back(isa, width, &pulls, (&rows, &weights), (&mut to_rows, &mut to_weights));
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
            let expected = dot(&pulls, &sums);
            assert!((dot(&to_rows, &rows) - expected).abs() < 1e-3, "{isa:?}");
            assert!((dot(&to_weights, &weights) - expected).abs() < 1e-3, "{isa:?}");
            // Element by element: changing a node's row changes the value according to its gradient.
            for node in 0..nodes {
                let mut moved = rows.clone();
                moved[node * width + 3] += 1.0;
                let mut sums = vec![0.0; nodes * width];
                graph.gather(isa, width, &moved, &weights, &mut sums);
                let change = dot(&pulls, &sums) - expected;
                assert!((change - f64::from(to_rows[node * width + 3])).abs() < 1e-3, "{isa:?} {node}");
            }
        }
    }
}
