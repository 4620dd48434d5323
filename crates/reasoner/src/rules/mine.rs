//! Rule mining: paths of the graph are sampled and generalised to rules, and the rules are evaluated on the
//! graph.
//!
//! The bottom-up algorithm of AnyBURL (Meilicke, Chekol, Ruffinelli and Stuckenschmidt, IJCAI 2019). The
//! entities of one grounding are distinct (object identity), and confidences have a pessimistic constant in
//! the denominator. The kinds of paths are sampled in turn, one batch at a time. A kind stops when its
//! batches give few new rules. Every sample has a separate random stream, so rules depend on the seed and the
//! number of batches, not on threads.

use std::{
    ops::ControlFlow,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    graph::{Edge, Graph, Step},
    rule::{Clause, Rule, Shape, Side},
};
use crate::{Error, Result};

/// The options of mining. The limits of single walks are fixed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MineOptions {
    /// The largest number of atoms in a body that leads from subject to object; 1 to 3.
    #[schemars(range(min = 1, max = 3))]
    pub cyclic_length: usize,
    /// The largest number of atoms in the body of a rule with a constant in its head; 0 to 3.
    #[schemars(range(max = 3))]
    pub acyclic_length: usize,
    /// Paths in a batch.
    #[schemars(range(min = 1))]
    pub batch: usize,
    /// The largest number of batches.
    #[schemars(extend("x-unit" = "batches"))]
    pub batches: usize,
    /// Seconds after which no further batch starts. With it, the rules depend on the machine.
    #[schemars(range(min = 0), extend("x-unit" = "seconds"))]
    pub seconds: Option<f64>,
    /// A kind of path stops when this share of a batch's rules is already known.
    #[schemars(range(min = 0, max = 1))]
    pub saturation: f64,
    /// The smallest number of correct predictions of a rule.
    pub min_support: u32,
    /// The smallest confidence of a rule.
    #[schemars(range(min = 0, max = 1))]
    pub min_confidence: f32,
    /// Added to the number of predictions of every rule, as if they were wrong.
    #[schemars(range(min = 0))]
    pub pessimistic: f32,
    /// The number of predictions after which the evaluation of a cyclic rule stops. Its start entities are in
    /// random order.
    #[schemars(range(min = 1))]
    pub sample: usize,
}

impl Default for MineOptions {
    fn default() -> Self {
        Self {
            cyclic_length: 3,
            acyclic_length: 1,
            batch: 20_000,
            batches: 100,
            seconds: None,
            saturation: 0.99,
            min_support: 2,
            min_confidence: 0.001,
            pessimistic: 5.0,
            sample: 2_000,
        }
    }
}

impl MineOptions {
    /// Checks ranges.
    ///
    /// # Errors
    /// [`Error::Argument`] with the first wrong key.
    pub fn check(&self) -> Result<()> {
        let wrong = |key: &str, expected: &str| Err(Error::Argument(format!("{key}: expected {expected}")));
        match () {
            () if !(1..=3).contains(&self.cyclic_length) => wrong("cyclic-length", "1, 2 or 3"),
            () if self.acyclic_length > 3 => wrong("acyclic-length", "0 to 3"),
            () if self.batch == 0 => wrong("batch", "at least 1"),
            () if self.sample == 0 => wrong("sample", "at least 1"),
            () if self.seconds.is_some_and(|seconds| seconds.is_nan() || seconds < 0.0) => {
                wrong("seconds", "a number of seconds")
            }
            () if !(0.0..=1.0).contains(&self.saturation) => wrong("saturation", "a share from 0 to 1"),
            () if !(0.0..=1.0).contains(&self.min_confidence) => {
                wrong("min-confidence", "a share from 0 to 1")
            }
            () if !(self.pessimistic >= 0.0 && self.pessimistic.is_finite()) => {
                wrong("pessimistic", "a number of at least 0")
            }
            () => Ok(()),
        }
    }
}

/// The progress of mining.
#[derive(Clone, Debug, PartialEq)]
pub struct MineProgress {
    /// Finished batches.
    pub batches: usize,
    /// Rules that are good enough.
    pub rules: usize,
    /// Rules that were evaluated.
    pub evaluated: usize,
}

/// The kind of path that a batch samples.
#[derive(Clone, Copy)]
enum Kind {
    Cyclic(usize),
    Acyclic(usize),
}

