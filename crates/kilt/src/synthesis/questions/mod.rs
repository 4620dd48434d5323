//! Questions about the pages of a store, out of their sentences, without a model. A sentence is split into clauses by lists of
//! verbs and function words; a phrase of a clause that a question word can stand for is left out. A sentence whose parts are
//! unsure makes no question. A heading that is a question is one.

mod clause;
mod phrases;
mod rules;
mod verbs;
mod vocabulary;

use std::ops::Range;

use rustc_hash::FxHashSet;
use unicode_segmentation::UnicodeSegmentation;

pub(super) use self::vocabulary::Vocabulary;
use self::{
    clause::{Clause, DETERMINERS, clauses, is_unclear},
    phrases::{bare, is_function, number, time},
    rules::{of_definition, of_existence, of_leading_time},
};
use super::pages::plain;
use crate::{ParagraphKind, PassageStore, passage::shown, sentences, store::PageIndex};

/// The number of words of a sentence, and of a question.
const WORDS: Range<usize> = 4..41;
const QUESTION: Range<usize> = 3..19;
/// The smallest number of words of a question's content: with a name, without one, and without one on a page that is about a name,
/// such as an article, where `the club` says little.
const CONTENT: [usize; 3] = [2, 2, 4];

/// The smallest number of words of a subject without a name that is known outside an article.
const DESCRIBED: usize = 5;

/// Words that refer to something outside the question.
const REFERS: [&str; 21] = [
    "he",
    "him",
    "she",
    "her",
    "it",
    "they",
    "them",
    "there",
    "we",
    "us",
    "our",
    "you",
    "your",
    "i",
    "my",
    "these",
    "those",
    "such",
    "former",
    "latter",
    "following",
];
/// Words before a noun that refer to the subject.
const POSSESSIVES: [&str; 4] = ["its", "his", "her", "their"];
/// Words of questions, without content.
const QUESTION_WORDS: [&str; 26] = [
    "who", "what", "when", "where", "which", "how", "many", "much", "often", "long", "do", "does", "did",
    "can", "could", "will", "would", "must", "should", "may", "might", "shall", "be", "been", "since",
    "until",
];

/// A question, and whether it asks for the definition of its page's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) text: String,
    pub(super) is_definition: bool,
}

impl Question {
    fn new(text: String) -> Self {
        Self { text, is_definition: false }
    }
}

/// The topic of a page.
struct Topic<'t> {
    /// The page's name, as inside a sentence.
    name: String,
    /// The words of the name at the start of a sentence.
    title: Vec<&'t str>,
    /// The noun of its definition, such as `engineer`.
    noun: Option<String>,
    /// Whether it is a person.
    is_person: bool,
    /// Whether the page is about a name, such as an article.
    is_article: bool,
}

/// The questions that a page's sentences make, in their order: for each sentence, the best first.
pub(super) fn questions(
    store: &PassageStore,
    page: PageIndex,
    vocabulary: &Vocabulary,
) -> Vec<Vec<Question>> {
    let paragraphs: Vec<&str> = store.paragraphs(page).skip(1).collect();
    of_paragraphs(plain(store.page_title(page)), &paragraphs, vocabulary)
}

