//! The heaviest walk over the knowledge base from a name in the document to an answer.

use super::encoding::LinkedName;
use crate::{
    korc::Numbers,
    rules::{Graph, Step},
};

/// The largest number of names to start from; those with the largest attention weights.
const TRIED: usize = 8;

/// The heaviest walk of at most `steps` steps (1 or 2) from a name to an answer: the name, and the walk's
/// triples.
///
/// The weight of a walk is its name's share times, for each step, `weight` divided by the number of
/// neighbours of that step. Of equal walks the first counts, by the names' order, then by step and node.
pub fn heaviest(
    graph: &Graph,
    named: &[(LinkedName, f32)],
    answer: u32,
    steps: usize,
    weight: impl Fn(usize, Step) -> f32,
) -> Option<(LinkedName, Vec<Numbers>)> {
    let mut order: Vec<&(LinkedName, f32)> = named.iter().filter(|(name, _)| name.entity != answer).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut best: Option<(f32, LinkedName, Vec<Numbers>)> = None;
    let mut take = |weight: f32, name: LinkedName, walk: &[Numbers]| {
        if weight > 0.0 && best.as_ref().is_none_or(|best| weight > best.0) {
            best = Some((weight, name, walk.to_vec()));
        }
    };
    let share = |node: u32, step: Step| 1.0 / graph.along(node, step).len().max(1) as f32;
    for &&(name, counts) in order.iter().take(TRIED) {
        let from = name.entity;
        for last in graph.between(from, answer) {
            let heavy = counts * weight(0, last.step) * share(from, last.step);
            take(heavy, name, &[last.step.triple(from, answer)]);
        }
        if steps < 2 {
            continue;
        }
        for edges in graph.edges(from).chunk_by(|a, b| a.step == b.step) {
            let first = counts * weight(0, edges[0].step) / edges.len() as f32;
            for edge in edges.iter().filter(|edge| edge.to != answer && edge.to != from) {
                for last in graph.between(edge.to, answer) {
                    let heavy = first * weight(1, last.step) * share(edge.to, last.step);
                    let walk = [edge.step.triple(from, edge.to), last.step.triple(edge.to, answer)];
                    take(heavy, name, &walk);
                }
            }
        }
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
        let even = heaviest(&graph, &named, 9, 2, |_, _| 1.0).unwrap();
        assert_eq!((even.0.entity, even.1), (2, vec![(2, 1, 3), (3, 2, 9)]));
        let short = heaviest(&graph, &named, 9, 1, |_, _| 1.0).unwrap();
        assert_eq!((short.0.entity, short.1), (0, vec![(0, 0, 9)]));
        let only = |_, step: Step| if step == Step::forward(0) { 1.0 } else { 0.0 };
        assert_eq!(heaviest(&graph, &named, 9, 2, only).unwrap().0.entity, 0);
        assert_eq!(heaviest(&graph, &named, 7, 2, |_, _| 1.0), None);
    }
}
