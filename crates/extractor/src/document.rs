//! A text with the places of its sentences and tokens.

use std::ops::Range;

/// A piece of a document in code points, the end exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first code point.
    pub start: usize,
    /// The code point after the last.
    pub end: usize,
}

impl Span {
    /// Whether both have a code point in common.
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

/// A sentence: its place, and which of the document's tokens are in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sentence {
    /// Where it stands.
    pub span: Span,
    /// Its tokens, as indices into [`Document::tokens`].
    pub tokens: Range<usize>,
}

/// A text with the places of its sentences and tokens, all in code points of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// What it is called: a document's id or a page's.
    pub id: String,
    /// The original text.
    pub text: String,
    /// Words, numbers and punctuation in order, none of them blank.
    pub tokens: Vec<Span>,
    /// The sentences in order; every token is in exactly one.
    pub sentences: Vec<Sentence>,
}
