//! Words as an encoder's token rows, with the place of each word's first piece.

use std::ops::Range;

use sporran_checkpoint::{Error, Result, Tokenizer};

use crate::encoder_input::EncoderRow;

/// Pieces of a word that are read, at most.
const MOST_PIECES: usize = 8;

/// Cuts words into pieces and puts windows of them between the special tokens of a single text.
#[derive(Debug)]
pub struct WordInput {
    tokenizer: Tokenizer,
    first: u32,
    last: u32,
    unknown: u32,
    max_length: usize,
    marks_case: bool,
    /// The text before a word within a text, if the tokenizer distinguishes that.
    blank: &'static str,
}

/// A window of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordRow {
    /// The pieces between the special tokens.
    pub row: EncoderRow,
    /// For each word the place of its first piece in the row.
    pub firsts: Vec<usize>,
}

impl WordRow {
    /// The places of a word's pieces in the row.
    #[must_use]
    pub fn pieces(&self, word: usize) -> Range<usize> {
        // The last place is that of the special token.
        let end = self.firsts.get(word + 1).copied().unwrap_or(self.row.ids.len() - 1);
        self.firsts[word]..end
    }
}

impl WordInput {
    /// Windows of at most `max_length` tokens, special ones included. With `marks_case` the second token type marks words that
    /// begin with a capital letter, and the pieces after the first of a word in capitals. A tokenizer that lowercases hides
    /// this.
    ///
    /// # Errors
    /// [`Error::Training`] where the tokenizer does not put one special token before a text and one after it;
    /// [`Error::Options`] where a window has no room for a word.
    pub fn new(tokenizer: Tokenizer, max_length: usize, marks_case: bool) -> Result<Self> {
        let around = tokenizer.encode("", None)?;
        let &[first, last] = around.as_slice() else {
            return Err(Error::Training {
                what: "the tokenizer".into(),
                expected: "one special token before a text and one after it".into(),
                found: format!("{} in all", around.len()),
            });
        };
        if max_length < MOST_PIECES + 2 {
            let expected = format!("at least {}", MOST_PIECES + 2);
            return Err(Error::Options { option: "max-tokens", expected, found: max_length.to_string() });
        }
        let unknown = ["[UNK]", "<unk>"].iter().find_map(|token| tokenizer.token_id(token)).unwrap_or(last);
        let blank = if tokenizer.kind() == "BPE" { " " } else { "" };
        Ok(Self { tokenizer, first, last, unknown, max_length, marks_case, blank })
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The special tokens before and after a text.
    #[must_use]
    pub fn around(&self) -> (u32, u32) {
        (self.first, self.last)
    }

    /// The pieces of a word within a text; at least one.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where it cannot be tokenized.
    pub fn pieces(&self, word: &str) -> Result<Vec<u32>> {
        let mut pieces = self.tokenizer.encode_plain(&format!("{}{word}", self.blank))?;
        pieces.truncate(MOST_PIECES);
        if pieces.is_empty() {
            pieces.push(self.unknown);
        }
        Ok(pieces)
    }

    /// The windows of a sequence of words, which they have one after the other.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where a word cannot be tokenized.
    pub fn rows(&self, words: &[&str]) -> Result<Vec<WordRow>> {
        let mut rows: Vec<WordRow> = Vec::new();
        for word in words {
            let pieces = self.pieces(word)?;
            let room = |row: &WordRow| row.row.ids.len() + pieces.len() < self.max_length;
            if !rows.last().is_some_and(room) {
                self.close(rows.last_mut());
                let row = EncoderRow { ids: vec![self.first], types: vec![0] };
                rows.push(WordRow { row, firsts: Vec::new() });
            }
            // One was pushed where there was none.
            let Some(WordRow { row, firsts }) = rows.last_mut() else { continue };
            firsts.push(row.ids.len());
            let (begins, all) = if self.marks_case { capitals(word) } else { (false, false) };
            row.types.extend((0..pieces.len()).map(|at| u32::from(if at == 0 { begins } else { all })));
            row.ids.extend(pieces);
        }
        self.close(rows.last_mut());
        Ok(rows)
    }

    fn close(&self, row: Option<&mut WordRow>) {
        if let Some(WordRow { row, .. }) = row {
            row.ids.push(self.last);
            row.types.push(0);
        }
    }
}

/// Whether a word begins with a capital letter, and whether no lowercase letter follows it.
fn capitals(word: &str) -> (bool, bool) {
    let begins = word.chars().next().is_some_and(char::is_uppercase);
    let rest = || word.chars().skip(1);
    (begins, begins && rest().any(char::is_uppercase) && !rest().any(char::is_lowercase))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// WordPiece over a few letters.
    fn tokenizer() -> Tokenizer {
        let json = r####"{
            "version": "1.0", "truncation": null, "padding": null, "decoder": null, "added_tokens": [],
            "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "[", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                           {"SpecialToken": {"id": "]", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"[": {"id": "[", "ids": [1], "tokens": ["["]},
                                   "]": {"id": "]", "ids": [2], "tokens": ["]"]}}},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100,
                "vocab": {"[UNK]": 0, "[": 1, "]": 2, "a": 3, "##a": 4, "b": 5, "##b": 6}}}"####;
        Tokenizer::from_json(Path::new("tokenizer.json"), json.into()).unwrap()
    }

    #[test]
    fn words_have_first_pieces_and_case_marks() {
        let input = WordInput::new(tokenizer(), 12, true).unwrap();
        let rows = input.rows(&["Ab", "BB", "a", "\u{200b}"]).unwrap();
        let expected = EncoderRow { ids: vec![1, 3, 6, 5, 6, 3, 0, 2], types: vec![0, 1, 0, 1, 1, 0, 0, 0] };
        assert_eq!(rows, [WordRow { row: expected, firsts: vec![1, 3, 5, 6] }]);
        assert_eq!([0, 1, 2, 3].map(|word| rows[0].pieces(word)), [1..3, 3..5, 5..6, 6..7]);
        let plain = WordInput::new(tokenizer(), 12, false).unwrap();
        assert_eq!(plain.rows(&["Ab"]).unwrap()[0].row.types, [0; 4]);
    }

    #[test]
    fn windows_hold_what_fits_and_a_long_word_loses_its_end() {
        let input = WordInput::new(tokenizer(), 10, false).unwrap();
        let rows = input.rows(&["aaaa", "bbb", "aab", "aaaaaaaaaaaa"]).unwrap();
        let lengths: Vec<(usize, usize)> =
            rows.iter().map(|row| (row.row.ids.len(), row.firsts.len())).collect();
        assert_eq!(lengths, [(9, 2), (5, 1), (10, 1)]);
        assert!(input.rows(&[]).unwrap().is_empty());
        let message = WordInput::new(tokenizer(), 9, false).unwrap_err().to_string();
        assert!(message.contains("max-tokens"), "{message}");
    }
}
