//! Anserini's and Pyserini's files: a collection of `{id, contents}` and topics as `id TAB query`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::document::{self, METADATA, joined};
use crate::{Error, Id, Result, jsonl, open_record::open_record};

/// A document of a `JsonCollection`.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Unique in the collection.
    pub id: Id,
    /// The indexed text: the title, a line end and the text, or the text alone.
    pub contents: String,
    /// Fields that the collection adds.
    pub extra: Map<String, Value>,
}

open_record!(Document, required { id = "id", contents = "contents" }, optional {});

impl From<Document> for document::Document {
    /// The first line is the title if another one follows.
    fn from(document: Document) -> Self {
        let (title, text) = document.contents.split_once('\n').unwrap_or(("", &document.contents));
        let (title, text) = (title.to_owned(), text.to_owned());
        let mut extra = document.extra;
        let metadata = extra.shift_remove(METADATA);
        Self { id: document.id.text().into_owned(), title, text, metadata: joined(extra, metadata) }
    }
}

impl From<document::Document> for Document {
    fn from(document: document::Document) -> Self {
        // A title of several lines would become part of the text when read again.
        let title = one_line(&document.title);
        let contents = format!("{title}\n{}", document.text);
        // A field of a name that the format defines would stand twice.
        let own = |key: &String| matches!(key.as_str(), "id" | "contents");
        let extra = match document.metadata.keys().any(own) {
            true => Map::from_iter([(METADATA.to_owned(), document.metadata.into())]),
            false => document.metadata,
        };
        Self { id: document.id.into(), contents, extra }
    }
}

/// A line of a topics file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topic {
    /// The query's id.
    pub id: String,
    /// The text of the query.
    pub text: String,
}

impl Topic {
    /// The topic as a line. Tabs and line ends in the query (a dialogue's turns) become blanks, since the format
    /// cannot hold them.
    ///
    /// # Errors
    /// The name of the column and what is wrong, where the id holds a tab or a line end.
    pub fn line(&self) -> Result<String, (&'static str, String)> {
        if self.id.contains(['\t', '\n', '\r']) {
            return Err(("id", format!("expected an id without tab and line end, found {:?}", self.id)));
        }
        Ok(format!("{}\t{}", self.id, one_line(&self.text)))
    }
}

fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text.split(['\t', '\n', '\r']).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

/// The topics of a file, with their lines. Ends after the first error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] where a line has not two columns or one
/// of them is empty.
pub fn read_topics(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Topic)>> + use<>> {
    let reader = jsonl::open(path)?;
    let path = reader.path().to_owned();
    Ok(super::until_error(reader.lines().map(move |line| {
        let (number, line) = line?;
        let Some((id, text)) = line.split_once('\t') else {
            return Err(Error::record(&path, number, "text", "expected `id TAB query`, found one column"));
        };
        for (name, column) in [("id", id), ("text", text)] {
            if column.trim().is_empty() {
                return Err(Error::record(&path, number, name, "expected text, found an empty column"));
            }
        }
        Ok((number, Topic { id: id.trim().to_owned(), text: text.to_owned() }))
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_the_title() {
        let metadata = serde_json::from_str(r#"{"lang":"en","url":"u"}"#).unwrap();
        let (id, title, text) = ("1".to_owned(), "T".to_owned(), "one\ntwo".to_owned());
        let document = document::Document { id, title, text, metadata };
        let written = Document::from(document.clone());
        assert_eq!(written.contents, "T\none\ntwo");
        assert_eq!(written.extra, document.metadata);
        assert_eq!(document::Document::from(written), document);
        let metadata: Map<String, Value> = serde_json::from_str(r#"{"contents":"c","lang":"en"}"#).unwrap();
        let clashing = document::Document { metadata, ..document };
        let line = serde_json::to_string(&Document::from(clashing.clone())).unwrap();
        assert_eq!(document::Document::from(serde_json::from_str::<Document>(&line).unwrap()), clashing);
        let untitled: Document = serde_json::from_str(r#"{"id":3,"contents":"only text"}"#).unwrap();
        let (title, metadata) = (String::new(), Map::new());
        let expected = document::Document { id: "3".into(), title, text: "only text".into(), metadata };
        assert_eq!(document::Document::from(untitled), expected);
    }

    #[test]
    fn unknown_fields_survive_a_round_trip() {
        let line = r#"{"id":"d","contents":"t","raw":"<x>","n":[1]}"#;
        let document: Document = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_value(&document).unwrap(), serde_json::from_str::<Value>(line).unwrap());
    }

    #[test]
    fn topics_are_one_line_each() {
        let topic = Topic { id: "947testa CRICKET:0".into(), text: "first turn\nsecond\tturn".into() };
        assert_eq!(topic.line().unwrap(), "947testa CRICKET:0\tfirst turn second turn");
        assert_eq!(Topic { id: "a\tb".into(), text: "q".into() }.line().unwrap_err().0, "id");
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("topics.tsv");
        let cases = [
            ("1\tq\n2 q\n", "topics.tsv:2: field `text`: expected `id TAB query`"),
            ("1\tq\n\tq\n", "topics.tsv:2: field `id`: expected text"),
            ("1\tq\n2\t \n", "topics.tsv:2: field `text`: expected text"),
        ];
        for (text, expected) in cases {
            std::fs::write(&path, text).unwrap();
            let results: Vec<_> = read_topics(&path).unwrap().collect();
            assert_eq!(results.len(), 2);
            let message = results[1].as_ref().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
