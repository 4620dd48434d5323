//! The rankings of a run in memory, in few bytes a document.

use std::{borrow::Cow, cmp::Ordering, path::Path};

use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use super::judgements::{JudgedQuery, Judgements};
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
    /// Whether the run names each of them.
    named: Vec<bool>,
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

/// The lines of a part of the file, which one thread reads.
#[derive(Default)]
struct Block<'c> {
    /// As in [`Run`].
    ids: Vec<u8>,
    /// The starts of ids count from this block's first.
    rows: Vec<Row>,
    /// Lines one after the other that have the same query: the query, its place, and the end of their rows.
    queries: Vec<(&'c [u8], usize, usize)>,
    /// The error of the first wrong line, after which no line is read.
    wrong: Option<Error>,
}

/// The lines of a block.
const LINES: usize = 4096;

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
        let named = vec![false; judgements.queries.len()];
        let mut run = Self { ids: Vec::new(), queries, named, unjudged: 0 };
        let mut unjudged: FxHashSet<Box<[u8]>> = FxHashSet::default();
        jsonl::open(path)?.chunks(|path, chunk| {
            let blocks = chunk.par_lines().fold_chunks(LINES, Block::default, |mut block, (line, bytes)| {
                if block.wrong.is_none() {
                    match parse(path, line, bytes) {
                        Ok(row) => block.push(judgements, line, row, exclude_self),
                        Err(wrong) => block.wrong = Some(wrong),
                    }
                }
                block
            });
            for block in blocks.collect::<Vec<_>>() {
                run.append(block, &mut unjudged)?;
            }
            Ok(())
        })?;
        run.unjudged = unjudged.len();
        Ok(run)
    }

    /// Adds the lines that follow in the file; `unjudged` has the queries without judgements.
    fn append(&mut self, block: Block<'_>, unjudged: &mut FxHashSet<Box<[u8]>>) -> Result<()> {
        if let Some(wrong) = block.wrong {
            return Err(wrong);
        }
        let base = self.ids.len() as u64;
        self.ids.extend_from_slice(&block.ids);
        let mut start = 0;
        for (query, place, end) in block.queries {
            if place != UNJUDGED {
                self.named[place] = true;
                let rows = &block.rows[start..end];
                self.queries[place].extend(rows.iter().map(|row| Row { id: base + row.id, ..*row }));
            } else if !unjudged.contains(query) {
                unjudged.insert(query.into());
            }
            start = end;
        }
        Ok(())
    }

    /// The ids of a query's documents, best first: by score, then by descending id. Scores are 32-bit floats, as in
    /// trec_eval. `query` is the query's place in the judgements, `judged` its judgements.
    ///
    /// # Errors
    /// [`Error::Record`] for a document that stands twice, and for an id that is not UTF-8.
    pub(super) fn ranking(
        &self,
        query: usize,
        judged: &JudgedQuery,
        path: &Path,
    ) -> Result<Vec<Cow<'_, str>>> {
        let mut rows = self.queries[query].clone();
        rows.sort_unstable_by(|a, b| {
            let by_score = b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal);
            by_score.then_with(|| self.id(b).cmp(self.id(a)))
        });
        let mut ids = Vec::with_capacity(rows.len());
        for row in &rows {
            ids.push(self.document(row, judged, path)?);
        }
        let mut seen = FxHashSet::with_capacity_and_hasher(rows.len(), Default::default());
        if ids.iter().any(|id| !seen.insert(&**id)) {
            return Err(self.repeated(&self.queries[query], judged, path)?);
        }
        Ok(ids)
    }

    /// The id of a row's document.
    fn document(&self, row: &Row, judged: &JudgedQuery, path: &Path) -> Result<Cow<'_, str>> {
        let column = self.id(row);
        match std::str::from_utf8(column) {
            Ok(column) => Ok(judged.document(column)),
            Err(_) => {
                let message = format!(
                    "expected UTF-8, found `{}`; convert the file, such as by `iconv -f ISO-8859-1 -t UTF-8`",
                    String::from_utf8_lossy(column)
                );
                Err(Error::record(path, row.line.into(), "document", message))
            }
        }
    }

    /// The error of the first document that stands twice; `rows` are in the file's order.
    fn repeated(&self, rows: &[Row], judged: &JudgedQuery, path: &Path) -> Result<Error> {
        let mut lines = FxHashMap::default();
        let expected = format!("expected each document once for `{}`", judged.id);
        for row in rows {
            let id = self.document(row, judged, path)?;
            if let Some(first) = lines.insert(id.clone(), row.line) {
                let message = format!("{expected}, found `{id}` on line {first} already");
                return Ok(Error::record(path, row.line.into(), "document", message));
            }
        }
        Ok(Error::record(path, 0, "document", expected))
    }

    /// Whether the run names a query, be it for a document that is left out.
    pub(super) fn has(&self, query: usize) -> bool {
        self.named[query]
    }

    fn id(&self, row: &Row) -> &[u8] {
        let rest = &self.ids[row.id as usize..];
        &rest[..memchr::memchr(b'\n', rest).unwrap_or(rest.len())]
    }
}

impl<'c> Block<'c> {
    fn push(
        &mut self,
        judgements: &Judgements,
        line: u64,
        (query, document, score): (&'c [u8], &[u8], f32),
        exclude_self: bool,
    ) {
        if self.queries.last().is_none_or(|last| last.0 != query) {
            let place = judgements.place(query).unwrap_or(UNJUDGED);
            self.queries.push((query, place, self.rows.len()));
        }
        let Some((_, place, end)) = self.queries.last_mut() else { return };
        if *place == UNJUDGED || (exclude_self && query == document) {
            return;
        }
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        self.rows.push(Row { score, line, id: self.ids.len() as u64 });
        *end = self.rows.len();
        self.ids.extend_from_slice(document);
        self.ids.push(b'\n');
    }
}

/// Query, document and score of a line.
fn parse<'c>(path: &Path, line: u64, bytes: &'c [u8]) -> Result<(&'c [u8], &'c [u8], f32)> {
    let [query, _, document, _, score, _] = trec::split(path, line, bytes, RUN_COLUMNS)?;
    let number = std::str::from_utf8(score).ok().and_then(|score| score.parse::<f64>().ok());
    match number.filter(|score| !score.is_nan()) {
        Some(number) => Ok((query, document, number as f32)),
        None => {
            let found = String::from_utf8_lossy(score);
            Err(Error::record(path, line, "score", format!("expected a number, found `{found}`")))
        }
    }
}
