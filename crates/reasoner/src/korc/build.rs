//! The benchmark builder: questions in splits from documents, a knowledge base and rules.
//!
//! After KoRC (Yao et al., 2023). A question triple is an entity that a document mentions, and a relation in one
//! direction. A rule of the relation gives a chain, which starts with a triple of the document and ends at an
//! entity of the knowledge base that the document does not mention. The answers are the ends of all chains. With
//! `[build.facts]`, the answers are instead the entities that the knowledge base has for the question triple.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Id,
    kb::{EntityId, KnowledgeBase, Part, RelationId, Triple},
    korc::{INVERSE, Question, TopicEntity},
};

use super::{
    anonymise::{MARKS, anonymise, is_free, mark},
    chain::{Chain, Numbers, WrittenChain},
    derive::Derive,
    document::Document,
    names::Entities,
    split::{Unit, split},
    template::Templates,
};
use crate::{
    Error, Result,
    rules::{Graph, Rule, Step, text},
};

/// The options of the builder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BuildOptions {
    /// The smallest confidence of a mined rule that derives an answer. Rules of files derive answers with any score.
    #[schemars(range(min = 0, max = 1))]
    pub min_confidence: f32,
    /// Whether inverse relations are asked too, such as `Inv: has part`.
    pub inverse: bool,
    /// The largest number of answers of a question; 0 for no limit. A question with more is left out.
    #[schemars(extend("x-unit" = "answers"))]
    pub max_answers: usize,
    /// What the splits divide: `questions` as in the paper, or `documents`.
    pub split: Unit,
    /// The share of questions (or documents) for training.
    #[schemars(range(min = 0, max = 1))]
    pub train: f64,
    /// The share of questions (or documents) for validation; the rest are for tests. The default is that of table 1:
    /// of the questions before test documents lose entities, 50 % are for training and 20 % for validation.
    #[schemars(range(min = 0, max = 1))]
    pub valid: f64,
    /// The largest number of questions of a relation in a split; 0 for no limit.
    #[schemars(extend("x-unit" = "questions"))]
    pub per_relation: usize,
    /// `[build.facts]`: the answers are the known entities of the question triple, instead of the ends of all chains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactAnswers>,
}

/// `[build.facts]`: questions whose answers the knowledge base has. This is not KoRC's rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct FactAnswers {
    /// The share of a question's answers that chains must reach.
    #[schemars(range(min = 0, max = 1))]
    pub covered: f64,
    /// Whether question triples are removed from the knowledge base. Then no answer triple is part of another
    /// question's chain.
    pub hold_out: bool,
}

impl Default for FactAnswers {
    fn default() -> Self {
        Self { covered: 0.5, hold_out: true }
    }
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            min_confidence: 0.1,
            inverse: true,
            max_answers: 0,
            split: Unit::Questions,
            train: 0.5,
            valid: 0.2,
            per_relation: 0,
            facts: None,
        }
    }
}

impl BuildOptions {
    /// Checks ranges.
    ///
    /// # Errors
    /// [`Error::Argument`] with the first wrong key.
    pub fn check(&self) -> Result<()> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let wrong = |key: &str, expected: &str| Err(Error::Argument(format!("{key}: expected {expected}")));
        match () {
            () if !share(f64::from(self.min_confidence)) => wrong("min-confidence", "a share from 0 to 1"),
            () if self.facts.as_ref().is_some_and(|facts| !share(facts.covered)) => {
                wrong("facts.covered", "a share from 0 to 1")
            }
            () if !(share(self.train) && share(self.valid) && self.train + self.valid < 1.0) => {
                wrong("train and valid", "shares with a sum below 1, so that tests have documents")
            }
            () => Ok(()),
        }
    }

    /// Whether question triples are removed from the knowledge base.
    pub(super) fn holds_out(&self) -> bool {
        self.facts.as_ref().is_some_and(|facts| facts.hold_out)
    }
}

/// The inputs of the builder.
pub struct Sources<'a> {
    /// The knowledge base.
    pub kb: &'a KnowledgeBase,
    /// The names of its entities.
    pub entities: &'a Entities,
    /// The documents.
    pub documents: &'a [Document],
    /// The rules, best first.
    pub rules: &'a [Rule],
    /// The question templates of relations.
    pub templates: &'a Templates,
}

/// The names of the splits, which are those of KoRC's files.
pub const SPLITS: [&str; 4] = ["train", "valid", "small_iid_test", "small_ood_test"];

/// A built benchmark.
#[derive(Clone, Debug)]
pub struct Built {
    /// Questions by split, in the order of [`SPLITS`].
    pub questions: [Vec<Question>; 4],
    /// The origin of each question, in the same order.
    pub origins: [Vec<Origin>; 4],
    /// The remaining triples of the knowledge base.
    pub knowledge: Vec<Triple>,
}

/// The origin of a question.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    /// The index of the document.
    pub document: usize,
    /// The anonymised entity.
    pub entity: EntityId,
    /// The relation of the question, backward if the entity is its object.
    pub asked: Step,
    /// All answers, ascending.
    pub answers: Vec<EntityId>,
    /// The chains of the answers that have one.
    pub chains: Vec<Chain>,
}

