//! The number of predicted items, compared with the scoring depths.

use serde::{Deserialize, Serialize};

/// The number of different evidence items in predictions.
///
/// Items are equal if their rank keys are equal, pages by default. Items that lack a part of the key do not
/// count. Predictions without a gold record are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Depth {
    /// The smallest number in a prediction.
    pub min: usize,
    /// The largest number in a prediction.
    pub max: usize,
    /// The requested depths greater than `max`, ascending: no prediction has that many items.
    pub beyond: Vec<usize>,
}

impl Depth {
    /// From the counts of all predictions, and the scoring depths.
    pub(super) fn new(held: impl Iterator<Item = f64> + Clone, ks: &[usize]) -> Self {
        // Counts are exact as floats.
        let min = held.clone().fold(f64::INFINITY, f64::min);
        let max = held.fold(0.0, f64::max) as usize;
        let mut beyond: Vec<usize> = ks.iter().copied().filter(|&k| k > max).collect();
        beyond.sort_unstable();
        beyond.dedup();
        Self { min: if min.is_finite() { min as usize } else { 0 }, max, beyond }
    }

    /// A note about depths beyond the predictions. `items` names the ranked items, such as `pages`. None if
    /// there are none.
    pub fn note(&self, items: &str) -> Option<String> {
        let names: Vec<String> = self
            .beyond
            .iter()
            .map(|k| if *k == 1 { "precision@1".to_owned() } else { format!("recall@{k}") })
            .collect();
        let (last, before) = names.split_last()?;
        let (names, look) = match before {
            [] => (last.clone(), "looks"),
            _ => (format!("{} and {last}", before.join(", ")), "look"),
        };
        let items = if self.max == 1 { items.trim_end_matches('s') } else { items };
        Some(format!("predictions hold {} {items} at most; {names} {look} beyond them", self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_beyond_the_deepest_prediction_are_reported() {
        let depth = Depth::new([3.0, 20.0, 0.0].into_iter(), &[100, 20, 5, 50, 100]);
        assert_eq!(depth, Depth { min: 0, max: 20, beyond: vec![50, 100] });
        let expected = "predictions hold 20 pages at most; recall@50 and recall@100 look beyond them";
        assert_eq!(depth.note("pages").as_deref(), Some(expected));
        assert_eq!(Depth::new([3.0, 20.0].into_iter(), &[1, 20]).note("pages"), None);
        let expected = "predictions hold 1 page at most; recall@6 looks beyond them";
        assert_eq!(Depth::new([1.0].into_iter(), &[1, 6]).note("pages").as_deref(), Some(expected));
        let empty = Depth::new([0.0].into_iter(), &[1, 5, 10]);
        assert_eq!((empty.min, empty.max, empty.beyond.len()), (0, 0, 3));
        assert!(
            empty.note("places").unwrap().contains("0 places at most; precision@1, recall@5 and recall@10")
        );
    }
}
