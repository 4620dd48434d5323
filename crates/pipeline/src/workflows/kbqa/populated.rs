//! Facts that were read from text, as part of a knowledge base, with the sentences that state them.

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

/// Where a triple is stated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Stated {
    /// The sentence and its place in the document that was read, as `sporran populate` tells it.
    pub(super) statement: Value,
    /// The document's page, where it is one.
    pub(super) provenance: Vec<Provenance>,
    /// How sure the extractor was.
    pub(super) confidence: Option<f64>,
}

/// Where triples are stated.
#[derive(Debug, Default)]
pub(super) struct Evidence(HashMap<[u32; 3], Vec<Stated>>);

impl Evidence {
    /// What states a triple; nothing for one that no run read.
    pub(super) fn of(&self, triple: Triple) -> &[Stated] {
        self.0.get(&key(triple)).map_or(&[], Vec::as_slice)
    }
}

fn key(Triple { subject, relation, object }: Triple) -> [u32; 3] {
    [subject.0, relation.0, object.0]
}

/// What the knowledge base calls its entities, in lower case; `None` for what several are called. A label goes before other
/// names.
struct Called {
    labels: HashMap<String, Option<EntityId>>,
    others: HashMap<String, Option<EntityId>>,
}

impl Called {
    fn new(kb: &KnowledgeBase) -> Self {
        let (mut labels, mut others) = (HashMap::new(), HashMap::new());
        let call = |called: &mut HashMap<String, Option<EntityId>>, name: &str, id| {
            let known = called.entry(name.to_lowercase()).or_insert(Some(id));
            if *known != Some(id) {
                *known = None;
            }
        };
        for id in (0..kb.entity_count() as u32).map(EntityId) {
            call(&mut labels, kb.label(id), id);
            kb.labels(id).iter().for_each(|name| call(&mut others, name, id));
        }
        Self { labels, others }
    }

    /// The entity that was linked, or that alone is called so; a new one where there is none.
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

/// The fact of a prediction and how sure it is; nothing where that is too little.
fn fact(
    path: &Path,
    line: u64,
    record: &Record,
    least: f64,
) -> sporran_kilt::Result<Option<([Node; 3], Option<f64>)>> {
    let meta = |name: &str| record.meta.as_ref().and_then(|meta| meta.get(name));
    let confidence = meta("confidence").and_then(Value::as_f64);
    if confidence.is_some_and(|confidence| confidence < least) {
        return Ok(None);
    }
    let nodes = serde_json::from_value(meta("triple").cloned().unwrap_or_default())
        .map_err(|error| sporran_kilt::Error::record(path, line, "meta.triple", error.to_string()))?;
    Ok(Some((nodes, confidence)))
}

/// Adds the facts of runs of `sporran populate` to the training part of a knowledge base. What a run did not link means the
/// entity that alone is called so, and otherwise a new one of this name.
///
/// # Errors
/// Those of reading; [`Error::Kilt`] for a prediction without its triple.
pub(super) fn merge(facts: &PopulatedFacts, kb: &mut KnowledgeBase) -> Result<Evidence> {
    let PopulatedFacts { runs, min_confidence } = facts;
    let mut evidence = Evidence::default();
    if runs.is_empty() {
        return Ok(evidence);
    }
    let mut called = Called::new(kb);
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
                        subject: called.entity(subject, kb)?,
                        relation: kb.add_relation(relation.id.as_ref().unwrap_or(&relation.name))?,
                        object: called.entity(object, kb)?,
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
    fn facts_join_by_link_or_name_and_are_remembered_with_their_sentences() {
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
        // Another name of another entity does not make a label doubtful.
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
