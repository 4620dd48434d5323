//! Texts and pairs of texts as the rows that an encoder reads.

use std::{ops::Range, path::Path};

use rayon::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{
    BLINK_MARKS, Error, Result, Tokenizer, TruncationSide,
    json::{self, parse},
    sentence::{InputSettings, encoder_of},
};
use tokenizers::{
    Encoding, PostProcessor, TruncationDirection, TruncationParams, TruncationStrategy, truncate_encodings,
};

use crate::{architectures::ModelConfig, batch::Batch, checkpoint::Checkpoint, encoder::Encoder};

/// The input of an encoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text<'a> {
    /// One text.
    One(&'a str),
    /// Two, such as a query and a passage, or a title and a text.
    Pair(&'a str, &'a str),
}

/// The truncation of an input that is too long; the special tokens always stay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Truncation {
    /// The longer text of a pair, then both equally, and a single text: at its end, or at its beginning if the `truncation_side` of the
    /// model's folder is the left.
    #[default]
    LongestFirst,
    /// Only the second text of a pair, at the same side. A first text that leaves no room is an error, and so is a single text that
    /// is too long.
    OnlySecond,
    /// The first text of a pair at its beginning, so that the last turns of a dialogue stay; the second at its end, and
    /// only to half of the room. A single text loses its beginning.
    FirstAtItsStart,
    /// A single text with a mention between BLINK's marks, `[unused0]` and `[unused1]`, is cut far from the mention. Both
    /// sides get the same number of tokens, and a side passes on what it does not need (Wu et al. 2020). Other texts are
    /// cut as with `longest-first`.
    AroundMention,
    /// As `around-mention`, but a single text without a mention loses its beginning, as in BLINK's code.
    MentionOrEnd,
}

/// The tokens of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderRow {
    /// The token ids, special tokens included.
    pub ids: Vec<u32>,
    /// The token type of each token, from the tokenizer.
    pub types: Vec<u32>,
}

/// A tokenizer that cuts inputs to a length, as `transformers` does.
#[derive(Debug, Clone)]
pub struct EncoderInput {
    tokenizer: Tokenizer,
    max_length: usize,
    truncation: Truncation,
    /// The ids of the marks before and after a mention, if the tokenizer has them.
    marks: Option<[u32; 2]>,
    first_room: Option<FirstRoom>,
    lowercases: bool,
}

/// The fixed number of tokens of the first text of a pair.
#[derive(Debug, Clone, Copy)]
struct FirstRoom {
    tokens: usize,
    /// The id that fills it.
    padding: u32,
}

impl EncoderInput {
    /// Inputs of at most `max_length` tokens, special ones included.
    ///
    /// # Errors
    /// [`Error::Options`] if `max_length` leaves no room for more than the special tokens of a pair.
    pub fn new(tokenizer: Tokenizer, max_length: usize, truncation: Truncation) -> Result<Self> {
        let special = special_tokens(&tokenizer, true);
        if max_length <= special {
            let expected = format!("more than the {special} special tokens of a pair");
            return Err(Error::Options { option: "max-length", expected, found: max_length.to_string() });
        }
        let [before, after, _] = BLINK_MARKS.map(|mark| tokenizer.token_id(mark));
        let marks = before.zip(after).map(|(before, after)| [before, after]);
        Ok(Self { tokenizer, max_length, truncation, marks, first_room: None, lowercases: false })
    }

    /// The same, but the first text of a pair always takes `tokens` tokens, special ones included. It is cut as a single
    /// text is, or filled up with `padding`. The second text follows and gets the remaining tokens. The caller must mask
    /// the padding: see [`Batch::hiding`].
    ///
    /// # Errors
    /// [`Error::Options`] where one of the texts would have no room.
    pub fn with_first_room(self, tokens: usize, padding: u32) -> Result<Self> {
        let special = special_tokens(&self.tokenizer, false);
        if tokens <= special || tokens + special > self.max_length {
            let expected = format!(
                "more than {special}, and at most {} of the {} tokens",
                self.max_length - special,
                self.max_length
            );
            return Err(Error::Options { option: "query-room", expected, found: tokens.to_string() });
        }
        Ok(Self { first_room: Some(FirstRoom { tokens, padding }), ..self })
    }

    /// Whether first texts have a fixed number of tokens, so padding may follow them.
    #[must_use]
    pub fn has_first_room(&self) -> bool {
        self.first_room.is_some()
    }