fn of_paragraphs(title: &str, paragraphs: &[&str], vocabulary: &Vocabulary) -> Vec<Vec<Question>> {
    let prose: Vec<String> =
        paragraphs.iter().filter(|text| is_prose(text)).map(|text| plain_text(&text[shown(text)])).collect();
    let trimmed = |text: &String| sentences(text).map(|sentence| sentence.trim().to_owned()).collect();
    let sentences: Vec<Vec<String>> = prose.iter().map(trimmed).collect();
    let mut topic = Topic::new(title, vocabulary);
    topic.noun =
        sentences.iter().flatten().find_map(|sentence| topic.definition(&words(sentence)?, vocabulary));
    let is_of_person = |text: &str| text.starts_with("He ") || text.starts_with("She ");
    topic.is_person = topic.noun.as_deref().is_some_and(rules::is_person)
        || sentences.iter().flatten().any(|sentence| is_of_person(sentence))
        || paragraphs.first().is_some_and(|text| text.contains("(born "));
    let name = topic.title.join(" ").to_lowercase();
    topic.is_article =
        topic.noun.is_some() || prose.first().is_some_and(|text| text.to_lowercase().starts_with(&name));
    let headings = paragraphs
        .iter()
        .filter(|text| matches!(ParagraphKind::of(text), ParagraphKind::Header | ParagraphKind::Heading));
    let mut made: Vec<Vec<Question>> =
        headings.filter_map(|text| heading(&text[shown(text)])).map(|question| vec![question]).collect();
    for paragraph in &sentences {
        let mut is_about = false;
        for sentence in paragraph {
            let found = words(sentence);
            let questions = found.map(|words| topic.questions(&words, &mut is_about, vocabulary));
            // Nothing is known about a sentence that is not read.
            is_about &= questions.is_some();
            made.extend(questions.filter(|questions| !questions.is_empty()));
        }
    }
    made
}

/// Whether a paragraph can have sentences.
pub(super) fn is_prose(paragraph: &str) -> bool {
    matches!(ParagraphKind::of(paragraph), ParagraphKind::Text | ParagraphKind::ListItem)
}

/// A heading that is a question.
fn heading(text: &str) -> Option<Question> {
    let text = text.trim().trim_end_matches('.');
    let is_usable = text.ends_with('?') && (4..19).contains(&text.split_whitespace().count());
    is_usable.then(|| Question::new(text.to_owned()))
}

/// A text without what is in brackets.
fn plain_text(text: &str) -> String {
    let mut depth = 0usize;
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(letter),
            _ => {}
        }
    }
    let words: Vec<&str> = out.split_whitespace().collect();
    words.join(" ").replace(" ,", ",").replace(" .", ".")
}

/// The words of a sentence without its full stop, up to a semicolon; `None` for text that is no plain sentence, such as code.
fn words(sentence: &str) -> Option<Vec<&str>> {
    let text = sentence.strip_suffix('.')?;
    let text = text.split(';').next().unwrap_or(text);
    let is_plain = !text.contains([
        '{', '}', '<', '>', '=', '|', '`', '\\', '[', ']', '"', '“', '”', ':', '\n', '\t', '*', '_', '!',
        '?', '–', '—',
    ]);
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_quoted = words.iter().any(|word| *word == "-" || word.starts_with(['\'', '‘', '’']));
    (is_plain && !is_quoted && WORDS.contains(&words.len())).then_some(words)
}

impl<'t> Topic<'t> {
    fn new(title: &'t str, vocabulary: &Vocabulary) -> Self {
        let title = title.split(", ").next().unwrap_or(title);
        let words: Vec<&str> = title.split_whitespace().collect();
        let mut name: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let has_capital = words.iter().skip(1).any(|word| word.starts_with(char::is_uppercase));
        if let Some(first) = name.first_mut().filter(|first| !has_capital && vocabulary.is_common(first)) {
            *first = first.to_lowercase();
        }
        Self { name: name.join(" "), title: words, noun: None, is_person: false, is_article: false }
    }

    /// The number of words of the page's name at the start of a sentence: the whole title, or the last of its words that are
    /// names.
    fn named(&self, words: &[&str], vocabulary: &Vocabulary) -> Option<usize> {
        if !self.title.is_empty() && words.starts_with(&self.title) {
            return Some(self.title.len());
        }
        let (first, last) = (words.first()?, self.title.last()?);
        let are_names =
            self.title.len() > 1 && self.title.iter().all(|word| word.starts_with(char::is_uppercase));
        (first == last && are_names && last.len() > 2 && vocabulary.is_name(last, None)).then_some(1)
    }

