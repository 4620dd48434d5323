//! Texts and pairs of texts as the rows that an encoder reads.

use std::path::PathBuf;

use tokenizers::{EncodeInput, PostProcessor, TruncationDirection, TruncationParams, TruncationStrategy};

use crate::{
    batch::Batch,
    encoder::Encoder,
    error::{Error, Result},
    tokenizer::Tokenizer,
};

/// What an encoder reads at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text<'a> {
    /// One text.
    One(&'a str),
    /// Two, such as a query and a passage, or a title and a text.
    Pair(&'a str, &'a str),
}

/// What is cut where an input is too long; the special tokens always stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Truncation {
    /// The longer text of a pair, then both alike; a single text at its end.
    #[default]
    LongestFirst,
    /// The second text of a pair alone. A first text that leaves no room is an error, and so is a single text that
    /// is too long.
    OnlySecond,
}

/// The tokens of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderRow {
    /// The token ids, special tokens included.
    pub ids: Vec<u32>,
    /// For each token, which part of the input it belongs to, as the tokenizer says.
    pub types: Vec<u32>,
}

/// A tokenizer that cuts inputs to a length, as `transformers` does.
#[derive(Debug, Clone)]
pub struct EncoderInput {
    tokenizer: tokenizers::Tokenizer,
    path: PathBuf,
    max_length: usize,
}

impl EncoderInput {
    /// Inputs of at most `max_length` tokens, special ones included.
    ///
    /// # Errors
    /// [`Error::Options`] where `max_length` leaves no room beside the special tokens of a pair.
    pub fn new(tokenizer: &Tokenizer, max_length: usize, truncation: Truncation) -> Result<Self> {
        let mut cutting = tokenizer.inner().clone();
        let special = cutting.get_post_processor().map_or(0, |processor| processor.added_tokens(true));
        if max_length <= special {
            let expected = format!("more than the {special} special tokens of a pair");
            return Err(Error::Options { option: "max-length", expected, found: max_length.to_string() });
        }
        let parameters = TruncationParams {
            direction: TruncationDirection::Right,
            max_length,
            strategy: match truncation {
                Truncation::LongestFirst => TruncationStrategy::LongestFirst,
                Truncation::OnlySecond => TruncationStrategy::OnlySecond,
            },
            stride: 0,
        };
        cutting.with_truncation(Some(parameters)).map_err(|source| tokenizer.wrong(source))?;
        Ok(Self { tokenizer: cutting, path: tokenizer.path().into(), max_length })
    }

    /// The most tokens of an input.
    #[must_use]
    pub fn max_length(&self) -> usize {
        self.max_length
    }

    /// The row of each text, in their order; they are tokenized on all threads.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] where a text cannot be tokenized, or cannot be cut as was asked.
    pub fn rows(&self, texts: &[Text<'_>]) -> Result<Vec<EncoderRow>> {
        let inputs: Vec<EncodeInput<'_>> = texts
            .iter()
            .map(|text| match *text {
                Text::One(text) => EncodeInput::Single(text.into()),
                Text::Pair(first, second) => EncodeInput::Dual(first.into(), second.into()),
            })
            .collect();
        let encodings = self
            .tokenizer
            .encode_batch_fast(inputs, true)
            .map_err(|source| Error::Tokenizer { path: self.path.clone(), source })?;
        let row = |encoding: &tokenizers::Encoding| EncoderRow {
            ids: encoding.get_ids().to_vec(),
            types: encoding.get_type_ids().to_vec(),
        };
        Ok(encodings.iter().map(row).collect())
    }
}

impl Batch {
    /// The batch of `rows` that `body` takes: with token types where it was trained with them.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn for_encoder(rows: &[&EncoderRow], body: &dyn Encoder) -> Result<Self> {
        let ids: Vec<&[u32]> = rows.iter().map(|row| row.ids.as_slice()).collect();
        let batch = Self::new(&ids, body.pad_token(), body.device())?;
        if !body.takes_types() {
            return Ok(batch);
        }
        let types: Vec<&[u32]> = rows.iter().map(|row| row.types.as_slice()).collect();
        batch.with_types(&types)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{EncoderInput, Text, Truncation};
    use crate::{Error, Tokenizer};

    /// Letters to ids from 2 on, pairs as `A 1 B 1` with type 1 for the second part.
    fn tokenizer() -> Tokenizer {
        let json = r#"{
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
            "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "|", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "|", "type_id": 0}},
                         {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "|", "type_id": 1}}],
                "special_tokens": {"|": {"id": "|", "ids": [1], "tokens": ["|"]}}},
            "model": {"type": "WordLevel", "vocab": {"?": 0, "|": 1, "a": 2, "b": 3, "c": 4}, "unk_token": "?"}}"#;
        Tokenizer::from_json(Path::new("tokenizer.json"), json.into()).unwrap()
    }

    fn ids(max_length: usize, truncation: Truncation, text: Text<'_>) -> crate::Result<Vec<u32>> {
        let input = EncoderInput::new(&tokenizer(), max_length, truncation)?;
        Ok(input.rows(&[text])?.remove(0).ids)
    }

    #[test]
    fn a_pair_has_the_types_of_its_parts() {
        let input = EncoderInput::new(&tokenizer(), 9, Truncation::LongestFirst).unwrap();
        let row = input.rows(&[Text::Pair("a b", "c")]).unwrap().remove(0);
        assert_eq!((row.ids, row.types), (vec![2, 3, 1, 4, 1], vec![0, 0, 0, 1, 1]));
    }

    #[test]
    fn the_longer_text_is_cut_first_and_then_both_alike() {
        let cut = |max, first, second| {
            let mut ids = ids(max, Truncation::LongestFirst, Text::Pair(first, second)).unwrap();
            ids.retain(|id| *id != 1);
            ids
        };
        // Five places for tokens: 1 and 4 of 5, then 2 and 3.
        assert_eq!(cut(7, "a", "b b b b b"), [2, 3, 3, 3, 3]);
        assert_eq!(cut(7, "a a a a", "b b b b b"), [2, 2, 3, 3, 3]);
        assert_eq!(ids(3, Truncation::LongestFirst, Text::One("a b c")).unwrap(), [2, 3, 1]);
    }

    #[test]
    fn the_second_text_alone_is_cut_where_that_is_asked_for() {
        let cut = |max, text| ids(max, Truncation::OnlySecond, text);
        assert_eq!(cut(6, Text::Pair("a a a", "b b b")).unwrap(), [2, 2, 2, 1, 3, 1]);
        assert!(matches!(cut(5, Text::Pair("a a a", "b b")), Err(Error::Tokenizer { .. })));
    }

    #[test]
    fn a_length_without_room_for_a_text_is_refused() {
        let error = ids(2, Truncation::LongestFirst, Text::One("a")).unwrap_err().to_string();
        assert_eq!(error, "option `max-length`: expected more than the 2 special tokens of a pair, found 2");
    }
}
