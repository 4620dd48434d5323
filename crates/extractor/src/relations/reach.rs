//! The recall of candidate pairs: which annotated facts a classifier can predict.

use sporran_kilt::{
    knowledgenet,
    scores::extraction::{keep_linked, same_entity},
};

use super::{Annotated, Properties};
use crate::{Link, Span};

/// The number of annotated facts, and how many of them a classifier can predict: KnowledgeNet's maximum
/// recall (Mesquita et al., 2019, table 4). Facts are counted as by its scorer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// Annotated facts.
    pub facts: usize,
    /// Facts with a classified pair whose mentions both overlap the fact's.
    pub text: usize,
    /// Facts with two links, each once a passage, if a linker was used.
    pub linked: usize,
    /// Facts with a classified pair in their passage that has the same two links.
    pub link: usize,
}

/// A validation document with its annotation.
#[derive(Clone, Copy)]
pub struct HeldOut<'a> {
    /// The document as it was annotated.
    pub source: &'a knowledgenet::Document,
    /// The document with its candidates.
    pub annotated: &'a Annotated,
    /// The links of its mentions; `None` without a linker.
    pub links: Option<&'a [Option<Link>]>,
}

impl Reach {
    /// Counts the candidates of a classifier. `is_candidate` has the arguments of [`Self::add`]'s filter after
    /// the document's index.
    pub(super) fn of(
        documents: &[HeldOut<'_>],
        properties: &Properties,
        is_candidate: impl Fn(usize, usize, usize, usize) -> bool,
    ) -> Self {
        let mut reach = Self::default();
        for (at, document) in documents.iter().enumerate() {
            let is_candidate = |sentence, pair, label| is_candidate(at, sentence, pair, label);
            reach.add(document.source, properties, document.annotated, document.links, is_candidate);
        }
        reach
    }

    /// Adds the facts of a document. `links` has the link of each mention, or is none without a linker.
    /// `asks` returns whether a pair is classified for a property, from the index of the sentence among the
    /// document's candidates, of the pair, and of the property.
    pub fn add(
        &mut self,
        source: &knowledgenet::Document,
        properties: &Properties,
        annotated: &Annotated,
        links: Option<&[Option<Link>]>,
        asks: impl Fn(usize, usize, usize) -> bool,
    ) {
        self.facts += annotated.facts.len();
        let is_asked = |fact: &&super::GoldFact| {
            fact.pairs.iter().any(|&(sentence, pair)| asks(sentence, pair, fact.label))
        };
        self.text += annotated.facts.iter().filter(is_asked).count();
        let Some(links) = links else { return };
        for passage in &source.passages {
            let mut facts = passage.facts.clone();
            keep_linked(&mut facts);
            let place = Span { start: passage.start, end: passage.end };
            let pairs = linked_pairs(annotated, links, place);
            for fact in facts {
                let (Some(label), Some((subject, object))) =
                    (properties.position(&fact.property.text()), fact.uris())
                else {
                    continue;
                };
                self.linked += 1;
                let is_same = |pair: &LinkedPair<'_>| {
                    same_entity(pair.subject, subject)
                        && same_entity(pair.object, object)
                        && asks(pair.sentence, pair.pair, label)
                };
                self.link += usize::from(pairs.iter().any(is_same));
            }
        }
    }
}

/// A candidate pair both of whose mentions have a link.
struct LinkedPair<'a> {
    sentence: usize,
    pair: usize,
    subject: &'a str,
    object: &'a str,
}

