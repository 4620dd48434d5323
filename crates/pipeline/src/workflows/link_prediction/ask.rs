//! Queries for the object or the subject of a triple, with explanations of the answers.

use std::path::Path;

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, RelationId, Triple, TripleIndex};
use sporran_reasoner::{
    LinkModel,
    embedding::TripleScorer,
    rules::{self, RuleScorer, Side},
};

use super::model::{self, rules_over};
use crate::Result;

/// The number of queries in a batch.
const PORTION: usize = 64;

/// A triple without its subject or without its object.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkQuestion {
    /// The name of the subject; `None` to query it.
    pub subject: Option<String>,
    /// The name of the relation.
    pub relation: String,
    /// The name of the object; `None` to query it.
    pub object: Option<String>,
}

/// An entity that completes the triple.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LinkAnswer {
    /// The name of the entity.
    pub entity: String,
    /// The label of the entity; its name if the knowledge base has no label.
    pub label: String,
    /// The score. Scores of one query are comparable; a larger score is more plausible.
    pub score: f32,
    /// The explanations, the strongest first.
    pub chains: Vec<Chain>,
}

/// Triples of the knowledge base that explain an answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Chain {
    /// The rule that the triples instantiate; `None` without a rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The confidence of the rule. For a network, the first-order contribution of the path to the answer's log-probability.
    pub weight: f32,
    /// The names of subject, relation and object of each triple, in the order of the path; empty for a rule without a body.
    pub triples: Vec<[String; 3]>,
    /// The labels of these; the name where the knowledge base has no label.
    pub labels: Vec<[String; 3]>,
}

/// Options of queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskOptions {
    /// The largest number of answers.
    pub answers: usize,
    /// The largest number of chains of an answer.
    pub chains: usize,
    /// Whether entities of known training triples are answers as well.
    pub known: bool,
}

/// Answers queries by a model, by rules, or by a model with explanations by rules.
pub struct LinkPredictor {
    kb: KnowledgeBase,
    scorer: Scorer,
    known: TripleIndex,
}

/// The scorer of answers. Next to a model, rules only explain.
enum Scorer {
    Rules(RuleScorer),
    Model(LinkModel, Option<RuleScorer>),
}

/// A resolved query: the given entity, the relation, and whether the subject is queried.
type ResolvedQuery = (EntityId, RelationId, bool);

impl LinkPredictor {
    /// Opens a knowledge base with the model of a folder (an embedding or a network), a file of mined rules,
    /// or both. If there is a model, it ranks the answers.
    ///
    /// # Errors
    /// Errors of files, a model of another knowledge base, and neither model nor rules.
    pub fn open(kb: &Path, model: Option<&Path>, rules: Option<&Path>) -> Result<Self> {
        let kb = KnowledgeBase::open(kb)?;
        let rules = rules.map(|path| rules_over(&kb, path)).transpose()?;
        let scorer = match (model, rules) {
            (Some(model), rules) => Scorer::Model(model::open(model, &kb)?, rules),
            (None, Some(rules)) => Scorer::Rules(rules),
            (None, None) => {
                let message = "expected a model or rules, found neither".to_owned();
                return Err(sporran_reasoner::Error::Argument(message).into());
            }
        };
        let known = kb.index(&[Part::Train]);
        Ok(Self { kb, scorer, known })
    }

    /// The knowledge base.
    #[must_use]
    pub fn kb(&self) -> &KnowledgeBase {
        &self.kb
    }

    /// Resolves the names of a query.
    ///
    /// # Errors
    /// If not exactly one of subject and object is given, or a name is not in the knowledge base.
    pub fn resolve(&self, question: &LinkQuestion) -> Result<(EntityId, RelationId, bool), String> {
        let (name, subjects) = match (&question.subject, &question.object) {
            (Some(name), None) => (name, false),
            (None, Some(name)) => (name, true),
            _ => return Err("expected either `subject` or `object`".into()),
        };
        let field = if subjects { "object" } else { "subject" };
        let entity =
            self.kb.entity(name).ok_or_else(|| format!("`{field}`: the knowledge base has no `{name}`"))?;
        let relation = self.kb.relation(&question.relation);
        let relation = relation
            .ok_or_else(|| format!("`relation`: the knowledge base has no `{}`", question.relation))?;
        Ok((entity, relation, subjects))
    }

