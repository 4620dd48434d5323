//! The candidate questions of documents, with the chains that derive their answers.

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};
use sporran_kilt::kb::{EntityId, Part, RelationId};

use super::{
    anonymise::{MARKS, is_free, places},
    build::{BuildOptions, FactAnswers, Origin, Sources, question_triples},
    chain::{Graphs, Limits, Numbers, Route, chains},
    document::Document,
};
use crate::rules::{Graph, Step};

/// The edges after which the walk along a rule ends where all its ends are answers. It limits hubs.
const EDGES: usize = 20_000;

/// Searches chains of questions.
pub(super) struct Derive<'a> {
    sources: &'a Sources<'a>,
    options: &'a BuildOptions,
    /// By relation and direction; the best rule of each is first.
    routes: FxHashMap<Step, Vec<Route>>,
    /// The triples of each document.
    said: Vec<Graph>,
    knowledge: &'a Graph,
}

impl<'a> Derive<'a> {
    pub(super) fn new(sources: &'a Sources<'a>, options: &'a BuildOptions, knowledge: &'a Graph) -> Self {
        let mut routes: FxHashMap<Step, Vec<Route>> = FxHashMap::default();
        for (at, rule) in sources.rules.iter().enumerate() {
            // The rules of people are not mined: their score is no share of right predictions.
            if rule.is_mined() && rule.confidence < options.min_confidence {
                continue;
            }
            let relation = rule.clause.relation;
            let asked = [(Step::forward(relation), false), (Step::backward(relation), true)];
            for (asked, backward) in asked.into_iter().take(if options.inverse { 2 } else { 1 }) {
                routes.entry(asked).or_default().extend(Route::of(at, &rule.clause, backward));
            }
        }
        let said = sources.documents.par_iter().map(|document| Graph::of(&document.relations)).collect();
        Self { sources, options, routes, said, knowledge }
    }

    /// The questions whose answers are the ends of chains, by document, entity and relation.
    pub(super) fn by_chains(&self) -> Vec<Origin> {
        let mut asked: Vec<(&Step, &Vec<Route>)> = self.routes.iter().collect();
        asked.sort_unstable_by_key(|(step, _)| **step);
        let held = FxHashSet::default();
        let most = self.most();
        // One more answer shows that there are too many.
        let limits = Limits { answers: most.saturating_add(1), edges: EDGES };
        let documents = self.sources.documents.par_iter().enumerate();
        documents
            .flat_map_iter(|(document, content)| {
                let mentioned = content.entities();
                let graphs =
                    Graphs { document: &self.said[document], knowledge: self.knowledge, held: &held };
                let mut found = Vec::new();
                for &entity in &mentioned {
                    let Some(class) = self.class(entity) else { continue };
                    let is_answer = |answer: u32| {
                        let answer = EntityId(answer);
                        !mentioned.contains(&answer) && self.is_hidden(answer, content, class)
                    };
                    for &(&asked, routes) in &asked {
                        let chains = chains(routes, graphs, entity.0, &is_answer, limits);
                        if !(1..=most).contains(&chains.len()) {
                            continue;
                        }
                        let answers: Vec<EntityId> =
                            chains.iter().map(|chain| EntityId(chain.answer)).collect();
                        if self.is_silent((entity, class), asked, &answers)
                            && self.has_mark(content, class, &answers)
                        {
                            found.push(Origin { document, entity, asked, answers, chains });
                        }
                    }
                }
                found
            })
            .collect()
    }

    /// The questions whose answers are the known entities, if chains derive enough of them.
    pub(super) fn by_facts(&self, facts: &FactAnswers) -> Vec<Origin> {
        let known = self.sources.kb.index(&[Part::Train]);
        let most = self.most();
        let held = FxHashSet::default();
        let documents = self.sources.documents.par_iter().enumerate();
        let found: Vec<Origin> = documents
            .flat_map_iter(|(document, content)| {
                let mentioned = content.entities();
                let mut found = Vec::new();
                for &entity in &mentioned {
                    let Some(class) = self.class(entity) else { continue };
                    let forward = known.relations_of(entity).map(|(relation, ends)| (relation, false, ends));
                    let backward = known.relations_to(entity).map(|(relation, ends)| (relation, true, ends));
                    let backward = backward.take_while(|_| self.options.inverse);
                    for (RelationId(relation), is_backward, answers) in forward.chain(backward) {
                        let fits = answers.len() <= most
                            && answers.iter().all(|answer| {
                                !mentioned.contains(answer)
                                    && *answer != entity
                                    && self.is_hidden(*answer, content, class)
                            })
                            && self.has_mark(content, class, answers);
                        if fits {
                            let answers = answers.to_vec();
                            let asked =
                                if is_backward { Step::backward(relation) } else { Step::forward(relation) };
                            found.push(Origin { document, entity, asked, answers, chains: Vec::new() });
                        }
                    }
                }
                found
            })
            .collect();
        let found = found.into_par_iter();
        found.filter_map(|mut origin| self.seek(&mut origin, facts, &held).then_some(origin)).collect()
    }

