//! T-REx (Elsahar et al., 2018), Wikipedia's abstracts aligned with Wikidata's facts, and the choice of its sentences for annotation
//! (Mesquita et al., 2019, section 3.1, step 1).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::{Error, Id, Result, formats::elements, jsonl, knowledgenet, scores::extraction::entity};

/// KnowledgeNet's number of folds.
const FOLDS: i64 = 5;

/// The part of a document that is read.
#[derive(Debug, Deserialize)]
struct Document {
    docid: String,
    text: String,
    /// The first character of each sentence and the one after its last, in code points.
    sentences_boundaries: Vec<(usize, usize)>,
    #[serde(default)]
    triples: Vec<Triple>,
}

#[derive(Debug, Deserialize)]
struct Triple {
    predicate: Predicate,
    sentence_id: usize,
}

#[derive(Debug, Deserialize)]
struct Predicate {
    uri: String,
}

/// A property whose sentences are fetched.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct FetchedProperty {
    /// Its number in KnowledgeNet's layout.
    pub property_id: Id,
    /// Its name, such as `DATE_OF_BIRTH`.
    pub property_name: String,
    /// Its description.
    #[serde(default)]
    pub property_description: Option<String>,
    /// Its ids in Wikidata, such as `P569`. A sentence with an aligned fact of one of them is fetched.
    #[serde(default)]
    pub wikidata: Vec<String>,
    /// Words, such as `born`. A sentence with one of them is fetched.
    #[serde(default)]
    pub keywords: Vec<String>,
}

/// A property of Wikidata with its names.
#[derive(Debug, Deserialize)]
struct WikidataProperty {
    id: String,
    label: String,
    #[serde(default)]
    aliases: Vec<String>,
}

/// The properties of a JSON array or JSON lines. `names` is a file of Wikidata's properties with `id`, `label` and `aliases` ("also
/// known as"), which become keywords of the properties with these ids.
///
/// # Errors
/// Read errors, with line and field; [`Error::Record`] for a property without an id of Wikidata and without a keyword;
/// [`Error::Empty`] for a file without properties.
pub fn properties(path: &Path, names: Option<&Path>) -> Result<Vec<FetchedProperty>> {
    let mut found: Vec<(u64, FetchedProperty)> = elements::open(path)?.records().collect::<Result<_>>()?;
    if found.is_empty() {
        return Err(Error::Empty { path: path.to_owned(), what: "property" });
    }
    if let Some(names) = names {
        for known in elements::open(names)?.records::<WikidataProperty>() {
            let (_, WikidataProperty { id, label, aliases }) = known?;
            for (_, property) in found.iter_mut().filter(|(_, property)| property.wikidata.contains(&id)) {
                property.keywords.extend(std::iter::once(label.clone()).chain(aliases.iter().cloned()));
            }
        }
    }
    for (line, property) in &mut found {
        property.keywords = property.keywords.iter().map(|word| word.trim().to_lowercase()).collect();
        property.keywords.retain(|word| !word.is_empty());
        property.keywords.sort_unstable();
        property.keywords.dedup();
        if property.wikidata.is_empty() && property.keywords.is_empty() {
            let message =
                format!("expected `wikidata` or `keywords` of {}, found none", property.property_name);
            return Err(Error::record(path, *line, "keywords", message));
        }
    }
    Ok(found.into_iter().map(|(_, property)| property).collect())
}

/// The number of sentences that were fetched for a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FetchedCounts {
    /// All sentences.
    pub sentences: u64,
    /// Sentences with an aligned fact.
    pub aligned: u64,
    /// Sentences with a keyword.
    pub keyword: u64,
}

