//! Citations: which passages support the sentences of an answer.

use std::ops::Range;

use rustc_hash::{FxHashMap, FxHashSet};
use sporran_documents::is_wrapped;
use sporran_extractor::Document;
use sporran_kilt::Passage;
use sporran_retriever::sparse::Analyzer;

use super::{answer::CitedSentence, models::analyzer};

/// The smallest share of a sentence's words that a passage that supports it has.
const SHARE: f64 = 0.6;

/// The ends of words after an apostrophe, as in `Ann's`.
const TAILS: [&str; 4] = ["s", "t", "d", "m"];

/// The signs between the words of a number.
const HYPHENS: [char; 3] = ['-', '\u{2010}', '\u{2011}'];

/// The English words of numbers. Those from a hundred on multiply what is before them.
const NUMBER_WORDS: [(&str, u64); 30] = [
    ("one", 1),
    ("two", 2),
    ("three", 3),
    ("four", 4),
    ("five", 5),
    ("six", 6),
    ("seven", 7),
    ("eight", 8),
    ("nine", 9),
    ("ten", 10),
    ("eleven", 11),
    ("twelve", 12),
    ("thirteen", 13),
    ("fourteen", 14),
    ("fifteen", 15),
    ("sixteen", 16),
    ("seventeen", 17),
    ("eighteen", 18),
    ("nineteen", 19),
    ("twenty", 20),
    ("thirty", 30),
    ("forty", 40),
    ("fifty", 50),
    ("sixty", 60),
    ("seventy", 70),
    ("eighty", 80),
    ("ninety", 90),
    ("hundred", 100),
    ("thousand", 1_000),
    ("million", 1_000_000),
];

/// Compares the words of sentences with those of passages.
pub(super) struct Support {
    analyzer: Analyzer,
    question: FxHashSet<String>,
    /// The words of each passage with its title and section.
    passages: Vec<Words>,
}

/// The words of a text.
struct Words {
    /// Stems without stop words and numbers.
    terms: FxHashSet<String>,
    numbers: Vec<Number>,
}

impl Words {
    fn of(analyzer: &Analyzer, text: &str) -> Self {
        let is_word = |term: &String| term.contains(char::is_alphabetic) && !TAILS.contains(&&**term);
        let terms = analyzer.terms(text).into_iter().filter(is_word).collect();
        Self { terms, numbers: numbers(text, &mut Vec::new()) }
    }

    /// Those of a sentence of an answer. The words of its numbers are no terms, because a passage can have the digits.
    fn of_sentence(analyzer: &Analyzer, text: &str) -> Self {
        let mut spelled = Vec::new();
        numbers(text, &mut spelled);
        let spelled: FxHashSet<String> = analyzer.terms(&spelled.join(" ")).into_iter().collect();
        let mut words = Self::of(analyzer, text);
        words.terms.retain(|term| !spelled.contains(term));
        words
    }

    /// Whether it has every number of another text.
    fn has_numbers_of(&self, other: &Self) -> bool {
        other.numbers.iter().all(|number| self.numbers.iter().any(|own| own.is(number)))
    }
}

/// A number of a text, by the values that it can be read as, without zeros at the ends: `1.250` is 1250 or 1.25.
#[derive(Debug, PartialEq, Eq)]
struct Number(Vec<String>);

impl Number {
    /// Reads digits with points and commas between them.
    fn read(written: &str) -> Self {
        let parts: Vec<&str> = written.split(['.', ',']).collect();
        let [whole, rest @ ..] = &*parts else { return Self(Vec::new()) };
        let is_grouped = (1..=3).contains(&whole.len())
            && !whole.starts_with('0')
            && rest.iter().all(|part| part.len() == 3);
        let fraction = |whole: &str, fraction: &str| {
            let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
            if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
        };
        let mark = written.find(['.', ',']).map(|at| &written[at..=at]);
        Self(match (rest, mark) {
            ([], _) => vec![fraction(whole, "")],
            // Thousands have commas in English, and points elsewhere.
            ([_], Some(",")) if is_grouped => vec![parts.concat()],
            ([part], _) if is_grouped => vec![parts.concat(), fraction(whole, part)],
            ([part], _) => vec![fraction(whole, part)],
            _ if is_grouped && written.matches(['.', ',']).all(|other| Some(other) == mark) => {
                vec![parts.concat()]
            }
            // Thousands with a fraction after another sign, such as `1,250.50`.
            ([groups @ .., last], Some(mark))
                if written.matches(mark).count() == groups.len()
                    && groups.iter().all(|part| part.len() == 3) =>
            {
                vec![fraction(&parts[..parts.len() - 1].concat(), last)]
            }
            // A version or a date.
            _ => vec![written.to_owned()],
        })
    }

    fn is(&self, other: &Self) -> bool {
        self.0.iter().any(|value| other.0.contains(value))
    }
}

/// The numbers of a text, in digits and in English words. A point or a comma between two digits belongs to a number. `spelled`
/// gets the words that spell numbers.
fn numbers(text: &str, spelled: &mut Vec<String>) -> Vec<Number> {
    let mut found = in_digits(text, spelled);
    let words = text.split(|c: char| !(c.is_alphanumeric() || c.is_whitespace() || HYPHENS.contains(&c)));
    for part in words {
        found.extend(in_words(part, spelled).into_iter().map(|value| Number(vec![value.to_string()])));
    }
    found
}