    /// The noun of a definition of the page's name.
    fn definition(&self, words: &[&str], vocabulary: &Vocabulary) -> Option<String> {
        let length = self.named(words, vocabulary)?;
        let clause = clauses(words, Some((length, &self.name)), true, vocabulary).into_iter().next()?;
        rules::noun(&clause).filter(|_| clause.subject.join(" ") == self.name).map(str::to_owned)
    }

    /// The questions of a sentence. `is_about`: whether the sentence before it is about the page's name.
    fn questions(&self, words: &[&str], is_about: &mut bool, vocabulary: &Vocabulary) -> Vec<Question> {
        if let Some(texts) = self.led_by_time(words, *is_about, vocabulary) {
            return self.usable(texts);
        }
        if let Some(text) = of_existence(words) {
            *is_about = false;
            return self.usable(vec![text]);
        }
        let known = self.known(words, *is_about, vocabulary);
        *is_about = known.is_some();
        let known = known.map(|length| (length, self.name.as_str()));
        let found = clauses(words, known, true, vocabulary);
        let mut questions = Vec::new();
        for (at, clause) in found.iter().enumerate() {
            let is_topic = known.is_some() && clause.subject.join(" ") == self.name;
            if !is_clear(clause) || !(is_topic || self.is_described(clause)) {
                continue;
            }
            let noun = rules::noun(clause).filter(|_| at == 0 && is_nameable(clause));
            if let Some(noun) = noun {
                let is_person = rules::is_person(noun) || (is_topic && self.is_person);
                let definition = of_definition(clause, is_person).into_iter().map(|text| {
                    let is_definition = !text.starts_with("Which");
                    Question { text, is_definition }
                });
                questions.extend(definition.filter(|question| has_form(&question.text)));
                if let Some(part) = rules::participle(words, clause) {
                    questions.extend(self.usable(rules::questions(&part)));
                }
                continue;
            }
            questions.extend(self.usable(rules::questions(clause)));
            if let Some(noun) = self.noun.as_deref().filter(|_| is_topic && at == 0) {
                questions.extend(self.usable(self.which(noun, clause)));
            }
        }
        questions
    }

    /// Whether the subject of a clause is known outside its page. On a page that is about a name, such as an article, `the club` is not.
    fn is_described(&self, clause: &Clause<'_>) -> bool {
        let is_in_title = |word: &String| self.title.iter().any(|title| title.to_lowercase() == *word);
        let has_name = clause
            .subject
            .iter()
            .any(|word| word.starts_with(|c: char| c.is_uppercase() || c.is_ascii_digit()));
        !self.is_article
            || has_name
            || clause.subject.len() >= DESCRIBED
            || clause.subject.iter().all(is_in_title)
    }

    /// The number of words at the start of a sentence that stand for the page's name.
    fn known(&self, words: &[&str], is_about: bool, vocabulary: &Vocabulary) -> Option<usize> {
        if let Some(length) = self.named(words, vocabulary) {
            return Some(length);
        }
        let noun = self.noun.as_deref()?;
        match words {
            ["He" | "She", ..] if is_about && self.is_person => Some(1),
            ["It", ..] if is_about && !self.is_person => Some(1),
            ["The", word, ..] if *word == noun => Some(2),
            _ => None,
        }
    }

    /// The questions of a sentence that begins with a time.
    fn led_by_time(&self, words: &[&str], is_about: bool, vocabulary: &Vocabulary) -> Option<Vec<String>> {
        let first = words[0].to_lowercase();
        if !words[0].starts_with(char::is_uppercase) || !is_function(&first) {
            return None;
        }
        let mut lower = words.to_vec();
        lower[0] = &first;
        let (length, opener) = time_at_start(&lower)?;
        let rest = &words[length..];
        let pronoun = rest.first().filter(|word| ["he", "she", "it"].contains(word));
        let known = match pronoun {
            Some(_) if is_about && self.noun.is_some() => Some((1, self.name.as_str())),
            Some(_) => return Some(Vec::new()),
            None => self.named(rest, vocabulary).map(|length| (length, self.name.as_str())),
        };
        let clause = clauses(rest, known, false, vocabulary).into_iter().next().filter(is_clear);
        Some(clause.and_then(|clause| of_leading_time(opener, &clause)).into_iter().collect())
    }

