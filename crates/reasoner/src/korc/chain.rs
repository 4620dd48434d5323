//! Reasoning chains: rule groundings that start in a document and end in the knowledge base.

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::rules::{Clause, Graph, Shape, Step};

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

/// A rule's body as the steps from a question's entity to its answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The index of the rule.
    pub rule: usize,
    /// The steps.
    pub steps: Vec<Step>,
}

impl Route {
    /// The route of a rule for its relation in one direction. `None` for a rule with constants, and for a body of
    /// one atom, whose end the document states.
    pub fn of(rule: usize, clause: &Clause, backward: bool) -> Option<Self> {
        let is_chain = clause.shape == Shape::Cyclic && clause.body.len() > 1;
        let steps = match backward {
            false => clause.body.clone(),
            true => clause.body.iter().rev().map(|step| step.reversed()).collect(),
        };
        is_chain.then_some(Self { rule, steps })
    }
}

/// The triples that chains walk along.
#[derive(Clone, Copy, Debug)]
pub struct Graphs<'a> {
    /// The document's triples.
    pub document: &'a Graph,
    /// The knowledge base's triples.
    pub knowledge: &'a Graph,
    /// Triples of the knowledge base that no chain uses.
    pub held: &'a FxHashSet<Numbers>,
}

/// The limits of a search for chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The search ends at this number of answers.
    pub answers: usize,
    /// The number of edges after which the walk along a route ends.
    pub edges: usize,
}

/// Returns the best chain of each answer: the first chain along the best route.
///
/// `routes` are those of one relation, best first. The nodes of a chain are distinct. Each chain starts with a
/// triple of the document and ends with one that only the knowledge base has. `is_answer` decides which ends
/// are answers.
pub fn chains(
    routes: &[Route],
    graphs: Graphs<'_>,
    entity: u32,
    is_answer: &dyn Fn(u32) -> bool,
    limits: Limits,
) -> Vec<Chain> {
    let mut found: Vec<Chain> = Vec::new();
    let mut answered: FxHashSet<u32> = FxHashSet::default();
    for Route { rule, steps } in routes {
        if answered.len() >= limits.answers {
            break;
        }
        let mut take = |nodes: &[u32], in_document: usize| {
            let Some(&answer) = nodes.last() else { return true };
            if is_answer(answer) && answered.insert(answer) {
                let mut triples =
                    steps.iter().zip(nodes.windows(2)).map(|(step, ends)| step.triple(ends[0], ends[1]));
                let document = triples.by_ref().take(in_document).collect();
                found.push(Chain { answer, rule: *rule, document, knowledge: triples.collect() });
            }
            answered.len() < limits.answers
        };
        let mut walk = Walk { steps, graphs, edges: limits.edges, take: &mut take };
        walk.go(&mut vec![entity], 0);
    }
    found.sort_unstable();
    found
}

struct Walk<'a> {
    steps: &'a [Step],
    graphs: Graphs<'a>,
    /// The number of edges that may still be walked.
    edges: usize,
    /// Takes the nodes of a walk and the number of steps in the document. Returns whether the walk continues.
    take: &'a mut dyn FnMut(&[u32], usize) -> bool,
}

