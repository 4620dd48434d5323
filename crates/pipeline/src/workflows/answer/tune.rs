//! The weights of a hybrid retriever, chosen on task files with gold.

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;
use sporran_kilt::{
    Hit, Output, Provenance,
    scores::provenance::{Evidence, Rank},
};
use sporran_retriever::fusion::{FusionMethod, FusionOptions};

use crate::{
    Error, Result,
    observe::{Observer, Unit, advance, begin},
    tasks::{files::task_files, loader as tasks, query::for_retrieval},
    workflows::answer::{
        assemble::{Parts, assemble_parts},
        options::Options,
        retrieval::RetrieverOptions,
    },
};

/// What a setting of the fusion scores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The setting.
    pub fusion: FusionOptions,
    /// Mean R-precision over the task files.
    pub r_precision: f64,
    /// Mean recall among the first five, over the task files.
    pub recall_at_5: f64,
}

impl fmt::Display for Tried {
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

impl Tried {
    /// What the settings are compared by.
    fn score(&self) -> f64 {
        (self.r_precision + self.recall_at_5) / 2.0
    }
}

/// A task file's gold, and what each part finds for its records.
struct Judged {
    gold: Vec<Evidence>,
    /// `[part][record]`
    rankings: Vec<Vec<Vec<Hit>>>,
}

/// The steps between a weight of 0 and all of the weight.
const STEPS: usize = 10;

/// Tries the fusions of a config's hybrid retriever on its tasks: every method, with all weights in tenths that add up to 1.
/// Best first, by the mean of R-precision and recall@5, each the mean over the task files.
///
/// # Errors
/// [`Error::Config`] where the retriever is no hybrid or a task file has no gold; what [`retrieve`](crate::retrieve) gives.
pub fn tune(options: &Options, observe: &mut Observer<'_>) -> Result<Vec<Tried>> {
    let fault = |key: &str, message: String| {
        let diagnostic =
            sporran_config::Diagnostic { origin: "config".to_owned(), line: 0, key: key.to_owned(), message };
        Error::Config(vec![diagnostic])
    };
    let Some(RetrieverOptions::Hybrid(hybrid)) = &options.retriever else {
        return Err(fault("retriever.kind", "expected `hybrid`, whose weights are chosen".into()));
    };
    let files = task_files(&options.general.tasks, "tasks")?;
    let Parts { store, retrievers } = assemble_parts(options, &hybrid.parts, observe)?;
    let depth = hybrid.fusion.depth.max(options.general.evidence.depth);
    let mut judged: Vec<Judged> = Vec::new();
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
        if examples.iter().all(|example| example.gold.is_empty()) {
            return Err(fault("tasks", format!("{} has no gold to choose by", file.path.display())));
        }
        let queries: Vec<_> =
            examples.iter().map(|example| for_retrieval(&example.query, &options.general.query)).collect();
        begin(observe, format!("retrieve for {}", file.name), retrievers.len() as u64, Unit::Steps);
        let mut rankings = Vec::with_capacity(retrievers.len());
        for part in &retrievers {
            rankings.push(part.retrieve(&queries, depth)?);
            advance(observe, rankings.len() as u64);
        }
        observe(crate::observe::Event::End);
        judged.push(Judged { gold, rankings });
    }
    let mut tried: Vec<Tried> = settings(&hybrid.fusion, retrievers.len())
        .into_par_iter()
        .map(|fusion| {
            let mut sums = (0.0, 0.0);
            for Judged { gold, rankings } in &judged {
                let ranks = gold.iter().enumerate().map(|(query, gold)| {
                    let rows: Vec<&[Hit]> = rankings.iter().map(|part| part[query].as_slice()).collect();
                    let hits = fusion.fuse(&rows);
                    let pages =
                        crate::workflows::answer::evidence::pages(&store, &hits, &options.general.evidence);
                    gold.rank(pages.into_iter().map(|page| store.page_id(page)))
                });
                let (r, recall) = mean(ranks);
                sums = (sums.0 + r, sums.1 + recall);
            }
            let files = judged.len() as f64;
            Tried { fusion, r_precision: sums.0 / files, recall_at_5: sums.1 / files }
        })
        .collect();
    store.sound()?;
    // The order of the settings decides between equals.
    tried.sort_by(|a, b| b.score().total_cmp(&a.score()));
    Ok(tried)
}

/// The ids of an output's pages; none where it has no evidence.
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
                // The last part gets what is left.
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
    fn all_weights_in_tenths_are_tried_with_every_method() {
        let tried = settings(&FusionOptions::default(), 3);
        // Ways to share 10 tenths among 3 parts: 12 choose 2.
        assert_eq!(tried.len(), 4 * 66);
        assert!(tried.iter().all(|fusion| (fusion.weights.iter().sum::<f32>() - 1.0).abs() < 1e-6));
        assert!(tried.iter().all(|fusion| fusion.check(3).is_ok()));
    }
}
