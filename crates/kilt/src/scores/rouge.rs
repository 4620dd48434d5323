//! ROUGE-L as in PyPI's `rouge` 1.0.1, which KILT's scorer uses.
//!
//! That package deviates from Lin (2004), with visible differences. Sentences end at every full stop. `n`,
//! `m` and the matches count *distinct* words. The union over sentence pairs is over the whole text. A blank
//! sentence is one empty word. The harmonic mean has 1e-8 in its denominator. The union depends on which
//! longest common subsequence is chosen, so its backtracking order is kept too.

use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::is_space;

/// The f of ROUGE-L; 0 if either text has no sentence, that is, only full stops.
///
/// ```
/// use sporran_kilt::scores::rouge_l;
///
/// assert!((rouge_l("Oslo is in Norway", "Oslo lies in Norway") - 0.75).abs() < 1e-6);
/// ```
pub fn rouge_l(hypothesis: &str, reference: &str) -> f64 {
    let mut rouge = Rouge::default();
    rouge.read(hypothesis);
    rouge.score(reference)
}

/// A hypothesis that is scored against several references, with reusable buffers.
#[derive(Default)]
pub(super) struct Rouge {
    text: String,
    words: Words,
    /// Distinct words of the hypothesis; their ids come first.
    own: usize,
    hypothesis: Sentences,
    reference: Sentences,
    /// By id: whether the reference has the word, and whether a common subsequence does.
    seen: Vec<bool>,
    matched: Vec<bool>,
    /// By id: the positions of the word in one sentence of the hypothesis, as bits; all 0 between uses.
    places: Vec<u64>,
    table: Vec<u64>,
}

/// Word ids, sentence by sentence.
#[derive(Default)]
struct Sentences {
    ids: Vec<usize>,
    /// The end of each sentence in `ids`.
    ends: Vec<usize>,
}

impl Sentences {
    fn clear(&mut self) {
        self.ids.clear();
        self.ends.clear();
    }

    fn iter(&self) -> impl Iterator<Item = &[usize]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.ids[start..end])
    }
}

/// The words of each sentence; a sentence of blanks has one empty word.
fn sentences(text: &str) -> impl Iterator<Item = impl Iterator<Item = &str>> {
    text.split('.').filter(|sentence| !sentence.is_empty()).map(|sentence| {
        let mut words = sentence.split(is_space).filter(|word| !word.is_empty()).peekable();
        let blank = words.peek().is_none().then_some("");
        words.chain(blank)
    })
}

/// Numbers distinct words of a hypothesis and of a reference. It stores their positions, not their text.
#[derive(Default)]
struct Words {
    entries: Vec<Entry>,
    /// Open addressing: an id plus one, or 0 for a free slot. At most half are used.
    slots: Vec<usize>,
}

struct Entry {
    hash: u64,
    slot: usize,
    in_reference: bool,
    start: usize,
    end: usize,
}

impl Words {
    /// The id of a word of `texts[in_reference]`, new if neither text had it before.
    fn id(&mut self, word: &str, in_reference: bool, texts: [&str; 2]) -> usize {
        if self.slots.len() < 2 * (self.entries.len() + 1) {
            self.grow();
        }
        let hash = FxBuildHasher.hash_one(word);
        let mut slot = self.first(hash);
        while let Some(id) = self.slots[slot].checked_sub(1) {
            let entry = &self.entries[id];
            if entry.hash == hash && &texts[usize::from(entry.in_reference)][entry.start..entry.end] == word {
                return id;
            }
            slot = (slot + 1) % self.slots.len();
        }
        // The empty word of a blank sentence is no slice of the text; any empty range represents it.
        let text = texts[usize::from(in_reference)];
        let start = if word.is_empty() { 0 } else { word.as_ptr() as usize - text.as_ptr() as usize };
        self.slots[slot] = self.entries.len() + 1;
        self.entries.push(Entry { hash, slot, in_reference, start, end: start + word.len() });
        self.entries.len() - 1
    }

    /// The number of slots is a power of two.
    fn first(&self, hash: u64) -> usize {
        // Fx mixes upwards: its high bits are better.
        (hash >> 32) as usize & (self.slots.len() - 1)
    }

    fn grow(&mut self) {
        let size = (2 * self.slots.len()).max(64);
        self.slots.clear();
        self.slots.resize(size, 0);
        for at in 0..self.entries.len() {
            let mut slot = self.first(self.entries[at].hash);
            while self.slots[slot] != 0 {
                slot = (slot + 1) % size;
            }
            self.slots[slot] = at + 1;
            self.entries[at].slot = slot;
        }
    }

    /// Removes all words except the first `count`. Later ones were inserted last, so no probe sequence
    /// crosses their slots.
    fn keep(&mut self, count: usize) {
        for entry in self.entries.drain(count..) {
            self.slots[entry.slot] = 0;
        }
    }
}

