//! Passages as JSON lines of `{id, title, text}` and other fields.

use serde_json::{Map, Value};

use super::document::{self, METADATA, joined};
use crate::{Id, open_record::open_record};

/// A line of a file of passages.
#[derive(Clone, Debug, PartialEq)]
pub struct Passage {
    /// Unique in the file.
    pub id: Id,
    /// The title; some passages have none.
    pub title: Option<String>,
    /// The text.
    pub text: String,
    /// The other fields.
    pub extra: Map<String, Value>,
}

open_record!(Passage, required { id = "id", text = "text" }, optional { title = "title" });

impl From<Passage> for document::Document {
    fn from(passage: Passage) -> Self {
        let mut extra = passage.extra;
        let metadata = extra.shift_remove(METADATA);
        let title = passage.title.filter(|title| !title.trim().is_empty()).unwrap_or_default();
        let id = passage.id.text().into_owned();
        Self { id, title, text: passage.text, metadata: joined(extra, metadata) }
    }
}

impl From<document::Document> for Passage {
    fn from(document: document::Document) -> Self {
        // A field of a name that the format defines would stand twice.
        let own = |key: &String| matches!(key.as_str(), "id" | "title" | "text");
        let extra = match document.metadata.keys().any(own) {
            true => Map::from_iter([(METADATA.to_owned(), document.metadata.into())]),
            false => document.metadata,
        };
        let title = Some(document.title).filter(|title| !title.is_empty());
        Self { id: document.id.into(), title, text: document.text, extra }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_the_way_through_a_document() {
        let line = r#"{"id":"a:1","text":"It is hot.","title":"Tea","file":"tea.md","line":12,"lang":"en"}"#;
        let document = document::Document::from(serde_json::from_str::<Passage>(line).unwrap());
        assert_eq!((document.id.as_str(), document.title.as_str()), ("a:1", "Tea"));
        assert_eq!(document.metadata.keys().collect::<Vec<_>>(), ["file", "line", "lang"]);
        assert_eq!(serde_json::to_string(&Passage::from(document)).unwrap(), line);
        let untitled: Passage = serde_json::from_str(r#"{"id":3,"text":"x","metadata":{"id":"y"}}"#).unwrap();
        let document = document::Document::from(untitled);
        // The id is no part of the text that is searched.
        assert_eq!((document.title.as_str(), &document.metadata["id"]), ("", &Value::from("y")));
        let written = serde_json::to_string(&Passage::from(document)).unwrap();
        assert_eq!(written, r#"{"id":"3","text":"x","metadata":{"id":"y"}}"#);
    }
}
