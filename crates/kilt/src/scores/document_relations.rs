//! DocRED's scores of relations between a document's entities, as in its public scorer.
//!
//! A predicted relation is correct if the document has it between the same two entities. Duplicates do not
//! count. `ign_f1` excludes a correct relation from the precision if training documents have it between two
//! of the entities' names; recall is over all. Evidence counts sentences of correct relations.

use std::path::{Path, PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use super::Measure;
use crate::{
    Error, Result,
    docred::{self, Document, PredictedRelation},
    jsonl,
};

/// The scores of a prediction file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Relations of the gold documents.
    pub gold: usize,
    /// Predicted relations.
    pub found: usize,
    /// Correct relations.
    pub right: usize,
    /// `right / found`.
    pub precision: Measure,
    /// `right / gold`.
    pub recall: Measure,
    /// Their harmonic mean.
    pub f1: Measure,
    /// F1 without correct relations that are known from training documents, if given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ign_f1: Option<Measure>,
    /// F1 of the supporting sentences.
    pub evidence_f1: Measure,
}

/// A document's title, a subject, an object and a property.
type Key<'a> = (&'a str, usize, usize, &'a str);

/// Names of a subject and an object, and a property.
type NamedFact<'a> = (&'a str, &'a str, &'a str);

/// Scores a file of predictions, one JSON list; `known` are files of training documents.
///
/// # Errors
/// Read errors; [`Error::Record`] if a prediction is for an unknown document or entity.
pub fn evaluate(gold: &Path, guess: &Path, known: &[PathBuf]) -> Result<Report> {
    let documents = docred::load(gold)?;
    let found: Vec<PredictedRelation> = jsonl::read_json(guess)?;
    let known: Vec<Vec<Document>> = known.iter().map(docred::load).collect::<Result<_>>()?;
    let entities: FxHashMap<&str, usize> =
        documents.iter().map(|document| (document.title.as_str(), document.entities.len())).collect();
    for (at, found) in found.iter().enumerate() {
        let wrong = |name: &str, message| Err(Error::record(guess, 1, format!("[{at}].{name}"), message));
        let Some(&entities) = entities.get(found.title.as_str()) else {
            return wrong(
                "title",
                format!("no document of {} has the title {:?}", gold.display(), found.title),
            );
        };
        for (name, number) in [("h_idx", found.head), ("t_idx", found.tail)] {
            if number >= entities {
                return wrong(name, format!("expected an entity below {entities}, found {number}"));
            }
        }
    }
    Ok(score(&documents, &found, &known.concat()))
}

/// Scores predictions for `documents` with distinct titles; `known` are training documents.
pub fn score(documents: &[Document], found: &[PredictedRelation], known: &[Document]) -> Report {
    let facts: FxHashSet<NamedFact<'_>> = known.iter().flat_map(named).map(|(fact, _)| fact).collect();
    let mut gold: FxHashMap<Key<'_>, (bool, &[usize])> = FxHashMap::default();
    let mut sentences = 0;
    for document in documents {
        for relation in &document.relations {
            let key = (document.title.as_str(), relation.head, relation.tail, relation.property.as_str());
            gold.insert(key, (false, &relation.evidence));
            sentences += relation.evidence.len();
        }
        for (fact, relation) in named(document).filter(|(fact, _)| facts.contains(fact)) {
            let relation = &document.relations[relation];
            if let Some(known) =
                gold.get_mut(&(document.title.as_str(), relation.head, relation.tail, fact.2))
            {
                known.0 = true;
            }
        }
    }
    let mut report = Report { gold: gold.len(), ..Report::default() };
    let (mut seen, mut right_known, mut predicted_sentences, mut shown) = (FxHashSet::default(), 0, 0, 0);
    for found in found {
        let key = (found.title.as_str(), found.head, found.tail, found.property.as_str());
        if !seen.insert(key) {
            continue;
        }
        report.found += 1;
        let evidence: FxHashSet<usize> = found.evidence.iter().copied().collect();
        predicted_sentences += evidence.len();
        if let Some((is_known, own)) = gold.get(&key) {
            report.right += 1;
            right_known += usize::from(*is_known);
            shown += own.iter().filter(|sentence| evidence.contains(sentence)).count();
        }
    }
    report.precision = Measure::share(report.right, report.found);
    report.recall = Measure::share(report.right, report.gold);
    report.f1 = report.precision.harmonic(report.recall);
    report.evidence_f1 =
        Measure::share(shown, predicted_sentences).harmonic(Measure::share(shown, sentences));
    if !known.is_empty() {
        let precision = Measure::share(report.right - right_known, report.found - right_known);
        report.ign_f1 = Some(precision.harmonic(report.recall));
    }
    report
}

