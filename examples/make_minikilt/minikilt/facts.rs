//! The facts, from a small extract of CoDEx-S.
//!
//! `facts.tsv` has four kinds of lines, identified by the first column, each sorted: `R property label
//! alias|alias`, `E entity label kind`, `K entity kind|kind` (the superclasses of a class) and `F entity
//! property object object ..`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde_json::Value;

use super::wording::Wordings;

/// An error of reading facts.
#[derive(Debug)]
pub(crate) struct FactsError(pub String);

impl fmt::Display for FactsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FactsError {}

/// A Wikidata item, ordered by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Qid(pub u64);

impl Qid {
    /// Reads `Q42`.
    pub(crate) fn parse(text: &str) -> Result<Self, FactsError> {
        text.strip_prefix('Q')
            .and_then(|digits| digits.parse().ok())
            .map(Qid)
            .ok_or_else(|| FactsError(format!("expected a Wikidata item such as Q42, found {text:?}")))
    }
}

impl fmt::Display for Qid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Q{}", self.0)
    }
}

/// A Wikidata property, ordered by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pid(pub u64);

impl Pid {
    /// Reads `P19`.
    pub(crate) fn parse(text: &str) -> Result<Self, FactsError> {
        text.strip_prefix('P')
            .and_then(|digits| digits.parse().ok())
            .map(Pid)
            .ok_or_else(|| FactsError(format!("expected a Wikidata property such as P19, found {text:?}")))
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", self.0)
    }
}

/// An entity's label, its kind ("human", "record label") and the kinds that it is a subclass of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entity {
    /// English label.
    pub label: String,
    /// English label of its type.
    pub kind: String,
    /// Labels of the classes over it, for professions, genres and the like.
    pub over: Vec<String>,
}

/// A property's label and other names.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    /// English label.
    pub label: String,
    /// Other English names.
    pub aliases: Vec<String>,
}

/// The classes of subject that have sentence templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Humans.
    Person,
    /// Countries.
    Place,
    /// Record labels, academies, companies.
    Body,
    /// Everything else: professions, genres, cities, ..
    Thing,
}

impl Class {
    /// Reads the name that the wording file uses.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "person" => Some(Self::Person),
            "place" => Some(Self::Place),
            "body" => Some(Self::Body),
            _ => None,
        }
    }
}

/// Entities, relations and statements.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Every entity that gets a page.
    pub entities: BTreeMap<Qid, Entity>,
    /// Every property that a statement uses.
    pub relations: BTreeMap<Pid, Relation>,
    /// Objects of a subject and property, ascending.
    pub statements: BTreeMap<(Qid, Pid), Vec<Qid>>,
}

impl Facts {
    /// Reads the text of `facts.tsv`.
    pub(crate) fn parse(text: &str) -> Result<Self, FactsError> {
        let mut facts = Self::default();
        for (number, line) in text.lines().enumerate() {
            let columns: Vec<&str> = line.split('\t').collect();
            let split =
                |s: &str| s.split('|').filter(|s| !s.is_empty()).map(str::to_owned).collect::<Vec<_>>();
            match columns.as_slice() {
                ["R", pid, label, aliases] => {
                    let relation = Relation { label: (*label).to_owned(), aliases: split(aliases) };
                    facts.relations.insert(Pid::parse(pid)?, relation);
                }
                ["E", qid, label, kind] => {
                    let entity = Entity { label: (*label).into(), kind: (*kind).into(), over: Vec::new() };
                    facts.entities.insert(Qid::parse(qid)?, entity);
                }
                ["K", qid, over] => {
                    let qid = Qid::parse(qid)?;
                    let entity = facts.entities.get_mut(&qid);
                    entity
                        .ok_or_else(|| FactsError(format!("line {}: {qid} has no E line", number + 1)))?
                        .over = split(over);
                }
                ["F", subject, pid, objects @ ..] if !objects.is_empty() => {
                    let objects = objects.iter().map(|o| Qid::parse(o)).collect::<Result<Vec<_>, _>>()?;
                    facts.statements.insert((Qid::parse(subject)?, Pid::parse(pid)?), objects);
                }
                _ => {
                    return Err(FactsError(format!(
                        "line {}: expected an R, E, K or F line, found {line:?}",
                        number + 1
                    )));
                }
            }
        }
        for ((subject, pid), objects) in &facts.statements {
            if !facts.relations.contains_key(pid) {
                return Err(FactsError(format!("{subject} uses {pid}, which has no R line")));
            }
            if let Some(missing) = objects.iter().chain([subject]).find(|q| !facts.entities.contains_key(q)) {
                return Err(FactsError(format!("{subject} {pid} names {missing}, which has no E line")));
            }
        }
        Ok(facts)
    }