/// The numbers in digits. One before a word that multiplies it can also be read as the product.
fn in_digits(text: &str, spelled: &mut Vec<String>) -> Vec<Number> {
    let mut found = Vec::new();
    let mut number = String::new();
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let is_inside =
            !number.is_empty() && characters.peek().is_some_and(|(_, next)| next.is_ascii_digit());
        if c.is_ascii_digit() || (matches!(c, '.' | ',') && is_inside) {
            number.push(c);
        } else if !number.is_empty() {
            found.push(multiplied(&std::mem::take(&mut number), &text[at..], spelled));
        }
    }
    if !number.is_empty() {
        found.push(Number::read(&number));
    }
    found
}

/// A number in digits with the text after it: `2 million` is 2 or 2000000.
fn multiplied(written: &str, after: &str, spelled: &mut Vec<String>) -> Number {
    let mut number = Number::read(written);
    let word = after.strip_prefix(' ').unwrap_or_default();
    let word = word.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_ascii_lowercase();
    let factor = NUMBER_WORDS.iter().find(|(name, value)| *name == word && *value >= 100);
    // A fraction of at most three digits stays exact in thousandths.
    let (whole, fraction) = written.split_once('.').unwrap_or((written, ""));
    if let Some((_, factor)) = factor
        && fraction.len() <= 3
        && let Ok(thousandths) = format!("{whole}{fraction:0<3}").parse::<u64>()
        && let Some(product) = thousandths.checked_mul(*factor)
        && product % 1000 == 0
    {
        number.0.push((product / 1000).to_string());
        spelled.push(word);
    }
    number
}

/// The numbers in the words of a text without punctuation, such as `two hundred and fifty-one`. `one` alone is mostly no number.
fn in_words(text: &str, spelled: &mut Vec<String>) -> Vec<u64> {
    let mut found = Vec::new();
    // The words of the number that is being read.
    let mut read: Vec<String> = Vec::new();
    // The number that is being read: its thousands, and what is below a thousand.
    let mut open: Option<(u64, u64)> = None;
    let mut is_bare_one = false;
    let words =
        text.split(|c: char| c.is_whitespace() || HYPHENS.contains(&c)).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_ascii_lowercase).collect();
    let value_of =
        |word: &String| NUMBER_WORDS.iter().find(|(name, _)| name == word).map(|(_, value)| *value);
    // The first factor of the number that begins at a place. After `and` it tells whether the number goes on, as in `two hundred
    // and fifty thousand`, or is the next one, as in `two hundred and three hundred`.
    let factor_of = |at: usize| words[at..].iter().map_while(value_of).find(|value| *value >= 100);
    for (at, word) in words.iter().enumerate() {
        let part = value_of(word);
        let goes_on = match (open, part) {
            (None, Some(part)) => part < 100,
            (Some((all, below)), Some(part)) => match part {
                100 => (1..10).contains(&below),
                1_000.. => below > 0 && (all == 0 || all > 1_000 * part),
                10..100 => below % 100 == 0,
                _ => below % 10 == 0 && below % 100 != 10,
            },
            (Some((all, below)), None)
                if word == "and"
                    && (below >= 100 || (all > 0 && below == 0))
                    && match factor_of(at + 1) {
                        None => true,
                        Some(100) => below < 100,
                        Some(factor) => below >= 100 || all > 1_000 * factor,
                    } =>
            {
                continue;
            }
            _ => false,
        };
        if !goes_on {
            if let Some((all, below)) = open.take().filter(|_| !is_bare_one) {
                found.push(all + below);
                spelled.append(&mut read);
            }
            read.clear();
        }
        if let Some(part) = part.filter(|part| goes_on || *part < 100) {
            read.push(word.clone());
            let (all, below) = open.unwrap_or_default();
            is_bare_one = open.is_none() && part == 1;
            open = Some(match part {
                100 => (all, below * 100),
                1_000.. => (all + below * part, 0),
                _ => (all, below + part),
            });
        }
    }
    if let Some((all, below)) = open.filter(|_| !is_bare_one) {
        found.push(all + below);
        spelled.append(&mut read);
    }
    found
}

/// A sentence without the number of an item of a list, such as `2. `.
fn without_marker(sentence: &str) -> &str {
    let rest = sentence.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_number = (1..=2).contains(&(sentence.len() - rest.len()));
    rest.strip_prefix(['.', ')']).filter(|rest| is_number && rest.starts_with(' ')).unwrap_or(sentence)
}

/// Whether a line is a heading of Markdown, which states nothing.
fn is_heading(line: &str) -> bool {
    let rest = line.trim_start().trim_start_matches('#');
    rest.len() < line.trim_start().len() && rest.starts_with(' ')
}

/// Whether a line begins an item of a list, a row of a table, or a heading.
fn begins_item(line: &str) -> bool {
    let line = line.trim_start();
    let is_bullet = |mark: char| line.strip_prefix(mark).is_some_and(|rest| rest.starts_with(' '));
    line.starts_with('|')
        || ['-', '*', '+', '•', '–'].into_iter().any(is_bullet)
        || without_marker(line).len() < line.len()
        || is_heading(line)
}

