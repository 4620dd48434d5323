//! Questions about the pages of a store, out of their sentences. Only a sentence with a clear subject makes one: the page's
//! own name, or a noun phrase before a form of "to be" or a modal verb.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use super::pages::plain;
use crate::{ParagraphKind, PassageStore, store::PageIndex};

/// The number of words of a sentence, and of a question.
const WORDS: Range<usize> = 4..31;
const QUESTION: Range<usize> = 4..21;
/// The largest number of words of a subject.
const SUBJECT: usize = 8;

/// Verbs that a question begins with.
const VERBS: [&str; 13] =
    ["is", "are", "was", "were", "can", "could", "will", "would", "must", "should", "may", "might", "shall"];
/// The first words of a subject that is written in lower case in a question. Other subjects are names.
const DETERMINERS: [&str; 6] = ["the", "a", "an", "each", "every", "all"];
/// The smallest number of words of a subject with a determiner that says enough without a name, as in `the keys of the inn`.
const DESCRIBED: usize = 5;
/// Words that begin a sentence whose subject is elsewhere, or comes later.
const UNCLEAR: [&str; 82] = [
    "some",
    "most",
    "many",
    "several",
    "few",
    "no",
    "any",
    "it",
    "its",
    "he",
    "his",
    "she",
    "her",
    "they",
    "their",
    "we",
    "our",
    "i",
    "my",
    "you",
    "your",
    "this",
    "that",
    "these",
    "those",
    "there",
    "here",
    "such",
    "one",
    "both",
    "neither",
    "either",
    "none",
    "another",
    "other",
    "others",
    "who",
    "which",
    "what",
    "where",
    "when",
    "why",
    "how",
    "if",
    "as",
    "while",
    "although",
    "though",
    "because",
    "since",
    "after",
    "before",
    "until",
    "unless",
    "in",
    "on",
    "at",
    "by",
    "for",
    "from",
    "to",
    "with",
    "without",
    "during",
    "of",
    "and",
    "but",
    "or",
    "so",
    "then",
    "however",
    "also",
    "not",
    "only",
    "once",
    "now",
    "today",
    "later",
    "first",
    "finally",
    "therefore",
    "moreover",
];
/// Pronouns after a verb, which refer to another sentence, and first words of a further sentence after a comma.
const REFERS: [&str; 8] = ["he", "him", "she", "her", "it", "they", "them", "there"];
const JOINS: [&str; 5] = ["and", "but", "or", "while", "so"];
/// Participles that do not end with `ed`.
const PARTICIPLES: [&str; 14] = [
    "built", "born", "made", "held", "written", "sold", "bought", "begun", "set", "won", "given", "taken",
    "shot", "sung",
];
/// Words inside a subject that show that the verb after it is not its own.
const CLAUSES: [&str; 14] = [
    "that", "which", "who", "whom", "whose", "where", "when", "if", "because", "while", "and", "or", "but",
    "than",
];
/// Words after a name that are no verb of it.
const NO_VERBS: [&str; 30] = [
    "and", "or", "but", "of", "in", "on", "at", "by", "for", "from", "to", "with", "who", "which", "that",
    "whose", "as", "also", "then", "the", "a", "an", "is", "are", "was", "were", "not", "himself", "herself",
    "itself",
];

/// The questions that a page's sentences make, in their order.
pub(super) fn questions(store: &PassageStore, page: PageIndex) -> Vec<String> {
    let title = plain(store.page_title(page));
    let prose = store.paragraphs(page).skip(1).filter(|text| ParagraphKind::of(text) == ParagraphKind::Text);
    let sentences: Vec<&str> = prose.flat_map(str::split_sentence_bounds).map(str::trim).collect();
    let noun = sentences.iter().find_map(|sentence| definition(sentence, title));
    sentences.into_iter().filter_map(|sentence| question(sentence, title, noun.as_deref())).collect()
}

/// The words of a sentence without its full stop; `None` for text that is no plain sentence, such as code.
fn words(sentence: &str) -> Option<Vec<&str>> {
    let text = sentence.strip_suffix('.')?;
    let is_plain = !text.contains([
        '{', '}', '<', '>', '=', '|', '`', '\\', '(', ')', '[', ']', '"', '“', ';', ':', '\n', '\t',
    ]);
    let words: Vec<&str> = text.split_whitespace().collect();
    (is_plain && WORDS.contains(&words.len())).then_some(words)
}

