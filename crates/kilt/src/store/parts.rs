//! Stores of parts of a source, and the store of the whole source out of them.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use rayon::prelude::*;

use super::{
    PageIndex, PassageStore,
    build::{BuildOptions, Builder, Pages, Prepared, Progress, is_store},
    lookup::{key, normalize_title},
};
use crate::{
    Error, PassageId, Result,
    error::PAGE_ID,
    folder::{Building, Place},
    formats::Collection,
    jsonl,
    passage::TokenRanges,
};

/// The pages of a part that are read at once.
const BATCH: usize = 1024;

/// The number of pages of a source: lines of JSON, or the documents of a collection.
///
/// # Errors
/// Errors of reading; [`Error::Record`] for a wrong document of a file in which documents are no lines.
pub fn count_pages(source: &Path, collection: Option<Collection>) -> Result<usize> {
    let files = match collection {
        None => vec![source.to_owned()],
        Some(collection) => collection.files(source)?,
    };
    let mut pages = 0;
    for file in files {
        match collection {
            Some(collection) if !collection.has_lines(&file)? => {
                for document in collection.documents(&file)? {
                    document?;
                    pages += 1;
                }
            }
            _ => jsonl::open(&file)?.chunks(|_, chunk| {
                pages += chunk.par_lines().len();
                Ok(())
            })?,
        }
    }
    Ok(pages)
}

/// The files and lines of two pages of a source.
fn places(
    source: &Path,
    collection: Option<Collection>,
    pages: [u64; 2],
) -> Result<[Option<(PathBuf, u64)>; 2]> {
    let files = match collection {
        None => vec![source.to_owned()],
        Some(collection) => collection.files(source)?,
    };
    let mut found = [None, None];
    let mut page = 0;
    for file in &files {
        let mut at = |line: u64| {
            for (wanted, found) in pages.iter().zip(&mut found) {
                if *wanted == page {
                    *found = Some((file.clone(), line));
                }
            }
            page += 1;
        };
        match collection {
            Some(collection) if !collection.has_lines(file)? => {
                collection.documents(file)?.try_for_each(|document| document.map(|(line, _)| at(line)))?;
            }
            _ => jsonl::open(file)?.lines().try_for_each(|line| line.map(|(line, _)| at(line)))?,
        }
    }
    Ok(found)
}

impl PassageStore {
    /// As [`build_with`](Self::build_with) or [`build_collection`](Self::build_collection), of the pages in a range. Redirects
    /// are left out, because their targets can be in other parts. The range has at least one page.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_part(
        collection: Option<Collection>,
        options: &BuildOptions,
        tokens: Option<Arc<TokenRanges>>,
        range: &Range<usize>,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let options = BuildOptions { redirects: None, ..options.clone() };
        let (wanted, place) = (Pages::of(range), place.into());
        match collection {
            None => Self::build_range(&options, tokens, wanted, place, progress),
            Some(collection) => {
                Self::build_collection_range(collection, &options, tokens, wanted, place, progress)
            }
        }
    }

    /// Builds the store of a source out of the stores of its parts, in order: the same bytes as
    /// [`build_with`](Self::build_with) gives. The source is read only to name the lines of an id that stands in two parts.
    /// Memory is that of a build.
    ///
    /// # Errors
    /// As [`build`](Self::build); [`Error::Store`] for a damaged part and for one whose pages are split in another way.
    pub fn merge(
        parts: &[Self],
        collection: Option<Collection>,
        options: &BuildOptions,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let building = Building::create(place.into(), is_store)?;
        let mut builder = Builder::create(building.folder())?;
        builder.begin(&options.source);
        let size = parts.iter().map(Self::bytes).sum();
        let (mut first, mut read) = (0, 0);
        for part in parts {
            if part.split() != options.split {
                let (expected, found) = (options.split, part.split());
                let message = format!("expected pages split by {expected:?}, found {found:?}");
                return Err(Error::store(part.folder(), message));
            }
            let pages = part.pages();
            for start in (0..pages).step_by(BATCH) {
                let end = pages.min(start + BATCH);
                let prepared: Vec<Prepared> = (start..end)
                    .into_par_iter()
                    .map(|page| part.prepared(PageIndex(page as u32), (first + page) as u64))
                    .collect();
                part.sound()?;
                prepared.into_iter().try_for_each(|page| builder.push(page, &options.source))?;
                let done = part.bytes() as f64 * (end as f64 / pages as f64);
                progress(builder.progress(read + done as u64, size));
            }
            first += pages;
            read += part.bytes();
        }
        builder.complete(options, building).map_err(|error| located(error, collection, options))
    }

    /// A page as a worker of a build prepares it. `number` stands for its line.
    fn prepared(&self, page: PageIndex, number: u64) -> Prepared {
        let (id, title) = (self.stored_id(page).to_owned(), self.page_title(page).to_owned());
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.paragraph_count(page)));
        for paragraph in self.paragraphs(page) {
            text.push_str(paragraph);
            ends.push(text.len() as u32);
        }
        let marks = match self.marks {
            None => Vec::new(),
            Some(_) => (0..ends.len() as u32).map(|paragraph| self.marks_of(page, paragraph)).collect(),
        };
        Prepared {
            line: number,
            spans: self.passages_of(page).map(|passage| self.span(PassageId(passage), page)).collect(),
            metadata: self.stored_metadata(page),
            fields: self.fields_of(page).unwrap_or_default().to_owned(),
            marks,
            id_key: key(&id),
            title_key: key(&normalize_title(&title)),
            id,
            title,
            text,
            ends,
        }
    }
}

