//! Facts as one line of text, and back: REBEL's linearisation (Huguet Cabot and Navigli 2021, section 3.1).
//!
//! `<triplet> head <subj> tail <obj> relation`, then `<subj> tail <obj> relation` for each further fact with
//! the same head, then `<triplet>` with the next head. Heads are in text order, as are the tails of a head.

use std::path::Path;

use sporran_checkpoint::Tokenizer;

use crate::{
    Document, Span,
    error::{Error, Result},
};

/// The marks before a head, before a tail and before a relation.
pub const MARKS: [&str; 3] = ["<triplet>", "<subj>", "<obj>"];

/// The tokens of [`MARKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) relation: u32,
}

impl Marks {
    /// The mark tokens of a tokenizer; `folder` names it in errors.
    ///
    /// # Errors
    /// [`Error::Model`] if it lacks a mark.
    pub(super) fn of(tokenizer: &Tokenizer, folder: &Path) -> Result<Self> {
        let token = |mark: &str| {
            tokenizer.token_id(mark).ok_or_else(|| Error::Model {
                what: format!("the tokenizer of {}", folder.display()),
                expected: format!("the added token `{mark}`, as in models that generate triplets"),
                found: "none".into(),
            })
        };
        Ok(Self { head: token(MARKS[0])?, tail: token(MARKS[1])?, relation: token(MARKS[2])? })
    }

    pub(super) fn contains(self, token: u32) -> bool {
        [self.head, self.tail, self.relation].contains(&token)
    }
}

/// A fact of a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Triplet {
    /// The span of its subject.
    pub head: Span,
    /// The span of its object.
    pub tail: Span,
    /// The index of the property.
    pub label: usize,
}

/// The text of a span as one line.
pub(super) fn line(document: &Document, span: Span) -> String {
    let text = document.slice(span).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Facts as text, ordered by head, tail and property. `relations` are the names of properties.
pub(super) fn linearise(document: &Document, triplets: &[Triplet], relations: &[&str]) -> String {
    let mut triplets = triplets.to_vec();
    triplets.sort_unstable();
    triplets.dedup();
    let mut parts: Vec<String> = Vec::new();
    let mut head = None;
    for triplet in triplets {
        if head != Some(triplet.head) {
            head = Some(triplet.head);
            parts.extend([MARKS[0].to_owned(), line(document, triplet.head)]);
        }
        parts.extend([MARKS[1].to_owned(), line(document, triplet.tail)]);
        parts.extend([MARKS[2].to_owned(), relations[triplet.label].to_owned()]);
    }
    parts.join(" ")
}

/// The token sequences of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) head: &'a [u32],
    pub(super) tail: &'a [u32],
    pub(super) relation: &'a [u32],
}

/// The facts of a sequence. Facts without a head, a tail or a relation, or with parts in another order, are
/// skipped. So is the last fact if the sequence reaches none of the tokens `ends`, because its relation may
/// be incomplete.
pub(super) fn split<'a>(tokens: &'a [u32], marks: Marks, ends: &[u32]) -> Vec<Parts<'a>> {
    let end = tokens.iter().position(|token| ends.contains(token));
    let (tokens, is_whole) = (&tokens[..end.unwrap_or(tokens.len())], end.is_some());
    let places: Vec<usize> = (0..tokens.len()).filter(|&at| marks.contains(tokens[at])).collect();
    let none: &[u32] = &[];
    let (mut head, mut tail, mut found) = (none, none, Vec::new());
    for (number, &at) in places.iter().enumerate() {
        let next = places.get(number + 1).copied();
        let part = &tokens[at + 1..next.unwrap_or(tokens.len())];
        match tokens[at] {
            mark if mark == marks.head => (head, tail) = (part, none),
            mark if mark == marks.tail => tail = part,
            _ => {
                let relation = part;
                let has_all = [head, tail, relation].iter().all(|part| !part.is_empty());
                if has_all && (is_whole || next.is_some()) {
                    found.push(Parts { head, tail, relation });
                }
                tail = none;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARKS: Marks = Marks { head: 10, tail: 11, relation: 12 };

    fn span(document: &Document, words: &str) -> Span {
        let start = document.text.find(words).unwrap();
        Span { start, end: start + words.len() }
    }

    #[test]
    fn heads_and_tails_follow_the_text_and_a_head_is_written_once() {
        let document = Document::new("d", "Bob,  the son of Ann\nLee, left Rome.");
        let triplet = |head: &str, tail: &str, label| Triplet {
            head: span(&document, head),
            tail: span(&document, tail),
            label,
        };
        let facts = [triplet("Ann\nLee", "Bob", 1), triplet("Bob", "Rome", 2), triplet("Bob", "Ann\nLee", 0)];
        assert_eq!(
            linearise(&document, &[&facts[..], &facts].concat(), &["child of", "parent of", "home"]),
            "<triplet> Bob <subj> Ann Lee <obj> child of <subj> Rome <obj> home <triplet> Ann Lee <subj> Bob <obj> parent of"
        );
        assert_eq!(linearise(&document, &[], &[]), "");
    }

    /// The facts of tokens as numbers; 10 to 12 are the marks and 1 the end.
    fn read(tokens: &[u32]) -> Vec<[Vec<u32>; 3]> {
        let found = split(tokens, MARKS, &[1]);
        found.iter().map(|parts| [parts.head, parts.tail, parts.relation].map(<[u32]>::to_vec)).collect()
    }

    #[test]
    fn facts_are_read_back() {
        let two = read(&[10, 2, 3, 11, 4, 12, 5, 6, 11, 7, 12, 8, 10, 4, 11, 2, 12, 5, 1, 9]);
        let part = |head: &[u32], tail: &[u32], relation: &[u32]| [head, tail, relation].map(<[u32]>::to_vec);
        assert_eq!(two, [part(&[2, 3], &[4], &[5, 6]), part(&[2, 3], &[7], &[8]), part(&[4], &[2], &[5])]);
    }

    #[test]
    fn what_is_incomplete_is_left_out() {
        assert!(read(&[]).is_empty() && read(&[1]).is_empty() && read(&[2, 3, 1]).is_empty());
        // Without a head, a tail, a relation; in another order; with two relations for a tail.
        assert!(read(&[11, 4, 12, 5, 1]).is_empty());
        assert!(read(&[10, 2, 12, 5, 1]).is_empty());
        assert!(read(&[10, 2, 11, 4, 12, 1]).is_empty());
        assert!(read(&[10, 2, 12, 5, 11, 4, 1]).is_empty());
        assert_eq!(read(&[10, 2, 11, 4, 12, 5, 12, 6, 1]).len(), 1);
        // A truncated sequence loses its last fact.
        assert_eq!(read(&[10, 2, 11, 4, 12, 5, 11, 3, 12, 6]).len(), 1);
        assert_eq!(read(&[10, 2, 11, 4, 12, 5, 11, 3]).len(), 1);
    }

    proptest! {
        #[test]
        fn no_sequence_is_too_wild(tokens in prop::collection::vec(0u32..14, 0..30)) {
            for parts in split(&tokens, MARKS, &[1]) {
                for part in [parts.head, parts.tail, parts.relation] {
                    prop_assert!(!part.is_empty() && part.iter().all(|token| *token != 1 && !MARKS.contains(*token)));
                }
            }
        }
    }
}
