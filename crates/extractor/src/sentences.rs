//! Sentence splitting.

use crate::tokens::Piece;

/// The largest number of tokens of a sentence.
const LONGEST: usize = 256;
/// The number of consecutive blanks that end a sentence.
const BLANKS: usize = 4;

/// Abbreviations before a name or a number, in lower case. Their full stop ends no sentence.
const BEFORE: [&str; 41] = [
    "adm", "amb", "approx", "brig", "ca", "capt", "cf", "cmdr", "col", "cpl", "dr", "fig", "fr", "ft", "gen",
    "gov", "hon", "insp", "lt", "maj", "messrs", "mme", "mr", "mrs", "ms", "msgr", "mt", "nos", "pp", "pres",
    "prof", "pvt", "rep", "rev", "sen", "sgt", "st", "ste", "supt", "vol", "vs",
];

/// Abbreviations that may also end a sentence, in their usual case. They do if a typical sentence opener
/// follows.
const WITHIN: [&str; 84] = [
    "Ala", "Apr", "Ariz", "Ark", "Assn", "Aug", "Ave", "Blvd", "Bros", "Calif", "Co", "Colo", "Conn", "Corp",
    "Dec", "Del", "Dept", "Ed", "Esq", "Est", "Feb", "Fla", "Fri", "Ga", "Ill", "Inc", "Ind", "Intl", "Jan",
    "Jr", "Jul", "Jun", "Kan", "Ky", "La", "Ltd", "Mar", "Mass", "Md", "Mfg", "Mich", "Minn", "Miss", "Mo",
    "Mon", "Mont", "Neb", "Nev", "No", "Nov", "Oct", "Okla", "Ore", "Pa", "Penn", "Ph", "Rd", "Sat", "Sep",
    "Sept", "Sr", "Sun", "Tenn", "Tex", "Thu", "Thurs", "Tue", "Tues", "Univ", "Va", "Vt", "Wash", "Wed",
    "Wis", "Wyo", "al", "co", "ed", "eds", "etc", "inc", "jr", "ltd", "no",
];

/// Words that start sentences but rarely names.
const BEGINNING: [&str; 77] = [
    "A",
    "According",
    "After",
    "All",
    "Also",
    "Although",
    "An",
    "And",
    "Another",
    "As",
    "At",
    "Because",
    "Before",
    "Being",
    "Born",
    "Both",
    "But",
    "By",
    "Currently",
    "Despite",
    "During",
    "Each",
    "Every",
    "Following",
    "For",
    "From",
    "Having",
    "He",
    "Her",
    "Here",
    "His",
    "How",
    "However",
    "I",
    "If",
    "In",
    "Is",
    "It",
    "Its",
    "Later",
    "Many",
    "Most",
    "My",
    "Nevertheless",
    "Now",
    "On",
    "One",
    "Other",
    "Our",
    "Over",
    "Prior",
    "She",
    "Since",
    "So",
    "Some",
    "Such",
    "That",
    "The",
    "Their",
    "Then",
    "There",
    "These",
    "They",
    "This",
    "Those",
    "Through",
    "To",
    "Today",
    "Under",
    "Until",
    "Upon",
    "We",
    "When",
    "Where",
    "While",
    "With",
    "You",
];

/// Names that end with a punctuation mark.
const MARKED: [&str; 4] = ["Jeopardy", "Oklahoma", "Wham", "Yahoo"];

/// Joins the full stops of abbreviations to their words and finds the sentence ends: for each the index of
/// the token after its last.
pub(crate) fn split(text: &str, raw: Vec<Piece>) -> (Vec<Piece>, Vec<usize>) {
    let mut pieces: Vec<Piece> = Vec::with_capacity(raw.len());
    let mut ends = Vec::new();
    let mut start = 0;
    // The best position to split a sentence that is too long.
    let mut weak = 0;
    let mut at = 0;
    while at < raw.len() {
        let reader = Reader { text, raw: &raw };
        let mut is_end = false;
        if reader.follows_word(at) && reader.keeps_stop(at) {
            // Both exist, because a word precedes.
            if let Some(last) = pieces.last_mut() {
                last.end = raw[at].end;
            }
            is_end = reader.acronym_ends(at);
        } else {
            pieces.push(raw[at].clone());
            if reader.ends_sentence(at) {
                is_end = true;
                while at + 1 < raw.len() && reader.closes(at + 1) {
                    at += 1;
                    pieces.push(raw[at].clone());
                }
            }
        }
        is_end |= at + 1 < raw.len() && is_break(reader.gap(at + 1));
        let count = pieces.len();
        if matches!(reader.word(at), "," | ";" | ":") {
            weak = count;
        }
        at += 1;
        if is_end || at == raw.len() {
            // Many closing marks may exceed the limit.
            while count - start > LONGEST {
                start += LONGEST;
                ends.push(start);
            }
            ends.push(count);
            start = count;
        } else if count - start >= LONGEST {
            start = if weak > start + LONGEST / 2 { weak.min(start + LONGEST) } else { start + LONGEST };
            ends.push(start);
        }
    }
    // A full stop joined to the last token of a split sentence repeats an end.
    ends.dedup();
    (pieces, ends)
}

/// Whether blanks end a sentence.
fn is_break(gap: &str) -> bool {
    let lines = gap.chars().filter(|character| matches!(character, '\n' | '\u{2028}' | '\u{2029}')).count();
    lines >= 2 || (lines == 0 && gap.chars().count() >= BLANKS)
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    text: &'a str,
    raw: &'a [Piece],
}