impl Support {
    pub(super) fn new<'p>(question: &str, passages: impl IntoIterator<Item = &'p Passage>) -> Self {
        let analyzer = Analyzer::new(analyzer());
        let words = |passage: &Passage| {
            Words::of(&analyzer, &format!("{} {} {}", passage.title, passage.section, passage.text))
        };
        let passages = passages.into_iter().map(words).collect();
        let terms = analyzer.terms(question).into_iter();
        let question = terms.filter(|term| !TAILS.contains(&&**term)).collect();
        Self { analyzer, question, passages }
    }

    /// Whether a passage supports a sentence by its words: it has every number of the sentence, at least [`SHARE`] of its
    /// words, and at least that share of the words that are not in the question.
    fn supports(&self, sentence: &Words, passage: &Words) -> bool {
        let share = |terms: &mut dyn Iterator<Item = &String>| {
            let (mut held, mut all) = (0usize, 0usize);
            for term in terms {
                all += 1;
                held += usize::from(passage.terms.contains(term));
            }
            all == 0 || held as f64 >= SHARE * all as f64
        };
        passage.has_numbers_of(sentence)
            && share(&mut sentence.terms.iter())
            && share(&mut sentence.terms.iter().filter(|term| !self.question.contains(*term)))
    }

    /// The passages that support a sentence, by their indices; `None` for a heading, and for a sentence without content words.
    pub(super) fn of(&self, sentence: &str) -> Option<Vec<usize>> {
        if is_heading(sentence) {
            return None;
        }
        let words = Words::of_sentence(&self.analyzer, without_marker(sentence));
        if words.terms.is_empty() && words.numbers.is_empty() {
            return None;
        }
        let supports = |at: &usize| self.supports(&words, &self.passages[*at]);
        Some((0..self.passages.len()).filter(supports).collect())
    }

    /// The sentence of a passage with the most words of the question or of `answer`, in bytes of its text. A sentence ends with
    /// its part; the parts are paragraphs and list items. Where the lines of a part have their own places and stand alone, as
    /// in code and in tables, it ends with its line. A word counts less the more of the passages have it. Words of the answer count twice.
    pub(super) fn highlight(
        &self,
        text: &str,
        parts: impl IntoIterator<Item = Part>,
        answer: &str,
    ) -> Range<usize> {
        let terms = self.analyzer.terms(answer).into_iter();
        let answer: FxHashSet<String> = terms.filter(|term| !TAILS.contains(&&**term)).collect();
        let mut held: FxHashMap<&String, usize> = FxHashMap::default();
        for term in self.question.iter().chain(&answer) {
            let count = self.passages.iter().filter(|passage| passage.terms.contains(term)).count();
            held.insert(term, count);
        }
        let worth = |sentence: &str| -> f64 {
            let terms: FxHashSet<String> = self.analyzer.terms(sentence).into_iter().collect();
            // The order of a sum of floats changes its digits, so the terms are sorted.
            let mut known: Vec<&String> = terms.iter().filter(|term| held.contains_key(term)).collect();
            known.sort_unstable();
            let weight = |term: &String| if answer.contains(term) { 2.0 } else { 1.0 };
            known.into_iter().map(|term| weight(term) / (1.0 + held[term] as f64)).sum()
        };
        let (mut all, mut whole) = (Vec::new(), None::<Range<usize>>);
        for Part { range: part, has_lines } in parts {
            whole = Some(whole.map_or(part.start, |before| before.start)..part.end);
            let own = &text[part.clone()];
            let own = if has_lines { units(own) } else { sentences(own) };
            all.extend(own.into_iter().map(|range| part.start + range.start..part.start + range.end));
        }
        let is_row =
            |at: usize| all.get(at).is_some_and(|range: &Range<usize>| text[range.clone()].contains(CELLS));
        let mut best: Option<(f64, Range<usize>)> = None;
        for (at, range) in all.iter().enumerate() {
            // The names of columns are in the question more often than in its answer.
            let is_head = is_row(at) && is_row(at + 1) && !(at > 0 && is_row(at - 1));
            let value = worth(&text[range.clone()]) * if is_head { 0.5 } else { 1.0 };
            if best.as_ref().is_none_or(|(known, _)| value > *known) {
                best = Some((value, range.clone()));
            }
        }
        best.map(|(_, range)| range).or(whole).unwrap_or(0..text.len())
    }
}

/// A paragraph or a list item of a passage.
pub(super) struct Part {
    /// Its bytes of the text.
    pub(super) range: Range<usize>,
    /// Whether its file has it on several lines.
    pub(super) has_lines: bool,
}

/// The separator of the cells of a row.
pub(super) const CELLS: &str = " | ";

/// The sentences of a text, within its lines if these stand alone, as ranges of its bytes.
fn units(text: &str) -> Vec<Range<usize>> {
    let lines: Vec<&str> = text.split('\n').filter(|line| !line.trim().is_empty()).collect();
    if is_wrapped(&lines) {
        return sentences(text);
    }
    let first = text.as_ptr() as usize;
    let in_line = |line: &&str| {
        let start = line.as_ptr() as usize - first;
        // A row, or code, has signs that end sentences elsewhere.
        let own = match line.contains(CELLS) {
            true => std::iter::once(0..line.trim_end().len()).collect(),
            false => sentences(line),
        };
        own.into_iter().map(move |range| start + range.start..start + range.end)
    };
    lines.iter().flat_map(in_line).collect()
}

