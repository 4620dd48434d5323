//! Scores of one answer against its gold answers, as in KILT's public scorer.

use std::{cmp::Ordering, hash::BuildHasher, ops::Range};

use rustc_hash::FxBuildHasher;
use serde::Serialize;
use unicode_normalization::char::is_combining_mark;

use super::{is_space, rouge::Rouge, trim};

/// The normalised text for `em` and `f1`: lower case, without ASCII punctuation, without the words a, an and
/// the, with single blanks.
///
/// Words are those of Python's regular expressions: runs of letters and digits. Combining marks end a word.
/// So "a" before a combining accent is an article, as in the public scorer.
pub fn normalise(text: &str) -> String {
    let mut bytes = Vec::new();
    push_normalised(text, &mut bytes);
    // ASCII text stays ASCII; other text is normalised by characters.
    String::from_utf8(bytes).expect("normalising keeps text valid")
}

/// Appends [`normalise`]'s text.
pub(super) fn push_normalised(text: &str, out: &mut Vec<u8>) {
    if !text.is_ascii() {
        out.extend_from_slice(Normaliser::over(&text.to_lowercase()).as_bytes());
    } else if !push_normalised_ascii(text.as_bytes(), out) {
        out.extend_from_slice(Normaliser::over(&text.to_ascii_lowercase()).as_bytes());
    }
}

/// The mapping of ASCII bytes to lower case or a blank, with the flags below; 0 drops the byte.
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
/// The number of bytes processed together, and the look-ahead of each.
const LANES: usize = 64;
const AHEAD: usize = 4;

/// The same as [`Normaliser`] without a branch for each character, because inputs and passages are long.
/// Returns `false`, and appends nothing, if the text has odd characters.
///
/// First the kept bytes are moved together. Then whole lanes are searched for bytes to remove: blanks before
/// blanks and articles. The text between them is moved together again.
fn push_normalised_ascii(text: &[u8], out: &mut Vec<u8>) -> bool {
    let begin = out.len();
    // A blank before the first word and after the last, and padding for the look-ahead of every lane.
    out.resize(begin + 1 + text.len() + LANES + AHEAD, b' ');
    let lower = &mut out[begin..];
    let mut length = 1;
    let mut all = 0;
    let mut slowly = |bytes: &[u8], lower: &mut [u8], length: &mut usize| {
        for &byte in bytes {
            let becomes = BYTES[usize::from(byte)];
            all |= becomes;
            lower[*length] = becomes as u8;
            *length += usize::from(becomes & KEPT != 0);
        }
    };
    // Most blocks contain only letters, digits and blanks, and are copied whole.
    let (stretches, rest) = text.as_chunks::<16>();
    for stretch in stretches {
        match plain(stretch) {
            Some(becomes) => {
                lower[length..length + 16].copy_from_slice(&becomes);
                length += 16;
            }
            None => slowly(stretch, lower, &mut length),
        }
    }
    slowly(rest, lower, &mut length);
    if all & ODD != 0 {
        out.truncate(begin);
        return false;
    }
    lower[length..].fill(b' ');
    // The kept text ends at `end`. The text to move starts at `from`, always with a blank.
    let (mut end, mut from) = (0, 0);
    for at in (0..length).step_by(LANES) {
        let goes = blanks_that_go(&lower[at..at + LANES + AHEAD]);
        for (eight, bytes) in goes.as_chunks::<8>().0.iter().enumerate() {
            let mut flags = u64::from_le_bytes(*bytes);
            while flags != 0 {
                let first = flags.trailing_zeros() / 8;
                let blank = at + 8 * eight + first as usize;
                if blank < length {
                    end = move_back(lower, from..blank, end);
                    // An article is removed too; the blank after it is processed separately.
                    from = blank + (flags >> (8 * first)) as usize % 256;
                }
                flags &= !(0xff << (8 * first));
            }
        }
    }
    end = move_back(lower, from..length, end);
    out.truncate(begin + end);
    true
}

