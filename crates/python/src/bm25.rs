//! BM25 over texts or a passage store.

use std::{convert::Infallible, path::PathBuf, sync::Arc};

use pyo3::{prelude::*, types::PyDict};
use serde_json::Value;
use sporran_kilt::{Hit as Found, PassageId, PassageStore as Stored, Query, hash_json};
use sporran_pipeline::Error;
use sporran_retriever::{
    Retriever,
    sparse::{Bm25 as Index, Bm25Options, Build},
};
use tempfile::TempDir;

use crate::{
    arguments::{Texts, count, options, table},
    calls::{compute, portions, watched},
    error::{Result, argument},
    hit::{Hit, Passage},
    store::PassageStore,
};

/// Passages of the index, times queries, that are searched between two looks for Ctrl-C.
const PORTION: usize = 1 << 28;

/// What an index is over.
enum Source {
    /// Texts with their titles, in memory. The index is in a folder that ends with this object.
    Texts { texts: Vec<String>, titles: Vec<String>, _folder: TempDir },
    /// A store, with the index in a folder of the user.
    Store { store: Arc<Stored>, folder: PathBuf },
}

/// An index of words.
#[pyclass(frozen, module = "sporran", name = "BM25")]
pub(crate) struct Bm25 {
    index: Index,
    source: Source,
    options: Value,
}

#[pymethods]
impl Bm25 {
    /// Indexes texts in a temporary folder. The id of a hit is the text's place in the list.
    #[staticmethod]
    #[pyo3(signature = (texts, titles = None, **arguments))]
    fn from_texts(
        py: Python<'_>,
        texts: Vec<String>,
        titles: Option<Vec<String>>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let table = table(arguments)?;
        let options: Bm25Options = options(table.clone())?;
        let titles = titles.unwrap_or_else(|| vec![String::new(); texts.len()]);
        if texts.is_empty() {
            return Err(argument("texts", "at least one text", "an empty list"));
        }
        if titles.len() != texts.len() {
            let expected = format!("a title for each of {} texts", texts.len());
            return Err(argument("titles", &expected, titles.len()));
        }
        let (index, folder) = watched(py, |look| {
            let hash = hash_json(&(&texts, &titles));
            let folder = tempfile::tempdir().map_err(|source| Error::from(io(source)))?;
            let place = folder.path().join("bm25");
            let passages = texts.iter().zip(&titles).zip(0u32..);
            let passages = passages.map(|((text, title), id)| {
                Ok::<_, Infallible>((PassageId(id), title.as_str(), text.as_str()))
            });
            Index::build(&options, passages, &hash, &place, Build::new(&mut |_| look()))?;
            Ok::<_, Error>((Index::open(&place, &hash)?, folder))
        })?;
        Ok(Self { index, source: Source::Texts { texts, titles, _folder: folder }, options: table })
    }

    /// Indexes the passages of a store in a folder. An existing index of words is replaced.
    #[staticmethod]
    #[pyo3(signature = (store, path, **arguments))]
    fn build(
        py: Python<'_>,
        store: &PassageStore,
        path: PathBuf,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let options: Bm25Options = options(table(arguments)?)?;
        let stored = &store.store;
        watched(py, |look| {
            let passages = (0..stored.len() as u32)
                .map(PassageId)
                .map(|id| Ok::<_, Infallible>((id, stored.page_title(stored.page_of(id)), stored.text(id))));
            Index::build(&options, passages, stored.hash(), &path, Build::new(&mut |_| look()))
        })?;
        Self::open(py, store, path)
    }

    /// Opens the index of a store in a folder.
    #[staticmethod]
    fn open(py: Python<'_>, store: &PassageStore, path: PathBuf) -> Result<Self> {
        let stored = Arc::clone(&store.store);
        let index = compute(py, || Index::open(&path, stored.hash()))?;
        Ok(Self { index, source: Source::Store { store: stored, folder: path }, options: Value::Null })
    }

    /// The best passages of a query, or of each query of a list.
    #[pyo3(signature = (queries, k = 10))]
    fn search<'py>(&self, py: Python<'py>, queries: &Bound<'_, PyAny>, k: i128) -> Result<Bound<'py, PyAny>> {
        let k = count("k", k, 0)?;
        let Texts { texts, is_one } = Texts::of("queries", queries)?;
        let queries: Vec<Query> = texts.into_iter().map(|text| Query::of_text("", text)).collect();
        let portion = (PORTION / self.count().max(1)).clamp(64, 4096);
        let found = portions(py, &queries, portion, |queries| self.index.retrieve(queries, k))?;
        let mut rows = found.into_iter().map(|hits| hits.into_iter().map(|hit| self.hit(hit)).collect());
        if is_one {
            let row: Vec<Hit> = rows.next().transpose()?.unwrap_or_default();
            return row.into_pyobject(py);
        }
        rows.collect::<Result<Vec<Vec<Hit>>>>()?.into_pyobject(py)
    }

    fn __len__(&self) -> usize {
        self.count()
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        match &self.source {
            Source::Texts { texts, titles, .. } => {
                let again = py.import("sporran")?.getattr("_bm25_from_texts")?;
                let arguments = (texts, titles, self.options.to_string()).into_pyobject(py)?.into_any();
                Ok((again, arguments))
            }
            Source::Store { store, folder } => {
                let store = PassageStore { store: Arc::clone(store) };
                let arguments = (store, folder).into_pyobject(py)?.into_any();
                Ok((py.get_type::<Self>().getattr("open")?, arguments))
            }
        }
    }
}

impl Bm25 {
    /// The number of passages.
    fn count(&self) -> usize {
        match &self.source {
            Source::Texts { texts, .. } => texts.len(),
            Source::Store { store, .. } => store.len(),
        }
    }

    fn hit(&self, hit: Found) -> Result<Hit> {
        let passage = match &self.source {
            Source::Texts { texts, titles, .. } => {
                let at = hit.passage.0 as usize;
                Passage::of_text(hit.passage.0, titles[at].clone(), texts[at].clone())
            }
            Source::Store { store, .. } => Passage::of(store.passage(hit.passage))?,
        };
        Ok(Hit::of(hit, passage))
    }
}

/// An error of the temporary folder.
fn io(source: std::io::Error) -> sporran_kilt::Error {
    sporran_kilt::Error::io(&std::env::temp_dir(), "create a folder in", source)
}
