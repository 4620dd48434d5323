//! The heaviest walk over the knowledge base from a name in the document to an answer.

use super::encoding::LinkedName;
use crate::{
    korc::Numbers,
    rules::{Graph, Step},
};

/// The largest number of names to start from; those with the largest attention weights.
const TRIED: usize = 8;
/// The number of heaviest beginnings of a walk of more than two steps.
const BEGINNINGS: usize = 64;

/// The beginning of a walk.
struct Beginning {
    weight: f32,
    name: LinkedName,
    walk: Vec<Numbers>,
    /// Its last node.
    node: u32,
}

/// The heaviest walk of at most `steps` steps from a name to an answer: the name, and the walk's triples.
///
/// The weight of a walk is its name's share times, for each step, `weight` of the step's number and relation, divided by
/// `parts` of its number, node and relation. Of equal walks the first counts, by the names' order, then by step and node. All walks
/// of two steps are compared. Longer walks begin with the heaviest ones of two steps less, at most 64.
pub fn heaviest(
    graph: &Graph,
    named: &[(LinkedName, f32)],
    answer: u32,
    steps: usize,
    weight: impl Fn(usize, Step) -> f32,
    parts: impl Fn(usize, u32, Step) -> f32,
) -> Option<(LinkedName, Vec<Numbers>)> {
    let mut order: Vec<&(LinkedName, f32)> = named.iter().filter(|(name, _)| name.entity != answer).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut best: Option<(f32, LinkedName, Vec<Numbers>)> = None;
    let mut take = |weight: f32, begun: &Beginning, end: &[Numbers]| {
        if weight > 0.0 && best.as_ref().is_none_or(|best| weight > best.0) {
            best = Some((weight, begun.name, [&begun.walk, end].concat()));
        }
    };
    let mut beginnings: Vec<Beginning> = order
        .iter()
        .take(TRIED)
        .map(|&&(name, weight)| Beginning { weight, name, walk: Vec::new(), node: name.entity })
        .collect();
    for at in 0..steps.saturating_sub(1).max(1) {
        let mut next: Vec<Beginning> = Vec::new();
        for begun in &beginnings {
            let from = begun.node;
            // Later ones are the ends of walks of two steps.
            for last in graph.between(from, answer).iter().filter(|_| at == 0) {
                let heavy = begun.weight * weight(0, last.step) * (1.0 / parts(0, from, last.step));
                take(heavy, begun, &[last.step.triple(from, answer)]);
            }
            if steps < 2 {
                continue;
            }
            let is_new = |node: u32| {
                node != answer && node != from && begun.walk.iter().all(|&(a, _, b)| a != node && b != node)
            };
            for edges in graph.edges(from).chunk_by(|a, b| a.step == b.step) {
                let first = begun.weight * weight(at, edges[0].step) / parts(at, from, edges[0].step);
                for edge in edges.iter().filter(|edge| is_new(edge.to)) {
                    let triple = edge.step.triple(from, edge.to);
                    for last in graph.between(edge.to, answer) {
                        let heavy =
                            first * weight(at + 1, last.step) * (1.0 / parts(at + 1, edge.to, last.step));
                        take(heavy, begun, &[triple, last.step.triple(edge.to, answer)]);
                    }
                    if at + 2 < steps {
                        let walk = [&begun.walk[..], &[triple]].concat();
                        next.push(Beginning { weight: first, name: begun.name, walk, node: edge.to });
                    }
                }
            }
            next.sort_by(|a, b| b.weight.total_cmp(&a.weight));
            next.truncate(BEGINNINGS);
        }
        beginnings = next;
    }
    best.map(|(_, name, walk)| (name, walk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_walk_explains() {
        // 0 -> 9 directly by relation 0, which it shares with 1; 2 -> 3 -> 9 by relations 1 and 2 alone.
        let graph = Graph::new([(0, 0, 9), (0, 0, 1), (2, 1, 3), (3, 2, 9)]);
        let name = |entity| LinkedName { start: 0, end: 1, entity };
        let named = [(name(0), 0.5), (name(2), 0.5)];
        let neighbours = |_, node, step| graph.along(node, step).len() as f32;
        let even = heaviest(&graph, &named, 9, 2, |_, _| 1.0, neighbours).unwrap();
        assert_eq!((even.0.entity, even.1), (2, vec![(2, 1, 3), (3, 2, 9)]));
        let short = heaviest(&graph, &named, 9, 1, |_, _| 1.0, neighbours).unwrap();
        assert_eq!((short.0.entity, short.1), (0, vec![(0, 0, 9)]));
        let only = |_, step: Step| if step == Step::forward(0) { 1.0 } else { 0.0 };
        assert_eq!(heaviest(&graph, &named, 9, 2, only, neighbours).unwrap().0.entity, 0);
        assert_eq!(heaviest(&graph, &named, 7, 2, |_, _| 1.0, neighbours), None);
    }

    #[test]
    fn longer_walks_visit_each_node_once() {
        // 0 -> 1 -> 2 -> 3 -> 9 by relations 0 to 3.
        let graph = Graph::new([(0, 0, 1), (1, 1, 2), (2, 2, 3), (3, 3, 9)]);
        let named = [(LinkedName { start: 0, end: 1, entity: 0 }, 1.0)];
        let found = |steps| heaviest(&graph, &named, 9, steps, |_, _| 0.5, |_, _, _| 1.0);
        assert_eq!(found(3), None);
        let walk = vec![(0, 0, 1), (1, 1, 2), (2, 2, 3), (3, 3, 9)];
        assert_eq!(found(4).unwrap().1, walk);
        assert_eq!(found(6).unwrap().1, walk);
    }
}
