//! Runs and trainings of configs.

use std::path::PathBuf;

use pyo3::prelude::*;
use sporran_pipeline::{Observer, Outcome, registry};

use crate::{
    calls::{compute, observed},
    error::Result,
};

/// The summary and the JSON report of a verb, for the config and each config after it.
pub(crate) type Reports = Vec<(String, String)>;

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
        let first = registry::run(&config, &overrides, observer)?;
        with_then(first, observer)
    })
}

/// Runs the configs that follow an outcome. Gives its report and theirs.
pub(crate) fn with_then(
    first: Outcome,
    observer: &mut Observer<'_>,
) -> std::result::Result<Reports, sporran_pipeline::Error> {
    let mut reports = vec![(first.summary, first.json)];
    for (config, overrides) in &first.then {
        let outcome = registry::run(config, overrides, observer)?;
        reports.push((outcome.summary, outcome.json));
    }
    Ok(reports)
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
