//! English text analysis: from text to index terms.
//!
//! Four optional steps: split into words, lower-case, drop stop words, stem. The default is the analysis of
//! the `bm25s` package with `stopwords="en"` and PyStemmer's English stemmer. Lucene's `EnglishAnalyzer` is
//! `standard`, lower-case, `english`, `porter`. On short Wikipedia pages both rank equally well for
//! questions. The default ranks better for dialogue, of which Lucene keeps words such as *i*. Without a
//! stemmer dialogue is better still, and questions are worse.

use std::{borrow::Cow, sync::LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

use super::{char_set::CharSet, porter, snowball};

/// The analysis of text. Queries are analysed like the passages: the index stores these options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AnalyzerOptions {
    /// The tokenizer: `word2` or `standard`.
    pub tokenizer: Tokenizer,
    /// Whether words are lower-cased (Unicode's full mapping). Stop words and stemmers require lower case.
    pub lowercase: bool,
    /// The stop words: `english` or `none`.
    pub stop_words: StopWords,
    /// The stemmer: `english`, `porter` or `none`.
    pub stemmer: Stemmer,
}

impl Default for AnalyzerOptions {
    fn default() -> Self {
        Self {
            tokenizer: Tokenizer::Word2,
            lowercase: true,
            stop_words: StopWords::English,
            stemmer: Stemmer::English,
        }
    }
}

/// The tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Tokenizer {
    /// Two or more consecutive letters, digits or underscores: the expression `\w\w+` of scikit-learn and
    /// bm25s.
    Word2,
    /// Unicode's word boundaries (UAX #29) as in Lucene's `StandardTokenizer`, without a possessive `'s` at
    /// the end, truncated after 255 characters. Unlike in Lucene, emoji are no words.
    Standard,
}

/// The stop words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StopWords {
    /// Lucene's 33 English stop words, which are also those of bm25s's `stopwords="en"`.
    English,
    /// None.
    None,
}

/// The stemmer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Stemmer {
    /// The Snowball project's English stemmer ("Porter 2"), version 3, as in PyStemmer 3.
    English,
    /// Porter's stemmer of 1980 as in Lucene.
    Porter,
    /// None.
    None,
}

/// Lucene's default English stop words, sorted.
const ENGLISH_STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no",
    "not", "of", "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
];

/// The most characters of a word of [`Tokenizer::Standard`], as in Lucene.
const STANDARD_LONGEST: usize = 255;

static WORD: LazyLock<CharSet> = LazyLock::new(|| CharSet::of_class(r"[\p{L}\p{N}_]"));

/// Splits text into terms; see the module's documentation.
pub struct Analyzer {
    options: AnalyzerOptions,
}

impl Analyzer {
    /// An analyzer with these options.
    pub fn new(options: AnalyzerOptions) -> Self {
        Self { options }
    }

    /// The options.
    pub fn options(&self) -> &AnalyzerOptions {
        &self.options
    }

    /// The terms of a text, in order.
    pub fn terms(&self, text: &str) -> Vec<String> {
        let mut terms = Vec::new();
        self.words(text, &mut String::new(), |word| terms.extend(self.term(word).map(Cow::into_owned)));
        terms
    }

    /// Calls `each` with every word of a text, lower-cased, before stop words and stemming. `buffer` is
    /// reused. Few words are new, so callers with much text cache the results of [`Analyzer::term`].
    pub(crate) fn words(&self, text: &str, buffer: &mut String, each: impl FnMut(&str)) {
        let text = if self.options.lowercase { lowercase(text, buffer) } else { text };
        match self.options.tokenizer {
            Tokenizer::Word2 => word2(text, each),
            Tokenizer::Standard => standard(text, each),
        }
    }

    /// The term of a word; none for a stop word.
    pub(crate) fn term<'a>(&self, word: &'a str) -> Option<Cow<'a, str>> {
        if self.options.stop_words == StopWords::English && ENGLISH_STOP_WORDS.binary_search(&word).is_ok() {
            return None;
        }
        let stem = match self.options.stemmer {
            Stemmer::None => return Some(Cow::Borrowed(word)),
            Stemmer::English => snowball::stem,
            Stemmer::Porter => porter::stem,
        };
        let mut bytes = word.as_bytes().to_vec();
        stem(&mut bytes);
        // Stemmers remove whole characters and add ASCII, so this is UTF-8.
        Some(String::from_utf8(bytes).map_or(Cow::Borrowed(word), Cow::Owned))
    }
}

/// `str::to_lowercase` into a buffer, with a fast path for runs of ASCII.
fn lowercase<'a>(text: &str, buffer: &'a mut String) -> &'a str {
    buffer.clear();
    // The lower case of a capital sigma depends on its neighbours, which the standard library handles.
    if text.contains('Σ') {
        *buffer = text.to_lowercase();
        return buffer;
    }
    buffer.reserve(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let ascii = rest.bytes().position(|byte| !byte.is_ascii()).unwrap_or(rest.len());
        let from = buffer.len();
        buffer.push_str(&rest[..ascii]);
        buffer[from..].make_ascii_lowercase();
        let mut others = rest[ascii..].chars();
        if let Some(c) = others.next() {
            buffer.extend(c.to_lowercase());
        }
        rest = others.as_str();
    }
    buffer
}

