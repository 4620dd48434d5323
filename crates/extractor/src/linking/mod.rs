//! Links of mentions into a knowledge base: by the names that entities go by and how often a name has meant each of them, by
//! names that are like theirs, and by what is told of them beside the text.

mod fit;
mod similar;
mod table;

use std::{cell::OnceCell, collections::BTreeMap};

use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};

use crate::{Chain, Document, EntityType, Link, Mention, MentionForm, demonyms::country};
use fit::{Descriptions, TextWords};
use similar::SimilarNames;
use table::normal_form;

pub use table::{AliasTable, AliasTableBuilder, KnownEntity};

/// How steeply a name counts less that is less similar: its weight is `exp(-STEEP * (1 - similarity))`.
const STEEP: f32 = 6.0;
/// How similar the name of a country is to that of its people.
const PEOPLE: f32 = 0.9;
/// What the similarity of a name counts that is looked up for one without a capital letter: `summer` is hardly Cree Summer.
const LOWERCASE: f32 = 0.7;
/// How similar to a name an entity is at most that has its words in its description alone.
const TOLD: f32 = 0.25;

/// How a linker decides.
///
/// An entity that a name may mean weighs `count * exp(-6 * (1 - similarity) + context * fit)`: how often the name meant it,
/// how like its own name the name is, and the cosine of the text and what is told of it (tf-idf). Where the knowledge base has a
/// fact between one that a name may mean and what other names surely mean, the others weigh `exp(-coherence)` of that.
/// A link's confidence is its entity's share of all weights and `unknown`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkerOptions {
    /// A link that is less sure than this, 0 to 1, is withheld.
    pub threshold: f32,
    /// How much counts how well an entity fits the text.
    pub context: f32,
    /// How often each name is taken to mean what the knowledge base does not have, beside what was counted.
    pub unknown: f32,
    /// How much counts a fact between an entity and others that the document names.
    pub coherence: f32,
    /// How similar a known name is at least, 0 to 1, that is looked up in the place of one that is not known; 1 for none, which
    /// also saves an index over all names' words.
    pub similarity: f32,
}

impl Default for LinkerOptions {
    fn default() -> Self {
        Self { threshold: 0.4, context: 6.0, unknown: 0.1, coherence: 1.0, similarity: 0.3 }
    }
}

/// Links mentions by their names and those of their chains.
pub struct Linker {
    table: AliasTable,
    options: LinkerOptions,
    descriptions: Descriptions,
    similar: Option<SimilarNames>,
    /// The entities of the table that the knowledge base has facts with, of each; empty where no facts are known.
    neighbours: Vec<FxHashSet<u32>>,
}

/// A name of a document.
struct Name<'a> {
    name: &'a str,
    /// What it can mean that the table has.
    known: Senses,
    /// What it can mean otherwise, once that is asked for.
    like: OnceCell<Senses>,
}

/// What a name can mean: entities by their index, with their weights, and the weight of all that it can mean.
#[derive(Default)]
struct Senses {
    weights: BTreeMap<u32, f32>,
    all: f32,
}

impl Linker {
    /// A linker over a table.
    #[must_use]
    pub fn new(table: AliasTable, options: LinkerOptions) -> Self {
        let similar =
            (options.similarity < 1.0).then(|| SimilarNames::new(table.names().map(str::to_owned).collect()));
        Self { descriptions: Descriptions::new(&table), table, options, similar, neighbours: Vec::new() }
    }

