//! The Penn Treebank's tokenization into words (Marcus et al., 1993; the rules of its `tokenizer.sed`).

use std::sync::LazyLock;

use regex::Regex;

/// The replacement rules, in order: they separate punctuation, change quotes to `` and '', and split contractions.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = [
        // Quotes that open.
        (r#"^""#, "`` "),
        (r"(``)", " $1 "),
        (r#"([ (\[{<])("|'{2})"#, "$1 `` "),
        // Punctuation.
        (r"([:,])([^\d])", " $1 $2"),
        (r"([:,])$", " $1 "),
        (r"\.\.\.", " ... "),
        (r"[;@#$%&]", " $0 "),
        (r#"([^.])(\.)([\]\)}>"']*)\s*$"#, "$1 $2$3 "),
        (r"[?!]", " $0 "),
        (r"([^'])' ", "$1 ' "),
        (r"[\]\[\(\)\{\}<>]", " $0 "),
        (r"--", " -- "),
        // Quotes that close.
        (r#"''|""#, " '' "),
        // Text after an apostrophe.
        (r"([^' ])('[sS]|'[mM]|'[dD]|') ", "$1 $2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", "$1 $2 "),
        // Two words written as one.
        (r"(?i)\b(can)(not)\b", " $1 $2 "),
        (r"(?i)\b(d)('ye)\b", " $1 $2 "),
        (r"(?i)\b(gim|lem)(me)\b", " $1 $2 "),
        (r"(?i)\b(gon|wan)(na)\b", " $1 $2 "),
        (r"(?i)\b(got)(ta)\b", " $1 $2 "),
        (r"(?i)\b(more)('n)\b", " $1 $2 "),
        (r"(?i) ('t)(is|was)\b", " $1 $2 "),
    ];
    // The patterns are constants; one that is wrong would fail every test.
    rules.iter().filter_map(|(rule, by)| Some((Regex::new(rule).ok()?, *by))).collect()
});

/// The words of a sentence.
#[must_use]
pub fn treebank_words(sentence: &str) -> Vec<String> {
    let mut text = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    for (number, (rule, by)) in RULES.iter().enumerate() {
        // Contractions are found before a blank.
        if number == FIRST_WITHIN_BLANKS {
            text = format!(" {text} ");
        }
        text = rule.replace_all(&text, *by).into_owned();
    }
    text.split_whitespace().map(str::to_owned).collect()
}

/// The first rule that reads a text between blanks.
const FIRST_WITHIN_BLANKS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_a_pattern() {
        assert_eq!(RULES.len(), 22);
    }
}