/// Runs of two or more word characters.
fn word2(text: &str, mut each: impl FnMut(&str)) {
    const ASCII_WORD: [bool; 128] = {
        let mut table = [false; 128];
        let mut byte = 0;
        while byte < 128 {
            table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_';
            byte += 1;
        }
        table
    };
    let bytes = text.as_bytes();
    let (mut start, mut characters, mut at) = (0, 0usize, 0);
    while at < bytes.len() {
        let (is_word, width) = match bytes[at] {
            byte @ 0..128 => (ASCII_WORD[byte as usize], 1),
            _ => match text[at..].chars().next() {
                Some(c) => (WORD.contains(c), c.len_utf8()),
                None => break,
            },
        };
        if is_word {
            characters += 1;
        } else {
            if characters >= 2 {
                each(&text[start..at]);
            }
            characters = 0;
            start = at + width;
        }
        at += width;
    }
    if characters >= 2 {
        each(&text[start..]);
    }
}

/// UAX #29 words with a letter or digit in them.
fn standard(text: &str, mut each: impl FnMut(&str)) {
    // No word contains a space, and most text between spaces is ASCII, which has a fast path.
    for piece in text.split_ascii_whitespace() {
        for word in piece.unicode_words() {
            let word = ["'s", "'S", "’s", "’S", "＇s", "＇S"]
                .iter()
                .find_map(|possessive| word.strip_suffix(possessive))
                .unwrap_or(word);
            if word.len() <= STANDARD_LONGEST {
                each(word);
                continue;
            }
            let mut rest = word;
            while !rest.is_empty() {
                let cut = rest.char_indices().nth(STANDARD_LONGEST).map_or(rest.len(), |(at, _)| at);
                each(&rest[..cut]);
                rest = &rest[cut..];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(tokenizer: Tokenizer, stop_words: StopWords, stemmer: Stemmer) -> AnalyzerOptions {
        AnalyzerOptions { tokenizer, lowercase: true, stop_words, stemmer }
    }

    fn terms(options: AnalyzerOptions, text: &str) -> Vec<String> {
        Analyzer::new(options).terms(text)
    }

    #[test]
    fn word2_takes_what_the_expression_takes() {
        let plain = options(Tokenizer::Word2, StopWords::None, Stemmer::None);
        // Single letters are dropped; an underscore is a word character; a combining mark is not.
        let text = "Don't a U.S. state_of 3 x 42 Ærø, ＡＢ e\u{301}té 中文!";
        assert_eq!(terms(plain, text), ["don", "state_of", "42", "ærø", "ａｂ", "té", "中文"]);
    }

    #[test]
    fn standard_takes_unicode_words_without_possessives() {
        let plain = options(Tokenizer::Standard, StopWords::None, Stemmer::None);
        let text = "Don't the U.S. king's James’s 3,000.5 (x) 中文 state_of -- !";
        assert_eq!(
            terms(plain, text),
            ["don't", "the", "u.s", "king", "james", "3,000.5", "x", "中", "文", "state_of"]
        );
    }

    #[test]
    fn a_standard_word_is_cut_after_255_characters() {
        let plain = options(Tokenizer::Standard, StopWords::None, Stemmer::None);
        let lengths: Vec<_> =
            terms(plain, &"é".repeat(600)).iter().map(|term| term.chars().count()).collect();
        assert_eq!(lengths, [255, 255, 90]);
    }

    #[test]
    fn stop_words_go_before_the_stemmer_comes() {
        // "these" is a stop word. "theses" becomes one only by stemming and stays.
        let english = options(Tokenizer::Word2, StopWords::English, Stemmer::English);
        assert_eq!(
            terms(english, "These theses were written by the runners"),
            ["these", "were", "written", "runner"]
        );
        let porter = options(Tokenizer::Word2, StopWords::English, Stemmer::Porter);
        assert_eq!(terms(porter, "relational databases"), ["relat", "databas"]);
    }

    #[test]
    fn without_lower_casing_words_stay_as_written() {
        let cased =
            AnalyzerOptions { lowercase: false, stemmer: Stemmer::None, ..AnalyzerOptions::default() };
        assert_eq!(terms(cased, "The the Iris IRIS"), ["The", "Iris", "IRIS"]);
    }

    #[test]
    fn the_stop_words_are_sorted() {
        assert!(ENGLISH_STOP_WORDS.is_sorted());
    }

    #[test]
    fn an_unknown_option_is_an_error() {
        let error = serde_json::from_str::<AnalyzerOptions>(r#"{"stemer": "porter"}"#).unwrap_err();
        assert!(error.to_string().contains("stemer"), "{error}");
    }

    proptest! {
        #[test]
        fn lower_casing_is_the_standard_librarys(text in "\\PC*") {
            let mut buffer = String::new();
            prop_assert_eq!(lowercase(&text, &mut buffer), text.to_lowercase());
        }

        #[test]
        fn splitting_at_spaces_first_changes_no_standard_word(text in "[ a-zé0-9_.,:'’中\t\n-]{0,40}") {
            let mut found = Vec::new();
            standard(&text, |word| found.push(word.to_owned()));
            let expected: Vec<_> = text
                .unicode_words()
                .map(|word| word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word).to_owned())
                .collect();
            prop_assert_eq!(found, expected);
        }
    }
}
