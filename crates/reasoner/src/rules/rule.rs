//! Rules and their walks over a graph.

use super::graph::{Graph, Step};

/// An argument of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first one.
    Subject,
    /// The second one.
    Object,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Subject => Self::Object,
            Self::Object => Self::Subject,
        }
    }
}

/// The relation between a rule's body and its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// `h(X,Y) <= b(X,A), c(A,Y)`: the body leads from the subject to the object.
    Cyclic,
    /// `h(X,c) <= b(X,A), c(A,d)` and `h(c,X) <= ..`: one argument of the head is a constant. The body starts
    /// at the other argument. With an empty body, the rule expresses only the frequency of the constant.
    Constant {
        /// The argument that is the constant.
        side: Side,
        /// The constant of the head.
        head: u32,
        /// The entity at the end of the body; any entity if `None`.
        end: Option<u32>,
    },
}

/// A rule without its counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clause {
    /// The relation that it predicts.
    pub relation: u32,
    /// The relation between head and body.
    pub shape: Shape,
    /// The relations of the body, in the order of the walk.
    pub body: Vec<Step>,
}

/// A rule: a clause with its counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The clause.
    pub clause: Clause,
    /// The number of distinct predictions on the evaluated triples, or on a sample of them.
    pub predicted: u32,
    /// The number of them that are triples.
    pub support: u32,
    /// `support / (predicted + c)` with the miner's pessimistic constant `c`.
    pub confidence: f32,
}

/// The largest number of edges that a single walk visits. It limits hubs, equally in mining and application.
pub(super) const EDGES: usize = 20_000;

impl Rule {
    /// Whether it was mined, so that it has counts. Rules of people have none.
    pub fn is_mined(&self) -> bool {
        self.predicted > 0
    }
}

impl Clause {
    /// Walks along the body from a node. Calls `found` with every end, possibly repeatedly, until it returns
    /// `false` or a limit is reached. All nodes of a walk differ from each other and from `avoid`.
    fn walk(&self, graph: &Graph, from: u32, avoid: Option<u32>, found: &mut dyn FnMut(&[u32]) -> bool) {
        let mut nodes = vec![from];
        let mut left = EDGES;
        descend(graph, &self.body, avoid, &mut nodes, &mut left, found);
    }

    /// The objects that a cyclic clause predicts for a subject, sorted; empty for other clauses.
    pub fn objects(&self, graph: &Graph, subject: u32) -> Vec<u32> {
        self.ends(graph, subject)
    }

    /// The subjects that a cyclic clause predicts for an object, sorted; empty for other clauses.
    pub fn subjects(&self, graph: &Graph, object: u32) -> Vec<u32> {
        let body = self.body.iter().rev().map(|step| step.reversed()).collect();
        Self { relation: self.relation, shape: self.shape, body }.ends(graph, object)
    }

    fn ends(&self, graph: &Graph, from: u32) -> Vec<u32> {
        let mut ends = Vec::new();
        if self.shape == Shape::Cyclic {
            self.walk(graph, from, None, &mut |nodes| {
                ends.extend(nodes.last());
                true
            });
        }
        ends.sort_unstable();
        ends.dedup();
        ends
    }

    /// The entities that satisfy the body of a clause with a constant, sorted; empty for a cyclic clause or
    /// an empty body.
    pub fn satisfying(&self, graph: &Graph) -> Vec<u32> {
        let Shape::Constant { head, end, .. } = self.shape else { return Vec::new() };
        let (Some(&first), Some(_)) = (self.body.first(), self.body.last()) else { return Vec::new() };
        let mut found = Vec::new();
        if let Some(end) = end {
            let body: Vec<Step> = self.body.iter().rev().map(|step| step.reversed()).collect();
            let reversed = Self { relation: self.relation, shape: self.shape, body };
            // The head's constant may be the end of the body, but not an inner node.
            let avoid = (end != head).then_some(head);
            reversed.walk(graph, end, avoid, &mut |nodes| {
                found.extend(nodes.last());
                true
            });
        } else {
            for &source in graph.sources(first) {
                if source != head && self.is_satisfied(graph, source) {
                    found.push(source);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether an entity satisfies the body of a clause with a constant.
    pub fn is_satisfied(&self, graph: &Graph, entity: u32) -> bool {
        self.grounding(graph, entity).is_some()
    }

    /// The nodes of the body's first walk from an entity that satisfies a clause with a constant.
    fn grounding(&self, graph: &Graph, entity: u32) -> Option<Vec<u32>> {
        let Shape::Constant { head, end, .. } = self.shape else { return None };
        if entity == head {
            return None;
        }
        let mut result = None;
        let avoid = (end != Some(head)).then_some(head);
        match end {
            // A walk from the constant's side would visit fewer nodes, but in another order.
            Some(end) => self.walk_to(graph, entity, end, avoid, &mut result),
            None => self.walk(graph, entity, avoid, &mut |nodes| {
                result = Some(nodes.to_vec());
                false
            }),
        }
        result
    }

    /// The first walk from one node to another. The last step is looked up.
    fn walk_to(&self, graph: &Graph, from: u32, to: u32, avoid: Option<u32>, result: &mut Option<Vec<u32>>) {
        let Some((&last, before)) = self.body.split_last() else { return };
        if from == to {
            return;
        }
        let mut nodes = vec![from];
        let mut left = EDGES;
        descend(graph, before, avoid, &mut nodes, &mut left, &mut |nodes| {
            let at = nodes[nodes.len() - 1];
            if !nodes.contains(&to) && graph.has(at, last, to) {
                let mut whole = nodes.to_vec();
                whole.push(to);
                *result = Some(whole);
            }
            result.is_none()
        });
    }

    /// The body's triples that make a clause predict a triple, in the order of the walk; `None` without a
    /// prediction. Empty for a clause without a body.
    pub fn explain(&self, graph: &Graph, subject: u32, object: u32) -> Option<Vec<(u32, u32, u32)>> {
        let nodes = match self.shape {
            Shape::Cyclic => {
                let mut result = None;
                self.walk_to(graph, subject, object, None, &mut result);
                result?
            }
            Shape::Constant { side, head, .. } => {
                let (constant, entity) = match side {
                    Side::Subject => (subject, object),
                    Side::Object => (object, subject),
                };
                if constant != head {
                    return None;
                }
                if self.body.is_empty() { vec![entity] } else { self.grounding(graph, entity)? }
            }
        };
        Some(
            self.body
                .iter()
                .zip(nodes.windows(2))
                .map(|(step, ends)| step.triple(ends[0], ends[1]))
                .collect(),
        )
    }
}

fn descend(
    graph: &Graph,
    body: &[Step],
    avoid: Option<u32>,
    nodes: &mut Vec<u32>,
    left: &mut usize,
    found: &mut dyn FnMut(&[u32]) -> bool,
) -> bool {
    let Some((&step, rest)) = body.split_first() else { return found(nodes) };
    for edge in graph.along(nodes[nodes.len() - 1], step) {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        if nodes.contains(&edge.to) || avoid == Some(edge.to) {
            continue;
        }
        nodes.push(edge.to);
        let go_on = descend(graph, rest, avoid, nodes, left, found);
        nodes.pop();
        if !go_on {
            return false;
        }
    }
    true
}