/// Mines rules, best first: by confidence, then support, then content.
///
/// `progress` is called after every batch. If it stops the mining, the rules so far are returned.
///
/// # Errors
/// [`Error::Argument`] for an option out of range.
pub fn mine(
    graph: &Graph,
    options: &MineOptions,
    seed: u64,
    progress: &mut dyn FnMut(&MineProgress) -> ControlFlow<()>,
) -> Result<Vec<Rule>> {
    options.check()?;
    let begin = Instant::now();
    let mut met: FxHashSet<Clause> = FxHashSet::default();
    let mut rules = evaluate(graph, options, seed, constants(graph));
    let mut kinds: Vec<Kind> = (1..=options.cyclic_length).map(Kind::Cyclic).collect();
    kinds.extend((1..=options.acyclic_length).map(Kind::Acyclic));
    let mut turn = 0;
    for batch in 0..if graph.triples().is_empty() { 0 } else { options.batches } {
        let late = options.seconds.is_some_and(|seconds| begin.elapsed() >= Duration::from_secs_f64(seconds));
        if kinds.is_empty() || late {
            break;
        }
        turn %= kinds.len();
        let kind = kinds[turn];
        let mut sampled: Vec<Clause> = (0..options.batch as u64)
            .into_par_iter()
            .flat_map_iter(|number| {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                rng.set_stream((batch as u64) << 32 | number);
                sample(graph, kind, &mut rng)
            })
            .collect();
        sampled.par_sort_unstable();
        sampled.dedup();
        let all = sampled.len();
        sampled.retain(|clause| met.insert(clause.clone()));
        let new = sampled.len();
        rules.extend(evaluate(graph, options, seed, sampled));
        let known = if all == 0 { 1.0 } else { 1.0 - new as f64 / all as f64 };
        if known >= options.saturation {
            kinds.remove(turn);
        } else {
            turn += 1;
        }
        let state = MineProgress { batches: batch + 1, rules: rules.len(), evaluated: met.len() };
        if progress(&state).is_break() {
            break;
        }
    }
    sort(&mut rules);
    Ok(rules)
}

pub(super) fn sort(rules: &mut [Rule]) {
    rules.par_sort_unstable_by(|a, b| {
        b.confidence
            .total_cmp(&a.confidence)
            .then(b.support.cmp(&a.support))
            .then_with(|| a.clause.cmp(&b.clause))
    });
}

/// The clauses with an empty body: one for each constant in a triple of a relation.
fn constants(graph: &Graph) -> Vec<Clause> {
    let mut heads: Vec<(u32, Side, u32)> =
        graph.triples().iter().flat_map(|&(s, r, o)| [(r, Side::Subject, s), (r, Side::Object, o)]).collect();
    heads.sort_unstable();
    heads.dedup();
    let clause = |(relation, side, head)| Clause {
        relation,
        shape: Shape::Constant { side, head, end: None },
        body: Vec::new(),
    };
    heads.into_iter().map(clause).collect()
}

/// The generalisations of one random path.
fn sample(graph: &Graph, kind: Kind, rng: &mut ChaCha8Rng) -> Vec<Clause> {
    let triples = graph.triples();
    let (s, relation, o) = triples[rng.random_range(0..triples.len())];
    if s == o {
        return Vec::new();
    }
    match kind {
        Kind::Cyclic(length) => cyclic(graph, (s, relation, o), length, rng)
            .map(|body| Clause { relation, shape: Shape::Cyclic, body })
            .into_iter()
            .collect(),
        Kind::Acyclic(length) => {
            let side = if rng.random_bool(0.5) { Side::Subject } else { Side::Object };
            let (head, from) = match side {
                Side::Subject => (s, o),
                Side::Object => (o, s),
            };
            let Some((body, end)) = acyclic(graph, from, head, (s, relation, o), length, rng) else {
                return Vec::new();
            };
            let with_end =
                |end| Clause { relation, shape: Shape::Constant { side, head, end }, body: body.clone() };
            // A body that ends with the head's constant is not generalised to any end.
            if end == head { vec![with_end(Some(end))] } else { vec![with_end(Some(end)), with_end(None)] }
        }
    }
}

