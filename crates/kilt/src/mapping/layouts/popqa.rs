//! PopQA with passages.

use serde::Deserialize;

use super::Layout;
use crate::{
    Id, Result,
    jsonl::plain_json,
    mapping::{
        own::{Claim, Own, Piece, distinct},
        source::{Place, Source, Take},
    },
};

/// Lines of `{id, question, possible_answers, paragraphs: [{title, text, is_supporting}]}`. The supporting paragraphs
/// of subject and object form one set.
pub(super) const LAYOUT: Layout = Layout {
    name: "popqa",
    about: "PopQA with passages: lines {id, question, possible_answers, paragraphs}; the supporting ones form a set",
    options: &[],
    read,
};

#[derive(Deserialize)]
struct Line {
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

fn record(place: &Place<'_>, line: Line) -> Result<Own> {
    let answers: Vec<String> = serde_json::from_str(&line.possible_answers)
        .map_err(|error| place.wrong("possible_answers", plain_json(&error.to_string())))?;
    let supporting = line.paragraphs.into_iter().filter(|paragraph| paragraph.is_supporting);
    let set = supporting.map(|it| Piece::text(it.title, it.text)).collect();
    Ok(Own::new(line.id, line.question, vec![Claim::of_answers(answers, distinct([set]))]))
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    source.lines(|place, line| Ok(vec![Some(record(place, line)?)]), take)
}
