//! The index of all passages out of indexes of consecutive parts of them.
//!
//! A passage's length is the sum of its counts, so the postings of the parts are all that an index of the whole needs. The first
//! pass adds up the lengths, the second merges the terms as a build merges its runs.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use rayon::prelude::*;
use serde::Serialize;
use sporran_kilt::folder::Place;

use super::{
    builder::{Build, Model, Progress, Source, write},
    index::Index,
    segment::write_term,
};
use crate::{Error, Result, layout::Folder};

/// The postings of a part as a run (see [`segment`](super::segment)) with the numbers of all passages.
struct PartRun<'a> {
    index: &'a Index,
    /// The first passage of the part.
    first: u32,
    /// The next term.
    next: u32,
    postings: Vec<(u32, u32)>,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for PartRun<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.bytes.len() {
            if self.next == self.index.header().terms {
                return Ok(0);
            }
            (self.at, self.postings) = (0, Vec::new());
            self.bytes.clear();
            let term = self.index.term(self.next, &mut self.postings).map_err(io::Error::other)?;
            self.postings.iter_mut().for_each(|(passage, _)| *passage += self.first);
            write_term(term, &self.postings, &mut self.bytes);
            self.next += 1;
        }
        let read = buffer.len().min(self.bytes.len() - self.at);
        buffer[..read].copy_from_slice(&self.bytes[self.at..self.at + read]);
        self.at += read;
        Ok(read)
    }
}

/// The number of terms of each passage of a part.
pub(super) fn lengths(index: &Index) -> Result<Vec<u32>> {
    let mut lengths = vec![0u32; index.header().passages as usize];
    let mut postings = Vec::new();
    for term in 0..index.header().terms {
        postings.clear();
        index.term(term, &mut postings)?;
        for &(passage, count) in &postings {
            let length = &mut lengths[passage as usize];
            *length = length.saturating_add(count);
        }
    }
    Ok(lengths)
}

