//! KnowledgeNet: documents with facts for knowledge-base population (Mesquita et al., 2019).
//!
//! A file of predictions has the same documents with predicted facts. All offsets are in Unicode scalar
//! values of the document, and ends are exclusive.

use std::path::Path;

use serde_json::{Map, Value};

use crate::{Error, Id, Result, jsonl, open_record::open_record};

/// One line: a document with its annotated passages.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Folds 1 to 3 are for training, 4 is for development, 5 is the hidden test.
    pub fold: i64,
    /// Unique in its file.
    pub id: Id,
    /// The whole text.
    pub text: String,
    /// The passages that were annotated.
    pub passages: Vec<Passage>,
    /// Where the document comes from.
    pub source: Option<String>,
    /// Fields that KnowledgeNet does not define.
    pub extra: Map<String, Value>,
}

open_record!(Document, required { fold = "fold", id = "documentId", text = "documentText", passages = "passages" },
    optional { source = "source" });

/// A passage of a document, annotated for some properties.
#[derive(Clone, Debug, PartialEq)]
pub struct Passage {
    /// Unique in its document.
    pub id: Id,
    /// Its first character.
    pub start: usize,
    /// The character after its last.
    pub end: usize,
    /// Its text.
    pub text: String,
    /// The properties with exhaustive annotation, whose other facts count as wrong.
    pub exhaustive: Vec<Property>,
    /// The facts.
    pub facts: Vec<Fact>,
    /// Fields that KnowledgeNet does not define.
    pub extra: Map<String, Value>,
}

open_record!(Passage, required {
    id = "passageId",
    start = "passageStart",
    end = "passageEnd",
    text = "passageText",
    exhaustive = "exhaustivelyAnnotatedProperties",
    facts = "facts"
}, optional {});

/// A property of the knowledge base.
#[derive(Clone, Debug, PartialEq)]
pub struct Property {
    /// Its number.
    pub id: Id,
    /// Its name, such as `DATE_OF_BIRTH`.
    pub name: String,
    /// Its description.
    pub description: Option<String>,
    /// Fields that KnowledgeNet does not define.
    pub extra: Map<String, Value>,
}

open_record!(Property, required { id = "propertyId", name = "propertyName" }, optional { description = "propertyDescription" });

/// A fact: a property that holds between two mentions.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// The property's id.
    pub property: Id,
    /// First character of the subject's mention.
    pub subject_start: usize,
    /// The character after its last.
    pub subject_end: usize,
    /// First character of the object's mention.
    pub object_start: usize,
    /// The character after its last.
    pub object_end: usize,
    /// Unique name of the fact.
    pub id: Option<Id>,
    /// `<subject> <PROPERTY> <object>`.
    pub human_readable: Option<String>,
    /// The passage with both mentions in angle brackets.
    pub annotated_passage: Option<String>,
    /// The subject's mention.
    pub subject_text: Option<String>,
    /// The subject's link; empty or missing without one.
    pub subject_uri: Option<String>,
    /// The object's mention.
    pub object_text: Option<String>,
    /// The object's link; empty or missing without one.
    pub object_uri: Option<String>,
    /// Fields that KnowledgeNet does not define.
    pub extra: Map<String, Value>,
}

open_record!(Fact, required {
    property = "propertyId",
    subject_start = "subjectStart",
    subject_end = "subjectEnd",
    object_start = "objectStart",
    object_end = "objectEnd"
}, optional {
    id = "factId",
    human_readable = "humanReadable",
    annotated_passage = "annotatedPassage",
    subject_text = "subjectText",
    subject_uri = "subjectUri",
    object_text = "objectText",
    object_uri = "objectUri"
});

impl Fact {
    /// The subject's and the object's link, if the fact has both.
    pub fn uris(&self) -> Option<(&str, &str)> {
        let link = |uri: &'_ Option<String>| uri.as_deref().is_some_and(|uri| !uri.is_empty());
        (link(&self.subject_uri) && link(&self.object_uri)).then(|| {
            (self.subject_uri.as_deref().unwrap_or_default(), self.object_uri.as_deref().unwrap_or_default())
        })
    }
}