/// The sentences of a text, as ranges of its bytes.
pub(super) fn sentences(text: &str) -> Vec<Range<usize>> {
    let document = Document::new("", text);
    let first = document.text.as_ptr() as usize;
    let range = |slice: &str| {
        let start = slice.as_ptr() as usize - first;
        start..start + slice.len()
    };
    document.sentences.iter().filter_map(|sentence| document.slice(sentence.span)).map(range).collect()
}

/// An answer without the citations at the ends of its clauses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bare {
    /// The text.
    pub(super) text: String,
    /// The byte before which each citation stood, with its number. One that stays, or begins a line, is at the byte after.
    pub(super) citations: Vec<(usize, usize)>,
    /// The bytes of the citations that stay, with their numbers.
    kept: Vec<(Range<usize>, Vec<usize>)>,
}

/// What stands between the citations of a list.
const JOINTS: [&str; 9] = ["", " ", ", ", ",", "; ", " and ", ", and ", " or ", " & "];
/// Words of which a citation is the object: `according to [1]`, `passage [1]`.
const LEADS: [&str; 30] = [
    "to",
    "in",
    "by",
    "of",
    "from",
    "as",
    "per",
    "with",
    "via",
    "on",
    "at",
    "for",
    "than",
    "like",
    "between",
    "and",
    "or",
    "but",
    "both",
    "that",
    "because",
    "while",
    "see",
    "passage",
    "passages",
    "source",
    "sources",
    "document",
    "documents",
    "reference",
];
/// Words that begin a clause.
const CLAUSES: [&str; 17] = [
    "and", "or", "but", "nor", "so", "yet", "while", "whereas", "although", "though", "because", "since",
    "which", "who", "whose", "where", "when",
];

/// Takes citations such as `[1]`, `[2, 3]`, `[1][2]`, `[^1]`, `【1†source】` and `[?]` out of an answer. One that does not end a
/// clause is a part of its sentence and stays, as in `according to [1]`. So do code, links, and other text in brackets.
pub(super) fn without_citations(answer: &str) -> Bare {
    let mut bare = Bare::default();
    let mut at = 0;
    for code in fenced(answer) {
        bare.take(&answer[at..code.start]);
        bare.text.push_str(&answer[code.clone()]);
        at = code.end;
    }
    bare.take(&answer[at..]);
    bare
}

impl Bare {
    /// Adds a text without fenced code.
    fn take(&mut self, text: &str) {
        let mut rest = text;
        while let Some(open) = rest.find(['[', '【', '`']) {
            let (before, mark) = rest.split_at(open);
            self.text.push_str(before);
            let length = if mark.starts_with('`') {
                code_span(mark)
            } else if let Some((length, numbers)) = numbered_link(mark) {
                self.kept.push((self.text.len()..self.text.len() + length, numbers));
                length
            } else if let Some((length, numbers)) = citations(mark).filter(|_| !self.ends_with_name()) {
                if !self.is_read(&mark[length..]) {
                    rest = self.leave(numbers, &mark[length..]);
                    continue;
                }
                let start = self.text.len();
                self.citations.extend(numbers.iter().map(|number| (start + 1, *number)));
                self.kept.push((start..start + length, numbers));
                length
            } else {
                mark.chars().next().map_or(0, char::len_utf8)
            };
            self.text.push_str(&mark[..length]);
            rest = &mark[length..];
        }
        self.text.push_str(rest);
    }

    /// Leaves out citations. Gives the text after them.
    fn leave<'t>(&mut self, numbers: Vec<usize>, after: &'t str) -> &'t str {
        self.text.truncate(self.text.trim_end_matches(' ').len());
        let begins_line = self.text.is_empty() || self.text.ends_with('\n');
        let at = self.text.len() + usize::from(begins_line);
        self.citations.extend(numbers.into_iter().map(|number| (at, number)));
        if begins_line { after.trim_start_matches(' ') } else { after }
    }

    /// Whether the text ends with the name of a variable, of which a bracket is an item: `x[1]`, `my_list[2]`.
    fn ends_with_name(&self) -> bool {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = &self.text[self.text.trim_end_matches(is_part).len()..];
        name.contains('_') || (name.len() == 1 && name.starts_with(|c: char| c.is_ascii_lowercase()))
    }

    /// Whether a citation at the end of the text is a part of a sentence that goes on with `after`: it is the object of the word
    /// before it, or the clause does not end with it.
    fn is_read(&self, after: &str) -> bool {
        let before = self.text.trim_end_matches(' ');
        let lead = before.rsplit(|c: char| !c.is_alphabetic()).next().unwrap_or_default().to_lowercase();
        if LEADS.contains(&&*lead) {
            return true;
        }
        let after = after.trim_start_matches(' ');
        let next = after.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
        let ends_sentence =
            before.is_empty() || before.ends_with(['.', '!', '?', '\n', '。', '！', '？', '-', '*']);
        // Where a line begins with it, a colon makes it the mark of a footnote.
        if (before.is_empty() || before.ends_with('\n')) && after.starts_with(':') {
            return true;
        }
        after.starts_with(char::is_alphanumeric)
            && (!ends_sentence || after.starts_with(char::is_lowercase))
            && !CLAUSES.contains(&next)
    }

    /// The bytes `range` of the text without the citations that stay.
    fn words_of(&self, range: &Range<usize>) -> String {
        let mut words = String::with_capacity(range.len());
        let mut at = range.start;
        for (kept, _) in
            self.kept.iter().filter(|(kept, _)| kept.start >= range.start && kept.end <= range.end)
        {
            words.push_str(&self.text[at..kept.start]);
            at = kept.end;
        }
        words.push_str(&self.text[at..range.end]);
        words
    }
}

