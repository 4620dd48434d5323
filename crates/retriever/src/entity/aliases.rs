//! The pages that a name can mean, with their frequencies.
//!
//! One file with sorted rows of 16 bytes: the first 8 bytes of the BLAKE3 hash of a name in normal form, a
//! page, and the frequency. Names themselves are not stored. The probability that two of a hundred million
//! names have the same hash is one in three thousand.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sporran_kilt::{PassageStore, folder::Place, jsonl, store::PageIndex};
use unicode_normalization::UnicodeNormalization;

use crate::{
    Result,
    layout::{self, Files, Folder, Mapped, Section, verify},
};

const KIND: &str = "aliases";
const ROWS: &str = "aliases";
const ROW: usize = 16;

/// The weights, in anchors, of a title, a redirect, and a title without its bracketed suffix.
const TITLE: u32 = 10;
const REDIRECT: u32 = 5;
const BARE_TITLE: u32 = 1;

/// The number of rows gathered before equal ones are merged.
const GATHERED: usize = 1 << 24;

/// The header of the names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Header {
    /// [`KIND`].
    kind: String,
    passages_hash: String,
    /// The number of different names.
    names: u32,
    /// The number of pairs of a name and a page.
    rows: u64,
    sections: Vec<Section>,
}

layout::header!(Header, 1);

/// A possible page of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alias {
    /// The page.
    pub page: PageIndex,
    /// The share of the name's uses for this page, from 0 to 1.
    pub prior: f32,
}

/// The names of all pages of a store, memory-mapped.
pub struct Aliases {
    rows: Mapped,
    folder: PathBuf,
    header: Header,
}

/// The words of a text in normal form: NFC, lower case, letters and digits.
pub(super) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_word = |c: char| c.is_alphanumeric() || unicode_normalization::char::is_combining_mark(c);
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        while rest.next_if(|&(_, c)| !is_word(c)).is_some() {}
        let start = rest.peek()?.0;
        while rest.next_if(|&(_, c)| is_word(c)).is_some() {}
        let end = rest.peek().map_or(text.len(), |&(at, _)| at);
        Some((start, &text[start..end]))
    })
}

/// A word in normal form.
pub(super) fn normal(word: &str) -> String {
    word.nfc().flat_map(char::to_lowercase).collect()
}

/// The key of a name, from its words in normal form.
pub(super) fn key(words: &[String]) -> u64 {
    let hash = blake3::hash(words.join(" ").as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().unwrap_or_default())
}

fn key_of(name: &str) -> Option<u64> {
    let words: Vec<String> = words(name).map(|(_, word)| normal(word)).collect();
    (!words.is_empty()).then(|| key(&words))
}

/// A title without a bracketed suffix, such as `(film)`.
fn bare(title: &str) -> Option<&str> {
    let (name, _) = title.strip_suffix(')')?.rsplit_once(" (")?;
    Some(name.trim()).filter(|name| !name.is_empty())
}

#[derive(Deserialize)]
struct Links {
    #[serde(default)]
    anchors: Option<Vec<Link>>,
}

#[derive(Deserialize)]
struct Link {
    text: Option<String>,
    href: Option<String>,
}

/// Rows in memory: a key, a page, a count.
type Rows = Vec<(u64, u32, u32)>;

/// Merges rows of the same name and page.
fn add_up(rows: &mut Rows) {
    rows.sort_unstable();
    rows.dedup_by(|next, kept| {
        let same = (next.0, next.1) == (kept.0, kept.1);
        if same {
            kept.2 = kept.2.saturating_add(next.2);
        }
        same
    });
}

