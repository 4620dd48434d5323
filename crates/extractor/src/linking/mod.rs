//! Entity linking: mentions to entities of a knowledge base. It uses names and the frequency of their
//! meanings, similar names, and the match of descriptions with the text.

mod fit;
mod names;
mod options;
mod similar;
mod table;

use std::{cell::OnceCell, collections::BTreeMap, path::Path};

use rustc_hash::FxHashSet;
use sporran_kilt::kb::{KnowledgeBase, Part};

use crate::{Chain, Document, EntityType, Link, Mention, MentionForm, Result, demonyms::country};
use fit::{Descriptions, TextWords};
use similar::SimilarNames;
use table::normal_form;

pub use names::{NamesFormat, NamesOptions};
pub use options::{LinkerOptions, LinkingOptions, NamedEntities};
pub use table::{AliasTable, AliasTableBuilder, KnownEntity};

/// Similar names are weighted by `exp(-STEEP * (1 - similarity))`.
const STEEP: f32 = 6.0;
/// The similarity of a demonym to its country's name.
const PEOPLE: f32 = 0.9;
/// The factor of similarity for a name without capitals: `summer` is rarely Cree Summer.
const LOWERCASE: f32 = 0.7;
/// The largest similarity of an entity with the name's words only in its description.
const DESCRIBED: f32 = 0.25;

/// Links mentions by their names and those of their chains.
pub struct Linker {
    table: AliasTable,
    options: LinkerOptions,
    descriptions: Descriptions,
    similar: Option<SimilarNames>,
    /// For each entity of the table, those that it has facts with; empty without facts.
    neighbours: Vec<FxHashSet<u32>>,
    /// Whether mentions without a link take one from outside their chain.
    outside: bool,
}

/// A name of a document.
struct Name<'a> {
    name: &'a str,
    /// Its meanings in the table.
    known: Senses,
    /// Its meanings by similar names, computed on demand.
    like: OnceCell<Senses>,
}

