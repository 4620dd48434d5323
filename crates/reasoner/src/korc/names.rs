//! Names and classes of entities.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Error as FileError, jsonl,
    kb::{EntityId, KnowledgeBase, read_names},
};

use crate::Result;

/// Tables of entities, as [`read_names`] reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct EntityTables {
    /// Tab-separated tables in order of priority: the first that names an entity counts.
    pub tables: Vec<PathBuf>,
    /// A JSON object from entity ids to class ids.
    pub classes: Option<PathBuf>,
    /// A JSON object from class ids to `{"label": ..}`. It also names entities that are classes.
    pub class_labels: Option<PathBuf>,
}

/// The names of a knowledge base's entities.
#[derive(Clone, Debug, Default)]
pub struct Entities {
    /// For each entity its label, then other names; empty if unknown.
    names: Vec<Vec<String>>,
    /// For each entity its most specific class.
    classes: Vec<Option<String>>,
    titles: FxHashMap<String, EntityId>,
    /// Names of exactly one entity.
    unique: FxHashMap<String, Option<EntityId>>,
}

#[derive(Deserialize)]
struct ClassLabel {
    label: String,
}

impl Entities {
    /// Reads tables for the entities of a knowledge base. Other entities are skipped.
    ///
    /// # Errors
    /// Read errors; a table without any of these entities.
    pub fn load(tables: &EntityTables, kb: &KnowledgeBase) -> Result<Self> {
        let count = kb.entity_count();
        let mut entities =
            Self { names: vec![Vec::new(); count], classes: vec![None; count], ..Self::default() };
        for table in &tables.tables {
            entities.read_table(table, kb)?;
        }
        let labels: FxHashMap<String, ClassLabel> =
            tables.class_labels.as_ref().map(jsonl::read_json).transpose()?.unwrap_or_default();
        let mut named: Vec<(&String, &ClassLabel)> = labels.iter().collect();
        named.sort_unstable_by_key(|(id, _)| *id);
        for (id, class) in named {
            if let Some(id) = kb.entity(id).filter(|id| entities.names[id.index()].is_empty()) {
                entities.names[id.index()].push(class.label.clone());
            }
        }
        if let Some(path) = &tables.classes {
            entities.choose_classes(&jsonl::read_json(path)?, &labels, kb);
        }
        for number in 0..count as u32 {
            let id = EntityId(number);
            for name in entities.names[id.index()].clone() {
                entities
                    .unique
                    .entry(name)
                    .and_modify(|known| *known = known.filter(|&known| known == id))
                    .or_insert(Some(id));
            }
        }
        Ok(entities)
    }

    fn read_table(&mut self, path: &Path, kb: &KnowledgeBase) -> Result<()> {
        let mut found = false;
        read_names(path, |row| {
            let Some(entity) = kb.entity(row.id) else { return };
            found = true;
            if !self.names[entity.index()].is_empty() {
                return;
            }
            let names = &mut self.names[entity.index()];
            names.push(row.label.to_string());
            for other in std::iter::once(&row.title).chain(&row.aliases) {
                let plain = other.split(" (").next().unwrap_or_default();
                if !plain.is_empty() && !names.iter().any(|known| known == plain) {
                    names.push(plain.to_owned());
                }
            }
            for title in [row.title, row.label.as_ref()] {
                if !title.is_empty() {
                    self.titles.entry(title.to_owned()).or_insert(entity);
                }
            }
            if !row.class.is_empty() {
                self.classes[entity.index()] = Some(row.class.to_owned());
            }
        })?;
        if !found {
            // The same message as for a first line without the id column.
            let message =
                "expected ids of the knowledge base's entities in a column `id` or `qid`, found none";
            return Err(FileError::record(path, 1, ".", message).into());
        }
        Ok(())
    }

