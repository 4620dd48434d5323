//! Scores of files.

use std::{collections::BTreeMap, path::PathBuf};

use pyo3::prelude::*;
use serde_json::json;
use sporran_kilt::scores::{kilt, trec};

use crate::{calls::compute, error::Result};

/// KILT's scores of a file of predictions as JSON: the means, and the values of each record.
#[pyfunction]
pub(crate) fn evaluate_kilt(py: Python<'_>, gold: PathBuf, guess: PathBuf) -> Result<String> {
    let found = compute(py, || kilt::evaluate(&gold, &guess))?;
    let records = &found.records;
    let columns: Vec<Vec<f64>> = records.names().iter().filter_map(|name| records.column(name)).collect();
    let values: Vec<Vec<f64>> =
        (0..records.ids().len()).map(|at| columns.iter().map(|column| column[at]).collect()).collect();
    let report = json!({
        "report": found.report,
        "measures": records.names(),
        "ids": records.ids(),
        "values": values,
    });
    Ok(report.to_string())
}

/// The figures of a TREC run as JSON: the means, the values of each query, and the queries that the run lacks.
#[pyfunction]
pub(crate) fn evaluate_trec(
    py: Python<'_>,
    qrels: PathBuf,
    run: PathBuf,
    measures: Vec<String>,
    complete: bool,
    exclude_self: bool,
) -> Result<String> {
    let found = compute(py, || {
        let measures = trec::RankingMeasure::list(&measures.join(","))?;
        trec::evaluate(
            &qrels,
            &run,
            &trec::Options { complete, exclude_self, ..trec::Options::new(measures) },
        )
    })?;
    let names: Vec<&str> = found.measures.iter().map(trec::RankingMeasure::name).collect();
    let report = json!({
        "means": found.means().into_iter().collect::<BTreeMap<_, _>>(),
        "measures": names,
        "queries": found.queries,
        "missing": found.missing,
        "unjudged": found.unjudged,
    });
    Ok(report.to_string())
}
