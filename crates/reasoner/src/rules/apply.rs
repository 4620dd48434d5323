//! Applying rules: predictions for an entity and a relation, their confidence, and explanations.

use std::cmp::Ordering;

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    graph::{Graph, Step},
    mine::sort,
    rule::{Rule, Shape, Side},
};

/// How the confidences of several rules for one entity are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// The best rule's confidence. Ties are decided by the next best rules in turn, and then by the number of
    /// rules.
    #[default]
    Maximum,
    /// `1 - (1-a)(1-b)..`, as if the rules were independent.
    NoisyOr,
}

/// How rules are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ApplyOptions {
    /// `maximum` or `noisy-or`.
    pub aggregation: Aggregation,
    /// The largest number of rules for one prediction; the best ones count.
    #[schemars(range(min = 1))]
    pub depth: usize,
}

impl Default for ApplyOptions {
    fn default() -> Self {
        Self { aggregation: Aggregation::Maximum, depth: 20 }
    }
}

/// A predicted entity.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The entity.
    pub entity: u32,
    /// The combined confidence of its rules, 0 to 1.
    pub confidence: f32,
    /// The rules, as positions in [`RuleBase::rules`], best first; at most `depth`.
    pub rules: Vec<u32>,
}

/// The explanation of a predicted triple.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The rule's position in [`RuleBase::rules`].
    pub rule: u32,
    /// The triples of its body in the order of the walk; empty for a rule without a body.
    pub triples: Vec<(u32, u32, u32)>,
}

/// Rules over a graph, indexed for application.
#[derive(Clone, Debug)]
pub struct RuleBase {
    graph: Graph,
    rules: Vec<Rule>,
    options: ApplyOptions,
    /// Cyclic rules by relation.
    cyclic: FxHashMap<u32, Vec<u32>>,
    /// Rules with a constant by relation, the constant's side, and the constant.
    by_head: FxHashMap<(u32, Side, u32), Vec<u32>>,
    /// Rules with a constant and an empty body, by relation and the constant's side.
    empty: FxHashMap<(u32, Side), Vec<u32>>,
    /// Rules with a constant and a one-atom body, by relation, the constant's side, the atom and its last
    /// argument.
    by_atom: FxHashMap<(u32, Side, Step, Option<u32>), Vec<u32>>,
    /// The entities that satisfy longer bodies of rules with a constant: rule positions by relation, the
    /// constant's side, and the entity.
    by_entity: FxHashMap<(u32, Side, u32), Vec<u32>>,
}

impl RuleBase {
    /// Indexes rules; they are sorted best first.
    pub fn new(graph: Graph, mut rules: Vec<Rule>, options: ApplyOptions) -> Self {
        sort(&mut rules);
        let satisfying: Vec<Vec<u32>> = rules
            .par_iter()
            .map(|rule| if rule.clause.body.len() > 1 { rule.clause.satisfying(&graph) } else { Vec::new() })
            .collect();
        let mut base = Self {
            graph,
            rules: Vec::new(),
            options,
            cyclic: FxHashMap::default(),
            by_head: FxHashMap::default(),
            empty: FxHashMap::default(),
            by_atom: FxHashMap::default(),
            by_entity: FxHashMap::default(),
        };
        for (at, (rule, satisfying)) in rules.iter().zip(satisfying).enumerate() {
            let at = at as u32;
            let relation = rule.clause.relation;
            match rule.clause.shape {
                Shape::Cyclic => base.cyclic.entry(relation).or_default().push(at),
                Shape::Constant { side, head, end } => {
                    base.by_head.entry((relation, side, head)).or_default().push(at);
                    match rule.clause.body[..] {
                        [] => base.empty.entry((relation, side)).or_default().push(at),
                        [step] => base.by_atom.entry((relation, side, step, end)).or_default().push(at),
                        _ => {
                            for entity in satisfying {
                                base.by_entity.entry((relation, side, entity)).or_default().push(at);
                            }
                        }
                    }
                }
            }
        }
        base.rules = rules;
        base
    }

    /// The rules, best first.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The triples that they are applied to.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Predicts the argument `unknown` of a relation from the argument `known`: best first, ties by ascending
    /// entity. Triples already in the graph are predicted too.
    pub fn predict(&self, known: u32, relation: u32, unknown: Side) -> Vec<Prediction> {
        let mut found: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        self.cyclic(known, relation, unknown, &mut found);
        self.for_known_constant(known, relation, unknown, &mut found);
        self.for_predicted_constant(known, relation, unknown, &mut found);
        let mut predictions: Vec<Prediction> = found
            .into_iter()
            .map(|(entity, mut rules)| {
                rules.sort_unstable();
                rules.dedup();
                rules.truncate(self.options.depth.max(1));
                Prediction { entity, confidence: self.together(&rules), rules }
            })
            .collect();
        predictions.sort_unstable_by(|a, b| self.compare(a, b).then(a.entity.cmp(&b.entity)));
        predictions
    }

