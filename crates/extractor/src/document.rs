//! A text with its sentence and token spans.

use std::ops::Range;

use crate::{parse::Parse, sentences, tokens};

/// A part of a document in code points, the end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first code point.
    pub start: usize,
    /// The code point after the last.
    pub end: usize,
}

impl Span {
    /// Whether two spans share a code point.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether every code point of `other` is in this span.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// A sentence: its span and its tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Its span.
    pub span: Span,
    /// Its tokens, as indices into [`Document::tokens`].
    pub tokens: Range<usize>,
}

/// A text with the places of its sentences and tokens, all in code points of the original.
///
/// ```
/// use sporran_extractor::Document;
///
/// let document = Document::new("1", "Ann met J. R. Smith.  He left.");
/// assert_eq!(document.sentences.len(), 2);
/// assert_eq!(document.word(2), "J.");
/// assert_eq!(document.slice(document.sentences[1].span), Some("He left."));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// The id of a document or a page.
    pub id: String,
    /// The original text.
    pub text: String,
    /// Words, numbers and punctuation in order, without blanks.
    pub tokens: Vec<Span>,
    /// The sentences in order; every token is in exactly one.
    pub sentences: Vec<Sentence>,
    /// The byte offset of every 32nd code point, so that slicing a long text is fast.
    marks: Vec<usize>,
    characters: usize,
    parse: Option<Parse>,
}

/// Code points between two entries of `marks`.
const STEP: usize = 32;

impl Document {
    /// Splits a text into tokens and sentences.
    ///
    /// Words follow UAX #29 and are split at hyphens. A clitic (`'s`, `n't`) is a separate token. The full
    /// stop that ends a sentence is a token; that of an initial or abbreviation belongs to its word. Every
    /// code point that is not blank is in exactly one token.
    ///
    /// A sentence ends at its punctuation, at an empty line, or at four blanks in a row (as between the
    /// passages of a partial text). It has at most 256 tokens, which bounds work on all pairs of a sentence.
    /// Time is linear in the text.
    #[must_use]
    pub fn new(id: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let (pieces, ends) = sentences::split(&text, tokens::pieces(&text));
        let mut tokens = Vec::with_capacity(pieces.len());
        let mut places = text.char_indices().map(|(byte, _)| byte).enumerate().peekable();
        let mut characters = 0;
        let mut place = |byte: usize| {
            while let Some((at, _)) = places.next_if(|(_, start)| *start < byte) {
                characters = at + 1;
            }
            characters
        };
        for piece in &pieces {
            tokens.push(Span { start: place(piece.start), end: place(piece.end) });
        }
        let characters = place(text.len());
        let marks = text.char_indices().step_by(STEP).map(|(byte, _)| byte).collect();
        let mut start = 0;
        let sentences = ends.into_iter().map(|end| {
            let tokens_of = std::mem::replace(&mut start, end)..end;
            let span = Span { start: tokens[tokens_of.start].start, end: tokens[end - 1].end };
            Sentence { span, tokens: tokens_of }
        });
        let sentences = sentences.collect();
        Self { id: id.into(), text, tokens, sentences, marks, characters, parse: None }
    }

    /// The dependency parse, if there is one ([`Parses::attach`](crate::Parses::attach)).
    #[must_use]
    pub fn parse(&self) -> Option<&Parse> {
        self.parse.as_ref()
    }

    pub(crate) fn set_parse(&mut self, parse: Parse) {
        self.parse = Some(parse);
    }

