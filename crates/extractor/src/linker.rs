//! Links of mentions into a knowledge base: by the names that entities go by, how often a name has meant each of them, and
//! the words around it.

use std::{collections::BTreeMap, path::Path};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use unicode_segmentation::UnicodeSegmentation;

use crate::{Chain, Document, EntityType, Link, Mention, MentionForm, Result};

/// The first line of a table's file.
const HEADER: &str = "sporran-aliases 1";
/// What stands for an entity that a table does not hold.
const NOTHING: u32 = u32::MAX;

/// An entity that names lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEntity {
    /// Its id, such as `Q42`.
    pub id: String,
    /// What it is called.
    pub label: String,
    /// A few words about it.
    pub description: String,
}

/// Names with the entities that they may mean, and how often each was meant.
///
/// The file is text: a header, then a line `@ TAB id TAB label TAB description` for each entity, in the order of their ids,
/// then a line `name TAB id TAB count` for each meaning, in the order of names. A count without an id tells how often a name
/// meant something that the knowledge base does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AliasTable {
    entities: Vec<KnownEntity>,
    meanings: FxHashMap<String, Vec<(u32, f32)>>,
}

/// A name as it is looked up: lower case, words with one blank between, without a clitic at its end.
#[must_use]
pub fn normal_form(name: &str) -> String {
    let name = name.trim().to_lowercase();
    let name = ["'s", "’s"].iter().find_map(|clitic| name.strip_suffix(clitic)).unwrap_or(&name);
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What an [`AliasTable`] is made of, in any order.
#[derive(Clone, Debug, Default)]
pub struct AliasTableBuilder {
    entities: BTreeMap<String, (String, String)>,
    meanings: BTreeMap<String, BTreeMap<String, f32>>,
}

impl AliasTableBuilder {
    /// An entity with its label and a few words about it; the first that is told of it stays.
    pub fn describe(&mut self, id: &str, label: &str, description: &str) {
        let plain = |text: &str| text.split_whitespace().take(40).collect::<Vec<_>>().join(" ");
        let known = self.entities.entry(id.to_owned()).or_default();
        if known.0.is_empty() {
            known.0 = plain(label);
        }
        if known.1.is_empty() {
            known.1 = plain(description);
        }
    }

    /// A name that meant an entity `count` times; with an empty id it meant what the knowledge base does not have.
    pub fn add(&mut self, name: &str, id: &str, count: f32) {
        let name = normal_form(name);
        if name.is_empty() {
            return;
        }
        if !id.is_empty() {
            self.entities.entry(id.to_owned()).or_default();
        }
        *self.meanings.entry(name).or_default().entry(id.to_owned()).or_default() += count;
    }

    /// The table.
    #[must_use]
    pub fn build(self) -> AliasTable {
        let numbers: FxHashMap<String, u32> =
            self.entities.keys().enumerate().map(|(at, id)| (id.clone(), at as u32)).collect();
        let entities = self.entities.into_iter();
        let entities = entities.map(|(id, (label, description))| KnownEntity { id, label, description });
        let meanings = self.meanings.into_iter().map(|(name, counts)| {
            let of = |(id, count): (String, f32)| (numbers.get(&id).copied().unwrap_or(NOTHING), count);
            (name, counts.into_iter().map(of).collect())
        });
        AliasTable { entities: entities.collect(), meanings: meanings.collect() }
    }
}

impl AliasTable {
    /// The number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.meanings.len()
    }

    /// Whether there is no name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.meanings.is_empty()
    }

    /// The entities that a name may mean, with how often it meant each.
    pub fn candidates(&self, name: &str) -> impl Iterator<Item = (&KnownEntity, f32)> {
        self.meanings_of(name)
            .iter()
            .filter_map(|(at, count)| Some((self.entities.get(*at as usize)?, *count)))
    }

    /// The entities, in the order of their ids.
    #[must_use]
    pub fn entities(&self) -> &[KnownEntity] {
        &self.entities
    }

    /// Every name with what it may mean and how often; an empty id is what the knowledge base does not have. Names come in
    /// no order.
    pub fn meanings(&self) -> impl Iterator<Item = (&str, &str, f32)> {
        self.meanings.iter().flat_map(|(name, meanings)| {
            let id = |at: &u32| self.entities.get(*at as usize).map_or("", |entity| entity.id.as_str());
            meanings.iter().map(move |(at, count)| (name.as_str(), id(at), *count))
        })
    }

    fn meanings_of(&self, name: &str) -> &[(u32, f32)] {
        self.meanings.get(&normal_form(name)).map_or(&[], Vec::as_slice)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Where the disk refuses; then nothing appears.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut writer = jsonl::Writer::create(path)?;
        writer.line(HEADER.as_bytes())?;
        for KnownEntity { id, label, description } in &self.entities {
            writer.line(format!("@\t{id}\t{label}\t{description}").as_bytes())?;
        }
        let mut names: Vec<(&String, &Vec<(u32, f32)>)> = self.meanings.iter().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        for (name, meanings) in names {
            for (at, count) in meanings {
                let id = self.entities.get(*at as usize).map_or("", |entity| &entity.id);
                writer.line(format!("{name}\t{id}\t{count}").as_bytes())?;
            }
        }
        Ok(writer.finish()?)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Those of reading, with the line and what was expected there.
    pub fn load(path: &Path) -> Result<Self> {
        let mut builder = AliasTableBuilder::default();
        let mut is_first = true;
        for line in jsonl::open(path)?.lines() {
            let (number, line) = line?;
            let wrong = |field: &str, expected: &str, found: &str| {
                let message = format!("expected {expected}, found `{found}`");
                sporran_kilt::Error::record(path, number, field, message)
            };
            if std::mem::take(&mut is_first) {
                if line != HEADER {
                    return Err(wrong("header", &format!("`{HEADER}`"), &line).into());
                }
                continue;
            }
            let columns: Vec<&str> = line.split('\t').collect();
            match columns[..] {
                ["@", id, label, description] => builder.describe(id, label, description),
                [name, id, count] => {
                    let count: f32 = count
                        .parse()
                        .ok()
                        .filter(|count: &f32| count.is_finite() && *count > 0.0)
                        .ok_or_else(|| wrong("count", "a number above 0", count))?;
                    builder.add(name, id, count);
                }
                _ => {
                    return Err(wrong("columns", "`@ id label description` or `name id count`", &line).into());
                }
            }
        }
        if is_first {
            return Err(sporran_kilt::Error::Empty { path: path.to_owned(), what: "line" }.into());
        }
        Ok(builder.build())
    }
}