    /// Selects questions in random order. A question is dropped if its triple is in a chain of an earlier
    /// question, or if its chains need a triple of an earlier one. Returns the questions in their original order.
    pub(super) fn hold_out(
        &self,
        mut candidates: Vec<Origin>,
        facts: &FactAnswers,
        rng: &mut ChaCha8Rng,
    ) -> Vec<Origin> {
        candidates.shuffle(rng);
        let (mut held, mut needed) = (FxHashSet::default(), FxHashSet::default());
        let mut taken = Vec::new();
        for mut origin in candidates {
            let asked = question_triples(&origin);
            if asked.iter().any(|triple| needed.contains(triple)) || !self.seek(&mut origin, facts, &held) {
                continue;
            }
            held.extend(asked);
            needed.extend(origin.chains.iter().flat_map(|chain| chain.knowledge.iter().copied()));
            taken.push(origin);
        }
        taken.sort_by_key(Origin::key);
        taken
    }

    /// Searches chains to a question's known answers. Returns whether they reach enough of them.
    fn seek(&self, origin: &mut Origin, facts: &FactAnswers, held: &FxHashSet<Numbers>) -> bool {
        let mentioned = self.sources.documents[origin.document].entities();
        let routes = self.routes.get(&origin.asked).map_or(&[][..], Vec::as_slice);
        let graphs = Graphs { document: &self.said[origin.document], knowledge: self.knowledge, held };
        let is_answer = |answer: u32| {
            let answer = EntityId(answer);
            origin.answers.contains(&answer) && !mentioned.contains(&answer)
        };
        let limits = Limits { answers: origin.answers.len(), edges: usize::MAX };
        let chains = chains(routes, graphs, origin.entity.0, &is_answer, limits);
        origin.chains = chains;
        !origin.chains.is_empty() && origin.chains.len() as f64 >= facts.covered * origin.answers.len() as f64
    }

    /// The largest number of answers.
    fn most(&self) -> usize {
        match self.options.max_answers {
            0 => usize::MAX,
            most => most,
        }
    }

    /// The class of an entity that a question can be about: one with a label and a class.
    fn class(&self, entity: EntityId) -> Option<&'a str> {
        let entities = self.sources.entities;
        entities.label(entity).and_then(|_| entities.class(entity))
    }

    /// Whether an answer has a label, and neither the title, the text nor the class has one of its names. The question's text
    /// will contain the class.
    fn is_hidden(&self, answer: EntityId, document: &Document, class: &str) -> bool {
        let entities = self.sources.entities;
        let texts = [document.title.as_str(), &document.text, class];
        let is_unnamed = |name: &String| texts.iter().all(|text| places(text, name).is_empty());
        entities.label(answer).is_some_and(|label| {
            !document.text.contains(label)
                && !class.contains(label)
                && entities.names(answer).iter().all(is_unnamed)
        })
    }

    /// Whether a mark of the class is free for a question with these answers, as the mark of 1987 is not for the answer 1987.
    fn has_mark(&self, document: &Document, class: &str, answers: &[EntityId]) -> bool {
        let labels: Vec<&str> =
            answers.iter().filter_map(|answer| self.sources.entities.label(*answer)).collect();
        (0..MARKS).any(|number| is_free(class, number, &document.text, &labels))
    }

    /// Whether the words of a question have neither a name of its entity nor an answer. The words include the class.
    fn is_silent(&self, (entity, class): (EntityId, &str), asked: Step, answers: &[EntityId]) -> bool {
        let Sources { kb, entities, templates, .. } = self.sources;
        let templates = templates.of(asked, kb);
        let texts = || templates.iter().map(String::as_str).chain([class]);
        let mut all = std::iter::once(entity).chain(answers.iter().copied());
        all.all(|entity| {
            entities.names(entity).iter().all(|name| texts().all(|text| places(text, name).is_empty()))
        })
    }
}