    /// The same linker, with facts between entities, subject and object of each by their ids.
    #[must_use]
    pub fn with_facts<'a>(mut self, facts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let entities = self.table.entities();
        let place = |id: &str| entities.binary_search_by(|entity| entity.id.as_str().cmp(id)).ok();
        self.neighbours = vec![FxHashSet::default(); entities.len()];
        for (subject, object) in facts {
            if let (Some(subject), Some(object)) = (place(subject), place(object))
                && subject != object
            {
                self.neighbours[subject].insert(object as u32);
                self.neighbours[object].insert(subject as u32);
            }
        }
        self
    }

    /// Its names.
    #[must_use]
    pub fn table(&self) -> &AliasTable {
        &self.table
    }

    /// The link of each mention of a document. A name that the table has is linked by itself; where that is not sure enough, and
    /// for any other name, pronouns and descriptions, by the surest of its chain's names, with the chain's confidence in both;
    /// where the table has none of them, by names that are like the one that names the chain best. Dates have no links.
    #[must_use]
    pub fn link(&self, document: &Document, mentions: &[Mention], chains: &[Chain]) -> Vec<Option<Link>> {
        let text = self.descriptions.read(&document.text);
        let name = |mention: &Mention| {
            let is_name = mention.form == MentionForm::Name && mention.kind != EntityType::Date;
            let name = is_name.then(|| document.slice(mention.span)).flatten()?;
            Some(Name { name, known: self.known(name, &text), like: OnceCell::new() })
        };
        let names: Vec<Option<Name<'_>>> = mentions.iter().map(name).collect();
        let mut links = self.chosen(&names, chains, &text, &FxHashSet::default());
        if !self.neighbours.is_empty() {
            let sure = |link: &(f32, u32)| link.0 >= self.options.threshold;
            let named = links.iter().flatten().filter(|link| sure(link)).map(|link| link.1).collect();
            links = self.chosen(&names, chains, &text, &named);
        }
        let told = |link: Option<(f32, u32)>| {
            let (confidence, entity) = link?;
            let entity = &self.table.entities()[entity as usize];
            (confidence >= self.options.threshold).then(|| Link { entity: entity.id.clone(), confidence })
        };
        links.into_iter().map(told).collect()
    }

    /// The surest entity of each mention with its confidence, however little that is, in a document that surely names some
    /// entities.
    fn chosen(
        &self,
        names: &[Option<Name<'_>>],
        chains: &[Chain],
        text: &TextWords,
        named: &FxHashSet<u32>,
    ) -> Vec<Option<(f32, u32)>> {
        let like = |at: usize| {
            let name = names.get(at)?.as_ref()?;
            self.surest(name.like.get_or_init(|| self.like(name.name, text)), named)
        };
        let known = |name: &Option<Name<'_>>| self.surest(&name.as_ref()?.known, named);
        let mut links: Vec<Option<(f32, u32)>> = names.iter().map(known).collect();
        let mut is_chained = vec![false; names.len()];
        for chain in chains {
            let own = |(at, sure): &(usize, f32)| {
                let (confidence, entity) = (*links.get(*at)?)?;
                Some((confidence * sure, entity))
            };
            let named = chain.mentions.iter().filter_map(own);
            let named = named.max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(&a.1)));
            let chosen = named.or_else(|| like(chain.representative));
            for (at, sure) in &chain.mentions {
                if let (Some(link), Some(is_chained)) = (links.get_mut(*at), is_chained.get_mut(*at)) {
                    *is_chained = true;
                    let lent = chosen.map(|(confidence, entity)| (confidence * sure, entity));
                    if link.is_none_or(|(own, _)| {
                        own < self.options.threshold && lent.is_some_and(|(lent, _)| lent > own)
                    }) {
                        *link = lent;
                    }
                }
            }
        }
        let each = links.into_iter().zip(is_chained).enumerate();
        each.map(|(at, (link, is_chained))| link.or_else(|| if is_chained { None } else { like(at) }))
            .collect()
    }

    /// What a name can mean that the table has, or that is a people's.
    fn known(&self, name: &str, text: &TextWords) -> Senses {
        let normal = normal_form(name);
        let mut senses = Senses::default();
        self.add(&mut senses, &normal, 1.0, text);
        if let Some(country) = country_of(name, &normal) {
            self.add(&mut senses, country, PEOPLE, text);
        }
        senses
    }

    /// What a name can mean that the table does not have.
    fn like(&self, name: &str, text: &TextWords) -> Senses {
        let mut senses = Senses::default();
        let Some(similar) = &self.similar else { return senses };
        let normal = normal_form(name);
        let looked_up = country_of(name, &normal).unwrap_or(&normal);
        let sure = if name.chars().any(char::is_uppercase) { 1.0 } else { LOWERCASE };
        for (other, similarity) in similar.find(looked_up) {
            let similarity = sure * similarity;
            if similarity >= self.options.similarity {
                self.add(&mut senses, other, similarity, text);
            }
        }
        if senses.weights.is_empty() {
            for (entity, share) in self.descriptions.telling(&normal) {
                senses.add(Some(entity), self.weight(entity, 1.0, sure * TOLD * share, text));
            }
        }
        senses
    }

    fn add(&self, senses: &mut Senses, normal: &str, similarity: f32, text: &TextWords) {
        for (entity, count) in self.table.meanings_of(normal) {
            let is_known = (*entity as usize) < self.table.entities().len();
            let weight = if is_known { self.weight(*entity, *count, similarity, text) } else { *count };
            senses.add(is_known.then_some(*entity), weight);
        }
    }

    fn weight(&self, entity: u32, count: f32, similarity: f32, text: &TextWords) -> f32 {
        let fit = self.descriptions.fit(entity, text);
        count * (self.options.context * fit - STEEP * (1.0 - similarity)).exp()
    }

    /// The entity of the greatest weight, and its share. Where some have facts with what the document names, what this name
    /// may mean itself left out, the others weigh less.
    fn surest(&self, senses: &Senses, named: &FxHashSet<u32>) -> Option<(f32, u32)> {
        let is_near = |entity: u32| {
            let near = self.neighbours.get(entity as usize).into_iter().flatten();
            near.filter(|other| named.contains(other)).any(|other| !senses.weights.contains_key(other))
        };
        let near: Vec<bool> = senses.weights.keys().map(|entity| is_near(*entity)).collect();
        let less = if near.contains(&true) { (-self.options.coherence).exp() } else { 1.0 };
        let mut all = senses.all + self.options.unknown;
        let mut best: Option<(f32, u32)> = None;
        for ((entity, weight), is_near) in senses.weights.iter().zip(near) {
            let coherent = if is_near { *weight } else { weight * less };
            all -= weight - coherent;
            if best.is_none_or(|(most, _)| coherent > most) {
                best = Some((coherent, *entity));
            }
        }
        best.map(|(weight, entity)| (weight / all, entity))
    }
}

