//! The keys of an output, of which its readers expect each once.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::Format;
use crate::{Error, Result, formats::Qrel};

/// The field, or the column, of the ids of a format.
pub(super) fn id_field(from: Format) -> &'static str {
    match from {
        Format::BeirCorpus | Format::BeirQueries => "_id",
        Format::KnowledgeSource => "wikipedia_id",
        Format::Run => "query",
        _ => "id",
    }
}

/// The ids of queries with the file and the line of each.
pub(super) struct UniqueIds<'r> {
    field: &'static str,
    places: FxHashMap<Box<str>, (&'r Path, u64)>,
}

impl<'r> UniqueIds<'r> {
    /// No ids yet, of files of a format.
    pub(super) fn of(from: Format) -> Self {
        Self { field: id_field(from), places: FxHashMap::default() }
    }

    /// Adds the id on a line.
    ///
    /// # Errors
    /// [`Error::DuplicateId`] for an id on an earlier line; [`Error::Record`] for an id in an earlier file.
    pub(super) fn add(&mut self, id: &str, path: &'r Path, line: u64) -> Result<()> {
        // Readers of columns drop blanks around an id.
        match self.places.insert(id.trim().into(), (path, line)) {
            None => Ok(()),
            Some((other, first)) if other == path => {
                let (path, id) = (path.to_owned(), id.to_owned());
                Err(Error::DuplicateId { path, line, first, field: self.field, id })
            }
            Some((other, first)) => {
                let message = format!("`{id}` stands on line {first} of {} already", other.display());
                Err(Error::record(path, line, self.field, message))
            }
        }
    }
}

/// A query and a document.
type Pair = (Box<str>, Box<str>);

/// The judgements with the relevance, the file and the line of each.
#[derive(Default)]
pub(super) struct UniqueQrels<'r> {
    places: FxHashMap<Pair, (i32, &'r Path, u64)>,
}

impl<'r> UniqueQrels<'r> {
    /// Adds the judgement on a line, and returns whether it is new.
    ///
    /// # Errors
    /// [`Error::Record`] for another relevance of the same document.
    pub(super) fn add(&mut self, qrel: &Qrel, path: &'r Path, line: u64) -> Result<bool> {
        let Qrel { query, document, relevance } = qrel;
        let key = (query.as_str().into(), document.as_str().into());
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