/// The number of words of the page's name at the start of a sentence: the whole title, or its last word.
fn named(words: &[&str], title: &str) -> Option<usize> {
    let title: Vec<&str> = title.split_whitespace().collect();
    let last = title.last().filter(|last| last.starts_with(char::is_uppercase) && last.len() > 2)?;
    if words.starts_with(&title) {
        return Some(title.len());
    }
    (words.first() == Some(last)).then_some(1)
}

/// The noun of a definition such as `Mira Oberlin was an engineer of bridges.`: `engineer`.
fn definition(sentence: &str, title: &str) -> Option<String> {
    let words = words(sentence)?;
    let rest = &words[named(&words, title)?..];
    let [verb, article, rest @ ..] = rest else { return None };
    if !["is", "was"].contains(verb) || !["a", "an"].contains(article) {
        return None;
    }
    let ends = [
        "of", "in", "by", "from", "who", "that", "which", "and", "for", "at", "on", "with", "or", "to",
        "near",
    ];
    let phrase: Vec<&str> = rest.iter().copied().take_while(|word| !ends.contains(word)).collect();
    let is_noun = |word: &&str| word.chars().all(|c| c.is_lowercase() || c == '-') && !word.ends_with("ed");
    let noun = phrase.last().filter(|word| (1..=3).contains(&phrase.len()) && is_noun(word))?;
    Some((*noun).to_owned())
}

/// The question that a sentence makes: `Which engineer was born in Leipzig?`, `When was the bridge built?` or `Is the water
/// tested once a month?`.
fn question(sentence: &str, title: &str, noun: Option<&str>) -> Option<String> {
    let words = words(sentence)?;
    let by_noun = noun.and_then(|noun| which(&words, title, noun));
    let text = by_noun.or_else(|| inverted(&words, title))?;
    QUESTION.contains(&text.split_whitespace().count()).then_some(text)
}

/// A question for the page by its noun: the name gives way to `Which engineer`.
fn which(words: &[&str], title: &str, noun: &str) -> Option<String> {
    let rest = &words[named(words, title)?..];
    let verb = rest.first()?;
    let is_verb = VERBS.contains(verb)
        || (verb.chars().all(char::is_lowercase)
            && !NO_VERBS.contains(verb)
            && (verb.ends_with("ed") || verb.ends_with('s')));
    // The definition itself has the noun.
    (is_verb && !rest.contains(&noun) && is_whole(rest)).then(|| format!("Which {noun} {}?", rest.join(" ")))
}

/// Whether a subject can be understood without its page: it is a name, or a description with a name or of several words, or
/// the title has its words.
fn is_clear(subject: &[&str], title: &str) -> bool {
    let first = subject[0].to_lowercase();
    if UNCLEAR.contains(&first.as_str()) || subject.iter().any(|word| word.ends_with(['.', ','])) {
        return false;
    }
    if !DETERMINERS.contains(&first.as_str()) {
        return subject[0].starts_with(char::is_uppercase) && !first.ends_with("ly");
    }
    let title: Vec<String> = title.split_whitespace().map(str::to_lowercase).collect();
    let is_name = |word: &&str| word.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit());
    let is_in_title = |word: &&str| title.contains(&word.to_lowercase());
    let rest = &subject[1..];
    !rest.is_empty()
        && (rest.iter().any(is_name) || subject.len() >= DESCRIBED || rest.iter().all(is_in_title))
}

/// Whether a predicate is one sentence with no word for something in another sentence.
fn is_whole(predicate: &[&str]) -> bool {
    let joins = |pair: &[&str]| pair[0].ends_with(',') && JOINS.contains(&pair[1]);
    !predicate.is_empty()
        && !predicate.iter().any(|word| REFERS.contains(&word.trim_end_matches(',')))
        && !predicate.windows(2).any(joins)
}

