//! Runs and trainings of configs.

use std::path::PathBuf;

use pyo3::prelude::*;
use sporran_pipeline::registry;

use crate::{
    calls::{compute, observed},
    error::Result,
};

/// The summary and the JSON report of a verb, for the config and each config after it.
type Reports = Vec<(String, String)>;

/// Runs a config, and the configs that it names in `then`.
#[pyfunction]
#[pyo3(signature = (config, overrides, progress = None))]
pub(crate) fn run(
    py: Python<'_>,
    config: PathBuf,
    overrides: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> Result<Reports> {
    observed(py, progress, |observer| {
        let mut reports = Vec::new();
        let mut next = vec![(config, overrides)];
        while let Some((path, overrides)) = next.pop() {
            let outcome = registry::run(&path, &overrides, observer)?;
            reports.push((outcome.summary, outcome.json));
            if reports.len() == 1 {
                next.extend(outcome.then.into_iter().rev());
            }
        }
        Ok(reports)
    })
}

/// Trains the model of a config.
#[pyfunction]
#[pyo3(signature = (config, overrides, progress = None))]
pub(crate) fn train(
    py: Python<'_>,
    config: PathBuf,
    overrides: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> Result<(String, String, Vec<PathBuf>)> {
    observed(py, progress, |observer| {
        let outcome = registry::train(&config, &overrides, observer)?;
        Ok((outcome.summary, outcome.json, outcome.models))
    })
}

/// The mistakes of a config, one text each.
#[pyfunction]
pub(crate) fn check(py: Python<'_>, config: PathBuf, overrides: Vec<String>) -> Result<Vec<String>> {
    let mistakes = compute(py, || registry::check(&config, &overrides))?;
    Ok(mistakes.iter().map(ToString::to_string).collect())
}
