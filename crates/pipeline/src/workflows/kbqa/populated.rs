//! Adds extracted facts to a knowledge base, with their sentences.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;
use sporran_kilt::{
    Provenance, Record, jsonl,
    kb::{EntityId, KnowledgeBase, Part, Triple},
};

use super::options::PopulatedFacts;
use crate::{Error, Result, workflows::population::Node};

/// A sentence that states a triple.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stated {
    /// The sentence and its offsets, from `meta.statement` of a prediction of `sporran populate`.
    pub statement: Value,
    /// The document's page; empty without one.
    pub provenance: Vec<Provenance>,
    /// The confidence of the extractor.
    pub confidence: Option<f64>,
}

/// The sentences of extracted triples.
#[derive(Debug, Default)]
pub(super) struct Evidence(HashMap<[u32; 3], Vec<Stated>>);

impl Evidence {
    /// The sentences of a triple; empty for a triple that no run extracted.
    pub(super) fn of(&self, triple: Triple) -> &[Stated] {
        self.0.get(&key(triple)).map_or(&[], Vec::as_slice)
    }
}

fn key(Triple { subject, relation, object }: Triple) -> [u32; 3] {
    [subject.0, relation.0, object.0]
}

/// Entities by lower-case name; `None` for ambiguous names. Labels have priority over other names.
struct Names {
    labels: HashMap<String, Option<EntityId>>,
    others: HashMap<String, Option<EntityId>>,
}

impl Names {
    fn new(kb: &KnowledgeBase) -> Self {
        let (mut labels, mut others) = (HashMap::new(), HashMap::new());
        let add = |names: &mut HashMap<String, Option<EntityId>>, name: &str, id| {
            let known = names.entry(name.to_lowercase()).or_insert(Some(id));
            if *known != Some(id) {
                *known = None;
            }
        };
        for id in (0..kb.entity_count() as u32).map(EntityId) {
            add(&mut labels, kb.label(id), id);
            kb.labels(id).iter().for_each(|name| add(&mut others, name, id));
        }
        Self { labels, others }
    }

    /// The linked entity, or the only entity of this name, or a new entity.
    fn entity(&mut self, node: &Node, kb: &mut KnowledgeBase) -> sporran_kilt::Result<EntityId> {
        let lower = node.name.to_lowercase();
        let known = self.labels.get(&lower).or_else(|| self.others.get(&lower));
        if let (None, Some(Some(known))) = (&node.id, known) {
            return Ok(*known);
        }
        let before = kb.entity_count();
        let id = kb.add_entity(node.id.as_ref().unwrap_or(&node.name))?;
        if kb.entity_count() > before {
            kb.set_label(id, &node.name);
            self.labels.entry(lower).or_insert(Some(id));
        }
        Ok(id)
    }
}

/// The fact of a prediction and its confidence; `None` if the confidence is too low.
fn fact(
    path: &Path,
    line: u64,
    record: &Record,
    min_confidence: f64,
) -> sporran_kilt::Result<Option<([Node; 3], Option<f64>)>> {
    let meta = |name: &str| record.meta.as_ref().and_then(|meta| meta.get(name));
    let confidence = meta("confidence").and_then(Value::as_f64);
    if confidence.is_some_and(|confidence| confidence < min_confidence) {
        return Ok(None);
    }
    let nodes = serde_json::from_value(meta("triple").cloned().unwrap_or_default())
        .map_err(|error| sporran_kilt::Error::record(path, line, "meta.triple", error.to_string()))?;
    Ok(Some((nodes, confidence)))
}