    /// Inputs for the encoder of `checkpoint`: of `most` tokens, or else as many as its folder sets, in
    /// sentence-transformers' `sentence_bert_config.json` or as the `model_max_length` of its `tokenizer_config.json`, but
    /// no more than `length`, for which the model has positions. Texts are lowercased if the folder says so.
    ///
    /// # Errors
    /// Those of reading a tokenizer and the settings, and of [`new`](Self::new).
    pub fn open(
        checkpoint: &Checkpoint,
        length: usize,
        most: Option<usize>,
        truncation: Truncation,
    ) -> Result<Self> {
        let settings = InputSettings::open(checkpoint.folder())?;
        // A static embedding reads the tokens of a whole text, and nothing around them.
        let is_static = matches!(checkpoint.config(), ModelConfig::StaticEmbedding(_));
        let most = match most {
            Some(most) => most,
            None if is_static => usize::MAX,
            None => max_tokens(checkpoint.folder(), &settings)?.unwrap_or(usize::MAX),
        };
        let mut tokenizer = checkpoint.tokenizer()?;
        if is_static {
            tokenizer = tokenizer.without_special_tokens();
        }
        if settings.lowercase {
            tokenizer = tokenizer.lowercased()?;
        }
        let input = Self::new(tokenizer, length.min(most), truncation)?;
        Ok(Self { lowercases: settings.lowercase, ..input })
    }

    /// The same with another way of cutting long inputs.
    #[must_use]
    pub fn with_truncation(&self, truncation: Truncation) -> Self {
        Self { truncation, ..self.clone() }
    }

    /// Whether texts are lowercased before the tokenizer reads them.
    #[must_use]
    pub fn lowercases(&self) -> bool {
        self.lowercases
    }

    /// The number of tokens of `text` at the beginning of a longer text: all but the special tokens at its end.
    ///
    /// # Errors
    /// As for [`rows`](Self::rows).
    pub fn leading_tokens(&self, text: &str) -> Result<usize> {
        let count = || {
            let text = self.tokenizer.inner().encode_fast(text, false)?;
            let room = self.max_length - special_tokens(&self.tokenizer, false);
            let (text, _) = self.cut(text, None, room)?;
            let whole = self.tokenizer.inner().post_process(text, None, true)?;
            let trailing = whole.get_special_tokens_mask().iter().rev().take_while(|special| **special == 1);
            Ok(whole.len() - trailing.count())
        };
        count().map_err(|source| self.tokenizer.wrong(source))
    }

