//! Scores of one answer against its gold answers, as KILT's public scorer defines them.

use std::{cmp::Ordering, hash::BuildHasher};

use rustc_hash::FxBuildHasher;
use serde::Serialize;
use unicode_normalization::char::is_combining_mark;

use super::{is_space, rouge::Rouge, trim};

/// The text that `em` and `f1` compare: lower case, without ASCII punctuation, without the words a, an and the, with
/// single blanks.
///
/// A word is what Python's regular expressions take for one: a run of letters and digits. Combining marks end it, so
/// "a" before a combining accent is an article, as it is for the public scorer.
pub fn normalise(text: &str) -> String {
    if text.is_ascii() {
        normalise_ascii(text).unwrap_or_else(|| Normaliser::over(&text.to_ascii_lowercase()))
    } else {
        Normaliser::over(&text.to_lowercase())
    }
}

/// What a byte of ASCII becomes, its lower case or a blank, with the flags below; 0 drops it.
const BYTES: [u16; 256] = {
    let mut bytes = [ODD; 256];
    let mut at = 0;
    while at < 128 {
        let byte = at as u8;
        if byte.is_ascii_punctuation() {
            bytes[at] = 0;
        } else if byte.is_ascii_alphanumeric() {
            bytes[at] = KEPT | byte.to_ascii_lowercase() as u16;
        } else if matches!(byte, 9..=13 | 28..=32) {
            bytes[at] = KEPT | b' ' as u16;
        }
        at += 1;
    }
    bytes
};
const KEPT: u16 = 1 << 8;
/// A control character that is neither blank nor part of a word.
const ODD: u16 = 1 << 9;

/// The same as [`Normaliser`] without a branch for each character, since the texts of passages are long; `None` if the
/// text has odd characters.
fn normalise_ascii(text: &str) -> Option<String> {
    // Every word stands between two blanks.
    let mut lower = vec![b' '; text.len() + 2];
    let mut length = 1;
    let mut all = 0;
    for &byte in text.as_bytes() {
        let becomes = BYTES[usize::from(byte)];
        all |= becomes;
        lower[length] = becomes as u8;
        length += usize::from(becomes & KEPT != 0);
    }
    if all & ODD != 0 {
        return None;
    }
    lower.truncate(length);
    lower.push(b' ');
    let mut out = Vec::with_capacity(lower.len());
    // What is not yet copied starts here.
    let mut from = 0;
    for blank in memchr::memchr_iter(b' ', &lower) {
        let next = match &lower[blank + 1..] {
            [] | [b' ', ..] => blank + 1,
            [b'a', b' ', ..] => blank + 2,
            [b'a', b'n', b' ', ..] => blank + 3,
            [b't', b'h', b'e', b' ', ..] => blank + 4,
            _ => continue,
        };
        // The first word has no blank before it.
        let start = from + usize::from(out.is_empty() && from < blank);
        out.extend_from_slice(&lower[start..blank]);
        from = next;
    }
    // Only bytes of an ASCII text and blanks were copied, and ASCII is UTF-8.
    Some(String::from_utf8(out).expect("ASCII is UTF-8"))
}

/// A letter or digit for Python's `\w`: Unicode's categories L and N, without the marks and the enclosed letters that
/// Rust counts as alphabetic. (The underscore is punctuation here and gone by then.)
fn is_word(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric();
    }
    let enclosed = matches!(character, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}');
    character.is_alphanumeric() && !is_combining_mark(character) && !enclosed
}

struct Normaliser {
    out: String,
    /// Where the running word starts in `out`.
    word: Option<usize>,
    /// A blank is due before the next character.
    blank: bool,
}

impl Normaliser {
    fn over(lower: &str) -> String {
        let mut state = Self { out: String::with_capacity(lower.len()), word: None, blank: false };
        for character in lower.chars() {
            if character.is_ascii_punctuation() {
                continue;
            }
            if is_space(character) {
                state.end_word();
                state.blank = true;
                continue;
            }
            let in_word = is_word(character);
            if !in_word {
                state.end_word();
            }
            if state.blank && !state.out.is_empty() {
                state.out.push(' ');
            }
            state.blank = false;
            if in_word && state.word.is_none() {
                state.word = Some(state.out.len());
            }
            state.out.push(character);
        }
        state.end_word();
        state.out
    }

    /// Closes the running word; an article becomes a blank.
    fn end_word(&mut self) {
        let Some(start) = self.word.take() else { return };
        if matches!(&self.out[start..], "a" | "an" | "the") {
            self.out.truncate(start);
            self.out.truncate(self.out.trim_end_matches(' ').len());
            self.blank = true;
        }
    }
}

/// What one answer scores, each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scores {
    /// 1 if the trimmed answer is a gold answer.
    pub accuracy: f64,
    /// 1 if they are equal after [`normalise`].
    pub em: f64,
    /// F1 over the words that are left after [`normalise`], with repetition.
    pub f1: f64,
    /// The f of [`rouge_l`](super::rouge_l), without normalisation.
    pub rougel: f64,
}

/// The gold answers of a record, ready for scoring.
#[derive(Clone, Debug, Default)]
pub struct Answers(Vec<Gold>);

#[derive(Clone, Debug)]
struct Gold {
    text: Box<str>,
    normalised: String,
}