/// The fenced blocks of code of a text in Markdown, as ranges of its bytes. One without an end goes to the end of the text.
fn fenced(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let (mut start, mut open) = (0, None::<&str>);
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let trimmed = line.trim();
        match open {
            Some(fence) => {
                if let Some(block) = found.last_mut() {
                    block.end = end;
                }
                if trimmed.strip_prefix(fence).is_some_and(|rest| rest.chars().all(|c| fence.contains(c))) {
                    open = None;
                }
            }
            None => {
                open = ["```", "~~~"].into_iter().find(|fence| {
                    // Backticks after the fence make it code inside a line.
                    trimmed
                        .strip_prefix(*fence)
                        .is_some_and(|rest| !rest.trim_start_matches('`').contains('`'))
                });
                if open.is_some() {
                    found.push(start..end);
                }
            }
        }
        start = end;
    }
    found
}

/// The bytes of the code between backticks with which a text begins; those of the backticks if it has no end in its paragraph.
fn code_span(text: &str) -> usize {
    let ticks = text.len() - text.trim_start_matches('`').len();
    let (mark, rest) = text.split_at(ticks);
    let paragraph = rest.split("\n\n").next().unwrap_or_default();
    paragraph.find(mark).map_or(ticks, |at| ticks + at + ticks)
}

/// The link with numbers as its words, with which a text begins: its bytes and the numbers. `[1](https://..)`.
fn numbered_link(text: &str) -> Option<(usize, Vec<usize>)> {
    let (words, target) = text.strip_prefix('[')?.split_once("](")?;
    let end = target.find(')')?;
    Some((1 + words.len() + 2 + end + 1, numbers_of(words)?))
}

/// The citation with which a text begins: its bytes and its numbers.
fn citation(text: &str) -> Option<(usize, Vec<usize>)> {
    let (inside, close) = match text.strip_prefix('[') {
        Some(inside) => (inside, ']'),
        None => (text.strip_prefix('【')?, '】'),
    };
    let end = inside.find(close)?;
    let length = text.len() - inside.len() + end + close.len_utf8();
    // After the sign is the name of a source.
    let numbers = inside[..end].split('†').next().unwrap_or_default();
    let is_link = close == ']' && text[length..].starts_with('(');
    Some((length, numbers_of(numbers.strip_prefix('^').unwrap_or(numbers))?)).filter(|_| !is_link)
}

/// The list of citations with which a text begins: its bytes and its numbers.
fn citations(text: &str) -> Option<(usize, Vec<usize>)> {
    let (mut length, mut numbers) = citation(text)?;
    let next = |length: usize| {
        JOINTS.iter().find_map(|joint| {
            let (more, numbers) = citation(text[length..].strip_prefix(joint)?)?;
            Some((joint.len() + more, numbers))
        })
    };
    while let Some((more, others)) = next(length) {
        length += more;
        numbers.extend(others);
    }
    Some((length, numbers))
}

/// The numbers of a citation, such as `1, 2` or `1-3`, and none for `?`; `None` for other text.
fn numbers_of(inside: &str) -> Option<Vec<usize>> {
    if inside == "?" {
        return Some(Vec::new());
    }
    let number = |text: &str| text.trim().parse().ok().filter(|number| (1..1000).contains(number));
    let mut found = Vec::new();
    for part in inside.split([',', ';']) {
        match part.split_once(['-', '–']) {
            Some((first, last)) => {
                let range = number(first)?..=number(last)?;
                if range.is_empty() {
                    return None;
                }
                found.extend(range);
            }
            None => found.push(number(part)?),
        }
    }
    Some(found)
}

/// The sentences of an answer, as ranges of its bytes. An item of a list and a heading end with their lines. Fenced
/// code has none.
fn statements(text: &str) -> Vec<Range<usize>> {
    let mut blocks: Vec<Range<usize>> = Vec::new();
    let (mut start, mut is_open) = (0, false);
    let codes = fenced(text);
    for line in text.split_inclusive('\n') {
        let range = start..start + line.len();
        start = range.end;
        if codes.iter().any(|code| code.contains(&range.start)) {
            is_open = false;
            continue;
        }
        let is_blank = line.trim().is_empty();
        match blocks.last_mut() {
            Some(block) if is_open && !is_blank && !begins_item(line) => block.end = range.end,
            _ if is_blank => {}
            _ => blocks.push(range),
        }
        is_open = !is_blank && !is_heading(line);
    }
    let within = |block: Range<usize>| {
        let found = units(&text[block.clone()]);
        found.into_iter().map(move |range| block.start + range.start..block.start + range.end)
    };
    blocks.into_iter().flat_map(within).collect()
}

