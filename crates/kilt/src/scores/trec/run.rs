//! The rankings of a run in memory, in few bytes a document.

use std::{cmp::Ordering, path::Path};

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::judgements::Judgements;
use crate::{
    Error, Result,
    formats::trec::{self, RUN_COLUMNS},
    jsonl,
};

/// The rankings of the judged queries. A document takes 16 bytes, its id and a byte.
pub(super) struct Run {
    /// The ids of documents, each with a line end after it.
    ids: Vec<u8>,
    /// The documents of each judged query, in the file's order.
    queries: Vec<Vec<Row>>,
    /// The queries without judgements.
    pub(super) unjudged: usize,
}

/// A line of a run.
#[derive(Clone, Copy)]
struct Row {
    score: f32,
    /// The number of the line; the largest number for all lines beyond it.
    line: u32,
    /// The start of the document's id.
    id: u64,
}

/// A line of a run in a chunk of the file.
struct Parsed<'c> {
    line: u64,
    query: &'c [u8],
    document: &'c [u8],
    score: f32,
}

/// The place of a query that has no judgements.
const UNJUDGED: usize = usize::MAX;

impl Run {
    /// Reads the rankings of judged queries, in any order of lines. With `exclude_self`, documents with the id of their
    /// query are left out.
    ///
    /// # Errors
    /// Those of reading; [`Error::Record`] where a line has not six columns or the score is no number.
    pub(super) fn read(path: &Path, judgements: &Judgements, exclude_self: bool) -> Result<Self> {
        let queries = judgements.queries.iter().map(|_| Vec::new()).collect();
        let mut run = Self { ids: Vec::new(), queries, unjudged: 0 };
        let mut places: FxHashMap<Box<[u8]>, usize> = FxHashMap::default();
        let mut last: (Vec<u8>, usize) = (Vec::new(), UNJUDGED);
        jsonl::open(path)?.chunks(|path, chunk| {
            let rows: Vec<Option<Parsed<'_>>> =
                chunk.par_lines().map(|(line, bytes)| parse(path, line, bytes).ok()).collect();
            for (at, row) in rows.iter().enumerate() {
                let Some(row) = row else {
                    // The first wrong line of the file is parsed again for its error.
                    let wrong = chunk.par_lines().enumerate().find_first(|(other, _)| *other == at);
                    return wrong.map_or(Ok(()), |(_, (line, bytes))| parse(path, line, bytes).map(|_| ()));
                };
                if last.0 != row.query {
                    let place = match places.get(row.query) {
                        Some(&place) => place,
                        None => {
                            let place = judgements.place(row.query).unwrap_or(UNJUDGED);
                            run.unjudged += usize::from(place == UNJUDGED);
                            places.insert(row.query.into(), place);
                            place
                        }
                    };
                    last.0.clear();
                    last.0.extend_from_slice(row.query);
                    last.1 = place;
                }
                if last.1 == UNJUDGED || (exclude_self && row.query == row.document) {
                    continue;
                }
                let line = u32::try_from(row.line).unwrap_or(u32::MAX);
                run.queries[last.1].push(Row { score: row.score, line, id: run.ids.len() as u64 });
                run.ids.extend_from_slice(row.document);
                run.ids.push(b'\n');
            }
            Ok(())
        })?;
        Ok(run)
    }

    /// The ids of a query's documents, best first: by score, then by descending id. Scores are 32-bit floats, as in
    /// trec_eval. `query` is the query's place in the judgements.
    ///
    /// # Errors
    /// [`Error::Record`] for a document that stands twice.
    pub(super) fn ranking(&self, query: usize, (path, name): (&Path, &str)) -> Result<Vec<&[u8]>> {
        let mut rows = self.queries[query].clone();
        rows.sort_unstable_by(|a, b| {
            let by_score = b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| self.id(b).cmp(self.id(a)))
        });
        let mut seen = FxHashSet::with_capacity_and_hasher(rows.len(), Default::default());
        if rows.iter().any(|row| !seen.insert(self.id(row))) {
            return Err(self.repeated(&self.queries[query], path, name));
        }
        Ok(rows.iter().map(|row| self.id(row)).collect())
    }

    /// The error of the first document that stands twice; `rows` are in the file's order.
    fn repeated(&self, rows: &[Row], path: &Path, query: &str) -> Error {
        let mut lines: FxHashMap<&[u8], u32> = FxHashMap::default();
        for row in rows {
            let id = self.id(row);
            if let Some(first) = lines.insert(id, row.line) {
                let id = String::from_utf8_lossy(id);
                let message = format!(
                    "expected each document once for `{query}`, found `{id}` on line {first} already"
                );
                return Error::record(path, row.line.into(), "document", message);
            }
        }
        Error::record(path, 0, "document", format!("expected each document once for `{query}`"))
    }

    /// Whether the run has a document for a query.
    pub(super) fn has(&self, query: usize) -> bool {
        !self.queries[query].is_empty()
    }

    fn id(&self, row: &Row) -> &[u8] {
        let rest = &self.ids[row.id as usize..];
        &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())]
    }
}

fn parse<'c>(path: &Path, line: u64, bytes: &'c [u8]) -> Result<Parsed<'c>> {
    let [query, _, document, _, score, _] = trec::split(path, line, bytes, RUN_COLUMNS)?;
    let number = std::str::from_utf8(score).ok().and_then(|score| score.parse::<f64>().ok());
    match number.filter(|score| !score.is_nan()) {
        Some(score) => Ok(Parsed { line, query, document, score: score as f32 }),
        None => {
            let found = String::from_utf8_lossy(score);
            Err(Error::record(path, line, "score", format!("expected a number, found `{found}`")))
        }
    }
}
