//! Hashed features of a pair of mentions for a linear model (Weinberger et al., 2009).
//!
//! They are those of feature-based relation extraction (Zhou et al., 2005). They cover the words of both
//! mentions and around them, n-grams and the sequence of the words between, the types and order of the
//! mentions, their distance, and the words of the sentence.

use sporran_transformers::StatePair;

use super::Candidates;
use crate::{Document, EntityType, Mention, MentionForm};

/// The largest number of words between two mentions; from longer gaps only the first and last few.
const BETWEEN: usize = 20;
const ENDS: usize = 6;
/// The number of context words around both mentions.
const AROUND: usize = 5;

/// A sentence prepared for its pairs.
pub(super) struct PreparedSentence<'a> {
    /// The hash of each word: lower-case words, numbers by length.
    words: Vec<u64>,
    lower: Vec<String>,
    shapes: Vec<u64>,
    mentions: Vec<Placed<'a>>,
    /// The features that all pairs share.
    common: Vec<u32>,
    buckets: u32,
}

/// A mention with its words, relative to the sentence.
struct Placed<'a> {
    start: usize,
    end: usize,
    mention: &'a Mention,
    /// A letter for its type.
    kind: u64,
    /// Its type, and the word of a pronoun.
    own: u64,
}

/// FNV-1a.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Combines hashes; the order matters.
fn mixed(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, part| {
        let mixed = (hash ^ part).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^ (mixed >> 32)
    })
}

/// Represents the positions before the first word and after the last.
const EDGE: u64 = 1;

impl<'a> PreparedSentence<'a> {
    pub(super) fn new(
        document: &'a Document,
        mentions: &'a [Mention],
        candidates: &Candidates,
        buckets: u32,
    ) -> Self {
        let tokens = document.sentences[candidates.sentence].tokens.clone();
        let lower: Vec<String> = tokens.clone().map(|at| document.word(at).to_lowercase()).collect();
        let words = lower.iter().map(|word| {
            if word.bytes().all(|byte| byte.is_ascii_digit()) {
                mixed(&[word.len() as u64])
            } else {
                hash(word)
            }
        });
        let words: Vec<u64> = words.collect();
        let shapes = tokens.clone().map(|at| {
            let word = document.word(at);
            u64::from(word.chars().count() > 1 && word.chars().all(char::is_uppercase))
        });
        let shapes = shapes.collect();
        let mut distinct = words.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let common =
            distinct.into_iter().map(|word| (mixed(&[100, word]) % u64::from(buckets)) as u32).collect();
        let placed = candidates.mentions.iter().map(|&at| {
            let mention = &mentions[at];
            let (start, end) = (mention.tokens.start - tokens.start, mention.tokens.end - tokens.start);
            let kind = kind(mention, &lower[start]);
            let own = if mention.form == MentionForm::Pronoun { mixed(&[kind, words[start]]) } else { kind };
            Placed { start, end, mention, kind, own }
        });
        let mentions = placed.collect();
        Self { words, lower, shapes, mentions, common, buckets }
    }