    /// Of an entity's labelled classes, chooses the one with the fewest entities of the knowledge base.
    fn choose_classes(
        &mut self,
        classes: &FxHashMap<String, Vec<String>>,
        labels: &FxHashMap<String, ClassLabel>,
        kb: &KnowledgeBase,
    ) {
        let of = |number: u32| classes.get(kb.entity_name(EntityId(number))).map_or(&[][..], Vec::as_slice);
        let count = kb.entity_count() as u32;
        let mut sizes: FxHashMap<&str, usize> = FxHashMap::default();
        for class in (0..count).flat_map(of) {
            *sizes.entry(class).or_default() += 1;
        }
        for number in 0..count {
            let finest = of(number)
                .iter()
                .filter(|class| labels.contains_key(*class))
                .min_by_key(|class| (sizes[class.as_str()], *class));
            if let Some(class) = finest {
                self.classes[number as usize] = Some(labels[class].label.clone());
            }
        }
    }

    /// The entity whose page has a title.
    pub fn by_title(&self, title: &str) -> Option<EntityId> {
        self.titles.get(title).copied()
    }

    /// The only entity with a name.
    pub fn by_name(&self, name: &str) -> Option<EntityId> {
        self.unique.get(name).copied().flatten()
    }

    /// The names of exactly one entity, with that entity, in no particular order.
    pub fn unique_names(&self) -> impl Iterator<Item = (&str, EntityId)> {
        self.unique.iter().filter_map(|(name, entity)| Some((name.as_str(), (*entity)?)))
    }

    /// The names of an entity, its label first.
    pub fn names(&self, entity: EntityId) -> &[String] {
        self.names.get(entity.index()).map_or(&[], Vec::as_slice)
    }

    /// The label of an entity; `None` if unknown.
    pub fn label(&self, entity: EntityId) -> Option<&str> {
        self.names(entity).first().map(String::as_str)
    }

    /// The most specific class of an entity.
    pub fn class(&self, entity: EntityId) -> Option<&str> {
        self.classes.get(entity.index())?.as_deref()
    }
}

/// Reads the labels of relations: a table as for entities, or a JSON object from ids to `{"label": ..}`.
/// Relations that the knowledge base lacks are skipped.
///
/// # Errors
/// Read errors.
pub fn label_relations(path: &Path, kb: &mut KnowledgeBase) -> Result<()> {
    if path.extension().is_some_and(|ending| ending == "json") {
        let labels: FxHashMap<String, ClassLabel> = jsonl::read_json(path)?;
        for (id, label) in labels {
            if let Some(id) = kb.relation(&id) {
                kb.set_relation_label(id, &label.label);
            }
        }
        return Ok(());
    }
    Ok(kb.load_relation_labels(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_entities_and_the_rarest_class_is_the_finest() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let mut kb = KnowledgeBase::default();
        let ids: Vec<EntityId> = ["Q1", "Q2", "Q3"].iter().map(|name| kb.add_entity(name).unwrap()).collect();
        let tables = EntityTables {
            tables: vec![file(
                "e.tsv",
                "id\tlabel\ttitle\ttype\taliases\nQ1\tAnn\tAnn (singer)\thuman\tAnnie|Nan\nQ2\tAnn\tAnn (town)\t\t\nQ9\tX\tX\t\t\n",
            )],
            classes: Some(file("c.json", r#"{"Q1":["K1","K2","K9"],"Q2":["K1"],"Q3":["K1"]}"#)),
            class_labels: Some(file(
                "l.json",
                r#"{"K1":{"label":"thing"},"K2":{"label":"singer"},"Q3":{"label":"class"}}"#,
            )),
        };
        let entities = Entities::load(&tables, &kb).unwrap();
        assert_eq!(entities.names(ids[0]), ["Ann", "Annie", "Nan"]);
        assert_eq!((entities.class(ids[0]), entities.class(ids[1])), (Some("singer"), Some("thing")));
        assert_eq!(entities.by_title("Ann (town)"), Some(ids[1]));
        assert_eq!((entities.by_name("Ann"), entities.by_name("Nan")), (None, Some(ids[0])));
        assert_eq!(entities.label(ids[2]), Some("class"));

        for (text, expected) in
            [("Q1\n", "w.tsv:1: field `label`"), ("entity\tlabel\nX1\tAnn\n", "w.tsv:1: expected ids")]
        {
            let wrong = EntityTables { tables: vec![file("w.tsv", text)], ..EntityTables::default() };
            let message = Entities::load(&wrong, &kb).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