impl Aliases {
    /// Collects the names of the pages of `store`: titles, redirects, and the anchors of its knowledge
    /// source. `progress` receives the number of pages read. Existing names are replaced. This process waits
    /// for another that builds at the same path.
    ///
    /// # Errors
    /// Errors of reading the source; [`Error::Io`](crate::Error::Io) and [`sporran_kilt::Error::InTheWay`];
    /// [`sporran_kilt::Error::Store`] for a damaged store.
    pub fn build(
        source: &Path,
        store: &PassageStore,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let building = Folder::create(KIND, place.into())?;
        let mut rows: Rows = Vec::new();
        for (page, name, redirect) in store.names_of_pages() {
            let count = if redirect { REDIRECT } else { TITLE };
            rows.extend(key_of(name).map(|key| (key, page.0, count)));
            rows.extend(bare(name).and_then(key_of).map(|key| (key, page.0, BARE_TITLE)));
        }
        let mut read = 0;
        let mut most = GATHERED;
        jsonl::open(source)?.batches::<Links>(|batch| {
            read += batch.len() as u64;
            for (_, links) in batch {
                for link in links.anchors.into_iter().flatten() {
                    let (Some(text), Some(href)) = (&link.text, &link.href) else { continue };
                    let (Some(key), Some(page)) = (key_of(text), store.page_by_href(href)) else { continue };
                    rows.push((key, page.0, 1));
                }
            }
            if rows.len() > most {
                add_up(&mut rows);
                most = rows.len() + GATHERED;
            }
            progress(read);
            Ok(())
        })?;
        store.sound()?;
        add_up(&mut rows);
        // The most frequent pages of a name come first.
        rows.sort_unstable_by_key(|&(key, page, count)| (key, std::cmp::Reverse(count), page));

        let mut section = building.section(ROWS)?;
        let (mut names, mut before) = (0, None);
        for &(key, page, count) in &rows {
            names += u32::from(before != Some(key));
            before = Some(key);
            let mut row = [0; ROW];
            row[..8].copy_from_slice(&key.to_le_bytes());
            row[8..12].copy_from_slice(&page.to_le_bytes());
            row[12..].copy_from_slice(&count.to_le_bytes());
            section.put(&row)?;
        }
        building.finish(&Header {
            kind: KIND.into(),
            passages_hash: store.hash().to_owned(),
            names,
            rows: rows.len() as u64,
            sections: vec![section.finish()?],
        })
    }

    /// Opens the names in a folder, which must be of the store with this hash.
    ///
    /// # Errors
    /// As [`Bm25::open`](crate::sparse::Bm25::open).
    pub fn open(folder: &Path, passages_hash: &str) -> Result<Self> {
        let (header, files) = layout::open(folder, KIND, passages_hash)?;
        Self::of(folder, header, files)
    }

    fn of(folder: &Path, header: Header, mut files: Files) -> Result<Self> {
        let rows = files.take(ROWS)?;
        if rows.len() as u64 != header.rows * ROW as u64 {
            return Err(rows.corrupt(format!("expected {} rows of {ROW} bytes", header.rows)));
        }
        Ok(Self { rows, folder: folder.to_owned(), header })
    }

    /// Reads all names and verifies their checksum.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Checksum`] naming the file.
    pub fn verify(&self) -> Result<()> {
        verify(&self.folder, &self.header)
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.header.names as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.header.names == 0
    }

    /// The pages that a name can mean, most frequent first.
    pub fn find(&self, name: &str) -> Vec<Alias> {
        key_of(name).map_or_else(Vec::new, |key| self.with_key(key))
    }

    pub(super) fn with_key(&self, key: u64) -> Vec<Alias> {
        let (rows, _) = self.rows.as_chunks::<ROW>();
        let at = |row: &[u8; ROW]| {
            let [a, b, c, d, e, f, g, h, page @ .., i, j, k, l] = *row;
            let key = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            (key, u32::from_le_bytes(page), u32::from_le_bytes([i, j, k, l]))
        };
        let first = rows.partition_point(|row| at(row).0 < key);
        let same = rows[first..].iter().map(at).take_while(|row| row.0 == key);
        let total: u64 = same.clone().map(|row| u64::from(row.2)).sum();
        same.map(|(_, page, count)| Alias {
            page: PageIndex(page),
            prior: count as f32 / total.max(1) as f32,
        })
        .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sporran_kilt::{PassageSplit, store::BuildOptions};

    use super::*;
    use crate::Error;

    /// A page's title, its paragraph, and the links from it as text and title.
    pub(crate) type PageText<'t> = (&'t str, &'t str, &'t [(&'t str, &'t str)]);