impl Senses {
    /// An entity of several names counts by the one that gives it the most.
    fn add(&mut self, entity: Option<u32>, weight: f32) {
        let Some(entity) = entity else {
            self.all += weight;
            return;
        };
        let known = self.weights.entry(entity).or_insert(0.0);
        self.all += (weight - *known).max(0.0);
        *known = known.max(weight);
    }
}

/// The country whose people a name means; `us` is a pronoun.
fn country_of(name: &str, normal: &str) -> Option<&'static str> {
    if name == "us" { None } else { country(normal) }
}

#[cfg(test)]
mod tests {
    use super::{table::tests::table, *};
    use crate::proposals;

    fn linked_by(table: AliasTable, text: &str, chains: &[Chain]) -> Vec<Option<String>> {
        let document = Document::new("d", text);
        let linker = Linker::new(table, LinkerOptions::default());
        let links = linker.link(&document, &proposals(&document), chains);
        links.into_iter().map(|link| link.map(|link| link.entity)).collect()
    }

    fn linked(text: &str, chains: &[Chain]) -> Vec<Option<String>> {
        linked_by(table(), text, chains)
    }

    #[test]
    fn a_name_means_what_it_most_often_meant_unless_the_text_says_otherwise() {
        assert_eq!(linked("Bob left Paris.", &[]), [None, Some("Q90".into())]);
        assert_eq!(linked("Paris, a son of king Priam, left.", &[])[0], Some("Q167646".into()));
    }

    #[test]
    fn a_name_that_mostly_meant_nobody_known_is_not_linked() {
        assert_eq!(linked("Ann left.", &[]), [None]);
    }

    #[test]
    fn a_chain_lends_its_name_as_far_as_it_is_sure() {
        let chain = |sure| Chain { mentions: vec![(0, 1.0), (1, sure)], representative: 0 };
        assert_eq!(linked("Paris grew. It is old.", &[chain(0.9)])[1], Some("Q90".into()));
        assert_eq!(linked("Paris grew. It is old.", &[chain(0.3)])[1], None);
    }