impl Document {
    /// The first passage with a duplicate id: its field and the problem.
    #[must_use]
    pub fn repeated(&self) -> Option<(String, String)> {
        let mut passages = self.passages.iter().enumerate();
        passages
            .find(|(at, passage)| self.passages[..*at].iter().any(|earlier| earlier.id == passage.id))
            .map(|(at, passage)| {
                let message = format!("expected different passage ids, found `{}` twice", passage.id);
                (format!("passages[{at}].passageId"), message)
            })
    }

    /// The first passage or fact that exceeds the document or ends before it starts: its field and the
    /// problem.
    #[must_use]
    pub fn misplaced(&self) -> Option<(String, String)> {
        let length = self.text.chars().count();
        let wrong = |field: String, start: usize, end: usize| {
            let message = || format!("expected a place within {length} characters, found {start} to {end}");
            (start > end || end > length).then(|| (field, message()))
        };
        self.passages.iter().enumerate().find_map(|(at, passage)| {
            let own = wrong(format!("passages[{at}].passageStart"), passage.start, passage.end);
            own.or_else(|| {
                passage.facts.iter().enumerate().find_map(|(number, fact)| {
                    let field = |name: &str| format!("passages[{at}].facts[{number}].{name}");
                    wrong(field("subjectStart"), fact.subject_start, fact.subject_end)
                        .or_else(|| wrong(field("objectStart"), fact.object_start, fact.object_end))
                })
            })
        })
    }
}

/// The documents of a file with their lines.
///
/// # Errors
/// If the file cannot be opened. Each document has read errors with line and field. That of a record of another kind says what is
/// expected.
pub(crate) fn numbered(path: &Path) -> Result<impl Iterator<Item = Result<(u64, Document)>> + use<>> {
    let records = jsonl::open(path)?.numbered::<Document>();
    Ok(records.map(|record| record.map_err(of_other_kind)))
}

/// The error of a record without the first field of a document, with the layout that is expected.
fn of_other_kind(error: Error) -> Error {
    match error {
        Error::Record { path, line, field, message } if message.starts_with("missing field `fold`") => {
            let layout = "expected a document of KnowledgeNet with `fold`, `documentId`, `documentText` and `passages`; \
                          `sporran populate` writes predictions of this layout to `knowledgenet` in the folder of its run";
            Error::Record { path, line, field, message: format!("{message}; {layout}") }
        }
        other => other,
    }
}

/// Reads a file of documents to read or to train on, in order.
///
/// # Errors
/// If the file cannot be opened. Each document has read errors with line and field, including a repeated passage and a
/// passage or fact outside its document.
pub fn annotated(path: impl AsRef<Path>) -> Result<impl Iterator<Item = Result<Document>>> {
    let path = path.as_ref().to_owned();
    let lines = numbered(&path)?;
    Ok(lines.map(move |line| {
        let (line, document) = line?;
        match document.repeated().or_else(|| document.misplaced()) {
            Some((field, message)) => Err(Error::record(&path, line, field, message)),
            None => Ok(document),
        }
    }))
}

/// Reads a file of documents to be scored, in order. A fact outside its document matches nothing.
///
/// # Errors
/// Read errors, with line and field.
pub fn load(path: impl AsRef<Path>) -> Result<Vec<Document>> {
    numbered(path.as_ref())?.map(|line| line.map(|(_, document)| document)).collect()
}

