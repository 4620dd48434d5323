//! Pooling by page: every passage gets the best or the mean score of the passages of its page.
//!
//! A sentence next to a relevant one is more likely to be relevant itself.

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use sporran_kilt::Passage;

/// The pooling of the scores of a page's passages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PagePool {
    /// The highest score.
    Best,
    /// The mean score.
    Mean,
}

impl PagePool {
    /// The pooled score of each passage's page, over the `passages` of that page.
    #[must_use]
    pub fn pool(self, passages: &[&Passage], scores: &[f32]) -> Vec<f32> {
        let mut pages: FxHashMap<&str, (f32, f32, f32)> = FxHashMap::default();
        for (passage, &score) in passages.iter().zip(scores) {
            let page = pages.entry(passage.page_id.as_str()).or_insert((f32::NEG_INFINITY, 0.0, 0.0));
            *page = (page.0.max(score), page.1 + score, page.2 + 1.0);
        }
        let pooled = |passage: &&Passage| {
            let (best, sum, count) = pages[passage.page_id.as_str()];
            match self {
                Self::Best => best,
                Self::Mean => sum / count,
            }
        };
        passages.iter().map(pooled).collect()
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::PassageId;

    use super::*;

    #[test]
    fn passages_of_a_page_share_its_score() {
        let passage =
            |id: u32, page: &str| Passage { id: PassageId(id), page_id: page.into(), ..Passage::of_text("") };
        let passages = [passage(0, "a"), passage(1, "b"), passage(2, "a")];
        let passages: Vec<&Passage> = passages.iter().collect();
        assert_eq!(PagePool::Best.pool(&passages, &[1.0, 9.0, 4.0]), [4.0, 9.0, 4.0]);
        assert_eq!(PagePool::Mean.pool(&passages, &[1.0, 9.0, 4.0]), [2.5, 9.0, 2.5]);
    }
}