    fn cyclic(&self, known: u32, relation: u32, unknown: Side, found: &mut FxHashMap<u32, Vec<u32>>) {
        for &at in self.cyclic.get(&relation).into_iter().flatten() {
            let clause = &self.rules[at as usize].clause;
            let ends = match unknown {
                Side::Object => clause.objects(&self.graph, known),
                Side::Subject => clause.subjects(&self.graph, known),
            };
            for entity in ends {
                found.entry(entity).or_default().push(at);
            }
        }
    }

    /// Rules whose constant is the known argument. They predict every entity that satisfies their bodies.
    fn for_known_constant(
        &self,
        known: u32,
        relation: u32,
        unknown: Side,
        found: &mut FxHashMap<u32, Vec<u32>>,
    ) {
        for &at in self.by_head.get(&(relation, unknown.other(), known)).into_iter().flatten() {
            for entity in self.rules[at as usize].clause.satisfying(&self.graph) {
                found.entry(entity).or_default().push(at);
            }
        }
    }

    /// Rules whose constant is predicted. The known argument must satisfy their bodies.
    fn for_predicted_constant(
        &self,
        known: u32,
        relation: u32,
        unknown: Side,
        found: &mut FxHashMap<u32, Vec<u32>>,
    ) {
        let mut put = |at: u32| {
            if let Shape::Constant { head, .. } = self.rules[at as usize].clause.shape
                && head != known
            {
                found.entry(head).or_default().push(at);
            }
        };
        self.empty.get(&(relation, unknown)).into_iter().flatten().copied().for_each(&mut put);
        self.by_entity.get(&(relation, unknown, known)).into_iter().flatten().copied().for_each(&mut put);
        for edges in self.graph.edges(known).chunk_by(|a, b| a.step == b.step) {
            for edge in edges {
                let rules = self.by_atom.get(&(relation, unknown, edge.step, Some(edge.to)));
                rules.into_iter().flatten().copied().for_each(&mut put);
            }
            for &at in self.by_atom.get(&(relation, unknown, edges[0].step, None)).into_iter().flatten() {
                if self.rules[at as usize].clause.is_satisfied(&self.graph, known) {
                    put(at);
                }
            }
        }
    }

    fn together(&self, rules: &[u32]) -> f32 {
        let confidence = |at: u32| self.rules[at as usize].confidence;
        match self.options.aggregation {
            Aggregation::Maximum => rules.first().map_or(0.0, |&at| confidence(at)),
            Aggregation::NoisyOr => {
                let wrong: f64 = rules.iter().map(|&at| 1.0 - f64::from(confidence(at))).product();
                (1.0 - wrong) as f32
            }
        }
    }

    /// Better predictions order first.
    fn compare(&self, a: &Prediction, b: &Prediction) -> Ordering {
        let confidences = |prediction: &Prediction| -> Vec<f32> {
            prediction.rules.iter().map(|&at| self.rules[at as usize].confidence).collect()
        };
        match self.options.aggregation {
            Aggregation::NoisyOr => b.confidence.total_cmp(&a.confidence),
            Aggregation::Maximum => {
                let (a, b) = (confidences(a), confidences(b));
                let first = a.iter().zip(&b).map(|(a, b)| b.total_cmp(a)).find(|order| order.is_ne());
                first.unwrap_or_else(|| b.len().cmp(&a.len()))
            }
        }
    }

    /// A score for every entity below `entities`, in the order of [`predict`](Self::predict). It is the
    /// confidence, lowered just enough to separate ranked predictions. Equal predictions have equal scores.
    /// Entities without a rule get 0.
    pub fn scores(&self, known: u32, relation: u32, unknown: Side, entities: usize) -> Vec<f32> {
        let mut scores = vec![0.0; entities];
        let predictions = self.predict(known, relation, unknown);
        let mut last = f32::INFINITY;
        for group in predictions.chunk_by(|a, b| self.compare(a, b).is_eq()) {
            last = group[0].confidence.min(last.next_down());
            for prediction in group {
                if let Some(score) = scores.get_mut(prediction.entity as usize) {
                    *score = last;
                }
            }
        }
        scores
    }