/// A random walk from the subject to the object that does not use the triple itself. It proceeds from both
/// ends, so the middle edge is only looked up.
fn cyclic(
    graph: &Graph,
    (s, relation, o): (u32, u32, u32),
    length: usize,
    rng: &mut ChaCha8Rng,
) -> Option<Vec<Step>> {
    let (mut from, mut to) = (s, o);
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for walked in 1..length {
        if walked % 2 == 1 {
            let edge = random_edge(graph, from, rng).filter(|edge| edge.to != s && edge.to != o)?;
            before.push(edge.step);
            from = edge.to;
        } else {
            let edge =
                random_edge(graph, to, rng).filter(|edge| edge.to != s && edge.to != o && edge.to != from)?;
            after.push(edge.step.reversed());
            to = edge.to;
        }
    }
    let between = graph.between(from, to);
    let itself = Step::forward(relation);
    let choices = between.iter().filter(|edge| length > 1 || edge.step != itself).count();
    if choices == 0 {
        return None;
    }
    let middle =
        between.iter().filter(|edge| length > 1 || edge.step != itself).nth(rng.random_range(0..choices))?;
    before.push(middle.step);
    before.extend(after.into_iter().rev());
    Some(before)
}

/// A random walk from an entity that does not use the triple itself, with its last node.
fn acyclic(
    graph: &Graph,
    from: u32,
    head: u32,
    triple: (u32, u32, u32),
    length: usize,
    rng: &mut ChaCha8Rng,
) -> Option<(Vec<Step>, u32)> {
    let mut nodes = vec![from];
    let mut body = Vec::with_capacity(length);
    for walked in 1..=length {
        let at = nodes[nodes.len() - 1];
        let edge = random_edge(graph, at, rng)?;
        // The walk may end at the head's constant, by another relation.
        let meets_head = edge.to == head && walked < length;
        if edge.step.triple(at, edge.to) == triple || nodes.contains(&edge.to) || meets_head {
            return None;
        }
        body.push(edge.step);
        nodes.push(edge.to);
    }
    Some((body, nodes[length]))
}

/// A random edge of a node. Half of the time it is uniform over all edges, otherwise over the edges of one
/// random step, so that frequent relations do not hide the others.
fn random_edge(graph: &Graph, node: u32, rng: &mut ChaCha8Rng) -> Option<Edge> {
    let edges = graph.edges(node);
    if edges.is_empty() {
        return None;
    }
    let any = edges[rng.random_range(0..edges.len())];
    if rng.random_bool(0.5) {
        return Some(any);
    }
    let steps: Vec<&[Edge]> = edges.chunk_by(|a, b| a.step == b.step).collect();
    let chosen = steps[rng.random_range(0..steps.len())];
    Some(chosen[rng.random_range(0..chosen.len())])
}

/// Evaluates clauses. Returns those that pass, with their counts, in order.
fn evaluate(graph: &Graph, options: &MineOptions, seed: u64, clauses: Vec<Clause>) -> Vec<Rule> {
    clauses
        .into_par_iter()
        .filter_map(|clause| {
            let (predicted, support) = match clause.shape {
                Shape::Cyclic => count_cyclic(graph, &clause, options.sample, seed),
                Shape::Constant { .. } => count_constant(graph, &clause),
            };
            let confidence = support as f32 / (predicted as f32 + options.pessimistic);
            let passes = support >= options.min_support.max(1) && confidence >= options.min_confidence;
            passes.then_some(Rule { clause, predicted, support, confidence })
        })
        .collect()
}

/// Counts predictions and correct predictions of a cyclic clause, up to `limit`, from entities in random
/// order.
fn count_cyclic(graph: &Graph, clause: &Clause, limit: usize, seed: u64) -> (u32, u32) {
    let sources = graph.sources(clause.body[0]);
    let head = Step::forward(clause.relation);
    let (mut predicted, mut support) = (0, 0);
    let mut count = |source: u32| {
        for object in clause.objects(graph, source) {
            predicted += 1;
            support += u32::from(graph.has(source, head, object));
        }
        (predicted as usize) < limit
    };
    if sources.len() <= 64 {
        for &source in sources {
            if !count(source) {
                break;
            }
        }
    } else {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(fingerprint(clause));
        for at in index::sample(&mut rng, sources.len(), sources.len().min(limit)) {
            if !count(sources[at]) {
                break;
            }
        }
    }
    (predicted, support)
}

