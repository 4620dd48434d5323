//! Words, numbers and punctuation.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

/// Bytes of a text that make a token.
pub(crate) type Piece = Range<usize>;

/// Clitics that are separate tokens after an apostrophe.
const CLITICS: [&str; 6] = ["s", "re", "ve", "ll", "d", "m"];

/// Punctuation marks whose runs are one token.
const RUNS: [&str; 10] = [".", "!", "?", "-", "—", "–", "=", "*", "_", "#"];

/// Splits a text into tokens. The full stop after a word is a token here.
pub(crate) fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(text.len() / 5);
    for (start, segment) in text.split_word_bound_indices() {
        // Combining marks may follow a blank, and those are no blanks.
        let mut start = start;
        for part in segment.split_inclusive(char::is_whitespace) {
            let trimmed = part.trim_end_matches(char::is_whitespace);
            if !trimmed.is_empty() {
                segment_pieces(text, start..start + trimmed.len(), &mut pieces);
            }
            start += part.len();
        }
    }
    pieces
}

fn is_apostrophe(character: char) -> bool {
    matches!(character, '\'' | '’')
}

/// Splits a segment of UAX #29 further.
fn segment_pieces(text: &str, segment: Piece, pieces: &mut Vec<Piece>) {
    let word = &text[segment.clone()];
    if RUNS.contains(&word)
        && let Some(last) = pieces.last_mut()
        && last.end == segment.start
        && text[last.clone()].ends_with(word)
        && text[last.clone()].starts_with(word)
    {
        last.end = segment.end;
        return;
    }
    let mut start = 0;
    let mut before: Option<char> = None;
    let mut lower_case = 0;
    for (at, character) in word.char_indices() {
        let rest = &word[at + character.len_utf8()..];
        let cuts = match character {
            ':' | ';' | '·' => true,
            ',' => {
                let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
                before.is_some_and(|before| before.is_ascii_digit()) && digits != 3
            }
            // The end of a sentence without a following blank, as in `club.Then`.
            '.' => {
                let mut rest = rest.chars();
                lower_case >= 2
                    && rest.next().is_some_and(char::is_uppercase)
                    && rest.next().is_some_and(char::is_lowercase)
            }
            _ => false,
        };
        lower_case = if character.is_lowercase() { lower_case + 1 } else { 0 };
        before = Some(character);
        if cuts {
            word_pieces(word, segment.start, start..at, pieces);
            start = at + character.len_utf8();
            pieces.push(segment.start + at..segment.start + start);
        }
    }
    word_pieces(word, segment.start, start..word.len(), pieces);
}

/// Splits a clitic off a word.
fn word_pieces(segment: &str, first: usize, word: Piece, pieces: &mut Vec<Piece>) {
    let text = &segment[word.clone()];
    if text.is_empty() {
        return;
    }
    let mut cut = None;
    if let Some((at, mark)) =
        text.char_indices().rev().take(3).find(|(_, character)| is_apostrophe(*character))
    {
        let ending = &text[at + mark.len_utf8()..];
        if at > 0 && CLITICS.iter().any(|clitic| ending.eq_ignore_ascii_case(clitic)) {
            cut = Some(at);
        } else if ending.eq_ignore_ascii_case("t") && text[..at].ends_with(['n', 'N']) && at > 1 {
            cut = Some(at - 1);
        }
    }
    let (start, end) = (first + word.start, first + word.end);
    match cut {
        Some(cut) => pieces.extend([start..start + cut, start + cut..end]),
        None => pieces.push(start..end),
    }
}