    /// A store of such pages, and their names.
    pub(crate) fn world(folder: &Path, pages: &[PageText<'_>]) -> (PassageStore, Aliases) {
        let source = folder.join("pages.jsonl");
        let lines: Vec<String> = pages
            .iter()
            .enumerate()
            .map(|(id, (title, text, links))| {
                let anchors: Vec<serde_json::Value> = links
                    .iter()
                    .map(|(text, href)| serde_json::json!({"text": text, "href": href, "paragraph_id": 1}))
                    .collect();
                serde_json::json!({"wikipedia_id": id.to_string(), "wikipedia_title": title,
                    "text": [title, text], "anchors": anchors})
                .to_string()
            })
            .collect();
        jsonl::write(&source, lines.join("\n").as_bytes()).unwrap();
        let redirects = folder.join("redirects.tsv");
        jsonl::write(&redirects, b"Big Apple\tNew York City\n").unwrap();
        let options =
            BuildOptions { source: source.clone(), redirects: Some(redirects), split: PassageSplit::Words };
        let store = PassageStore::build(&options, folder.join("store"), &mut |_| {}).unwrap();
        let mut read = 0;
        Aliases::build(&source, &store, folder.join("aliases"), &mut |done| read = done).unwrap();
        assert_eq!(read, pages.len() as u64);
        let aliases = Aliases::open(&folder.join("aliases"), store.hash()).unwrap();
        aliases.verify().unwrap();
        (store, aliases)
    }

    fn found(aliases: &Aliases, name: &str) -> Vec<(u32, f32)> {
        aliases.find(name).iter().map(|alias| (alias.page.0, alias.prior)).collect()
    }

    #[test]
    fn titles_redirects_and_anchors_name_pages_with_their_shares() {
        let folder = tempfile::tempdir().unwrap();
        let (_, aliases) = world(
            folder.path(),
            &[
                ("New York City", "a city", &[]),
                ("Paris", "a city", &[("NYC", "New_York_City"), ("Paris", "Paris (film)")]),
                ("Paris (film)", "a film", &[("n.y.c.", "New%20York%20City"), ("nowhere", "No Such Page")]),
            ],
        );
        // The title of page 1 counts 10; of page 2 the title without brackets counts 1 and an anchor 1.
        assert_eq!(found(&aliases, "PARIS"), [(1, 10.0 / 12.0), (2, 2.0 / 12.0)]);
        assert_eq!(found(&aliases, "Paris (Film)"), [(2, 1.0)]);
        assert_eq!(found(&aliases, "big  apple"), [(0, 1.0)]);
        assert_eq!(found(&aliases, "NYC"), [(0, 1.0)]);
        // The full stops separate three words.
        assert_eq!(found(&aliases, "n y c"), [(0, 1.0)]);
        assert!(aliases.find("nowhere").is_empty() && aliases.find("!").is_empty());
        // new york city, big apple, paris, paris film, nyc, n y c.
        assert_eq!(aliases.len(), 6);
    }

    #[test]
    fn damage_that_a_stamp_hides_is_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) =
            world(folder.path(), &[("Paris", "a city", &[("Paris", "Paris")]), ("New York", "b", &[])]);
        let path = folder.path().join("aliases");
        layout::damage_each(&path, || {
            let (header, files) = layout::open_unchecked(&path, KIND, store.hash()).unwrap();
            let aliases = Aliases::of(&path, header, files).unwrap();
            for alias in aliases.find("paris").iter().chain(&aliases.find("new york")) {
                // A page that the store lacks.
                store.passages_of(alias.page);
            }
        });
        assert!(store.sound().is_err());
    }

    #[test]
    fn another_stores_names_and_damaged_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = world(folder.path(), &[("Paris", "a city", &[])]);
        let path = folder.path().join("aliases");
        assert!(matches!(Aliases::open(&path, "other"), Err(Error::OtherPassages { .. })));
        let rows = path.join(ROWS);
        let mut bytes = std::fs::read(&rows).unwrap();
        bytes[3] ^= 1;
        std::fs::write(&rows, &bytes).unwrap();
        let damaged = Aliases::open(&path, store.hash());
        assert!(matches!(damaged, Err(Error::Kilt(sporran_kilt::Error::Checksum { .. }))));
        std::fs::write(&rows, &bytes[..8]).unwrap();
        assert!(matches!(Aliases::open(&path, store.hash()), Err(Error::Length { .. })));
    }
}
