//! Missing triples of a knowledge base.

use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use sporran_pipeline::{
    Config, Error,
    link_prediction::{AskOptions, LinkPredictor, LinkQuestion, LinksOptions, NetworkConfig},
    registry,
    rules::RulesOptions,
};

use crate::{
    arguments::count,
    calls::compute,
    error::{InputError, Result, argument},
};

/// The knowledge base and the model of a config of the workflow `link-prediction`, `graph-network` or `rules`, after its training.
fn of_config(config: &Path) -> std::result::Result<LinkPredictor, Error> {
    match registry::workflow_of(config, &[])?.name {
        "rules" => {
            let options = RulesOptions::load(config, &[])?;
            let rules = options.model.clone().unwrap_or_else(|| options.folder().join("rules.tsv"));
            LinkPredictor::open(&options.kb, None, Some(&rules))
        }
        "graph-network" => {
            let options = NetworkConfig::load(config, &[])?;
            let folder = options.output.join(&options.name);
            LinkPredictor::open(&options.data.saved_in(&folder), Some(&folder.join("model")), None)
        }
        _ => {
            let options = LinksOptions::load(config, &[])?;
            let folder = options.folder();
            LinkPredictor::open(&options.data.saved_in(&folder), Some(&folder.join("model")), None)
        }
    }
}

/// The folders of the knowledge base and the model, and the file of rules; or a config alone.
type Parts = (PathBuf, Option<PathBuf>, Option<PathBuf>);

/// Scores of triples by an embedding, a network or rules.
#[pyclass(frozen, subclass, module = "sporran")]
pub(crate) struct TripleScorer {
    predictor: LinkPredictor,
    parts: Parts,
}

#[pymethods]
impl TripleScorer {
    #[new]
    #[pyo3(signature = (kb, model = None, rules = None))]
    fn new(py: Python<'_>, kb: PathBuf, model: Option<PathBuf>, rules: Option<PathBuf>) -> Result<Self> {
        let is_config = kb.is_file() && kb.extension().is_some_and(|ending| ending == "toml");
        let predictor = compute(py, || {
            if is_config && model.is_none() && rules.is_none() {
                return of_config(&kb);
            }
            LinkPredictor::open(&kb, model.as_deref(), rules.as_deref())
        })?;
        Ok(Self { predictor, parts: (kb, model, rules) })
    }

    /// The objects of a subject and a relation, best first: dicts as JSON.
    #[pyo3(signature = (subject = None, relation = None, object = None, k = 10, chains = 3, known = false))]
    #[allow(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn complete_json(
        &self,
        py: Python<'_>,
        subject: Option<String>,
        relation: Option<String>,
        object: Option<String>,
        k: i128,
        chains: i128,
        known: bool,
    ) -> Result<String> {
        let relation = relation.ok_or_else(|| argument("relation", "a relation", "none"))?;
        let question = LinkQuestion { subject, relation, object };
        let resolved = self.predictor.resolve(&question).map_err(InputError::new_err)?;
        let options = AskOptions { answers: count("k", k, 0)?, chains: count("chains", chains, 0)?, known };
        let answers = compute(py, || self.predictor.ask(&[resolved], options))?;
        let row = answers.into_iter().next().unwrap_or_default();
        serde_json::to_string(&row).map_err(|error| argument("answers", "plain values", error))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> (Bound<'py, PyAny>, Parts) {
        (slf.get_type().into_any(), slf.get().parts.clone())
    }
}
