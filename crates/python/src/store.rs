//! Passage stores.

use std::{path::PathBuf, sync::Arc};

use pyo3::{prelude::*, types::PyDict};
use serde_json::Value;
use sporran_kilt::{PassageId, PassageSplit, PassageStore as Stored, store::BuildOptions};
use sporran_pipeline::{Error, SourceOptions, Unit, cached_store, observe, workflows::answer::AskOptions};

use crate::{
    arguments::{options, table},
    asker::{cache_folder, paths},
    calls::{compute, observed},
    error::{Result, argument, raised},
    hit::Passage,
};

/// The passages of pages, on disk.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct PassageStore {
    pub(crate) store: Arc<Stored>,
}

#[pymethods]
impl PassageStore {
    /// Builds a store of a knowledge source in a folder, and opens it.
    #[staticmethod]
    #[pyo3(signature = (source, path, split = "words", progress = None))]
    fn build(
        py: Python<'_>,
        source: PathBuf,
        path: PathBuf,
        split: &str,
        progress: Option<Py<PyAny>>,
    ) -> Result<Self> {
        let split: PassageSplit = options(split.into())?;
        let store = observed(py, progress, |observer| {
            observe::begin(observer, "passages", 0, Unit::Bytes);
            let built = BuildOptions { source, redirects: None, split };
            let store =
                Stored::build(&built, path, &mut |progress| observe::advance(observer, progress.read))?;
            observer(observe::Event::End);
            Ok::<_, Error>(store)
        })?;
        Ok(Self { store: Arc::new(store) })
    }

    /// Reads the documents of files and folders, and opens the store of their passages in the cache.
    #[staticmethod]
    #[pyo3(signature = (sources, *, cache = None, progress = None, **arguments))]
    fn from_folder(
        py: Python<'_>,
        sources: &Bound<'_, PyAny>,
        cache: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let asked = AskOptions::new(paths("sources", sources)?, cache_folder(cache)?);
        let own = asked.source().map_err(raised)?;
        let Value::Object(given) = table(arguments)? else {
            return Err(argument("options", "a dict", "another type"));
        };
        // Another unit of passages has its own size.
        let own = if given.contains_key("split") {
            SourceOptions { size: None, overlap: None, ..own }
        } else {
            own
        };
        let shown = own.shown.clone();
        let mut all =
            serde_json::to_value(&own).map_err(|error| argument("options", "plain values", error))?;
        if let Value::Object(all) = &mut all {
            all.extend(given);
        }
        let source = SourceOptions { shown, ..options(all)? };
        let store =
            observed(py, progress, |observer| cached_store(&source, &asked.plain_sources(), observer))?;
        Ok(Self { store })
    }

    /// Opens the store in a folder.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> Result<Self> {
        Ok(Self { store: Arc::new(compute(py, || Stored::open(&path))?) })
    }

    /// The folder.
    #[getter]
    fn path(&self) -> PathBuf {
        self.store.folder().to_owned()
    }

    /// The number of pages.
    #[getter]
    fn pages(&self) -> usize {
        self.store.pages()
    }

    fn __len__(&self) -> usize {
        self.store.len()
    }

    fn __getitem__(&self, number: isize) -> Result<Passage> {
        let length = self.store.len() as isize;
        let at = if number < 0 { number + length } else { number };
        if !(0..length).contains(&at) {
            let message = format!("passage {number} of {length}");
            return Err(pyo3::exceptions::PyIndexError::new_err(message));
        }
        Passage::of(self.store.passage(PassageId(at as u32)))
    }

    /// All passages, in order.
    fn __iter__(&self) -> PassageIterator {
        PassageIterator { store: Arc::clone(&self.store), next: 0 }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (PathBuf,))> {
        Ok((py.get_type::<Self>().getattr("open")?, (self.path(),)))
    }

    /// The passages of the page with this id.
    fn passages_of(&self, page_id: &str) -> Result<Vec<Passage>> {
        let page = self
            .store
            .page_by_id(page_id)
            .ok_or_else(|| argument("page_id", "the id of a page of the store", page_id))?;
        self.store.passages_of(page).map(|id| Passage::of(self.store.passage(PassageId(id)))).collect()
    }
}

/// The passages of a store, one after the other.
#[pyclass(module = "sporran")]
pub(crate) struct PassageIterator {
    store: Arc<Stored>,
    /// The number of the next passage.
    next: usize,
}

#[pymethods]
impl PassageIterator {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> Result<Option<Passage>> {
        if self.next == self.store.len() {
            return Ok(None);
        }
        let id = PassageId(self.next as u32);
        self.next += 1;
        Passage::of(self.store.passage(id)).map(Some)
    }
}
