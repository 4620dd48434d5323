//! Passage stores.

use std::{path::PathBuf, sync::Arc};

use pyo3::prelude::*;
use sporran_kilt::{PassageId, PassageSplit, PassageStore as Stored, store::BuildOptions};
use sporran_pipeline::{Error, Unit, observe};

use crate::{
    arguments::options,
    calls::{compute, observed},
    error::{Result, argument},
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