/// A hash of a clause, the same on every machine.
fn fingerprint(clause: &Clause) -> u64 {
    clause.body.iter().fold(0xcbf2_9ce4_8422_2325 ^ u64::from(clause.relation), |hash, &step| {
        (hash ^ (u64::from(step.relation()) << 1 | u64::from(step.is_backward())))
            .wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Counts all predictions and correct predictions of a clause with a constant.
fn count_constant(graph: &Graph, clause: &Clause) -> (u32, u32) {
    let Shape::Constant { side, head, .. } = clause.shape else { return (0, 0) };
    // From the constant towards the entity.
    let step = match side {
        Side::Subject => Step::forward(clause.relation),
        Side::Object => Step::backward(clause.relation),
    };
    let right = graph.along(head, step);
    if clause.body.is_empty() {
        return (graph.sources(step.reversed()).len() as u32, right.len() as u32);
    }
    let satisfying = clause.satisfying(graph);
    let support = satisfying
        .iter()
        .filter(|&&entity| right.binary_search_by_key(&entity, |edge| edge.to).is_ok())
        .count();
    (satisfying.len() as u32, support as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten couples, each with a child; the children live where their first parent lives.
    fn families() -> Graph {
        const SPOUSE: u32 = 0;
        const CHILD: u32 = 1;
        const LIVES: u32 = 2;
        Graph::new((0..10).flat_map(|family| {
            let (a, b, child, town) = (3 * family, 3 * family + 1, 3 * family + 2, 100 + family % 3);
            vec![
                (a, SPOUSE, b),
                (b, SPOUSE, a),
                (a, CHILD, child),
                (b, CHILD, child),
                (a, LIVES, town),
                (child, LIVES, town),
            ]
        }))
    }

    fn options() -> MineOptions {
        MineOptions { batch: 500, batches: 30, pessimistic: 0.0, acyclic_length: 2, ..MineOptions::default() }
    }

    fn find(rules: &[Rule], clause: &Clause) -> Rule {
        rules.iter().find(|rule| rule.clause == *clause).unwrap().clone()
    }

    #[test]
    fn rules_of_each_length_are_found_with_their_figures() {
        let rules = mine(&families(), &options(), 1, &mut |_| ControlFlow::Continue(())).unwrap();
        let cyclic = |relation, body: &[Step]| Clause { relation, shape: Shape::Cyclic, body: body.to_vec() };
        // spouse(X,Y) <= spouse(Y,X): twenty predictions, all correct.
        let symmetric = find(&rules, &cyclic(0, &[Step::backward(0)]));
        assert_eq!((symmetric.predicted, symmetric.support, symmetric.confidence), (20, 20, 1.0));
        // lives(X,Y) <= child(A,X), lives(A,Y): only first parents have a place, and the rule is correct for
        // all ten.
        let town = find(&rules, &cyclic(2, &[Step::backward(1), Step::forward(2)]));
        assert_eq!((town.predicted, town.support), (10, 10));
        // child(X,Y) <= spouse(X,A), child(A,Y).
        assert_eq!(find(&rules, &cyclic(1, &[Step::forward(0), Step::forward(1)])).support, 20);
        // lives(X,Y) <= spouse(X,A), child(A,B), lives(B,Y): both of each couple, one of whom is known to
        // live there.
        let long = find(&rules, &cyclic(2, &[Step::forward(0), Step::forward(1), Step::forward(2)]));
        assert_eq!((long.predicted, long.support), (20, 10));
        // lives(X,100) without a body: twenty people live somewhere, eight of them in 100.
        let constant = Shape::Constant { side: Side::Object, head: 100, end: None };
        let zero = find(&rules, &Clause { relation: 2, shape: constant, body: vec![] });
        assert_eq!((zero.predicted, zero.support), (20, 8));
        assert!(rules.is_sorted_by(|a, b| a.confidence >= b.confidence));
    }

    #[test]
    fn a_seed_gives_the_same_rules_with_any_number_of_threads() {
        let graph = families();
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| mine(&graph, &options(), 7, &mut |_| ControlFlow::Continue(())).unwrap())
        };
        assert_eq!(with(1), with(4));
    }

    #[test]
    fn judging_stops_at_its_sample() {
        let graph = Graph::new((0..200).flat_map(|x| [(x, 0, 1000 + x), (x, 1, 1000 + x)]));
        let clause = Clause { relation: 0, shape: Shape::Cyclic, body: vec![Step::forward(1)] };
        assert_eq!(count_cyclic(&graph, &clause, 50, 1), (50, 50));
        assert_eq!(count_cyclic(&graph, &clause, 2000, 1), (200, 200));
    }

    #[test]
    fn an_empty_graph_has_no_rules_and_wrong_options_are_named() {
        let none = Graph::new([]);
        assert_eq!(mine(&none, &options(), 1, &mut |_| ControlFlow::Continue(())).unwrap(), []);
        let wrong = MineOptions { cyclic_length: 4, ..options() };
        let error = mine(&none, &wrong, 1, &mut |_| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(error.to_string(), "cyclic-length: expected 1, 2 or 3");
    }
}
