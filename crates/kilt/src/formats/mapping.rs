//! A mapping from titles or passages of another corpus to KILT's pages.
//!
//! DPR's passages are from another Wikipedia dump than KILT's. The mapping of KILT's DPR baseline maps a
//! passage's title (or id) to a page of KILT's knowledge source. Its pickle must be converted to JSON or TSV
//! once.

use std::{fmt, path::Path};

use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer, de};

use super::stream::Stream;
use crate::{Error, Id, Result, jsonl};

/// Page ids by the title or the id of a passage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageMapping(FxHashMap<String, String>);

impl PageMapping {
    /// Loads a JSON object `{title: page id, ..}` or lines of `title TAB page id`, detected by the first
    /// character.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Compressed`], [`Error::Utf8`]; [`Error::Record`] for a value that is not an id, a line with
    /// another number of columns, or a key with two pages; [`Error::Empty`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut first = Stream::open(path)?;
        let object = first.fill()?.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let mapping = if object { jsonl::read_json(path)? } else { Self::from_lines(path)? };
        if mapping.0.is_empty() {
            return Err(Error::Empty { path: path.to_owned(), what: "title with its page" });
        }
        Ok(mapping)
    }

    fn from_lines(path: &Path) -> Result<Self> {
        let mut mapping = Self::default();
        for line in jsonl::open(path)?.lines() {
            let (number, line) = line?;
            let columns: Vec<&str> = line.split('\t').map(str::trim).collect();
            let &[key, page] = &columns[..] else {
                let message = format!("expected `title TAB page id`, found {} columns", columns.len());
                return Err(Error::record(path, number, "2", message));
            };
            for (name, column) in [("1", key), ("2", page)] {
                if column.is_empty() {
                    return Err(Error::record(path, number, name, "expected text, found an empty column"));
                }
            }
            mapping
                .insert(key, page.to_owned())
                .map_err(|message| Error::record(path, number, "1", message))?;
        }
        Ok(mapping)
    }

    fn insert(&mut self, key: &str, page: String) -> Result<(), String> {
        match self.0.get(key) {
            Some(other) if *other != page => {
                Err(format!("`{key}` leads to the pages `{other}` and `{page}`"))
            }
            Some(_) => Ok(()),
            None => {
                self.0.insert(key.to_owned(), page);
                Ok(())
            }
        }
    }

    /// The page of a title or passage id.
    pub fn page(&self, key: &str) -> Option<&str> {
        self.0.get(key.trim()).map(String::as_str)
    }
}

impl<'de> Deserialize<'de> for PageMapping {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = PageMapping;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of page ids")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<PageMapping, A::Error> {
                let mut mapping = PageMapping::default();
                while let Some((key, page)) = map.next_entry::<String, Id>()? {
                    mapping.insert(key.trim(), page.text().into_owned()).map_err(de::Error::custom)?;
                }
                Ok(mapping)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str) -> Result<PageMapping> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("map");
        std::fs::write(&path, text).unwrap();
        PageMapping::open(&path)
    }

    #[test]
    fn objects_and_lines_say_the_same() {
        let mapping = open("{\"Aaron\": 12, \"The Band\": \"7\"}").unwrap();
        assert_eq!(mapping, open("Aaron\t12\nThe Band\t7\nAaron\t12\n").unwrap());
        assert_eq!(mapping.page(" The Band"), Some("7"));
        assert_eq!(mapping.page("the band"), None);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let cases = [
            ("{\"a\": 1,\n\"b\": 1.5}", "map:2: field `b`: "),
            ("a\t1\nb\n", "map:2: field `2`: expected `title TAB page id`, found 1 columns"),
            ("a\t1\nb\t\n", "map:2: field `2`: expected text"),
            ("a\t1\na\t2\n", "map:2: field `1`: `a` leads to the pages `1` and `2`"),
            ("{}", "expected at least one title with its page"),
        ];
        for (text, expected) in cases {
            let message = open(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