    /// The tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
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
        texts.par_iter().map(|text| self.row(*text).map_err(|source| self.tokenizer.wrong(source))).collect()
    }

    fn row(&self, text: Text<'_>) -> tokenizers::Result<EncoderRow> {
        let tokenizer = self.tokenizer.inner();
        let (first, second) = match text {
            Text::One(text) => (text, None),
            Text::Pair(first, second) => (first, Some(second)),
        };
        let first = tokenizer.encode_fast(first, false)?;
        let second = match second {
            Some(second) => {
                let mut second = tokenizer.encode_fast(second, false)?;
                // A tokenizer without a template for pairs leaves these types unchanged.
                second.set_type_ids(vec![1; second.len()]);
                Some(second)
            }
            None => None,
        };
        if let (Some(room), Some(second)) = (self.first_room, second.as_ref()) {
            return self.apart(first, second, room);
        }
        // `new` has checked that a pair leaves room, and a single text has no more special tokens than a pair.
        let room = self.max_length - special_tokens(&self.tokenizer, second.is_some());
        let (first, second) = self.cut(first, second, room)?;
        let whole = tokenizer.post_process(first, second, true)?;
        Ok(EncoderRow { ids: whole.get_ids().to_vec(), types: self.types(whole.get_type_ids().to_vec()) })
    }

    /// Token types as the model gets them: 0 where the folder's tokenizer gives it none.
    fn types(&self, types: Vec<u32>) -> Vec<u32> {
        if self.tokenizer.gives_types() { types } else { vec![0; types.len()] }
    }

    /// The row of a pair whose first text has a fixed number of tokens.
    fn apart(&self, first: Encoding, second: &Encoding, room: FirstRoom) -> tokenizers::Result<EncoderRow> {
        let tokenizer = self.tokenizer.inner();
        let special = special_tokens(&self.tokenizer, false);
        let (first, _) = self.cut(first, None, room.tokens - special)?;
        let mut ids = tokenizer.post_process(first, None, true)?.get_ids().to_vec();
        ids.resize(room.tokens, room.padding);
        // The last special token follows the second text, and no special token precedes it.
        let before = special.saturating_sub(1);
        let mut second = second.clone();
        second.truncate(self.max_length - room.tokens - (special - before), 0, self.side());
        second.take_overflowing();
        ids.extend(tokenizer.post_process(second, None, true)?.get_ids().iter().skip(before));
        let types = (0..ids.len()).map(|at| u32::from(at >= room.tokens)).collect();
        Ok(EncoderRow { ids, types: self.types(types) })
    }

    /// The texts, truncated to `room` tokens without special tokens. What was cut off is dropped: with its pieces, the
    /// `tokenizers` crate makes a pair of each piece of one text with each of the other.
    fn cut(
        &self,
        first: Encoding,
        second: Option<Encoding>,
        room: usize,
    ) -> tokenizers::Result<(Encoding, Option<Encoding>)> {
        let (mut first, mut second) = self.cut_in_pieces(first, second, room)?;
        first.take_overflowing();
        if let Some(second) = &mut second {
            second.take_overflowing();
        }
        Ok((first, second))
    }

    /// The texts with the pieces that were cut off.
    fn cut_in_pieces(
        &self,
        mut first: Encoding,
        mut second: Option<Encoding>,
        room: usize,
    ) -> tokenizers::Result<(Encoding, Option<Encoding>)> {
        if self.truncation == Truncation::FirstAtItsStart {
            if let Some(second) = &mut second {
                let most = (room - room / 2).max(room.saturating_sub(first.len()));
                second.truncate(most, 0, TruncationDirection::Right);
            }
            let left = room - second.as_ref().map_or(0, Encoding::len);
            first.truncate(left, 0, TruncationDirection::Left);
            return Ok((first, second));
        }
        let seeks_mention = matches!(self.truncation, Truncation::AroundMention | Truncation::MentionOrEnd);
        if seeks_mention && second.is_none() && first.len() > room {
            if let Some(mention) = self.mention(&first) {
                return Ok((around(first, mention, room), None));
            }
            if self.truncation == Truncation::MentionOrEnd {
                first.truncate(room, 0, TruncationDirection::Left);
                return Ok((first, None));
            }
        }
        // Whole texts are cut here. With the truncation inside, the `tokenizers` crate drops words while encoding, and the
        // longer text of a pair can no longer be determined.
        let parameters = TruncationParams {
            direction: self.side(),
            max_length: room,
            strategy: match self.truncation {
                Truncation::OnlySecond => TruncationStrategy::OnlySecond,
                Truncation::LongestFirst
                | Truncation::FirstAtItsStart
                | Truncation::AroundMention
                | Truncation::MentionOrEnd => TruncationStrategy::LongestFirst,
            },
            stride: 0,
        };
        truncate_encodings(first, second, &parameters)
    }

    /// The end at which the tokenizer's folder cuts texts.
    fn side(&self) -> TruncationDirection {
        match self.tokenizer.truncation_side() {
            Some(TruncationSide::Left) => TruncationDirection::Left,
            Some(TruncationSide::Right) | None => TruncationDirection::Right,
        }
    }

    /// The range of a mention, marks included.
    fn mention(&self, text: &Encoding) -> Option<Range<usize>> {
        let [before, after] = self.marks?;
        let start = text.get_ids().iter().position(|id| *id == before)?;
        let length = text.get_ids()[start..].iter().position(|id| *id == after)?;
        Some(start..start + length + 1)
    }
}

/// The most tokens of a text according to a model's folder, regardless of the encoder's number of positions:
/// sentence-transformers' `max_seq_length`, or the `model_max_length` of its tokenizer. In the layout of
/// sentence-transformers, the encoder's subfolder decides.
///
/// # Errors
/// [`Error::Json`], and [`Error::Config`] for an option that is not one of this crate.
pub fn folder_max_tokens(folder: &Path) -> Result<Option<usize>> {
    let encoder = encoder_of(folder)?;
    max_tokens(&encoder, &InputSettings::open(&encoder)?)
}

fn max_tokens(encoder: &Path, settings: &InputSettings) -> Result<Option<usize>> {
    #[derive(Default, Deserialize)]
    struct Fields {
        /// A float, since `transformers` writes 1e30 for "no limit".
        model_max_length: Option<f64>,
    }
    if settings.max_length.is_some() {
        return Ok(settings.max_length);
    }
    let path = encoder.join("tokenizer_config.json");
    let fields: Fields = match json::text(&path)? {
        Some(text) => parse(&path, &text)?,
        None => Fields::default(),
    };
    // A cast of a negative value gives 0.
    Ok(fields.model_max_length.filter(|length| *length < 1e9).map(|length| length as usize))
}

