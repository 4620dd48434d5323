//! Scores of files.

use std::path::PathBuf;

use pyo3::prelude::*;
use sporran_kilt::scores::kilt;

use crate::{
    calls::compute,
    error::{Result, argument},
};

/// KILT's scores of a file of predictions, as JSON.
#[pyfunction]
pub(crate) fn evaluate_kilt(py: Python<'_>, gold: PathBuf, guess: PathBuf) -> Result<String> {
    let found = compute(py, || kilt::evaluate(&gold, &guess))?;
    serde_json::to_string(&found.report).map_err(|error| argument("report", "plain values", error))
}
