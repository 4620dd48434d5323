//! Tables of names for the linker, from annotated links and from names of entities in knowledge bases and datasets.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sporran_kilt::{
    jsonl,
    kb::{KnowledgeBase, read_names},
    knowledgenet,
};

use super::{AliasTable, AliasTableBuilder};
use crate::Result;

/// The format of a source of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NamesFormat {
    /// A knowledge base's folder or file of triples, with labels and aliases.
    KnowledgeBase,
    /// A table separated by tabs. Its optional header has the columns `qid` or `id`, `label` or `name`, and perhaps `aliases`,
    /// `description` and `extract`.
    Table,
    /// A JSON object of ids. Each value is an object with `label` and optionally `description`.
    Labels,
    /// JSON lines with `title`, `kb_idx` and `text` (TABi's entities).
    Entities,
    /// JSON lines of PopQA: subjects and objects with their aliases.
    Popqa,
    /// A table of names that training wrote.
    Aliases,
}

/// `[[linker.names]]`: a source of names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamesOptions {
    /// The file or folder.
    pub file: PathBuf,
    /// Its layout: `knowledge-base`, `table`, `labels`, `entities`, `popqa` or `aliases`.
    pub format: NamesFormat,
}

/// The weight of an annotated link, relative to a name from another source.
const ANNOTATED: f32 = 3.0;

#[derive(Deserialize)]
struct Label {
    label: Option<String>,
    #[serde(default)]
    description: Option<String>,
}

#[derive(Deserialize)]
struct Entity {
    title: String,
    kb_idx: Option<String>,
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Question {
    subj: String,
    obj: String,
    s_uri: String,
    o_uri: String,
    s_aliases: String,
    o_aliases: String,
}

impl AliasTable {
    /// Builds a table from annotated links and other sources of names.
    ///
    /// # Errors
    /// Errors of reading, with file, line and field.
    pub fn build<'a>(
        documents: impl IntoIterator<Item = &'a knowledgenet::Document>,
        names: &[NamesOptions],
    ) -> Result<Self> {
        let mut builder = AliasTableBuilder::default();
        for NamesOptions { file, format } in names {
            add(&mut builder, file, *format)?;
        }
        // A mention of several facts counts once.
        for document in documents {
            let mut mentions: Vec<(usize, &str, &str)> = Vec::new();
            for fact in document.passages.iter().flat_map(|passage| &passage.facts) {
                for (at, text, uri) in [
                    (fact.subject_start, &fact.subject_text, &fact.subject_uri),
                    (fact.object_start, &fact.object_text, &fact.object_uri),
                ] {
                    let id = uri.as_deref().unwrap_or_default().trim_end_matches('/');
                    let id = id.rsplit('/').next().unwrap_or_default();
                    mentions.push((at, text.as_deref().unwrap_or_default(), id));
                }
            }
            mentions.sort_unstable();
            mentions.dedup_by_key(|(at, ..)| *at);
            for (_, name, id) in mentions {
                builder.add(name, id, ANNOTATED);
            }
        }
        Ok(builder.build())
    }
}

fn add(builder: &mut AliasTableBuilder, file: &Path, format: NamesFormat) -> Result<()> {
    match format {
        NamesFormat::KnowledgeBase => {
            let base = KnowledgeBase::open(file)?;
            for (at, id) in base.entities().ids().iter().enumerate() {
                let entity = sporran_kilt::kb::EntityId(at as u32);
                builder.describe(id, base.label(entity), "");
                for label in base.labels(entity) {
                    builder.add(label, id, 1.0);
                }
            }
        }
        NamesFormat::Table => read_names(file, |row| {
            builder.describe(row.id, &row.label, &row.descriptions.join(" "));
            for name in std::iter::once(row.label.as_ref()).chain(row.aliases) {
                builder.add(name, row.id, 1.0);
            }
        })?,
        NamesFormat::Labels => {
            let Value::Object(all) = jsonl::read_json::<Value>(file)? else {
                let message = "expected an object of ids with labels";
                return Err(sporran_kilt::Error::record(file, 1, ".", message).into());
            };
            for (id, value) in all {
                let known: Label = field(file, &id, value)?;
                if let Some(label) = &known.label {
                    builder.describe(&id, label, known.description.as_deref().unwrap_or_default());
                    builder.add(label, &id, 1.0);
                }
            }
        }
        NamesFormat::Entities => {
            for entity in jsonl::open(file)?.records::<Entity>() {
                let Entity { title, kb_idx, text } = entity?;
                let Some(id) = kb_idx.filter(|id| !id.is_empty()) else { continue };
                builder.describe(&id, &title, &text);
                builder.add(&title, &id, 1.0);
                if let Some((name, _)) = title.split_once(" (") {
                    builder.add(name, &id, 1.0);
                }
            }
        }
        NamesFormat::Popqa => {
            for (line, question) in numbered::<Question>(file)? {
                let ends = [
                    (&question.subj, &question.s_uri, &question.s_aliases),
                    (&question.obj, &question.o_uri, &question.o_aliases),
                ];
                for (name, uri, aliases) in ends {
                    let id = uri.rsplit('/').next().unwrap_or_default();
                    let aliases: Vec<String> = serde_json::from_str(aliases).map_err(|error| {
                        sporran_kilt::Error::record(
                            file,
                            line,
                            "aliases",
                            jsonl::plain_json(&error.to_string()),
                        )
                    })?;
                    builder.describe(id, name, "");
                    // A low weight, because an entity of several questions repeats its names.
                    for name in std::iter::once(name).chain(&aliases) {
                        builder.add(name, id, 0.1);
                    }
                }
            }
        }
        NamesFormat::Aliases => {
            let known = AliasTable::load(file)?;
            for entity in known.entities() {
                builder.describe(&entity.id, &entity.label, &entity.description);
            }
            for (name, id, count) in known.meanings() {
                builder.add(name, id, count);
            }
        }
    }
    Ok(())
}

