//! The sentences of a text.

use unicode_segmentation::UnicodeSegmentation;

/// Abbreviations that a name or a number often follows.
const ABBREVIATIONS: [&str; 25] = [
    "St.", "Mr.", "Mrs.", "Ms.", "Dr.", "Prof.", "No.", "vs.", "Jr.", "Sr.", "e.g.", "i.e.", "approx.",
    "ca.", "Gen.", "Sen.", "Gov.", "Rev.", "Hon.", "Lt.", "Col.", "Capt.", "Sgt.", "Mt.", "Ft.",
];

/// Words that often begin a sentence and seldom a name. After an initial or an abbreviation they do begin one.
const OPENERS: [&str; 45] = [
    "A", "After", "Although", "An", "And", "As", "At", "Before", "But", "By", "During", "For", "From", "He",
    "Her", "His", "However", "I", "In", "It", "Its", "On", "She", "Since", "That", "The", "Their", "There",
    "These", "They", "This", "We", "Then", "You", "If", "So", "Some", "Many", "Our", "My", "What", "Who",
    "When", "While", "With",
];

/// The sentences of a text, with the blanks after them. They are those of Unicode (UAX 29), except that neither an initial nor an
/// abbreviation ends one, unless a word follows that often begins a sentence. A line break ends one in any case.
///
/// ```
/// use sporran_kilt::sentences;
///
/// let found: Vec<&str> = sentences("Herman J. Heide left St. Andrews. He was 5 ft. tall.").collect();
/// assert_eq!(found, ["Herman J. Heide left St. Andrews. ", "He was 5 ft. tall."]);
/// ```
pub fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut parts = text.split_sentence_bound_indices().peekable();
    std::iter::from_fn(move || {
        let (start, mut part) = parts.next()?;
        let mut end = start + part.len();
        while let Some((at, next)) = parts.next_if(|(_, next)| goes_on(part, next)) {
            (part, end) = (next, at + next.len());
        }
        Some(&text[start..end])
    })
}

/// Whether a sentence goes on in `next` after a part that Unicode's rules end.
fn goes_on(part: &str, next: &str) -> bool {
    // A line break ends a sentence in any case.
    let last = part.trim_end_matches([' ', '\u{a0}']).rsplit(char::is_whitespace).next().unwrap_or_default();
    let last = last.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let first = next.split_whitespace().next().unwrap_or_default();
    let begins_with_digit = first.starts_with(|letter: char| letter.is_ascii_digit());
    let first = first.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    let word = first.split(|letter: char| !letter.is_alphabetic()).next().unwrap_or_default();
    // `A.` is an initial, and `A` an opener.
    let opens = OPENERS.contains(&word) && !first[word.len()..].starts_with('.');
    match last {
        "No." => begins_with_digit,
        last => (ABBREVIATIONS.contains(&last) || are_initials(last)) && !opens,
    }
}

/// Whether a word is made of capital letters with a full stop after each.
fn are_initials(word: &str) -> bool {
    let mut letters = word.chars();
    let mut any = false;
    while let Some(letter) = letters.next() {
        if !letter.is_uppercase() || letters.next() != Some('.') {
            return false;
        }
        any = true;
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initials_and_abbreviations_end_no_sentence() {
        let trimmed = |text: &str| sentences(text).map(|part| part.trim().to_owned()).collect::<Vec<_>>();
        for (text, expected) in [
            ("George W. Bush is a man. He sang.", &["George W. Bush is a man.", "He sang."][..]),
            (
                "J.R.R. Tolkien wrote. W. A. Mozart played.",
                &["J.R.R. Tolkien wrote.", "W. A. Mozart played."],
            ),
            ("It is (St. Paul) near Dr. May. No.", &["It is (St. Paul) near Dr. May.", "No."]),
            ("She took vitamin C. However, it failed.", &["She took vitamin C.", "However, it failed."]),
            ("Is it? No. You can go to No. 5 now.", &["Is it?", "No.", "You can go to No. 5 now."]),
            ("She took vitamin C. It helped.", &["She took vitamin C.", "It helped."]),
            ("He lives in the U.S. The end.", &["He lives in the U.S.", "The end."]),
            ("Written by John W.\nBush was there.", &["Written by John W.", "Bush was there."]),
            ("One! Two? Three", &["One!", "Two?", "Three"]),
        ] {
            assert_eq!(trimmed(text), expected);
            assert_eq!(sentences(text).collect::<String>(), text);
        }
        assert_eq!(sentences("").count(), 0);
    }
}
