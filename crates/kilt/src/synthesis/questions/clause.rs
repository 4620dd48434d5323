//! The parts of a simple clause: a subject, a verb and the rest.

use super::{
    phrases::{bare, is_plural, number},
    verbs::{Form, is_participle, verb},
    vocabulary::Vocabulary,
};

/// The largest number of words of a subject.
const SUBJECT: usize = 10;
/// Verbs that come before the subject of a question.
const AUXILIARIES: [&str; 13] =
    ["is", "are", "was", "were", "can", "could", "will", "would", "must", "should", "may", "might", "shall"];
/// First words of a subject that are in lower case inside a sentence.
pub(super) const DETERMINERS: [&str; 7] = ["the", "a", "an", "each", "every", "all", "both"];
/// Words that begin a sentence whose subject is elsewhere, comes later, or is no thing.
const UNCLEAR: &str = "some most many several few no any it its he his she her they their we our i my you your this that these \
    those there here such one both neither either none another other others nobody somebody everybody everyone someone anyone \
    nothing something everything who which what where when why how if as while although though because since after before until \
    unless in on at by for from to with without during of and but or so then however also not only once now today later first \
    second third finally therefore moreover more less fewer another next last please note see remember do don't never always \
    sometimes often usually like despite along according additionally furthermore over under around between instead again thus \
    hence further together currently previously originally initially meanwhile overall another at about make add use let present attached included enclosed";
/// Words inside a subject that show that the verb after it is not its own.
const CLAUSES: [&str; 18] = [
    "that", "which", "who", "whom", "whose", "where", "when", "if", "because", "while", "and", "or", "but",
    "than", "as", "not", "how", "what",
];
/// Adverbs between a subject and its verb, and at the start of the rest.
const ADVERBS: [&str; 16] = [
    "also",
    "often",
    "usually",
    "still",
    "now",
    "later",
    "currently",
    "originally",
    "generally",
    "normally",
    "then",
    "typically",
    "however",
    "therefore",
    "thus",
    "subsequently",
];
/// Prepositions that end the noun of a subject.
const PREPOSITIONS: [&str; 22] = [
    "of", "in", "on", "at", "for", "from", "with", "without", "near", "between", "under", "behind", "to",
    "by", "against", "about", "over", "above", "below", "per", "into", "inside",
];

/// The verb of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Predicate<'w> {
    /// A form of `be`, a modal verb, or `have` before a participle: it comes before the subject of a question.
    Auxiliary(&'w str),
    /// Another verb, of which a question has a form of `do` and the base form.
    Lexical {
        /// `keeps`
        word: &'w str,
        /// `keep`
        base: &'static str,
        /// Of `word`.
        form: Form,
    },
}

/// A clause.
#[derive(Clone, Debug)]
pub(super) struct Clause<'w> {
    /// The words of the subject; the first is in lower case unless it is a name.
    pub(super) subject: Vec<String>,
    /// The verb.
    pub(super) predicate: Predicate<'w>,
    /// The words after the verb.
    pub(super) rest: Vec<&'w str>,
}

/// The predicate at the start of words.
fn predicate<'w>(words: &[&'w str]) -> Option<Predicate<'w>> {
    let (&word, rest) = words.split_first()?;
    if AUXILIARIES.contains(&word) {
        return Some(Predicate::Auxiliary(word));
    }
    let (base, form) = verb(word)?;
    let next = rest.iter().find(|word| !ADVERBS.contains(word));
    if base == "have" && next.is_some_and(|next| is_participle(bare(next)) || *next == "been") {
        return Some(Predicate::Auxiliary(word));
    }
    Some(Predicate::Lexical { word, base, form })
}

impl Predicate<'_> {
    /// Whether a subject with this last noun can have the verb.
    fn agrees(self, noun: &str) -> bool {
        let is_name = noun.starts_with(char::is_uppercase);
        match self {
            Self::Lexical { form: Form::Base, .. } => is_plural(noun),
            Self::Lexical { form: Form::Third, .. } => is_name || !is_plural(noun),
            _ => true,
        }
    }

    /// Whether a verb with the same subject can follow after `and`.
    fn can_be_joined(self, next: Self) -> bool {
        match (self, next) {
            (Self::Lexical { form: a, .. }, Self::Lexical { form: b, .. }) => a == b,
            (Self::Lexical { form, .. }, Self::Auxiliary(word)) => match word {
                "is" | "has" => form == Form::Third,
                "are" | "have" => form == Form::Base,
                "was" | "were" => true,
                _ => false,
            },
            // After `was built`, a word such as `opened` is a participle or a past.
            (Self::Auxiliary("is" | "has"), Self::Lexical { form: Form::Third, .. })
            | (Self::Auxiliary("are" | "have"), Self::Lexical { form: Form::Base, .. }) => true,
            (Self::Auxiliary(_), Self::Auxiliary(_)) => true,
            _ => false,
        }
    }
}