impl Origin {
    /// The order of questions.
    pub(super) fn key(&self) -> (usize, EntityId, Step) {
        (self.document, self.entity, self.asked)
    }
}

/// Builds questions. The same sources and seed give the same questions.
///
/// # Errors
/// [`Error::Argument`] for options out of range; [`Error::Leak`] if a check of the result fails.
pub fn build(sources: &Sources<'_>, options: &BuildOptions, seed: u64) -> Result<Built> {
    options.check()?;
    let all: Vec<Triple> = sources.kb.triples(Part::Train).to_vec();
    let whole = Graph::of(&all);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let derive = Derive::new(sources, options, &whole);
    let candidates = match &options.facts {
        None => derive.by_chains(),
        Some(facts) if !facts.hold_out => derive.by_facts(facts),
        Some(facts) => derive.hold_out(derive.by_facts(facts), facts, &mut rng),
    };
    let origins = split(candidates, options, &mut rng);
    let held: FxHashSet<Numbers> = match options.holds_out() {
        true => origins.iter().flatten().flat_map(question_triples).collect(),
        false => FxHashSet::default(),
    };
    let knowledge = all.into_iter().filter(|triple| !held.contains(&numbers(triple))).collect();
    let mut built = Built { questions: Default::default(), origins: Default::default(), knowledge };
    for (at, origins) in origins.into_iter().enumerate() {
        for origin in origins {
            let number = built.questions[at].len();
            built.questions[at].push(question(
                sources,
                &origin,
                &format!("{}-{number}", SPLITS[at]),
                &mut rng,
            ));
            built.origins[at].push(origin);
        }
    }
    super::check::check(sources, &built, options)?;
    Ok(built)
}

pub(super) fn numbers(triple: &Triple) -> Numbers {
    (triple.subject.0, triple.relation.0, triple.object.0)
}

/// The triples of a question.
pub(super) fn question_triples(origin: &Origin) -> Vec<Numbers> {
    origin.answers.iter().map(|answer| origin.asked.triple(origin.entity.0, answer.0)).collect()
}

fn question(sources: &Sources<'_>, origin: &Origin, id: &str, rng: &mut ChaCha8Rng) -> Question {
    let Sources { kb, entities, documents, rules, templates } = sources;
    let document = &documents[origin.document];
    let class = entities.class(origin.entity).unwrap_or("entity");
    let labels: Vec<&str> = origin.answers.iter().filter_map(|answer| entities.label(*answer)).collect();
    // A number of this question alone, so that it does not identify others. `Derive` leaves out questions without a free one.
    let number = loop {
        let number = rng.random_range(0..MARKS);
        if is_free(class, number, &document.text, &labels) {
            break number;
        }
    };
    let mark = mark(class, number);
    let (title, context) = anonymise(document, origin.entity, entities.names(origin.entity), &mark);
    let asked = templates.ask(origin.asked, kb, &mark, rng);
    let relation = RelationId(origin.asked.relation());
    let directed =
        |name: &str| if origin.asked.is_backward() { format!("{INVERSE}{name}") } else { name.to_owned() };
    let named = |triples: &[Numbers]| -> Vec<[String; 3]> {
        let name = |&(s, r, o): &Numbers| {
            [kb.entity_name(EntityId(s)), kb.relation_name(RelationId(r)), kb.entity_name(EntityId(o))]
                .map(str::to_owned)
        };
        triples.iter().map(name).collect()
    };
    let chains: Vec<WrittenChain> = origin
        .chains
        .iter()
        .map(|chain| WrittenChain {
            answer: kb.entity_name(EntityId(chain.answer)).to_owned(),
            rule: text(&rules[chain.rule].clause, kb),
            document: named(&chain.document),
            knowledge: named(&chain.knowledge),
        })
        .collect();
    let mut extra = serde_json::Map::new();
    extra.insert("document_id".into(), document.id.clone().into());
    extra.insert("relation".into(), directed(kb.relation_name(relation)).into());
    extra.insert("relation_label".into(), directed(kb.relation_label(relation)).into());
    // Structs of strings are always valid JSON.
    extra.insert("chains".into(), serde_json::to_value(chains).unwrap_or_default());
    Question {
        id: Id::from(id),
        question: asked.clone(),
        title: Some(title),
        context: Some(context),
        text: None,
        gpt_best_question: None,
        template_question: Some(asked),
        answers: Some(
            origin.answers.iter().map(|&id| entities.label(id).unwrap_or_default().to_owned()).collect(),
        ),
        answer_ids: Some(origin.answers.iter().map(|&id| kb.entity_name(id).to_owned()).collect()),
        ans_ids: None,
        topic_entity: Some(TopicEntity::Many(vec![kb.entity_name(origin.entity).to_owned()])),
        provenance: document.place.clone().map(|place| vec![place]),
        extra,
    }
}