impl Answers {
    /// Gold answers are trimmed; empty ones are left out and equal ones count once.
    pub fn new<'a>(answers: impl IntoIterator<Item = &'a str>) -> Self {
        let mut unique: Vec<Gold> = Vec::new();
        for text in answers.into_iter().map(trim) {
            if !text.is_empty() && unique.iter().all(|gold| *gold.text != *text) {
                unique.push(Gold { text: text.into(), normalised: normalise(text) });
            }
        }
        Self(unique)
    }

    /// Whether there is none, so that every answer scores 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The normalised gold answers.
    pub fn normalised(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|gold| gold.normalised.as_str())
    }

    /// Each score's best over the gold answers. An empty answer scores 0 throughout.
    pub fn score(&self, prediction: &str) -> Scores {
        self.score_in(prediction, &mut Buffers::default())
    }

    /// The same, in buffers that serve many records.
    pub(super) fn score_in(&self, prediction: &str, buffers: &mut Buffers) -> Scores {
        let prediction = trim(prediction);
        let mut best = Scores::default();
        if prediction.is_empty() || self.is_empty() {
            return best;
        }
        let normalised = normalise(prediction);
        let mut words = Vec::with_capacity(16);
        sorted_words(&normalised, &mut words);
        let mut gold_words = Vec::with_capacity(16);
        buffers.0.read(prediction);
        for gold in &self.0 {
            if *gold.text == *prediction {
                best.accuracy = 1.0;
            }
            if gold.normalised == normalised {
                best.em = 1.0;
                best.f1 = best.f1.max(if words.is_empty() { 0.0 } else { 1.0 });
            } else if best.f1 < 1.0 {
                sorted_words(&gold.normalised, &mut gold_words);
                best.f1 = best.f1.max(f1_of(&words, &gold_words));
            }
            best.rougel = best.rougel.max(buffers.0.score(&gold.text));
        }
        best
    }
}

/// What scoring many answers needs not allocate again.
#[derive(Default)]
pub(super) struct Buffers(Rouge);

/// Words with their hashes, in one order for every text; the hash spares most comparisons of words.
fn sorted_words<'a>(normalised: &'a str, words: &mut Vec<(u64, &'a str)>) {
    words.clear();
    let hash = |word: &'a str| (FxBuildHasher.hash_one(word), word);
    words.extend(normalised.split(' ').filter(|word| !word.is_empty()).map(hash));
    words.sort_unstable();
}

fn f1_of(prediction: &[(u64, &str)], gold: &[(u64, &str)]) -> f64 {
    let (mut left, mut right, mut common) = (0, 0, 0usize);
    while let (Some(a), Some(b)) = (prediction.get(left), gold.get(right)) {
        match a.cmp(b) {
            Ordering::Less => left += 1,
            Ordering::Greater => right += 1,
            Ordering::Equal => (left, right, common) = (left + 1, right + 1, common + 1),
        }
    }
    if common == 0 {
        return 0.0;
    }
    let precision = common as f64 / prediction.len() as f64;
    let recall = common as f64 / gold.len() as f64;
    2.0 * precision * recall / (precision + recall)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalising_follows_the_public_scorer() {
        let cases = [
            ("The  Cat's\tHat.", "cats hat"),
            ("a-b, the!end", "ab theend"),
            ("AN\u{a0}apple\u{1f}a", "apple"),
            ("the", ""),
            // The accent is no word character, so the "a" stands alone; the precomposed letter is one word.
            ("a\u{301} x", "\u{301} x"),
            ("\u{e1} x", "\u{e1} x"),
            ("x\u{24d0}the\u{24d0}", "x\u{24d0} \u{24d0}"),
            ("ΑΣ a", "ας"),
            ("a_the", "athe"),
        ];
        for (text, expected) in cases {
            assert_eq!(normalise(text), expected, "{text:?}");
        }
    }

    #[test]
    fn bytes_and_characters_are_normalised_alike() {
        use rand::{Rng, SeedableRng};
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(2);
        let pieces = ["a", "the", "An", "x", "Tha", " ", "  ", "\t", "\u{1f}", "\u{1}", "-", "_", ".", "7"];
        for _ in 0..2000 {
            let text: String = (0..random.random_range(0..12))
                .map(|_| pieces[random.random_range(0..pieces.len())])
                .collect();
            assert_eq!(normalise(&text), Normaliser::over(&text.to_lowercase()), "{text:?}");
        }
    }

    #[test]
    fn f1_counts_repeated_words() {
        // "x x y" against "x y y": x once, y once: 2 of 3 both ways.
        assert_eq!(Answers::new(["x y y"]).score("x x y").f1, 2.0 / 3.0);
        assert_eq!(Answers::new(["the"]).score("a"), Scores { em: 1.0, ..Scores::default() });
    }

    #[test]
    fn each_score_takes_its_own_best_gold() {
        let scores = Answers::new(["The Beatles", "beatles band of Liverpool", " "]).score(" Beatles band ");
        assert_eq!(scores.accuracy, 0.0);
        assert_eq!(scores.em, 0.0);
        // Against the second: precision 2/2, recall 2/4.
        assert_eq!(scores.f1, 2.0 * 0.5 / 1.5);
    }

    #[test]
    fn empty_answers_score_nothing() {
        assert_eq!(Answers::new(["a b"]).score("  "), Scores::default());
        assert_eq!(Answers::new([" "]).score("a b"), Scores::default());
        assert!(Answers::new([" ", ""]).is_empty());
    }
}
