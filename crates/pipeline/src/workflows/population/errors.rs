//! Analysis of errors: missed and wrong facts by property and cause.

use std::{collections::BTreeMap, ops::AddAssign, path::Path};

use serde::Serialize;
use sporran_kilt::{
    knowledgenet::{self, Document, Fact, Passage},
    scores::extraction::same_entity,
};

use crate::Result;

/// The outcomes of a property's facts. Mentions match if they overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Causes {
    /// Gold facts that were predicted.
    pub found: usize,
    /// Predicted gold facts with two gold links, of which at least one is missing or wrong.
    pub link_missed: usize,
    /// Of these, facts with a prediction that has two links; the others lack a link.
    pub link_wrong: usize,
    /// Gold facts with an undetected mention.
    pub mention_missed: usize,
    /// Gold facts whose confidence is slightly below the threshold.
    pub threshold: usize,
    /// Gold facts with detected mentions and low confidence.
    pub relation_missed: usize,
    /// Predictions with the mentions of a gold fact, but another property.
    pub property_wrong: usize,
    /// Predictions with subject and object exchanged.
    pub direction_wrong: usize,
    /// Predictions with one mention of a gold fact of the property.
    pub argument_wrong: usize,
    /// Other wrong predictions.
    pub relation_wrong: usize,
}

/// Causes by property name. [`Causes::ALL`] is the sum.
pub type ErrorAnalysis = BTreeMap<String, Causes>;

impl Causes {
    /// The name of the sum over all properties.
    pub const ALL: &str = "ALL";

