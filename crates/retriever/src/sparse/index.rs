//! An open index of any kind.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::de::DeserializeOwned;
use sporran_kilt::{Hit, Query, jsonl::plain_json};

use super::{
    builder::{Model, NORMS},
    dictionary::{Dictionary, Entry},
    header::Header,
    postings::{Bounds, Cursor, Postings, Scorer},
    search::{Pruning, Scratch, search},
};
use crate::{
    Error, PassageFilter, Result,
    layout::{self, Files, Mapped, verify},
};

/// The size of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Passages.
    pub passages: u32,
    /// Different terms.
    pub terms: u32,
    /// Pairs of a term and a passage.
    pub postings: u64,
    /// Terms of all passages, repetitions included.
    pub tokens: u64,
    /// Length of all files except the header.
    pub bytes: u64,
}

/// A mapped index.
pub(crate) struct Index {
    folder: PathBuf,
    header: Header,
    dictionary: Dictionary,
    postings: Postings,
    norms: Mapped,
}

impl Index {
    /// Opens and verifies the index in a folder.
    pub(crate) fn open<M: Model>(folder: &Path, passages_hash: &str) -> Result<Self> {
        let (header, files) = layout::open(folder, M::KIND, passages_hash)?;
        Self::of(folder, header, files)
    }

    /// As [`open`](Self::open), without verifying the files' content.
    #[cfg(test)]
    pub(crate) fn open_unchecked<M: Model>(folder: &Path, passages_hash: &str) -> Result<Self> {
        let (header, files) = layout::open_unchecked(folder, M::KIND, passages_hash)?;
        Self::of(folder, header, files)
    }

    /// As [`open`](Self::open), over any passages and without verifying the files' content.
    pub(crate) fn open_part<M: Model>(folder: &Path) -> Result<Self> {
        let (header, files) = layout::open_part(folder, M::KIND)?;
        Self::of(folder, header, files)
    }

    /// Verifies the checksums of the files (see [`sporran_kilt::folder::Contents::check`]).
    pub(crate) fn check(&self) -> Result<()> {
        layout::check(&self.folder, &self.header)
    }

    /// The bounds of terms and blocks with these impacts.
    pub(crate) fn bounds(&self, scorer: &impl Scorer) -> Result<Bounds> {
        let entry = |number| Ok(self.dictionary.term(number)?.1);
        self.postings.bounds((0..self.header.terms).map(entry), scorer)
    }

    /// The entry of a term, with its number; none for an unknown term.
    pub(crate) fn find(&self, term: &[u8]) -> Option<(u32, Entry)> {
        self.dictionary.find(term)
    }

    /// A cursor of a term with a weight and its greatest impact in any passage, and with the bounds of its blocks.
    pub(crate) fn bounded_cursor<'a>(
        &'a self,
        number: u32,
        entry: Entry,
        (weight, impact): (f32, f32),
        bounds: &'a Bounds,
    ) -> Result<Cursor<'a>> {
        self.postings.bounded_cursor(number, &Entry { impact, ..entry }, weight, bounds)
    }

    fn of(folder: &Path, header: Header, mut files: Files) -> Result<Self> {
        Ok(Self {
            dictionary: Dictionary::open(&mut files, header.terms)?,
            postings: Postings::open(&mut files)?,
            norms: files.take(NORMS)?,
            folder: folder.to_owned(),
            header,
        })
    }

    /// The options of its build.
    pub(crate) fn options<O: DeserializeOwned>(&self) -> Result<O> {
        serde_json::from_value(self.header.options.clone()).map_err(|error| Error::Header {
            path: self.folder.clone(),
            message: plain_json(&error.to_string()),
        })
    }

    /// The header.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// One number for each passage, or as many as the file has.
    pub(crate) fn norms(&self) -> &[[u8; 4]] {
        self.norms.as_chunks().0
    }

    /// The error for a wrong number of norms.
    pub(crate) fn check_norms(&self) -> Result<()> {
        let expected = u64::from(self.header.passages) * 4;
        if self.norms.len() as u64 == expected {
            return Ok(());
        }
        Err(self.norms.corrupt(format!("expected {expected} bytes, found {}", self.norms.len())))
    }

    /// Reads every file and compares its hash with the header's.
    pub(crate) fn verify(&self) -> Result<()> {
        verify(&self.folder, &self.header)
    }

    /// The size of the index.
    pub(crate) fn statistics(&self) -> Statistics {
        Statistics {
            passages: self.header.passages,
            terms: self.header.terms,
            postings: self.header.postings,
            tokens: self.header.tokens,
            bytes: self.header.sections.iter().map(|section| section.bytes).sum(),
        }
    }

    /// The bytes of a term by its number. Adds its postings, passages with counts.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged file.
    pub(crate) fn term(&self, number: u32, postings: &mut Vec<(u32, u32)>) -> Result<&[u8]> {
        let (term, entry) = self.dictionary.term(number)?;
        self.postings.cursor(number, &entry, 1.0)?.read_all(postings)?;
        match postings.last() {
            Some(&(last, _)) if last < self.header.passages && postings.is_sorted() => Ok(term),
            _ => Err(self.postings.corrupt(number)),
        }
    }

    /// A cursor for each known term. `weight` computes the weight of a term from its number of occurrences in
    /// the query and its number of passages; terms are unique and sorted.
    pub(crate) fn cursors<T: AsRef<[u8]> + Ord>(
        &self,
        mut terms: Vec<T>,
        weight: impl Fn(u32, u32) -> f32,
    ) -> Result<Vec<Cursor<'_>>> {
        terms.sort_unstable();
        let mut cursors = Vec::with_capacity(terms.len());
        for same in terms.chunk_by(|a, b| a == b) {
            if let Some((number, entry)) = self.dictionary.find(same[0].as_ref()) {
                let weight = weight(same.len() as u32, entry.passages);
                cursors.push(self.postings.cursor(number, &entry, weight)?);
            }
        }
        Ok(cursors)
    }

    /// Answers queries on all threads; `cursors` analyses one.
    pub(crate) fn retrieve<'a, M: Model>(
        &'a self,
        model: &M,
        (queries, filter): (&[Query], Option<&PassageFilter<'_>>),
        k: usize,
        pruning: Pruning,
        cursors: impl Fn(&str) -> Result<Vec<Cursor<'a>>> + Sync,
    ) -> Result<Vec<Vec<Hit>>> {
        let scorer = model.scorer(self.norms());
        queries
            .par_iter()
            .map_init(Scratch::default, |scratch, query| {
                let passages = (self.header.passages, filter);
                search(cursors(&query.text)?, passages, k, &scorer, pruning, scratch)
            })
            .collect()
    }
}
