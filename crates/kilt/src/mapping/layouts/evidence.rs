//! Any dataset, converted to lines of input, answers and evidence.

use serde::Deserialize;
use serde_json::Value;

use super::Layout;
use crate::{
    Id, Result,
    mapping::{
        own::{Claim, Own, Piece, distinct},
        source::{Source, Take},
    },
};

/// Lines of `{id, input, answers, evidence}`. The evidence is one set of pieces, `[{title, text}]`, or a list of
/// alternative sets, `[[{title, text}]]`.
pub(super) const LAYOUT: Layout = Layout {
    name: "evidence",
    about: "your own lines {id, input, answers, evidence}; the evidence is a set of {title, text}, or a list of sets",
    options: &[],
    read,
};

#[derive(Deserialize)]
struct Line {
    id: Id,
    input: String,
    answers: Vec<String>,
    evidence: Evidence,
    #[serde(default)]
    meta: Option<Value>,
}

#[derive(Deserialize)]
struct Passage {
    title: String,
    #[serde(default)]
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of pieces, {title, text}, or a list of such lists")]
enum Evidence {
    Set(Vec<Passage>),
    Sets(Vec<Vec<Passage>>),
}

impl Evidence {
    fn sets(self) -> Vec<Vec<Piece>> {
        let piece = |it: Passage| Piece { texts: it.text.into_iter().collect(), ..Piece::page(it.title) };
        let sets = match self {
            Self::Set(set) => vec![set],
            Self::Sets(sets) => sets,
        };
        distinct(sets.into_iter().map(|set| set.into_iter().map(piece).collect()))
    }
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    let record = |line: Line| {
        let claim = Claim::of_answers(line.answers, line.evidence.sets());
        Own { meta: line.meta, ..Own::new(line.id, line.input, vec![claim]) }
    };
    source.lines(|_, line| Ok(vec![Some(record(line))]), take)
}
