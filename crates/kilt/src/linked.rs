//! Texts with linked mentions, as in entity-linking collections: one JSON object a line.
//!
//! Two layouts are read. In the first, a line has `labels`, each with a `span` and the `entity_id` of
//! Wikidata (KORE50, MSNBC, OKE and Wiki-Fair in ELEVANT's form; Bast et al., 2022). In the second it has
//! `mentions`, a list of spans, and `label_id`, the number of each mention's entity in an entity file (TABi;
//! Leszczynski et al., 2022). Spans count code points.

use std::{collections::BTreeMap, path::Path};

use rustc_hash::FxHashMap;
use serde::Deserialize;

use crate::{Error, Id, Result, jsonl};

/// A text with its mentions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedText {
    /// Its id.
    pub id: Id,
    /// The text.
    pub text: String,
    /// Its mentions in the file's order; they may be nested.
    pub mentions: Vec<LinkedMention>,
}

/// A mention with its entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedMention {
    /// The first code point.
    pub start: usize,
    /// The code point after the last.
    pub end: usize,
    /// The entity's id, such as `Q42`; none if it is not in Wikidata, and for dates and quantities.
    pub entity: Option<String>,
}

#[derive(Deserialize)]
struct Line {
    id: Id,
    text: String,
    labels: Option<Vec<Label>>,
    mentions: Option<Vec<(usize, usize)>>,
    #[serde(default)]
    label_id: Vec<u64>,
}

#[derive(Deserialize)]
struct Label {
    span: (usize, usize),
    entity_id: Option<String>,
}

#[derive(Deserialize)]
struct Entity {
    label_id: u64,
    kb_idx: Option<String>,
}

/// The ids in an entity file of TABi's layout, by number. Entities without a Wikidata id are skipped.
///
/// # Errors
/// Read errors, with line and field.
pub fn numbered_entities(path: impl AsRef<Path>) -> Result<BTreeMap<u64, String>> {
    let entities = jsonl::open(path)?.records::<Entity>();
    entities
        .filter_map(|entity| {
            entity.map(|Entity { label_id, kb_idx }| kb_idx.map(|id| (label_id, id))).transpose()
        })
        .collect()
}

/// Reads a file in either layout; `numbered` has the entities of the second.
///
/// # Errors
/// Read errors, with line and field; [`Error::Record`] for an id on two lines, for spans outside the text, for mentions without numbers, and for
/// lines of neither layout.
pub fn load(path: impl AsRef<Path>, numbered: &BTreeMap<u64, String>) -> Result<Vec<LinkedText>> {
    let path = path.as_ref();
    let mut texts = Vec::new();
    let mut known: FxHashMap<Id, u64> = FxHashMap::default();
    for line in jsonl::open(path)?.numbered::<Line>() {
        let (number, line) = line?;
        let wrong = |field: String, message: String| Error::record(path, number, field, message);
        let Line { id, text, labels, mentions, label_id } = line;
        if let Some(first) = known.insert(id.clone(), number) {
            return Err(wrong("id".into(), format!("`{id}` stands on line {first} already")));
        }
        let mut found: Vec<(String, (usize, usize), Option<String>)> = Vec::new();
        match (labels, mentions) {
            (Some(labels), None) => {
                for (at, Label { span, entity_id }) in labels.into_iter().enumerate() {
                    let is_item = |id: &String| {
                        id.strip_prefix('Q').is_some_and(|digits| {
                            !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
                        })
                    };
                    found.push((format!("labels[{at}].span"), span, entity_id.filter(is_item)));
                }
            }
            (None, Some(mentions)) => {
                if mentions.len() != label_id.len() {
                    let message = format!("expected {} numbers, found {}", mentions.len(), label_id.len());
                    return Err(wrong("label_id".into(), message));
                }
                for (at, (span, entity)) in mentions.into_iter().zip(label_id).enumerate() {
                    found.push((format!("mentions[{at}]"), span, numbered.get(&entity).cloned()));
                }
            }
            _ => {
                let message = "expected either `labels` or `mentions`".to_owned();
                return Err(wrong("labels".into(), message));
            }
        }
        let length = text.chars().count();
        let mut mentions = Vec::with_capacity(found.len());
        for (field, (start, end), entity) in found {
            if start >= end || end > length {
                let message = format!("expected a span of {length} code points, found {start} to {end}");
                return Err(wrong(field, message));
            }
            mentions.push(LinkedMention { start, end, entity });
        }
        texts.push(LinkedText { id, text, mentions });
    }
    if texts.is_empty() {
        return Err(Error::Empty { path: path.to_owned(), what: "text" });
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<LinkedText>> {
        let folder = tempfile::tempdir().unwrap();
        let (path, entities) = (folder.path().join("linked.jsonl"), folder.path().join("entities.jsonl"));
        std::fs::write(&path, text).unwrap();
        std::fs::write(
            &entities,
            "{\"label_id\": 7, \"kb_idx\": \"Q90\", \"title\": \"Paris\"}\n{\"label_id\": 8, \"title\": \"Nowhere\"}\n",
        )
        .unwrap();
        load(&path, &numbered_entities(&entities)?)
    }

    #[test]
    fn both_layouts_give_the_same_mentions() {
        let labels = r#"{"id": 1, "text": "In Zürich, Ann saw Paris.", "labels": [
            {"span": [3, 9], "entity_id": "Q72", "name": "Zurich"}, {"span": [11, 14], "entity_id": "<NIL>"},
            {"span": [19, 24], "entity_id": "Q90"}]}"#
            .replace('\n', " ");
        let texts = read(&labels).unwrap();
        let entities: Vec<_> = texts[0].mentions.iter().map(|mention| mention.entity.as_deref()).collect();
        assert_eq!(entities, [Some("Q72"), None, Some("Q90")]);
        let numbers = r#"{"id": "t", "text": "In Zürich, Ann saw Paris.", "mentions": [[19, 24], [11, 14]], "label_id": [7, 8]}"#;
        let texts = read(numbers).unwrap();
        assert_eq!(texts[0].mentions[0], LinkedMention { start: 19, end: 24, entity: Some("Q90".into()) });
        assert_eq!(texts[0].mentions[1].entity, None);
    }

    #[test]
    fn faults_are_named_with_line_and_field() {
        let message = |text: &str| read(text).unwrap_err().to_string();
        let good = r#"{"id": 1, "text": "Paris", "labels": []}"#;
        let outside = message(&format!(
            "{good}\n{}",
            r#"{"id": 2, "text": "Paris", "labels": [{"span": [0, 6], "entity_id": "Q90"}]}"#
        ));
        assert!(
            outside.contains(":2") && outside.contains("labels[0].span") && outside.contains("0 to 6"),
            "{outside}"
        );
        let fewer = message(r#"{"id": 1, "text": "Paris", "mentions": [[0, 5]], "label_id": []}"#);
        assert!(fewer.contains("label_id") && fewer.contains("expected 1 numbers, found 0"), "{fewer}");
        assert!(message(r#"{"id": 1, "text": "Paris"}"#).contains("`labels` or `mentions`"));
        assert!(message("").contains("at least one text"));
    }
}
