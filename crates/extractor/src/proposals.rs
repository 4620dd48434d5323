//! Mentions without a model: names by capitals, dates by pattern, pronouns by a list.
//!
//! These proposals are tuned for recall: hardly any argument of a fact should be missed. They do not
//! distinguish persons, organisations and places. So the type of a name is [`EntityType::Other`], and the
//! relation model infers it from the text.

use std::ops::Range;

use crate::{Document, EntityType, Mention, MentionForm, Sentence};

/// Pronouns of persons.
const PERSONS: [&str; 27] = [
    "i",
    "me",
    "my",
    "mine",
    "myself",
    "we",
    "us",
    "our",
    "ours",
    "ourselves",
    "he",
    "him",
    "his",
    "himself",
    "she",
    "her",
    "hers",
    "herself",
    "who",
    "whom",
    "whose",
    "they",
    "them",
    "their",
    "theirs",
    "themselves",
    "you",
];
/// Other pronouns, and relative words for a place or a thing.
const THINGS: [&str; 6] = ["it", "its", "itself", "which", "that", "where"];
const MONTHS: [&str; 23] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
    "jan",
    "feb",
    "mar",
    "apr",
    "jun",
    "jul",
    "aug",
    "sep",
    "sept",
    "oct",
    "nov",
];
const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// Lower-case words inside names.
const PARTICLES: [&str; 27] = [
    "de", "la", "von", "van", "der", "den", "du", "di", "da", "del", "della", "dos", "das", "al", "bin",
    "bint", "ibn", "el", "le", "les", "zu", "ter", "ten", "af", "av", "y", "do",
];
/// After these, `of` and `for` continue the name.
const INSTITUTIONS: [&str; 46] = [
    "university",
    "bank",
    "institute",
    "college",
    "school",
    "department",
    "republic",
    "kingdom",
    "house",
    "academy",
    "museum",
    "ministry",
    "centre",
    "center",
    "church",
    "council",
    "party",
    "union",
    "society",
    "association",
    "federation",
    "league",
    "board",
    "office",
    "faculty",
    "court",
    "order",
    "army",
    "city",
    "state",
    "states",
    "province",
    "county",
    "isle",
    "bishop",
    "duke",
    "earl",
    "king",
    "queen",
    "conservatory",
    "company",
    "foundation",
    "organization",
    "organisation",
    "network",
    "united",
];
/// Capitalised words between two names that belong to neither: `Apple CEO Tim Cook`.
const ROLES: [&str; 29] = [
    "ceo",
    "cfo",
    "cto",
    "coo",
    "mp",
    "mps",
    "president",
    "chairman",
    "chairwoman",
    "director",
    "managing",
    "founder",
    "co-founder",
    "senator",
    "secretary",
    "chief",
    "executive",
    "officer",
    "vice",
    "prime",
    "minister",
    "professor",
    "governor",
    "mayor",
    "captain",
    "general",
    "sir",
    "dr",
    "dr.",
];
/// Sentence openers, which are capitalised but no names.
const OPENERS: [&str; 58] = [
    "the",
    "a",
    "an",
    "in",
    "on",
    "at",
    "after",
    "before",
    "from",
    "for",
    "while",
    "when",
    "as",
    "by",
    "during",
    "since",
    "although",
    "however",
    "this",
    "these",
    "those",
    "there",
    "to",
    "with",
    "and",
    "but",
    "or",
    "if",
    "of",
    "until",
    "upon",
    "under",
    "through",
    "despite",
    "following",
    "then",
    "later",
    "also",
    "both",
    "one",
    "two",
    "born",
    "now",
    "once",
    "though",
    "because",
    "together",
    "according",
    "today",
    "about",
    "prior",
    "early",
    "not",
    "so",
    "some",
    "many",
    "another",
    "other",
];

/// A token with its features for the search.
struct Word<'a> {
    text: &'a str,
    lower: String,
    /// Whether there is no blank before it.
    touches: bool,
}

/// The proposed mentions of a document, in order, without overlaps.
#[must_use]
pub fn proposals(document: &Document) -> Vec<Mention> {
    let mut mentions = Vec::new();
    for (number, sentence) in document.sentences.iter().enumerate() {
        in_sentence(document, number, sentence, &mut mentions);
    }
    mentions
}

