//! Tuning of the weights of a hybrid retriever on task files with gold evidence or judgements.

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;
use sporran_kilt::{
    Example, Hit, Output, PassageStore, Provenance,
    observe::{Observer, Unit, advance, begin},
    scores::{
        provenance::Evidence,
        trec::{JudgedQueries, RankingMeasure},
    },
};
use sporran_retriever::fusion::{FusionMethod, FusionOptions};

use crate::{
    Error, Result,
    tasks::{
        files::{TaskFile, task_files},
        loader as tasks,
    },
    workflows::answer::{
        assemble::{Parts, assemble_parts},
        evidence::{all_pages, pages},
        options::{EvidenceOptions, Options},
        retrieval::RetrieverOptions,
    },
};

/// A setting of the fusion with its scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// The setting.
    pub fusion: FusionOptions,
    /// The mean R-precision over the task files.
    pub r_precision: f64,
    /// The mean recall@5 over the task files.
    pub recall_at_5: f64,
    /// The name and the value of the first of `evaluation.measures`, if the config names measures and has judged queries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measure: Option<(String, f64)>,
    /// The mean over the task files of the score by which settings are compared.
    #[serde(skip)]
    score: f64,
}

impl fmt::Display for Trial {
    /// The scores in percent, in columns of 11 and 9 and of the measure's name, and the setting as in a config.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, value)) = &self.measure {
            write!(f, "{:width$.1} ", 100.0 * value, width = name.len().max(5))?;
        }
        let weights: Vec<String> = self.fusion.weights.iter().map(f32::to_string).collect();
        let method = serde_json::to_value(self.fusion.method).unwrap_or_default();
        write!(
            f,
            "{:11.1} {:9.1}  method = {method}, weights = [{}]",
            100.0 * self.r_precision,
            100.0 * self.recall_at_5,
            weights.join(", ")
        )
    }
}

/// The gold evidence or the judgements of a task file, and the rankings of each part.
struct RankedTask {
    gold: Gold,
    /// `[part][record]`
    rankings: Vec<Vec<Vec<Hit>>>,
}

/// What the pages of each record are compared with.
enum Gold {
    /// The gold evidence of the records.
    Evidence(Vec<Evidence>),
    /// The ids of judged queries, with the measure that is optimised.
    Judged(Box<Judged>),
}

struct Judged {
    queries: Vec<String>,
    judgements: JudgedQueries,
    /// R-precision, recall@5, and the first of `evaluation.measures`, if the config names them.
    measures: Vec<RankingMeasure>,
    exclude_self: bool,
}

/// The scores of one record, or their sums.
#[derive(Clone, Copy, Default)]
struct Scores {
    r_precision: f64,
    recall_at_5: f64,
    measure: f64,
    /// The score by which settings are compared.
    score: f64,
}

impl Scores {
    fn plus(self, other: Self) -> Self {
        Self {
            r_precision: self.r_precision + other.r_precision,
            recall_at_5: self.recall_at_5 + other.recall_at_5,
            measure: self.measure + other.measure,
            score: self.score + other.score,
        }
    }

    fn over(self, count: usize) -> Self {
        let count = count as f64;
        Self {
            r_precision: self.r_precision / count,
            recall_at_5: self.recall_at_5 / count,
            measure: self.measure / count,
            score: self.score / count,
        }
    }
}

/// The number of steps between the weights 0 and 1.
const STEPS: usize = 10;

/// Evaluates settings of a config's hybrid retriever on its tasks: every method, with all weights in tenths that add up to 1.
/// Returns them best first, by the mean of R-precision and recall@5 over the task files. The score of judged queries is the
/// first of `evaluation.measures`, or R-precision if the config names none.
///
/// # Errors
/// [`Error::Config`] if the retriever is not hybrid, or a task file has no gold evidence; those of
/// [`retrieve`](crate::retrieve).
pub fn tune(options: &Options, observe: &mut Observer<'_>) -> Result<Vec<Trial>> {
    let fault = |key: &str, message: String| {
        let diagnostic =
            sporran_config::Diagnostic { origin: "config".to_owned(), line: 0, key: key.to_owned(), message };
        Error::Config(vec![diagnostic])
    };
    let Some(RetrieverOptions::Hybrid(hybrid)) = &options.retriever else {
        return Err(fault("retriever.kind", "expected `hybrid`; only its weights can be tuned".into()));
    };
    let files = task_files(&options.general.tasks, "tasks")?;
    // Before the indexes are built.
    for file in &files {
        if tasks::examples(file)?.iter().all(|example| example.gold.is_empty()) {
            return Err(fault("tasks", format!("{} has no gold evidence", file.path.display())));
        }
    }
    let Parts { store, retrievers } = assemble_parts(options, &hybrid.parts, observe)?;
    let depth = hybrid.fusion.depth.max(options.general.evidence.depth);
    let mut ranked_tasks: Vec<RankedTask> = Vec::new();
    for file in &files {
        let examples = tasks::examples(file)?;
        let gold = Gold::of(options, file, &examples)?;
        let queries: Vec<_> =
            examples.iter().map(|example| options.general.for_retrieval(&example.query)).collect();
        begin(observe, format!("run retrievers for {}", file.name), retrievers.len() as u64, Unit::Steps);
        let mut rankings = Vec::with_capacity(retrievers.len());
        for part in &retrievers {
            rankings.push(part.retrieve(&queries, depth)?);
            advance(observe, rankings.len() as u64);
        }
        observe(sporran_kilt::observe::Event::End);
        ranked_tasks.push(RankedTask { gold, rankings });
    }
    let evidence = &options.general.evidence;
    let measure = ranked_tasks.iter().find_map(|task| task.gold.measure());
    let mut trials: Vec<Trial> = settings(&hybrid.fusion, retrievers.len())
        .into_par_iter()
        .map(|fusion| {
            let files = ranked_tasks.iter().map(|task| task.scores(&fusion, &store, evidence));
            let sums = files.fold(Scores::default(), Scores::plus);
            let Scores { r_precision, recall_at_5, score, .. } = sums.over(ranked_tasks.len());
            // A config has one file of judged queries.
            let measure = measure.map(|measure| (measure.name().to_owned(), sums.measure));
            Trial { fusion, r_precision, recall_at_5, measure, score }
        })
        .collect();
    store.sound()?;
    // A stable sort: settings with equal scores stay in order.
    trials.sort_by(|a, b| b.score.total_cmp(&a.score));
    Ok(trials)
}