/// Writes the index of all passages: the same bytes as a build gives. `parts` are the folders of the indexes of consecutive
/// passages, `passages` is the number of all.
///
/// # Errors
/// [`Error::Part`] for parts of other options or with another number of passages; errors of a part and of the files.
pub(crate) fn merge<M: Model>(
    model: &M,
    options: &impl Serialize,
    parts: &[PathBuf],
    (passages_hash, passages): (&str, usize),
    place: Place,
    build: Build<'_>,
) -> Result<()> {
    let folder = Folder::create(M::KIND, place)?;
    let options = serde_json::to_value(options)
        .map_err(|error| Error::Header { path: folder.path(""), message: error.to_string() })?;
    let mut indexes = Vec::new();
    for part in parts {
        let index = Index::open_part::<M>(part)?;
        if index.header().options != options {
            let [expected, found] = [&options, &index.header().options].map(ToString::to_string);
            return Err(Error::Part { path: part.clone(), expected, found });
        }
        indexes.push(index);
    }
    let found: usize = indexes.iter().map(|index| index.header().passages as usize).sum();
    if found != passages {
        let path = parts.first().map_or(Path::new(""), PathBuf::as_path).to_owned();
        let [expected, found] = [passages, found].map(|count| format!("{count} passages in all parts"));
        return Err(Error::Part { path, expected, found });
    }
    let lengths: Vec<u32> = indexes.par_iter().map(lengths).collect::<Result<Vec<_>>>()?.concat();
    (build.progress)(Progress::Passages(passages as u64));
    let mut first = 0;
    let mut sources: Vec<Source<'_>> = Vec::new();
    for index in &indexes {
        sources.push(Box::new(PartRun {
            index,
            first,
            next: 0,
            postings: Vec::new(),
            bytes: Vec::new(),
            at: 0,
        }));
        first += index.header().passages;
    }
    let postings = indexes.iter().map(|index| index.header().postings).sum();
    let failed = |error: io::Error| match error.downcast::<Error>() {
        Ok(own) => own,
        Err(other) => Error::io(parts.first().map_or(Path::new(""), PathBuf::as_path), "read")(other),
    };
    let header = write::<M>(model, options, &folder, (&lengths, postings), sources, failed, build.progress)?;
    folder.finish(&header.of(passages_hash))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, convert::Infallible, fs};

    use proptest::prelude::*;
    use sporran_kilt::{PassageId, folder::Shard};

    use super::*;
    use crate::sparse::{Bm25, Bm25Options, TfIdf, TfIdfOptions};

    /// The files of a folder.
    fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        entries
            .map(|entry| (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).unwrap()))
            .collect()
    }

    type Passage = (String, String);

    /// Compares the merge of parts with the index of all passages.
    fn compare(
        passages: &[Passage],
        of: u32,
        build: impl Fn(&[Passage], &Path, Build<'_>) -> Result<()>,
        merge: impl Fn(&[PathBuf], &Path, Build<'_>) -> Result<()>,
    ) {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        build(passages, &path("whole"), Build::new(&mut |_| {})).unwrap();
        let mut parts = Vec::new();
        for index in 0..of {
            let range = Shard::new(index, of).unwrap().range(passages.len(), 1);
            if !range.is_empty() {
                let part = path(&format!("part-{index}"));
                build(&passages[range], &part, Build::new(&mut |_| {})).unwrap();
                parts.push(part);
            }
        }
        merge(&parts, &path("merged"), Build::new(&mut |_| {})).unwrap();
        assert!(files(&path("merged")) == files(&path("whole")), "{of} parts");
    }

    fn numbered(passages: &[Passage]) -> impl Iterator<Item = Result<(PassageId, &str, &str), Infallible>> {
        (0..).zip(passages).map(|(id, (title, text))| Ok((PassageId(id), title.as_str(), text.as_str())))
    }

    fn text() -> impl Strategy<Value = String> {
        prop::collection::vec("[a-h]{1,2}|the|,|\u{e9}t\u{e9}", 0..40).prop_map(|words| words.join(" "))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn merged_parts_are_the_index_of_all_passages(
            passages in prop::collection::vec(("[a-c]{0,2}", text()), 1..300),
            of in 1u32..9,
            title_weight in 0u32..3,
        ) {
            let words = Bm25Options { title_weight, ..Bm25Options::default() };
            compare(
                &passages,
                of,
                |some, place, build| Bm25::build(&words, numbered(some), "h", place, build),
                |parts, place, build| Bm25::merge(&words, parts, ("h", passages.len()), place, build),
            );
            let ngrams = TfIdfOptions { buckets: 64, ..TfIdfOptions::default() };
            compare(
                &passages,
                of,
                |some, place, build| TfIdf::build(&ngrams, numbered(some), "h", place, build),
                |parts, place, build| TfIdf::merge(&ngrams, parts, ("h", passages.len()), place, build),
            );
        }
    }

    #[test]
    fn parts_that_do_not_fit_are_named() {
        let place = tempfile::tempdir().unwrap();
        let (part, whole) = (place.path().join("part"), place.path().join("whole"));
        let passages = vec![("a".to_owned(), "b c".to_owned())];
        let options = Bm25Options::default();
        Bm25::build(&options, numbered(&passages), "h", &part, Build::new(&mut |_| {})).unwrap();
        let merge = |options: &Bm25Options, passages: usize| {
            let parts = [part.clone()];
            Bm25::merge(options, &parts, ("h", passages), &whole, Build::new(&mut |_| {})).unwrap_err()
        };
        let error = merge(&options, 2).to_string();
        assert!(
            error.contains("part: expected 2 passages in all parts, found 1 passages in all parts"),
            "{error}"
        );
        let error = merge(&Bm25Options { k1: 1.2, ..options.clone() }, 1).to_string();
        assert!(error.contains(r#""k1":1.2"#) && error.contains(r#", found {"#), "{error}");
        let error = TfIdf::merge(
            &TfIdfOptions::default(),
            std::slice::from_ref(&part),
            ("h", 1),
            &whole,
            Build::new(&mut |_| {}),
        );
        assert!(matches!(error, Err(Error::Kind { expected: "tfidf", .. })));
        crate::layout::damage_each(&part, || {
            // Another index or an error.
            let _ =
                Bm25::merge(&options, std::slice::from_ref(&part), ("h", 1), &whole, Build::new(&mut |_| {}));
        });
    }
}
