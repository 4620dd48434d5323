//! DocRED and Re-DocRED: documents with all their entities' mentions and the relations between the entities (Yao et al., 2019;
//! Tan et al., 2022).

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Error, Result, jsonl};

/// A document, split into sentences and tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// The title.
    pub title: String,
    /// The tokens of each sentence.
    #[serde(rename = "sents")]
    pub sentences: Vec<Vec<String>>,
    /// The mentions of each entity.
    #[serde(rename = "vertexSet")]
    pub entities: Vec<Vec<Mention>>,
    /// The relations between entities; empty in a file of texts only.
    #[serde(default, rename = "labels")]
    pub relations: Vec<Relation>,
}

/// A mention of an entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mention {
    /// Its tokens, joined by blanks.
    pub name: String,
    /// Its first token in the sentence, and the token after its last.
    #[serde(rename = "pos")]
    pub tokens: (usize, usize),
    /// Its sentence.
    #[serde(rename = "sent_id")]
    pub sentence: usize,
    /// `PER`, `ORG`, `LOC`, `TIME`, `NUM` or `MISC`.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A relation that a document expresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Relation {
    /// The index of the subject among the entities.
    #[serde(rename = "h")]
    pub head: usize,
    /// The index of the object.
    #[serde(rename = "t")]
    pub tail: usize,
    /// The Wikidata property, such as `P17`.
    #[serde(rename = "r")]
    pub property: String,
    /// The supporting sentences.
    #[serde(default)]
    pub evidence: Vec<usize>,
}

/// A predicted relation, as in prediction files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedRelation {
    /// The document's title.
    pub title: String,
    /// The index of the subject among the document's entities.
    #[serde(rename = "h_idx")]
    pub head: usize,
    /// The index of the object.
    #[serde(rename = "t_idx")]
    pub tail: usize,
    /// The Wikidata property.
    #[serde(rename = "r")]
    pub property: String,
    /// The supporting sentences.
    #[serde(default)]
    pub evidence: Vec<usize>,
    /// The confidence from 0 to 1, if known; scorers ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f32>,
}

/// Reads a file of documents, one JSON list.
///
/// # Errors
/// Read errors, with the field; [`Error::Record`] if a mention is not in its sentence or a relation's entity does not
/// exist.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<Document>> {
    let path = path.as_ref();
    let documents: Vec<Document> = jsonl::read_json(path)?;
    for (at, document) in documents.iter().enumerate() {
        document.check().map_err(|(field, message)| Error::Record {
            path: path.into(),
            line: 1,
            field: format!("[{at}].{field}"),
            message,
        })?;
    }
    Ok(documents)
}

impl Document {
    fn check(&self) -> Result<(), (String, String)> {
        for (entity, mentions) in self.entities.iter().enumerate() {
            if mentions.is_empty() {
                return Err((
                    format!("vertexSet[{entity}]"),
                    "expected at least one mention, found none".into(),
                ));
            }
            for (at, mention) in mentions.iter().enumerate() {
                let field = |name: &str| format!("vertexSet[{entity}][{at}].{name}");
                let Some(sentence) = self.sentences.get(mention.sentence) else {
                    let expected = format!("expected a sentence below {}", self.sentences.len());
                    return Err((field("sent_id"), format!("{expected}, found {}", mention.sentence)));
                };
                let (start, end) = mention.tokens;
                if start >= end || end > sentence.len() {
                    let expected = format!("expected tokens of a sentence of {}", sentence.len());
                    return Err((field("pos"), format!("{expected}, found {start} to {end}")));
                }
            }
        }
        for (at, relation) in self.relations.iter().enumerate() {
            for (name, entity) in [("h", relation.head), ("t", relation.tail)] {
                if entity >= self.entities.len() {
                    let expected = format!("expected an entity below {}", self.entities.len());
                    return Err((format!("labels[{at}].{name}"), format!("{expected}, found {entity}")));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"[{"title": "Ann", "sents": [["Ann", "met", "Bob", "Lee", "."]],
        "vertexSet": [[{"name": "Ann", "pos": [0, 1], "sent_id": 0, "type": "PER", "global_pos": [0, 0]}],
                      [{"name": "Bob Lee", "pos": [2, 4], "sent_id": 0, "type": "PER"}]],
        "labels": [{"h": 0, "t": 1, "r": "P26", "evidence": [0]}]}]"#;

    fn read(text: &str) -> Result<Vec<Document>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        load(file.path())
    }

    #[test]
    fn mentions_and_relations_are_read() {
        let documents = read(FILE).unwrap();
        let mention = &documents[0].entities[1][0];
        assert_eq!(
            (mention.name.as_str(), mention.tokens, mention.kind.as_str()),
            ("Bob Lee", (2, 4), "PER")
        );
        assert_eq!((documents[0].relations[0].tail, documents[0].relations[0].property.as_str()), (1, "P26"));
        assert!(read(&FILE.replace("\"labels\"", "\"other\"")).unwrap()[0].relations.is_empty());
    }

    #[test]
    fn places_that_do_not_exist_are_refused_by_field() {
        for (from, to, expected) in [
            ("[2, 4]", "[2, 6]", "[0].vertexSet[1][0].pos"),
            ("[2, 4]", "[2, 2]", "found 2 to 2"),
            ("\"sent_id\": 0, \"type\": \"PER\"}]]", "\"sent_id\": 1, \"type\": \"PER\"}]]", "sent_id"),
            ("\"t\": 1", "\"t\": 2", "[0].labels[0].t"),
        ] {
            let message = read(&FILE.replace(from, to)).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
