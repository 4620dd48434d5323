//! Dependency parses, and distances in them.

use std::{collections::VecDeque, ops::Range};

/// A dependency parse over the tokens of a document.
///
/// Words of a parser and tokens of a [`Document`](crate::Document) can differ. A token stands for all words that begin in it, and
/// further tokens of a word depend on its first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parse {
    /// Pairs of tokens with a dependency in either direction, the lesser first; ascending.
    edges: Vec<(usize, usize)>,
    /// The tokens without a head; ascending.
    roots: Vec<usize>,
}

impl Parse {
    /// From dependencies in any order, and the tokens without a head.
    #[must_use]
    pub fn new(dependencies: impl IntoIterator<Item = (usize, usize)>, mut roots: Vec<usize>) -> Self {
        let edges = dependencies.into_iter().filter(|(a, b)| a != b);
        let mut edges: Vec<(usize, usize)> = edges.map(|(a, b)| (a.min(b), a.max(b))).collect();
        edges.sort_unstable();
        edges.dedup();
        roots.sort_unstable();
        roots.dedup();
        Self { edges, roots }
    }
}

/// The dependencies of a sentence as an undirected graph over its tokens, which are counted from its first. It is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentenceGraph {
    /// For each token its neighbours, ascending.
    neighbours: Vec<Vec<usize>>,
}

impl SentenceGraph {
    /// The graph of a sentence of a document, given the range of its tokens. If a parser ends sentences elsewhere, the parts that
    /// it does not connect are connected one after the other by their roots, or by the first token of a part without a root.
    #[must_use]
    pub fn new(parse: &Parse, tokens: Range<usize>) -> Self {
        let first = parse.edges.partition_point(|(a, _)| *a < tokens.start);
        let own = parse.edges[first..].iter().take_while(|(a, _)| *a < tokens.end);
        let mut graph = Self { neighbours: vec![Vec::new(); tokens.len()] };
        for (a, b) in own.filter(|(_, b)| *b < tokens.end) {
            graph.connect(a - tokens.start, b - tokens.start);
        }
        let mut seen = vec![false; tokens.len()];
        let mut tops = Vec::new();
        for token in 0..tokens.len() {
            if seen[token] {
                continue;
            }
            let part = graph.distances([token]);
            let mut top = None;
            for other in (0..tokens.len()).filter(|other| part[*other] < usize::MAX) {
                seen[other] = true;
                if parse.roots.binary_search(&(tokens.start + other)).is_ok() {
                    top = top.or(Some(other));
                }
            }
            tops.push(top.unwrap_or(token));
        }
        for pair in tops.windows(2) {
            graph.connect(pair[0], pair[1]);
        }
        graph.neighbours.iter_mut().for_each(|own| own.sort_unstable());
        graph
    }

    fn connect(&mut self, a: usize, b: usize) {
        self.neighbours[a].push(b);
        self.neighbours[b].push(a);
    }

    /// The number of edges from each token to the nearest of `sources`; [`usize::MAX`] without a source.
    #[must_use]
    pub fn distances(&self, sources: impl IntoIterator<Item = usize>) -> Vec<usize> {
        self.search(sources).0
    }

    /// The tokens of a shortest path from one of `from` to one of `to`, both ends included. It ends at the first of several equally
    /// near tokens. Empty if one of both is.
    #[must_use]
    pub fn path(
        &self,
        from: impl IntoIterator<Item = usize>,
        to: impl IntoIterator<Item = usize>,
    ) -> Vec<usize> {
        let (distances, before) = self.search(from);
        let nearest = to.into_iter().min_by_key(|token| (distances[*token], *token));
        let mut path = Vec::new();
        let mut next = nearest.filter(|token| distances[*token] < usize::MAX);
        while let Some(token) = next {
            path.push(token);
            next = before[token];
        }
        path.reverse();
        path
    }

    /// For each token the distance to the nearest source, and the next token on the way to it.
    fn search(&self, sources: impl IntoIterator<Item = usize>) -> (Vec<usize>, Vec<Option<usize>>) {
        let mut distances = vec![usize::MAX; self.neighbours.len()];
        let mut before = vec![None; self.neighbours.len()];
        let mut queue: VecDeque<usize> = VecDeque::new();
        for source in sources {
            if distances[source] == usize::MAX {
                distances[source] = 0;
                queue.push_back(source);
            }
        }
        while let Some(token) = queue.pop_front() {
            for &other in &self.neighbours[token] {
                if distances[other] == usize::MAX {
                    distances[other] = distances[token] + 1;
                    before[other] = Some(token);
                    queue.push_back(other);
                }
            }
        }
        (distances, before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_of_a_sentence_are_connected_by_their_roots() {
        // Tokens 2 to 8 are the sentence: 3 depends on 2, which a word before the sentence governs; 5 and 4 depend on 6, a root;
        // 7 is a root, and nothing depends on it.
        let parse = Parse::new([(3, 2), (2, 1), (5, 6), (6, 4), (0, 1), (6, 6)], vec![7, 0, 6]);
        let graph = SentenceGraph::new(&parse, 2..8);
        // 2 and 3; then 4, 5 and 6 by their root 6; then 7.
        assert_eq!(graph.distances([0]), [0, 1, 2, 2, 1, 2]);
        assert_eq!(graph.path([1], [5, 3]), [1, 0, 4, 3]);
        assert_eq!(graph.path([1, 3], [3]), [3]);
        assert_eq!(graph.path([], [3]), [] as [usize; 0]);
        assert_eq!(graph.distances([1, 5]), [1, 0, 2, 2, 1, 0]);
    }

    proptest! {
        #[test]
        fn distances_satisfy_their_definition(
            heads in prop::collection::vec(0_usize..12, 1..12),
            source in 0_usize..12,
        ) {
            let count = heads.len();
            let edges = heads.iter().enumerate().map(|(token, head)| (token, head % count));
            let graph = SentenceGraph::new(&Parse::new(edges, vec![]), 0..count);
            // Floyd and Warshall's recursion is the reference.
            let far = 1_000;
            let mut all = vec![vec![far; count]; count];
            for (token, own) in graph.neighbours.iter().enumerate() {
                all[token][token] = 0;
                own.iter().for_each(|other| all[token][*other] = if *other == token { 0 } else { 1 });
            }
            for middle in 0..count {
                for a in 0..count {
                    for b in 0..count {
                        all[a][b] = all[a][b].min(all[a][middle] + all[middle][b]);
                    }
                }
            }
            let source = source % count;
            let found = graph.distances([source]);
            prop_assert!(found.iter().all(|distance| *distance < far));
            prop_assert_eq!(&found, &all[source]);
            for (target, distance) in found.iter().enumerate() {
                let path = graph.path([source], [target]);
                prop_assert_eq!((path[0], path[path.len() - 1]), (source, target));
                prop_assert_eq!(path.len(), distance + 1);
                prop_assert!(path.windows(2).all(|step| graph.neighbours[step[0]].contains(&step[1])));
            }
        }
    }
}
