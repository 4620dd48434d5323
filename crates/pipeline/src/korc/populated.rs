//! Facts that were read from text, as part of a knowledge base, with the sentences that state them.

use std::{collections::HashMap, fs, path::PathBuf};

use serde_json::{Value, json};
use sporran_kilt::{
    Record, jsonl,
    kb::{EntityId, KnowledgeBase, Part, Triple},
};

use crate::{Error, Result, population::Node};

/// Where triples are stated: for each the predictions' provenance, with how sure the extractor was.
#[derive(Debug, Default)]
pub(super) struct Evidence(HashMap<[u32; 3], Vec<Value>>);

impl Evidence {
    /// What states a triple; nothing for one that was in the knowledge base before.
    pub(super) fn of(&self, triple: Triple) -> &[Value] {
        self.0.get(&key(triple)).map_or(&[], Vec::as_slice)
    }
}

fn key(Triple { subject, relation, object }: Triple) -> [u32; 3] {
    [subject.0, relation.0, object.0]
}

/// What the knowledge base calls its entities, in lower case; `None` for what several are called.
struct Called(HashMap<String, Option<EntityId>>);

impl Called {
    fn new(kb: &KnowledgeBase) -> Self {
        let mut called: HashMap<String, Option<EntityId>> = HashMap::new();
        for id in (0..kb.entity_count() as u32).map(EntityId) {
            for name in std::iter::once(kb.label(id)).chain(kb.labels(id).iter().map(String::as_str)) {
                let known = called.entry(name.to_lowercase()).or_insert(Some(id));
                if *known != Some(id) {
                    *known = None;
                }
            }
        }
        Self(called)
    }

    /// The entity that was linked, or that alone is called so; a new one where there is none.
    fn entity(&mut self, node: &Node, kb: &mut KnowledgeBase) -> sporran_kilt::Result<EntityId> {
        let lower = node.name.to_lowercase();
        if let (None, Some(Some(known))) = (&node.id, self.0.get(&lower)) {
            return Ok(*known);
        }
        let before = kb.entity_count();
        let id = kb.add_entity(node.id.as_ref().unwrap_or(&node.name))?;
        if kb.entity_count() > before {
            kb.set_label(id, &node.name);
            self.0.entry(lower).or_insert(Some(id));
        }
        Ok(id)
    }
}

/// Adds the facts of runs of `sporran populate` to the training part of a knowledge base. What a run did not link means the
/// entity that alone is called so, and otherwise a new one of this name.
///
/// # Errors
/// Those of reading; [`Error::Kilt`] for a prediction without its triple.
pub(super) fn merge(runs: &[PathBuf], kb: &mut KnowledgeBase) -> Result<Evidence> {
    let mut evidence = Evidence::default();
    if runs.is_empty() {
        return Ok(evidence);
    }
    let mut called = Called::new(kb);
    let mut known: std::collections::HashSet<[u32; 3]> =
        kb.triples(Part::Train).iter().copied().map(key).collect();
    for run in runs {
        let folder = run.join("predictions");
        let entries = fs::read_dir(&folder).map_err(Error::io(&folder, "read"))?;
        let mut files: Vec<PathBuf> = entries
            .map(|entry| Ok(entry.map_err(Error::io(&folder, "read"))?.path()))
            .collect::<Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
        files.sort();
        for path in files {
            let mut reader = jsonl::open(&path)?.records::<Record>();
            let mut line = 0;
            while let Some(record) = reader.next().transpose()? {
                line += 1;
                let meta = record.meta.as_ref();
                let triple = meta.and_then(|meta| meta.get("triple")).cloned().unwrap_or_default();
                let [subject, relation, object]: [Node; 3] =
                    serde_json::from_value(triple).map_err(|error| {
                        sporran_kilt::Error::record(&path, line, "meta.triple", error.to_string())
                    })?;
                let name = relation.id.as_ref().unwrap_or(&relation.name);
                let relation = kb.add_relation(name)?;
                let triple = Triple {
                    subject: called.entity(&subject, kb)?,
                    relation,
                    object: called.entity(&object, kb)?,
                };
                if known.insert(key(triple)) {
                    kb.add(Part::Train, triple)?;
                }
                let confidence = meta.and_then(|meta| meta.get("confidence")).cloned();
                for output in record.outputs() {
                    for provenance in output.provenance.iter().flatten() {
                        let stated = json!({ "provenance": provenance, "confidence": confidence });
                        evidence.0.entry(key(triple)).or_default().push(stated);
                    }
                }
            }
        }
    }
    Ok(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_join_by_link_or_name_and_are_remembered_with_their_sentences() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("predictions")).unwrap();
        let line = |subject: Value, object: Value, text: &str| {
            json!({ "id": text, "input": "x", "meta": { "confidence": 0.5, "triple": [
                subject, { "id": "P27", "name": "NATIONALITY" }, object ] },
                "output": [{ "answer": "x", "provenance": [{ "title": "T", "text": text }] }] })
            .to_string()
        };
        let name = |name: &str| json!({ "id": null, "name": name });
        let lines = [
            line(name("Ada Quill"), name("portugal"), "first"),
            line(name("Ada Quill"), json!({ "id": "Q45", "name": "there" }), "second"),
            line(json!({ "id": "Q9", "name": "Bo" }), name("Georgia"), "third"),
        ];
        let path = folder.path().join("predictions/a.jsonl");
        fs::write(&path, lines.join("\n")).unwrap();
        let mut kb = KnowledgeBase::default();
        for (id, label) in [("Q45", "Portugal"), ("Q1", "Georgia"), ("Q2", "Georgia")] {
            let id = kb.add_entity(id).unwrap();
            kb.set_label(id, label);
        }
        let evidence = merge(&[folder.path().to_owned()], &mut kb).unwrap();
        let (ada, portugal) = (kb.entity("Ada Quill").unwrap(), kb.entity("Q45").unwrap());
        let relation = kb.relation("P27").unwrap();
        let triple = Triple { subject: ada, relation, object: portugal };
        // Both sentences state the same triple; "Georgia" could be either, so it is another.
        let texts: Vec<&str> =
            evidence.of(triple).iter().filter_map(|one| one["provenance"]["text"].as_str()).collect();
        assert_eq!(texts, ["first", "second"]);
        assert_eq!(kb.triples(Part::Train).len(), 2);
        assert_eq!((kb.label(ada), kb.label(kb.entity("Q9").unwrap())), ("Ada Quill", "Bo"));
        assert!(kb.entity("Georgia").is_some());
        assert!(evidence.of(Triple { subject: portugal, relation, object: ada }).is_empty());
        fs::write(&path, "{\"id\": 1, \"output\": []}\n").unwrap();
        let message = merge(&[folder.path().to_owned()], &mut kb).unwrap_err().to_string();
        assert!(message.contains("a.jsonl:1") && message.contains("meta.triple"), "{message}");
    }
}