/// A document's relations by all pairs of names of their entities, with the relation's index.
fn named(document: &Document) -> impl Iterator<Item = (NamedFact<'_>, usize)> {
    let names = |entity: usize| document.entities[entity].iter().map(|mention| mention.name.as_str());
    document.relations.iter().enumerate().flat_map(move |(at, relation)| {
        names(relation.head).flat_map(move |subject| {
            names(relation.tail).map(move |object| ((subject, object, relation.property.as_str()), at))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(title: &str, relations: &str) -> Document {
        let text = format!(
            r#"{{"title": "{title}", "sents": [["Ann", "Bob", "Rome"], ["Ann"]], "vertexSet": [
                [{{"name": "Ann", "pos": [0, 1], "sent_id": 0, "type": "PER"}}, {{"name": "Annie", "pos": [0, 1], "sent_id": 1, "type": "PER"}}],
                [{{"name": "Bob", "pos": [1, 2], "sent_id": 0, "type": "PER"}}],
                [{{"name": "Rome", "pos": [2, 3], "sent_id": 0, "type": "LOC"}}]], "labels": [{relations}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn found(title: &str, head: usize, tail: usize, property: &str, evidence: &[usize]) -> PredictedRelation {
        let (title, property) = (title.into(), property.into());
        PredictedRelation { title, head, tail, property, evidence: evidence.to_vec(), confidence: None }
    }

    const GOLD: &str = r#"{"h": 0, "t": 1, "r": "P26", "evidence": [0, 1]}, {"h": 0, "t": 2, "r": "P19", "evidence": [0]},
        {"h": 1, "t": 2, "r": "P19"}"#;

    #[test]
    fn correct_facts_count_once_and_training_facts_are_separate() {
        let gold = [document("a", GOLD)];
        let guess = [
            found("a", 0, 1, "P26", &[0]),
            found("a", 0, 1, "P26", &[0]),
            found("a", 0, 2, "P19", &[0, 1]),
            found("a", 2, 0, "P19", &[]),
        ];
        let report = score(&gold, &guess, &[]);
        assert_eq!((report.gold, report.found, report.right, report.ign_f1), (3, 3, 2, None));
        assert!((report.f1.or_zero() - 2.0 / 3.0).abs() < 1e-12);
        // Of three predicted sentences two are correct, and two of three gold sentences are predicted.
        assert!((report.evidence_f1.or_zero() - 2.0 / 3.0).abs() < 1e-12);
        // Another name of Ann suffices: she was born in Rome in a training document.
        let learned = [document("b", r#"{"h": 0, "t": 2, "r": "P19"}"#)];
        let ign = score(&gold, &guess, &learned).ign_f1.unwrap().or_zero();
        let (precision, recall): (f64, f64) = (1.0 / 2.0, 2.0 / 3.0);
        assert!((ign - 2.0 * precision * recall / (precision + recall)).abs() < 1e-12);
        let silent = score(&gold, &[], &learned);
        assert_eq!((silent.f1, silent.recall), (0.0.into(), 0.0.into()));
        // Nothing is predicted, and there is no sentence to support it.
        assert_eq!(silent.precision, Measure::default());
        assert_eq!(score(&[document("c", "")], &[], &[]).f1, Measure::default());
    }

    #[test]
    fn predictions_of_nothing_are_refused_by_field() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, json: String| {
            let path = folder.path().join(name);
            std::fs::write(&path, json).unwrap();
            path
        };
        let gold = file("gold.json", serde_json::to_string(&[document("a", GOLD)]).unwrap());
        let message = |guess: PredictedRelation| {
            let guess = file("guess.json", serde_json::to_string(&[guess]).unwrap());
            evaluate(&gold, &guess, &[]).unwrap_err().to_string()
        };
        assert!(message(found("b", 0, 1, "P26", &[])).contains("[0].title"));
        assert!(message(found("a", 0, 3, "P26", &[])).contains("[0].t_idx"));
        let right = file("right.json", serde_json::to_string(&[found("a", 0, 1, "P26", &[0, 1])]).unwrap());
        assert_eq!(evaluate(&gold, &right, std::slice::from_ref(&gold)).unwrap().right, 1);
    }
}