    /// The number of code points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.characters
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.characters == 0
    }

    /// The text of a span; `None` if it exceeds the document or ends before it starts.
    #[must_use]
    pub fn slice(&self, span: Span) -> Option<&str> {
        self.text.get(self.byte(span.start)?..self.byte(span.end)?)
    }

    /// The text of token `at`; empty if there is none.
    #[must_use]
    pub fn word(&self, at: usize) -> &str {
        self.tokens.get(at).and_then(|span| self.slice(*span)).unwrap_or_default()
    }

    /// The span from the first of some tokens to the last.
    ///
    /// # Panics
    /// If the range is empty or exceeds the document.
    #[must_use]
    pub fn span(&self, tokens: Range<usize>) -> Span {
        let tokens = &self.tokens[tokens];
        Span { start: tokens[0].start, end: tokens[tokens.len() - 1].end }
    }

    /// The tokens that share a code point with a span; possibly an empty range.
    #[must_use]
    pub fn tokens_of(&self, span: Span) -> Range<usize> {
        let start = self.tokens.partition_point(|token| token.end <= span.start);
        let end = self.tokens.partition_point(|token| token.start < span.end);
        start..end.max(start)
    }

    /// The sentence of token `at`; `None` if there is no such token.
    #[must_use]
    pub fn sentence_of(&self, at: usize) -> Option<usize> {
        let sentence = self.sentences.partition_point(|sentence| sentence.tokens.end <= at);
        (sentence < self.sentences.len()).then_some(sentence)
    }

    /// The byte offset of a code point.
    fn byte(&self, at: usize) -> Option<usize> {
        if at == self.characters {
            return Some(self.text.len());
        }
        let mark = *self.marks.get(at / STEP)?;
        let rest = self.text[mark..].char_indices().nth(at % STEP)?;
        Some(mark + rest.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(text: &str) -> Vec<Vec<String>> {
        let document = Document::new("d", text);
        let of = |sentence: &Sentence| {
            sentence.tokens.clone().map(|at| document.word(at).to_owned()).collect::<Vec<_>>()
        };
        document.sentences.iter().map(of).collect()
    }

    #[test]
    fn offsets_are_code_points_of_the_original() {
        let text = "  Zoë 👩‍🔬 met عبد الله, in Łódź.";
        let document = Document::new("d", text);
        let characters: Vec<char> = text.chars().collect();
        let expected = ["Zoë", "👩‍🔬", "met", "عبد", "الله", ",", "in", "Łódź", "."];
        for (token, expected) in document.tokens.iter().zip(expected) {
            assert_eq!(characters[token.start..token.end].iter().collect::<String>(), expected);
            assert_eq!(document.slice(*token), Some(expected));
        }
        assert_eq!(document.tokens.len(), expected.len());
        assert_eq!(document.sentences[0].span, Span { start: 2, end: characters.len() });
    }

    #[test]
    fn a_document_without_words_has_no_sentences() {
        for text in ["", "  ", "\n\n\u{a0}\u{2003}"] {
            let document = Document::new("d", text);
            assert!(document.tokens.is_empty() && document.sentences.is_empty());
            assert_eq!(document.len(), text.chars().count());
            assert_eq!(document.sentence_of(0), None);
            assert_eq!(document.tokens_of(Span { start: 0, end: 9 }), 0..0);
        }
    }

    #[test]
    fn what_leaves_the_document_has_no_text() {
        let document = Document::new("d", "añb");
        assert_eq!(document.slice(Span { start: 1, end: 3 }), Some("ñb"));
        assert_eq!(document.slice(Span { start: 1, end: 4 }), None);
        assert_eq!(document.slice(Span { start: 2, end: 1 }), None);
        assert_eq!(document.word(1), "");
    }

    #[test]
    fn a_megabyte_is_cut_into_sentences_of_at_most_256_tokens() {
        for text in
            ["word ".repeat(200_000), "!".repeat(1_000_000), "x".repeat(1_000_000), "é.".repeat(300_000)]
        {
            let document = Document::new("d", text);
            assert!(document.sentences.iter().all(|sentence| sentence.tokens.len() <= 256));
            let last = document.tokens[document.tokens.len() - 1];
            assert_eq!(last.end, document.text.trim_end().chars().count());
        }
    }

    #[test]
    fn sentences_end_where_readers_see_them_end() {
        let ends = |text: &str| words(text).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
        // Initials, titles and abbreviations end no sentence, unless a typical sentence opener follows.
        assert_eq!(
            ends("Mr. J. R. R. Smith of Acme Inc. left. He won."),
            ["Mr. J. R. R. Smith of Acme Inc. left .", "He won ."]
        );
        assert_eq!(ends("She joined Acme Inc. The firm grew."), ["She joined Acme Inc .", "The firm grew ."]);
        assert_eq!(ends("He lives in the U.S. He sings."), ["He lives in the U.S.", "He sings ."]);
        assert_eq!(ends("St. Louis vs. No. 5 cost 3.5 million."), ["St. Louis vs. No. 5 cost 3.5 million ."]);
        // Closing quotes and brackets belong to the sentence.
        assert_eq!(
            ends("\"Go.\" He went. (It was late.) Then"),
            ["\" Go . \"", "He went .", "( It was late . )", "Then"]
        );
        assert_eq!(ends("\"Really?\" asked Ann."), ["\" Really ? \" asked Ann ."]);
        // Runs of blanks and empty lines end a sentence; a single new line does not.
        assert_eq!(ends("one two      three\n\nfour\nfive"), ["one two", "three", "four five"]);
        assert_eq!(ends("He left the club.Then he won."), ["He left the club .", "Then he won ."]);
        assert_eq!(
            ends("He is CEO of Yahoo! Inc. in Paris... maybe"),
            ["He is CEO of Yahoo ! Inc. in Paris ... maybe"]
        );
        assert_eq!(ends("他是医生。她是老师。"), ["他 是 医 生 。", "她 是 老 师 。"]);
    }

    #[test]
    fn words_are_apart_from_their_hyphens_clitics_and_punctuation() {
        let flat = |text: &str| words(text).concat();
        assert_eq!(
            flat("Ann's London-based firm didn't pay 1,000.50"),
            ["Ann", "'s", "London", "-", "based", "firm", "did", "n't", "pay", "1,000.50"]
        );
        assert_eq!(
            flat("O'Brien’s (1990s) a/b: c; 1992,1993"),
            ["O'Brien", "’s", "(", "1990s", ")", "a", "/", "b", ":", "c", ";", "1992", ",", "1993"]
        );
    }

    proptest! {
        #[test]
        fn every_code_point_that_is_not_blank_is_in_one_token_and_every_token_in_one_sentence(
            text in "([ \n\u{200b}\u{301}\u{a0}]{0,5}|[A-Za-z.!?'’\"():;,0-9-]{1,6}|\\PC{0,4}|(Mr|Inc|U\\.S)\\. ?){0,30}"
        ) {
            let document = Document::new("d", text.as_str());
            let characters: Vec<char> = text.chars().collect();
            prop_assert_eq!(document.len(), characters.len());
            let mut covered = vec![0; characters.len()];
            for token in &document.tokens {
                prop_assert!(token.start < token.end);
                covered[token.start..token.end].iter_mut().for_each(|count| *count += 1);
                let plain: String = characters[token.start..token.end].iter().collect();
                prop_assert_eq!(document.slice(*token), Some(plain.as_str()));
                prop_assert!(!plain.contains(char::is_whitespace), "{:?}", plain);
            }
            for (count, character) in covered.iter().zip(&characters) {
                prop_assert_eq!(*count, usize::from(!character.is_whitespace()));
            }
            let mut next = 0;
            for (at, sentence) in document.sentences.iter().enumerate() {
                prop_assert_eq!(sentence.tokens.start, next);
                prop_assert!(!sentence.tokens.is_empty());
                prop_assert_eq!(sentence.span, document.span(sentence.tokens.clone()));
                for token in sentence.tokens.clone() {
                    prop_assert_eq!(document.sentence_of(token), Some(at));
                    prop_assert_eq!(document.tokens_of(document.tokens[token]), token..token + 1);
                }
                next = sentence.tokens.end;
            }
            prop_assert_eq!(next, document.tokens.len());
        }
    }
}