/// How a linker decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkerOptions {
    /// A link that is less sure than this, 0 to 1, is withheld.
    pub threshold: f32,
    /// How much the words around a mention count beside how often its name meant each entity.
    pub context: f32,
    /// How often each name is taken to mean what the knowledge base does not have, beside what was counted.
    pub unknown: f32,
}

impl Default for LinkerOptions {
    fn default() -> Self {
        Self { threshold: 0.4, context: 1.0, unknown: 0.1 }
    }
}

/// Links mentions by their names and those of their chains.
#[derive(Clone, Debug)]
pub struct Linker {
    table: AliasTable,
    options: LinkerOptions,
}

impl Linker {
    /// A linker over a table.
    #[must_use]
    pub fn new(table: AliasTable, options: LinkerOptions) -> Self {
        Self { table, options }
    }

    /// Its names.
    #[must_use]
    pub fn table(&self) -> &AliasTable {
        &self.table
    }

    /// The link of each mention of a document. A name is linked by itself; where that is not sure enough, and for pronouns
    /// and descriptions, by its chain's best name, with the chain's confidence in both. Dates have no links.
    #[must_use]
    pub fn link(&self, document: &Document, mentions: &[Mention], chains: &[Chain]) -> Vec<Option<Link>> {
        let mut links: Vec<Option<Link>> =
            mentions.iter().map(|mention| self.by_name(document, mention)).collect();
        for chain in chains {
            let own = |(at, sure): &(usize, f32)| {
                let link = links.get(*at)?.as_ref()?;
                Some((link.confidence * sure, link.entity.clone()))
            };
            let mut named: Vec<(f32, String)> = chain.mentions.iter().filter_map(own).collect();
            named.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
            let Some((best, entity)) = named.into_iter().next() else { continue };
            for (at, sure) in &chain.mentions {
                let confidence = best * sure;
                if let Some(link @ None) = links.get_mut(*at)
                    && confidence >= self.options.threshold
                {
                    *link = Some(Link { entity: entity.clone(), confidence });
                }
            }
        }
        links
    }