/// Whether a first word leaves the subject open.
pub(super) fn is_unclear(word: &str) -> bool {
    let lower = bare(word).to_lowercase();
    UNCLEAR.split_whitespace().any(|unclear| unclear == lower)
}

/// The head noun of a subject.
pub(super) fn head<S: AsRef<str>>(subject: &[S]) -> &str {
    let end = subject.iter().skip(1).position(|word| PREPOSITIONS.contains(&word.as_ref()));
    let last = end.map_or(subject.len(), |end| end + 1);
    subject[last - 1].as_ref()
}

/// The place of the verb of the first clause, and its length of the subject without an adverb.
fn find(words: &[&str], first: usize) -> Option<(usize, usize)> {
    for at in first..=SUBJECT.max(first).min(words.len().checked_sub(1)?) {
        // A known name may have a comma or `and` inside, but not at its end.
        let before = words[at - 1];
        if before.ends_with([',', '.']) || (at > first && CLAUSES.contains(&before)) {
            return None;
        }
        let Some(found) = predicate(&words[at..]) else { continue };
        let end = if ADVERBS.contains(&words[at - 1]) { at - 1 } else { at };
        if end == 0 {
            return None;
        }
        let subject = &words[..end];
        let next = words.get(at + 1);
        if let Predicate::Lexical { base, form, .. } = found {
            // `a hook used by the master`: the participle of a clause whose verb comes later, or never.
            let is_reduced = form == Form::Past
                && is_participle(bare(words[at]))
                && (next.is_some_and(|next| bare(next) == "by") || has_later_third(&words[at + 1..]));
            if is_reduced {
                continue;
            }
            let is_noun =
                next.is_none_or(|next| (*next == "of" && base != "consist") || AUXILIARIES.contains(next));
            let before = words[at - 1];
            let is_inside = DETERMINERS.contains(&before) || PREPOSITIONS.contains(&before);
            if is_noun || is_inside || !found.agrees(head(subject)) || has_later_verb(&words[at + 1..]) {
                continue;
            }
        }
        return Some((end, at));
    }
    None
}

/// Whether the verb of the clause comes later: an auxiliary verb without a word before it that begins another clause.
fn has_later_verb(rest: &[&str]) -> bool {
    for word in rest {
        if CLAUSES.contains(&bare(word)) {
            return false;
        }
        if AUXILIARIES.contains(word) {
            return true;
        }
        if word.ends_with(',') {
            return false;
        }
    }
    false
}

/// Whether a verb of the third person comes later, without a word before it that begins another clause. A word after an article
/// or a preposition is a noun.
fn has_later_third(rest: &[&str]) -> bool {
    let mut before = "";
    for word in rest {
        if CLAUSES.contains(&bare(word)) {
            return false;
        }
        let is_third = matches!(verb(bare(word)), Some((_, Form::Third)));
        if is_third && !before.is_empty() && !DETERMINERS.contains(&before) && !PREPOSITIONS.contains(&before)
        {
            return true;
        }
        if word.ends_with(',') {
            return false;
        }
        before = *word;
    }
    false
}

/// The words of a rest until another clause begins, and the words after `and` that begin a further predicate.
fn main_part<'a, 'w>(
    rest: &'a [&'w str],
    predicate_: Predicate<'w>,
) -> (&'a [&'w str], Option<&'a [&'w str]>) {
    let begins = [
        "so",
        "but",
        "while",
        "which",
        "who",
        "whose",
        "after",
        "before",
        "when",
        "because",
        "although",
        "though",
        "where",
        "with",
        "and",
        "or",
        "as",
        "if",
        "since",
        "until",
        "including",
        "such",
        "not",
        "then",
        "making",
    ];
    let commas = rest.iter().filter(|word| word.ends_with(',')).count();
    for at in 0..rest.len() {
        let after_comma = at > 0 && rest[at - 1].ends_with(',');
        let word = rest[at];
        if word == "and" || word == "but" {
            let mut next = at + 1;
            while rest.get(next).is_some_and(|word| ADVERBS.contains(word)) {
                next += 1;
            }
            let joined =
                rest.get(next..).and_then(predicate).is_some_and(|next| predicate_.can_be_joined(next));
            if joined {
                return (&rest[..at], Some(&rest[next..]));
            }
        }
        let is_list = ["and", "or"].contains(&word) && commas > 1;
        if after_comma && begins.contains(&word) && !is_list {
            return (&rest[..at], None);
        }
    }
    (rest, None)
}

/// The first word of a sentence with a small first letter, unless it is a name. `None` if that is unsure.
fn inside(word: &str, next: Option<&str>, vocabulary: &Vocabulary) -> Option<String> {
    let lower = word.to_lowercase();
    let is_count =
        number(&[word]).is_some() && !next.is_some_and(|next| next.starts_with(char::is_uppercase));
    if DETERMINERS.contains(&lower.as_str()) || is_count || !vocabulary.is_name(word, next) {
        return Some(lower);
    }
    (!vocabulary.is_unsure(word, next)).then(|| word.to_owned())
}

