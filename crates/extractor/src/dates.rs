//! Dates by pattern: days, months and years as numbers and names.

use std::ops::Range;

use crate::Document;

const MONTHS: [&str; 21] = [
    "april",
    "aug",
    "august",
    "dec",
    "december",
    "feb",
    "february",
    "jan",
    "january",
    "july",
    "june",
    "mar",
    "march",
    "may",
    "nov",
    "november",
    "oct",
    "october",
    "sep",
    "sept",
    "september",
];

/// A four-digit number after one of these words is a year.
const BEFORE_YEAR: [&str; 19] = [
    "after", "around", "before", "between", "by", "circa", "during", "early", "from", "in", "late", "mid",
    "of", "since", "spring", "summer", "through", "to", "until",
];

/// The dates in a sentence's tokens, by pattern.
pub(crate) fn dates(document: &Document, tokens: Range<usize>) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut at = tokens.start;
    while at < tokens.end {
        match date_at(document, at, tokens.end, tokens.start) {
            Some(end) => {
                found.push(at..end);
                at = end;
            }
            None => at += 1,
        }
    }
    found
}

/// The end of a date that starts at token `at`.
fn date_at(document: &Document, at: usize, end: usize, start: usize) -> Option<usize> {
    let word = |at: usize| if at < end { document.word(at) } else { "" };
    // 3 May, 3rd of May
    let day = if is_day(word(at)) { at + 1 } else { at };
    let month = if day > at && word(day) == "of" { day + 1 } else { day };
    if is_month(word(month)) {
        let mut next = month + 1;
        let mut is_date = month > at;
        // May 3
        if month == at && is_day(word(next)) {
            next += 1;
            is_date = true;
        }
        let comma = usize::from(word(next) == ",");
        if is_year(word(next + comma)) {
            return Some(next + comma + 1);
        }
        return is_date.then_some(next);
    }
    // 1950-05-03 and 03/05/1950: numbers and marks in five adjacent tokens.
    if at + 5 <= end && matches!(word(at + 1), "-" | "/") && word(at + 1) == word(at + 3) {
        let together = (at..at + 4).all(|at| document.tokens[at].end == document.tokens[at + 1].start);
        let numbers = [word(at), word(at + 2), word(at + 4)];
        let are_numbers =
            numbers.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        let years = [numbers[0], numbers[2]].iter().filter(|part| is_year(part)).count();
        if together && are_numbers && years == 1 && numbers[1].len() <= 2 {
            return Some(at + 5);
        }
    }
    if is_year(word(at)) && at > start {
        let before = document.word(at - 1);
        // (1950 ... and in 1950, but not in 1950 people
        let follows_preposition = BEFORE_YEAR.iter().any(|other| before.eq_ignore_ascii_case(other));
        let next = word(at + 1);
        let is_alone = next.is_empty() || !next.starts_with(char::is_lowercase) || is_linking(next);
        if (before == "(" || follows_preposition) && is_alone {
            return Some(at + 1);
        }
    }
    None
}

/// Whether a word continues the sentence instead of naming a counted thing.
fn is_linking(word: &str) -> bool {
    matches!(
        word,
        "and"
            | "as"
            | "at"
            | "but"
            | "by"
            | "for"
            | "from"
            | "he"
            | "in"
            | "on"
            | "she"
            | "the"
            | "to"
            | "until"
            | "when"
            | "where"
            | "with"
            | "after"
            | "before"
            | "it"
            | "they"
            | "is"
            | "was"
            | "or"
            | "under"
            | "while"
            | "who"
    )
}

fn is_month(word: &str) -> bool {
    let name = word.strip_suffix('.').unwrap_or(word);
    name.starts_with(char::is_uppercase)
        && name.len() <= 9
        && MONTHS.binary_search(&&*name.to_ascii_lowercase()).is_ok()
}

fn is_day(word: &str) -> bool {
    let digits = word.bytes().take_while(u8::is_ascii_digit).count();
    let number: usize = word[..digits].parse().unwrap_or(0);
    (1..=31).contains(&number) && digits <= 2 && matches!(&word[digits..], "" | "st" | "nd" | "rd" | "th")
}

fn is_year(word: &str) -> bool {
    word.len() == 4 && matches!(word.parse::<usize>(), Ok(1000..=2099))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let document = Document::new("d", text);
        let all = dates(&document, 0..document.tokens.len());
        all.into_iter().map(|tokens| document.slice(document.span(tokens)).unwrap().to_owned()).collect()
    }

    #[test]
    fn dates_are_recognised_by_their_form() {
        assert_eq!(
            found("Born 3 May 1950, he left on May 4, 1970 and on June 5."),
            ["3 May 1950", "May 4, 1970", "June 5"]
        );
        assert_eq!(
            found("Since Sept. 1999 (1950 - now) and 2001-05-03, 3/4/1999."),
            ["Sept. 1999", "1950", "2001-05-03", "3/4/1999"]
        );
        assert_eq!(found("On the 2nd of June 1900; in 1984 he won."), ["2nd of June 1900", "1984"]);
    }

    #[test]
    fn what_only_looks_like_a_date_is_none() {
        for text in [
            "He may go in 1950 cases.",
            "May left.",
            "It cost 1999 dollars.",
            "32 of Maya",
            "1/2/3",
            "",
            "§ 12",
        ] {
            assert_eq!(found(text), [] as [&str; 0], "{text}");
        }
    }

    #[test]
    fn months_are_in_the_order_that_they_are_searched_in() {
        assert!(MONTHS.is_sorted());
    }
}