/// Writes a file of documents.
///
/// # Errors
/// [`Error::Io`] if writing fails; then no file appears.
pub fn save(path: impl AsRef<Path>, documents: &[Document]) -> Result<()> {
    let mut writer = jsonl::Writer::create(path)?;
    for document in documents {
        writer.record(document)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const LINE: &str = r#"{"fold":4,"documentId":"1","documentText":"Ann met Bob.","source":"x","mark":true,"passages":[{"passageId":"1:0:12","passageStart":0,"passageEnd":12,"passageText":"Ann met Bob.","exhaustivelyAnnotatedProperties":[{"propertyId":"34","propertyName":"SPOUSE","propertyDescription":"d"}],"facts":[{"factId":"1:0:3:8:11:34","propertyId":"34","humanReadable":"<Ann> <SPOUSE> <Bob>","annotatedPassage":"<Ann> met <Bob>.","subjectStart":0,"subjectEnd":3,"subjectText":"Ann","subjectUri":"","objectStart":8,"objectEnd":11,"objectText":"Bob","objectUri":"u","sure":0.5}]}]}"#;

    #[test]
    fn a_file_survives_a_round_trip() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json.gz");
        jsonl::write(&path, LINE.as_bytes()).unwrap();
        let documents = load(&path).unwrap();
        let fact = &documents[0].passages[0].facts[0];
        assert_eq!((fact.subject_end, fact.object_text.as_deref(), fact.uris()), (3, Some("Bob"), None));
        let again = folder.path().join("b.json");
        save(&again, &documents).unwrap();
        let value: Value = jsonl::read_json(&again).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(LINE).unwrap());
    }

    #[test]
    fn a_record_of_another_kind_is_told_the_layout() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{\"id\":\"1\",\"input\":\"x\",\"output\":[]}\n").unwrap();
        let first = annotated(file.path()).unwrap().next().unwrap().unwrap_err();
        for error in [load(file.path()).unwrap_err(), first] {
            let message = error.to_string();
            assert!(message.contains(":1: missing field `fold`"), "{message}");
            assert!(
                message.contains("expected a document of KnowledgeNet with `fold`, `documentId`"),
                "{message}"
            );
        }
    }

    #[test]
    fn a_fact_needs_its_offsets() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), LINE.replace(r#""objectEnd":11,"#, r#""objectEnd":"","#)).unwrap();
        let message = load(file.path()).unwrap_err().to_string();
        assert!(message.contains("passages[0].facts[0].objectEnd"), "{message}");
    }

    #[test]
    fn wrong_spans_and_repeated_passages_are_errors_with_file_line_and_field() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cases = [
            (
                r#""passageEnd":12"#,
                r#""passageEnd":13"#,
                "field `passages[0].passageStart`: expected a place within 12 characters, found 0 to 13",
            ),
            (
                r#""subjectStart":0"#,
                r#""subjectStart":4"#,
                "field `passages[0].facts[0].subjectStart`: expected a place within 12 characters, found 4 to 3",
            ),
            (
                r#""objectEnd":11"#,
                r#""objectEnd":99"#,
                "field `passages[0].facts[0].objectStart`: expected a place within 12 characters, found 8 to 99",
            ),
        ];
        for (from, to, expected) in cases {
            std::fs::write(file.path(), format!("{LINE}\n{}", LINE.replace(from, to))).unwrap();
            let mut documents = annotated(file.path()).unwrap();
            assert!(documents.next().unwrap().is_ok());
            let message = documents.next().unwrap().unwrap_err().to_string();
            assert!(message.contains(":2: ") && message.ends_with(expected), "{message}");
        }
        let mut document: Document = serde_json::from_str(LINE).unwrap();
        document.passages.push(document.passages[0].clone());
        save(file.path(), &[document]).unwrap();
        let message = annotated(file.path()).unwrap().next().unwrap().unwrap_err().to_string();
        assert!(message.contains(":1: field `passages[1].passageId`: expected different"), "{message}");
        // Offsets count characters, not bytes.
        std::fs::write(file.path(), LINE.replace(r#""documentText":"Ann met"#, r#""documentText":"Änn mét"#))
            .unwrap();
        assert!(annotated(file.path()).unwrap().all(|document| document.is_ok()));
    }
}
