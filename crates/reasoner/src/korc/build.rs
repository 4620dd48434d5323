//! The benchmark builder: questions in splits from documents, a knowledge base and rules.
//!
//! After KoRC (Yao et al., 2023). A question triple is an entity that a document mentions, a relation, and
//! all its objects in the knowledge base. It becomes a question if some rule derives enough of the objects.
//! The chains start in the document, and no object is mentioned there. With `hold-out`, the question triples
//! are removed from the knowledge base, so answers must be derived. Chains are then searched in the remaining
//! triples.

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Id,
    kb::{EntityId, KnowledgeBase, Part, RelationId, Triple},
    korc::{Question, TopicEntity},
};

use super::{
    anonymise::{anonymise, mark},
    chain::{Chain, Numbers, WrittenChain, chains},
    document::Document,
    names::Entities,
    template::Templates,
};
use crate::{
    Error, Result,
    rules::{Graph, Rule, text},
};

/// The options of the builder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BuildOptions {
    /// The smallest confidence of a rule that derives an answer.
    #[schemars(range(min = 0, max = 1))]
    pub min_confidence: f32,
    /// The share of a question's answers that chains must reach.
    #[schemars(range(min = 0, max = 1))]
    pub covered: f64,
    /// The largest number of answers of a question.
    #[schemars(range(min = 1))]
    pub max_answers: usize,
    /// Whether question triples are removed from the knowledge base.
    pub hold_out: bool,
    /// The share of documents for training.
    #[schemars(range(min = 0, max = 1))]
    pub train: f64,
    /// The share of documents for validation; the rest are for tests.
    #[schemars(range(min = 0, max = 1))]
    pub valid: f64,
    /// The largest number of questions of a relation in a split; 0 for no limit.
    #[schemars(extend("x-unit" = "questions"))]
    pub per_relation: usize,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            min_confidence: 0.1,
            covered: 0.5,
            max_answers: 10,
            hold_out: true,
            train: 0.5,
            valid: 0.1,
            per_relation: 0,
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
            () if !share(self.covered) => wrong("covered", "a share from 0 to 1"),
            () if self.max_answers == 0 => wrong("max-answers", "at least 1"),
            () if !(share(self.train) && share(self.valid) && self.train + self.valid < 1.0) => {
                wrong("train and valid", "shares with a sum below 1, so that tests have documents")
            }
            () => Ok(()),
        }
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
    /// The relation of the question.
    pub relation: RelationId,
    /// All answers.
    pub answers: Vec<EntityId>,
    /// The chains of the answers that have one.
    pub chains: Vec<Chain>,
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
    let mut candidates = candidates(sources, options, &whole);
    if options.hold_out {
        candidates = hold_out(sources, options, &whole, candidates, &mut rng);
    }
    let origins = split(candidates, options, &mut rng);
    let held: FxHashSet<Numbers> = match options.hold_out {
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
fn question_triples(origin: &Origin) -> Vec<Numbers> {
    origin.answers.iter().map(|answer| (origin.entity.0, origin.relation.0, answer.0)).collect()
}

/// Selects questions in random order. A question is dropped if its triple is in a chain of an earlier
/// question, or if its chains need a triple of an earlier one. Returns the questions in their original order.
fn hold_out(
    sources: &Sources<'_>,
    options: &BuildOptions,
    knowledge: &Graph,
    mut candidates: Vec<Origin>,
    rng: &mut ChaCha8Rng,
) -> Vec<Origin> {
    candidates.shuffle(rng);
    let derive = Derive::new(sources, options, knowledge);
    let (mut held, mut needed) = (FxHashSet::default(), FxHashSet::default());
    let mut taken = Vec::new();
    for mut origin in candidates {
        let asked = question_triples(&origin);
        if asked.iter().any(|triple| needed.contains(triple)) || !derive.seek(&mut origin, &held) {
            continue;
        }
        held.extend(asked);
        needed.extend(origin.chains.iter().flat_map(|chain| chain.knowledge.iter().copied()));
        taken.push(origin);
    }
    taken.sort_by_key(|origin| (origin.document, origin.entity, origin.relation));
    taken
}

/// Every candidate question, by document, entity and relation.
fn candidates(sources: &Sources<'_>, options: &BuildOptions, knowledge: &Graph) -> Vec<Origin> {
    let known = sources.kb.index(&[Part::Train]);
    let found: Vec<Origin> = sources
        .documents
        .par_iter()
        .enumerate()
        .flat_map_iter(|(document, content)| {
            let mentioned = content.entities();
            let mut found = Vec::new();
            for &entity in &mentioned {
                let Some(class) = sources.entities.class(entity) else { continue };
                if sources.entities.label(entity).is_none() {
                    continue;
                }
                for (relation, answers) in known.relations_of(entity) {
                    let fits = answers.len() <= options.max_answers
                        && answers.iter().all(|answer| {
                            !mentioned.contains(answer)
                                && *answer != entity
                                // The question's text will contain the class.
                                && sources.entities.label(*answer).is_some_and(|label| {
                                    !content.text.contains(label) && !class.contains(label)
                                })
                        });
                    if fits {
                        let answers = answers.to_vec();
                        found.push(Origin { document, entity, relation, answers, chains: Vec::new() });
                    }
                }
            }
            found
        })
        .collect();
    let derive = Derive::new(sources, options, knowledge);
    let held = FxHashSet::default();
    found.into_par_iter().filter_map(|mut origin| derive.seek(&mut origin, &held).then_some(origin)).collect()
}

/// Searches the chains of questions.
struct Derive<'a> {
    sources: &'a Sources<'a>,
    covered: f64,
    /// By relation, best first.
    rules: FxHashMap<u32, Vec<(usize, &'a Rule)>>,
    /// The triples of each document.
    said: Vec<Graph>,
    knowledge: &'a Graph,
}

impl<'a> Derive<'a> {
    fn new(sources: &'a Sources<'a>, options: &BuildOptions, knowledge: &'a Graph) -> Self {
        let mut rules: FxHashMap<u32, Vec<(usize, &Rule)>> = FxHashMap::default();
        let sure = |rule: &Rule| rule.confidence >= options.min_confidence;
        for (at, rule) in sources.rules.iter().enumerate().filter(|(_, rule)| sure(rule)) {
            rules.entry(rule.clause.relation).or_default().push((at, rule));
        }
        let said = sources.documents.par_iter().map(|document| Graph::of(&document.relations)).collect();
        Self { sources, covered: options.covered, rules, said, knowledge }
    }

    /// Searches a question's chains. Returns whether they reach enough of its answers.
    fn seek(&self, origin: &mut Origin, held: &FxHashSet<Numbers>) -> bool {
        let document = &self.sources.documents[origin.document];
        let mentioned: Vec<u32> = document.entities().iter().map(|entity| entity.0).collect();
        let wanted: Vec<u32> = origin.answers.iter().map(|answer| answer.0).collect();
        let rules = self.rules.get(&origin.relation.0).map_or(&[][..], Vec::as_slice);
        let said = &self.said[origin.document];
        origin.chains = chains(rules, said, self.knowledge, origin.entity.0, &wanted, &mentioned, held);
        !origin.chains.is_empty() && origin.chains.len() as f64 >= self.covered * wanted.len() as f64
    }
}

/// Assigns documents to splits. Test and validation splits keep one entity of a document.
fn split(candidates: Vec<Origin>, options: &BuildOptions, rng: &mut ChaCha8Rng) -> [Vec<Origin>; 4] {
    let mut documents: Vec<usize> = candidates.iter().map(|origin| origin.document).collect();
    documents.dedup();
    documents.shuffle(rng);
    let share = |share: f64| (documents.len() as f64 * share).round() as usize;
    let (train, valid) = (share(options.train), share(options.valid));
    let place: FxHashMap<usize, usize> =
        documents.iter().enumerate().map(|(at, &document)| (document, at)).collect();
    let mut splits: [Vec<Origin>; 4] = Default::default();
    let mut later: Vec<Vec<Origin>> = Vec::new();
    for origin in candidates {
        if place[&origin.document] < train {
            splits[0].push(origin);
        } else {
            match later.last_mut() {
                Some(group) if group[0].document == origin.document => group.push(origin),
                _ => later.push(vec![origin]),
            }
        }
    }
    cap(&mut splits[0], options.per_relation, rng);
    let trained: FxHashSet<(EntityId, RelationId)> =
        splits[0].iter().map(|origin| (origin.entity, origin.relation)).collect();
    for mut group in later {
        let kept = group[rng.random_range(0..group.len())].entity;
        group.retain(|origin| origin.entity == kept);
        if place[&group[0].document] < train + valid {
            splits[1].append(&mut group);
            continue;
        }
        for origin in group {
            let in_distribution = trained.contains(&(origin.entity, origin.relation));
            splits[if in_distribution { 2 } else { 3 }].push(origin);
        }
    }
    splits[1..].iter_mut().for_each(|split| cap(split, options.per_relation, rng));
    splits
}

/// Keeps `per_relation` random questions of each relation; all if it is 0.
fn cap(split: &mut Vec<Origin>, per_relation: usize, rng: &mut ChaCha8Rng) {
    if per_relation == 0 {
        return;
    }
    split.shuffle(rng);
    let mut counts: FxHashMap<RelationId, usize> = FxHashMap::default();
    split.retain(|origin| {
        let count = counts.entry(origin.relation).or_default();
        *count += 1;
        *count <= per_relation
    });
    split.sort_by_key(|origin| (origin.document, origin.entity, origin.relation));
}

fn question(sources: &Sources<'_>, origin: &Origin, id: &str, rng: &mut ChaCha8Rng) -> Question {
    let Sources { kb, entities, documents, rules, templates } = sources;
    let document = &documents[origin.document];
    // A number that the text does not contain, unique to this question, so that it does not identify others.
    let number = loop {
        let number = rng.random_range(0..10_000);
        if !document.text.contains(&format!("{number:04}")) {
            break number;
        }
    };
    let mark = mark(entities.class(origin.entity).unwrap_or("entity"), number);
    let (title, context) = anonymise(document, origin.entity, entities.names(origin.entity), &mark);
    let (asked, plain) = templates.ask(origin.relation, kb, &mark, rng);
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
    extra.insert("relation".into(), kb.relation_name(origin.relation).into());
    // Structs of strings are always valid JSON.
    extra.insert("chains".into(), serde_json::to_value(chains).unwrap_or_default());
    Question {
        id: Id::from(id),
        question: asked,
        title: Some(title),
        context: Some(context),
        text: None,
        gpt_best_question: None,
        template_question: Some(plain),
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