/// The mention with its context. A mention that does not fit keeps its beginning and its marks.
fn around(mut text: Encoding, mention: Range<usize>, room: usize) -> Encoding {
    let (left, right) = (mention.start, text.len() - mention.end);
    if mention.len() > room {
        let mut end = text.clone();
        end.truncate(mention.end, 0, TruncationDirection::Right);
        end.truncate(1, 0, TruncationDirection::Left);
        text.truncate(mention.end, 0, TruncationDirection::Right);
        text.truncate(mention.len(), 0, TruncationDirection::Left);
        text.truncate(room - 1, 0, TruncationDirection::Right);
        text.merge_with(end, false);
        return text;
    }
    let spare = room - mention.len();
    let before = left.min((spare / 2).max(spare.saturating_sub(right)));
    let after = right.min(spare - before);
    text.truncate(mention.end + after, 0, TruncationDirection::Right);
    text.truncate(before + mention.len() + after, 0, TruncationDirection::Left);
    text
}

/// How many tokens a tokenizer puts around a text or a pair.
fn special_tokens(tokenizer: &Tokenizer, is_pair: bool) -> usize {
    tokenizer.inner().get_post_processor().map_or(0, |processor| processor.added_tokens(is_pair))
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
    use sporran_checkpoint::{Error, Tokenizer, TruncationSide};

    /// Letters to ids from 2 on, pairs as `A 1 B 1` with type 1 for the second part.
    fn tokenizer() -> Tokenizer {
        let json = r#"{
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "decoder": null,
            "added_tokens": [
                {"id": 5, "content": "[unused0]", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false},
                {"id": 6, "content": "[unused1]", "special": true, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false}],
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": {"type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "|", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "|", "type_id": 0}},
                         {"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "|", "type_id": 1}}],
                "special_tokens": {"|": {"id": "|", "ids": [1], "tokens": ["|"]}}},
            "model": {"type": "WordLevel", "vocab": {"?": 0, "|": 1, "a": 2, "b": 3, "c": 4}, "unk_token": "?"}}"#;
        Tokenizer::from_json(Path::new("tokenizer.json"), json.into()).unwrap()
    }

    fn ids(
        max_length: usize,
        truncation: Truncation,
        text: Text<'_>,
    ) -> sporran_checkpoint::Result<Vec<u32>> {
        let input = EncoderInput::new(tokenizer(), max_length, truncation)?;
        Ok(input.rows(&[text])?.remove(0).ids)
    }

    #[test]
    fn a_pair_has_the_types_of_its_parts() {
        let input = EncoderInput::new(tokenizer(), 9, Truncation::LongestFirst).unwrap();
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
    fn pieces_that_were_cut_off_are_dropped() {
        let long = "a b c ".repeat(50);
        for truncation in [Truncation::LongestFirst, Truncation::FirstAtItsStart] {
            let input = EncoderInput::new(tokenizer(), 9, truncation).unwrap();
            let encode = || input.tokenizer().inner().encode_fast(long.as_str(), false).unwrap();
            let (first, second) = input.cut(encode(), Some(encode()), 7).unwrap();
            let second = second.unwrap();
            assert_eq!(first.len() + second.len(), 7);
            assert!(first.get_overflowing().is_empty() && second.get_overflowing().is_empty());
        }
    }

    #[test]
    fn only_the_second_text_is_cut_if_requested() {
        let cut = |max, text| ids(max, Truncation::OnlySecond, text);
        assert_eq!(cut(6, Text::Pair("a a a", "b b b")).unwrap(), [2, 2, 2, 1, 3, 1]);
        assert!(matches!(cut(5, Text::Pair("a a a", "b b")), Err(Error::Tokenizer { .. })));
    }

    /// The ids are those of `transformers` for this tokenizer with `truncation_side="left"`.
    #[test]
    fn texts_lose_their_beginning_where_the_folder_says_so() {
        let cut = |max, truncation, text| {
            let tokenizer = tokenizer().with_truncation_side(TruncationSide::Left);
            EncoderInput::new(tokenizer, max, truncation).unwrap().rows(&[text]).unwrap().remove(0).ids
        };
        let longest = Truncation::LongestFirst;
        assert_eq!(cut(3, longest, Text::One("a b c")), [3, 4, 1]);
        assert_eq!(cut(7, longest, Text::Pair("c b a", "a b c b a")), [3, 2, 1, 4, 3, 2, 1]);
        assert_eq!(cut(6, longest, Text::Pair("a", "c b c b a c")), [2, 1, 3, 2, 4, 1]);
        assert_eq!(cut(7, Truncation::OnlySecond, Text::Pair("a a a", "b c a")), [2, 2, 2, 1, 4, 2, 1]);
    }

    #[test]
    fn the_last_turns_and_the_sentence_stay_where_a_dialogue_is_cut() {
        let cut = |max, text| ids(max, Truncation::FirstAtItsStart, text).unwrap();
        // Five places: all of the second text and the end of the first.
        assert_eq!(cut(7, Text::Pair("a b c a b c", "b b")), [2, 3, 4, 1, 3, 3, 1]);
        // A second text that is longer than half of the room gets half of it, and the rest that the first does not need.
        assert_eq!(cut(7, Text::Pair("a b c", "b c b c a")), [3, 4, 1, 3, 4, 3, 1]);
        assert_eq!(cut(7, Text::Pair("a", "b c b c a")), [2, 1, 3, 4, 3, 4, 1]);
        assert_eq!(cut(3, Text::One("a b c")), [3, 4, 1]);
    }

    #[test]
    fn a_mention_stays_with_what_is_next_to_it() {
        let cut = |room: usize, text| {
            let mut ids = ids(room + 1, Truncation::AroundMention, Text::One(text)).unwrap();
            assert_eq!(ids.pop(), Some(1));
            ids
        };
        let text = "a b c a [unused0] b [unused1] c b a c";
        assert_eq!(cut(7, text), [4, 2, 5, 3, 6, 4, 3]);
        // An odd place is the right side's.
        assert_eq!(cut(8, text), [4, 2, 5, 3, 6, 4, 3, 2]);
        // A side passes on the tokens that it does not need.
        assert_eq!(cut(6, "a [unused0] b [unused1] c b a c"), [2, 5, 3, 6, 4, 3]);
        assert_eq!(cut(6, "a b c a [unused0] b [unused1]"), [3, 4, 2, 5, 3, 6]);
        assert_eq!(cut(3, text), [5, 3, 6]);
        assert_eq!(cut(4, "a [unused0] b c a b c [unused1] c"), [5, 3, 4, 6]);
        // Without a mention, and where all has room.
        assert_eq!(cut(2, "a b c"), [2, 3]);
        assert_eq!(cut(9, "a [unused0] b [unused1]"), [2, 5, 3, 6]);
    }

    #[test]
    fn a_text_without_a_mention_can_keep_its_end() {
        let cut = |room: usize, text| ids(room + 1, Truncation::MentionOrEnd, text).unwrap();
        assert_eq!(cut(2, Text::One("a b c")), [3, 4, 1]);
        assert_eq!(cut(3, Text::One("a b c")), [2, 3, 4, 1]);
        // A mention is kept wherever it is.
        assert_eq!(cut(4, Text::One("[unused0] b [unused1] a b c")), [5, 3, 6, 2, 1]);
        // A pair is cut as with `longest-first`.
        assert_eq!(ids(5, Truncation::MentionOrEnd, Text::Pair("a", "b c b")).unwrap(), [2, 1, 3, 4, 1]);
        let input = EncoderInput::new(tokenizer(), 9, Truncation::MentionOrEnd).unwrap();
        let input = input.with_first_room(3, 0).unwrap();
        assert_eq!(input.rows(&[Text::Pair("a b c", "a")]).unwrap().remove(0).ids, [3, 4, 1, 2, 1]);
    }

    #[test]
    fn a_second_text_follows_the_room_of_the_first() {
        let input = EncoderInput::new(tokenizer(), 9, Truncation::AroundMention).unwrap();
        let input = input.with_first_room(5, 0).unwrap();
        let row = |first, second| input.rows(&[Text::Pair(first, second)]).unwrap().remove(0);
        let short = row("a b", "c c c c c c");
        assert_eq!(short.ids, [2, 3, 1, 0, 0, 4, 4, 4, 1]);
        assert_eq!(short.types, [0, 0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(row("a b c [unused0] a [unused1]", "b").ids, [4, 5, 2, 6, 1, 3, 1]);
        let error = |room| {
            let input = EncoderInput::new(tokenizer(), 9, Truncation::AroundMention).unwrap();
            input.with_first_room(room, 0).unwrap_err().to_string()
        };
        let expected = "option `query-room`: expected more than 1, and at most 8 of the 9 tokens, found";
        assert_eq!(error(1), format!("{expected} 1"));
        assert_eq!(error(9), format!("{expected} 9"));
    }

    #[test]
    fn a_length_without_room_for_a_text_is_refused() {
        let error = ids(2, Truncation::LongestFirst, Text::One("a")).unwrap_err().to_string();
        assert_eq!(error, "option `max-length`: expected more than the 2 special tokens of a pair, found 2");
    }
}