/// The meanings of a name: entity indices with weights, and the total weight.
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
        let (descriptions, neighbours) = (Descriptions::new(&table), Vec::new());
        Self { descriptions, table, options, similar, neighbours, outside: false }
    }

    /// Opens a linker over a table, with the facts of a knowledge base if `facts` is its folder or file.
    ///
    /// # Errors
    /// Errors of reading the knowledge base.
    pub fn open(table: AliasTable, options: &LinkerOptions, facts: Option<&Path>) -> Result<Self> {
        let linker = Self::new(table, options.clone());
        let Some(path) = facts else { return Ok(linker) };
        let base = KnowledgeBase::open(path)?;
        let ends = base.triples(Part::Train).iter();
        Ok(linker.with_facts(
            ends.map(|triple| (base.entity_name(triple.subject), base.entity_name(triple.object))),
        ))
    }

    /// The same linker with facts between entities, as pairs of subject and object ids.
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

    /// The same linker that, if `outside`, gives a mention without a link one from outside its chain
    /// ([`LinkingOptions::outside_links`]).
    #[must_use]
    pub fn with_outside_links(self, outside: bool) -> Self {
        Self { outside, ..self }
    }

    /// The name table.
    #[must_use]
    pub fn table(&self) -> &AliasTable {
        &self.table
    }

    /// The link of each mention of a document. A name in the table is linked directly. If its confidence is
    /// too low, and for other names, pronouns and descriptions, the most confident name of the chain decides;
    /// the confidence is multiplied by the chain's. If the table has none of these names, names similar to
    /// the chain's representative decide. Dates have no links. With [`Self::with_outside_links`], a mention
    /// that is still without a link can take one from outside its chain.
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
        let to_link = |link: Option<(f32, u32)>| {
            let (confidence, entity) = link?;
            let entity = &self.table.entities()[entity as usize];
            (confidence >= self.options.threshold).then(|| Link { entity: entity.id.clone(), confidence })
        };
        let mut links: Vec<Option<Link>> = links.into_iter().map(to_link).collect();
        if self.outside {
            lend_outside(&mut links, chains);
        }
        links
    }

    /// The best entity of each mention with its confidence, however low, given the confident entities of the
    /// document.
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

    /// The meanings of a name in the table, or of a demonym.
    fn known(&self, name: &str, text: &TextWords) -> Senses {
        let normal = normal_form(name);
        let mut senses = Senses::default();
        self.add(&mut senses, &normal, 1.0, text);
        if let Some(country) = country_of(name, &normal) {
            self.add(&mut senses, country, PEOPLE, text);
        }
        senses
    }

    /// The meanings of a name that is not in the table.
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
            for (entity, share) in self.descriptions.described_by(&normal) {
                senses.add(Some(entity), self.weight(entity, 1.0, sure * DESCRIBED * share, text));
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

    /// The entity with the greatest weight, and its share. If some candidates have facts with the document's
    /// other entities, the remaining ones are weighted down.
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

/// Gives each mention without a link that of another chain to which it may belong. Of several it takes the one whose link's
/// confidence times the mention's confidence is greatest, the first of equals (Mesquita et al. 2019, Baseline 4).
fn lend_outside(links: &mut [Option<Link>], chains: &[Chain]) {
    let before = links.to_vec();
    for chain in chains {
        let own = chain.mentions.iter().filter_map(|(at, _)| before.get(*at)?.as_ref());
        let best = own.max_by(|a, b| a.confidence.total_cmp(&b.confidence).then(b.entity.cmp(&a.entity)));
        let Some(best) = best else { continue };
        for (at, sure) in &chain.others {
            let confidence = best.confidence * sure;
            let is_free = before.get(*at).is_some_and(Option::is_none);
            if let (true, Some(link)) = (is_free, links.get_mut(*at))
                && link.as_ref().is_none_or(|other| confidence > other.confidence)
            {
                *link = Some(Link { entity: best.entity.clone(), confidence });
            }
        }
    }
}

impl Senses {
    /// An entity with several names has the weight of the best one.
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

/// The country of a demonym; `us` is a pronoun.
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
    fn a_name_links_to_its_most_frequent_entity_unless_the_context_differs() {
        assert_eq!(linked("Bob left Paris.", &[]), [None, Some("Q90".into())]);
        assert_eq!(linked("Paris, a son of king Priam, left.", &[])[0], Some("Q167646".into()));
    }

    #[test]
    fn a_name_that_is_mostly_unlinked_is_not_linked() {
        assert_eq!(linked("Ann left.", &[]), [None]);
    }

    #[test]
    fn a_chain_lends_its_name_as_far_as_it_is_sure() {
        let chain = |sure| Chain { mentions: vec![(0, 1.0), (1, sure)], representative: 0, others: vec![] };
        assert_eq!(linked("Paris grew. It is old.", &[chain(0.9)])[1], Some("Q90".into()));
        assert_eq!(linked("Paris grew. It is old.", &[chain(0.3)])[1], None);
    }

    #[test]
    fn an_ambiguous_name_takes_the_link_of_its_chain() {
        let mut builder = AliasTableBuilder::default();
        builder.add("Ann", "Q1", 1.0);
        builder.add("Ann", "", 4.0);
        builder.add("Ann Smith", "Q2", 1.0);
        let chain = Chain { mentions: vec![(0, 1.0), (1, 0.9)], representative: 0, others: vec![] };
        let linked = linked_by(builder.build(), "Ann Smith slept. Ann woke.", &[chain]);
        assert_eq!(linked, [Some("Q2".into()), Some("Q2".into())]);
    }

    #[test]
    fn a_mention_without_a_link_takes_the_surest_one_from_outside_its_chain() {
        let document = Document::new("d", "Rome is not Paris or Oslo. It is far from Bonn.");
        let mentions = proposals(&document);
        let words: Vec<&str> = mentions.iter().map(|own| document.slice(own.span).unwrap()).collect();
        assert_eq!(words, ["Rome", "Paris", "Oslo", "It", "Bonn"]);
        let chain = |mention: usize, others: Vec<(usize, f32)>| Chain {
            mentions: vec![(mention, 1.0)],
            representative: mention,
            others,
        };
        // `It` is in no chain, and Bonn is not in the table, so its chain has no link to lend.
        let chains = [
            chain(0, vec![(3, 0.2)]),
            chain(1, vec![(0, 0.9), (3, 0.5), (4, 0.1)]),
            chain(2, vec![(3, 0.3)]),
            chain(4, vec![(3, 0.99)]),
        ];
        let options = LinkerOptions { similarity: 1.0, ..LinkerOptions::default() };
        let linker = || Linker::new(builder_of(&["Rome", "Paris", "Oslo"]), options.clone());
        let inside = linker().link(&document, &mentions, &chains);
        let own: Vec<Option<&str>> =
            inside.iter().map(|link| link.as_ref().map(|link| link.entity.as_str())).collect();
        assert_eq!(own, [Some("Rome"), Some("Paris"), Some("Oslo"), None, None]);
        let outside = linker().with_outside_links(true).link(&document, &mentions, &chains);
        assert_eq!(outside[..3], inside[..3]);
        // All links are equally sure, so the mention's confidence decides: 0.5 for Paris.
        let sure = inside[1].as_ref().unwrap().confidence;
        for (at, share) in [(3, 0.5), (4, 0.1)] {
            let link = outside[at].as_ref().unwrap();
            assert_eq!(link.entity, "Paris");
            assert!((link.confidence - share * sure).abs() < 1e-6);
        }
    }

    fn builder_of(names: &[&str]) -> AliasTable {
        let mut builder = AliasTableBuilder::default();
        names.iter().for_each(|name| builder.add(name, name, 1.0));
        builder.build()
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
        // Both are equally likely.
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
        // A name's own meanings give no evidence for its other meanings.
        let linker = linker.with_facts([("Q1428", "Q230")]);
        assert_eq!(entities(&linker), [Some("Q994".to_owned()), Some("Q1428".to_owned())]);
        let linker = linker.with_facts([("Q1428", "Q230"), ("Q230", "Q994")]);
        assert_eq!(entities(&linker), [Some("Q994".to_owned()), Some("Q230".to_owned())]);
    }

    #[test]
    fn a_part_of_a_name_means_what_its_chain_is_called() {
        // The table lacks this name, and the chain's name is equally near to both.
        let chain = Chain { mentions: vec![(0, 1.0), (1, 0.9)], representative: 0, others: vec![] };
        let options = LinkerOptions { threshold: 0.0, ..LinkerOptions::default() };
        let document = Document::new("d", "Steve Jobs slept. Steve woke.");
        let mentions = proposals(&document);
        let links = Linker::new(people(), options).link(&document, &mentions, &[chain]);
        let links: Vec<_> = links.into_iter().flatten().collect();
        assert_eq!(links[1].entity, "Q19837");
        assert!((links[1].confidence - 0.9 * links[0].confidence).abs() < 1e-6);
    }
}
