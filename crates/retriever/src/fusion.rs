//! Rank fusion: several rankings as one.
//!
//! Reciprocal rank fusion is from G. Cormack, C. Clarke and S. Büttcher, SIGIR 2009. The sums of normalised
//! scores are CombSUM (E. Fox and J. Shaw, TREC-2, 1993) with a weight for each ranking. A passage missing in
//! a ranking gets the score of that ranking's last passage, because it would rank after it. With reciprocal
//! ranks it gets 0.

use rustc_hash::FxHashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Hit, PassageId};

use crate::{Error, Result};

/// How a passage's ranks or scores are combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FusionMethod {
    /// The weighted sum of `1 / (constant + rank)`, ranks counted from 1.
    #[default]
    ReciprocalRank,
    /// The weighted sum of scores, scaled to 0 to 1 in each ranking.
    MinMax,
    /// The weighted sum of standard scores: the difference from the ranking's mean, in standard deviations.
    ZScore,
    /// The weighted sum of unnormalised scores.
    Sum,
}

impl FusionMethod {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::ReciprocalRank, Self::MinMax, Self::ZScore, Self::Sum];
}

/// The options of rank fusion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct FusionOptions {
    /// How a passage's ranks or scores are combined.
    pub method: FusionMethod,
    /// The number of passages of each ranking to fuse, at least k.
    #[schemars(range(min = 1), extend("x-unit" = "passages"))]
    pub depth: usize,
    /// The constant added to a rank; a larger one reduces the weight of first ranks.
    #[schemars(range(min = 0))]
    pub constant: f32,
    /// The weight of each ranking, in order; equal by default. Not negative, and not all 0.
    #[schemars(inner(range(min = 0)))]
    pub weights: Vec<f32>,
}

impl Default for FusionOptions {
    /// Reciprocal ranks with a constant of 60, as in the paper, over the best 100 of each ranking.
    fn default() -> Self {
        Self { method: FusionMethod::ReciprocalRank, depth: 100, constant: 60.0, weights: Vec::new() }
    }
}

impl FusionOptions {
    /// Checks the options for that number of rankings.
    ///
    /// # Errors
    /// [`Error::Option`] naming the wrong option.
    pub fn check(&self, rankings: usize) -> Result<()> {
        let wrong = |option, expected, found: String| Err(Error::Option { option, expected, found });
        if self.depth == 0 {
            return wrong("depth", "at least 1", "0".into());
        }
        if !(self.constant.is_finite() && self.constant >= 0.0) {
            return wrong("constant", "a number from 0", self.constant.to_string());
        }
        if !self.weights.is_empty() && self.weights.len() != rankings {
            let found = format!("{} for {rankings} parts", self.weights.len());
            return wrong("weights", "one for each part", found);
        }
        let usable = |weight: &f32| weight.is_finite() && *weight >= 0.0;
        if !self.weights.iter().all(usable)
            || self.weights.iter().sum::<f32>() == 0.0 && !self.weights.is_empty()
        {
            return wrong("weights", "numbers from 0, not all of them 0", format!("{:?}", self.weights));
        }
        Ok(())
    }

    /// Fuses several rankings of one query, each best first. Returns all their passages, best first, ties by
    /// ascending id.
    pub fn fuse(&self, rankings: &[&[Hit]]) -> Vec<Hit> {
        let mut scores: FxHashMap<PassageId, f32> = FxHashMap::default();
        // The sum for passages missing in every ranking; listed ones add the difference.
        let mut unlisted = 0.0;
        for (at, ranking) in rankings.iter().enumerate() {
            let weight = self.weights.get(at).copied().unwrap_or(1.0);
            let ranking = &ranking[..ranking.len().min(self.depth)];
            let values = self.values(ranking);
            let last = match self.method {
                FusionMethod::ReciprocalRank => 0.0,
                _ => values.last().copied().unwrap_or(0.0),
            };
            unlisted += weight * last;
            for (hit, value) in ranking.iter().zip(values) {
                *scores.entry(hit.passage).or_insert(0.0) += weight * (value - last);
            }
        }
        let mut fused: Vec<Hit> =
            scores.into_iter().map(|(passage, score)| Hit { passage, score: score + unlisted }).collect();
        sort(&mut fused);
        fused
    }

    /// The unweighted value of each passage in a ranking.
    fn values(&self, ranking: &[Hit]) -> Vec<f32> {
        let scores = ranking.iter().map(|hit| hit.score);
        match self.method {
            FusionMethod::ReciprocalRank => {
                (1..=ranking.len()).map(|rank| 1.0 / (self.constant + rank as f32)).collect()
            }
            FusionMethod::Sum => scores.collect(),
            FusionMethod::MinMax => {
                let (Some(best), Some(worst)) = (ranking.first(), ranking.last()) else { return Vec::new() };
                let span = best.score - worst.score;
                // With equal scores, each is the best.
                scores.map(|score| if span > 0.0 { (score - worst.score) / span } else { 1.0 }).collect()
            }
            FusionMethod::ZScore => {
                let count = ranking.len() as f32;
                let mean = scores.clone().sum::<f32>() / count;
                let variance = scores.clone().map(|score| (score - mean).powi(2)).sum::<f32>() / count;
                let deviation = variance.sqrt();
                scores.map(|score| if deviation > 0.0 { (score - mean) / deviation } else { 0.0 }).collect()
            }
        }
    }
}