    /// A question for the page by its noun: `Which engineer was born in Leipzig?`
    fn which(&self, noun: &str, clause: &Clause<'_>) -> Vec<String> {
        let is_long = clause.rest.len() >= 3 && !clause.rest.contains(&noun);
        is_long.then(|| clause.ask_subject(&format!("Which {noun}"))).into_iter().collect()
    }

    /// The questions that can be understood and that have enough content.
    fn usable(&self, texts: Vec<String>) -> Vec<Question> {
        let is_usable = |text: &String| {
            let has_name = text.split_whitespace().skip(1).any(|word| word.starts_with(char::is_uppercase));
            let smallest = match (has_name, self.is_article) {
                (true, _) => CONTENT[0],
                (false, false) => CONTENT[1],
                (false, true) => CONTENT[2],
            };
            has_form(text) && content(text).len() >= smallest
        };
        texts.into_iter().filter(is_usable).map(Question::new).collect()
    }
}

/// A time at the start of a sentence, which a comma or the subject ends.
fn time_at_start(words: &[&str]) -> Option<(usize, &'static str)> {
    // The subject may follow without a comma, so a function word is put there.
    (2..words.len().min(9)).find_map(|end| {
        let next = bare(words[end]);
        let begins = ["the", "a", "an", "he", "she", "it", "each", "every", "all", "both"].contains(&next)
            || next.starts_with(char::is_uppercase)
            || words[end - 1].ends_with(',')
            || number(&words[end..]).is_some();
        time(&words[..end]).filter(|(length, _)| *length == end && begins)
    })
}

/// Whether the subject of a clause can be understood.
fn is_clear(clause: &Clause<'_>) -> bool {
    let subject = &clause.subject;
    let Some(first) = subject.first() else { return false };
    let refers = |word: &String| POSSESSIVES.contains(&word.as_str()) || REFERS.contains(&word.as_str());
    let words: Vec<&str> = subject.iter().map(String::as_str).collect();
    let is_bare_number = number(&words) == Some(words.len());
    let counts = ["total", "number", "majority", "rest", "variety"];
    let is_count = words.get(1).is_some_and(|word| counts.contains(word));
    !is_bare_number
        && !is_count
        && !is_unclear(first)
        && !first.ends_with("ly")
        && !subject.iter().any(|word| refers(word) || word.ends_with('.'))
}

/// Whether the subject of a clause can be asked for by `What is`: it has no determiner, or is a name.
fn is_nameable(clause: &Clause<'_>) -> bool {
    let is_name = |word: &String| word.starts_with(char::is_uppercase);
    match clause.subject.split_first() {
        Some((first, rest)) if first == "the" => !rest.is_empty() && rest.iter().all(is_name),
        Some((first, _)) => !DETERMINERS.contains(&first.as_str()),
        None => false,
    }
}

/// Whether a question has a usual length, and no word that refers to another sentence.
fn has_form(text: &str) -> bool {
    let words: Vec<String> =
        text.trim_end_matches('?').split_whitespace().map(|word| bare(word).to_lowercase()).collect();
    let is_counted = text.contains(" are there ") || text.contains(" were there ");
    let refers = |word: &String| REFERS.contains(&word.as_str()) && !(is_counted && word == "there");
    // `Who founded its club?` has nothing that `its` is of.
    let is_here = words
        .windows(2)
        .any(|pair| pair[0] == "this" && !["year", "month", "week"].contains(&pair[1].as_str()));
    let is_for_subject =
        text.starts_with("Which") || text.starts_with("Who ") || text.starts_with("How many");
    let owns = |word: &String| is_for_subject && POSSESSIVES.contains(&word.as_str());
    let open =
        ["a", "an", "the", "of", "and", "or", "but", "as", "than", "by", "with", "that", "who", "which"];
    let ends_openly = words.last().is_none_or(|last| open.contains(&last.as_str()));
    QUESTION.contains(&words.len())
        && !ends_openly
        && !is_here
        && !words.iter().any(|word| refers(word) || owns(word))
}

