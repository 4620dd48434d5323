//! Questions for the object or the subject of a triple, answered with what speaks for each answer.

use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use sporran_kilt::kb::{EntityId, KnowledgeBase, Part, RelationId, Triple, TripleIndex};
use sporran_reasoner::{
    embedding::TripleScorer,
    rules::{self, RuleScorer, Side},
};

use super::model::{LinkModel, rules_over};
use crate::Result;

/// Questions that are scored together.
const PORTION: usize = 64;

/// A triple of which one entity is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkQuestion {
    /// The subject's name; none where it is asked for.
    pub subject: Option<String>,
    /// The relation's name.
    pub relation: String,
    /// The object's name; none where it is asked for.
    pub object: Option<String>,
}

/// An entity that may complete the triple.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkAnswer {
    /// Its name.
    pub entity: String,
    /// What it is called, where the knowledge base tells.
    pub label: String,
    /// What the scorer says; greater is more plausible among the answers of one question.
    pub score: f32,
    /// What speaks for it, the strongest first.
    pub chains: Vec<Chain>,
}

/// Triples of the knowledge base that speak for an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chain {
    /// The rule that they are a case of, where a rule predicts the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The rule's confidence; of a network, what the path counts for the logarithm of the answer's chance, to first order.
    pub weight: f32,
    /// Names of subject, relation and object, in the order of the walk; none for a rule without a body.
    pub triples: Vec<[String; 3]>,
    /// What these are called; a name where the knowledge base tells no more.
    pub labels: Vec<[String; 3]>,
}

/// What is given back for a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskOptions {
    /// Answers, at most.
    pub answers: usize,
    /// Chains of an answer, at most.
    pub chains: usize,
    /// Whether what the training part says already is an answer too.
    pub known: bool,
}

/// What answers questions: a model, rules, or a model whose answers rules tell more of.
pub struct Asker {
    kb: KnowledgeBase,
    scorer: Scorer,
    known: TripleIndex,
}

/// What decides the order of answers, and what only speaks for them.
enum Scorer {
    Rules(RuleScorer),
    Model(LinkModel, Option<RuleScorer>),
}

/// A question in numbers: the entity that is known, the relation, and whether the subject is asked for.
type Asked = (EntityId, RelationId, bool);

impl Asker {
    /// Opens a knowledge base, the model of a folder (an embedding or a network), a file of mined rules, or both. A model decides the
    /// order of answers where there is one.
    ///
    /// # Errors
    /// Errors of files, a model of another knowledge base, and neither model nor rules.
    pub fn open(kb: &Path, model: Option<&Path>, rules: Option<&Path>) -> Result<Self> {
        let kb = KnowledgeBase::open(kb)?;
        let rules = rules.map(|path| rules_over(&kb, path)).transpose()?;
        let scorer = match (model, rules) {
            (Some(model), rules) => Scorer::Model(LinkModel::open(model, &kb)?, rules),
            (None, Some(rules)) => Scorer::Rules(rules),
            (None, None) => {
                let message = "expected a model or rules to ask, found neither".to_owned();
                return Err(sporran_reasoner::Error::Argument(message).into());
            }
        };
        let known = kb.index(&[Part::Train]);
        Ok(Self { kb, scorer, known })
    }

    /// A question in the numbers of the knowledge base.
    ///
    /// # Errors
    /// What is wrong: where not exactly one of subject and object is given, and for a name that the knowledge base does not know.
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

    /// The best answers of each question, best first; of equal scores the smaller number in the knowledge base. What has no chance,
    /// as rules say where none predicts it, is no answer.
    ///
    /// # Errors
    /// Those of the scorer.
    pub fn ask(&self, asked: &[Asked], options: AskOptions) -> Result<Vec<Vec<LinkAnswer>>> {
        let entities = self.kb.entity_count();
        let mut answers = Vec::with_capacity(asked.len());
        for portion in asked.chunks(PORTION) {
            let scores = self.scores(portion)?;
            let rows = portion.par_iter().zip(scores.par_chunks_exact(entities));
            let found: Result<Vec<_>> =
                rows.map(|(asked, scores)| self.best(*asked, scores, options)).collect();
            answers.extend(found?);
        }
        Ok(answers)
    }

    /// The scores of all entities for each question, row after row.
    fn scores(&self, asked: &[Asked]) -> Result<Vec<f32>> {
        let scorer: &dyn TripleScorer = match &self.scorer {
            Scorer::Rules(rules) => rules,
            Scorer::Model(model, _) => model.scorer(),
        };
        let entities = self.kb.entity_count();
        let mut scores = vec![0.0; asked.len() * entities];
        for subjects in [false, true] {
            let rows: Vec<usize> = (0..asked.len()).filter(|&row| asked[row].2 == subjects).collect();
            if rows.is_empty() {
                continue;
            }
            let mut part = vec![0.0; rows.len() * entities];
            if subjects {
                let questions: Vec<_> = rows.iter().map(|&row| (asked[row].1, asked[row].0)).collect();
                scorer.score_subjects(&questions, &mut part)?;
            } else {
                let questions: Vec<_> = rows.iter().map(|&row| (asked[row].0, asked[row].1)).collect();
                scorer.score_objects(&questions, &mut part)?;
            }
            for (&row, part) in rows.iter().zip(part.chunks_exact(entities)) {
                scores[row * entities..][..entities].copy_from_slice(part);
            }
        }
        Ok(scores)
    }

    /// The best answers of a question by the scores of all entities.
    fn best(&self, asked: Asked, scores: &[f32], options: AskOptions) -> Result<Vec<LinkAnswer>> {
        let (entity, relation, subjects) = asked;
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
