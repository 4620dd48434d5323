//! Training and evaluation targets of candidate pairs from annotated documents.

use sporran_kilt::{knowledgenet, scores::extraction::entity};
use sporran_training::PairTarget;

use super::{Candidates, Properties, RelationInput};
use crate::{
    Document, Mention, Span,
    error::{Error, Result},
};

/// An annotated fact with its candidate pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct GoldFact {
    /// The index of the property.
    pub label: usize,
    /// The index of its passage.
    pub passage: usize,
    /// The annotated span of the subject.
    pub subject: Span,
    /// The annotated span of the object.
    pub object: Span,
    /// The entities of the subject and of the object; `None` without both links.
    pub links: Option<(String, String)>,
    /// Indices into [`Annotated::candidates`], and of pairs whose mentions both overlap the fact's.
    pub pairs: Vec<(usize, usize)>,
}

/// A document with its candidates and their targets.
#[derive(Clone, Debug, PartialEq)]
pub struct Annotated {
    /// The document.
    pub document: Document,
    /// Its mentions.
    pub mentions: Vec<Mention>,
    /// Its sentences with their candidates.
    pub candidates: Vec<Candidates>,
    /// For each sentence the targets of its pairs. Only a passage with exhaustive annotation of a property
    /// gives negatives for it.
    pub targets: Vec<Vec<PairTarget>>,
    /// For each sentence the index of the passage of each pair; 0 for a pair in none, which has no targets.
    pub passages: Vec<Vec<usize>>,
    /// The facts.
    pub facts: Vec<GoldFact>,
}

impl Annotated {
    /// A document without annotation: its candidates have no targets.
    #[must_use]
    pub fn unlabelled(document: Document, mentions: Vec<Mention>) -> Self {
        let candidates = super::sentences(&mentions);
        let targets = vec![Vec::new(); candidates.len()];
        let passages = candidates.iter().map(|sentence| vec![0; sentence.pairs.len()]).collect();
        Self { document, mentions, candidates, targets, passages, facts: Vec::new() }
    }

    /// The inputs of a classifier for its sentences.
    #[must_use]
    pub fn inputs(&self) -> Vec<RelationInput<'_>> {
        let input = |candidates| (&self.document, &*self.mentions, candidates);
        self.candidates.iter().map(input).collect()
    }

    /// The linked entities of a pair's subject and object; `None` without both links. No entity has a property with itself, so
    /// equal links are no links.
    #[must_use]
    pub fn links_of(&self, sentence: usize, pair: usize) -> Option<(&str, &str)> {
        let candidates = &self.candidates[sentence];
        let entity = |at: u32| candidates.known[at as usize].entity.as_deref();
        let ends = &candidates.pairs[pair];
        let (subject, object) = (entity(ends.first)?, entity(ends.second)?);
        (subject != object).then_some((subject, object))
    }

    /// Whether the mentions of a pair have the spans of a fact of this property.
    #[must_use]
    pub fn is_exact(&self, sentence: usize, pair: usize, label: usize) -> bool {
        let candidates = &self.candidates[sentence];
        let span = |at: u32| self.mentions[candidates.mentions[at as usize]].span;
        let ends = &candidates.pairs[pair];
        let spans = (span(ends.first), span(ends.second));
        self.facts.iter().any(|fact| fact.label == label && (fact.subject, fact.object) == spans)
    }

    /// Whether the links of a pair are those of a fact of this property that the pair matches.
    #[must_use]
    pub fn has_right_links(&self, sentence: usize, pair: usize, label: usize) -> bool {
        let Some((subject, object)) = self.links_of(sentence, pair) else { return false };
        self.facts.iter().any(|fact| {
            let links = fact.links.as_ref().map(|(subject, object)| (subject.as_str(), object.as_str()));
            fact.label == label && links == Some((subject, object)) && fact.pairs.contains(&(sentence, pair))
        })
    }
}

