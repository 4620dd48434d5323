//! The measures of judged queries in a comparison.

use std::{collections::BTreeMap, path::Path};

use sporran_kilt::scores::{
    significance::{Rounds, compare},
    trec::Evaluation,
};

use super::{
    Comparison, Score, config_of,
    tables::{Grid, Row, percent},
};
use crate::{
    Result,
    run_dir::folder::ranking_of,
    tasks::files::TaskFile,
    workflows::answer::{judged::RankingOptions, report::TaskReport},
};

impl Comparison {
    /// The measures of judged queries, a table for each task file.
    pub(super) fn judged_grids(&self) -> Vec<Grid> {
        let grid = |(name, _): (String, _)| {
            let tasks = || self.systems.iter().filter_map(|system| Some((system, system.task(&name)?)));
            let mut measures: Vec<String> = Vec::new();
            for measure in tasks().flat_map(|(_, task)| task.measures.keys()) {
                if !measures.contains(measure) {
                    measures.push(measure.clone());
                }
            }
            let rows = tasks().filter(|(_, task)| !task.measures.is_empty()).map(|(system, task)| {
                let cell = |measure: &String| match task.measures.get(measure) {
                    Some(score) => format!("{}{}", percent(Some(score.mean)), score.mark()),
                    None => "-".to_owned(),
                };
                let cells = measures.iter().map(cell).collect();
                Row { name: system.name.clone(), is_published: false, cells }
            });
            let rows: Vec<Row> = rows.collect();
            let head = ["system".to_owned()].into_iter().chain(measures.iter().cloned()).collect();
            Grid { title: format!("Measures of {name}"), head, rows }
        };
        self.columns().into_iter().map(grid).filter(|grid| !grid.rows.is_empty()).collect()
    }
}

/// Scores the ranking of judged queries of a run again, if its files are available.
pub(super) fn evaluate(run: &Path, report: &TaskReport, files: &[TaskFile]) -> Result<Option<Evaluation>> {
    let task = files.iter().find(|task| task.name == report.file && !report.measures.is_empty());
    let Some((task, qrels)) = task.and_then(|task| Some((task, task.qrels.as_deref()?))) else {
        return Ok(None);
    };
    let ranking = run.join(ranking_of(Path::new(&task.name)));
    // Other tables of an older run can have keys that are unknown now.
    let config: toml::Table = config_of(run)?;
    let wanted = ["evaluation", "evidence"].into_iter();
    let tables: toml::Table =
        wanted.filter_map(|name| Some((name.to_owned(), config.get(name)?.clone()))).collect();
    let Ok(options) = tables.try_into::<RankingOptions>() else { return Ok(None) };
    if !task.path.is_file() || !qrels.is_file() || !ranking.is_file() {
        return Ok(None);
    }
    options.evaluate(task, qrels, &ranking).map(Some)
}

/// The measures in a run's report, with their differences from the first run on the same queries.
pub(super) fn measures(
    report: &TaskReport,
    judged: Option<&Evaluation>,
    first: Option<&Evaluation>,
    rounds: Rounds,
) -> Result<BTreeMap<String, Score>> {
    let difference = |name: &str| {
        let (own, known) = (judged?, first?);
        let ids = |of: &Evaluation| of.queries.iter().map(|query| query.query.clone()).collect::<Vec<_>>();
        let column = |of: &Evaluation| {
            let at = of.measures.iter().position(|measure| measure.name() == name)?;
            Some(of.queries.iter().map(|query| query.values[at]).collect::<Vec<f64>>())
        };
        (ids(own) == ids(known)).then(|| Some((column(own)?, column(known)?))).flatten()
    };
    let score = |(name, &mean): (&String, &f64)| {
        let difference = match difference(name) {
            None => None,
            Some((own, known)) => {
                let found = compare(&own, &known, rounds)?;
                Some((found.difference.mean, found.p_value))
            }
        };
        Ok((name.clone(), Score { mean, difference }))
    };
    report.measures.iter().map(score).collect()
}