fn in_sentence(document: &Document, number: usize, sentence: &Sentence, mentions: &mut Vec<Mention>) {
    let words: Vec<Word<'_>> = sentence
        .tokens
        .clone()
        .map(|at| {
            let text = document.word(at);
            let touches =
                at > sentence.tokens.start && document.tokens[at - 1].end == document.tokens[at].start;
            Word { text, lower: text.to_lowercase(), touches }
        })
        .collect();
    let mut at = 0;
    while at < words.len() {
        let found = date(&words, at)
            .map(|end| (end, EntityType::Date, MentionForm::Name))
            .or_else(|| pronoun(&words[at]).map(|kind| (at + 1, kind, MentionForm::Pronoun)))
            .or_else(|| name(&words, at).map(|end| (end, EntityType::Other, MentionForm::Name)));
        let Some((end, kind, form)) = found else {
            at += 1;
            continue;
        };
        let tokens: Range<usize> = sentence.tokens.start + at..sentence.tokens.start + end;
        let span = document.span(tokens.clone());
        mentions.push(Mention { span, tokens, sentence: number, kind, form, confidence: 1.0 });
        at = end;
    }
}

fn number(word: &str) -> Option<u32> {
    (word.len() <= 4 && word.bytes().all(|byte| byte.is_ascii_digit())).then(|| word.parse().ok()).flatten()
}

fn is_year(word: &Word<'_>) -> bool {
    let digits = word.text.strip_suffix('s').unwrap_or(word.text);
    digits.len() == 4 && number(digits).is_some_and(|year| (1000..2100).contains(&year))
}

/// A day of the month, such as `3` or `3rd`.
fn is_day(word: &Word<'_>) -> bool {
    let digits = word.lower.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let suffix = &word.lower[digits.len()..];
    matches!(suffix, "" | "st" | "nd" | "rd" | "th")
        && number(digits).is_some_and(|day| (1..=31).contains(&day))
}

fn is_month(word: &Word<'_>) -> bool {
    word.text.starts_with(char::is_uppercase)
        && MONTHS.contains(&word.lower.strip_suffix('.').unwrap_or(&word.lower))
}

