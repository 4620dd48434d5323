//! Maps other data to pages of the knowledge source: documents by a table, articles by title, sentences by
//! text. Only pages can be provenance.

use std::{path::Path, sync::Arc};

use rustc_hash::FxHashMap;
use sporran_config::Document;
use sporran_kilt::{
    Error as FileError, Id, ParagraphKind, PassageStore, Provenance, hash_json, jsonl,
    observe::Observer,
    passage::{ABSTRACT, section_name},
    store::PageIndex,
};

use crate::{
    Result,
    run_dir::inputs::Inputs,
    source::{
        options::SourceOptions,
        store::{PartHash, store},
    },
};

/// A page: its id, and its index in the store if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PageOf {
    id: String,
    held: Option<PageIndex>,
}

/// A lookup of pages.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    store: Option<Arc<PassageStore>>,
    table: FxHashMap<String, PageOf>,
    /// The hash of source and table.
    hash: String,
    /// The hashes of source and store.
    parts: Vec<PartHash>,
}

impl Pages {
    /// Opens the `[source]` and the table of a config. Builds a missing store. Each line of the table is
    /// `NAME TAB PAGE`. A page is its id, or with a source its id or title.
    ///
    /// # Errors
    /// Errors of reading and building; [`FileError::Record`] for an invalid line, for a page that is not in
    /// the source, and for a name with two different pages.
    pub(crate) fn open(
        source: Option<&SourceOptions>,
        table: Option<&Path>,
        observe: &mut Observer<'_>,
    ) -> Result<Self> {
        let (mut hashes, mut inputs) = (Vec::new(), Inputs::default());
        let store = source.map(|source| store(source, observe, &mut hashes, &mut inputs)).transpose()?;
        let mut pages = Self::of_store(store);
        let content = table.map(|path| inputs.file(path)).transpose()?;
        if let Some(path) = table {
            pages.read(path)?;
        }
        inputs.verify()?;
        pages.hash = hash_json(&(&hashes, content));
        pages.parts = hashes;
        Ok(pages)
    }

    /// A lookup by title in a store; without a store it finds nothing.
    pub(crate) fn of_store(store: Option<Arc<PassageStore>>) -> Self {
        Self { store, ..Self::default() }
    }

    /// The hash of source and table.
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// The hashes of source and store, for a manifest.
    pub(crate) fn parts(&self) -> &[PartHash] {
        &self.parts
    }

    fn read(&mut self, path: &Path) -> Result<()> {
        let text = jsonl::read_to_string(path)?;
        for (line, row) in text.lines().enumerate().filter(|(_, row)| !row.trim().is_empty()) {
            let wrong = |message: String| FileError::record(path, line as u64 + 1, ".".to_owned(), message);
            let columns: Vec<&str> = row.split('\t').map(str::trim).collect();
            let [name, named] = columns[..] else {
                let message = format!("expected a name, a tab and a page, found {} columns", columns.len());
                return Err(wrong(message).into());
            };
            if name.is_empty() || named.is_empty() {
                return Err(wrong("expected a name and a page, found a blank".to_owned()).into());
            }
            let page = match &self.store {
                None => PageOf { id: named.to_owned(), held: None },
                Some(store) => {
                    let found = store.page_by_id(named).or_else(|| store.page_by_title(named));
                    let missing = || {
                        wrong(format!(
                            "expected the id or the title of a page of the source, found `{named}`"
                        ))
                    };
                    held(store, found.ok_or_else(missing)?)
                }
            };
            let known = self.table.entry(name.to_owned()).or_insert_with(|| page.clone());
            if *known != page {
                let message =
                    format!("expected one page for `{name}`, found page {} and page {}", known.id, page.id);
                return Err(wrong(message).into());
            }
        }
        Ok(())
    }

    /// The names in the table.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.table.keys().map(String::as_str)
    }

    /// The page of a name in the table.
    pub(crate) fn listed(&self, name: &str) -> Option<PageOf> {
        self.table.get(name.trim()).cloned()
    }

    /// The page of an article's title, by the rules of [`PassageStore::page_by_title`].
    pub(crate) fn titled(&self, title: &str) -> Option<PageOf> {
        let store = self.store.as_ref().filter(|_| !title.trim().is_empty())?;
        Some(held(store, store.page_by_title(title)?))
    }

    /// A page as provenance. With a store, the item has the page's title, and the place in a file that its record names. If
    /// a paragraph contains exactly `text`, the item also has section, paragraph and characters.
    pub(crate) fn provenance(&self, page: &PageOf, text: Option<&str>) -> Provenance {
        let mut item = Provenance { wikipedia_id: Some(Id::from(page.id.as_str())), ..Provenance::default() };
        let (Some(store), Some(page)) = (&self.store, page.held) else { return item };
        item.title = Some(store.page_title(page).to_owned());
        let metadata = store.metadata(page);
        item.extra = metadata.file().fields();
        let Some(text) = text.map(str::trim).filter(|text| !text.is_empty()) else { return item };
        let mut section = metadata.section().unwrap_or(ABSTRACT);
        for (number, paragraph) in store.paragraphs(page).enumerate() {
            let kind = ParagraphKind::of(paragraph);
            if matches!(kind, ParagraphKind::Header | ParagraphKind::Heading) {
                section = section_name(paragraph.trim());
            } else if let Some(byte) = paragraph.find(text) {
                item.extra = store.file_place(page, number as u32, byte as u32).fields();
                let start = paragraph[..byte].chars().count();
                let paragraph = Some(Id::from(number as i64));
                item.section = Some(section.to_owned());
                item.start_paragraph_id = paragraph.clone();
                item.start_character = Some(Id::from(start as i64));
                item.end_paragraph_id = paragraph;
                item.end_character = Some(Id::from((start + text.chars().count()) as i64));
                break;
            }
        }
        item
    }
}

