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
    calls::{compute, watched},
    error::{InputError, Result, argument},
};

/// The origin of an index whose vectors come from Python.
const ORIGIN: Origin<'_> = Origin { encoder_hash: "python", passages_hash: "python" };

/// A neighbour list is filled up with this number where an index has fewer vectors than are asked for.
const NONE: i64 = -1;

/// The greatest `k` of an index with fewer vectors.
const MOST_FILLED: usize = 1 << 16;

/// Products of two values that are summed between two looks for Ctrl-C, about a second's work of a core.
const PORTION: usize = 1 << 34;

/// The fewest queries of a portion, so that all threads have work.
const LEAST_PORTION: usize = 64;

/// The most queries of a portion, whose values are copied.
const MOST_PORTION: usize = 1 << 16;

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

/// `rows` rows of `k` equal values, where the memory suffices.
fn filled<T: Clone>(rows: usize, k: usize, value: T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let enough = rows.checked_mul(k).is_some_and(|count| values.try_reserve_exact(count).is_ok());
    if !enough {
        let expected = format!("fewer results of {rows} queries than the memory has room for");
        return Err(argument("k", &expected, k));
    }
    values.resize(rows * k, value);
    Ok(values)
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
        let (index, folder, temporary) = watched(py, |look| {
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
            Index::build(&options, similarity, width, ORIGIN, portions, &folder, &mut |_| look())?;
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
    /// (queries, k), best first. A `k` greater than the number of vectors is at most 65,536.
    #[pyo3(signature = (queries, k = 10))]
    #[allow(clippy::type_complexity, reason = "two arrays")]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'_, PyAny>,
        k: i128,
    ) -> Result<(Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<i64>>)> {
        let most = self.index.len().max(MOST_FILLED);
        let k = usize::try_from(k)
            .ok()
            .filter(|k| (1..=most).contains(k))
            .ok_or_else(|| argument("k", &format!("a number from 1 to {most}"), k))?;
        let matrix = Matrix::of("queries", queries)?;
        let (rows, width, values) = (matrix.rows, matrix.width, matrix.values());
        let (mut scores, mut ids) = (filled(rows, k, f32::NEG_INFINITY)?, filled(rows, k, NONE)?);
        // A portion of queries is compared with all vectors between two looks for Ctrl-C.
        let values_of_index = self.index.len().saturating_mul(width).max(1);
        let portion = (PORTION / values_of_index).clamp(LEAST_PORTION, MOST_PORTION);
        watched(py, |look| {
            let places = scores.chunks_mut(portion * k).zip(ids.chunks_mut(portion * k));
            for (queries, (scores, ids)) in values.chunks(portion * width).zip(places) {
                let found = self.index.search(&Embeddings::new(width, queries.to_vec())?, k, None)?;
                for ((row, scores), ids) in found.iter().zip(scores.chunks_mut(k)).zip(ids.chunks_mut(k)) {
                    for (at, &(id, score)) in row.iter().enumerate() {
                        (scores[at], ids[at]) = (score, id.into());
                    }
                }
                look();
            }
            Ok::<_, Error>(())
        })?;
        Ok((
            PyArray1::from_vec(py, scores).reshape([rows, k])?,
            PyArray1::from_vec(py, ids).reshape([rows, k])?,
        ))
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> Result<(Bound<'py, PyAny>, (PathBuf, String))> {
        if self.temporary.is_some() {
            let message = "an index without a path cannot be pickled; give `build` a path";
            return Err(InputError::new_err(message));
        }
        let again = py.import("sporran")?.getattr("_dense_index")?;
        Ok((again, (self.folder.clone(), self.arguments.clone())))
    }
}
