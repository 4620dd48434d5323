//! The answer of a decoder-only model, without the surrounding text.

use sporran_kilt::Task;

/// An answer without the text that models often add: a label, quotation marks, the full stop after a short answer. A
/// verdict becomes FEVER's label.
pub(crate) fn cleaned(text: &str, label: &str, task: Option<Task>) -> String {
    let mut text = text.trim();
    for label in [label.trim(), "Answer:", "A:"] {
        if !label.is_empty() {
            text = text.strip_prefix(label).unwrap_or(text).trim();
        }
    }
    let quotes = [('"', '"'), ('\'', '\''), ('“', '”'), ('`', '`')];
    for (open, close) in quotes {
        let inner = text.strip_prefix(open).and_then(|text| text.strip_suffix(close));
        text = inner.filter(|inner| !inner.contains(open)).unwrap_or(text).trim();
    }
    match task {
        Some(Task::FactChecking) => {
            let lower = text.to_lowercase();
            let starts = |words: &[&str]| words.iter().any(|word| lower.starts_with(word));
            if starts(&["support", "true", "yes", "correct"]) {
                return "SUPPORTS".into();
            }
            if starts(&["refute", "false", "no", "incorrect"]) {
                return "REFUTES".into();
            }
            text.into()
        }
        // Sentences for people.
        None | Some(Task::Dialogue) => text.into(),
        _ if text.split_whitespace().count() <= 8 => text.strip_suffix('.').unwrap_or(text).into(),
        _ => text.into(),
    }
}

/// The label of fact checking that a text names first, as a word of its own.
pub(crate) fn named_label(text: &str) -> Option<&'static str> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).find_map(|word| match word.as_str() {
        "supports" | "supported" | "support" | "true" => Some("SUPPORTS"),
        "refutes" | "refuted" | "refute" | "false" => Some("REFUTES"),
        _ => None,
    })
}

/// A title without case, accents of quotation marks and further blanks.
fn folded(text: &str) -> String {
    text.replace(['’', '‘'], "'").split_whitespace().map(str::to_lowercase).collect::<Vec<_>>().join(" ")
}

/// The place of the title that a text names: the whole text is the title or its number (from 1), or else the longest title
/// that the text has. None if it names none.
pub(crate) fn named_title(text: &str, titles: &[String]) -> Option<usize> {
    let text = folded(text);
    let folded_titles: Vec<String> = titles.iter().map(|title| folded(title)).collect();
    if let Some(at) = folded_titles.iter().position(|title| *title == text) {
        return Some(at);
    }
    // `2`, `[2]`, `2. Oslo`, `passage 2`.
    let number: String = text
        .trim_start_matches("passage ")
        .trim_start_matches(['[', '(', '#'])
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let rest = text.trim_start_matches("passage ").trim_start_matches(['[', '(', '#']);
    let after = rest[number.len()..].chars().next();
    if let Ok(number @ 1..) = number.parse::<usize>()
        && number <= titles.len()
        && after.is_none_or(|after| matches!(after, ']' | ')' | '.' | ':'))
    {
        return Some(number - 1);
    }
    let named = |title: &&(usize, &String)| !title.1.is_empty() && has_words(&text, title.1);
    let all: Vec<(usize, &String)> = folded_titles.iter().enumerate().collect();
    // Of equally long ones, the better passage's.
    all.iter().filter(named).max_by_key(|(at, title)| (title.len(), titles.len() - at)).map(|(at, _)| *at)
}

/// Whether a text has another one between characters that are no letters or digits.
fn has_words(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(start, found)| {
        let before = text[..start].chars().next_back();
        let after = text[start + found.len()..].chars().next();
        [before, after].into_iter().flatten().all(|c| !c.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_first_that_a_text_names() {
        for (text, expected) in [
            ("SUPPORTS", Some("SUPPORTS")),
            ("The claim is refuted, nothing supports it.", Some("REFUTES")),
            ("It is **True**.", Some("SUPPORTS")),
            ("unsupported", None),
            ("", None),
        ] {
            assert_eq!(named_label(text), expected, "{text}");
        }
    }

    #[test]
    fn a_title_is_named_by_its_words_or_its_number() {
        let titles = ["Oslo", "Oslo Airport", "Hardy’s  Wessex", "1920"].map(str::to_owned);
        for (text, expected) in [
            ("oslo", Some(0)),
            ("Hardy's Wessex", Some(2)),
            ("1920", Some(3)),
            ("2", Some(1)),
            ("[2]", Some(1)),
            ("Passage 3: Hardy", Some(2)),
            ("2. Oslo", Some(1)),
            ("The mention is Oslo Airport, near Oslo.", Some(1)),
            ("Oslofjord", None),
            ("5", None),
            ("0", None),
            ("2 people of Bergen", None),
            ("", None),
        ] {
            assert_eq!(named_title(text, &titles), expected, "{text}");
        }
    }

    #[test]
    fn answers_are_stripped_of_surrounding_text() {
        for (text, task, expected) in [
            (" Answer: Oslo. ", Some(Task::OpenDomainQa), "Oslo"),
            ("\"Oslo\"", Some(Task::OpenDomainQa), "Oslo"),
            ("Oslo.", Some(Task::SlotFilling), "Oslo"),
            ("I like it.", Some(Task::Dialogue), "I like it."),
            ("Acme Inc.", None, "Acme Inc."),
            ("True, it is", Some(Task::FactChecking), "SUPPORTS"),
            ("refutes", Some(Task::FactChecking), "REFUTES"),
            ("\"a\" and \"b\"", None, "\"a\" and \"b\""),
        ] {
            assert_eq!(cleaned(text, "Answer:", task), expected);
        }
    }
}
