//! A weighted sum of rerankers' scores.

use sporran_kilt::{Passage, Query};

use crate::{Reranker, Result, View};

/// One addend of a sum of rerankers' scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// The number of what scores.
    pub reranker: usize,
    /// What it is asked, and what its scores become.
    pub view: View,
    /// What its scores count.
    pub weight: f32,
    /// Whether they are brought to mean 0 and deviation 1 among a query's passages first.
    pub standardised: bool,
}

/// The weighted sum of several rerankers' scores.
pub struct Combined {
    rerankers: Vec<Box<dyn Reranker>>,
    terms: Vec<Term>,
}

impl Combined {
    /// Sums up `terms`, each of which names one of `rerankers`.
    ///
    /// # Panics
    /// Where a term names a reranker that there is not.
    #[must_use]
    pub fn new(rerankers: Vec<Box<dyn Reranker>>, terms: Vec<Term>) -> Self {
        assert!(
            terms.iter().all(|term| term.reranker < rerankers.len()),
            "a term names one of the rerankers"
        );
        Self { rerankers, terms }
    }
}

/// Brings the scores of a query's passages to mean 0 and deviation 1; equal scores, which say nothing, to 0.
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
            let views: Vec<View> = terms().map(|term| term.view).collect();
            let scores = View::scores(&views, &**reranker, query, passages)?;
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

    fn passage(text: &str) -> Passage {
        Passage {
            id: sporran_kilt::PassageId(0),
            page_id: String::new(),
            title: String::new(),
            section: String::new(),
            text: text.into(),
            start_paragraph: 0,
            start_character: 0,
            end_paragraph: 0,
            end_character: 0,
        }
    }

    #[test]
    fn scores_are_brought_to_one_scale_before_they_are_summed_where_that_is_asked_for() {
        let fixed = |scores: [f32; 3]| -> Box<dyn Reranker> { Box::new(Fixed(scores.into())) };
        let rerankers = [[1.0, 2.0, 3.0], [700.0, 500.0, 600.0], [4.0; 3], [0.0, 0.0, 2.0]].map(fixed);
        let term =
            |reranker, weight, standardised| Term { reranker, view: View::default(), weight, standardised };
        let mut terms = vec![term(0, 1.0, true), term(1, 0.5, true), term(2, 9.0, true), term(3, 0.5, false)];
        // All three are of one page, whose best is 2: the last reranker's scores count a second time.
        terms.push(Term {
            view: View { pool: Some(PagePool::Best), ..View::default() },
            ..term(3, 0.25, false)
        });
        let whole = Combined::new(rerankers.into(), terms);
        let (a, b, c) = (passage("a"), passage("b"), passage("c"));
        let scores = whole.score(&Query::of_text("q", "q"), &[&a, &b, &c]).unwrap();
        // Deviations sqrt(2/3) and 100 sqrt(2/3): (-1, 0, 1) and half of (1, -1, 0), over sqrt(2/3).
        let unit = 1.5f32.sqrt();
        for (score, expected) in scores.iter().zip([0.5 - 0.5 * unit, 0.5 - 0.5 * unit, unit + 1.5]) {
            assert!((score - expected).abs() < 1e-5, "{scores:?}");
        }
    }
}
