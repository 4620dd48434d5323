//! The paths that contribute to an answer's score.

use std::collections::HashMap;

use sporran_kernels::Adjacency;
use sporran_kilt::kb::Triple;

use super::pass::{Edge, Messages};

/// A path from a question's entity to an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// The contribution of its messages to the answer's log-probability, to first order.
    pub weight: f32,
    /// Its triples in the order of the walk, which follows them in either direction.
    pub triples: Vec<Triple>,
}

/// The end of a path during the search: from a node to the answer.
#[derive(Clone, Debug)]
struct Partial {
    weight: f32,
    edges: Vec<Edge>,
}

/// A search for the heaviest paths, backward from the answer, one layer at a time. A path may stay at a node
/// for a layer without weight. It visits no node twice.
pub(super) struct Search<'g> {
    graph: &'g Adjacency,
    dim: usize,
    most: usize,
    /// The heaviest paths from each reached node.
    partial: HashMap<u32, Vec<Partial>>,
}

impl<'g> Search<'g> {
    pub(super) fn new(graph: &'g Adjacency, dim: usize, answer: u32, most: usize) -> Self {
        let partial = HashMap::from([(answer, vec![Partial { weight: 0.0, edges: Vec::new() }])]);
        Self { graph, dim, most, partial }
    }

    /// Extends the search backward over a layer.
    pub(super) fn back(&mut self, messages: &Messages<'_>) {
        let dim = self.dim;
        let mut next = self.partial.clone();
        let mut factors = vec![0.0; dim];
        for node in 0..self.graph.nodes() as u32 {
            let sent = &messages.rows[node as usize * dim..][..dim];
            if sent.iter().all(|value| *value == 0.0) {
                continue;
            }
            let mut found = Vec::new();
            for (step, ends) in self.graph.edges(node as usize) {
                let reached = ends.iter().filter_map(|end| Some((*end, self.partial.get(end)?)));
                let mut reached = reached.peekable();
                if reached.peek().is_none() {
                    continue;
                }
                let edges = &messages.edges[step * dim..][..dim];
                factors.iter_mut().zip(sent.iter().zip(edges)).for_each(|(factor, (a, b))| *factor = a * b);
                for (end, partial) in reached {
                    let pulls = &messages.pulls[end as usize * dim..][..dim];
                    let weight: f32 = factors.iter().zip(pulls).map(|(factor, pull)| factor * pull).sum();
                    let is_new = |partial: &&Partial| {
                        partial.edges.iter().all(|&(from, _, to)| from != node && to != node)
                    };
                    found.extend(partial.iter().filter(is_new).filter(|_| end != node).map(|tail| {
                        let mut edges = vec![(node, step as u32, end)];
                        edges.extend_from_slice(&tail.edges);
                        Partial { weight: weight + tail.weight, edges }
                    }));
                }
            }
            if !found.is_empty() {
                let own = next.entry(node).or_default();
                own.append(&mut found);
                keep(own, self.most);
            }
        }
        self.partial = next;
    }

    /// The paths from a node, heaviest first.
    pub(super) fn from(mut self, node: u32) -> Vec<Path> {
        let mut found = self.partial.remove(&node).unwrap_or_default();
        found.retain(|path| !path.edges.is_empty());
        let triple = |&(from, step, to): &Edge| {
            let (subject, object) = if step % 2 == 0 { (from, to) } else { (to, from) };
            Triple::new(subject, step / 2, object)
        };
        let paths = found
            .into_iter()
            .map(|Partial { weight, edges }| Path { weight, triples: edges.iter().map(triple).collect() });
        paths.collect()
    }
}

/// Keeps the `most` heaviest distinct paths. If a path was found over different layers, the heavier one
/// counts.
fn keep(paths: &mut Vec<Partial>, most: usize) {
    paths.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.edges.cmp(&b.edges)));
    let mut kept: Vec<Partial> = Vec::new();
    for path in paths.drain(..) {
        if kept.len() == most {
            break;
        }
        if kept.iter().all(|other| other.edges != path.edges) {
            kept.push(path);
        }
    }
    *paths = kept;
}