/// Joins a document's mentions with its annotation.
///
/// # Errors
/// [`Error::Misplaced`] if a passage or a fact exceeds the document, or ends before it starts.
pub fn annotated(
    source: &knowledgenet::Document,
    properties: &Properties,
    document: Document,
    mentions: Vec<Mention>,
) -> Result<Annotated> {
    let candidates = super::sentences(&mentions);
    if let Some((field, message)) = source.misplaced() {
        return Err(Error::Misplaced { document: document.id, field, message });
    }
    let mut targets: Vec<Vec<PairTarget>> = vec![Vec::new(); candidates.len()];
    let mut passages: Vec<Vec<usize>> =
        candidates.iter().map(|sentence| vec![0; sentence.pairs.len()]).collect();
    let mut facts = Vec::new();
    for (number, passage) in source.passages.iter().enumerate() {
        let place = Span { start: passage.start, end: passage.end };
        let first = facts.len();
        for fact in &passage.facts {
            let subject = Span { start: fact.subject_start, end: fact.subject_end };
            let object = Span { start: fact.object_start, end: fact.object_end };
            let Some(label) = properties.position(&fact.property.text()) else { continue };
            let links =
                fact.uris().map(|(subject, object)| (entity(subject).to_owned(), entity(object).to_owned()));
            facts.push(GoldFact { label, passage: number, subject, object, links, pairs: Vec::new() });
        }
        let labels: Vec<usize> = passage
            .exhaustive
            .iter()
            .filter_map(|property| properties.position(&property.id.text()))
            .collect();
        for (sentence, candidates) in candidates.iter().enumerate() {
            if !document.sentences[candidates.sentence].span.overlaps(place) {
                continue;
            }
            for (pair, ends) in candidates.pairs.iter().enumerate() {
                let mention = |at: u32| mentions[candidates.mentions[at as usize]].span;
                let (subject, object) = (mention(ends.first), mention(ends.second));
                if !(place.contains(subject) && place.contains(object)) {
                    continue;
                }
                passages[sentence][pair] = number;
                let mut stated = vec![false; properties.len()];
                for fact in &mut facts[first..] {
                    if fact.subject.overlaps(subject) && fact.object.overlaps(object) {
                        fact.pairs.push((sentence, pair));
                        stated[fact.label] = true;
                    }
                }
                for (label, stated) in stated.into_iter().enumerate() {
                    if stated || labels.contains(&label) {
                        let value = f32::from(u8::from(stated));
                        targets[sentence].push(PairTarget { pair, label, value, weight: 1.0 });
                    }
                }
            }
        }
    }
    Ok(Annotated { document, mentions, candidates, targets, passages, facts })
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::proposals;

    /// Two passages of one document, each annotated for another property.
    pub(in crate::relations) fn source(facts: Value) -> knowledgenet::Document {
        let property = |id: &str, name: &str| json!([{"propertyId": id, "propertyName": name}]);
        serde_json::from_value(json!({"fold": 1, "documentId": "d",
            "documentText": "Ann met Bob. In 1999 he left Rome.", "passages": [
            {"passageId": "p", "passageStart": 0, "passageEnd": 12, "passageText": "",
                "exhaustivelyAnnotatedProperties": property("25", "SPOUSE"), "facts": facts},
            {"passageId": "q", "passageStart": 13, "passageEnd": 34, "passageText": "",
                "exhaustivelyAnnotatedProperties": property("11", "HOME"), "facts": []}]}))
        .unwrap()
    }

    fn fact(property: &str, places: [usize; 4]) -> Value {
        json!({"propertyId": property, "subjectStart": places[0], "subjectEnd": places[1], "objectStart": places[2],
            "objectEnd": places[3]})
    }

    pub(in crate::relations) fn joined(source: &knowledgenet::Document) -> Result<Annotated> {
        let document = Document::new("d", source.text.clone());
        let mentions = proposals(&document);
        annotated(source, &Properties::of(std::slice::from_ref(source)), document, mentions)
    }

    #[test]
    fn negatives_come_from_passages_that_are_annotated_for_the_property() {
        // HOME is 0 and SPOUSE is 1.
        let found = joined(&source(json!([fact("25", [0, 3, 8, 11])]))).unwrap();
        let targets: Vec<Vec<(usize, usize, f32)>> = found
            .targets
            .iter()
            .map(|targets| targets.iter().map(|target| (target.pair, target.label, target.value)).collect())
            .collect();
        // Ann to Bob and back; then he and Rome with each other, and both with the date as an object.
        assert_eq!(targets[0], [(0, 1, 1.0), (1, 1, 0.0)]);
        assert_eq!(targets[1], [(0, 0, 0.0), (1, 0, 0.0), (2, 0, 0.0), (3, 0, 0.0)]);
        assert_eq!(found.facts[0].pairs, [(0, 0)]);
    }

    #[test]
    fn facts_between_what_is_no_candidate_have_no_pairs() {
        let found = joined(&source(json!([fact("25", [0, 3, 4, 7])]))).unwrap();
        assert_eq!((found.facts.len(), found.facts[0].pairs.len()), (1, 0));
        assert!(found.targets[0].iter().all(|target| target.value == 0.0));
    }

    #[test]
    fn places_outside_the_document_are_named() {
        let error = joined(&source(json!([fact("25", [0, 3, 8, 99])]))).unwrap_err().to_string();
        assert!(error.contains("passages[0].facts[0].objectStart") && error.contains("99"), "{error}");
    }
}