/// Letters, digits and blanks, in lower case; `None` if there is anything else.
fn plain(bytes: &[u8; 16]) -> Option<[u8; 16]> {
    let mut lower = *bytes;
    let mut others = 0;
    for byte in &mut lower {
        *byte |= u8::from(byte.is_ascii_uppercase()) << 5;
        let plain = byte.is_ascii_lowercase() | byte.is_ascii_digit() | (*byte == b' ');
        others |= u8::from(!plain);
    }
    (others == 0).then_some(lower)
}

/// The number of bytes to remove at each: 1 for a blank before a blank, and the length of a blank with a
/// following article.
fn blanks_that_go(bytes: &[u8]) -> [u8; LANES] {
    let mut goes = [0; LANES];
    let bytes = &bytes[..LANES + AHEAD];
    for (lane, goes) in goes.iter_mut().enumerate() {
        let is = |place: usize, byte: u8| bytes[lane + place] == byte;
        let count = |condition: bool, count: u8| u8::from(is(0, b' ') & condition) * count;
        *goes = count(is(1, b' '), 1)
            | count(is(1, b'a') & is(2, b' '), 2)
            | count(is(1, b'a') & is(2, b'n') & is(3, b' '), 3)
            | count(is(1, b't') & is(2, b'h') & is(3, b'e') & is(4, b' '), 4);
    }
    goes
}

/// Moves a part that starts with a blank to `end`, without that blank at the beginning. Returns the new end.
fn move_back(bytes: &mut [u8], part: Range<usize>, end: usize) -> usize {
    let start = if end == 0 && !part.is_empty() { part.start + 1 } else { part.start };
    let length = part.end - start;
    bytes.copy_within(start..part.end, end);
    end + length
}

/// Python's `\w`: Unicode's categories L and N, without the marks and the enclosed letters that Rust counts
/// as alphabetic. (The underscore is punctuation here and already removed.)
fn is_word(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphanumeric();
    }
    let enclosed = matches!(character, '\u{24b6}'..='\u{24e9}' | '\u{1f130}'..='\u{1f149}' | '\u{1f150}'..='\u{1f169}' | '\u{1f170}'..='\u{1f189}');
    character.is_alphanumeric() && !is_combining_mark(character) && !enclosed
}

struct Normaliser {
    out: String,
    /// The start of the current word in `out`.
    word: Option<usize>,
    /// Whether a blank must precede the next character.
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

    /// Ends the current word; an article becomes a blank.
    fn end_word(&mut self) {
        let Some(start) = self.word.take() else { return };
        if matches!(&self.out[start..], "a" | "an" | "the") {
            self.out.truncate(start);
            self.out.truncate(self.out.trim_end_matches(' ').len());
            self.blank = true;
        }
    }
}

/// The scores of one answer, each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scores {
    /// 1 if the trimmed answer is a gold answer.
    pub accuracy: f64,
    /// 1 if they are equal after [`normalise`].
    pub em: f64,
    /// F1 over the words of the normalised texts, with repetition.
    pub f1: f64,
    /// The f of [`rouge_l`](super::rouge_l), without normalisation.
    pub rougel: f64,
}

/// The gold answers of a record, prepared for scoring.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The concatenated answers, and their normalised forms.
    texts: Box<str>,
    normalised: Box<[u8]>,
    /// The end of each answer in both.
    ends: Box<[(usize, usize)]>,
}

/// A gold answer and its normalised form.
struct Gold<'a> {
    text: &'a str,
    normalised: &'a [u8],
}

