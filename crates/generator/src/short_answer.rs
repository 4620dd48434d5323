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
        Some(Task::Dialogue) => text.into(),
        _ if text.split_whitespace().count() <= 8 => text.strip_suffix('.').unwrap_or(text).into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_stripped_of_surrounding_text() {
        for (text, task, expected) in [
            (" Answer: Oslo. ", Some(Task::OpenDomainQa), "Oslo"),
            ("\"Oslo\"", Some(Task::OpenDomainQa), "Oslo"),
            ("Oslo.", Some(Task::SlotFilling), "Oslo"),
            ("I like it.", Some(Task::Dialogue), "I like it."),
            ("True, it is", Some(Task::FactChecking), "SUPPORTS"),
            ("refutes", Some(Task::FactChecking), "REFUTES"),
            ("\"a\" and \"b\"", None, "\"a\" and \"b\""),
        ] {
            assert_eq!(cleaned(text, "Answer:", task), expected);
        }
    }
}