/// Best first, ties by ascending id.
pub(crate) fn sort(hits: &mut [Hit]) {
    hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
}

/// The best `k` of hits in parts of the passages, best first, ties by ascending passage.
pub(crate) fn best_of_parts(mut hits: Vec<Hit>, k: usize) -> Vec<Hit> {
    hits.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
    hits.truncate(k);
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(hits: &[(u32, f32)]) -> Vec<Hit> {
        hits.iter().map(|&(id, score)| Hit { passage: PassageId(id), score }).collect()
    }

    fn fused(options: &FusionOptions, rankings: &[Vec<Hit>]) -> Vec<(u32, f32)> {
        let rows: Vec<&[Hit]> = rankings.iter().map(Vec::as_slice).collect();
        options.fuse(&rows).iter().map(|hit| (hit.passage.0, hit.score)).collect()
    }

    fn near(found: &[(u32, f32)], expected: &[(u32, f32)]) {
        let ids = |hits: &[(u32, f32)]| hits.iter().map(|hit| hit.0).collect::<Vec<_>>();
        assert_eq!(ids(found), ids(expected));
        for (found, expected) in found.iter().zip(expected) {
            assert!((found.1 - expected.1).abs() < 1e-6, "{found:?} is not {expected:?}");
        }
    }

    #[test]
    fn reciprocal_ranks_are_added_and_ties_go_by_id() {
        let options = FusionOptions { constant: 1.0, ..FusionOptions::default() };
        let rankings = [ranking(&[(4, 9.0), (2, 8.0)]), ranking(&[(2, 0.3), (4, 0.2), (7, 0.1)])];
        // 1/2 + 1/3 for both of 2 and 4, 1/4 for 7, which only the second lists.
        near(&fused(&options, &rankings), &[(2, 5.0 / 6.0), (4, 5.0 / 6.0), (7, 0.25)]);
        let weighted = FusionOptions { weights: vec![3.0, 1.0], ..options };
        near(&fused(&weighted, &rankings), &[(4, 3.0 / 2.0 + 1.0 / 3.0), (2, 1.5), (7, 0.25)]);
    }

    #[test]
    fn scores_are_stretched_and_what_is_not_listed_counts_as_last() {
        let options = FusionOptions { method: FusionMethod::MinMax, ..FusionOptions::default() };
        let rankings = [ranking(&[(1, 10.0), (2, 6.0), (3, 2.0)]), ranking(&[(3, 0.9), (9, 0.5)])];
        // First ranking: 1, 0.5, 0, and 0 for 9. Second: 1 for 3, 0 for 9, and 0 for 1 and 2.
        near(&fused(&options, &rankings), &[(1, 1.0), (3, 1.0), (2, 0.5), (9, 0.0)]);
        let z = FusionOptions { method: FusionMethod::ZScore, ..FusionOptions::default() };
        // Second ranking: mean 0.7, deviation 0.2, so 1 and -1; first: 6 and sqrt(32/3).
        let unit = 4.0 / (32.0f32 / 3.0).sqrt();
        near(&fused(&z, &rankings), &[(1, unit - 1.0), (3, 1.0 - unit), (2, -1.0), (9, -unit - 1.0)]);
        let sum = FusionOptions { method: FusionMethod::Sum, ..FusionOptions::default() };
        near(&fused(&sum, &rankings), &[(1, 10.5), (2, 6.5), (3, 2.9), (9, 2.5)]);
    }

    #[test]
    fn only_the_first_of_each_ranking_take_part() {
        let options = FusionOptions { depth: 1, constant: 0.0, ..FusionOptions::default() };
        near(
            &fused(&options, &[ranking(&[(5, 2.0), (1, 1.0)]), ranking(&[(1, 2.0)])]),
            &[(1, 1.0), (5, 1.0)],
        );
        near(&fused(&options, &[Vec::new(), Vec::new()]), &[]);
    }

    #[test]
    fn options_that_fit_no_rankings_are_refused() {
        let option = |options: FusionOptions| match options.check(2) {
            Err(Error::Option { option, .. }) => option,
            other => panic!("{other:?}"),
        };
        let with = |weights: &[f32]| FusionOptions { weights: weights.into(), ..FusionOptions::default() };
        assert_eq!(option(with(&[1.0])), "weights");
        assert_eq!(option(with(&[0.0, 0.0])), "weights");
        assert_eq!(option(with(&[1.0, -1.0])), "weights");
        assert_eq!(option(FusionOptions { depth: 0, ..FusionOptions::default() }), "depth");
        assert_eq!(option(FusionOptions { constant: f32::NAN, ..FusionOptions::default() }), "constant");
        with(&[0.0, 2.0]).check(2).unwrap();
    }
}