/// The stems of a text's words with content.
pub(super) fn content(text: &str) -> FxHashSet<String> {
    let words = text.unicode_words().map(str::to_lowercase);
    let with_content = words.filter(|word| !is_function(word) && !QUESTION_WORDS.contains(&word.as_str()));
    with_content.map(|word| stem(&word).to_owned()).collect()
}

/// A word without the ends of its forms.
fn stem(word: &str) -> &str {
    let word = word.strip_suffix("'s").or_else(|| word.strip_suffix("’s")).unwrap_or(word);
    for end in ["ing", "ed", "es", "s", "e"] {
        if let Some(stem) = word.strip_suffix(end).filter(|stem| stem.len() > 2) {
            return stem;
        }
    }
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The questions of a page, joined by blanks.
    fn of(title: &str, text: &str) -> String {
        let vocabulary = Vocabulary::of_texts(&[text]);
        let questions = of_paragraphs(title, &[text], &vocabulary).into_iter().flatten();
        questions.map(|question| question.text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_phrase_gives_way_to_a_question_word() {
        // Judged by reading.
        for (sentence, expected) in [
            (
                "Mouse guards are fixed to the entrances in October.",
                "When are mouse guards fixed to the entrances?",
            ),
            (
                "Feeding begins in the last week of July and ends in the middle of September.",
                "When does feeding begin? When does feeding end?",
            ),
            ("In December the colonies have no brood.", "When do the colonies have no brood?"),
            ("The bridge at Kelso was built in 1803.", "When was the bridge at Kelso built?"),
            (
                "St Andrews was the seat of the church until 1689.",
                "Until when was St Andrews the seat of the church?",
            ),
            ("The impeller is replaced every five years.", "How often is the impeller replaced?"),
            ("The dough is folded four times.", "How many times is the dough folded?"),
            ("Parental leave lasts for 14 months.", "How long does parental leave last?"),
            ("The meeting began at 7 pm.", "At what time did the meeting begin?"),
            (
                "The club has 34 members and was founded in 1987 by Jonas Reyl.",
                "How many members does the club have? When was the club founded by Jonas Reyl? Who founded the club in 1987?",
            ),
            (
                "Every employee gets 30 days of holiday per year.",
                "How many days of holiday does every employee get per year?",
            ),
            ("Passwords must have at least 14 characters.", "How many characters must passwords have?"),
            (
                "A colony needs 15 kg of sugar syrup before the winter.",
                "How much sugar syrup does a colony need before the winter?",
            ),
            (
                "A jar of 500 g costs seven euros at the gate.",
                "How much does a jar of 500 g cost at the gate?",
            ),
            ("The yearly fee is 60 euros, and half of that for students.", "How much is the yearly fee?"),
            ("Adult otters weigh between 7 and 12 kg.", "How much do adult otters weigh?"),
            ("The west tower is 28 metres high.", "How high is the west tower?"),
            ("There are 12 chairs in the cellar.", "How many chairs are there in the cellar?"),
            ("Two members inspect every hive.", "How many members inspect every hive?"),
            ("Sixty Plus is the name of the group.", "Is Sixty Plus the name of the group?"),
            ("The key to the shed hangs at the mill.", "Where does the key to the shed hang?"),
            ("The keys of the inn are in the kitchen.", "Where are the keys of the inn?"),
            ("Oberlin was born in Leipzig.", "Where was Oberlin born?"),
            ("Spare parts are sold by Halvorsen Marine in Bergen.", "Who sells spare parts in Bergen?"),
            ("The lawn mower belongs to Petra Voss.", "Who does the lawn mower belong to?"),
            (
                "The person on duty in the shed this year is Tomas Lind.",
                "Who is the person on duty in the shed this year?",
            ),
            (
                "A colony without eggs gets a frame of young brood from a strong neighbour.",
                "What does a colony without eggs get from a strong neighbour?",
            ),
            (
                "The water content must be below 18 per cent, and Ida Marsh measures it.",
                "Must the water content be below 18 per cent?",
            ),
            ("Dogs must be on a lead.", "Must dogs be on a lead?"),
        ] {
            assert_eq!(of("Notes", sentence), expected, "{sentence}");
        }
    }

    #[test]
    fn the_sentences_of_an_article_are_about_its_name() {
        let text = "Kelso Abbey is a ruined abbey in Kelso, Scotland. It was moved from Selkirk in 1128. The abbey \
                    became rich. The tower was built in 1150. It is cold there. It was sold in 1602.";
        assert_eq!(
            of("Kelso Abbey", text),
            "Where is Kelso Abbey? What is Kelso Abbey? When was Kelso Abbey moved from Selkirk? \
             Which abbey was moved from Selkirk in 1128?"
        );
        let text =
            "Kim Dong-min (born 16 August 1994) is a South Korean footballer who plays for Incheon United.";
        assert_eq!(
            of("Kim Dong-min", text),
            "Which South Korean footballer plays for Incheon United? Who is Kim Dong-min?"
        );
        let text = "Ann Zara is a film and television actor in London. She was born in 1980.";
        assert_eq!(of("Ann Zara", text), "Who is Ann Zara? When was Ann Zara born?");
        let text = "Outside In is an American drama film, directed by Lynn Shelton, from a screenplay by Jay Duplass.";
        assert_eq!(
            of("Outside In (film)".trim_end_matches(" (film)"), text),
            "What is Outside In? Who directed Outside In?"
        );
    }

    #[test]
    fn a_sentence_with_unsure_parts_makes_no_question() {
        for sentence in [
            "It stands at the end of the road.",
            "Some versions are very long.",
            "Kelso has a bridge near it.",
            "This was the first of its kind.",
            "However, the water is cold.",
            "The man who left was her brother.",
            "If it rains the match is moved.",
            "She built bridges of steel.",
            "The pump, which is old, was repaired in 1990.",
            "let x = the value that is set.",
            "Is the water cold?",
            "Total | is | 4.",
            "Pittenweem harbour was built in 1816.",
            "Nobody opens a hive below ten degrees.",
            "Present were Anna, Bo and Carl.",
            "The play is based on a novel by Freddie Machin and others in the group that he led for many years of his life.",
            "A total of 50 houses were built.",
            "A hook used by the harbour master for the long rope of the ferry.",
            "The mite count decides about treatment.",
        ] {
            assert_eq!(of("Notes", sentence), "", "{sentence}");
        }
    }

    #[test]
    fn a_heading_that_is_a_question_is_one() {
        let paragraphs =
            ["Heading::::Plots > How do I get a plot?", "Section::::History.", "Heading::::Why?"];
        let found = of_paragraphs("FAQ", &paragraphs, &Vocabulary::default());
        assert_eq!(found, [[Question::new("How do I get a plot?".to_owned())]]);
    }

    #[test]
    fn words_have_content_by_their_stems() {
        let stems = |text: &str| {
            let mut stems: Vec<String> = content(text).into_iter().collect();
            stems.sort();
            stems
        };
        assert_eq!(stems("When are the guards fixed?"), stems("fixing a guard"));
        assert_eq!(stems("How many members does the club have?"), ["club", "member"]);
    }
}