    fn by_name(&self, document: &Document, mention: &Mention) -> Option<Link> {
        if mention.form != MentionForm::Name || mention.kind == EntityType::Date {
            return None;
        }
        let meanings = self.table.meanings_of(document.slice(mention.span)?);
        if meanings.is_empty() {
            return None;
        }
        let around =
            document.sentences.get(mention.sentence).and_then(|sentence| document.slice(sentence.span));
        let around = words(around.unwrap_or_default());
        let mut all = self.options.unknown;
        let mut best: Option<(f32, u32)> = None;
        for (at, count) in meanings {
            let Some(entity) = self.table.entities.get(*at as usize) else {
                all += count;
                continue;
            };
            let shared = words(&entity.description).iter().filter(|word| around.contains(word)).count();
            let weight = count * (1.0 + self.options.context * (1.0 + shared as f32).ln());
            all += weight;
            if best.is_none_or(|(other, _)| weight > other) {
                best = Some((weight, *at));
            }
        }
        let (weight, at) = best?;
        let confidence = weight / all;
        (confidence >= self.options.threshold)
            .then(|| Link { entity: self.table.entities[at as usize].id.clone(), confidence })
    }
}

/// The words of a text that tell something, lower case, sorted, each once.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> =
        text.unicode_words().filter(|word| word.chars().count() > 3).map(str::to_lowercase).collect();
    words.sort_unstable();
    words.dedup();
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposals;

    fn table() -> AliasTable {
        let mut builder = AliasTableBuilder::default();
        builder.describe("Q90", "Paris", "capital of France");
        builder.describe("Q167646", "Paris", "son of Priam, king of Troy");
        builder.add("Paris", "Q90", 3.0);
        builder.add("Paris", "Q167646", 2.0);
        builder.add("Ann", "Q1", 1.0);
        builder.add("Ann", "", 4.0);
        builder.build()
    }

    fn linked(text: &str, chains: &[Chain]) -> Vec<Option<String>> {
        let document = Document::new("d", text);
        let linker = Linker::new(table(), LinkerOptions::default());
        let links = linker.link(&document, &proposals(&document), chains);
        links.into_iter().map(|link| link.map(|link| link.entity)).collect()
    }

    #[test]
    fn a_name_means_what_it_most_often_meant_unless_the_words_around_say_otherwise() {
        assert_eq!(linked("Bob left Paris.", &[]), [None, Some("Q90".into())]);
        assert_eq!(linked("Paris, a son of king Priam, left.", &[])[0], Some("Q167646".into()));
    }

    #[test]
    fn a_name_that_mostly_meant_nobody_known_is_not_linked() {
        assert_eq!(linked("Ann left.", &[]), [None]);
    }

    #[test]
    fn a_chain_lends_its_name_as_far_as_it_is_sure() {
        let chain = |sure| Chain { mentions: vec![(0, 1.0), (1, sure)], representative: 0 };
        assert_eq!(linked("Paris grew. It is old.", &[chain(0.9)])[1], Some("Q90".into()));
        assert_eq!(linked("Paris grew. It is old.", &[chain(0.3)])[1], None);
    }

    #[test]
    fn a_table_survives_its_file_and_faults_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("aliases.tsv");
        table().save(&path).unwrap();
        assert_eq!(AliasTable::load(&path).unwrap(), table());
        assert_eq!(table().candidates("PARIS’s ").count(), 2);
        let told = |text: &str| {
            std::fs::write(&path, text).unwrap();
            AliasTable::load(&path).unwrap_err().to_string()
        };
        assert!(told("sporran-aliases 2\n").contains("`sporran-aliases 1`"));
        assert!(told("sporran-aliases 1\nann\tQ1\tmany\n").contains(":2"));
        assert!(told("sporran-aliases 1\nann\tQ1\n").contains("`name id count`"));
        assert!(told("").contains("at least one line"));
    }
}