    #[test]
    fn a_name_that_is_unsure_by_itself_takes_the_link_of_its_chain() {
        let mut builder = AliasTableBuilder::default();
        builder.add("Ann", "Q1", 1.0);
        builder.add("Ann", "", 4.0);
        builder.add("Ann Smith", "Q2", 1.0);
        let chain = Chain { mentions: vec![(0, 1.0), (1, 0.9)], representative: 0 };
        let linked = linked_by(builder.build(), "Ann Smith slept. Ann woke.", &[chain]);
        assert_eq!(linked, [Some("Q2".into()), Some("Q2".into())]);
    }

    fn people() -> AliasTable {
        let mut builder = AliasTableBuilder::default();
        builder.describe("Q19837", "Steve Jobs", "American founder and chief executive of Apple");
        builder.add("Steve Jobs", "Q19837", 1.0);
        builder.describe("Q192668", "Steve Reich", "American composer of minimal music");
        builder.add("Steve Reich", "Q192668", 1.0);
        builder.add("United States", "Q30", 1.0);
        builder.build()
    }

    #[test]
    fn a_part_of_a_name_means_whom_the_text_is_about() {
        let text = "After the death of Steve, the former chief executive of Apple, his speech was watched.";
        assert_eq!(linked_by(people(), text, &[])[0], Some("Q19837".into()));
        // As likely the one as the other.
        assert_eq!(linked_by(people(), "Steve slept.", &[]), [None]);
    }

    #[test]
    fn a_people_is_linked_to_its_country() {
        assert_eq!(linked_by(people(), "An American slept.", &[]), [Some("Q30".into())]);
        let options = LinkerOptions { similarity: 1.0, threshold: 0.0, ..LinkerOptions::default() };
        let document = Document::new("d", "Steve slept.");
        let links = Linker::new(people(), options).link(&document, &proposals(&document), &[]);
        assert_eq!(links, [None]);
    }

    #[test]
    fn of_two_of_a_name_the_one_is_meant_that_has_a_fact_with_what_else_is_named() {
        let mut builder = AliasTableBuilder::default();
        for (name, id) in [("Georgia", "Q1428"), ("Georgia", "Q230"), ("Tbilisi", "Q994")] {
            builder.add(name, id, 1.0);
        }
        let document = Document::new("d", "Tbilisi is in Georgia.");
        let linker = Linker::new(builder.build(), LinkerOptions::default());
        let entities = |linker: &Linker| -> Vec<Option<String>> {
            let links = linker.link(&document, &proposals(&document), &[]);
            links.into_iter().map(|link| link.map(|link| link.entity)).collect()
        };
        assert_eq!(entities(&linker), [Some("Q994".to_owned()), Some("Q1428".to_owned())]);
        // What a name itself may mean says nothing for its other senses.
        let linker = linker.with_facts([("Q1428", "Q230")]);
        assert_eq!(entities(&linker), [Some("Q994".to_owned()), Some("Q1428".to_owned())]);
        let linker = linker.with_facts([("Q1428", "Q230"), ("Q230", "Q994")]);
        assert_eq!(entities(&linker), [Some("Q994".to_owned()), Some("Q230".to_owned())]);
    }

    #[test]
    fn a_part_of_a_name_means_what_its_chain_is_called() {
        // Nobody known is called so, and the chain's name is nearer to neither.
        let chain = Chain { mentions: vec![(0, 1.0), (1, 0.9)], representative: 0 };
        let options = LinkerOptions { threshold: 0.0, ..LinkerOptions::default() };
        let document = Document::new("d", "Steve Jobs slept. Steve woke.");
        let mentions = proposals(&document);
        let links = Linker::new(people(), options).link(&document, &mentions, &[chain]);
        let links: Vec<_> = links.into_iter().flatten().collect();
        assert_eq!(links[1].entity, "Q19837");
        assert!((links[1].confidence - 0.9 * links[0].confidence).abs() < 1e-6);
    }
}