impl Answers {
    /// Gold answers are trimmed. Empty ones and duplicates are dropped.
    pub fn new<'a>(answers: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new_in(answers, &mut Buffers::default())
    }

    /// The same, with reusable buffers.
    pub(super) fn new_in<'a>(answers: impl IntoIterator<Item = &'a str>, buffers: &mut Buffers) -> Self {
        let Buffers { texts, normalised, ends, .. } = buffers;
        texts.clear();
        normalised.clear();
        ends.clear();
        for text in answers.into_iter().map(trim).filter(|text| !text.is_empty()) {
            let mut start = 0;
            let known = ends.iter().any(|&(end, _)| &texts[std::mem::replace(&mut start, end)..end] == text);
            if !known {
                texts.push_str(text);
                push_normalised(text, normalised);
                ends.push((texts.len(), normalised.len()));
            }
        }
        // Copied without spare capacity.
        Self { texts: (**texts).into(), normalised: (**normalised).into(), ends: (**ends).into() }
    }

    /// Whether there is no answer, so that every prediction scores 0.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = Gold<'_>> {
        let starts = std::iter::once((0, 0)).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|((text, normalised), ends)| Gold {
            text: &self.texts[text..ends.0],
            normalised: &self.normalised[normalised..ends.1],
        })
    }

    /// The normalised gold answers.
    pub(super) fn normalised(&self) -> impl Iterator<Item = &[u8]> {
        self.iter().map(|gold| gold.normalised)
    }

    /// The best of each score over the gold answers. An empty answer scores 0.
    ///
    /// ```
    /// use sporran_kilt::scores::answer::Answers;
    ///
    /// let gold = Answers::new(["Barack Obama", "Obama"]);
    /// let scores = gold.score("the Barack Obama");
    /// assert_eq!((scores.accuracy, scores.em, scores.f1), (0.0, 1.0, 1.0));
    /// ```
    pub fn score(&self, prediction: &str) -> Scores {
        self.score_in(prediction, &mut Buffers::default())
    }

    /// The same, with reusable buffers.
    pub(super) fn score_in(&self, prediction: &str, buffers: &mut Buffers) -> Scores {
        let prediction = trim(prediction);
        let mut best = Scores::default();
        if prediction.is_empty() || self.is_empty() {
            return best;
        }
        let Buffers { rouge, normalised, .. } = buffers;
        normalised.clear();
        push_normalised(prediction, normalised);
        let mut words = Vec::with_capacity(16);
        sorted_words(normalised, &mut words);
        let mut gold_words = Vec::with_capacity(16);
        rouge.read(prediction);
        for gold in self.iter() {
            if gold.text == prediction {
                best.accuracy = 1.0;
            }
            if gold.normalised == normalised.as_slice() {
                best.em = 1.0;
                best.f1 = best.f1.max(if words.is_empty() { 0.0 } else { 1.0 });
            } else if best.f1 < 1.0 {
                sorted_words(gold.normalised, &mut gold_words);
                best.f1 = best.f1.max(f1_of(&words, &gold_words));
            }
            best.rougel = best.rougel.max(rouge.score(gold.text));
        }
        best
    }
}

/// Reusable buffers for scoring.
#[derive(Default)]
pub(super) struct Buffers {
    rouge: Rouge,
    texts: String,
    normalised: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

/// Words with their hashes, sorted; the hash avoids most comparisons of words.
fn sorted_words<'a>(normalised: &'a [u8], words: &mut Vec<(u64, &'a [u8])>) {
    words.clear();
    let hash = |word: &'a [u8]| (FxBuildHasher.hash_one(word), word);
    words.extend(normalised.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).map(hash));
    words.sort_unstable();
}

fn f1_of(prediction: &[(u64, &[u8])], gold: &[(u64, &[u8])]) -> f64 {
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
            // The accent is no word character, so "a" is a separate word; the precomposed letter is one word.
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
        for round in 0..4000 {
            // Texts of many lanes too, without the odd character in most of them.
            let most = if round % 2 == 0 { 12 } else { 300 };
            let pieces = if round % 3 == 0 { &pieces[..] } else { &[&pieces[..9], &pieces[10..]].concat() };
            let text: String = (0..random.random_range(0..most))
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
