//! A table of names with their possible entities.

use std::{collections::BTreeMap, path::Path};

use rustc_hash::FxHashMap;
use sporran_kilt::jsonl;
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

use crate::Result;

/// The first line of a table's file.
const HEADER: &str = "sporran-aliases 1";
/// The largest number of words kept of a description.
const DESCRIPTION: usize = 64;
/// Represents an entity outside of the table.
const NOTHING: u32 = u32::MAX;

/// An entity of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownEntity {
    /// Its id, such as `Q42`.
    pub id: String,
    /// Its label.
    pub label: String,
    /// A short description.
    pub description: String,
}

/// A table of names with their possible entities, and the count of each meaning.
///
/// The file is text: a header, then a line `@ TAB id TAB label TAB description` for each entity, in the order
/// of ids, then a line `name TAB id TAB count` for each meaning, in the order of names. A count without an id
/// is the number of times that a name meant something outside of the knowledge base.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AliasTable {
    entities: Vec<KnownEntity>,
    meanings: FxHashMap<String, Vec<(u32, f32)>>,
}

/// The normal form of a name for look-ups: lower-case words with single blanks, without accents, punctuation,
/// a leading article or a trailing clitic.
pub(super) fn normal_form(name: &str) -> String {
    let lower = name.trim().to_lowercase();
    let bare = ["'s", "’s"].iter().find_map(|clitic| lower.strip_suffix(clitic)).unwrap_or(&lower);
    let mut plain = String::with_capacity(bare.len());
    for letter in bare.nfkd().filter(|letter| !is_combining_mark(*letter)) {
        match letter {
            // Initials and abbreviations are one word with or without full stops.
            '.' | '\'' | '’' => {}
            // They distinguish C from C++ and C#.
            '+' | '#' => plain.push(letter),
            _ if letter.is_alphanumeric() => plain.push(letter),
            _ => plain.push(' '),
        }
    }
    let words: Vec<&str> = plain.split_whitespace().collect();
    match &words[..] {
        // A name of punctuation only is kept.
        [] => lower,
        ["the", rest @ ..] if !rest.is_empty() => rest.join(" "),
        words => words.join(" "),
    }
}

/// Builds an [`AliasTable`] from entries in any order.
#[derive(Clone, Debug, Default)]
pub struct AliasTableBuilder {
    entities: BTreeMap<String, (String, String)>,
    meanings: BTreeMap<String, BTreeMap<String, f32>>,
}

impl AliasTableBuilder {
    /// Adds an entity with its label and description; the first of several entries counts.
    pub fn describe(&mut self, id: &str, label: &str, description: &str) {
        let plain = |text: &str| text.split_whitespace().take(DESCRIPTION).collect::<Vec<_>>().join(" ");
        let known = self.entities.entry(id.to_owned()).or_default();
        if known.0.is_empty() {
            known.0 = plain(label);
        }
        if known.1.is_empty() {
            known.1 = plain(description);
        }
    }

    /// Adds `count` uses of a name for an entity. An empty id means something outside of the knowledge base.
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

    /// Builds the table.
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

    /// The possible entities of a name, with their counts.
    pub fn candidates(&self, name: &str) -> impl Iterator<Item = (&KnownEntity, f32)> {
        self.meanings_of(&normal_form(name))
            .iter()
            .filter_map(|(at, count)| Some((self.entities.get(*at as usize)?, *count)))
    }

    /// The entities, in the order of their ids.
    #[must_use]
    pub fn entities(&self) -> &[KnownEntity] {
        &self.entities
    }

    /// Every meaning: a name in normal form, an entity id and a count. An empty id means something outside of
    /// the knowledge base. The order is unspecified.
    pub fn meanings(&self) -> impl Iterator<Item = (&str, &str, f32)> {
        self.meanings.iter().flat_map(|(name, meanings)| {
            let id = |at: &u32| self.entities.get(*at as usize).map_or("", |entity| entity.id.as_str());
            meanings.iter().map(move |(at, count)| (name.as_str(), id(at), *count))
        })
    }

    /// Every name in normal form; the order is unspecified.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.meanings.keys().map(String::as_str)
    }

    /// Every name in normal form with the index of each possible entity; the order is unspecified.
    pub(super) fn names_of_entities(&self) -> impl Iterator<Item = (&str, u32)> {
        let known = self.entities.len();
        let each = self
            .meanings
            .iter()
            .flat_map(|(name, meanings)| meanings.iter().map(move |(at, _)| (name.as_str(), *at)));
        each.filter(move |(_, at)| (*at as usize) < known)
    }

    /// The meanings of a name in normal form: entity indices with counts.
    pub(super) fn meanings_of(&self, normal: &str) -> &[(u32, f32)] {
        self.meanings.get(normal).map_or(&[], Vec::as_slice)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Write errors; then no file appears.
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
    /// Read errors, with the line and the expected content.
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::linking) fn table() -> AliasTable {
        let mut builder = AliasTableBuilder::default();
        builder.describe("Q90", "Paris", "capital of France");
        builder.describe("Q167646", "Paris", "son of Priam, king of Troy");
        builder.add("Paris", "Q90", 3.0);
        builder.add("Paris", "Q167646", 2.0);
        builder.add("Ann", "Q1", 1.0);
        builder.add("Ann", "", 4.0);
        builder.build()
    }

    #[test]
    fn names_are_looked_up_by_their_words() {
        for (name, expected) in [
            ("PARIS’s ", "paris"),
            ("the  U.S.", "us"),
            ("Jena–Auerstädt", "jena auerstadt"),
            ("C++", "c++"),
            ("The", "the"),
            ("!!!", "!!!"),
        ] {
            assert_eq!(normal_form(name), expected, "{name}");
        }
    }

    #[test]
    fn a_table_survives_its_file_and_faults_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("aliases.tsv");
        table().save(&path).unwrap();
        assert_eq!(AliasTable::load(&path).unwrap(), table());
        assert_eq!(table().candidates("PARIS’s ").count(), 2);
        let message = |text: &str| {
            std::fs::write(&path, text).unwrap();
            AliasTable::load(&path).unwrap_err().to_string()
        };
        assert!(message("sporran-aliases 2\n").contains("`sporran-aliases 1`"));
        assert!(message("sporran-aliases 1\nann\tQ1\tmany\n").contains(":2"));
        assert!(message("sporran-aliases 1\nann\tQ1\n").contains("`name id count`"));
        assert!(message("").contains("at least one line"));
    }
}
