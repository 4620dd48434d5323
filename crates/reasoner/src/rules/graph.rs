//! A graph for rule walks: every triple in both directions, with the edges of each node adjacent.

use sporran_kilt::kb::Triple;

/// A relation in one of its two directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Step(u32);

impl Step {
    /// From the subject to the object.
    pub fn forward(relation: u32) -> Self {
        Self(relation << 1)
    }

    /// From the object to the subject.
    pub fn backward(relation: u32) -> Self {
        Self(relation << 1 | 1)
    }

    /// The relation.
    pub fn relation(self) -> u32 {
        self.0 >> 1
    }

    /// Whether it goes from the object to the subject.
    pub fn is_backward(self) -> bool {
        self.0 & 1 == 1
    }

    /// The same relation the other way.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self(self.0 ^ 1)
    }

    /// The triple of a step from one node to another.
    pub fn triple(self, from: u32, to: u32) -> (u32, u32, u32) {
        if self.is_backward() { (to, self.relation(), from) } else { (from, self.relation(), to) }
    }
}

/// An edge as seen from its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The relation and its direction.
    pub step: Step,
    /// The node at the other end.
    pub to: u32,
}

/// Triples as a graph.
#[derive(Clone, Debug)]
pub struct Graph {
    /// Each triple once, sorted.
    triples: Vec<(u32, u32, u32)>,
    /// The start of each node's edges; the last entry is their number.
    starts: Vec<usize>,
    /// The edges of each node by step, then by end.
    edges: Vec<Edge>,
    /// The edges of each node by end, then by step.
    by_end: Vec<Edge>,
    /// The nodes that have an edge of a step, by step.
    sources: Vec<Vec<u32>>,
}

impl Graph {
    /// The graph of a knowledge base's triples.
    pub fn of<'t>(triples: impl IntoIterator<Item = &'t Triple>) -> Self {
        Self::new(triples.into_iter().map(|triple| (triple.subject.0, triple.relation.0, triple.object.0)))
    }

    /// The graph of triples `(subject, relation, object)`; duplicates count once.
    pub fn new(triples: impl IntoIterator<Item = (u32, u32, u32)>) -> Self {
        let mut triples: Vec<(u32, u32, u32)> = triples.into_iter().collect();
        triples.sort_unstable();
        triples.dedup();
        let nodes = triples.iter().map(|&(s, _, o)| s.max(o) as usize + 1).max().unwrap_or(0);
        let steps = triples.iter().map(|&(_, r, _)| 2 * (r as usize + 1)).max().unwrap_or(0);
        let mut starts = vec![0; nodes + 1];
        for &(s, _, o) in &triples {
            starts[s as usize + 1] += 1;
            starts[o as usize + 1] += 1;
        }
        for node in 0..nodes {
            starts[node + 1] += starts[node];
        }
        let mut next = starts.clone();
        let mut edges = vec![Edge { step: Step(0), to: 0 }; 2 * triples.len()];
        let mut put = |from: u32, step: Step, to: u32| {
            edges[next[from as usize]] = Edge { step, to };
            next[from as usize] += 1;
        };
        for &(s, r, o) in &triples {
            put(s, Step::forward(r), o);
            put(o, Step::backward(r), s);
        }
        let mut by_end = edges.clone();
        let mut sources = vec![Vec::new(); steps];
        for node in 0..nodes {
            let range = starts[node]..starts[node + 1];
            edges[range.clone()].sort_unstable();
            by_end[range.clone()].sort_unstable_by_key(|edge| (edge.to, edge.step));
            let mut last = None;
            for edge in &edges[range] {
                if last.replace(edge.step) != Some(edge.step) {
                    sources[edge.step.0 as usize].push(node as u32);
                }
            }
        }
        Self { triples, starts, edges, by_end, sources }
    }

    /// Every triple once, sorted.
    pub fn triples(&self) -> &[(u32, u32, u32)] {
        &self.triples
    }

    /// One more than the largest node.
    pub fn nodes(&self) -> usize {
        self.starts.len() - 1
    }

    /// The edges of a node by step, then by end; empty for an unknown node.
    pub fn edges(&self, node: u32) -> &[Edge] {
        self.range(node).map_or(&[], |range| &self.edges[range])
    }

    fn range(&self, node: u32) -> Option<std::ops::Range<usize>> {
        let node = node as usize;
        (node + 1 < self.starts.len()).then(|| self.starts[node]..self.starts[node + 1])
    }

    /// The edges of a node with one step, by end.
    pub fn along(&self, node: u32, step: Step) -> &[Edge] {
        let edges = self.edges(node);
        let start = edges.partition_point(|edge| edge.step < step);
        let length = edges[start..].partition_point(|edge| edge.step == step);
        &edges[start..start + length]
    }

    /// The edges from one node to another, by step.
    pub fn between(&self, from: u32, to: u32) -> &[Edge] {
        let edges = self.range(from).map_or(&[][..], |range| &self.by_end[range]);
        let start = edges.partition_point(|edge| edge.to < to);
        let length = edges[start..].partition_point(|edge| edge.to == to);
        &edges[start..start + length]
    }

    /// Whether the graph has an edge.
    pub fn has(&self, from: u32, step: Step, to: u32) -> bool {
        self.edges(from).binary_search(&Edge { step, to }).is_ok()
    }

    /// The nodes with an outgoing edge of a step, sorted.
    pub fn sources(&self, step: Step) -> &[u32] {
        self.sources.get(step.0 as usize).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_triple_is_found_from_both_ends() {
        let graph = Graph::new([(0, 0, 1), (0, 1, 1), (2, 0, 1), (0, 0, 1)]);
        assert_eq!((graph.triples().len(), graph.nodes()), (3, 3));
        let ends = |edges: &[Edge]| edges.iter().map(|edge| edge.to).collect::<Vec<_>>();
        assert_eq!(ends(graph.along(1, Step::backward(0))), [0, 2]);
        assert_eq!(ends(graph.along(0, Step::forward(1))), [1]);
        let steps: Vec<Step> = graph.between(0, 1).iter().map(|edge| edge.step).collect();
        assert_eq!(steps, [Step::forward(0), Step::forward(1)]);
        assert!(graph.has(2, Step::forward(0), 1) && !graph.has(2, Step::forward(1), 1));
        assert_eq!(
            (graph.sources(Step::forward(0)), graph.sources(Step::backward(0))),
            (&[0, 2][..], &[1][..])
        );
        assert!(graph.edges(9).is_empty() && graph.sources(Step::forward(7)).is_empty());
    }

    #[test]
    fn a_step_and_its_reverse_represent_the_same_triple() {
        let step = Step::backward(3);
        assert_eq!(step.triple(5, 6), (6, 3, 5));
        assert_eq!(step.reversed().triple(6, 5), (6, 3, 5));
    }
}