impl<'a> Reader<'a> {
    fn word(self, at: usize) -> &'a str {
        self.raw.get(at).map_or("", |piece| &self.text[piece.clone()])
    }

    /// The blanks before token `at`.
    fn gap(self, at: usize) -> &'a str {
        let start = at.checked_sub(1).map_or(0, |before| self.raw[before].end);
        &self.text[start..self.raw.get(at).map_or(self.text.len(), |piece| piece.start)]
    }

    /// Whether `at` is a full stop directly after a word.
    fn follows_word(self, at: usize) -> bool {
        at > 0
            && self.word(at) == "."
            && self.gap(at).is_empty()
            && self.word(at - 1).chars().next_back().is_some_and(char::is_alphabetic)
    }

    /// Whether the full stop `at`, after a word, belongs to the word.
    fn keeps_stop(self, at: usize) -> bool {
        let word = self.word(at - 1);
        if word.contains('.') {
            return is_acronym(word);
        }
        let next = self.next(at);
        let Some(next) = next else { return false };
        let ends = BEGINNING.binary_search(&next).is_ok();
        let mut characters = word.chars();
        if characters.next().is_some() && characters.next().is_none() {
            // `A` and `I` after an initial are usually initials.
            return !ends || next.len() == 1;
        }
        if WITHIN.binary_search(&word).is_ok() {
            return !ends
                && (!word.eq_ignore_ascii_case("no") || next.starts_with(|c: char| c.is_ascii_digit()));
        }
        let mut lower = [0u8; 8];
        let Some(lower) = lower.get_mut(..word.len()) else { return false };
        lower.copy_from_slice(word.as_bytes());
        lower.make_ascii_lowercase();
        std::str::from_utf8(lower).is_ok_and(|lower| BEFORE.binary_search(&lower).is_ok())
    }

    /// Whether a sentence ends at the full stop `at` of an acronym.
    fn acronym_ends(self, at: usize) -> bool {
        self.word(at - 1).contains('.')
            && self.next(at).is_none_or(|next| BEGINNING.binary_search(&next).is_ok())
    }

    /// The word after token `at` and a blank.
    fn next(self, at: usize) -> Option<&'a str> {
        (at + 1 < self.raw.len() && !is_break(self.gap(at + 1))).then(|| self.word(at + 1))
    }

    /// Whether a sentence ends with the mark `at`, ignoring closing marks.
    fn ends_sentence(self, at: usize) -> bool {
        let word = self.word(at);
        if word.starts_with(['。', '！', '？', '｡', '।', '؟', '۔']) {
            return true;
        }
        if !word.starts_with(['.', '!', '?', '…']) {
            return false;
        }
        let mut next = at + 1;
        let abuts = next < self.raw.len() && self.gap(next).is_empty();
        while next < self.raw.len() && self.closes(next) {
            next += 1;
        }
        if next >= self.raw.len() {
            return true;
        }
        let gap = self.gap(next);
        if is_break(gap) {
            return true;
        }
        // `.NET`, and the full stop of a list number.
        if abuts && !self.gap(at).is_empty() || (word == "." && self.numbers_item(at)) {
            return false;
        }
        if word == "!" && at > 0 && MARKED.binary_search(&self.word(at - 1)).is_ok() && next == at + 1 {
            return BEGINNING.binary_search(&self.word(next)).is_ok();
        }
        // Opening marks are skipped.
        let first =
            self.raw[next.min(self.raw.len() - 1)..].iter().take(4).map(|piece| &self.text[piece.clone()]);
        let first = first.flat_map(|word| word.chars().next()).find(|character| {
            !matches!(character, '"' | '\'' | '“' | '‘' | '«' | '(' | '[' | '{' | '¿' | '¡')
        });
        let Some(first) = first else { return true };
        if gap.is_empty() && next == at + 1 {
            return first.is_uppercase() || !first.is_ascii();
        }
        first.is_uppercase() || first.is_numeric() || (first.is_alphabetic() && !first.is_lowercase())
    }

    /// Whether token `at` closes the text directly before it.
    fn closes(self, at: usize) -> bool {
        let word = self.word(at);
        if !self.gap(at).is_empty() {
            return false;
        }
        if matches!(word, ")" | "]" | "}" | "”" | "’" | "»") {
            return true;
        }
        matches!(word, "\"" | "'") && (at + 1 == self.raw.len() || !self.gap(at + 1).is_empty())
    }

    /// Whether the full stop `at` belongs to a short number at the start of a sentence or line.
    fn numbers_item(self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return false };
        let word = self.word(before);
        let is_number = word.len() <= 2 && word.bytes().all(|byte| byte.is_ascii_digit());
        is_number && self.gap(at).is_empty() && (before == 0 || self.gap(before).contains('\n'))
    }
}

/// Whether a word is letters with full stops between, such as `U.S` or `Ph.D`.
fn is_acronym(word: &str) -> bool {
    word.split('.')
        .all(|part| (1..=2).contains(&part.chars().count()) && part.chars().all(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_the_order_that_they_are_searched_in() {
        assert!(BEFORE.is_sorted() && WITHIN.is_sorted() && BEGINNING.is_sorted() && MARKED.is_sorted());
    }
}