fn held(store: &PassageStore, page: PageIndex) -> PageOf {
    PageOf { id: store.page_id(page).into_owned(), held: Some(page) }
}

/// Reports mistakes of `[source]` and of a table of pages with the key `key`.
pub(crate) fn check(
    source: Option<&SourceOptions>,
    (key, table): (&str, Option<&Path>),
    document: &mut Document<'_>,
) {
    if let Some(source) = source {
        source.check(document);
    }
    if let Some(path) = table.filter(|path| !path.is_file()) {
        document.report_key(key, format!("no file {}", path.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::options::SplitBy;

    const SOURCE: &str = r#"{"wikipedia_id":"7","wikipedia_title":"Zoë","text":["Zoë\n","Born here. Zoë sang 😀 once.\n","Section::::Life.\n","BULLET::::- a dog\n"]}
{"wikipedia_id":"9","wikipedia_title":"Ann","text":["Ann\n"]}
{"wikipedia_id":"11","wikipedia_title":"Tea","text":["Tea\n","It is hot."],"file":"tea.md","line":4,"section":"Drinks"}"#;

    fn pages(folder: &Path, table: Option<&str>) -> Result<Pages> {
        let path = folder.join("pages.jsonl");
        std::fs::write(&path, SOURCE).unwrap();
        let source = SourceOptions {
            split: SplitBy::Page,
            indexes: folder.join("indexes"),
            ..SourceOptions::new(path)
        };
        let listed = folder.join("pages.tsv");
        table.iter().for_each(|table| std::fs::write(&listed, table).unwrap());
        Pages::open(Some(&source), table.map(|_| listed.as_path()), &mut |_| {})
    }

    #[test]
    fn a_text_is_placed_on_its_page_and_what_is_unknown_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let pages = pages(folder.path(), Some("d1\t9\nd2\tZoë\n\nd2\t7\n")).unwrap();
        let page = pages.titled("zoë").unwrap();
        assert_eq!(pages.listed("d2"), Some(page.clone()));
        let item = pages.provenance(&page, Some(" Zoë sang 😀 once. "));
        let numbers =
            [&item.start_paragraph_id, &item.start_character, &item.end_paragraph_id, &item.end_character]
                .map(|id| id.as_ref().unwrap().number().unwrap());
        assert_eq!(numbers, [1, 11, 1, 27]);
        assert_eq!((item.title.as_deref(), item.section.as_deref()), (Some("Zoë"), Some(ABSTRACT)));
        assert_eq!(pages.provenance(&page, Some("a dog")).section.as_deref(), Some("Section::::Life."));
        let absent = pages.provenance(&page, Some("a cat"));
        assert_eq!((absent.wikipedia_id.unwrap().text().as_ref(), absent.section), ("7", None));
        let item = pages.provenance(&pages.titled("Tea").unwrap(), Some("It is hot."));
        assert_eq!((item.section.as_deref(), item.extra.len()), (Some("Drinks"), 2));
        assert_eq!((&item.extra["file"], &item.extra["line"]), (&"tea.md".into(), &4.into()));
        assert!(pages.titled("Bob").is_none() && pages.titled(" ").is_none() && pages.listed("d3").is_none());
    }

    #[test]
    fn without_a_source_the_table_is_taken_at_its_word() {
        let folder = tempfile::tempdir().unwrap();
        let table = folder.path().join("t.tsv");
        std::fs::write(&table, "d1\t42\r\n").unwrap();
        let pages = Pages::open(None, Some(&table), &mut |_| {}).unwrap();
        let item = pages.provenance(&pages.listed("d1").unwrap(), Some("text"));
        let only_the_page = Provenance { wikipedia_id: Some("42".into()), ..Provenance::default() };
        assert_eq!(item, only_the_page);
        assert!(pages.titled("Zoë").is_none());
        let none = Pages::open(None, None, &mut |_| {}).unwrap();
        assert!(none.hash() != pages.hash() && none.listed("d1").is_none());
    }

    #[test]
    fn wrong_lines_of_a_table_are_named() {
        let folder = tempfile::tempdir().unwrap();
        for (table, expected) in [
            ("d1\t9\nd2\n", "pages.tsv:2: expected a name, a tab and a page, found 1 columns"),
            ("d1\t\n", "pages.tsv:1: expected a name and a page, found a blank"),
            ("d1\tBob\n", "a page of the source, found `Bob`"),
            ("d1\t9\nd1\t7\n", "pages.tsv:2: expected one page for `d1`, found page 9 and page 7"),
        ] {
            let error = pages(folder.path(), Some(table)).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