/// Writes the sentences of T-REx's files that an aligned fact or a keyword connects with one of the properties. The output has
/// KnowledgeNet's layout: a passage is a sentence with the properties to annotate it for, without facts. Its field `fetchedBy`
/// names the methods by property. Documents without such a sentence are left out; the others get the folds 1 to 5 in turn.
/// Returns the counts by name of the property, and the number of documents.
///
/// # Errors
/// Read errors, with line and field, also for a sentence outside its document and for a fact of a sentence that does not exist;
/// [`Error::Io`] if writing fails, and then no file appears.
pub fn fetch(
    properties: &[FetchedProperty],
    files: &[PathBuf],
    output: &Path,
) -> Result<(BTreeMap<String, FetchedCounts>, u64)> {
    let mut counts: BTreeMap<String, FetchedCounts> = BTreeMap::new();
    let mut documents = 0;
    let mut writer = jsonl::Writer::create(output)?;
    for path in files {
        for document in elements::open(path)?.records::<Document>() {
            let (line, document) = document?;
            let wrong = |field: String, message: String| Error::record(path, line, field, message);
            let count = document.sentences_boundaries.len();
            let mut aligned: BTreeSet<(usize, &str)> = BTreeSet::new();
            for (at, Triple { predicate, sentence_id }) in document.triples.iter().enumerate() {
                if *sentence_id >= count {
                    let message = format!("expected one of {count} sentences, found {sentence_id}");
                    return Err(wrong(format!("triples[{at}].sentence_id"), message));
                }
                aligned.insert((*sentence_id, entity(&predicate.uri)));
            }
            let letters: Vec<char> = document.text.chars().collect();
            let id = entity(&document.docid);
            let mut passages = Vec::new();
            for (at, &(start, end)) in document.sentences_boundaries.iter().enumerate() {
                if start > end || end > letters.len() {
                    let length = letters.len();
                    let message =
                        format!("expected a place within {length} characters, found {start} to {end}");
                    return Err(wrong(format!("sentences_boundaries[{at}]"), message));
                }
                let text: String = letters[start..end].iter().collect();
                let lower = text.to_lowercase();
                let (mut exhaustive, mut methods) = (Vec::new(), Map::new());
                for property in properties {
                    let is_aligned =
                        property.wikidata.iter().any(|own| aligned.contains(&(at, own.as_str())));
                    let has_keyword = property.keywords.iter().any(|word| has_words(&lower, word));
                    if !is_aligned && !has_keyword {
                        continue;
                    }
                    let own = counts.entry(property.property_name.clone()).or_default();
                    own.sentences += 1;
                    own.aligned += u64::from(is_aligned);
                    own.keyword += u64::from(has_keyword);
                    let names = [("alignment", is_aligned), ("keyword", has_keyword)];
                    let names: Vec<&str> =
                        names.iter().filter(|(_, is)| *is).map(|(name, _)| *name).collect();
                    methods.insert(property.property_name.clone(), json!(names));
                    exhaustive.push(knowledgenet::Property {
                        id: property.property_id.clone(),
                        name: property.property_name.clone(),
                        description: property.property_description.clone(),
                        extra: Map::new(),
                    });
                }
                if !exhaustive.is_empty() {
                    passages.push(knowledgenet::Passage {
                        id: format!("{id}:{start}:{end}").into(),
                        start,
                        end,
                        text,
                        exhaustive,
                        facts: Vec::new(),
                        extra: [("fetchedBy".to_owned(), methods.into())].into_iter().collect(),
                    });
                }
            }
            if !passages.is_empty() {
                let (fold, id) = (1 + documents as i64 % FOLDS, id.into());
                let (text, source) = (document.text, Some("T-REx".to_owned()));
                writer.record(&knowledgenet::Document {
                    fold,
                    id,
                    text,
                    passages,
                    source,
                    extra: Map::new(),
                })?;
                documents += 1;
            }
        }
    }
    writer.finish()?;
    Ok((counts, documents))
}

