//! Indexes over vectors.

use std::path::PathBuf;

use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::{prelude::*, types::PyDict};
use serde_json::json;
use sporran_pipeline::Error;
use sporran_retriever::dense::{Embeddings, Index, IndexOptions, Origin, Similarity, VectorIndex};
use tempfile::TempDir;

use crate::{
    arguments::{Matrix, options, table},
    calls::compute,
    error::{Result, argument},
};

/// The origin of an index whose vectors come from Python.
const ORIGIN: Origin<'_> = Origin { encoder_hash: "python", passages_hash: "python" };

/// A neighbour list is filled up with this number where an index has fewer vectors than are asked for.
const NONE: i64 = -1;

/// An index over vectors.
#[pyclass(frozen, module = "sporran")]
pub(crate) struct DenseIndex {
    index: Index,
    folder: PathBuf,
    arguments: String,
    /// The folder of an index without a path, which ends with this object.
    temporary: Option<TempDir>,
}

/// The options of an index, from a kind and keyword arguments.
fn read(
    kind: &str,
    similarity: &str,
    arguments: Option<&Bound<'_, PyDict>>,
) -> Result<(IndexOptions, Similarity, String)> {
    let mut table = table(arguments)?;
    table["kind"] = kind.into();
    let again = json!({ "similarity": similarity, "options": table });
    Ok((options(table)?, options(similarity.into())?, again.to_string()))
}

#[pymethods]
impl DenseIndex {
    /// Indexes vectors, an array of float32 with the shape (vectors, values).
    #[staticmethod]
    #[pyo3(signature = (vectors, kind = "flat", similarity = "inner-product", path = None, **arguments))]
    fn build(
        py: Python<'_>,
        vectors: &Bound<'_, PyAny>,
        kind: &str,
        similarity: &str,
        path: Option<PathBuf>,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let (options, similarity, arguments) = read(kind, similarity, arguments)?;
        let matrix = Matrix::of("vectors", vectors)?;
        let (rows, width, values) = (matrix.rows, matrix.width, matrix.values());
        let (index, folder, temporary) = compute(py, || {
            let temporary = path.is_none().then(tempfile::tempdir).transpose().map_err(|source| {
                sporran_kilt::Error::io(&std::env::temp_dir(), "create a folder in", source)
            })?;
            let folder = match (&path, &temporary) {
                (Some(path), _) => path.clone(),
                (None, Some(temporary)) => temporary.path().join("index"),
                (None, None) => PathBuf::new(),
            };
            let portions = |first: u32| {
                let portion = Index::PORTION * width;
                let from = first as usize * width;
                values[from..].chunks(portion).map(|values| Embeddings::new(width, values.to_vec()))
            };
            Index::build(&options, similarity, width, ORIGIN, portions, &folder, &mut |_| {})?;
            let index = Index::open(&options, similarity, ORIGIN, &folder)?;
            Ok::<_, Error>((index, folder, temporary))
        })?;
        debug_assert_eq!(index.len(), rows, "the index has every vector");
        Ok(Self { index, folder, arguments, temporary })
    }

    /// Opens an index that `build` wrote, with the same kind and options.
    #[staticmethod]
    #[pyo3(signature = (path, kind = "flat", similarity = "inner-product", **arguments))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        kind: &str,
        similarity: &str,
        arguments: Option<&Bound<'_, PyDict>>,
    ) -> Result<Self> {
        let (options, similarity, arguments) = read(kind, similarity, arguments)?;
        let index = compute(py, || Index::open(&options, similarity, ORIGIN, &path))?;
        Ok(Self { index, folder: path, arguments, temporary: None })
    }

    /// The length of a vector.
    #[getter]
    fn dimensions(&self) -> usize {
        self.index.dim()
    }

    fn __len__(&self) -> usize {
        self.index.len()
    }

    /// The k nearest vectors of each query, an array of float32 with the shape (queries, values): scores and numbers, both
    /// (queries, k), best first.
    #[pyo3(signature = (queries, k = 10))]
    #[allow(clippy::type_complexity, reason = "two arrays")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'_, PyAny>,
        k: usize,
    ) -> Result<(Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>)> {
        if k == 0 {
            return Err(argument("k", "at least 1", 0));
        }
        let matrix = Matrix::of("queries", queries)?;
        let (rows, width, values) = (matrix.rows, matrix.width, matrix.values());
        let found = compute(py, || self.index.search(&Embeddings::new(width, values.to_vec())?, k, None))?;
        let (mut scores, mut ids) = (vec![f32::NEG_INFINITY; rows * k], vec![NONE; rows * k]);
        for ((row, scores), ids) in found.iter().zip(scores.chunks_mut(k)).zip(ids.chunks_mut(k)) {
            for (at, &(id, score)) in row.iter().enumerate() {
                (scores[at], ids[at]) = (score, id.into());
            }
        }
        Ok((
            PyArray1::from_vec(py, scores).reshape([rows, k])?,
            PyArray1::from_vec(py, ids).reshape([rows, k])?,
        ))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (PathBuf, String))> {
        if self.temporary.is_some() {
            let message = "an index without a path cannot be pickled; give `build` a path";
            return Err(pyo3::exceptions::PyTypeError::new_err(message));
        }
        let again = py.import("sporran")?.getattr("_dense_index")?;
        Ok((again, (self.folder.clone(), self.arguments.clone())))
    }
}
