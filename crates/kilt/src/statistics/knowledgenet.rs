//! Statistics of KnowledgeNet's files (Mesquita et al. 2019, table 2).

use std::{collections::BTreeMap, fmt, path::Path};

use rustc_hash::FxHashSet;
use serde::Serialize;

use crate::{Error, Id, Result, counted, knowledgenet};

/// The counts of one property, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PropertyCounts {
    /// Annotated facts.
    pub facts: u64,
    /// Of these, facts with a linked subject and a linked object.
    pub linked: u64,
    /// Sentences that are annotated for the property: passages with exhaustive annotation of it. For all properties together, a
    /// sentence counts once for each.
    pub sentences: u64,
    /// Of these, sentences with a fact of the property.
    pub relevant: u64,
}

impl PropertyCounts {
    fn add(&mut self, other: Self) {
        self.facts += other.facts;
        self.linked += other.linked;
        self.sentences += other.sentences;
        self.relevant += other.relevant;
    }
}

/// The counts of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Documents.
    pub documents: u64,
    /// Documents by fold.
    pub folds: BTreeMap<i64, u64>,
    /// By the name of the property; the id of one that no passage names.
    pub properties: BTreeMap<String, PropertyCounts>,
    /// The sums over properties.
    pub total: PropertyCounts,
}

/// The statistics of the documents of files.
///
/// # Errors
/// Read errors with line and field, including a repeated passage and a fact outside its document; [`Error::Record`] for a document
/// that occurs twice in a file; [`Error::Empty`] for a file without documents.
pub fn of_documents<P: AsRef<Path>>(files: &[P]) -> Result<Report> {
    let mut report = Report::default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut counts: BTreeMap<String, PropertyCounts> = BTreeMap::new();
    for path in files {
        let mut ids: FxHashSet<Id> = FxHashSet::default();
        for document in knowledgenet::annotated(path)? {
            let document = document?;
            if !ids.insert(document.id.clone()) {
                let message = format!("expected different documents, found `{}` twice", document.id);
                let line = ids.len() as u64 + 1;
                return Err(Error::record(path.as_ref(), line, "documentId", message));
            }
            report.documents += 1;
            *report.folds.entry(document.fold).or_default() += 1;
            for passage in &document.passages {
                for fact in &passage.facts {
                    let own = counts.entry(fact.property.text().into_owned()).or_default();
                    own.facts += 1;
                    own.linked += u64::from(fact.uris().is_some());
                }
                for property in &passage.exhaustive {
                    let id = property.id.text().into_owned();
                    let own = counts.entry(id.clone()).or_default();
                    own.sentences += 1;
                    own.relevant += u64::from(passage.facts.iter().any(|fact| fact.property == property.id));
                    names.insert(id, property.name.clone());
                }
            }
        }
        if ids.is_empty() {
            return Err(Error::Empty { path: path.as_ref().to_owned(), what: "document" });
        }
    }
    for (id, own) in counts {
        report.total.add(own);
        report.properties.entry(names.remove(&id).unwrap_or(id)).or_default().add(own);
    }
    Ok(report)
}

impl fmt::Display for Report {
    /// A row for each property.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folds: Vec<String> =
            self.folds.iter().map(|(fold, count)| format!("{count} in fold {fold}")).collect();
        writeln!(f, "{}: {}", counted(self.documents, "document"), folds.join(", "))?;
        writeln!(
            f,
            "{:<28} {:>7} {:>7} {:>9} {:>8}",
            "property", "facts", "linked", "sentences", "relevant"
        )?;
        let total = [("total", &self.total)];
        let rows = self.properties.iter().map(|(name, counts)| (name.as_str(), counts)).chain(total);
        let rows: Vec<String> = rows
            .map(|(name, counts)| {
                let PropertyCounts { facts, linked, sentences, relevant } = counts;
                format!("{name:<28} {facts:>7} {linked:>7} {sentences:>9} {relevant:>8}")
            })
            .collect();
        write!(f, "{}", rows.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn passage(id: &str, properties: &[(&str, &str)], facts: &[(&str, &str)]) -> Value {
        let properties: Vec<Value> =
            properties.iter().map(|(id, name)| json!({"propertyId": id, "propertyName": name})).collect();
        let facts: Vec<Value> = facts
            .iter()
            .map(|(property, uri)| {
                json!({"propertyId": property, "subjectStart": 0, "subjectEnd": 1, "objectStart": 1, "objectEnd": 2,
                    "subjectUri": "Q1", "objectUri": uri})
            })
            .collect();
        json!({"passageId": id, "passageStart": 0, "passageEnd": 2, "passageText": "",
            "exhaustivelyAnnotatedProperties": properties, "facts": facts})
    }

    fn document(fold: i64, id: &str, passages: &[Value]) -> String {
        json!({"fold": fold, "documentId": id, "documentText": "ab", "passages": passages}).to_string()
    }

    #[test]
    fn facts_sentences_and_relevant_sentences_are_counted_by_property() {
        let (a, b) = (("1", "A"), ("2", "B"));
        let lines = [
            document(
                1,
                "x",
                &[
                    passage("p", &[a], &[("1", "Q2"), ("1", "")]),
                    passage("q", &[a, b], &[("2", "Q2"), ("3", "")]),
                ],
            ),
            document(4, "y", &[passage("p", &[b], &[])]),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        std::fs::write(&path, lines.join("\n")).unwrap();
        let report = of_documents(&[&path]).unwrap();
        let counts =
            |facts, linked, sentences, relevant| PropertyCounts { facts, linked, sentences, relevant };
        let expected = [("3", counts(1, 0, 0, 0)), ("A", counts(2, 1, 2, 1)), ("B", counts(1, 1, 2, 1))];
        assert_eq!(
            report.properties,
            BTreeMap::from(expected.map(|(name, counts)| (name.to_owned(), counts)))
        );
        assert_eq!((report.documents, report.total), (2, counts(4, 2, 4, 2)));
        assert_eq!(report.folds, BTreeMap::from([(1, 1), (4, 1)]));
        let text = report.to_string();
        assert!(text.starts_with("2 documents: 1 in fold 1, 1 in fold 4\n"), "{text}");
        assert!(text.ends_with(&format!("\n{:<28} {:>7} {:>7} {:>9} {:>8}", "total", 4, 2, 4, 2)), "{text}");
        // Two files are counted together, and a document of one file once.
        assert_eq!(of_documents(&[&path, &path]).unwrap().total, counts(8, 4, 8, 4));
        std::fs::write(&path, [&*lines[1], &*lines[1]].join("\n")).unwrap();
        let message = of_documents(&[&path]).unwrap_err().to_string();
        assert!(message.contains(":2: field `documentId`") && message.contains("`y` twice"), "{message}");
        std::fs::write(&path, "\n").unwrap();
        assert!(of_documents(&[&path]).unwrap_err().to_string().contains("at least one document"));
    }
}