    /// The distinct feature indices of a pair, below the number of buckets, ascending.
    pub(super) fn features(&self, pair: &StatePair) -> Vec<u32> {
        let (subject, object) = (&self.mentions[pair.first as usize], &self.mentions[pair.second as usize]);
        let order = u64::from(subject.start < object.start);
        let (left, right) = if order == 1 { (subject, object) } else { (object, subject) };
        let mut found = self.common.clone();
        let mut add = |parts: &[u64]| found.push((mixed(parts) % u64::from(self.buckets)) as u32);
        let word = |at: Option<usize>| at.and_then(|at| self.words.get(at)).copied().unwrap_or(EDGE);

        let kinds = mixed(&[subject.kind, object.kind, order]);
        add(&[1, kinds]);
        add(&[2, subject.own, order]);
        add(&[3, object.own, order]);
        add(&[4, subject.own, object.own, order]);
        let between = left.end.min(right.start)..right.start;
        let far = match between.len() {
            distance @ 0..2 => distance as u64,
            2..4 => 2,
            4..8 => 3,
            8..16 => 4,
            _ => 5,
        };
        add(&[5, far, kinds]);
        let others = u64::from(pair.first.abs_diff(pair.second).min(5));
        add(&[6, others, order]);
        add(&[7, others, kinds]);

        let all = &self.words[between.clone()];
        if all.len() <= ENDS {
            add(&[8, order, mixed(all)]);
        }
        let cut: Vec<u64> = if all.len() <= BETWEEN {
            all.to_vec()
        } else {
            all[..ENDS].iter().chain(&all[all.len() - ENDS..]).copied().collect()
        };
        for word in &cut {
            add(&[9, order, *word]);
            add(&[10, kinds, *word]);
        }
        for two in cut.windows(2) {
            add(&[11, order, two[0], two[1]]);
        }
        for three in cut.windows(3) {
            add(&[12, order, three[0], three[1], three[2]]);
        }
        if let (Some(first), Some(last)) = (all.first(), all.last()) {
            add(&[13, order, *first]);
            add(&[14, order, *last]);
            add(&[15, order, mixed(&all[all.len().saturating_sub(2)..])]);
            add(&[16, kinds, mixed(&all[all.len().saturating_sub(3)..])]);
            add(&[17, order, mixed(&all[..all.len().min(2)])]);
        }
        for step in 1..4u64 {
            add(&[18, step, order, word(left.start.checked_sub(step as usize))]);
            add(&[19, step, order, word(Some(right.end - 1 + step as usize))]);
        }
        for near in &self.words[left.start.saturating_sub(AROUND)..left.start] {
            add(&[20, order, *near]);
        }
        for near in &self.words[right.end..(right.end + AROUND).min(self.words.len())] {
            add(&[21, order, *near]);
        }
        for (role, placed) in [(30, subject), (40, object)] {
            let (before, after) = (word(placed.start.checked_sub(1)), word(Some(placed.end)));
            add(&[role, placed.kind, before]);
            add(&[role + 1, placed.kind, after]);
            if placed.mention.form != MentionForm::Name || placed.mention.kind == EntityType::Date {
                continue;
            }
            let own = placed.start..placed.end;
            for at in own.clone() {
                add(&[role + 2, self.words[at]]);
                let lower = &self.lower[at];
                let ending = lower.char_indices().rev().nth(2).map_or(0, |(byte, _)| byte);
                add(&[role + 3, hash(&lower[ending..])]);
            }
            add(&[role + 4, own.len().min(4) as u64]);
            add(&[role + 5, mixed(&self.shapes[own.clone()][..own.len().min(3)])]);
            add(&[role + 6, mixed(&self.words[placed.start.saturating_sub(2)..placed.start])]);
            add(&[role + 7, kinds, self.words[placed.end - 1]]);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Separate classes for names, dates, personal pronouns and relative words.
fn kind(mention: &Mention, first: &str) -> u64 {
    match (mention.form, mention.kind) {
        (MentionForm::Pronoun, _) => match first {
            "who" | "whom" | "whose" => 2,
            "it" | "its" | "itself" => 3,
            "which" | "that" => 4,
            "where" => 5,
            _ => 6,
        },
        (MentionForm::Name, EntityType::Date) => 7,
        (MentionForm::Name, EntityType::Person) => 8,
        (MentionForm::Name, EntityType::Organisation) => 9,
        (MentionForm::Name, EntityType::Location) => 10,
        (MentionForm::Name, EntityType::Other) => 11,
        (MentionForm::Nominal, _) => 12,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{proposals, relations::sentences};

    fn features(text: &str) -> Vec<Vec<u32>> {
        let document = Document::new("d", text);
        let mentions = proposals(&document);
        let candidates = &sentences(&mentions)[0];
        let sentence = PreparedSentence::new(&document, &mentions, candidates, 1 << 17);
        candidates.pairs.iter().map(|pair| sentence.features(pair)).collect()
    }

    #[test]
    fn features_encode_order_and_words_and_are_reproducible() {
        let (one, other) = (features("Ann met Bob."), features("Ann left Bob."));
        assert_eq!(one, features("Ann met Bob."));
        let shared = |a: &[u32], b: &[u32]| a.iter().filter(|at| b.binary_search(at).is_ok()).count();
        assert!(one[0].is_sorted() && one[0].iter().all(|&at| at < 1 << 17));
        // The words of the name and the sentence are unchanged; the order and the words between differ.
        assert!(shared(&one[0], &one[1]) < one[0].len() / 2);
        assert!(shared(&one[0], &other[0]) > one[0].len() / 2 && one[0] != other[0]);
    }

    #[test]
    fn mentions_at_the_edges_and_of_strange_letters_have_features() {
        for text in ["Ann met Bob", "Ann 左 met Bob", "😀 Zoë met Ütö"] {
            assert!(features(text).iter().all(|features| features.len() > 20), "{text}");
        }
    }
}
