//! ROUGE-L as PyPI's `rouge` 1.0.1 defines it, which is what KILT's scorer calls.
//!
//! That package departs from Lin (2004) in ways that show in the digits: sentences end at every full stop; `n`, `m` and
//! the matches count *distinct* words; the union over sentence pairs runs over the whole text; a sentence of blanks is
//! one empty word; and the harmonic mean has 1e-8 in its denominator. Which of several longest common subsequences is
//! taken decides the union, so its order of tracing back is kept too.

use rustc_hash::FxHashMap;

use super::is_space;

/// The f of ROUGE-L; 0 where either text has no sentence, that is, nothing but full stops.
pub fn rouge_l(hypothesis: &str, reference: &str) -> f64 {
    Hypothesis::new(hypothesis).score(reference)
}

/// A hypothesis that is scored against several references.
pub(super) struct Hypothesis<'a> {
    text: &'a str,
    /// Distinct words to dense ids.
    ids: FxHashMap<&'a str, usize>,
    sentences: Vec<Sentence>,
    /// Buffers of one scoring: a sentence of the reference, and which words it has and shares.
    row: Vec<Option<usize>>,
    seen: Vec<bool>,
    matched: Vec<bool>,
    table: Vec<u64>,
}

/// Where each word stands in one sentence, as bits.
struct Sentence {
    words: Vec<usize>,
    /// By word id: where its positions start in `positions`, if the sentence has it.
    slots: Vec<Option<usize>>,
    /// `blocks` words of 64 bits for each distinct word of the sentence.
    positions: Vec<u64>,
    blocks: usize,
}

/// The words of each sentence; a sentence of blanks has one empty word.
fn sentences(text: &str) -> impl Iterator<Item = impl Iterator<Item = &str>> {
    text.split('.').filter(|sentence| !sentence.is_empty()).map(|sentence| {
        let mut words = sentence.split(is_space).filter(|word| !word.is_empty()).peekable();
        let blank = words.peek().is_none().then_some("");
        words.chain(blank)
    })
}

impl<'a> Hypothesis<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut ids = FxHashMap::with_capacity_and_hasher(text.len() / 6 + 1, Default::default());
        let words: Vec<Vec<usize>> = sentences(text)
            .map(|sentence| {
                sentence
                    .map(|word| {
                        let next = ids.len();
                        *ids.entry(word).or_insert(next)
                    })
                    .collect()
            })
            .collect();
        let sentences = words.into_iter().map(|words| Sentence::new(words, ids.len())).collect();
        let (seen, matched) = (vec![false; ids.len()], vec![false; ids.len()]);
        Self { text, ids, sentences, row: Vec::new(), seen, matched, table: Vec::new() }
    }

    pub(super) fn score(&mut self, reference: &str) -> f64 {
        if self.sentences.is_empty() {
            return 0.0;
        }
        if reference == self.text {
            // Each sentence is its own longest common subsequence, so every word is shared.
            return 2.0 * (1.0 / (2.0 + 1e-8));
        }
        let Self { row, seen, matched, table, .. } = self;
        seen.fill(false);
        matched.fill(false);
        let mut foreign: Vec<&str> = Vec::new();
        let mut any = false;
        for sentence in sentences(reference) {
            any = true;
            row.clear();
            for word in sentence {
                let id = self.ids.get(word).copied();
                match id {
                    Some(id) => seen[id] = true,
                    None => foreign.push(word),
                }
                row.push(id);
            }
            if row.iter().any(Option::is_some) {
                for own in &self.sentences {
                    own.trace_common(row, matched, table);
                }
            }
        }
        if !any {
            return 0.0;
        }
        foreign.sort_unstable();
        foreign.dedup();
        let count = |flags: &[bool]| flags.iter().filter(|&&flag| flag).count() as f64;
        let common = count(matched);
        let recall = common / (count(seen) + foreign.len() as f64);
        let precision = common / self.ids.len() as f64;
        2.0 * ((precision * recall) / (precision + recall + 1e-8))
    }
}

impl Sentence {
    fn new(words: Vec<usize>, vocabulary: usize) -> Self {
        let blocks = words.len().div_ceil(64);
        let mut slots = vec![None; vocabulary];
        let mut positions = Vec::new();
        for (at, &word) in words.iter().enumerate() {
            let slot = *slots[word].get_or_insert_with(|| {
                let slot = positions.len();
                positions.resize(slot + blocks, 0);
                slot
            });
            positions[slot + at / 64] |= 1 << (at % 64);
        }
        Self { words, slots, positions, blocks }
    }