/// Adds the facts of runs of `sporran populate` to the training part of a knowledge base. A node without a
/// link is the only entity of its name, or else a new entity.
///
/// # Errors
/// Those of reading; [`Error::Kilt`] for a prediction without its triple.
pub(super) fn merge(facts: &PopulatedFacts, kb: &mut KnowledgeBase) -> Result<Evidence> {
    let PopulatedFacts { runs, min_confidence } = facts;
    let mut evidence = Evidence::default();
    if runs.is_empty() {
        return Ok(evidence);
    }
    let mut names = Names::new(kb);
    let mut known: HashSet<[u32; 3]> = kb.triples(Part::Train).iter().copied().map(key).collect();
    for run in runs {
        let folder = run.join("predictions");
        let entries = fs::read_dir(&folder).map_err(Error::io(&folder, "read"))?;
        let mut files: Vec<PathBuf> = entries
            .map(|entry| Ok(entry.map_err(Error::io(&folder, "read"))?.path()))
            .collect::<Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        files.sort();
        for path in files {
            jsonl::open(&path)?.batches::<Record>(|batch| {
                batch.into_iter().try_for_each(|(line, record)| {
                    let Some((nodes, confidence)) = fact(&path, line, &record, *min_confidence)? else {
                        return Ok(());
                    };
                    let [subject, relation, object] = &nodes;
                    let triple = Triple {
                        subject: names.entity(subject, kb)?,
                        relation: kb.add_relation(relation.id.as_ref().unwrap_or(&relation.name))?,
                        object: names.entity(object, kb)?,
                    };
                    if known.insert(key(triple)) {
                        kb.add(Part::Train, triple)?;
                    }
                    let provenance = record.outputs().iter().flat_map(|output| output.evidence()).cloned();
                    let provenance = provenance.filter(|item| item.wikipedia_id.is_some()).collect();
                    let statement = record.meta.as_ref().and_then(|meta| meta.get("statement").cloned());
                    let statement = statement.unwrap_or_default();
                    let stated = Stated { statement, provenance, confidence };
                    evidence.0.entry(key(triple)).or_default().push(stated);
                    Ok(())
                })
            })?;
        }
    }
    Ok(evidence)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn facts_join_by_link_or_name_and_keep_their_sentences() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("predictions")).unwrap();
        let line = |subject: Value, object: Value, text: &str| {
            let confidence = if text == "unsure" { 0.4 } else { 0.5 };
            json!({ "id": text, "input": "x", "meta": { "confidence": confidence, "statement": { "text": text },
                "triple": [subject, { "id": "P27", "name": "NATIONALITY" }, object] },
                "output": [{ "answer": "x", "provenance": [{ "wikipedia_id": "7" }] }] })
            .to_string()
        };
        let name = |name: &str| json!({ "id": null, "name": name });
        let lines = [
            line(name("Ada Quill"), name("portugal"), "first"),
            line(name("Ada Quill"), json!({ "id": "Q45", "name": "there" }), "second"),
            line(json!({ "id": "Q9", "name": "Bo" }), name("Georgia"), "third"),
            line(name("Cy"), name("Portugal"), "unsure"),
        ];
        let path = folder.path().join("predictions/a.jsonl");
        fs::write(&path, lines.join("\n")).unwrap();
        let mut kb = KnowledgeBase::default();
        for (id, label) in [("Q45", "Portugal"), ("Q1", "Georgia"), ("Q2", "Georgia")] {
            let id = kb.add_entity(id).unwrap();
            kb.set_label(id, label);
        }
        // An alias of another entity does not make a label ambiguous.
        kb.add_alias(kb.entity("Q1").unwrap(), "Portugal");
        let facts = PopulatedFacts { runs: vec![folder.path().to_owned()], ..PopulatedFacts::default() };
        let evidence = merge(&facts, &mut kb).unwrap();
        let (ada, portugal) = (kb.entity("Ada Quill").unwrap(), kb.entity("Q45").unwrap());
        let relation = kb.relation("P27").unwrap();
        let triple = Triple { subject: ada, relation, object: portugal };
        // Both sentences state the same triple; "Georgia" could be either, so it is another.
        let texts: Vec<&str> =
            evidence.of(triple).iter().filter_map(|one| one.statement["text"].as_str()).collect();
        assert_eq!(texts, ["first", "second"]);
        assert_eq!(evidence.of(triple)[0].provenance[0].wikipedia_id, Some("7".into()));
        assert_eq!(kb.triples(Part::Train).len(), 2);
        assert_eq!((kb.label(ada), kb.label(kb.entity("Q9").unwrap())), ("Ada Quill", "Bo"));
        assert!(kb.entity("Georgia").is_some() && kb.entity("Cy").is_none());
        assert!(evidence.of(Triple { subject: portugal, relation, object: ada }).is_empty());
        fs::write(&path, "\n{\"id\": 1, \"output\": []}\n").unwrap();
        let message = merge(&facts, &mut kb).unwrap_err().to_string();
        assert!(message.contains("a.jsonl:2") && message.contains("meta.triple"), "{message}");
    }
}