    /// The counts with their names.
    #[must_use]
    pub fn columns(self) -> [(&'static str, usize); 10] {
        let Self {
            found,
            link_missed,
            link_wrong,
            mention_missed,
            threshold,
            relation_missed,
            property_wrong,
            direction_wrong,
            argument_wrong,
            relation_wrong,
        } = self;
        [
            ("found", found),
            ("link missed", link_missed),
            ("link wrong", link_wrong),
            ("mention missed", mention_missed),
            ("threshold", threshold),
            ("relation missed", relation_missed),
            ("property wrong", property_wrong),
            ("direction wrong", direction_wrong),
            ("argument wrong", argument_wrong),
            ("relation wrong", relation_wrong),
        ]
    }
}

impl AddAssign for Causes {
    fn add_assign(&mut self, other: Self) {
        self.found += other.found;
        self.link_missed += other.link_missed;
        self.link_wrong += other.link_wrong;
        self.mention_missed += other.mention_missed;
        self.threshold += other.threshold;
        self.relation_missed += other.relation_missed;
        self.property_wrong += other.property_wrong;
        self.direction_wrong += other.direction_wrong;
        self.argument_wrong += other.argument_wrong;
        self.relation_wrong += other.relation_wrong;
    }
}

fn overlaps(a: (usize, usize), b: (usize, usize)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

fn subject(fact: &Fact) -> (usize, usize) {
    (fact.subject_start, fact.subject_end)
}

fn object(fact: &Fact) -> (usize, usize) {
    (fact.object_start, fact.object_end)
}

fn alike(a: &Fact, b: &Fact) -> bool {
    overlaps(subject(a), subject(b)) && overlaps(object(a), object(b))
}

/// Compares predictions with gold facts. `sporran populate` writes `mentions` and `withheld` into its
/// predictions. Without them, missed facts count as missed relations.
///
/// # Errors
/// Errors of reading.
pub fn errors(gold: &Path, guess: &Path, fold: Option<i64>) -> Result<ErrorAnalysis> {
    let guesses = knowledgenet::load(guess)?;
    let mut analysis = ErrorAnalysis::new();
    for document in knowledgenet::load(gold)? {
        if fold.is_some_and(|fold| fold != document.fold) {
            continue;
        }
        let other = guesses.iter().find(|other| other.id == document.id);
        for passage in &document.passages {
            compare(
                passage,
                other.and_then(|other: &Document| other.passages.iter().find(|other| other.id == passage.id)),
                &mut analysis,
            );
        }
    }
    Ok(analysis)
}

fn compare(gold: &Passage, guess: Option<&Passage>, analysis: &mut ErrorAnalysis) {
    let none = Vec::new();
    let predicted = guess.map_or(&none, |passage| &passage.facts);
    let field = |name: &str| guess.and_then(|passage| passage.extra.get(name)).cloned();
    let read =
        |name: &str| field(name).and_then(|value| serde_json::from_value::<Vec<(usize, usize)>>(value).ok());
    let mentions = read("mentions");
    let withheld: Vec<(String, [usize; 4])> =
        field("withheld").and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default();
    let mut count = |name: &str, of: fn(&mut Causes) -> &mut usize| {
        for name in [name, Causes::ALL] {
            *of(analysis.entry(name.to_owned()).or_default()) += 1;
        }
    };
    for property in &gold.exhaustive {
        let name = &property.name;
        let own: Vec<&Fact> = gold.facts.iter().filter(|fact| fact.property == property.id).collect();
        for fact in &own {
            let same = |other: &&Fact| other.property == fact.property && alike(fact, other);
            let linked = |other: &Fact| match (fact.uris(), other.uris()) {
                (Some((subject, object)), Some(other)) => {
                    same_entity(subject, other.0) && same_entity(object, other.1)
                }
                _ => false,
            };
            let is_mention =
                |place| mentions.as_ref().is_none_or(|all| all.iter().any(|other| overlaps(*other, place)));
            let is_withheld = |(id, place): &(String, [usize; 4])| {
                *id == property.id.text()
                    && overlaps((place[0], place[1]), subject(fact))
                    && overlaps((place[2], place[3]), object(fact))
            };
            if predicted.iter().any(|other| same(&other)) {
                count(name, |causes| &mut causes.found);
                if fact.uris().is_some() && !predicted.iter().filter(same).any(linked) {
                    count(name, |causes| &mut causes.link_missed);
                    if predicted.iter().filter(same).any(|other| other.uris().is_some()) {
                        count(name, |causes| &mut causes.link_wrong);
                    }
                }
            } else if !is_mention(subject(fact)) || !is_mention(object(fact)) {
                count(name, |causes| &mut causes.mention_missed);
            } else if withheld.iter().any(is_withheld) {
                count(name, |causes| &mut causes.threshold);
            } else {
                count(name, |causes| &mut causes.relation_missed);
            }
        }
        for fact in predicted.iter().filter(|fact| fact.property == property.id) {
            let turned = |other: &&Fact| {
                overlaps(subject(fact), object(other)) && overlaps(object(fact), subject(other))
            };
            let shares = |other: &&Fact| {
                overlaps(subject(fact), subject(other)) || overlaps(object(fact), object(other))
            };
            if own.iter().any(|other| alike(fact, other)) {
                continue;
            }
            if gold.facts.iter().any(|other| alike(fact, other)) {
                count(name, |causes| &mut causes.property_wrong);
            } else if own.iter().any(turned) {
                count(name, |causes| &mut causes.direction_wrong);
            } else if own.iter().any(shares) {
                count(name, |causes| &mut causes.argument_wrong);
            } else {
                count(name, |causes| &mut causes.relation_wrong);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file(facts: &[Value], extra: Value) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut passage = json!({"passageId": "p", "passageStart": 0, "passageEnd": 90, "passageText": "",
            "exhaustivelyAnnotatedProperties": [{"propertyId": "1", "propertyName": "A"}, {"propertyId": "2", "propertyName": "B"}],
            "facts": facts});
        passage.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        let document = json!({"fold": 4, "documentId": "d", "documentText": "", "passages": [passage]});
        std::fs::write(file.path(), document.to_string()).unwrap();
        file
    }

    #[test]
    fn links_of_other_addresses_name_the_same_entity() {
        let gold = file(&[fact("1", 0, 10, "http://www.wikidata.org/wiki/Q1")], json!({}));
        let guess = file(&[fact("1", 0, 10, "http://www.wikidata.org/entity/Q1")], json!({}));
        let found = errors(gold.path(), guess.path(), None).unwrap();
        assert_eq!(found["A"], Causes { found: 1, ..Causes::default() });
    }

    fn fact(property: &str, subject: usize, object: usize, uri: &str) -> Value {
        json!({"propertyId": property, "subjectStart": subject, "subjectEnd": subject + 5, "objectStart": object,
            "objectEnd": object + 5, "subjectUri": uri, "objectUri": uri})
    }

    #[test]
    fn every_cause_is_counted() {
        let gold = file(
            &[
                fact("1", 0, 10, "Q1"),
                fact("1", 20, 30, ""),
                fact("1", 40, 50, ""),
                fact("1", 60, 70, ""),
                fact("2", 20, 10, ""),
            ],
            json!({}),
        );
        let guess = file(
            &[
                fact("1", 2, 12, "Q2"),
                fact("2", 60, 70, ""),
                fact("1", 10, 0, ""),
                fact("1", 0, 30, ""),
                fact("2", 80, 85, ""),
            ],
            json!({"mentions": [[0, 5], [10, 15], [20, 25], [30, 35], [40, 45], [60, 65], [70, 75]],
                "withheld": [["1", [20, 25, 30, 35]]]}),
        );
        let found = errors(gold.path(), guess.path(), Some(4)).unwrap();
        assert_eq!(
            found["A"],
            Causes {
                found: 1,
                link_missed: 1,
                link_wrong: 1,
                mention_missed: 1,
                threshold: 1,
                relation_missed: 1,
                direction_wrong: 1,
                argument_wrong: 1,
                ..Causes::default()
            }
        );
        assert_eq!(
            found["B"],
            Causes { relation_missed: 1, property_wrong: 1, relation_wrong: 1, ..Causes::default() }
        );
        assert_eq!(found[Causes::ALL].found + found[Causes::ALL].relation_missed, 3);
        assert!(errors(gold.path(), guess.path(), Some(3)).unwrap().is_empty());
    }
}
