//! Facts of texts.

use std::path::PathBuf;

use pyo3::prelude::*;
use sporran_pipeline::population::{FactSystem, PopulationOptions, Purpose};

use crate::{
    arguments::Texts,
    calls::{compute, portions},
    error::{Result, argument},
};

/// Texts that are read between two looks for Ctrl-C.
const PORTION: usize = 64;

/// An extractor of facts.
#[pyclass(frozen, subclass, module = "sporran._sporran")]
pub(crate) struct FactExtractor {
    system: FactSystem,
    arguments: (PathBuf, Vec<String>),
}

#[pymethods]
impl FactExtractor {
    /// Loads the models of a config of the workflow `population`.
    #[new]
    #[pyo3(signature = (config, overrides = Vec::new()))]
    fn new(py: Python<'_>, config: PathBuf, overrides: Vec<String>) -> Result<Self> {
        let system = compute(py, || {
            FactSystem::open(&PopulationOptions::load_for(&config, &overrides, Purpose::Texts)?)
        })?;
        Ok(Self { system, arguments: (config, overrides) })
    }

    /// The facts of each text: a JSON list for each.
    fn extract_json(&self, py: Python<'_>, texts: &Bound<'_, PyAny>) -> Result<Vec<String>> {
        let texts = Texts::of("texts", texts)?;
        let found = portions(py, &texts.slices(), PORTION, |texts| self.system.facts(texts))?;
        let json = found.iter().map(serde_json::to_string);
        json.collect::<std::result::Result<_, _>>().map_err(|error| argument("facts", "plain values", error))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, (PathBuf, Vec<String>)) {
        (slf.get_type().into_any(), slf.get().arguments.clone())
    }
}