/// The sentences of an answer with the passages that support them, and the answer with citations.
///
/// `supporters` are the indices of the passages that support a sentence, best first; `None` for one that needs no support.
/// A sentence cites those of its supporters that the generator cited, or else its first supporter. A citation inside the
/// sentence stays, and is not written again.
///
/// # Errors
/// Those of `supporters`.
pub(super) fn cited<E>(
    answer: &str,
    mut supporters: impl FnMut(&str) -> Result<Option<Vec<usize>>, E>,
) -> Result<(Vec<CitedSentence>, String), E> {
    let bare = without_citations(answer.trim());
    let Bare { text, citations, kept } = &bare;
    let mut written = String::with_capacity(text.len());
    let (mut end, mut found) = (0, Vec::new());
    let ranges = statements(text);
    for (at, range) in ranges.iter().enumerate() {
        let next = ranges.get(at + 1).map_or(usize::MAX, |next| next.start);
        // A citation may stand after the sentence's full stop.
        let own = |place: usize| place > range.start && place <= next || (at == 0 && place <= range.start);
        let named: Vec<usize> =
            citations.iter().filter(|(place, _)| own(*place)).map(|(_, number)| *number).collect();
        let sentence = &text[range.clone()];
        let held = supporters(&bare.words_of(range))?;
        let mut numbers: Vec<usize> = held.iter().flatten().map(|passage| passage + 1).collect();
        if numbers.iter().any(|number| named.contains(number)) {
            numbers.retain(|number| named.contains(number));
        } else {
            numbers.truncate(1);
        }
        numbers.sort_unstable();
        let supported = held.is_none() || !numbers.is_empty();
        written.push_str(&text[end..range.end]);
        end = range.end;
        if !supported {
            written.push_str(" [?]");
        }
        let inside = |number: &&usize| {
            kept.iter().any(|(place, numbers)| {
                range.start <= place.start && place.end <= range.end && numbers.contains(*number)
            })
        };
        for (at, number) in numbers.iter().filter(|number| !inside(number)).enumerate() {
            let blank = if at == 0 { " " } else { "" };
            written.push_str(&format!("{blank}[{number}]"));
        }
        found.push(CitedSentence { text: sentence.to_owned(), citations: numbers, supported });
    }
    written.push_str(&text[end..]);
    Ok((found, written))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn numbers(text: &str) -> Vec<Number> {
        super::numbers(text, &mut Vec::new())
    }

    fn in_words(text: &str) -> Vec<u64> {
        super::in_words(text, &mut Vec::new())
    }

    fn passage(title: &str, text: &str) -> Passage {
        Passage { title: title.into(), ..Passage::of_text(text) }
    }

    fn passages() -> Vec<Passage> {
        vec![
            passage("Mira Oberlin", "Mira Oberlin was an engineer. Oberlin was born in Leipzig in 1921."),
            passage(
                "Tomas Reyl",
                "Tomas Reyl was a composer. Reyl was born in Vienna. He wrote 1,200 songs.",
            ),
        ]
    }

    /// Parts with lines.
    fn lines(ranges: &[Range<usize>]) -> Vec<Part> {
        ranges.iter().map(|range| Part { range: range.clone(), has_lines: true }).collect()
    }

    /// A text with lines.
    fn whole(text: &str) -> Part {
        Part { range: 0..text.len(), has_lines: true }
    }

    fn answer(question: &str, text: &str) -> (Vec<CitedSentence>, String) {
        let passages = passages();
        let support = Support::new(question, &passages);
        cited(text, |sentence| Ok::<_, Infallible>(support.of(sentence))).unwrap()
    }

    #[test]
    fn a_sentence_cites_a_passage_with_its_words() {
        let question = "Where was Mira Oberlin born?";
        assert_eq!(
            answer(question, "Mira Oberlin was born in Leipzig.").1,
            "Mira Oberlin was born in Leipzig. [1]"
        );
        assert_eq!(answer(question, "Leipzig").1, "Leipzig [1]");
        // Vienna is in the passage about Reyl, and most words in the one about Oberlin.
        assert_eq!(
            answer(question, "Mira Oberlin was born in Vienna.").1,
            "Mira Oberlin was born in Vienna. [?]"
        );
    }

    #[test]
    fn every_number_must_be_in_the_passage() {
        let question = "How many songs did Reyl write?";
        assert_eq!(answer(question, "Reyl wrote 1200 songs.").1, "Reyl wrote 1200 songs. [2]");
        assert_eq!(answer(question, "Reyl wrote 300 songs.").1, "Reyl wrote 300 songs. [?]");
        assert_eq!(answer(question, "Reyl wrote 300 songs. [?]").1, "Reyl wrote 300 songs. [?]");
        assert_eq!(answer(question, "1) Reyl wrote 1200 songs.").1, "1) Reyl wrote 1200 songs. [2]");
        assert_eq!(without_marker("12. Reyl wrote."), " Reyl wrote.");
        assert_eq!(without_marker("1.5 songs"), "1.5 songs");
        let read = |text: &str| numbers(text).into_iter().map(|number| number.0).collect::<Vec<_>>();
        assert_eq!(read("1,200 of 3, 4.50"), [["1200"], ["3"], ["4.5"]]);
        assert_eq!(
            read("1,5 0,375 007 1,250,000 1.250.000"),
            [["1.5"], [".375"], ["7"], ["1250000"], ["1250000"]]
        );
        assert_eq!(read("1,250.50 1.250,5 2.3.1"), [["1250.5"], ["1250.5"], ["2.3.1"]]);
        assert_eq!(read("1.250"), [["1250", "1.25"]]);
        for (text, expected) in [
            ("twelve people, twenty-five cats", &[12, 25][..]),
            ("two hundred and fifty-one", &[251]),
            ("two\nhundred and three hundred", &[200, 300]),
            ("two thousand and three thousand", &[2000, 3000]),
            ("two hundred and fifty thousand", &[250_000]),
            ("two thousand and three hundred", &[2300]),
            ("two million three thousand and six", &[2_003_006]),
            ("three thousand four hundred euros", &[3400]),
            ("one million and six", &[1_000_006]),
            ("one of the two, five and six", &[2, 5, 6]),
            ("twenty two two nineteen ten", &[22, 2, 19, 10]),
            ("hundreds and the hundred", &[]),
            ("everyone at nine", &[9]),
        ] {
            let found: Vec<u64> = text.split(',').flat_map(in_words).collect();
            assert_eq!(found, expected, "{text}");
        }
        assert!(numbers("twelve")[0].is(&numbers("12.0")[0]));
        assert_eq!(
            read("2 million, 2.5 million and 3 hundred people in 2 cities"),
            [&["2", "2000000"][..], &["2.5", "2500000"], &["3", "300"], &["2"]]
        );
    }

    #[test]
    fn a_decimal_is_one_number() {
        let passage = passage(
            "",
            "It needs 15 litres of oil, has 2 stages and lasts 5 months. The price is 1,250 euros.",
        );
        let support = Support::new("", [&passage]);
        for (sentence, holds) in [
            ("It needs 15 litres.", true),
            ("It needs 1,5 litres.", false),
            ("It has 2.5 stages.", false),
            ("The price is 12,50 euros.", false),
            ("The price is 1250.00 euros.", true),
            ("The price is 1.250 euros.", true),
            ("It needs fifteen litres.", true),
            ("It has three stages.", false),
        ] {
            assert_eq!(support.of(sentence).is_some_and(|found| !found.is_empty()), holds, "{sentence}");
        }
    }

    #[test]
    fn the_words_of_a_number_are_no_words_that_a_passage_lacks() {
        let passage =
            passage("", "The farm has 312 animals. Entry is 6 euros. It sold 2000000 eggs to one shop.");
        let support = Support::new("", [&passage]);
        for (sentence, holds) in [
            ("Three hundred and twelve animals.", true),
            ("six euros", true),
            ("It sold two million eggs.", true),
            ("It sold 2 million eggs.", true),
            ("seven euros", false),
            ("three hundred animals", false),
            ("one shop", true),
        ] {
            assert_eq!(support.of(sentence).is_some_and(|found| !found.is_empty()), holds, "{sentence}");
        }
    }

    #[test]
    fn other_scripts_have_words() {
        let passages = [passage("", "水車小屋は川のそばにあります。"), passage("", "鐘は銅でできています。")];
        let support = Support::new("水車小屋はどこですか", &passages);
        assert_eq!(support.of("水車小屋は川のそばです。"), Some(vec![0]));
        assert_eq!(support.of("Ann's R."), Some(vec![]));
    }

    #[test]
    fn a_citation_that_the_sentence_needs_stays() {
        for text in [
            "According to [1], the director is Vera Holm.",
            "As [1] and [2] show, it is late.",
            "Both [1] and [2] agree.",
            "Use x[1] to get y[2].",
            "[1] says that it rains.",
            "See [1](https://example.org/1) for more.",
            "The passage [2] is old.",
            "```\na = b[1] [2]\n```\n",
            "`a [1]`",
            "[1]: a note",
        ] {
            assert_eq!(without_citations(text).text, text);
        }
        for (text, expected, numbers) in [
            ("It rains [1, 2] and [1-3].", "It rains.", &[1, 2, 1, 2, 3][..]),
            ("It rains[1] and it snows [2].", "It rains and it snows.", &[1, 2]),
            ("It rains【1】, it snows【2†source】.", "It rains, it snows.", &[1, 2]),
            ("It rains. [1] It snows. [^2]", "It rains. It snows.", &[1, 2]),
            ("[1] It rains.\n[2] It snows.", "It rains.\nIt snows.", &[1, 2]),
            ("鐘は銅です。[1]水車", "鐘は銅です。水車", &[1]),
            ("A ` tick [1].", "A ` tick.", &[1]),
        ] {
            let bare = without_citations(text);
            let found: Vec<usize> = bare.citations.iter().map(|(_, number)| *number).collect();
            assert_eq!((bare.text.as_str(), &found[..]), (expected, numbers), "{text}");
        }
        let question = "Who?";
        for (text, expected) in [
            ("According to [2], Reyl was a composer.", "According to [2], Reyl was a composer."),
            ("According to [1], Reyl was a pilot.", "According to [1], Reyl was a pilot. [?]"),
            (
                "Reyl was a composer.\n\n```\nMoon of cheese.\n```\nReyl was a pilot.",
                "Reyl was a composer. [2]\n\n```\nMoon of cheese.\n```\nReyl was a pilot. [?]",
            ),
        ] {
            assert_eq!(answer(question, text).1, expected);
        }
    }

    #[test]
    fn items_and_headings_are_judged_alone() {
        let items =
            "- Mira Oberlin was an engineer\n- Reyl was born in Vienna [2]\n- The moon is made of cheese";
        let (sentences, text) = answer("Who?", items);
        assert_eq!(
            text,
            "- Mira Oberlin was an engineer [1]\n- Reyl was born in Vienna [2]\n- The moon is made of cheese [?]"
        );
        assert_eq!(sentences.len(), 3);
        let numbered = "1. Mira Oberlin was an engineer\n2. Reyl was a composer\n3) Reyl was a pilot";
        assert_eq!(
            answer("Who?", numbered).1,
            "1. Mira Oberlin was an engineer [1]\n2. Reyl was a composer [2]\n3) Reyl was a pilot [?]"
        );
        let sections = "# Reyl\nReyl was a composer.\n## Moon\nThe moon is made of cheese.";
        assert_eq!(
            answer("Who?", sections).1,
            "# Reyl\nReyl was a composer. [2]\n## Moon\nThe moon is made of cheese. [?]"
        );
        // A wrapped sentence stays whole.
        let wrapped = "Reyl was a composer who was born in Vienna and who wrote, in all of his long life,\nsome 1200 songs.";
        assert_eq!(answer("Who?", wrapped).0.len(), 1);
    }

    #[test]
    fn citations_can_be_ranges() {
        assert_eq!(answer("Who?", "Reyl was a composer [1-2].").1, "Reyl was a composer. [2]");
        assert_eq!(numbers_of("1–3, 5"), Some(vec![1, 2, 3, 5]));
        assert_eq!((numbers_of("3-1"), numbers_of("a-2")), (None, None));
    }

    #[test]
    fn the_generator_s_citations_are_kept_where_they_hold() {
        let (sentences, text) = answer(
            "Who are they?",
            "Oberlin was an engineer [2]. Reyl was a composer [2][7], born in Vienna [1].",
        );
        assert_eq!(text, "Oberlin was an engineer. [1] Reyl was a composer, born in Vienna. [2]");
        assert_eq!(sentences[0].citations, [1]);
        assert_eq!(sentences[1].text, "Reyl was a composer, born in Vienna.");
        assert!(sentences.iter().all(|sentence| sentence.supported));
    }

    #[test]
    fn other_brackets_stay_and_lists_keep_their_lines() {
        let bare = without_citations("An array [a] holds `x[1]` or [1234], y[0] [1, 2].");
        assert_eq!(bare.text, "An array [a] holds `x[1]` or [1234], y[0].");
        assert_eq!(bare.citations, [(41, 1), (41, 2)]);
        let (_, text) = answer("Who?", "Oberlin was an engineer.\n\nReyl was a pilot.");
        assert_eq!(text, "Oberlin was an engineer. [1]\n\nReyl was a pilot. [?]");
        assert_eq!(answer("Who?", "").1, "");
    }

    #[test]
    fn the_sentence_with_the_rarest_words_is_highlighted() {
        let passages = passages();
        let support = Support::new("Where was Oberlin born?", &passages);
        let text = &passages[0].text;
        let highlight = |answer: &str| &text[support.highlight(text, [whole(text)], answer)];
        assert_eq!(highlight(""), "Oberlin was born in Leipzig in 1921.");
        assert_eq!(highlight("an engineer"), "Mira Oberlin was an engineer.");
        assert_eq!(
            (support.highlight("", [], ""), support.highlight("a  ", lines(&[1..2, 2..3]), "")),
            (0..0, 1..3)
        );
        // Items of a list often have no full stop.
        let items = "a passport Oberlin was born a ticket";
        assert_eq!(support.highlight(items, lines(&[0..10, 11..27, 28..36]), ""), 11..27);
    }

    #[test]
    fn a_line_that_stands_alone_is_highlighted_alone() {
        let highlight = |question: &str, text: &str| {
            let passages = [passage("", text)];
            let support = Support::new(question, &passages);
            text[support.highlight(text, [whole(text)], "")].to_owned()
        };
        let code = "[server]\nport = 8080\ntimeout = 30\nhost = \"localhost\"";
        assert_eq!(highlight("what is the timeout", code), "timeout = 30");
        let table = "Drink | Price\nTea | 4\nCoffee | 5";
        assert_eq!(highlight("what is the price of coffee", table), "Coffee | 5");
        assert_eq!(highlight("price", table), "Drink | Price");
        let list = "Boiler: serviced in May\nRoof: slate. It leaks.\nWell: tested";
        assert_eq!(highlight("what leaks", list), "It leaks.");
        // A row of a table is on one line of its file.
        let row = "name: Bob Ray\nrole: plumber";
        let support = Support::new("what does Bob Ray do", &[passage("", row)]);
        let part = Part { range: 0..row.len(), has_lines: false };
        assert_eq!(&row[support.highlight(row, [part], "")], row);
        // A wrapped sentence stays whole.
        let prose = "The water of the old well in the garden is tested by the\ndistrict each month.";
        assert_eq!(highlight("who tests water each month", prose), prose);
    }

    #[test]
    fn sentences_are_ranges_of_bytes() {
        let text = "Zoë sang.  She left 😀 home.";
        let found: Vec<&str> = sentences(text).into_iter().map(|range| &text[range]).collect();
        assert_eq!(found, ["Zoë sang.", "She left 😀 home."]);
        assert!(sentences("").is_empty());
    }
}