/// The linked pairs within a passage.
fn linked_pairs<'a>(annotated: &Annotated, links: &'a [Option<Link>], place: Span) -> Vec<LinkedPair<'a>> {
    let mut found = Vec::new();
    for (sentence, candidates) in annotated.candidates.iter().enumerate() {
        let link = |at: u32| {
            let mention = candidates.mentions[at as usize];
            let link = links[mention].as_ref()?;
            place.contains(annotated.mentions[mention].span).then_some(link.entity.as_str())
        };
        for (pair, ends) in candidates.pairs.iter().enumerate() {
            if let (Some(subject), Some(object)) = (link(ends.first), link(ends.second)) {
                found.push(LinkedPair { sentence, pair, subject, object });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        Document, EntityType, proposals,
        relations::{BilstmFile, BilstmReader, BilstmShape, annotated},
    };

    #[test]
    fn a_fact_that_the_type_filter_removes_is_not_reached_in_text_and_by_links() {
        let fact = |places: [usize; 4], links: [&str; 2]| {
            json!({"propertyId": "25", "subjectStart": places[0], "subjectEnd": places[1], "objectStart": places[2],
                "objectEnd": places[3], "subjectUri": format!("http://www.wikidata.org/entity/{}", links[0]), "objectUri": links[1]})
        };
        let source: knowledgenet::Document = serde_json::from_value(json!({"fold": 1, "documentId": "d",
            "documentText": "Ann married Bob. Rome married Cleo. Dan left.", "passages": [
            {"passageId": "p", "passageStart": 0, "passageEnd": 45, "passageText": "",
                "exhaustivelyAnnotatedProperties": [{"propertyId": "25", "propertyName": "SPOUSE"}],
                "facts": [fact([0, 3, 12, 15], ["Q1", "Q2"]), fact([17, 21, 30, 34], ["Q3", "Q4"]),
                    fact([0, 3, 36, 39], ["Q1", ""])]}]}))
        .unwrap();
        let properties = Properties::of(std::slice::from_ref(&source));
        let document = Document::new("d", source.text.clone());
        let mentions = proposals(&document);
        let mut annotated = annotated(&source, &properties, document, mentions).unwrap();
        let names: Vec<&str> = annotated
            .mentions
            .iter()
            .map(|mention| annotated.document.slice(mention.span).unwrap())
            .collect();
        assert_eq!(names, ["Ann", "Bob", "Rome", "Cleo", "Dan"]);
        let kinds = [EntityType::Person, EntityType::Person, EntityType::Location, EntityType::Person];
        for (mention, kind) in annotated.mentions.iter_mut().zip(kinds) {
            mention.kind = kind;
        }
        let reader = |kinds| {
            BilstmReader::new(&BilstmFile::new(&BilstmShape::default(), &properties).with_kinds(kinds), None)
        };
        let reach = |kinds, links: Option<[&str; 4]>| {
            let reader: BilstmReader = reader(kinds);
            let link = |entity: &&str| Some(Link { entity: (*entity).to_owned(), confidence: 1.0 });
            let links: Option<Vec<Option<Link>>> =
                links.map(|links| links.iter().map(link).chain([None]).collect());
            let mut reach = Reach::default();
            reach.add(&source, &properties, &annotated, links.as_deref(), |sentence, pair, label| {
                let candidates = &annotated.candidates[sentence];
                reader.asks((&annotated.document, &annotated.mentions, candidates), pair, label)
            });
            reach
        };
        let by_type = || vec![vec![(EntityType::Person, EntityType::Person)]];
        // Ann and Dan are in different sentences, so no pair covers them. That fact has only one link.
        let links = Some(["Q1", "Q2", "Q3", "Q4"]);
        assert_eq!(reach(Vec::new(), links), Reach { facts: 3, text: 2, linked: 2, link: 2 });
        assert_eq!(reach(by_type(), links), Reach { facts: 3, text: 1, linked: 2, link: 1 });
        // A wrong link does not affect the text recall.
        let wrong = Some(["Q1", "Q2", "Q3", "Q9"]);
        assert_eq!(reach(Vec::new(), wrong), Reach { facts: 3, text: 2, linked: 2, link: 1 });
        assert_eq!(reach(by_type(), None), Reach { facts: 3, text: 1, linked: 0, link: 0 });
    }
}
