//! Words as rows of a hashed embedding table. There is no vocabulary, so no word is unknown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The word features of the BiLSTM tagger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct WordFeatures {
    /// The number of rows, which words and parts of words share by hash.
    #[schemars(range(min = 1))]
    pub buckets: usize,
    /// The size of a row.
    #[schemars(range(min = 1))]
    pub width: usize,
}

impl Default for WordFeatures {
    fn default() -> Self {
        Self { buckets: 1 << 15, width: 48 }
    }
}

/// Groups of rows whose means are concatenated to a word's vector: the word, its parts, its shape.
pub(crate) const GROUPS: usize = 3;
/// The number of flags after the groups.
pub(super) const FLAGS: usize = 8;

/// The rows of a word, group by group, and its flags.
#[derive(Clone, Debug, PartialEq)]
pub struct WordRows {
    pub(super) groups: [Vec<u32>; GROUPS],
    pub(super) flags: [f32; FLAGS],
}

impl WordFeatures {
    /// The size of a word's vector.
    #[must_use]
    pub fn inputs(&self) -> usize {
        GROUPS * self.width + FLAGS
    }

    /// The vectors of words from a table (buckets, width): each group's mean, then the flags, (words,
    /// inputs). `kept` has a factor for each group of each word, for dropout of whole groups.
    pub(crate) fn vectors(&self, table: &[f32], words: &[&WordRows], kept: Option<&[f32]>) -> Vec<f32> {
        let (inputs, width) = (self.inputs(), self.width);
        let mut out = vec![0.0; words.len() * inputs];
        for (at, (word, out)) in words.iter().zip(out.chunks_exact_mut(inputs)).enumerate() {
            for (group, rows) in word.groups.iter().enumerate() {
                let share = kept.map_or(1.0, |kept| kept[at * GROUPS + group]) / rows.len() as f32;
                let sum = &mut out[group * width..][..width];
                for row in rows {
                    let row = &table[*row as usize * width..][..width];
                    sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += share * value);
                }
            }
            out[GROUPS * width..].copy_from_slice(&word.flags);
        }
        out
    }

    /// Adds the gradient of the table to `to_table`. The gradients of word vectors are the first
    /// [`inputs`](Self::inputs) values of each row of `to_vectors`, with rows of `stride` values.
    pub(crate) fn add_gradient(
        &self,
        words: &[&WordRows],
        kept: &[f32],
        (to_vectors, stride): (&[f32], usize),
        to_table: &mut [f32],
    ) {
        let width = self.width;
        for (at, (word, to_vector)) in words.iter().zip(to_vectors.chunks_exact(stride)).enumerate() {
            for (group, rows) in word.groups.iter().enumerate() {
                let share = kept[at * GROUPS + group] / rows.len() as f32;
                let slope = &to_vector[group * width..][..width];
                for row in rows {
                    let row = &mut to_table[*row as usize * width..][..width];
                    row.iter_mut().zip(slope).for_each(|(sum, value)| *sum += share * value);
                }
            }
        }
    }

    /// The features of a word. `is_first` marks the first word of a sentence.
    #[must_use]
    pub fn rows(&self, word: &str, is_first: bool) -> WordRows {
        let lower = word.to_lowercase();
        let buckets = self.buckets.max(1) as u64;
        let row = |salt: u64, text: &str| (hash(salt, text.as_bytes()) % buckets) as u32;
        // Two rows a word, so that two words rarely share both (Tito Svenstrup et al. 2017).
        let words = vec![row(1, &lower), row(2, &lower)];
        let characters: Vec<char> = std::iter::once('<').chain(lower.chars().take(24)).chain(['>']).collect();
        let mut parts = Vec::new();
        for length in [3, 4] {
            parts.extend(characters.windows(length).map(|part| row(3, &part.iter().collect::<String>())));
        }
        if parts.is_empty() {
            parts.push(row(3, &lower));
        }
        let shape = shape(word);
        let end: String = {
            let from = lower.chars().count().saturating_sub(3);
            lower.chars().skip(from).collect()
        };
        let begin: String = lower.chars().take(2).collect();
        let form = vec![row(4, &shape), row(5, &end), row(6, &begin)];
        let first = word.chars().next();
        let count = word.chars().count();
        let capitals = word.chars().filter(|character| character.is_uppercase()).count();
        let flag = |is: bool| if is { 1.0 } else { 0.0 };
        let flags = [
            flag(is_first),
            flag(first.is_some_and(char::is_uppercase)),
            flag(capitals > 1 && capitals == count),
            flag(capitals > 1 && capitals < count),
            flag(word.chars().any(char::is_numeric)),
            flag(!word.chars().any(char::is_alphanumeric)),
            flag(word.ends_with('.') && count > 1),
            (count.min(12) as f32) / 12.0,
        ];
        WordRows { groups: [words, parts, form], flags }
    }
}

/// Runs of capitals, lower-case letters and digits, each shortened to at most two: `Xxd-X`.
fn shape(word: &str) -> String {
    let mut shape = String::new();
    let mut run = (' ', 0);
    for character in word.chars().take(24) {
        let kind = match character {
            c if c.is_uppercase() => 'X',
            c if c.is_alphabetic() => 'x',
            c if c.is_numeric() => 'd',
            c => c,
        };
        run = if run.0 == kind { (kind, run.1 + 1) } else { (kind, 1) };
        if run.1 <= 2 {
            shape.push(kind);
        }
    }
    shape
}

/// FNV-1a with the finaliser of SplitMix64, which mixes the low bits well.
fn hash(salt: u64, bytes: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_has_rows_of_itself_its_parts_and_its_form() {
        let features = WordFeatures { buckets: 1000, width: 4 };
        assert_eq!(features.inputs(), 20);
        let (upper, lower) = (features.rows("Anna", false), features.rows("anna", false));
        // <an ann nna na> <ann anna nna>
        assert_eq!((upper.groups[0].len(), upper.groups[1].len(), upper.groups[2].len()), (2, 7, 3));
        // Only shape and flags depend on case.
        assert_eq!(upper.groups[..2], lower.groups[..2]);
        assert!(upper.groups[2] != lower.groups[2] && upper.flags[1] == 1.0 && lower.flags[1] == 0.0);
        assert!(upper.groups.iter().flatten().all(|row| *row < 1000));
        for word in ["", "é", "👩‍🔬", "x"] {
            assert!(features.rows(word, true).groups.iter().all(|rows| !rows.is_empty()), "{word}");
        }
    }

    #[test]
    fn a_shape_encodes_character_classes() {
        assert_eq!(shape("McDonald's"), "XxXxx'x");
        assert_eq!(shape("1990s"), "ddx");
    }
}
