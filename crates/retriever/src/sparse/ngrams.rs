//! The hashed n-grams of DrQA's document retriever.
//!
//! Text is converted to normal form D and split by DrQA's simple tokenizer: runs of letters, numbers and
//! marks, and single other visible characters. An n-gram is one to `n` neighbouring lower-case tokens, joined
//! by spaces. It is dropped if any of its tokens is a stop word or punctuation. The others are hashed with
//! MurmurHash3 into buckets.
//!
//! Text in any script is split into [`units`](super::scripts::units) instead. A character of a script without blanks between
//! words is a token, so that pairs of characters are n-grams.

use std::sync::LazyLock;

use rustc_hash::FxHashSet;
use unicode_normalization::UnicodeNormalization;

use super::{
    char_set::CharSet,
    murmur::murmur3_32,
    scripts::{self, Unit},
};

static ALPHANUMERIC: LazyLock<CharSet> = LazyLock::new(|| CharSet::of_class(r"[\p{L}\p{N}\p{M}]"));
static INVISIBLE: LazyLock<CharSet> = LazyLock::new(|| CharSet::of_class(r"[\p{Z}\p{C}]"));
static PUNCTUATION: LazyLock<CharSet> = LazyLock::new(|| CharSet::of_class(r"[\p{P}]"));

/// DrQA's stop words: those of NLTK and the endings that contractions leave.
const STOP_WORDS: &str = "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she \
    her hers herself it its itself they them their theirs themselves what which who whom this that these those am is are \
    was were be been being have has had having do does did doing a an the and but if or because as until while of at by \
    for with about against between into through during before after above below to from up down in out on off over under \
    again further then once here there when where why how all any both each few more most other some such no nor not only \
    own same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn doesn hadn hasn haven \
    isn ma mightn mustn needn shan shouldn wasn weren won wouldn 'll 're 've n't 's 'd 'm '' ``";

static STOP: LazyLock<FxHashSet<&'static str>> = LazyLock::new(|| STOP_WORDS.split_whitespace().collect());

/// The lower-case tokens of a text in one string.
#[derive(Default)]
pub(crate) struct Tokens {
    /// All tokens, each followed by a space, so that neighbouring tokens form an n-gram directly.
    text: String,
    /// The start and end of each token, and whether it is kept.
    spans: Vec<(usize, usize, bool)>,
    normal: String,
}

impl Tokens {
    /// Removes all tokens.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
    }

    /// Appends the tokens of a text.
    pub(crate) fn push_text(&mut self, text: &str) {
        if text.is_ascii() {
            self.push_normal(text);
            return;
        }
        let mut normal = std::mem::take(&mut self.normal);
        normal.clear();
        normal.extend(text.nfd());
        self.push_normal(&normal);
        self.normal = normal;
    }

    /// Appends the units of a text in any script, without accents if they are folded.
    pub(crate) fn push_units(&mut self, text: &str, fold_accents: bool) {
        let mut normal = String::new();
        scripts::normalise(text, &mut normal);
        if fold_accents {
            let shown = std::mem::take(&mut normal);
            scripts::fold(&shown, &mut normal);
        }
        scripts::units(&normal, |unit| match unit {
            Unit::Word(word) => self.push(word, false),
            Unit::Character(character, _) => self.push(character, false),
        });
    }

    fn push_normal(&mut self, text: &str) {
        let mut start = None;
        for (at, c) in text.char_indices() {
            let (alphanumeric, visible) = if c.is_ascii() {
                (c.is_ascii_alphanumeric(), c.is_ascii_graphic())
            } else {
                (ALPHANUMERIC.contains(c), !INVISIBLE.contains(c))
            };
            if alphanumeric {
                start.get_or_insert(at);
                continue;
            }
            if let Some(start) = start.take() {
                self.push(&text[start..at], false);
            }
            if visible {
                self.push(&text[at..at + c.len_utf8()], PUNCTUATION.contains(c));
            }
        }
        if let Some(start) = start {
            self.push(&text[start..], false);
        }
    }

    fn push(&mut self, token: &str, is_punctuation: bool) {
        let begin = self.text.len();
        if token.is_ascii() {
            self.text.push_str(token);
            self.text[begin..].make_ascii_lowercase();
        } else {
            self.text.push_str(&token.to_lowercase());
        }
        let keep = !is_punctuation && !STOP.contains(&self.text[begin..]);
        self.spans.push((begin, self.text.len(), keep));
        self.text.push(' ');
    }

    /// Calls `each` with every kept n-gram of up to `longest` tokens.
    pub(crate) fn ngrams(&self, longest: usize, mut each: impl FnMut(&str)) {
        for (first, &(begin, ..)) in self.spans.iter().enumerate() {
            for &(_, end, keep) in self.spans[first..].iter().take(longest) {
                if !keep {
                    // Every longer n-gram from here contains this token too.
                    break;
                }
                each(&self.text[begin..end]);
            }
        }
    }
}

/// The bucket of an n-gram.
pub(crate) fn bucket(ngram: &str, buckets: u32) -> u32 {
    murmur3_32(ngram.as_bytes()) % buckets
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ngrams(text: &str, longest: usize) -> Vec<String> {
        let mut tokens = Tokens::default();
        tokens.push_text(text);
        let mut found = Vec::new();
        tokens.ngrams(longest, |ngram| found.push(ngram.to_owned()));
        found
    }

    #[test]
    fn stop_words_and_punctuation_break_ngrams() {
        // "of" and the comma exclude every bigram that contains them.
        assert_eq!(
            ngrams("The University of Glasgow, Scotland $5", 2),
            ["university", "glasgow", "scotland", "scotland $", "$", "$ 5", "5"]
        );
        assert_eq!(
            ngrams("red green blue", 3),
            ["red", "red green", "red green blue", "green", "green blue", "blue"]
        );
    }

    #[test]
    fn marks_belong_to_words_and_text_is_decomposed() {
        assert_eq!(ngrams("Élan\u{200B}vital", 1), ["e\u{301}lan", "vital"]);
        // The dollar is a symbol, no punctuation; the apostrophe is.
        assert_eq!(ngrams("don't", 2), Vec::<String>::new());
    }

    #[test]
    fn characters_of_scripts_without_blanks_are_tokens() {
        let mut tokens = Tokens::default();
        tokens.push_units("Das Café in 北京. में", true);
        let mut found = Vec::new();
        tokens.ngrams(2, |ngram| found.push(ngram.to_owned()));
        assert_eq!(found, ["das", "das cafe", "cafe", "北", "北 京", "京", "京 में", "में"]);
    }

    #[test]
    fn texts_that_are_pushed_one_after_the_other_are_one() {
        let mut tokens = Tokens::default();
        tokens.push_text("red");
        tokens.push_text("green");
        let mut found = Vec::new();
        tokens.ngrams(2, |ngram| found.push(ngram.to_owned()));
        assert_eq!(found, ["red", "red green", "green"]);
    }
}
