//! Tuning of the weights of a hybrid retriever on task files with gold evidence.

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;
use sporran_kilt::{
    Hit, Output, Provenance,
    observe::{Observer, Unit, advance, begin},
    scores::provenance::{Evidence, Rank},
};
use sporran_retriever::fusion::{FusionMethod, FusionOptions};

use crate::{
    Error, Result,
    tasks::{files::task_files, loader as tasks},
    workflows::answer::{
        assemble::{Parts, assemble_parts},
        options::Options,
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
}

impl fmt::Display for Trial {
    /// Both scores in percent, in columns of 11 and 9, and the setting as in a config.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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

impl Trial {
    /// The score for comparing settings.
    fn score(&self) -> f64 {
        (self.r_precision + self.recall_at_5) / 2.0
    }
}

/// The gold evidence of a task file, and the rankings of each part.
struct RankedTask {
    gold: Vec<Evidence>,
    /// `[part][record]`
    rankings: Vec<Vec<Vec<Hit>>>,
}

/// The number of steps between the weights 0 and 1.
const STEPS: usize = 10;

/// Evaluates settings of a config's hybrid retriever on its tasks: every method, with all weights in tenths that add up to 1.
/// Returns them best first, by the mean of R-precision and recall@5 over the task files.
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
        let gold: Vec<Evidence> = examples
            .iter()
            .map(|example| {
                let pages: Vec<Option<Vec<String>>> = example.gold.iter().map(gold_pages).collect();
                Evidence::new(
                    pages.iter().map(|keys| keys.as_ref().map(|keys| keys.iter().map(String::as_str))),
                )
            })
            .collect();
        let queries: Vec<_> =
            examples.iter().map(|example| options.general.for_retrieval(&example.query)).collect();
        begin(observe, format!("retrieve for {}", file.name), retrievers.len() as u64, Unit::Steps);
        let mut rankings = Vec::with_capacity(retrievers.len());
        for part in &retrievers {
            rankings.push(part.retrieve(&queries, depth)?);
            advance(observe, rankings.len() as u64);
        }
        observe(sporran_kilt::observe::Event::End);
        ranked_tasks.push(RankedTask { gold, rankings });
    }
    let mut trials: Vec<Trial> = settings(&hybrid.fusion, retrievers.len())
        .into_par_iter()
        .map(|fusion| {
            let mut sums = (0.0, 0.0);
            for RankedTask { gold, rankings } in &ranked_tasks {
                let ranks = gold.iter().enumerate().map(|(query, gold)| {
                    let rows: Vec<&[Hit]> = rankings.iter().map(|part| part[query].as_slice()).collect();
                    let hits = fusion.fuse(&rows);
                    let pages =
                        crate::workflows::answer::evidence::pages(&store, &hits, &options.general.evidence);
                    let ids: Vec<_> = pages.into_iter().map(|page| store.page_id(page)).collect();
                    gold.rank(ids.iter().map(AsRef::as_ref))
                });
                let (r, recall) = mean(ranks);
                sums = (sums.0 + r, sums.1 + recall);
            }
            let files = ranked_tasks.len() as f64;
            Trial { fusion, r_precision: sums.0 / files, recall_at_5: sums.1 / files }
        })
        .collect();
    store.sound()?;
    // A stable sort: settings with equal scores stay in order.
    trials.sort_by(|a, b| b.score().total_cmp(&a.score()));
    Ok(trials)
}

/// The ids of an output's pages; `None` without evidence.
fn gold_pages(output: &Output) -> Option<Vec<String>> {
    let id = |item: &Provenance| item.wikipedia_id.as_ref().map(|id| id.text().into_owned());
    output.provenance.as_ref().map(|items| items.iter().filter_map(id).collect())
}

fn mean(ranks: impl ExactSizeIterator<Item = Rank>) -> (f64, f64) {
    let count = ranks.len() as f64;
    let (r, recall) =
        ranks.fold((0.0, 0.0), |sums, rank| (sums.0 + rank.r_precision, sums.1 + rank.recall(5)));
    (r / count, recall / count)
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
