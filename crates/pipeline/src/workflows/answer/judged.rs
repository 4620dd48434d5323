//! The measures of the rankings of judged queries, `tasks.qrels`.

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use serde::Deserialize;
use sporran_kilt::{
    formats::trec::{page_of_document, read_rankings},
    scores::trec::{self, Evaluation, JudgedQueries},
};

use crate::{
    Result,
    tasks::{files::TaskFile, loader as tasks},
    workflows::answer::{
        evidence::ranked_pages,
        options::{EvaluationOptions, EvidenceOptions, General, PageScore, RunDocuments},
    },
};

/// The most ids of queries that a warning lists.
const LISTED: usize = 3;

/// How the ranking of a run is scored.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct RankingOptions {
    evaluation: EvaluationOptions,
    evidence: EvidenceOptions,
}

impl RankingOptions {
    /// Those of a config.
    pub(crate) fn of(general: &General) -> Self {
        Self { evaluation: general.evaluation.clone(), evidence: general.evidence.clone() }
    }

    /// The values of a run's ranking for each judged query. A query without a hit counts 0. With `tasks.limit`, only the first
    /// queries of the file count. The values are over pages, also where the run has passages.
    ///
    /// # Errors
    /// Those of [`trec::evaluate`] and of reading the queries.
    pub(crate) fn evaluate(&self, task: &TaskFile, qrels: &Path, ranking: &Path) -> Result<Evaluation> {
        let queries = tasks::ids(task)?;
        let options = trec::Options {
            complete: true,
            exclude_self: self.evaluation.exclude_self,
            queries: task.limit.map(|_| queries.clone()),
            ..trec::Options::new(self.evaluation.measures()?)
        };
        let found = match self.evidence.run_documents {
            RunDocuments::Page => trec::evaluate(qrels, ranking, &options)?,
            RunDocuments::Passage => {
                let rankings = page_rankings(ranking, self.evidence.page_score)?;
                JudgedQueries::read(qrels)?.evaluate(&rankings, &options)
            }
        };
        warn_of_missing(&found, &queries, task, qrels);
        Ok(found)
    }
}

/// The pages of a run over passages, best first, by query.
fn page_rankings(run: &Path, score: PageScore) -> Result<HashMap<String, Vec<String>>> {
    let mut rankings = HashMap::new();
    for ranking in read_rankings(run)? {
        let ranking = ranking?;
        let documents = ranking.documents.iter();
        let passages: Vec<(&str, f32)> =
            documents.map(|document| (page_of_document(&document.id), document.score as f32)).collect();
        let pages = ranked_pages(&passages, score).into_iter().map(|(page, _)| page.to_owned());
        rankings.insert(ranking.query, pages.collect::<Vec<_>>());
    }
    Ok(rankings)
}

/// Warns of judged queries that are not in the file of queries.
fn warn_of_missing(found: &Evaluation, queries: &BTreeSet<String>, task: &TaskFile, qrels: &Path) {
    let missing: Vec<&String> = found.missing.iter().filter(|id| !queries.contains(*id)).collect();
    if missing.is_empty() {
        return;
    }
    let listed: Vec<String> = missing.iter().take(LISTED).map(|id| format!("`{id}`")).collect();
    tracing::warn!(
        "{}: {} of {} judged queries are not in {} and count 0, such as {}",
        qrels.display(),
        missing.len(),
        found.queries.len(),
        task.path.display(),
        listed.join(", ")
    );
}