fn field<T: DeserializeOwned>(file: &Path, key: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| {
        sporran_kilt::Error::record(file, 1, key, jsonl::plain_json(&error.to_string())).into()
    })
}

fn numbered<T: DeserializeOwned>(file: &Path) -> Result<Vec<(u64, T)>> {
    Ok(jsonl::open(file)?.numbered::<T>().collect::<sporran_kilt::Result<_>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_layout_lead_to_their_entities() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, format| {
            let file = folder.path().join(name);
            std::fs::write(&file, text).unwrap();
            NamesOptions { file, format }
        };
        let names = [
            write(
                "t.tsv",
                "id\tqid\tname\tent_type\tdescription\n0\tQ1\tAnn\thuman\t\"a person\"\n",
                NamesFormat::Table,
            ),
            write(
                "l.json",
                r#"{"Q2":{"label":"Bob","description":"b"},"Q3":{"label":null}}"#,
                NamesFormat::Labels,
            ),
            write(
                "e.jsonl",
                r#"{"title":"Cleo (queen)","kb_idx":"Q4","text":"of Egypt"}"#,
                NamesFormat::Entities,
            ),
            write(
                "p.jsonl",
                r#"{"subj":"Dan","obj":"Eve","s_uri":"http://w/Q5","o_uri":"http://w/Q6","s_aliases":"[\"Danny\"]","o_aliases":"[]"}"#,
                NamesFormat::Popqa,
            ),
        ];
        let table = AliasTable::build(&[], &names).unwrap();
        let ids =
            |name: &str| table.candidates(name).map(|(entity, _)| entity.id.clone()).collect::<Vec<_>>();
        for (name, id) in [("ann", "Q1"), ("Bob", "Q2"), ("Cleo", "Q4"), ("Danny", "Q5"), ("Eve", "Q6")] {
            assert_eq!(ids(name), [id], "{name}");
        }
        let path = folder.path().join("a.tsv");
        table.save(&path).unwrap();
        let again =
            AliasTable::build(&[], &[NamesOptions { file: path, format: NamesFormat::Aliases }]).unwrap();
        assert_eq!(again, table);
        let bad = write("b.tsv", "id\tlabel\nQ1\n", NamesFormat::Table);
        assert!(AliasTable::build(&[], &[bad]).unwrap_err().to_string().contains("b.tsv:2: field `label`"));
    }

    #[test]
    fn annotated_links_and_mentions_without_one_count() {
        let document = serde_json::json!({"fold": 1, "documentId": "d", "documentText": "Ann Rome", "passages": [{
            "passageId": "p", "passageStart": 0, "passageEnd": 8, "passageText": "",
            "exhaustivelyAnnotatedProperties": [], "facts": [
                {"propertyId": "1", "subjectStart": 0, "subjectEnd": 3, "objectStart": 4, "objectEnd": 8,
                 "subjectText": "Ann", "subjectUri": "", "objectText": "Rome",
                 "objectUri": "http://www.wikidata.org/entity/Q220"}]}]});
        let table = AliasTable::build(&[serde_json::from_value(document).unwrap()], &[]).unwrap();
        let rome: Vec<_> =
            table.candidates("Rome").map(|(entity, count)| (entity.id.as_str(), count)).collect();
        assert_eq!(rome, [("Q220", ANNOTATED)]);
        assert_eq!((table.candidates("Ann").count(), table.len()), (0, 2));
    }
}