/// The ids of an output's pages; `None` without evidence.
fn gold_pages(output: &Output) -> Option<Vec<String>> {
    let id = |item: &Provenance| item.wikipedia_id.as_ref().map(|id| id.text().into_owned());
    output.provenance.as_ref().map(|items| items.iter().filter_map(id).collect())
}

impl Gold {
    fn of(options: &Options, file: &TaskFile, examples: &[Example]) -> Result<Self> {
        let Some(qrels) = &file.qrels else {
            let evidence = |example: &Example| {
                let pages: Vec<Option<Vec<String>>> = example.gold.iter().map(gold_pages).collect();
                let pages = pages.iter().map(|ids| ids.as_ref().map(|ids| ids.iter().map(String::as_str)));
                Evidence::new(pages)
            };
            return Ok(Self::Evidence(examples.iter().map(evidence).collect()));
        };
        let evaluation = &options.general.evaluation;
        let mut measures = RankingMeasure::list("Rprec,R@5")?;
        if evaluation.measures.is_some() {
            measures.extend(evaluation.measures()?.into_iter().take(1));
        }
        Ok(Self::Judged(Box::new(Judged {
            queries: examples.iter().map(|example| example.query.id.text().into_owned()).collect(),
            judgements: JudgedQueries::read(qrels)?,
            measures,
            exclude_self: evaluation.exclude_self,
        })))
    }

    /// The measure that is optimised; none for R-precision and recall@5.
    fn measure(&self) -> Option<&RankingMeasure> {
        match self {
            Self::Evidence(_) => None,
            Self::Judged(judged) => judged.measures.get(2),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Evidence(gold) => gold.len(),
            Self::Judged(judged) => judged.queries.len(),
        }
    }

    /// The scores of a record's ranking.
    fn scores(&self, record: usize, store: &PassageStore, hits: &[Hit], options: &EvidenceOptions) -> Scores {
        match self {
            Self::Evidence(gold) => {
                let pages = pages(store, hits, options);
                let ids: Vec<_> = pages.into_iter().map(|page| store.page_id(page)).collect();
                let rank = gold[record].rank(ids.iter().map(AsRef::as_ref));
                let (r_precision, recall_at_5) = (rank.r_precision, rank.recall(5));
                Scores { r_precision, recall_at_5, measure: 0.0, score: (r_precision + recall_at_5) / 2.0 }
            }
            Self::Judged(judged) => {
                let query = judged.queries[record].as_str();
                let pages = all_pages(store, hits, options.page_score).map(|page| store.page_id(page));
                let pages: Vec<_> = pages.filter(|page| !judged.exclude_self || page != query).collect();
                let value =
                    |measure| judged.judgements.value(measure, query, pages.iter().map(AsRef::as_ref));
                let values: Vec<f64> =
                    judged.measures.iter().map(|measure| value(measure).unwrap_or_default()).collect();
                let (r_precision, recall_at_5) = (values[0], values[1]);
                let measure = values.get(2).copied();
                let score = measure.unwrap_or(r_precision);
                Scores { r_precision, recall_at_5, measure: measure.unwrap_or_default(), score }
            }
        }
    }
}

impl RankedTask {
    /// The mean scores of the records with a setting of the fusion.
    fn scores(&self, fusion: &FusionOptions, store: &PassageStore, options: &EvidenceOptions) -> Scores {
        let records = (0..self.gold.len()).map(|record| {
            let rows: Vec<&[Hit]> = self.rankings.iter().map(|part| part[record].as_slice()).collect();
            self.gold.scores(record, store, &fusion.fuse(&rows), options)
        });
        records.fold(Scores::default(), Scores::plus).over(self.gold.len())
    }
}

/// Every method with all weights in tenths that add up to 1.
fn settings(base: &FusionOptions, parts: usize) -> Vec<FusionOptions> {
    let mut weights: Vec<Vec<usize>> = vec![Vec::new()];
    for part in 0..parts {
        weights = weights
            .into_iter()
            .flat_map(|row| {
                let left = STEPS - row.iter().sum::<usize>();
                // The last part gets the remaining weight.
                let least = if part + 1 == parts { left } else { 0 };
                (least..=left).map(move |weight| row.iter().copied().chain([weight]).collect())
            })
            .collect();
    }
    let setting = |method, row: &Vec<usize>| FusionOptions {
        method,
        weights: row.iter().map(|&weight| weight as f32 / STEPS as f32).collect(),
        ..base.clone()
    };
    FusionMethod::ALL
        .into_iter()
        .flat_map(|method| weights.iter().map(move |row| setting(method, row)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_weights_in_tenths_are_combined_with_every_method() {
        let trials = settings(&FusionOptions::default(), 3);
        // Ways to share 10 tenths among 3 parts: 12 choose 2.
        assert_eq!(trials.len(), 4 * 66);
        assert!(trials.iter().all(|fusion| (fusion.weights.iter().sum::<f32>() - 1.0).abs() < 1e-6));
        assert!(trials.iter().all(|fusion| fusion.check(3).is_ok()));
    }
}