impl Walk<'_> {
    /// Continues the walk from the last of `nodes`. The first `in_document` steps use the document's triples.
    /// Returns whether the walk continues.
    fn go(&mut self, nodes: &mut Vec<u32>, in_document: usize) -> bool {
        let walked = nodes.len() - 1;
        let at = nodes[walked];
        if walked == self.steps.len() {
            return (self.take)(nodes, in_document);
        }
        let step = self.steps[walked];
        let Graphs { document, knowledge, held } = self.graphs;
        // The document's steps come first. There is at least one, and the last step is not one of them.
        if walked == in_document && walked + 1 < self.steps.len() {
            for edge in document.along(at, step) {
                if !self.step(edge.to, nodes, in_document + 1) {
                    return false;
                }
            }
        }
        if walked > 0 {
            for edge in knowledge.along(at, step) {
                let usable = !document.has(at, step, edge.to) && !held.contains(&step.triple(at, edge.to));
                if usable && !self.step(edge.to, nodes, in_document) {
                    return false;
                }
            }
        }
        true
    }

    fn step(&mut self, to: u32, nodes: &mut Vec<u32>, in_document: usize) -> bool {
        if self.edges == 0 {
            return false;
        }
        self.edges -= 1;
        if nodes.contains(&to) {
            return true;
        }
        nodes.push(to);
        let continues = self.go(nodes, in_document);
        nodes.pop();
        continues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BORN: u32 = 0;
    const WITHIN: u32 = 1;
    const SPEAKS: u32 = 2;
    const ASKED: u32 = 3;
    const ALL: Limits = Limits { answers: usize::MAX, edges: usize::MAX };

    /// 0 born in 1, 1 in 2, 2 speaks 3 and 4, 1 speaks 5.
    fn knowledge() -> Graph {
        Graph::new([(0, BORN, 1), (1, WITHIN, 2), (2, SPEAKS, 3), (2, SPEAKS, 4), (1, SPEAKS, 5)])
    }

    fn routes(bodies: &[&[Step]], backward: bool) -> Vec<Route> {
        let clause = |body: &[Step]| Clause { relation: ASKED, shape: Shape::Cyclic, body: body.to_vec() };
        let route = |(at, body): (usize, &&[Step])| Route::of(at, &clause(body), backward);
        bodies.iter().enumerate().filter_map(route).collect()
    }

    #[test]
    fn chains_start_in_the_document_and_end_outside_of_it() {
        let knowledge = knowledge();
        let f = Step::forward;
        let routes = routes(&[&[f(BORN), f(WITHIN), f(SPEAKS)], &[f(BORN), f(SPEAKS)], &[f(BORN)]], false);
        assert_eq!(routes.len(), 2);
        let with = |said: &[Numbers], mentioned: &[u32], held: &[Numbers], limits: Limits| {
            let document = Graph::new(said.iter().copied());
            let held = held.iter().copied().collect();
            let graphs = Graphs { document: &document, knowledge: &knowledge, held: &held };
            chains(&routes, graphs, 0, &|answer| !mentioned.contains(&answer), limits)
        };
        let found = |said: &[Numbers], mentioned: &[u32]| with(said, mentioned, &[], ALL);
        let answers = |chains: &[Chain]| -> Vec<(u32, usize)> {
            chains.iter().map(|chain| (chain.answer, chain.rule)).collect()
        };
        let short = found(&[(0, BORN, 1)], &[0, 1]);
        assert_eq!(answers(&short), [(3, 0), (4, 0), (5, 1)]);
        assert_eq!(short[0].document, [(0, BORN, 1)]);
        assert_eq!(short[0].knowledge, [(1, WITHIN, 2), (2, SPEAKS, 3)]);
        let long = found(&[(0, BORN, 1), (1, WITHIN, 2)], &[0, 1, 2]);
        assert_eq!((long[0].document.len(), long[0].knowledge.len()), (2, 1));
        assert_eq!(answers(&with(&[(0, BORN, 1)], &[], &[(1, WITHIN, 2)], ALL)), [(5, 1)]);
        // A mentioned entity is no answer. No chain starts without a triple of the document.
        assert_eq!(answers(&found(&[(0, BORN, 1)], &[3, 4])), [(5, 1)]);
        assert_eq!(found(&[(1, WITHIN, 2)], &[]), []);
        // The search ends at a number of answers, or at a number of edges: the first route has four, to 1, 2, 3
        // and 4, and the second has two.
        let limited = |answers, edges| with(&[(0, BORN, 1)], &[], &[], Limits { answers, edges });
        assert_eq!(answers(&limited(1, usize::MAX)), [(3, 0)]);
        assert_eq!(answers(&limited(9, 3)), [(3, 0), (5, 1)]);
    }

    #[test]
    fn an_inverse_relation_is_asked_along_the_reversed_body() {
        // Who speaks 3, of people whose town is in a country with this language? The document states the last step.
        let knowledge = knowledge();
        let f = Step::forward;
        let routes = routes(&[&[f(BORN), f(WITHIN), f(SPEAKS)]], true);
        let back = Step::backward;
        assert_eq!(routes[0].steps, [back(SPEAKS), back(WITHIN), back(BORN)]);
        let document = Graph::new([(2, SPEAKS, 3)]);
        let held = FxHashSet::default();
        let graphs = Graphs { document: &document, knowledge: &knowledge, held: &held };
        let found = chains(&routes, graphs, 3, &|_| true, ALL);
        let expected = Chain {
            answer: 0,
            rule: 0,
            document: vec![(2, SPEAKS, 3)],
            knowledge: vec![(1, WITHIN, 2), (0, BORN, 1)],
        };
        assert_eq!(found, [expected]);
    }
}