/// The end of a date that starts at token `start`: `2 May 1999`, `Monday, May 2, 1999`, `May 1999`, `1999`,
/// `2/5/1999`.
fn date(words: &[Word<'_>], start: usize) -> Option<usize> {
    let is = |at: usize, test: fn(&Word<'_>) -> bool| words.get(at).is_some_and(test);
    let skip = |at: usize, text: &str| at + usize::from(words.get(at).is_some_and(|word| word.lower == text));
    if is(start, is_year) && !words.get(start + 1).is_some_and(|word| word.touches && word.text == "/") {
        return Some(start + 1);
    }
    let mut at = start;
    if WEEKDAYS.contains(&&*words[at].lower) {
        at = skip(at + 1, ",");
    }
    let before = at;
    if is(at, is_day) {
        at = skip(at + 1, "of");
    }
    if is(at, is_month) {
        at += 1;
        if before + 1 == at && is(at, is_day) && !is(at, is_year) {
            at += 1;
        }
        let comma = skip(at, ",");
        let is_late = |word: &Word<'_>| number(word.text).is_some_and(|year| year > 31);
        return Some(if is(comma, is_late) { comma + 1 } else { at });
    }
    let parts = words.get(start..start + 5)?;
    let separators = ["/", "-", "."];
    let is_numeric = [0, 2, 4].iter().all(|&part| number(parts[part].text).is_some())
        && separators.contains(&parts[1].text)
        && parts[1].text == parts[3].text
        && parts[1..].iter().all(|word| word.touches);
    is_numeric.then_some(start + 5)
}

fn pronoun(word: &Word<'_>) -> Option<EntityType> {
    // `US` and `IT` are names.
    if word.text.chars().count() > 1 && word.text.chars().all(char::is_uppercase) {
        return None;
    }
    if word.text == "i" {
        return None;
    }
    PERSONS
        .contains(&&*word.lower)
        .then_some(EntityType::Person)
        .or_else(|| THINGS.contains(&&*word.lower).then_some(EntityType::Other))
}

/// Whether a word can be part of a name: it starts with a capital, or with a letter of a script without case.
fn is_capital(word: &Word<'_>) -> bool {
    let Some(first) = word.text.chars().next() else { return false };
    first.is_uppercase() || (first.is_alphabetic() && !first.is_lowercase() && !first.is_ascii())
}

fn joins(word: &Word<'_>) -> bool {
    is_capital(word) && pronoun(word).is_none() && !ROLES.contains(&&*word.lower)
}

/// The end of a name that starts at token `start`.
fn name(words: &[Word<'_>], start: usize) -> Option<usize> {
    let opens = start == 0 || words[start - 1].text.chars().all(|letter| !letter.is_alphanumeric());
    if !joins(&words[start])
        || (opens && OPENERS.contains(&&*words[start].lower))
        || words[start].lower == "the"
    {
        return None;
    }
    let (mut end, mut at) = (start + 1, start + 1);
    while at < words.len() {
        let word = &words[at];
        let next = words.get(at + 1);
        if joins(word) && date(words, at).is_none() {
            at += 1;
            end = at;
            continue;
        }
        let next_joins = next.is_some_and(joins);
        let goes_on = match &*word.lower {
            "&" => next_joins,
            "-" | "'" | "’" | "." | "–" => {
                word.touches && next_joins && next.is_some_and(|next| next.touches)
            }
            "of" | "for" => {
                let institution = words[start..at].iter().any(|word| INSTITUTIONS.contains(&&*word.lower));
                let article = next.is_some_and(|next| next.lower == "the");
                institution && (next_joins || (article && words.get(at + 2).is_some_and(joins)))
            }
            "the" => matches!(&*words[at - 1].lower, "of" | "for") && next_joins,
            particle => {
                PARTICLES.contains(&particle)
                    && next.is_some_and(|next| joins(next) || PARTICLES.contains(&&*next.lower))
            }
        };
        if !goes_on {
            break;
        }
        at += 1;
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let document = Document::new("d", text);
        proposals(&document).iter().map(|mention| document.slice(mention.span).unwrap().to_owned()).collect()
    }

    #[test]
    fn names_have_their_particles_and_lose_roles_and_openers() {
        assert_eq!(
            found(
                "The founder of Apple CEO Tim Cook met Ludwig van Beethoven at the University of the Arts."
            ),
            ["Apple", "Tim Cook", "Ludwig van Beethoven", "University of the Arts"]
        );
        assert_eq!(
            found("Amy and Rory of Leeds own Johnson & Johnson."),
            ["Amy", "Rory", "Leeds", "Johnson & Johnson"]
        );
        assert_eq!(found("In Paris, a Japanese-owned firm of 左 卜全."), ["Paris", "Japanese", "左 卜全"]);
    }

    #[test]
    fn dates_of_many_forms_are_one_mention_each() {
        assert_eq!(found("Born Monday, May 2, 1999."), ["Monday, May 2, 1999"]);
        assert_eq!(found("on the 3rd of June 644 and 14 March 1990"), ["3rd of June 644", "14 March 1990"]);
        assert_eq!(found("in the 1970s, 1980 and 2/5/1999"), ["1970s", "1980", "2/5/1999"]);
        assert_eq!(found("may 31 people in 12 rooms"), [""; 0]);
        assert_eq!(found("In Oct. 1974 (2001)"), ["Oct. 1974", "2001"]);
    }

    #[test]
    fn pronouns_have_a_kind_and_capitals_of_two_letters_are_names() {
        let document = Document::new("d", "She left the US, where it was his.");
        let kinds: Vec<_> = proposals(&document).iter().map(|mention| (mention.kind, mention.form)).collect();
        use EntityType::{Other, Person};
        use MentionForm::{Name, Pronoun};
        assert_eq!(
            kinds,
            [(Person, Pronoun), (Other, Name), (Other, Pronoun), (Other, Pronoun), (Person, Pronoun)]
        );
    }

    #[test]
    fn places_count_characters_whatever_the_script() {
        let document = Document::new("d", "🦀🦀 Zoë lives. ساره تعيش 😀");
        for mention in proposals(&document) {
            assert_eq!(document.span(mention.tokens.clone()), mention.span);
            assert!(document.slice(mention.span).is_some());
        }
        assert_eq!(found("")[..], [""; 0]);
    }
}
