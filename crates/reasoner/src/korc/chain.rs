//! Reasoning chains: rule groundings that start in a document and end in the knowledge base.

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::rules::{Clause, Graph, Rule, Shape};

/// A triple of ids.
pub type Numbers = (u32, u32, u32);

/// The derivation of an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    /// The derived answer.
    pub answer: u32,
    /// The index of the rule.
    pub rule: usize,
    /// The triples from the document, in the order of the walk.
    pub document: Vec<Numbers>,
    /// The triples from the knowledge base.
    pub knowledge: Vec<Numbers>,
}

/// A chain in a file, with the names of the knowledge base.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct WrittenChain {
    /// The answer's id.
    pub answer: String,
    /// The rule.
    pub rule: String,
    /// The triples from the document.
    pub document: Vec<[String; 3]>,
    /// The triples from the knowledge base.
    pub knowledge: Vec<[String; 3]>,
}

/// Returns the best chain of each answer: the first chain of the best rule.
///
/// `rules` are those of one relation, best first. The nodes of a chain are distinct. An answer is in `wanted`
/// and not in `mentioned`. No triple of `held` is used.
pub fn chains(
    rules: &[(usize, &Rule)],
    document: &Graph,
    knowledge: &Graph,
    entity: u32,
    wanted: &[u32],
    mentioned: &[u32],
    held: &FxHashSet<Numbers>,
) -> Vec<Chain> {
    let mut found: Vec<Chain> = Vec::new();
    let mut answered: FxHashSet<u32> = FxHashSet::default();
    for &(rule, Rule { clause, .. }) in rules {
        if clause.shape != Shape::Cyclic || clause.body.len() < 2 || answered.len() == wanted.len() {
            continue;
        }
        let mut take = |chain: Chain| {
            let fits = wanted.contains(&chain.answer) && !mentioned.contains(&chain.answer);
            if fits && answered.insert(chain.answer) {
                found.push(chain);
            }
        };
        let walk = Walk { clause, document, knowledge, held, rule };
        walk.go(&mut vec![entity], 0, &mut take);
    }
    found.sort_unstable();
    found
}

struct Walk<'a> {
    clause: &'a Clause,
    document: &'a Graph,
    knowledge: &'a Graph,
    held: &'a FxHashSet<Numbers>,
    rule: usize,
}

impl Walk<'_> {
    /// Continues the walk from the last of `nodes`. The first `in_document` steps use the document's triples.
    fn go(&self, nodes: &mut Vec<u32>, in_document: usize, take: &mut dyn FnMut(Chain)) {
        let walked = nodes.len() - 1;
        let body = &self.clause.body;
        let at = nodes[walked];
        if walked == body.len() {
            let mut triples =
                body.iter().zip(nodes.windows(2)).map(|(step, ends)| step.triple(ends[0], ends[1]));
            let document = triples.by_ref().take(in_document).collect();
            take(Chain { answer: at, rule: self.rule, document, knowledge: triples.collect() });
            return;
        }
        let step = body[walked];
        // The document's steps come first. There is at least one, and the last step is not one of them.
        if walked == in_document && walked + 1 < body.len() {
            for edge in self.document.along(at, step) {
                self.step(edge.to, nodes, in_document + 1, take);
            }
        }
        if walked > 0 {
            for edge in self.knowledge.along(at, step) {
                if !self.document.has(at, step, edge.to) && !self.held.contains(&step.triple(at, edge.to)) {
                    self.step(edge.to, nodes, in_document, take);
                }
            }
        }
    }

    fn step(&self, to: u32, nodes: &mut Vec<u32>, in_document: usize, take: &mut dyn FnMut(Chain)) {
        if !nodes.contains(&to) {
            nodes.push(to);
            self.go(nodes, in_document, take);
            nodes.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Step;

    #[test]
    fn chains_start_in_the_document_and_end_outside_of_it() {
        // 0 born in 1, 1 in 2, 2 speaks 3 and 4. The document contains the first triple, or the first two.
        let (born, within, speaks, asked) = (0, 1, 2, 3);
        let knowledge =
            Graph::new([(0, born, 1), (1, within, 2), (2, speaks, 3), (2, speaks, 4), (1, speaks, 5)]);
        let rule = |body: &[Step], confidence| Rule {
            clause: Clause { relation: asked, shape: Shape::Cyclic, body: body.to_vec() },
            predicted: 1,
            support: 1,
            confidence,
        };
        let f = Step::forward;
        let rules = [
            rule(&[f(born), f(within), f(speaks)], 0.9),
            rule(&[f(born), f(speaks)], 0.5),
            rule(&[f(born)], 0.4),
        ];
        let rules: Vec<(usize, &Rule)> = rules.iter().enumerate().collect();
        let with = |said: &[Numbers], mentioned: &[u32], held: &[Numbers]| {
            let document = Graph::new(said.iter().copied());
            let held = held.iter().copied().collect();
            chains(&rules, &document, &knowledge, 0, &[1, 3, 5], mentioned, &held)
        };
        let found = |said: &[Numbers], mentioned: &[u32]| with(said, mentioned, &[]);
        let short = found(&[(0, born, 1)], &[0, 1]);
        assert_eq!(
            short.iter().map(|chain| (chain.answer, chain.rule)).collect::<Vec<_>>(),
            [(3, 0), (5, 1)]
        );
        assert_eq!(short[0].document, [(0, born, 1)]);
        assert_eq!(short[0].knowledge, [(1, within, 2), (2, speaks, 3)]);
        let long = found(&[(0, born, 1), (1, within, 2)], &[0, 1, 2]);
        assert_eq!((long[0].document.len(), long[0].knowledge.len()), (2, 1));
        assert_eq!(with(&[(0, born, 1)], &[], &[(1, within, 2)]).len(), 1);
        // A mentioned entity is no answer. No chain starts without a triple of the document.
        assert_eq!(found(&[(0, born, 1)], &[3]).len(), 1);
        assert_eq!(found(&[(1, within, 2)], &[]), []);
    }
}
