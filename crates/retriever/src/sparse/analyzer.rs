//! Text analysis: from text to index terms.
//!
//! Optional steps: fold accents, lower-case, split into words, drop stop words, stem. The default is for English, the
//! analysis of
//! the `bm25s` package with `stopwords="en"` and PyStemmer's English stemmer. Lucene's `EnglishAnalyzer` is
//! `standard`, lower-case, `english`, `porter`. On short Wikipedia pages both rank equally well for
//! questions. The default ranks better for dialogue, of which Lucene keeps words such as *i*. Without a
//! stemmer dialogue is better still, and questions are worse.

use std::{borrow::Cow, sync::LazyLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

use super::{char_set::CharSet, porter, scripts, snowball};

/// The analysis of text. Queries are analysed like the passages: the index stores these options.
///
/// The default is for English. For other languages set `tokenizer = "unicode"`, and for those with a stemmer
/// `stemmer = "german"` and so on with `stop-words = "none"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AnalyzerOptions {
    /// The tokenizer: `word2`, `standard` or `unicode`. The last is for text in any script.
    pub tokenizer: Tokenizer,
    /// Whether accents are dropped, before the stemmer: `Élan` is `elan`, `Straße` is `strasse`, and Arabic and Hebrew lose
    /// their points. Vowel signs of other scripts, such as Hindi, stay.
    #[serde(skip_serializing_if = "is_false")]
    pub fold_accents: bool,
    /// Whether words are lower-cased (Unicode's full mapping). Stop words and stemmers require lower case.
    pub lowercase: bool,
    /// The stop words: `english` or `none`.
    pub stop_words: StopWords,
    /// The stemmer: `english`, `porter`, that of another language (`arabic`, `danish`, `dutch`, `finnish`, `french`,
    /// `german`, `greek`, `hungarian`, `italian`, `norwegian`, `portuguese`, `romanian`, `russian`, `spanish`, `swedish`,
    /// `tamil`, `turkish`) or `none`.
    pub stemmer: Stemmer,
}

/// The default is left out of the keys of indexes and runs.
pub(super) fn is_false(value: &bool) -> bool {
    !value
}

impl Default for AnalyzerOptions {
    fn default() -> Self {
        Self {
            tokenizer: Tokenizer::Word2,
            fold_accents: false,
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
    /// the end, truncated after 255 characters. Unlike in Lucene, emoji are no words, and each letter of Thai, Lao, Khmer and
    /// Burmese is a word; in Lucene a run of them is one.
    Standard,
    /// Words of any script: runs of letters, digits, underscores and the marks on them, in normal form C. Chinese, Japanese,
    /// Korean, Thai, Lao, Khmer and Burmese give pairs of neighbouring characters, as in Lucene's `CJKAnalyzer`. Unlike there,
    /// full-width letters and digits are not those of ASCII.
    Unicode,
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
    /// The Snowball project's, version 2, for Arabic.
    Arabic,
    /// For Danish.
    Danish,
    /// For Dutch.
    Dutch,
    /// For Finnish.
    Finnish,
    /// For French.
    French,
    /// For German.
    German,
    /// For Greek.
    Greek,
    /// For Hungarian.
    Hungarian,
    /// For Italian.
    Italian,
    /// For Norwegian.
    Norwegian,
    /// For Portuguese.
    Portuguese,
    /// For Romanian.
    Romanian,
    /// For Russian.
    Russian,
    /// For Spanish.
    Spanish,
    /// For Swedish.
    Swedish,
    /// For Tamil.
    Tamil,
    /// For Turkish.
    Turkish,
    /// None.
    None,
}

impl Stemmer {
    /// The stemmer of a language besides English.
    fn of_language(self) -> Option<rust_stemmers::Stemmer> {
        use rust_stemmers::Algorithm;
        let algorithm = match self {
            Self::English | Self::Porter | Self::None => return None,
            Self::Arabic => Algorithm::Arabic,
            Self::Danish => Algorithm::Danish,
            Self::Dutch => Algorithm::Dutch,
            Self::Finnish => Algorithm::Finnish,
            Self::French => Algorithm::French,
            Self::German => Algorithm::German,
            Self::Greek => Algorithm::Greek,
            Self::Hungarian => Algorithm::Hungarian,
            Self::Italian => Algorithm::Italian,
            Self::Norwegian => Algorithm::Norwegian,
            Self::Portuguese => Algorithm::Portuguese,
            Self::Romanian => Algorithm::Romanian,
            Self::Russian => Algorithm::Russian,
            Self::Spanish => Algorithm::Spanish,
            Self::Swedish => Algorithm::Swedish,
            Self::Tamil => Algorithm::Tamil,
            Self::Turkish => Algorithm::Turkish,
        };
        Some(rust_stemmers::Stemmer::create(algorithm))
    }
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
    stemmer: Option<rust_stemmers::Stemmer>,
}

impl Analyzer {
    /// An analyzer with these options.
    pub fn new(options: AnalyzerOptions) -> Self {
        Self { stemmer: options.stemmer.of_language(), options }
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
        let normal = self.normal(text);
        let text = if self.options.lowercase { lowercase(&normal, buffer) } else { &*normal };
        match self.options.tokenizer {
            Tokenizer::Word2 => word2(text, each),
            Tokenizer::Standard => standard(text, each),
            Tokenizer::Unicode => scripts::words(text, each),
        }
    }

    /// The text in the form that is split.
    fn normal<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let AnalyzerOptions { tokenizer, fold_accents, .. } = self.options;
        let mut normal = String::new();
        match (tokenizer, fold_accents) {
            _ if text.is_ascii() => return Cow::Borrowed(text),
            (Tokenizer::Unicode, false) => scripts::normalise(text, &mut normal),
            (Tokenizer::Unicode, true) => {
                let mut shown = String::new();
                scripts::normalise(text, &mut shown);
                scripts::fold(&shown, &mut normal);
            }
            (_, true) => scripts::fold(text, &mut normal),
            (_, false) => return Cow::Borrowed(text),
        }
        Cow::Owned(normal)
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
            _ => {
                return Some(self.stemmer.as_ref().map_or(Cow::Borrowed(word), |stemmer| stemmer.stem(word)));
            }
        };
        let mut bytes = word.as_bytes().to_vec();
        stem(&mut bytes);
        // Stemmers remove whole characters and add ASCII, so this is UTF-8.
        Some(String::from_utf8(bytes).map_or(Cow::Borrowed(word), Cow::Owned))
    }

