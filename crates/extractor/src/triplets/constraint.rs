//! The decoding constraint: spans of the text, known relations, and the marks between them.

use std::path::Path;

use sporran_checkpoint::Tokenizer;
use sporran_transformers::Constraint;

use super::linear::{MARKS, Marks, line};
use crate::{Document, Result, Sentence, Span};

/// The largest number of words of a head or a tail.
pub(super) const MAX_WORDS: usize = 16;

/// A trie of token sequences with their values.
#[derive(Clone, Debug)]
pub(super) struct Pieces<T> {
    /// The root is first.
    nodes: Vec<Node<T>>,
}

#[derive(Clone, Debug)]
struct Node<T> {
    /// The possible next tokens with their nodes.
    next: Vec<(u32, usize)>,
    values: Vec<T>,
}

impl<T> Pieces<T> {
    pub(super) fn new() -> Self {
        Self { nodes: vec![Node { next: Vec::new(), values: Vec::new() }] }
    }

    /// Adds a sequence. An empty one is ignored.
    pub(super) fn insert(&mut self, tokens: &[u32], value: T) {
        let mut at = 0;
        for &token in tokens {
            at = match self.nodes[at].next.iter().find(|(other, _)| *other == token) {
                Some((_, next)) => *next,
                None => {
                    let new = self.nodes.len();
                    self.nodes[at].next.push((token, new));
                    self.nodes.push(Node { next: Vec::new(), values: Vec::new() });
                    new
                }
            };
        }
        if at > 0 {
            self.nodes[at].values.push(value);
        }
    }

    fn node(&self, tokens: &[u32]) -> Option<&Node<T>> {
        tokens.iter().try_fold(&self.nodes[0], |node, token| {
            node.next.iter().find(|(other, _)| other == token).map(|(_, next)| &self.nodes[*next])
        })
    }

    /// The values of a complete sequence, in the order of [`insert`](Self::insert); empty for any other.
    pub(super) fn values(&self, tokens: &[u32]) -> &[T] {
        self.node(tokens).map_or(&[], |node| &node.values)
    }
}

/// Tokenizes the text between two marks.
pub(super) struct Speller {
    tokenizer: Tokenizer,
    marks: Marks,
    ends: Vec<u32>,
    /// The tokens of the blank before a mark, possibly none.
    gap: Vec<u32>,
    /// The tokens before every text, such as BART's `<s>`.
    begin: Vec<u32>,
}

impl Speller {
    /// `folder` names the tokenizer in errors; `ends` are the tokens that end a sequence.
    pub(super) fn new(tokenizer: Tokenizer, ends: &[u32], folder: &Path) -> Result<Self> {
        let (marks, begin) = (Marks::of(&tokenizer, folder)?, tokenizer.beginning()?);
        let mut speller = Self { tokenizer, marks, ends: ends.to_vec(), gap: Vec::new(), begin };
        let (with, without) = (speller.between("a ")?, speller.between("a")?);
        speller.gap = with.strip_prefix(&without[..]).unwrap_or_default().to_vec();
        Ok(speller)
    }

    pub(super) fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    pub(super) fn marks(&self) -> Marks {
        self.marks
    }

    fn between(&self, text: &str) -> Result<Vec<u32>> {
        // Some tokenizers start every text with a special token, before a mark as well.
        let tokens = self.tokenizer.encode_plain(&format!("{} {text}{}", MARKS[1], MARKS[2]))?;
        let start = tokens.iter().position(|token| *token == self.marks.tail);
        let end = tokens.iter().rposition(|token| *token == self.marks.relation);
        Ok(start.zip(end).and_then(|(start, end)| tokens.get(start + 1..end)).unwrap_or_default().to_vec())
    }

    /// The tokens of a text between marks, without the blank before the second one. None if they contain a
    /// mark or an end token.
    pub(super) fn spell(&self, text: &str) -> Result<Option<Vec<u32>>> {
        let mut tokens = self.between(&format!("{text} "))?;
        tokens.truncate(self.without_gap(&tokens).len());
        let is_text = |token: &u32| !self.marks.contains(*token) && !self.ends.contains(token);
        Ok((!tokens.is_empty() && tokens.iter().all(is_text)).then_some(tokens))
    }

    /// The tokens between two marks, without the blank before the second one.
    pub(super) fn without_gap<'t>(&self, tokens: &'t [u32]) -> &'t [u32] {
        tokens.strip_suffix(&self.gap[..]).unwrap_or(tokens)
    }

    /// The spans of whole words in a sentence, with at most [`MAX_WORDS`] words.
    pub(super) fn spans(&self, document: &Document, sentence: &Sentence) -> Result<Pieces<Span>> {
        let mut pieces = Pieces::new();
        let all = &sentence.tokens;
        for start in all.clone() {
            for end in start + 1..=all.end.min(start + MAX_WORDS) {
                let span = document.span(start..end);
                if let Some(tokens) = self.spell(&line(document, span))? {
                    pieces.insert(&tokens, span);
                }
            }
        }
        Ok(pieces)
    }
}

/// Constrains sequences to linearised facts.
pub(super) struct TripletConstraint<'a> {
    pub(super) speller: &'a Speller,
    pub(super) end: u32,
    /// The spans of each input.
    pub(super) spans: &'a [Pieces<Span>],
    pub(super) relations: &'a Pieces<usize>,
}

impl Constraint for TripletConstraint<'_> {
    fn allowed(&self, input: usize, tokens: &[u32], allowed: &mut Vec<u32>) {
        let Self { end, relations, .. } = *self;
        let (marks, begin) = (self.speller.marks, &self.speller.begin);
        let Some(rest) = tokens.strip_prefix(&begin[..]) else {
            if begin.starts_with(tokens) {
                allowed.push(begin[tokens.len()]);
            }
            return;
        };
        let spans = &self.spans[input];
        // The constraint allowed everything before the last mark.
        let Some(at) = rest.iter().rposition(|token| marks.contains(*token)) else {
            if rest.is_empty() {
                allowed.extend([marks.head, end]);
            }
            return;
        };
        let piece = &rest[at + 1..];
        match rest[at] {
            mark if mark == marks.head => self.follow(spans, piece, &[marks.tail], allowed),
            mark if mark == marks.tail => self.follow(spans, piece, &[marks.relation], allowed),
            _ => self.follow(relations, piece, &[marks.tail, marks.head, end], allowed),
        }
    }
}

impl TripletConstraint<'_> {
    /// The tokens allowed after the partial sequence `tokens`. `then` may follow a complete one.
    fn follow<T>(&self, pieces: &Pieces<T>, tokens: &[u32], then: &[u32], allowed: &mut Vec<u32>) {
        if let Some(node) = pieces.node(tokens) {
            allowed.extend(node.next.iter().map(|(token, _)| *token));
        }
        let gap = &self.speller.gap;
        for length in 0..=gap.len() {
            let Some(piece) = tokens.strip_suffix(&gap[..length]) else { continue };
            if pieces.values(piece).is_empty() {
                continue;
            }
            allowed.extend(gap.get(length));
            if length == 0 || length == gap.len() {
                allowed.extend(then);
            }
        }
        allowed.sort_unstable();
        allowed.dedup();
    }
}
