//! BEIR's files (Thakur et al., 2021): `corpus.jsonl`, `queries.jsonl` and `qrels/<split>.tsv`.

use std::path::Path;

use serde_json::{Map, Value};

use super::{Qrel, document};
use crate::{Error, Id, Result, jsonl, open_record::open_record};

/// A line of `corpus.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Unique in the corpus.
    pub id: Id,
    /// The title; some corpora have none.
    pub title: Option<String>,
    /// The text.
    pub text: String,
    /// What the corpus adds.
    pub metadata: Option<Value>,
    /// Fields that BEIR does not define.
    pub extra: Map<String, Value>,
}

open_record!(Document, required { id = "_id", text = "text" }, optional { title = "title", metadata = "metadata" });

impl From<Document> for document::Document {
    fn from(document: Document) -> Self {
        Self {
            id: document.id.text().into_owned(),
            title: document.title.unwrap_or_default(),
            text: document.text,
            metadata: document::joined(document.extra, document.metadata),
        }
    }
}

impl From<document::Document> for Document {
    fn from(document: document::Document) -> Self {
        Self {
            id: document.id.into(),
            title: Some(document.title),
            text: document.text,
            metadata: Some(Value::Object(document.metadata)),
            extra: Map::new(),
        }
    }
}

/// A line of `queries.jsonl`.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Unique in the file.
    pub id: Id,
    /// The text of the query.
    pub text: String,
    /// What the data set adds.
    pub metadata: Option<Value>,
    /// Fields that BEIR does not define.
    pub extra: Map<String, Value>,
}

open_record!(Query, required { id = "_id", text = "text" }, optional { metadata = "metadata" });

/// The first line of a file of judgements.
pub const QRELS_HEADER: &str = "query-id\tcorpus-id\tscore";

/// The judgements of a `qrels/<split>.tsv`, with their lines. Ends after the first error.
///
/// # Errors
/// [`Error::Io`] if the file cannot be opened; an item is [`Error::Record`] where the header is missing, a line has
/// not three columns, an id is empty or the score is not an integer.
pub fn read_qrels(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Qrel)>> + use<>> {
    let reader = jsonl::open(path)?;
    let path = reader.path().to_owned();
    let mut header = false;
    Ok(super::until_error(reader.lines().filter_map(move |line| {
        let (number, line) = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(error)),
        };
        if !std::mem::replace(&mut header, true) {
            let message =
                format!("expected the header `{}`, found `{line}`", QRELS_HEADER.replace('\t', " TAB "));
            return (line.trim_end() != QRELS_HEADER)
                .then(|| Err(Error::record(&path, number, "query-id", message)));
        }
        Some(qrel(&path, number, &line).map(|qrel| (number, qrel)))
    })))
}

/// A judgement in a line.
pub(super) fn qrel(path: &Path, line: u64, text: &str) -> Result<Qrel> {
    let columns: Vec<&str> = text.split('\t').map(str::trim).collect();
    let &[query, document, score] = &columns[..] else {
        let message = format!("expected the 3 columns query-id, corpus-id, score, found {}", columns.len());
        return Err(Error::record(path, line, if columns.len() < 3 { "score" } else { "4" }, message));
    };
    for (name, id) in [("query-id", query), ("corpus-id", document)] {
        if id.is_empty() {
            return Err(Error::record(path, line, name, "expected an id, found an empty column"));
        }
    }
    let relevance = score
        .parse()
        .map_err(|_| Error::record(path, line, "score", format!("expected an integer, found `{score}`")))?;
    Ok(Qrel { query: query.to_owned(), document: document.to_owned(), relevance })
}

/// A judgement as a line of `qrels/<split>.tsv`.
///
/// # Errors
/// The name of the column and what is wrong, where an id holds a tab or a line end.
pub fn qrel_line(qrel: &Qrel) -> Result<String, (&'static str, String)> {
    for (name, id) in [("query-id", &qrel.query), ("corpus-id", &qrel.document)] {
        if id.contains(['\t', '\n', '\r']) {
            return Err((name, format!("expected an id without tab and line end, found {id:?}")));
        }
    }
    Ok(format!("{}\t{}\t{}", qrel.query, qrel.document, qrel.relevance))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qrels(text: &str) -> Result<Vec<(u64, Qrel)>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("test.tsv");
        std::fs::write(&path, text).unwrap();
        read_qrels(&path)?.collect()
    }

    #[test]
    fn unknown_fields_survive_a_round_trip() {
        for line in [
            r#"{"_id":"MED-10","title":"Statin","text":"Recent","metadata":{"url":"u"},"year":2012}"#,
            r#"{"_id":4,"text":"no title","title":null}"#,
        ] {
            let document: Document = serde_json::from_str(line).unwrap();
            let again = serde_json::to_value(&document).unwrap();
            assert_eq!(again, serde_json::from_str::<Value>(line).unwrap());
        }
        let line = r#"{"_id":"q","text":"t","metadata":{"query":"x"},"lang":"en"}"#;
        let query: Query = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_value(&query).unwrap(), serde_json::from_str::<Value>(line).unwrap());
    }

    #[test]
    fn a_document_keeps_its_id_title_text_and_metadata() {
        let line = r#"{"_id":"1","title":"T","text":"x","metadata":{"url":"u"},"year":2012}"#;
        let document = document::Document::from(serde_json::from_str::<Document>(line).unwrap());
        let metadata = serde_json::from_str(r#"{"year":2012,"url":"u"}"#).unwrap();
        let expected = document::Document { id: "1".into(), title: "T".into(), text: "x".into(), metadata };
        assert_eq!(document, expected);
        assert_eq!(document::Document::from(Document::from(document.clone())), document);
    }

    #[test]
    fn judgements_are_written_as_they_are_read() {
        let line = "947testa CRICKET:0\tdoc 1\t2";
        let read = qrels(&format!("{QRELS_HEADER}\n{line}\n")).unwrap();
        let expected = Qrel { query: "947testa CRICKET:0".into(), document: "doc 1".into(), relevance: 2 };
        assert_eq!(read, [(2, expected.clone())]);
        assert_eq!(qrel_line(&expected).unwrap(), line);
        assert_eq!(qrel_line(&Qrel { document: "a\tb".into(), ..expected }).unwrap_err().0, "corpus-id");
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let cases = [
            ("q\td\t1\n", "test.tsv:1: field `query-id`: expected the header"),
            ("q\td\n", "test.tsv:2: field `score`: expected the 3 columns"),
            ("q\td\t1\t2\n", "test.tsv:2: field `4`: expected the 3 columns"),
            ("q\t\t1\n", "test.tsv:2: field `corpus-id`: expected an id"),
            ("q\td\t0.5\n", "test.tsv:2: field `score`: expected an integer, found `0.5`"),
        ];
        for (at, (text, expected)) in cases.into_iter().enumerate() {
            let header = if at == 0 { String::new() } else { format!("{QRELS_HEADER}\n") };
            let message = qrels(&(header + text)).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