    /// Explains a prediction for `known`: the groundings of its best `count` rules.
    pub fn explain(
        &self,
        known: u32,
        unknown: Side,
        prediction: &Prediction,
        count: usize,
    ) -> Vec<Explanation> {
        let (subject, object) = match unknown {
            Side::Object => (known, prediction.entity),
            Side::Subject => (prediction.entity, known),
        };
        let explain = |&at: &u32| {
            let triples = self.rules[at as usize].clause.explain(&self.graph, subject, object)?;
            Some(Explanation { rule: at, triples })
        };
        prediction.rules.iter().filter_map(explain).take(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::rule::Clause;

    const CHILD: u32 = 0;
    const SPOUSE: u32 = 1;
    const LIVES: u32 = 2;
    const SPEAKS: u32 = 3;

    /// 0 and 1 are married with a child 2. 0 lives in 10; 10 speaks 11 as well.
    fn graph() -> Graph {
        Graph::new([
            (0, SPOUSE, 1),
            (1, SPOUSE, 0),
            (0, CHILD, 2),
            (0, LIVES, 10),
            (2, SPEAKS, 20),
            (3, LIVES, 10),
        ])
    }

    fn rule(relation: u32, shape: Shape, body: &[Step], confidence: f32) -> Rule {
        let clause = Clause { relation, shape, body: body.to_vec() };
        Rule { clause, predicted: 10, support: 5, confidence }
    }

    fn constant(head: u32, end: Option<u32>) -> Shape {
        Shape::Constant { side: Side::Object, head, end }
    }

    fn rules() -> Vec<Rule> {
        vec![
            rule(SPEAKS, constant(20, None), &[], 0.2),
            rule(SPEAKS, constant(20, Some(10)), &[Step::forward(LIVES)], 0.5),
            rule(SPEAKS, constant(21, Some(10)), &[Step::forward(LIVES)], 0.5),
            rule(
                SPEAKS,
                constant(22, Some(10)),
                &[Step::forward(CHILD), Step::backward(CHILD), Step::forward(LIVES)],
                0.9,
            ),
            rule(SPEAKS, Shape::Cyclic, &[Step::forward(CHILD), Step::forward(SPEAKS)], 0.4),
            rule(CHILD, Shape::Cyclic, &[Step::forward(SPOUSE), Step::forward(CHILD)], 0.8),
            rule(SPEAKS, constant(23, None), &[Step::forward(SPOUSE)], 0.3),
        ]
    }

    fn entities(predictions: &[Prediction]) -> Vec<u32> {
        predictions.iter().map(|prediction| prediction.entity).collect()
    }

    #[test]
    fn the_best_rules_decide_and_the_next_best_break_ties() {
        let base = RuleBase::new(graph(), rules(), ApplyOptions::default());
        let found = base.predict(0, SPEAKS, Side::Object);
        // 20 and 21 have the same best confidence, and 20 has two more rules. 22's rule would have to return
        // to 0.
        assert_eq!(entities(&found), [20, 21, 23]);
        assert_eq!(found[0].rules.len(), 3);
        let scores = base.scores(0, SPEAKS, Side::Object, 24);
        assert!(scores[20] > scores[21] && scores[21] > scores[23] && scores[22] == 0.0);
        assert!((scores[21] - 0.5).abs() < 1e-6);
    }

    #[test]
    fn noisy_or_adds_what_rules_say() {
        let options = ApplyOptions { aggregation: Aggregation::NoisyOr, depth: 2 };
        let base = RuleBase::new(graph(), rules(), options);
        let found = base.predict(0, SPEAKS, Side::Object);
        // The two best rules of 20: 1 - 0.5 * 0.6.
        assert!((found[0].confidence - 0.7).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn subjects_are_predicted_as_well() {
        let base = RuleBase::new(graph(), rules(), ApplyOptions::default());
        // Everyone who lives in 10 speaks 20. 0 also matches the rule over the child, which has less
        // confidence.
        assert_eq!(entities(&base.predict(20, SPEAKS, Side::Subject)), [0, 3]);
        assert_eq!(entities(&base.predict(2, CHILD, Side::Subject)), [1]);
    }

    #[test]
    fn a_prediction_is_explained_by_the_triples_of_each_body() {
        let base = RuleBase::new(graph(), rules(), ApplyOptions::default());
        let found = base.predict(0, SPEAKS, Side::Object);
        let why = base.explain(0, Side::Object, &found[0], 3);
        let triples: Vec<&[(u32, u32, u32)]> = why.iter().map(|why| &why.triples[..]).collect();
        assert_eq!(triples, [&[(0, LIVES, 10)][..], &[(0, CHILD, 2), (2, SPEAKS, 20)][..], &[][..]]);
        let child = base.predict(2, CHILD, Side::Subject);
        assert_eq!(base.explain(2, Side::Subject, &child[0], 1)[0].triples, [(1, SPOUSE, 0), (0, CHILD, 2)]);
    }

    #[test]
    fn rules_predict_the_same_from_either_side() {
        let base = RuleBase::new(graph(), rules(), ApplyOptions::default());
        for relation in [CHILD, SPEAKS] {
            for subject in 0..24 {
                for prediction in base.predict(subject, relation, Side::Object) {
                    let back = base.predict(prediction.entity, relation, Side::Subject);
                    let same = back.iter().find(|back| back.entity == subject);
                    let bodies = |rules: &[u32]| -> Vec<u32> {
                        let has_body = |&&at: &&u32| !base.rules()[at as usize].clause.body.is_empty();
                        rules.iter().filter(has_body).copied().collect()
                    };
                    let rules = bodies(&prediction.rules);
                    assert_eq!(
                        same.map_or(vec![], |back| bodies(&back.rules)),
                        rules,
                        "{subject} {relation}"
                    );
                }
            }
        }
    }
}
