//! The layouts of datasets whose evidence is mapped.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Id, Record, Result, jsonl::parse};

/// The layout of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// FEVER's claims: `{id, label, verifiable, claim, evidence}`. The evidence is a list of sets, each of
    /// which suffices for the label. A piece of a set is a page title and a sentence number. The file lacks
    /// the sentence's text, so only the page is mapped. Claims that cannot be verified are skipped.
    Fever,
    /// PopQA with passages: `{id, question, possible_answers, paragraphs: [{title, text, is_supporting}]}`.
    /// The supporting paragraphs of subject and object form one set.
    PopQa,
    /// Any other dataset, converted to lines of `{id, input, answers, evidence}`. The evidence is one set of
    /// pieces, `[{title, text}]`, or a list of alternative sets, `[[{title, text}]]`.
    Evidence,
}

impl Layout {
    const NAMES: [(&'static str, Self); 3] =
        [("fever", Self::Fever), ("popqa", Self::PopQa), ("evidence", Self::Evidence)];
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::NAMES.iter().find(|(_, layout)| layout == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(name, _)| *name == text).map(|&(_, layout)| layout);
        found.ok_or_else(|| format!("expected `fever`, `popqa` or `evidence`, found `{text}`"))
    }
}

/// A record with its dataset's evidence.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Own {
    pub(super) id: Id,
    pub(super) input: String,
    pub(super) answers: Vec<String>,
    /// Sets of pieces: a set's pieces belong together, and each set suffices. The sets are distinct and not
    /// empty.
    pub(super) evidence: Vec<Vec<Piece>>,
    pub(super) meta: Option<Value>,
}

/// A piece of evidence: a page title, and the text if known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct Piece {
    pub(super) title: String,
    #[serde(default)]
    pub(super) text: Option<String>,
}

/// Two numbers of the annotation, a page title, and a sentence number.
type FeverEvidence = (Value, Value, Option<String>, Option<i64>);

#[derive(Deserialize)]
struct Fever {
    id: Id,
    label: String,
    claim: String,
    evidence: Vec<Vec<FeverEvidence>>,
}

#[derive(Deserialize)]
struct PopQa {
    id: Id,
    question: String,
    possible_answers: String,
    paragraphs: Vec<Paragraph>,
}

#[derive(Deserialize)]
struct Paragraph {
    title: String,
    text: String,
    #[serde(default)]
    is_supporting: bool,
}

#[derive(Deserialize)]
struct Plain {
    id: Id,
    input: String,
    answers: Vec<String>,
    evidence: Evidence,
    #[serde(default)]
    meta: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of pieces, {title, text}, or a list of such lists")]
enum Evidence {
    Set(Vec<Piece>),
    Sets(Vec<Vec<Piece>>),
}

impl Evidence {
    fn sets(self) -> Vec<Vec<Piece>> {
        match self {
            Self::Set(set) => vec![set],
            Self::Sets(sets) => sets,
        }
    }
}

/// Removes empty sets, equal pieces of a set, and sets that are equal up to order.
fn distinct(sets: impl IntoIterator<Item = Vec<Piece>>) -> Vec<Vec<Piece>> {
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

/// FEVER's spelling of brackets and colons in titles.
const SPELLINGS: [(&str, &str); 7] = [
    ("-LRB-", "("),
    ("-RRB-", ")"),
    ("-LSB-", "["),
    ("-RSB-", "]"),
    ("-LCB-", "{"),
    ("-RCB-", "}"),
    ("-COLON-", ":"),
];

fn fever_title(title: &str) -> String {
    SPELLINGS.iter().fold(title.replace('_', " "), |title, (from, to)| title.replace(from, to))
}

impl Layout {
    /// The record of a line; none if it is skipped on purpose.
    pub(super) fn read(self, path: &std::path::Path, line: u64, bytes: &[u8]) -> Result<Option<Own>> {
        Ok(match self {
            Self::Fever => {
                let Fever { id, label, claim, evidence } = parse(path, line, bytes)?;
                if !matches!(label.as_str(), "SUPPORTS" | "REFUTES") {
                    return Ok(None);
                }
                let titles = |set: Vec<FeverEvidence>| set.into_iter().filter_map(|(_, _, title, _)| title);
                let piece = |title: String| Piece { title: fever_title(&title), text: None };
                let sets = evidence.into_iter().map(|set| titles(set).map(piece).collect());
                Some(Own { id, input: claim, answers: vec![label], evidence: distinct(sets), meta: None })
            }
            Self::PopQa => {
                let PopQa { id, question, possible_answers, paragraphs } = parse(path, line, bytes)?;
                let answers: Vec<String> = serde_json::from_str(&possible_answers).map_err(|error| {
                    crate::Error::record(path, line, "possible_answers", format!("expected a list: {error}"))
                })?;
                let supporting = paragraphs.into_iter().filter(|paragraph| paragraph.is_supporting);
                let set = supporting.map(|it| Piece { title: it.title, text: Some(it.text) }).collect();
                Some(Own { id, input: question, answers, evidence: distinct([set]), meta: None })
            }
            Self::Evidence => {
                let Plain { id, input, answers, evidence, meta } = parse(path, line, bytes)?;
                Some(Own { id, input, answers, evidence: distinct(evidence.sets()), meta })
            }
        })
    }
}

impl Own {
    /// The record in KILT's layout, without outputs yet.
    pub(super) fn record(&self) -> Record {
        let (input, meta) = (Some(self.input.clone()), self.meta.clone());
        Record { id: self.id.clone(), input, output: None, meta, extra: Map::new() }
    }
}