/// A question that begins with the verb of the sentence, or with `When` if something was done in a year.
fn inverted(words: &[&str], title: &str) -> Option<String> {
    let at = words.iter().position(|word| VERBS.contains(word)).filter(|at| (1..=SUBJECT).contains(at))?;
    let (subject, rest) = words.split_at(at);
    let (verb, rest) = rest.split_first()?;
    let has_clause = subject[1..].iter().any(|word| CLAUSES.contains(word));
    if has_clause || !is_clear(subject, title) || !is_whole(rest) {
        return None;
    }
    let mut subject: Vec<String> = subject.iter().map(|word| (*word).to_owned()).collect();
    if DETERMINERS.contains(&subject[0].to_lowercase().as_str()) {
        subject[0] = subject[0].to_lowercase();
    }
    let subject = subject.join(" ");
    let is_year = |word: &str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_done = |word: &&str| word.ends_with("ed") || PARTICIPLES.contains(word);
    if let [before @ .., "in", year] = rest
        && is_year(year)
        && before.first().is_some_and(is_done)
    {
        return Some(format!("When {verb} {subject} {}?", before.join(" ")));
    }
    let mut verb = (*verb).to_owned();
    verb[..1].make_ascii_uppercase();
    Some(format!("{verb} {subject} {}?", rest.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sentence: &str) -> Option<String> {
        question(sentence, "Mira Oberlin", Some("engineer"))
    }

    #[test]
    fn the_subject_gives_way_to_the_noun_or_follows_the_verb() {
        for (sentence, expected) in [
            (
                "Oberlin was born in Leipzig and studied in Vienna.",
                "Which engineer was born in Leipzig and studied in Vienna?",
            ),
            ("Mira Oberlin designed bridges of steel.", "Which engineer designed bridges of steel?"),
            ("Mira Oberlin was an engineer of bridges.", "Was Mira Oberlin an engineer of bridges?"),
            ("The bridge at Kelso was built in 1803.", "When was the bridge at Kelso built?"),
            ("The keys of the inn are in the kitchen.", "Are the keys of the inn in the kitchen?"),
            ("Dogs must be on a lead.", "Must Dogs be on a lead?"),
            ("Tea Houses are open on Sunday.", "Are Tea Houses open on Sunday?"),
        ] {
            assert_eq!(of(sentence).as_deref(), Some(expected), "{sentence}");
        }
    }

    #[test]
    fn a_sentence_without_a_clear_subject_makes_no_question() {
        for sentence in [
            "It stands at the end of the road.",
            "The club was founded in 1901.",
            "Some versions are very long.",
            "Kelso is a town near it.",
            "Kelso is a town, and its bridge is old.",
            "Kelso C. is a town in the north.",
            "This was the first of its kind.",
            "In May the water is tested twice.",
            "However, the water is cold.",
            "There is a lake in the north.",
            "The man who left was her brother.",
            "If it rains the match is moved.",
            "She built bridges of steel.",
            "Oberlin and her brother built a bridge.",
            "The pump, which is old, was repaired.",
            "The bridge crosses the river.",
            "let x = the value that is set.",
            "Is the water cold?",
            "Total | is | 4.",
            "Kelso is (almost) cold today.",
        ] {
            assert_eq!(of(sentence), None, "{sentence}");
        }
    }

    #[test]
    fn the_title_makes_a_subject_clear() {
        let of = |title: &str| question("The house was sold in 1955.", title, None);
        assert_eq!(of("The house at Kelso").as_deref(), Some("When was the house sold?"));
        assert_eq!(of("Mill Road"), None);
        assert_eq!(
            question("Kelso is a town of 1803.", "Kelso", None).as_deref(),
            Some("Is Kelso a town of 1803?")
        );
    }

    #[test]
    fn the_noun_is_that_of_the_definition() {
        let of = |sentence: &str| definition(sentence, "Mira Oberlin");
        assert_eq!(of("Mira Oberlin was a Swiss civil engineer of bridges.").as_deref(), Some("engineer"));
        assert_eq!(of("Oberlin is a lake in the north.").as_deref(), Some("lake"));
        assert_eq!(of("Mira Oberlin was born in Leipzig in a house."), None);
        assert_eq!(of("The engineer was a friend of hers."), None);
    }
}
