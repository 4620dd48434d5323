//! Records with their dataset's own evidence.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::mention::Tagged;
use crate::{Id, Record};

/// A record with its dataset's evidence.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Own {
    pub(super) id: Id,
    pub(super) input: String,
    /// The answers with their evidence.
    pub(super) claims: Vec<Claim>,
    /// Whether the record is written without evidence, because its dataset has none.
    pub(super) is_bare: bool,
    pub(super) meta: Option<Value>,
}

/// An answer with the evidence for it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Claim {
    pub(super) answer: Answer,
    /// Other names of the answer. They are answers without evidence, and are dropped with the answer.
    pub(super) aliases: Vec<String>,
    /// Sets of pieces: a set's pieces belong together, and each set suffices. The sets are distinct and not empty.
    pub(super) evidence: Vec<Vec<Piece>>,
    /// Whether a text may be missing in its page. Then the set is dropped, and the answer stays in `dev` and `test` too.
    pub(super) is_optional: bool,
    /// Fields of the dataset.
    pub(super) meta: Option<Value>,
}

/// An answer's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Answer {
    /// The evidence belongs to all answers of the record.
    #[default]
    Shared,
    /// A text.
    Text(String),
    /// The title that the page of the evidence has in the source.
    Title,
}

/// A piece of evidence: a page title, and forms of the text, of which the best one counts. Without a form, the whole
/// page is the evidence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Piece {
    pub(super) title: String,
    pub(super) texts: Vec<String>,
    /// Whether the dataset's files lack the text.
    pub(super) is_lost: bool,
}

impl Piece {
    pub(super) fn page(title: impl Into<String>) -> Self {
        Self { title: title.into(), texts: Vec::new(), is_lost: false }
    }

    pub(super) fn text(title: impl Into<String>, text: impl Into<String>) -> Self {
        Self { title: title.into(), texts: vec![text.into()], is_lost: false }
    }

    /// A sentence, which the dataset's files may lack.
    pub(super) fn sentence(title: impl Into<String>, text: Option<String>) -> Self {
        let title = title.into();
        match text {
            Some(text) => Self::text(title, text),
            None => Self { is_lost: true, ..Self::page(title) },
        }
    }
}

impl Claim {
    /// The first answer with all evidence; the others are its aliases.
    pub(super) fn of_answers(answers: Vec<String>, evidence: Vec<Vec<Piece>>) -> Self {
        let mut answers = answers.into_iter();
        let answer = answers.next().map_or(Answer::Shared, Answer::Text);
        Self { answer, aliases: answers.collect(), evidence, ..Self::default() }
    }
}

impl Own {
    pub(super) fn new(id: impl Into<Id>, input: impl Into<String>, claims: Vec<Claim>) -> Self {
        Self { id: id.into(), input: input.into(), claims, is_bare: false, meta: None }
    }

    /// A mention whose answer is the title of a page, the whole of which is the evidence.
    pub(super) fn of_mention(id: impl Into<Id>, mention: &Tagged, title: impl Into<String>) -> Self {
        let evidence = vec![vec![Piece::page(title)]];
        let claim = Claim { answer: Answer::Title, evidence, ..Claim::default() };
        Self { meta: Some(mention.meta()), ..Self::new(id, mention.input(), vec![claim]) }
    }

    /// The record in KILT's layout, without outputs yet.
    pub(super) fn record(&self) -> Record {
        let (input, meta) = (Some(self.input.clone()), self.meta.clone());
        Record { id: self.id.clone(), input, output: None, meta, extra: Map::new() }
    }
}

/// Removes empty sets, equal pieces of a set, and sets that are equal up to order.
pub(super) fn distinct(sets: impl IntoIterator<Item = Vec<Piece>>) -> Vec<Vec<Piece>> {
    let mut kept: Vec<Vec<Piece>> = Vec::new();
    let mut known = BTreeSet::new();
    for set in sets {
        let mut own = BTreeSet::new();
        let set: Vec<Piece> = set.into_iter().filter(|piece| own.insert(piece.clone())).collect();
        if !set.is_empty() && known.insert(own) {
            kept.push(set);
        }
    }
    kept
}

/// Trimmed texts without empty and equal ones, in their order.
pub(super) fn distinct_texts(texts: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<String> {
    let mut known = BTreeSet::new();
    let texts = texts.into_iter().map(|text| text.as_ref().trim().to_owned());
    texts.filter(|text| !text.is_empty() && known.insert(text.clone())).collect()
}
