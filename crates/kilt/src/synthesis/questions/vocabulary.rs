//! Whether a capitalised word at the start of a sentence is a name.

use rustc_hash::FxHashMap;
use unicode_segmentation::UnicodeSegmentation;

use super::{is_prose, phrases::is_plural};
use crate::{PassageStore, passage::shown, sentences, store::PageIndex};

/// The number of pages whose words are counted.
const PAGES: usize = 5_000;

/// Words that are always capitalised.
const CAPITALISED: [&str; 72] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
    "American",
    "African",
    "Asian",
    "European",
    "British",
    "English",
    "Scottish",
    "Irish",
    "Welsh",
    "French",
    "German",
    "Italian",
    "Spanish",
    "Portuguese",
    "Dutch",
    "Belgian",
    "Swiss",
    "Austrian",
    "Danish",
    "Swedish",
    "Norwegian",
    "Finnish",
    "Icelandic",
    "Polish",
    "Czech",
    "Slovak",
    "Hungarian",
    "Romanian",
    "Bulgarian",
    "Greek",
    "Turkish",
    "Russian",
    "Ukrainian",
    "Serbian",
    "Croatian",
    "Albanian",
    "Chinese",
    "Japanese",
    "Korean",
    "Indian",
    "Thai",
    "Vietnamese",
    "Indonesian",
    "Australian",
    "Canadian",
    "Mexican",
    "Brazilian",
    "Argentine",
    "Egyptian",
    "Israeli",
    "Arabic",
    "Latin",
    "Roman",
];

/// Ends of common nouns and adjectives.
const COMMON_ENDS: [&str; 21] = [
    "ing", "ed", "al", "ic", "ive", "ous", "ful", "less", "able", "ary", "ent", "ant", "tion", "sion",
    "ment", "ness", "ity", "ship", "ance", "ence", "age",
];
/// Common nouns without a plural.
const SUBSTANCES: &str = "water salt sugar flour milk oil tea coffee beer wine bread rice meat food paper wood steel iron glass gold \
    silver copper coal gas fuel petrol power light heat snow rain ice wind air sand soil music money work time help access data \
    software hardware lunch dinner breakfast hay grass honey wax wool cotton rubber plastic waste mail post rent tax insurance";

fn is_substance(word: &str) -> bool {
    let lower = word.to_lowercase();
    SUBSTANCES.split_whitespace().any(|substance| substance == lower)
}

/// How often words of a store are capitalised where no sentence begins.
#[derive(Default)]
pub(in crate::synthesis) struct Vocabulary {
    /// In lower case: the occurrences in lower case, and those that are capitalised.
    counts: FxHashMap<String, (u32, u32)>,
}

impl Vocabulary {
    /// Counts the words of texts.
    #[cfg(test)]
    pub(super) fn of_texts(texts: &[&str]) -> Self {
        let mut vocabulary = Self::default();
        texts.iter().for_each(|text| vocabulary.add(text));
        vocabulary
    }

    /// Counts the words of a store's first pages.
    pub(in crate::synthesis) fn of(store: &PassageStore) -> Self {
        let mut vocabulary = Self::default();
        for page in (0..store.pages().min(PAGES) as u32).map(PageIndex) {
            // Headings are often capitalised.
            let prose = store.paragraphs(page).skip(1).filter(|text| is_prose(text));
            prose.for_each(|paragraph| vocabulary.add(&paragraph[shown(paragraph)]));
        }
        vocabulary
    }

    fn add(&mut self, text: &str) {
        for sentence in sentences(text) {
            for (at, word) in sentence.unicode_words().enumerate() {
                let is_capital = word.starts_with(char::is_uppercase);
                if is_capital && at == 0 {
                    continue;
                }
                let counts = self.counts.entry(word.to_lowercase()).or_default();
                *if is_capital { &mut counts.1 } else { &mut counts.0 } += 1;
            }
        }
    }

    fn counts(&self, word: &str) -> (u32, u32) {
        let lower = word.to_lowercase();
        let (singular, plural) = (lower.strip_suffix('s').unwrap_or(&lower), format!("{lower}s"));
        let own = self.counts.get(&lower).copied().unwrap_or_default();
        let other =
            |form: &str| if form == lower { 0 } else { self.counts.get(form).map_or(0, |counts| counts.0) };
        (own.0 + other(singular) + other(&plural), own.1)
    }

    /// Whether a word is more often in lower case than capitalised.
    pub(super) fn is_common(&self, word: &str) -> bool {
        let (lower, capital) = self.counts(word);
        lower > capital
    }

    /// Whether the first word of a sentence keeps its capital in the middle of another sentence. `next` is the word after it.
    pub(super) fn is_name(&self, word: &str, next: Option<&str>) -> bool {
        let stem = word.trim_end_matches(['.', ',']);
        let stem = stem.strip_suffix("'s").or_else(|| stem.strip_suffix("’s")).unwrap_or(stem);
        let letters = || stem.chars().filter(|letter| letter.is_alphabetic());
        // `GPUs`, `iPhone`, `X`.
        if letters().skip(1).any(char::is_uppercase) || letters().count() < 2 || CAPITALISED.contains(&stem) {
            return true;
        }
        // `Second-seeded`
        if stem.contains('-') && stem.ends_with("ed") {
            return false;
        }
        // `Northwind Labs`
        if next.is_some_and(|next| next.starts_with(char::is_uppercase)) {
            return true;
        }
        let (lower, capital) = self.counts(stem);
        if lower != capital {
            return capital > lower;
        }
        // A word that is nowhere else.
        let has_common_end = COMMON_ENDS.iter().any(|end| stem.ends_with(end));
        !(has_common_end
            || is_plural(&stem.to_lowercase())
            || next.is_some_and(is_plural)
            || is_substance(stem))
    }

    /// Whether nothing tells a name from a common noun: the word is nowhere else, and another noun follows it, as in
    /// `Kelso harbour` and `Rye flour`.
    pub(super) fn is_unsure(&self, word: &str, next: Option<&str>) -> bool {
        let (lower, capital) = self.counts(word);
        let is_lower = next.is_some_and(|next| next.starts_with(char::is_lowercase));
        lower == capital && is_lower && self.is_name(word, next) && !CAPITALISED.contains(&word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_capitalised_inside_sentences() {
        let mut vocabulary = Vocabulary::default();
        vocabulary.add("The road to Kelso is long. Near Kelso a mouse and oxalic acid were found.");
        let is_name = |word, next| vocabulary.is_name(word, next);
        assert!(
            is_name("Kelso", Some("bridges")) && is_name("Kelso's", Some("bridges")) && is_name("GPUs", None)
        );
        assert!(
            is_name("Northwind", Some("Labs")) && is_name("German", Some("dogs")) && is_name("Marsh", None)
        );
        assert!(!is_name("Salt", None) && !is_name("Parental", Some("leave")));
        assert!(
            vocabulary.is_unsure("Pittenweem", Some("harbour"))
                && !vocabulary.is_unsure("Kelso", Some("harbour"))
        );
        assert!(
            !is_name("Mouse", Some("guards")) && !is_name("Oxalic", None) && !is_name("Mice", Some("live"))
        );
        assert!(!is_name("Dogs", None) && !is_name("Feeding", None));
    }
}