/// Whether a text has these words, not as parts of longer ones.
fn has_words(text: &str, words: &str) -> bool {
    let ends = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
    text.match_indices(words)
        .any(|(at, _)| ends(text[..at].chars().next_back()) && ends(text[at + words.len()..].chars().next()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const PROPERTIES: &str = r#"[{"propertyId": "15", "propertyName": "DATE_OF_BIRTH", "wikidata": ["P569"], "keywords": ["Born "]},
        {"propertyId": "25", "propertyName": "SPOUSE", "wikidata": ["P26", "P451"]}]"#;

    fn document(id: &str, text: &str, sentences: &[(usize, usize)], triples: &[(&str, usize)]) -> Value {
        let triple = |(property, sentence): &(&str, usize)| json!({"predicate": {"uri": format!("http://www.wikidata.org/prop/direct/{property}")}, "sentence_id": sentence});
        let triples: Vec<Value> = triples.iter().map(triple).collect();
        json!({"docid": format!("http://www.wikidata.org/entity/{id}"), "title": "t", "text": text,
            "sentences_boundaries": sentences, "triples": triples})
    }

    #[test]
    fn sentences_are_fetched_by_alignment_and_by_keyword() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("properties.json"), PROPERTIES).unwrap();
        let names = json!([{"id": "P26", "label": "spouse", "aliases": ["wife", "Married to"]}, {"id": "P1", "label": "x"}]);
        std::fs::write(path("names.json"), names.to_string()).unwrap();
        let found = properties(&path("properties.json"), Some(&path("names.json"))).unwrap();
        assert_eq!(found[0].keywords, ["born"]);
        assert_eq!(found[1].keywords, ["married to", "spouse", "wife"]);
        let alone = properties(&path("properties.json"), None).unwrap();
        assert!(alone[1].keywords.is_empty());

        // The third sentence has a keyword as a part of a word only. The last document has no sentence of a property.
        let documents = json!([
            document(
                "Q1",
                "Zoë was born in May. She is his wife. A newborn.",
                &[(0, 20), (21, 37), (38, 48)],
                &[("P569", 0), ("P21", 1)]
            ),
            document("Q2", "They met.", &[(0, 9)], &[("P451", 0)]),
            document("Q3", "They left.", &[(0, 10)], &[]),
        ]);
        std::fs::write(path("trex.json"), documents.to_string()).unwrap();
        let (counts, written) = fetch(&found, &[path("trex.json")], &path("out.json")).unwrap();
        let of = |sentences, aligned, keyword| FetchedCounts { sentences, aligned, keyword };
        assert_eq!(written, 2);
        assert_eq!(counts["DATE_OF_BIRTH"], of(1, 1, 1));
        assert_eq!(counts["SPOUSE"], of(2, 1, 1));
        let documents = knowledgenet::load(path("out.json")).unwrap();
        let places: Vec<(String, i64, Vec<&str>)> = documents
            .iter()
            .map(|own| {
                (own.id.to_string(), own.fold, own.passages.iter().map(|own| own.text.as_str()).collect())
            })
            .collect();
        let expected = [
            ("Q1".to_owned(), 1, vec!["Zoë was born in May.", "She is his wife."]),
            ("Q2".to_owned(), 2, vec!["They met."]),
        ];
        assert_eq!(places, expected);
        let passage = &documents[0].passages[0];
        assert_eq!(
            (passage.id.to_string(), passage.exhaustive[0].id.to_string()),
            ("Q1:0:20".into(), "15".into())
        );
        assert_eq!(passage.extra["fetchedBy"], json!({"DATE_OF_BIRTH": ["alignment", "keyword"]}));
        assert!(documents.iter().all(|document| document.misplaced().is_none()));
    }

    #[test]
    fn wrong_files_are_named_with_line_and_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let refused = |text: &str| {
            std::fs::write(path("p.json"), text).unwrap();
            properties(&path("p.json"), None).unwrap_err().to_string()
        };
        let message = refused("[{\"propertyId\": \"1\", \"propertyName\": \"A\", \"keywords\": [\" \"]}]");
        assert!(
            message.contains("p.json:1: field `keywords`: expected `wikidata` or `keywords` of A"),
            "{message}"
        );
        assert!(refused("[]").contains("expected at least one property, found none"));
        std::fs::write(path("p.json"), PROPERTIES).unwrap();
        let found = properties(&path("p.json"), None).unwrap();
        for (document, expected) in [
            (
                document("Q1", "Ab", &[(0, 3)], &[]),
                "field `sentences_boundaries[0]`: expected a place within 2 characters, found 0 to 3",
            ),
            (
                document("Q1", "Ab", &[(0, 2)], &[("P26", 1)]),
                "field `triples[0].sentence_id`: expected one of 1 sentences, found 1",
            ),
        ] {
            std::fs::write(path("t.json"), document.to_string()).unwrap();
            let message = fetch(&found, &[path("t.json")], &path("o.json")).unwrap_err().to_string();
            assert!(message.contains("t.json:1") && message.contains(expected), "{message}");
            assert!(!path("o.json").exists());
        }
    }
}