/// An error of a merge, whose lines are numbers of pages, with the lines of the source.
fn located(error: Error, collection: Option<Collection>, options: &BuildOptions) -> Error {
    let Error::DuplicateId { path, line, first, id, .. } = error else { return error };
    let field = collection.map_or(PAGE_ID, Collection::id_field);
    match places(&options.source, collection, [first, line]) {
        Ok([Some((earlier, first)), Some((path, line))]) if path != earlier => {
            let message = format!("`{id}` stands on line {first} of {} already", earlier.display());
            Error::record(&path, line, field, message)
        }
        Ok([Some((_, first)), Some((path, line))]) => Error::DuplicateId { path, line, first, field, id },
        // The source is not there any more.
        _ => {
            let message = format!("`{id}` is the id of page {first} already");
            Error::record(&path, line, field, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, fs};

    use super::*;
    use crate::{folder::Shard, passage::Split};

    /// The files of a folder.
    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
            .collect()
    }

    fn page(id: usize, more: &str) -> String {
        let text = (0..id % 5).map(|at| format!("\"Paragraph {at} of {id}: é {}\"", "word ".repeat(70 * at)));
        let text: Vec<String> = std::iter::once(format!("\"Title {id}\"")).chain(text).collect();
        format!(
            "{{\"wikipedia_id\":\"{id}\",\"wikipedia_title\":\"Title {id}\",\"text\":[{}]{more}}}",
            text.join(",")
        )
    }

    /// Compares the merge of `of` parts with the store of the whole source.
    fn compare(lines: &[String], split: Split, of: u32) {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("source.jsonl"), lines.join("\n\n")).unwrap();
        fs::write(path("redirects.tsv"), "Other\tTitle 3\nNone\tNowhere\nTwo\tTitle 0\n").unwrap();
        let options =
            BuildOptions { source: path("source.jsonl"), redirects: Some(path("redirects.tsv")), split };
        PassageStore::build(&options, path("whole"), &mut |_| {}).unwrap();
        let pages = count_pages(&options.source, None).unwrap();
        assert_eq!(pages, lines.len());
        let mut parts = Vec::new();
        for index in 0..of {
            let range = Shard::new(index, of).unwrap().range(pages, 1);
            if !range.is_empty() {
                let place = path(&format!("part-{index}"));
                parts.push(
                    PassageStore::build_part(None, &options, None, &range, place, &mut |_| {}).unwrap(),
                );
            }
        }
        let merged = PassageStore::merge(&parts, None, &options, path("merged"), &mut |_| {}).unwrap();
        assert_eq!(merged.pages(), pages);
        assert_eq!(files(&path("merged")), files(&path("whole")), "{of} parts");
    }

    #[test]
    fn the_merge_of_any_number_of_parts_is_the_store_of_the_whole() {
        let plain: Vec<String> = (0..9).map(|id| page(id, "")).collect();
        // Metadata and places begin in the middle, or in the last page.
        let with = |from: usize| -> Vec<String> {
            let more = |id: usize| match id {
                id if id < from => String::new(),
                id if id % 2 == 0 => format!(",\"lang\":\"e{id}\",\"year\":{id},\"categories\":\"a,b\""),
                id => {
                    let places = vec!["[[0,3,1],[4,4,0]]"; id % 5 + 1].join(",");
                    format!(",\"places\":[{places}],\"file\":\"a.md\"")
                }
            };
            (0..9).map(|id| page(id, &more(id))).collect()
        };
        for of in [1, 2, 3, 7, 12] {
            compare(&plain, Split::Words, of);
            compare(&with(4), Split::Paragraph, of);
            compare(&with(8), Split::Page, of);
        }
    }

    #[test]
    fn collections_are_merged_over_their_files() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir(path("source")).unwrap();
        let line = |id: u32| format!("{{\"id\":\"d{id}\",\"contents\":\"T{id}\\ntext of {id}\"}}");
        let lines = |ids: [u32; 3]| ids.map(line).join("\n");
        fs::write(path("source/a.jsonl"), lines([0, 1, 2])).unwrap();
        fs::write(path("source/b.json"), format!("[\n{}]", lines([3, 4, 5]).replace('\n', ",\n"))).unwrap();
        let options = BuildOptions { source: path("source"), redirects: None, split: Split::Page };
        let collection = Collection::Anserini;
        PassageStore::build_collection(collection, &options, None, path("whole"), &mut |_| {}).unwrap();
        assert_eq!(count_pages(&path("source"), Some(collection)).unwrap(), 6);
        let part = |range: Range<usize>| {
            let place = path(&format!("part-{}", range.start));
            PassageStore::build_part(Some(collection), &options, None, &range, place, &mut |_| {}).unwrap()
        };
        let parts = [part(0..2), part(2..5), part(5..6)];
        PassageStore::merge(&parts, Some(collection), &options, path("merged"), &mut |_| {}).unwrap();
        assert_eq!(files(&path("merged")), files(&path("whole")));
        // An id in two parts is named with both places, as in a build of the whole.
        fs::write(path("source/b.json"), "[\n{\"id\":\"d1\",\"contents\":\"x\"}]").unwrap();
        let parts = [part(0..3), part(3..4)];
        let merged = PassageStore::merge(&parts, Some(collection), &options, path("merged"), &mut |_| {});
        let whole = PassageStore::build_collection(collection, &options, None, path("whole"), &mut |_| {});
        let [merged, whole] = [merged, whole].map(|store| store.err().unwrap().to_string());
        assert_eq!(merged, whole);
        assert!(merged.contains("b.json:2: field `id`: `d1` stands on line 2 of "), "{merged}");
    }

    #[test]
    fn an_id_in_two_parts_is_named_with_its_lines() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("source.jsonl"), [page(3, ""), String::new(), page(4, ""), page(3, "")].join("\n"))
            .unwrap();
        let options = BuildOptions { source: path("source.jsonl"), redirects: None, split: Split::Words };
        let part = |range: Range<usize>, name: &str| {
            PassageStore::build_part(None, &options, None, &range, path(name), &mut |_| {}).unwrap()
        };
        let parts = [part(0..2, "a"), part(2..3, "b")];
        let error = PassageStore::merge(&parts, None, &options, path("m"), &mut |_| {}).err().unwrap();
        assert!(matches!(&error, Error::DuplicateId { line: 4, first: 1, id, .. } if id == "3"), "{error}");
        assert!(!path("m").exists());
        let other = BuildOptions { split: Split::Page, ..options.clone() };
        let error = PassageStore::merge(&parts, None, &other, path("m"), &mut |_| {}).err().unwrap();
        assert!(error.to_string().contains("expected pages split by Page, found Words"), "{error}");
    }
}