    /// The answers to each query, best first. Equal scores are ordered by id. With rules only, entities that
    /// no rule predicts are not answers.
    ///
    /// # Errors
    /// Those of the scorer.
    pub fn ask(&self, queries: &[ResolvedQuery], options: AskOptions) -> Result<Vec<Vec<LinkAnswer>>> {
        let entities = self.kb.entity_count();
        let mut answers = Vec::with_capacity(queries.len());
        for portion in queries.chunks(PORTION) {
            let scores = self.scores(portion)?;
            let rows = portion.par_iter().zip(scores.par_chunks_exact(entities));
            let found: Result<Vec<_>> =
                rows.map(|(query, scores)| self.best(*query, scores, options)).collect();
            answers.extend(found?);
        }
        Ok(answers)
    }

    /// The scores of all entities for each query, as rows.
    fn scores(&self, queries: &[ResolvedQuery]) -> Result<Vec<f32>> {
        let scorer: &dyn TripleScorer = match &self.scorer {
            Scorer::Rules(rules) => rules,
            Scorer::Model(model, _) => model.scorer(),
        };
        let entities = self.kb.entity_count();
        let mut scores = vec![0.0; queries.len() * entities];
        for subjects in [false, true] {
            let rows: Vec<usize> = (0..queries.len()).filter(|&row| queries[row].2 == subjects).collect();
            if rows.is_empty() {
                continue;
            }
            let mut part = vec![0.0; rows.len() * entities];
            if subjects {
                let questions: Vec<_> = rows.iter().map(|&row| (queries[row].1, queries[row].0)).collect();
                scorer.score_subjects(&questions, &mut part)?;
            } else {
                let questions: Vec<_> = rows.iter().map(|&row| (queries[row].0, queries[row].1)).collect();
                scorer.score_objects(&questions, &mut part)?;
            }
            for (&row, part) in rows.iter().zip(part.chunks_exact(entities)) {
                scores[row * entities..][..entities].copy_from_slice(part);
            }
        }
        Ok(scores)
    }

    /// The best answers to a query by the scores of all entities.
    fn best(&self, query: ResolvedQuery, scores: &[f32], options: AskOptions) -> Result<Vec<LinkAnswer>> {
        let (entity, relation, subjects) = query;
        let (network, rules) = match &self.scorer {
            Scorer::Rules(rules) => (None, Some(rules)),
            Scorer::Model(model, rules) => (model.network(), rules.as_ref()),
        };
        let known = if subjects {
            self.known.subjects(relation, entity)
        } else {
            self.known.objects(entity, relation)
        };
        let is_by_rules = matches!(self.scorer, Scorer::Rules(_));
        let mut order: Vec<usize> = (0..scores.len())
            .filter(|&at| options.known || !known.contains(&EntityId(at as u32)))
            .filter(|&at| !is_by_rules || scores[at] > 0.0)
            .collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
        order.truncate(options.answers);
        let side = if subjects { Side::Subject } else { Side::Object };
        let predicted = rules.map(|rules| (rules.rules(), rules.rules().predict(entity.0, relation.0, side)));
        let answer = |at: usize| {
            let answer = EntityId(at as u32);
            let mut chains = Vec::new();
            if let Some((rules, predicted)) = &predicted {
                let found = predicted.iter().filter(|prediction| prediction.entity == answer.0);
                for explanation in
                    found.flat_map(|found| rules.explain(entity.0, side, found, options.chains))
                {
                    let rule = &rules.rules()[explanation.rule as usize];
                    let triples = explanation.triples.into_iter().map(|(s, r, o)| Triple::new(s, r, o));
                    let text = rules::text(&rule.clause, &self.kb);
                    chains.push(self.chain(Some(text), rule.confidence, triples));
                }
            }
            if let Some(network) = network {
                let paths = network.explain((entity, relation), subjects, answer, options.chains)?;
                chains.extend(paths.into_iter().map(|path| self.chain(None, path.weight, path.triples)));
            }
            Ok(LinkAnswer {
                entity: self.kb.entity_name(answer).to_owned(),
                label: self.kb.label(answer).to_owned(),
                score: scores[at],
                chains,
            })
        };
        order.into_iter().map(answer).collect()
    }

    fn chain(&self, rule: Option<String>, weight: f32, walk: impl IntoIterator<Item = Triple>) -> Chain {
        let kb = &self.kb;
        let (mut triples, mut labels) = (Vec::new(), Vec::new());
        for Triple { subject, relation, object } in walk {
            let names = [kb.entity_name(subject), kb.relation_name(relation), kb.entity_name(object)];
            let called = [kb.label(subject), kb.relation_label(relation), kb.label(object)];
            triples.push(names.map(str::to_owned));
            labels.push(called.map(str::to_owned));
        }
        Chain { rule, weight, triples, labels }
    }
}