    /// The text that [`Facts::parse`] reads.
    pub(crate) fn to_tsv(&self) -> String {
        let mut out = String::new();
        for (pid, r) in &self.relations {
            out += &format!("R\t{pid}\t{}\t{}\n", r.label, r.aliases.join("|"));
        }
        for (qid, e) in &self.entities {
            out += &format!("E\t{qid}\t{}\t{}\n", e.label, e.kind);
        }
        for (qid, e) in self.entities.iter().filter(|(_, e)| !e.over.is_empty()) {
            out += &format!("K\t{qid}\t{}\n", e.over.join("|"));
        }
        for ((subject, pid), objects) in &self.statements {
            let objects: Vec<String> = objects.iter().map(Qid::to_string).collect();
            out += &format!("F\t{subject}\t{pid}\t{}\n", objects.join("\t"));
        }
        out
    }

    /// Reads the part of CoDEx-S that has sentences in `wordings` from a folder of knowledge graphs.
    ///
    /// # Errors
    /// A file that is missing or not in CoDEx's layout.
    pub(crate) fn extract(folder: &Path, wordings: &Wordings) -> Result<Self, FactsError> {
        let read = |name: &str| {
            let path = folder.join(name);
            std::fs::read_to_string(&path).map_err(|e| FactsError(format!("{}: {e}", path.display())))
        };
        let json = |name: &str| -> Result<Value, FactsError> {
            serde_json::from_str(&read(name)?).map_err(|e| FactsError(format!("{name}: {e}")))
        };
        let mut facts = Self::default();
        for line in read("codex-s/entity_text.tsv")?.lines().skip(1) {
            let columns: Vec<&str> = line.split('\t').collect();
            let [_, qid, label, kind, ..] = columns.as_slice() else {
                return Err(FactsError(format!("entity_text.tsv: expected five columns, found {line:?}")));
            };
            let entity = Entity { label: unquote(label), kind: unquote(kind), over: Vec::new() };
            facts.entities.insert(Qid::parse(qid)?, entity);
        }
        let mut all: BTreeMap<(Qid, Pid), BTreeSet<Qid>> = BTreeMap::new();
        for part in ["train", "valid", "test"] {
            for line in read(&format!("codex-s/{part}.txt"))?.lines() {
                let [subject, pid, object] = line.split('\t').collect::<Vec<_>>()[..] else {
                    return Err(FactsError(format!(
                        "codex-s/{part}.txt: expected three columns, found {line:?}"
                    )));
                };
                let object = Qid::parse(object)?;
                // An instrument question is never answered well by "voice".
                if facts.entities.get(&object).is_some_and(|e| e.label == "voice")
                    || subject == object.to_string()
                {
                    continue;
                }
                all.entry((Qid::parse(subject)?, Pid::parse(pid)?)).or_default().insert(object);
            }
        }
        let labels = json("relations.json")?;
        let properties = json("wikidata_properties.json")?;
        let over = json("entity2types.json")?;
        let types = json("types.json")?;
        facts.statements =
            all.into_iter().map(|(key, objects)| (key, objects.into_iter().collect())).collect();
        let classes: BTreeMap<Qid, Class> = facts.entities.keys().map(|&q| (q, facts.class(q))).collect();
        facts.statements.retain(|(subject, pid), _| wordings.of(*pid, classes[subject]).is_some());
        for pid in facts.statements.keys().map(|(_, pid)| *pid).collect::<BTreeSet<_>>() {
            let name = pid.to_string();
            let label = labels[&name]["label"].as_str().unwrap_or(&name).to_owned();
            let found = properties.as_array().and_then(|list| list.iter().find(|p| p["id"] == name.as_str()));
            let aliases = found.and_then(|p| p["aliases"].as_array()).cloned().unwrap_or_default();
            let aliases = aliases.iter().filter_map(Value::as_str).take(6).map(str::to_owned).collect();
            facts.relations.insert(pid, Relation { label, aliases });
        }
        for (qid, entity) in &mut facts.entities {
            if classes[qid] == Class::Thing {
                let ids = over[&qid.to_string()].as_array().cloned().unwrap_or_default();
                let named = ids.iter().filter_map(|id| types[id.as_str()?]["label"].as_str());
                let kept = named.filter(|name| *name != entity.kind && *name != entity.label).take(2);
                entity.over = kept.map(str::to_owned).collect();
            }
        }
        Ok(facts)
    }

    /// The class of an entity, from its kind and the statements about it.
    pub(crate) fn class(&self, qid: Qid) -> Class {
        let has = |p: u64| self.statements.contains_key(&(qid, Pid(p)));
        if has(106) || self.entities[&qid].kind == "human" {
            Class::Person
        } else if has(30) || has(530) {
            Class::Place
        } else if has(159) || has(749) || has(17) || has(112) {
            Class::Body
        } else {
            Class::Thing
        }
    }
}

/// Undoes CSV quoting, and the quotation marks that CoDEx keeps around a label with a comma.
fn unquote(field: &str) -> String {
    let inner = |text: &str| text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).map(str::to_owned);
    let Some(plain) = inner(field) else { return field.to_owned() };
    let plain = plain.replace("\"\"", "\"");
    inner(&plain).unwrap_or(plain)
}
