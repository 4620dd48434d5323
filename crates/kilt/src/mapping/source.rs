//! The files of a dataset, read record by record.

use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::de::DeserializeOwned;

use super::{options::LayoutOptions, own::Own};
use crate::{
    Error, Result, Split,
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

impl Source<'_> {
    /// Reads JSON lines on all threads. `convert` gives the records of a line.
    pub(super) fn lines<T: DeserializeOwned>(
        &self,
        convert: impl Fn(&Place<'_>, T) -> Result<Vec<Option<Own>>> + Sync,
        take: &mut Take<'_>,
    ) -> Result<()> {
        for path in self.inputs {
            jsonl::open(path)?.chunks(|path, chunk| {
                let one = |(line, bytes)| convert(&Place { path, line }, parse(path, line, bytes)?);
                // Collected in order, so that the first error in the file's order is returned.
                let found: Vec<Result<Vec<Option<Own>>>> = chunk.par_lines().map(one).collect();
                for records in found {
                    records?.into_iter().try_for_each(&mut *take)?;
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
        for path in self.inputs {
            let elements =
                key.map_or_else(|| elements::open(path), |key| elements::open_member(path, key))?;
            for element in elements.records::<T>() {
                let (line, value) = element?;
                convert(&Place { path, line }, value)?.into_iter().try_for_each(&mut *take)?;
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
