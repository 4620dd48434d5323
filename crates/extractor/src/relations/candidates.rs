//! Candidate pairs of mentions.

use sporran_transformers::StatePair;

use super::Known;
use crate::{EntityType, Mention, MentionForm};

/// A sentence with its mentions and the ordered pairs that may be a fact's subject and object.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// The index of the sentence in its document.
    pub sentence: usize,
    /// Its mentions, as indices into the document's.
    pub mentions: Vec<usize>,
    /// Subject and object as indices into `mentions`, with features besides the text.
    pub pairs: Vec<StatePair>,
    /// Knowledge about each of `mentions`; without chains and links until
    /// [`Background::annotate`](super::Background::annotate) adds them.
    pub known: Vec<Known>,
    /// For each of `pairs` the properties of a knowledge base from the subject's link to the object's.
    pub facts: Vec<Vec<String>>,
}

impl Candidates {
    /// The subject and the object of a pair, as indices into the document's mentions.
    #[must_use]
    pub fn ends(&self, pair: usize) -> (usize, usize) {
        let StatePair { first, second, .. } = self.pairs[pair];
        (self.mentions[first as usize], self.mentions[second as usize])
    }
}

/// Buckets of the distance of two mentions, for each order.
pub(super) const DISTANCES: u32 = 8;
/// Buckets of the number of mentions between them.
pub(super) const BETWEEN: u32 = 5;
/// Feature indices of [`pair_features`] are below this.
pub const FEATURES: usize = (2 * DISTANCES + BETWEEN) as usize;

/// The candidates of a document's sentences. Sentences with fewer than two mentions are skipped. `mentions`
/// are in text order. A date is no subject, and overlapping mentions are no pair.
#[must_use]
pub fn sentences(mentions: &[Mention]) -> Vec<Candidates> {
    let mut all = Vec::new();
    let mut start = 0;
    while start < mentions.len() {
        let sentence = mentions[start].sentence;
        let end = start + mentions[start..].iter().take_while(|mention| mention.sentence == sentence).count();
        let own = &mentions[start..end];
        let mut pairs = Vec::new();
        for first in 0..own.len() {
            for second in 0..own.len() {
                let (subject, object) = (&own[first], &own[second]);
                let is_date = subject.kind == EntityType::Date && subject.form == MentionForm::Name;
                if first != second && !is_date && !subject.span.overlaps(object.span) {
                    let features = pair_features(own, first, second);
                    pairs.push(StatePair { first: first as u32, second: second as u32, features });
                }
            }
        }
        if !pairs.is_empty() {
            let (known, facts) = (vec![Known::default(); own.len()], vec![Vec::new(); pairs.len()]);
            all.push(Candidates { sentence, mentions: (start..end).collect(), pairs, known, facts });
        }
        start = end;
    }
    all
}

/// The bucket of a distance in tokens: 0, 1, 2, 3-4, 5-8, 9-16, 17-32, more.
pub(super) fn distance_bucket(distance: usize) -> u32 {
    match distance {
        0..3 => distance as u32,
        // 3 and 4 give 3.
        _ => (2 + (distance - 1).ilog2()).min(DISTANCES - 1),
    }
}

/// Features of a pair of mentions besides the text: order, distance, and the number of mentions between.
#[must_use]
pub fn pair_features(mentions: &[Mention], first: usize, second: usize) -> Vec<u32> {
    let (left, right) = (&mentions[first.min(second)], &mentions[first.max(second)]);
    let bucket = distance_bucket(right.tokens.start.saturating_sub(left.tokens.end));
    let order = if first < second { 0 } else { DISTANCES };
    let between = (first.abs_diff(second) as u32 - 1).min(BETWEEN - 1);
    vec![order + bucket, 2 * DISTANCES + between]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, proposals};

    #[test]
    fn pairs_are_ordered_and_dates_are_no_subjects() {
        let document = Document::new("d", "Ann met Bob in 1999. Nobody knew. He left Rome.");
        let mentions = proposals(&document);
        let found = sentences(&mentions);
        let pairs: Vec<Vec<(u32, u32)>> = found
            .iter()
            .map(|candidates| candidates.pairs.iter().map(|pair| (pair.first, pair.second)).collect())
            .collect();
        // A sentence without mentions makes no pair.
        assert_eq!(pairs, [vec![(0, 1), (0, 2), (1, 0), (1, 2)], vec![(0, 1), (1, 0)]]);
        assert_eq!((found[0].sentence, found[1].sentence), (0, 2));
    }

    #[test]
    fn features_encode_order_and_distance() {
        let document = Document::new("d", "Ann met Bob in 1999, and then Cleo.");
        let mentions = proposals(&document);
        // One token between: bucket 1. Five tokens between Bob and Cleo, and the mention 1999.
        assert_eq!(pair_features(&mentions, 0, 1), [1, 16]);
        assert_eq!(pair_features(&mentions, 1, 0), [9, 16]);
        assert_eq!(pair_features(&mentions, 1, 3), [4, 17]);
        let all = sentences(&mentions);
        assert!(all[0].pairs.iter().flat_map(|pair| &pair.features).all(|&at| (at as usize) < FEATURES));
    }
}