    /// Marks the words of the longest common subsequence with `reference` (ids, `None` for words that no sentence of
    /// the hypothesis has).
    ///
    /// The table of lengths is kept as one bit a cell (Crochemore et al., 2001): bit j of row i is 0 where the length
    /// grows between columns j and j+1. Tracing back from the end needs no more: on a mismatch, the length above is
    /// greater than the one to the left exactly where the cell itself is greater than the one to its left.
    fn trace_common(&self, reference: &[Option<usize>], matched: &mut [bool], table: &mut Vec<u64>) {
        let slot = |word: Option<usize>| word.and_then(|id| self.slots[id]);
        if !reference.iter().any(|&word| slot(word).is_some()) {
            return;
        }
        let blocks = self.blocks;
        table.clear();
        table.resize((reference.len() + 1) * blocks, u64::MAX);
        for (at, &word) in reference.iter().enumerate() {
            let (above, below) = table.split_at_mut((at + 1) * blocks);
            let (above, below) = (&above[at * blocks..], &mut below[..blocks]);
            let Some(slot) = slot(word) else {
                below.copy_from_slice(above);
                continue;
            };
            let mut carry = false;
            for ((&old, new), &positions) in above.iter().zip(below).zip(&self.positions[slot..slot + blocks])
            {
                let (sum, first) = old.overflowing_add(old & positions);
                let (sum, second) = sum.overflowing_add(carry.into());
                carry = first || second;
                *new = sum | (old & !positions);
            }
        }
        let (mut i, mut j) = (reference.len(), self.words.len());
        while i > 0 && j > 0 {
            let word = self.words[j - 1];
            if reference[i - 1] == Some(word) {
                matched[word] = true;
                (i, j) = (i - 1, j - 1);
            } else if table[i * blocks + (j - 1) / 64] >> ((j - 1) % 64) & 1 == 0 {
                i -= 1;
            } else {
                j -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The package's way: the whole table, and its order of tracing back.
    fn plain(hypothesis: &str, reference: &str) -> f64 {
        let split = |text: &str| -> Vec<Vec<String>> {
            sentences(text).map(|words| words.map(str::to_owned).collect()).collect()
        };
        let distinct = |all: &[Vec<String>]| {
            let mut words: Vec<&String> = all.iter().flatten().collect();
            words.sort();
            words.dedup();
            words.len() as f64
        };
        let (hypothesis, reference) = (split(hypothesis), split(reference));
        if hypothesis.is_empty() || reference.is_empty() {
            return 0.0;
        }
        let mut union = std::collections::BTreeSet::new();
        for x in &reference {
            for y in &hypothesis {
                let mut table = vec![vec![0usize; y.len() + 1]; x.len() + 1];
                for i in 1..=x.len() {
                    for j in 1..=y.len() {
                        table[i][j] = if x[i - 1] == y[j - 1] {
                            table[i - 1][j - 1] + 1
                        } else {
                            table[i - 1][j].max(table[i][j - 1])
                        };
                    }
                }
                let (mut i, mut j) = (x.len(), y.len());
                while i > 0 && j > 0 {
                    if x[i - 1] == y[j - 1] {
                        union.insert(&x[i - 1]);
                        (i, j) = (i - 1, j - 1);
                    } else if table[i - 1][j] > table[i][j - 1] {
                        i -= 1;
                    } else {
                        j -= 1;
                    }
                }
            }
        }
        let common = union.len() as f64;
        let (recall, precision) = (common / distinct(&reference), common / distinct(&hypothesis));
        2.0 * (precision * recall / (precision + recall + 1e-8))
    }

    #[test]
    fn words_count_once_and_order_matters() {
        // Common subsequence "the cat sat": 3 of 4 distinct words of the hypothesis, 3 of 5 of the reference.
        let (precision, recall) = (3.0 / 4.0, 3.0 / 5.0);
        let expected = 2.0 * precision * recall / (precision + recall + 1e-8);
        assert!((rouge_l("the cat sat the down", "the old cat sat up") - expected).abs() < 1e-12);
        // Only one word of two in common order.
        assert!((rouge_l("b a", "a b") - 0.5).abs() < 1e-8);
    }

    #[test]
    fn text_of_full_stops_has_no_sentence() {
        assert_eq!(rouge_l("...", "a"), 0.0);
        assert_eq!(rouge_l("a", "."), 0.0);
        assert_eq!(rouge_l("", "a"), 0.0);
    }

    #[test]
    fn a_blank_sentence_is_one_empty_word() {
        // {a, b, ""} against {a, ""}: 2 of 3 and 2 of 2.
        let expected = 2.0 * (2.0 / 3.0) / (2.0 / 3.0 + 1.0 + 1e-8);
        assert!((rouge_l("a . . b", "a. .") - expected).abs() < 1e-12);
    }

    #[test]
    fn bits_agree_with_the_whole_table() {
        use rand::{Rng, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(7);
        for round in 0..400 {
            let mut text = |longest: usize| -> String {
                let words = random.random_range(0..longest);
                let letters = random.random_range(2..9);
                let word = |_| {
                    let letter = char::from(b'a' + random.random_range(0..letters));
                    if random.random_bool(0.05) { format!("{letter}. ") } else { format!("{letter} ") }
                };
                (0..words).map(word).collect()
            };
            let longest = if round % 4 == 0 { 300 } else { 20 };
            let (hypothesis, reference) = (text(longest), text(longest));
            assert_eq!(
                rouge_l(&hypothesis, &reference),
                plain(&hypothesis, &reference),
                "{hypothesis}|{reference}"
            );
        }
    }
}
