//! Building a store from a collection of documents. A document becomes a page of two paragraphs, its title and its text.

use std::{fs, ops::Range, sync::Arc};

use rayon::prelude::*;

use super::{
    PassageStore,
    build::{BuildOptions, Builder, Pages, Prepared, Progress, SourcePage, is_store, prepare_page},
};
use crate::{
    Error, Result,
    folder::{Building, Place},
    formats::{Collection, Document},
    jsonl,
    passage::{Splitter, TokenRanges},
};

/// The documents of a file without one a line that are split at once.
const BATCH: usize = 4096;

impl PassageStore {
    /// As [`build_with`](Self::build_with), from the files of a collection instead of a knowledge source.
    ///
    /// # Errors
    /// As [`build`](Self::build); [`Error::Empty`] for a folder without files of the collection.
    pub fn build_collection(
        collection: Collection,
        options: &BuildOptions,
        tokens: Option<Arc<TokenRanges>>,
        place: impl Into<Place>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        Self::build_collection_range(collection, options, tokens, Pages::ALL, place.into(), progress)
    }

    /// As [`build_collection`](Self::build_collection), of the documents in a range.
    pub(super) fn build_collection_range(
        collection: Collection,
        options: &BuildOptions,
        tokens: Option<Arc<TokenRanges>>,
        mut wanted: Pages,
        place: Place,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self> {
        let splitter = Splitter { split: options.split, tokens };
        let building = Building::create(place, is_store)?;
        let mut builder = Builder::create(building.folder())?;
        let mut sizes = Vec::new();
        for file in collection.files(&options.source)? {
            let bytes = fs::metadata(&file).map_err(|source| Error::io(&file, "open", source))?.len();
            sizes.push((file, bytes));
        }
        let size = sizes.iter().map(|(_, bytes)| bytes).sum();
        let mut before = 0;
        for (file, bytes) in &sizes {
            builder.begin(file);
            if collection.has_lines(file)? {
                let reader = jsonl::open(file)?;
                let position = reader.position();
                reader.chunks(|path, chunk| {
                    let lines = chunk.par_lines();
                    let Range { start, end } = wanted.next(lines.len());
                    let pages: Vec<Result<Prepared>> = lines
                        .skip(start)
                        .take(end - start)
                        .map(|(line, bytes)| {
                            let page: SourcePage = collection.document(path, line, bytes)?.into();
                            prepare_page(path, line, page, &splitter)
                        })
                        .collect();
                    pages.into_iter().try_for_each(|page| builder.push(page?, path))?;
                    progress(builder.progress(before + position.read(), size));
                    Ok(())
                })?;
            } else {
                let mut documents = collection.documents(file)?;
                loop {
                    let batch: Vec<(u64, Document)> =
                        documents.by_ref().take(BATCH).collect::<Result<_>>()?;
                    if batch.is_empty() {
                        break;
                    }
                    let Range { start, end } = wanted.next(batch.len());
                    let pages: Vec<Result<Prepared>> = batch
                        .into_par_iter()
                        .skip(start)
                        .take(end - start)
                        .map(|(line, document)| prepare_page(file, line, document.into(), &splitter))
                        .collect();
                    pages.into_iter().try_for_each(|page| builder.push(page?, file))?;
                    progress(builder.progress(before, size));
                }
            }
            before += bytes;
        }
        builder.complete(options, building).map_err(|error| error.with_ids_in(collection.id_field()))
    }
}

#[cfg(test)]
mod tests {
    use crate::{PassageId, passage::Split};

    use super::*;

    fn build(collection: Collection, files: &[(&str, &str)]) -> Result<(tempfile::TempDir, PassageStore)> {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::create_dir(&source).unwrap();
        for (name, text) in files {
            fs::write(source.join(name), text).unwrap();
        }
        let options = BuildOptions { source, redirects: None, split: Split::Page };
        let store = PassageStore::build_collection(
            collection,
            &options,
            None,
            folder.path().join("store"),
            &mut |_| {},
        )?;
        Ok((folder, store))
    }

    #[test]
    fn a_document_is_a_page_with_or_without_a_title() {
        let corpus = "{\"_id\":\"d 1\",\"title\":\"Tea\",\"text\":\"It is hot.\",\"metadata\":{\"lang\":\"en\"}}\n\
                      {\"_id\":\"é\",\"text\":\"Whales sing.\"}\n{\"_id\":\"3\",\"title\":\"\",\"text\":\"\"}\n";
        let (_folder, store) = build(Collection::Beir, &[("corpus.jsonl", corpus)]).unwrap();
        let passages: Vec<_> = (0..store.len() as u32)
            .map(|number| store.passage(PassageId(number)))
            .map(|it| (it.page_id, it.title, it.text))
            .collect();
        let passage = |id: &str, title: &str, text: &str| (id.to_owned(), title.to_owned(), text.to_owned());
        let expected =
            [passage("d 1", "Tea", "It is hot."), passage("é", "", "Whales sing."), passage("3", "", "")];
        assert_eq!(passages, expected);
        assert!(store.page_by_id("é").is_some() && store.page_by_title("tea").is_some());
        // A page without a title has no name.
        assert!(store.page_by_title("").is_none() && store.page_of_title(" ").is_none());
        assert_eq!(store.names_of_pages().count(), 1);
        store.sound().unwrap();
    }

    #[test]
    fn a_document_that_stands_twice_is_named_with_both_places() {
        let error = |files: &[(&str, &str)]| build(Collection::Anserini, files).err().unwrap().to_string();
        let (one, other) = ("{\"id\":\"a\",\"contents\":\"x\"}\n", "\n{\"id\":\"a\",\"contents\":\"y\"}\n");
        let message = error(&[("a.jsonl", &format!("{one}{other}"))]);
        assert!(message.contains("a.jsonl:3: field `id`: `a` stands on line 1 already"), "{message}");
        let message = error(&[("a.jsonl", one), ("b.jsonl", other)]);
        assert!(message.contains("b.jsonl:2: field `id`: `a` stands on line 1 of "), "{message}");
        assert!(message.ends_with("a.jsonl already"), "{message}");
    }
}