    /// The letters, digits and marks of a text, and how many of them are in no word, or with [`Tokenizer::Word2`] in a run
    /// of a script without blanks between words, which is no word.
    pub(crate) fn lost(&self, text: &str) -> (u64, u64) {
        let letters = text.chars().filter(|&c| scripts::is_letter(c)).count() as u64;
        let is_found = |&c: &char| match self.options.tokenizer {
            Tokenizer::Word2 => scripts::is_letter(c) && !scripts::is_unspaced(c),
            Tokenizer::Standard | Tokenizer::Unicode => scripts::is_letter(c),
        };
        let mut found = 0;
        match self.options.tokenizer {
            // Its pairs overlap, and nothing is lost.
            Tokenizer::Unicode => return (letters, 0),
            _ => self.words(text, &mut String::new(), |word| {
                found += word.chars().filter(is_found).count() as u64
            }),
        }
        (letters, letters.saturating_sub(found))
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
        AnalyzerOptions { tokenizer, fold_accents: false, lowercase: true, stop_words, stemmer }
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
    fn each_letter_of_thai_is_a_standard_word_with_its_marks() {
        // By the rules of UAX #29. Lucene keeps the run as one word.
        let plain = options(Tokenizer::Standard, StopWords::None, Stemmer::None);
        assert_eq!(terms(plain, "สวัสดี x"), ["ส", "วั", "ส", "ดี", "x"]);
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
    fn new_options_leave_the_keys_of_indexes_as_they_were() {
        let json = serde_json::to_string(&AnalyzerOptions::default()).unwrap();
        let before = r#"{"tokenizer":"word2","lowercase":true,"stop-words":"english","stemmer":"english"}"#;
        assert_eq!(json, before);
    }

    #[test]
    fn other_languages_have_stemmers() {
        // `snowballstemmer.stemmer(language).stemWord` of snowballstemmer 2.2.0, of the same version of Snowball.
        for (stemmer, text, expected) in [
            (Stemmer::German, "Häuser Bücher laufenden", vec!["haus", "buch", "laufend"]),
            (Stemmer::French, "continuellement chevaux", vec!["continuel", "cheval"]),
            (Stemmer::Russian, "красивая книгами", vec!["красив", "книг"]),
            (Stemmer::Spanish, "canciones", vec!["cancion"]),
            (Stemmer::Finnish, "taloissa", vec!["talo"]),
            (Stemmer::Arabic, "الكتاب", vec!["كتاب"]),
        ] {
            let options = options(Tokenizer::Unicode, StopWords::None, stemmer);
            assert_eq!(terms(options, text), expected, "{stemmer:?}");
        }
    }

    #[test]
    fn composed_and_decomposed_text_has_the_same_terms() {
        let plain = options(Tokenizer::Unicode, StopWords::None, Stemmer::None);
        assert_eq!(terms(plain.clone(), "E\u{301}te\u{301} が"), terms(plain.clone(), "Été か\u{3099}"));
        let folding = AnalyzerOptions { fold_accents: true, ..plain };
        assert_eq!(terms(folding.clone(), "Été Straße"), ["ete", "strasse"]);
        let word2 = AnalyzerOptions { tokenizer: Tokenizer::Word2, ..folding };
        assert_eq!(terms(word2, "e\u{301}te\u{301} déjà"), ["ete", "deja"]);
    }

    #[test]
    fn letters_without_a_term_are_counted() {
        let lost = |tokenizer, text: &str| {
            Analyzer::new(options(tokenizer, StopWords::English, Stemmer::English)).lost(text)
        };
        assert_eq!(lost(Tokenizer::Word2, "It is a mill."), (9, 1));
        // Hindi's vowels are marks; a run of Chinese is no word.
        assert_eq!(lost(Tokenizer::Word2, "में 北京大学"), (7, 7));
        assert_eq!(lost(Tokenizer::Standard, "में 北京大学"), (7, 0));
        assert_eq!(lost(Tokenizer::Unicode, "में 北京大学"), (7, 0));
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
        fn folded_text_has_the_terms_of_its_text(text in "[a-zéÉßøñё \u{301}中हिم]{0,20}") {
            let folding = AnalyzerOptions {
                fold_accents: true,
                ..options(Tokenizer::Unicode, StopWords::None, Stemmer::German)
            };
            let mut folded = String::new();
            scripts::fold(&text, &mut folded);
            prop_assert_eq!(terms(folding.clone(), &text), terms(folding, &folded));
        }

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
