//! Features of titles and positions, without a model.

use rustc_hash::FxHashMap;
use sporran_kilt::{Passage, Query};

use crate::{Reranker, Result};

/// 1 if the query contains the passage's title, ignoring case, and 0 otherwise.
pub struct TitleMatch;

impl Reranker for TitleMatch {
    fn score(&self, query: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let text = query.text.to_lowercase();
        let named = |passage: &&Passage| {
            let title = passage.title.trim().to_lowercase();
            f32::from(u8::from(!title.is_empty() && text.contains(&title)))
        };
        Ok(passages.iter().map(named).collect())
    }
}

/// 1 for the first passage of a page in the list, 1/2 for the second, and so on. The first sentences of an article
/// summarise its topic.
pub struct PositionPrior;

impl Reranker for PositionPrior {
    fn score(&self, _: &Query, passages: &[&Passage]) -> Result<Vec<f32>> {
        let mut counts: FxHashMap<&str, u32> = FxHashMap::default();
        let mut scores = Vec::with_capacity(passages.len());
        for passage in passages {
            let count = counts.entry(passage.page_id.as_str()).or_default();
            *count += 1;
            scores.push(1.0 / *count as f32);
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::PassageId;

    use super::*;

    #[test]
    fn titles_match_in_any_case_and_positions_are_counted_by_page() {
        let passage = |id: u32, title: &str| Passage {
            id: PassageId(id),
            page_id: title.into(),
            title: title.into(),
            ..Passage::of_text("Tea.")
        };
        let passages = [passage(0, "Tea"), passage(1, "Élan"), passage(2, "Tea"), passage(3, "")];
        let passages: Vec<&Passage> = passages.iter().collect();
        let query = Query::of_text("q", "Do you like\nTEA with élan?");
        assert_eq!(TitleMatch.score(&query, &passages).unwrap(), [1.0, 1.0, 1.0, 0.0]);
        assert_eq!(PositionPrior.score(&query, &passages).unwrap(), [1.0, 1.0, 0.5, 1.0]);
    }
}