/// The clauses of a sentence without its full stop: the first, and those that `and` joins to its subject. `subject` replaces
/// the first `known` words, which may have no verb; `is_start`: whether the first word is capitalised as a sentence's.
pub(super) fn clauses<'w>(
    words: &[&'w str],
    known: Option<(usize, &str)>,
    is_start: bool,
    vocabulary: &Vocabulary,
) -> Vec<Clause<'w>> {
    let first = known.map_or(1, |(length, _)| length);
    let Some((end, at)) = find(words, first) else { return Vec::new() };
    let subject: Vec<String> = match known {
        // The verb follows the name at once, or it is another subject, such as `Oberlin Bridge`.
        Some((length, name)) if end == length => name.split_whitespace().map(str::to_owned).collect(),
        _ => {
            let mut words: Vec<String> = words[..end].iter().map(|word| (*word).to_owned()).collect();
            if is_start {
                words[0] = match inside(&words[0], words.get(1).map(String::as_str), vocabulary) {
                    Some(first) => first,
                    None => return Vec::new(),
                };
            }
            words
        }
    };
    let mut clauses = Vec::new();
    let mut left = Some(&words[at..]);
    while let Some(words) = left.take() {
        let Some(found) = predicate(words) else { break };
        let (main, next) = main_part(&words[1..], found);
        let skipped = main.iter().take_while(|word| ADVERBS.contains(word)).count();
        let mut rest = main[skipped..].to_vec();
        if let Some(last) = rest.last_mut() {
            *last = bare(last);
        }
        clauses.push(Clause { subject: subject.clone(), predicate: found, rest });
        left = next;
    }
    clauses
}

impl Clause<'_> {
    fn text(parts: &[&str]) -> String {
        parts.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" ") + "?"
    }

    /// A question that begins with `opener`, or with the verb, and has `rest` after it.
    pub(super) fn ask(&self, opener: &str, rest: &[&str]) -> String {
        let (subject, rest) = (self.subject.join(" "), rest.join(" "));
        let (first, last) = match self.predicate {
            Predicate::Auxiliary(word) => (word, ""),
            Predicate::Lexical { base, form: Form::Base, .. } => ("do", base),
            Predicate::Lexical { base, form: Form::Third, .. } => ("does", base),
            Predicate::Lexical { base, form: Form::Past, .. } => ("did", base),
        };
        let text = Self::text(&[opener, first, &subject, last, bare(&rest)]);
        capitalised(&text)
    }

    /// A question for the subject: `opener` is in its place.
    pub(super) fn ask_subject(&self, opener: &str) -> String {
        let word = match self.predicate {
            Predicate::Auxiliary(word) | Predicate::Lexical { word, .. } => word,
        };
        Self::text(&[opener, word, bare(&self.rest.join(" "))])
    }
}

/// A text with a capital at its start.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sentence: &str) -> Vec<String> {
        let words: Vec<&str> = sentence.split(' ').collect();
        let clauses = clauses(&words, None, true, &Vocabulary::default());
        clauses
            .iter()
            .map(|clause| format!("{} | {}", clause.subject.join(" "), clause.rest.join(" ")))
            .collect()
    }

    #[test]
    fn a_subject_ends_before_its_verb() {
        for (sentence, expected) in [
            ("The mite count decides about treatment", &["the mite count | about treatment"][..]),
            (
                "The club has 34 members and was founded in 1987",
                &["the club | 34 members", "the club | founded in 1987"],
            ),
            ("The club records are kept at the mill", &["the club records | kept at the mill"]),
            ("Two members inspect every hive", &["two members | every hive"]),
            ("The entrance faces south-east, so that it is warm", &["the entrance | south-east"]),
            ("The club keeps bees, hens, and goats", &["the club | bees, hens, and goats"]),
            (
                "The house was built in 1900 and opened in 1901",
                &["the house | built in 1900 and opened in 1901"],
            ),
            ("The book published in 1990 was a success", &["the book published in 1990 | a success"]),
            (
                "A hook used by the harbour master hangs behind the door",
                &["a hook used by the harbour master | behind the door"],
            ),
            ("A hook kept in the shed hangs behind the door", &["a hook kept in the shed | behind the door"]),
            ("A hook used by the harbour master", &[]),
            ("The club published the records of 1990", &["the club | the records of 1990"]),
            ("The pump, which is old, was repaired", &[]),
            ("The man who left was old", &[]),
            ("The blue stone near the gate", &[]),
        ] {
            assert_eq!(shown(sentence), expected, "{sentence}");
        }
    }

    #[test]
    fn a_question_has_the_auxiliary_or_a_form_of_do() {
        let words: Vec<&str> = "The club keeps twelve hives".split(' ').collect();
        let clause = clauses(&words, None, true, &Vocabulary::default()).remove(0);
        assert_eq!(clause.ask("How many hives", &[]), "How many hives does the club keep?");
        assert_eq!(clause.ask_subject("Who"), "Who keeps twelve hives?");
    }
}
