//! The datasets' own layouts whose evidence is mapped.

use std::{fmt, str::FromStr};

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Id, Record, Result, jsonl::parse};

/// A dataset's own layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// FEVER's claims: `{id, label, verifiable, claim, evidence}`, evidence being a page's title and a number of a
    /// sentence, whose text is not in the file. Only the page is mapped. Claims that cannot be verified are left out.
    Fever,
    /// PopQA with passages: `{id, question, possible_answers, paragraphs: [{title, text, is_supporting}]}`.
    PopQa,
    /// Any other dataset, brought to lines of `{id, input, answers, evidence: [{title, text}]}`.
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

/// A record with its dataset's own evidence.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Own {
    pub(super) id: Id,
    pub(super) input: String,
    pub(super) answers: Vec<String>,
    pub(super) evidence: Vec<Piece>,
    pub(super) meta: Option<Value>,
}

/// A piece of evidence: the title of a page, and the text there where it is known.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Piece {
    pub(super) title: String,
    #[serde(default)]
    pub(super) text: Option<String>,
}

/// Two numbers of the annotation, a page's title, and a number of a sentence.
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
    evidence: Vec<Piece>,
    #[serde(default)]
    meta: Option<Value>,
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
    /// The record of a line; nothing for one that is left out on purpose.
    pub(super) fn read(self, path: &std::path::Path, line: u64, bytes: &[u8]) -> Result<Option<Own>> {
        Ok(match self {
            Self::Fever => {
                let Fever { id, label, claim, evidence } = parse(path, line, bytes)?;
                if !matches!(label.as_str(), "SUPPORTS" | "REFUTES") {
                    return Ok(None);
                }
                let mut pieces: Vec<Piece> = Vec::new();
                for title in evidence.into_iter().flatten().filter_map(|(_, _, title, _)| title) {
                    let title = fever_title(&title);
                    if pieces.iter().all(|piece| piece.title != title) {
                        pieces.push(Piece { title, text: None });
                    }
                }
                Some(Own { id, input: claim, answers: vec![label], evidence: pieces, meta: None })
            }
            Self::PopQa => {
                let PopQa { id, question, possible_answers, paragraphs } = parse(path, line, bytes)?;
                let answers: Vec<String> = serde_json::from_str(&possible_answers).map_err(|error| {
                    crate::Error::record(path, line, "possible_answers", format!("expected a list: {error}"))
                })?;
                let supporting = paragraphs.into_iter().filter(|paragraph| paragraph.is_supporting);
                let evidence = supporting.map(|it| Piece { title: it.title, text: Some(it.text) }).collect();
                Some(Own { id, input: question, answers, evidence, meta: None })
            }
            Self::Evidence => {
                let Plain { id, input, answers, evidence, meta } = parse(path, line, bytes)?;
                Some(Own { id, input, answers, evidence, meta })
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
