//! The files of a dataset, read record by record.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use rustc_hash::FxHashMap;
use serde::de::DeserializeOwned;

use super::{options::LayoutOptions, own::Own};
use crate::{
    Error, Id, Result, Split,
    formats::elements,
    jsonl::{self, parse},
};

/// Takes the records of a dataset in their order; none for one that has no evidence.
pub(super) type Take<'a> = dyn FnMut(Option<Own>) -> Result<()> + 'a;

/// A dataset.
pub(super) struct Source<'a> {
    pub(super) inputs: &'a [PathBuf],
    pub(super) split: Split,
    pub(super) options: &'a LayoutOptions,
}

/// The place of a record.
pub(super) struct Place<'a> {
    pub(super) path: &'a Path,
    pub(super) line: u64,
}

impl Place<'_> {
    /// The error for a wrong field of the record.
    pub(super) fn wrong(&self, field: impl Into<String>, message: impl Into<String>) -> Error {
        Error::record(self.path, self.line, field, message)
    }
}

/// The ids of records with their places, to find one that is given twice.
#[derive(Default)]
struct Known {
    paths: Vec<PathBuf>,
    /// By id: the number of its file and its line there.
    places: FxHashMap<Id, (usize, u64)>,
}

impl Known {
    /// Takes the records of a place. An id that the dataset gives is that of its only record.
    fn take(&mut self, place: &Place<'_>, records: Vec<Option<Own>>, take: &mut Take<'_>) -> Result<()> {
        if self.paths.last().is_none_or(|path| path != place.path) {
            self.paths.push(place.path.to_owned());
        }
        if let [Some(own)] = &records[..]
            && let Some((file, line)) = self.places.insert(own.id.clone(), (self.paths.len() - 1, place.line))
        {
            let message =
                format!("`{}` stands on line {line} of {} already", own.id, self.paths[file].display());
            return Err(place.wrong("id", message));
        }
        records.into_iter().try_for_each(take)
    }
}

impl Source<'_> {
    /// Reads JSON lines on all threads. `convert` gives the records of a line.
    pub(super) fn lines<T: DeserializeOwned>(
        &self,
        convert: impl Fn(&Place<'_>, T) -> Result<Vec<Option<Own>>> + Sync,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let mut known = Known::default();
        self.each_line(convert, |place, records| known.take(place, records, &mut *take))
    }

    /// As [`Self::lines`], for records whose ids the layout makes. Nothing is kept in memory.
    pub(super) fn lines_with_made_ids<T: DeserializeOwned>(
        &self,
        convert: impl Fn(&Place<'_>, T) -> Result<Vec<Option<Own>>> + Sync,
        take: &mut Take<'_>,
    ) -> Result<()> {
        self.each_line(convert, |_, records| records.into_iter().try_for_each(&mut *take))
    }

    fn each_line<T: DeserializeOwned>(
        &self,
        convert: impl Fn(&Place<'_>, T) -> Result<Vec<Option<Own>>> + Sync,
        mut take: impl FnMut(&Place<'_>, Vec<Option<Own>>) -> Result<()>,
    ) -> Result<()> {
        for path in self.inputs {
            jsonl::open(path)?.chunks(|path, chunk| {
                let one = |(line, bytes)| {
                    (line, parse(path, line, bytes).and_then(|read| convert(&Place { path, line }, read)))
                };
                // Collected in order, so that the first error in the file's order is returned.
                let found: Vec<(u64, Result<Vec<Option<Own>>>)> = chunk.par_lines().map(one).collect();
                for (line, records) in found {
                    take(&Place { path, line }, records?)?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Reads the elements of JSON arrays, under `key` if there is one, or JSON lines. `convert` gives the records of
    /// an element.
    pub(super) fn elements<T: DeserializeOwned>(
        &self,
        key: Option<&'static str>,
        mut convert: impl FnMut(&Place<'_>, T) -> Result<Vec<Option<Own>>>,
        take: &mut Take<'_>,
    ) -> Result<()> {
        let mut known = Known::default();
        for path in self.inputs {
            let elements =
                key.map_or_else(|| elements::open(path), |key| elements::open_member(path, key))?;
            for element in elements.records::<T>() {
                let (line, value) = element?;
                let place = Place { path, line };
                known.take(&place, convert(&place, value)?, &mut *take)?;
            }
        }
        Ok(())
    }
}

/// The files of paths, of which some are folders, in the order of their names.
///
/// # Errors
/// [`Error::Io`] for a folder that cannot be read.
pub(super) fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let fail = |source| Error::io(path, "read", source);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(path).map_err(fail)? {
            let entry = entry.map_err(fail)?.path();
            if entry.is_file() {
                found.push(entry);
            }
        }
        found.sort();
        files.extend(found);
    }
    Ok(files)
}
