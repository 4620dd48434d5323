//! The mean reciprocal rank, the validation score of encoders that rank passages.

use sporran_checkpoint::Result;
use sporran_transformers::EncoderRow;

/// A query and its passages as token rows.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidationList {
    /// The input of the encoder, such as a row for each pair of the query and a passage.
    pub rows: Vec<EncoderRow>,
    /// The number of positive passages. They precede the negative passages.
    pub positives: usize,
}

/// The mean reciprocal rank of the first positive passage. `score` returns one score for each passage of a list. Among equal
/// scores the positive passage ranks last.
///
/// # Errors
/// Errors of `score`.
pub fn mean_reciprocal_rank(
    lists: &[ValidationList],
    score: impl Fn(&[EncoderRow]) -> Result<Vec<f32>>,
) -> Result<f64> {
    let mut sum = 0.0;
    for list in lists {
        let scores = score(&list.rows)?;
        let (positives, negatives) = scores.split_at(list.positives);
        let best = positives.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let before = negatives.iter().filter(|&&other| other >= best).count();
        sum += 1.0 / (before + 1) as f64;
    }
    Ok(sum / lists.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_answer_counts_and_ties_do_not_help() {
        let row = |id: u32| EncoderRow { ids: vec![id], types: vec![0] };
        let list = |ids: &[u32], positives| ValidationList {
            rows: ids.iter().map(|&id| row(id)).collect(),
            positives,
        };
        // The score of a row is its token.
        let score = |rows: &[EncoderRow]| Ok(rows.iter().map(|row| row.ids[0] as f32).collect());
        // Rank 1; the better of two positives has rank 2; a tie with a negative has rank 2.
        let lists = [list(&[9, 1, 2], 1), list(&[1, 5, 7, 2], 2), list(&[4, 4], 1)];
        let found = mean_reciprocal_rank(&lists, score).unwrap();
        assert!((found - (1.0 + 0.5 + 0.5) / 3.0).abs() < 1e-12, "{found}");
    }
}
