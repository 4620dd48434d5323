//! A weighted sum of rerankers' scores.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Passage, Query};
use sporran_transformers::{DeviceName, Precision};

use crate::{QueryView, Reranker, Result};

/// `kind = "combined"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CombinedOptions {
    /// The folder that `sporran train` made.
    #[serde(rename = "model")]
    pub folder: PathBuf,
    /// The data type of the weights: `f32` or `int8` on a CPU; `f32`, `f16` or `bf16` on a GPU.
    #[serde(default)]
    pub precision: Precision,
    /// The device: `cpu`, `cuda` or `cuda:N`.
    #[serde(default)]
    pub device: DeviceName,
    /// The largest number of tokens in a batch, padding included.
    #[serde(default = "batch_tokens")]
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub batch_tokens: usize,
}

fn batch_tokens() -> usize {
    4096
}

/// One term of a weighted sum of rerankers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The index of the reranker.
    pub reranker: usize,
    /// The query text and the pooling.
    pub view: QueryView,
    /// The weight of the scores.
    pub weight: f32,
    /// Whether the scores are first standardised to mean 0 and standard deviation 1 over the query's passages.
    pub standardised: bool,
}

/// The weighted sum of several rerankers' scores.
pub struct Combined {
    rerankers: Vec<Box<dyn Reranker>>,
    terms: Vec<Term>,
}

impl Combined {
    /// Makes the sum of `terms` over `rerankers`.
    ///
    /// # Panics
    /// If the index of a term is out of range.
    #[must_use]
    pub fn new(rerankers: Vec<Box<dyn Reranker>>, terms: Vec<Term>) -> Self {
        assert!(
            terms.iter().all(|term| term.reranker < rerankers.len()),
            "the index of each term is in range"
        );
        Self { rerankers, terms }
    }
}

/// Standardises the scores of a query's passages to mean 0 and standard deviation 1. If all scores are equal, they become 0.
pub fn standardise(scores: &mut [f32]) {
    let count = scores.len().max(1) as f32;
    let mean = scores.iter().sum::<f32>() / count;
    let variance = scores.iter().map(|score| (score - mean).powi(2)).sum::<f32>() / count;
    let scale = if variance > 0.0 { 1.0 / variance.sqrt() } else { 0.0 };
    scores.iter_mut().for_each(|score| *score = (*score - mean) * scale);
}

impl Reranker for Combined {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let mut sums = vec![0.0; passages.len()];
        for (at, reranker) in self.rerankers.iter().enumerate() {
            let terms = || self.terms.iter().filter(|term| term.reranker == at);
            let views: Vec<QueryView> = terms().map(|term| term.view).collect();
            let scores = QueryView::scores(&views, &**reranker, query, passages)?;
            for (term, mut scores) in terms().zip(scores) {
                if term.standardised {
                    standardise(&mut scores);
                }
                sums.iter_mut().zip(scores).for_each(|(sum, score)| *sum += term.weight * score);
            }
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PagePool;

    struct Fixed(Vec<f32>);

    impl Reranker for Fixed {
        fn score(&self, _: &Query, _: &[&Passage]) -> Result<Vec<f32>> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn terms_are_standardised_before_the_sum_if_they_say_so() {
        let fixed = |scores: [f32; 3]| -> Box<dyn Reranker> { Box::new(Fixed(scores.into())) };
        let rerankers = [[1.0, 2.0, 3.0], [700.0, 500.0, 600.0], [4.0; 3], [0.0, 0.0, 2.0]].map(fixed);
        let term = |reranker, weight, standardised| Term {
            reranker,
            view: QueryView::default(),
            weight,
            standardised,
        };
        let mut terms = vec![term(0, 1.0, true), term(1, 0.5, true), term(2, 9.0, true), term(3, 0.5, false)];
        // All three passages are on one page, whose best score is 2. The last reranker is in the sum twice.
        terms.push(Term {
            view: QueryView { pool: Some(PagePool::Best), ..QueryView::default() },
            ..term(3, 0.25, false)
        });
        let whole = Combined::new(rerankers.into(), terms);
        let (a, b, c) = (Passage::of_text("a"), Passage::of_text("b"), Passage::of_text("c"));
        let scores = whole.score(&Query::of_text("q", "q"), &[&a, &b, &c]).unwrap();
        // Deviations sqrt(2/3) and 100 sqrt(2/3): (-1, 0, 1) and half of (1, -1, 0), over sqrt(2/3).
        let unit = 1.5f32.sqrt();
        for (score, expected) in scores.iter().zip([0.5 - 0.5 * unit, 0.5 - 0.5 * unit, unit + 1.5]) {
            assert!((score - expected).abs() < 1e-5, "{scores:?}");
        }
    }
}
