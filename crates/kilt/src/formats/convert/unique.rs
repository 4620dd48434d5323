//! The keys of an output, of which its readers expect each once.

use std::path::Path;

use rustc_hash::FxHashMap;

use crate::{Error, Result, formats::Qrel};

/// The ids of queries with the file and the line of each.
#[derive(Default)]
pub(super) struct UniqueIds<'r> {
    places: FxHashMap<Box<str>, (&'r Path, u64)>,
}

impl<'r> UniqueIds<'r> {
    /// Adds the id on a line.
    ///
    /// # Errors
    /// [`Error::DuplicateId`] for an id on an earlier line; [`Error::Record`] for an id in an earlier file.
    pub(super) fn add(&mut self, id: &str, path: &'r Path, line: u64) -> Result<()> {
        // Readers of columns drop blanks around an id.
        match self.places.insert(id.trim().into(), (path, line)) {
            None => Ok(()),
            Some((other, first)) if other == path => {
                Err(Error::DuplicateId { path: path.to_owned(), line, first, id: id.to_owned() })
            }
            Some((other, first)) => {
                let message = format!("`{id}` stands on line {first} of {} already", other.display());
                Err(Error::record(path, line, "id", message))
            }
        }
    }
}

/// A query and a document.
type Judged = (Box<str>, Box<str>);

/// The judgements with the file and the line of each.
#[derive(Default)]
pub(super) struct UniqueQrels<'r> {
    places: FxHashMap<Judged, (i32, &'r Path, u64)>,
}

impl<'r> UniqueQrels<'r> {
    /// Adds the judgement on a line, and returns whether it is new.
    ///
    /// # Errors
    /// [`Error::Record`] for another relevance of the same document.
    pub(super) fn add(&mut self, qrel: &Qrel, path: &'r Path, line: u64) -> Result<bool> {
        let Qrel { query, document, relevance } = qrel;
        let key: Judged = (query.as_str().into(), document.as_str().into());
        match self.places.get(&key) {
            None => {
                self.places.insert(key, (*relevance, path, line));
                Ok(true)
            }
            Some((other, ..)) if other == relevance => Ok(false),
            Some((other, file, first)) => {
                let file = if *file == path { String::new() } else { format!(" of {}", file.display()) };
                let message = format!(
                    "expected one judgement of `{document}` for `{query}`, found {other} on line {first}{file} and \
                     {relevance}"
                );
                Err(Error::record(path, line, "document", message))
            }
        }
    }
}