impl Rouge {
    pub(super) fn read(&mut self, hypothesis: &str) {
        self.text.clear();
        self.text.push_str(hypothesis);
        self.words.keep(0);
        self.hypothesis.clear();
        for sentence in sentences(hypothesis) {
            self.hypothesis.ids.extend(sentence.map(|word| self.words.id(word, false, [hypothesis, ""])));
            self.hypothesis.ends.push(self.hypothesis.ids.len());
        }
        self.own = self.words.entries.len();
    }

    /// The f against a reference, for the last hypothesis.
    pub(super) fn score(&mut self, reference: &str) -> f64 {
        if self.own == 0 {
            return 0.0;
        }
        if reference == self.text {
            // Each sentence is its longest common subsequence, so all words are shared.
            return 2.0 * (1.0 / (2.0 + 1e-8));
        }
        let own = self.own;
        self.seen.clear();
        self.seen.resize(own, false);
        self.matched.clear();
        self.matched.resize(own, false);
        self.reference.clear();
        for sentence in sentences(reference) {
            for word in sentence {
                let id = self.words.id(word, true, [&self.text, reference]);
                if id < own {
                    self.seen[id] = true;
                }
                self.reference.ids.push(id);
            }
            self.reference.ends.push(self.reference.ids.len());
        }
        let foreign = self.words.entries.len() - own;
        self.words.keep(own);
        let Self { hypothesis, reference, seen, matched, places, table, .. } = self;
        if reference.ends.is_empty() {
            return 0.0;
        }
        if seen.contains(&true) {
            for sentence in hypothesis.iter() {
                let blocks = sentence.len().div_ceil(64);
                if places.len() < own * blocks {
                    places.resize(own * blocks, 0);
                }
                for (at, &word) in sentence.iter().enumerate() {
                    places[word * blocks + at / 64] |= 1 << (at % 64);
                }
                for other in reference.iter() {
                    trace_common(other, sentence, own, places, table, matched);
                }
                for &word in sentence {
                    places[word * blocks..(word + 1) * blocks].fill(0);
                }
            }
        }
        let count = |flags: &[bool]| flags.iter().filter(|&&flag| flag).count() as f64;
        let common = count(matched);
        let recall = common / (count(seen) + foreign as f64);
        let precision = common / own as f64;
        2.0 * ((precision * recall) / (precision + recall + 1e-8))
    }
}

/// Marks the words of the longest common subsequence of two sentences, one of the reference and one of the
/// hypothesis. Ids from `own` on are words that the hypothesis lacks. `places` has the bits of the
/// hypothesis' sentence.
///
/// The table of lengths has one bit a cell (Crochemore et al., 2001): bit j of row i is 0 if the length grows
/// between columns j and j+1. Backtracking needs no more. On a mismatch, the length above is greater than the
/// one to the left exactly if the cell itself is greater than the one to its left.
fn trace_common(
    reference: &[usize],
    hypothesis: &[usize],
    own: usize,
    places: &[u64],
    table: &mut Vec<u64>,
    matched: &mut [bool],
) {
    let blocks = hypothesis.len().div_ceil(64);
    table.clear();
    table.resize((reference.len() + 1) * blocks, u64::MAX);
    for (at, &word) in reference.iter().enumerate() {
        let (above, below) = table.split_at_mut((at + 1) * blocks);
        let (above, below) = (&above[at * blocks..], &mut below[..blocks]);
        if word >= own {
            below.copy_from_slice(above);
            continue;
        }
        let mut carry = false;
        for ((&old, new), &places) in above.iter().zip(below).zip(&places[word * blocks..(word + 1) * blocks])
        {
            let (sum, first) = old.overflowing_add(old & places);
            let (sum, second) = sum.overflowing_add(carry.into());
            carry = first || second;
            *new = sum | (old & !places);
        }
    }
    let (mut i, mut j) = (reference.len(), hypothesis.len());
    while i > 0 && j > 0 {
        let word = hypothesis[j - 1];
        if reference[i - 1] == word {
            matched[word] = true;
            (i, j) = (i - 1, j - 1);
        } else if table[i * blocks + (j - 1) / 64] >> ((j - 1) % 64) & 1 == 0 {
            i -= 1;
        } else {
            j -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The package's algorithm: the whole table, and its backtracking order.
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
    fn a_buffer_scores_as_a_new_one_does() {
        let texts = ["a b c. d e", "x", "", "a a. b", "c . d e f g h", "e d c b a", "a b c. d e"];
        let mut rouge = Rouge::default();
        for hypothesis in texts {
            rouge.read(hypothesis);
            for reference in texts {
                let ours = rouge.score(reference);
                assert_eq!(ours, rouge_l(hypothesis, reference), "{hypothesis}|{reference}");
            }
        }
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
