//! Gold and predictions of one file each, brought together by id.

use std::{path::Path, sync::Arc};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::{
    line::{Fields, Line},
    mean,
};
use crate::{Error, Result, jsonl};

/// What is wrong with a record: the field and the complaint.
pub(super) type Fault = (String, String);

/// The scores of every gold record, in the gold file's order.
#[derive(Clone, Debug, PartialEq)]
pub struct PerRecord {
    ids: Arc<[String]>,
    names: Vec<String>,
    /// One row of `names.len()` figures an id.
    values: Vec<f64>,
}

impl PerRecord {
    /// The ids as they are compared, trimmed.
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// The names of the scores, in the report's order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// One score of every record, `None` if there is none of that name.
    pub fn column(&self, name: &str) -> Option<Vec<f64>> {
        let column = self.names.iter().position(|known| known == name)?;
        Some(self.at(column).collect())
    }

    /// The mean of a score, `None` if there is none of that name.
    pub fn mean(&self, name: &str) -> Option<f64> {
        self.names.iter().position(|known| known == name).map(|column| self.mean_at(column))
    }

    pub(super) fn mean_at(&self, column: usize) -> f64 {
        mean(self.at(column))
    }

    /// One figure of every record.
    pub(super) fn at(&self, column: usize) -> impl Iterator<Item = f64> + Clone {
        self.values.iter().skip(column).step_by(self.names.len().max(1)).copied()
    }

    /// Some columns under new names.
    pub(super) fn select(&self, columns: std::ops::Range<usize>, names: Vec<String>) -> Self {
        let rows = self.values.chunks_exact(self.names.len().max(1));
        let values = rows.flat_map(|row| row[columns.clone()].iter().copied()).collect();
        Self { ids: Arc::clone(&self.ids), names, values }
    }
}

/// Scores, and what alignment noticed.
pub(super) struct Aligned {
    pub(super) records: PerRecord,
    /// Ids of predictions that gold does not know, in the file's order; they are left out.
    pub(super) unknown: Vec<String>,
}

/// A way of scoring one prediction against one gold record.
pub(super) trait Scoring: Sync {
    /// What is held of a gold record.
    type Gold: Send + Sync;
    /// What scoring many records needs not allocate again.
    type Buffers: Default + Send;
    /// The names of the figures of a record.
    fn names(&self) -> Vec<String>;
    fn gold(&self, line: &Line<'_>, buffers: &mut Self::Buffers) -> Result<Self::Gold, Fault>;
    /// Fills in a figure a name, of which there is at least one.
    fn score(
        &self,
        gold: &Self::Gold,
        guess: &Line<'_>,
        buffers: &mut Self::Buffers,
        row: &mut [f64],
    ) -> Result<(), Fault>;
}

/// What is read of the lines of both files.
pub(super) struct Columns {
    pub(super) gold: Fields,
    pub(super) guess: Fields,
}

impl Columns {
    /// Without columns; of a gold record the input is read where `input` says so.
    pub(super) fn new(input: bool) -> Self {
        Self { gold: Fields::new(input), guess: Fields::new(false) }
    }

    /// The column of a field of provenance items, the same in gold and predictions.
    pub(super) fn shared(&mut self, name: &str) -> usize {
        let (gold, guess) = (self.gold.column(name), self.guess.column(name));
        debug_assert_eq!(gold, guess, "shared columns come before others");
        gold
    }
}

/// A gold file in memory.
struct GoldFile<G> {
    ids: Vec<String>,
    records: Vec<G>,
}

/// Scores the predictions of `guess` against `gold`.
///
/// # Errors
/// [`Error::DuplicateId`] in either file, [`Error::MissingPrediction`], [`Error::Empty`] for a gold file without
/// records, and what reading gives.
pub(super) fn score<S: Scoring>(
    gold: &Path,
    guess: &Path,
    scoring: &S,
    columns: &Columns,
) -> Result<Aligned> {
    let gold = read_gold(gold, scoring, &columns.gold)?;
    let index: FxHashMap<&str, usize> =
        gold.ids.iter().enumerate().map(|(at, id)| (id.as_str(), at)).collect();
    let names = scoring.names();
    let width = names.len();
    let mut values = vec![0.0; width * gold.ids.len()];
    // The line that predicted each gold record, 0 before one did.
    let mut lines = vec![0u64; gold.ids.len()];
    let mut unknown: Vec<String> = Vec::new();
    let mut unknown_lines: FxHashMap<String, u64> = FxHashMap::default();
    jsonl::open(guess)?.chunks(|path, chunk| {
        let lines_of_chunk = chunk.par_lines();
        let mut rows = vec![0.0; width * lines_of_chunk.len()];
        let found: Vec<Result<(u64, Place)>> = lines_of_chunk
            .zip(rows.par_chunks_mut(width))
            .map_init(memory::<S>, |(line, buffers), ((number, bytes), row)| {
                line.read(path, number, bytes, &columns.guess)?;
                let Some(&at) = index.get(line.key()) else {
                    return Ok((number, Place::Unknown(line.key().to_owned())));
                };
                scoring
                    .score(&gold.records[at], line, buffers, row)
                    .map_err(|(field, message)| Error::record(path, number, field, message))?;
                Ok((number, Place::Known(at)))
            })
            .collect();
        let duplicate = |id: &str, line, first| Error::DuplicateId {
            path: path.to_owned(),
            line,
            first,
            id: id.to_owned(),
        };
        for (found, row) in found.into_iter().zip(rows.chunks_exact(width)) {
            let (number, place) = found?;
            match place {
                Place::Known(at) => {
                    if lines[at] > 0 {
                        return Err(duplicate(&gold.ids[at], number, lines[at]));
                    }
                    lines[at] = number;
                    values[at * width..(at + 1) * width].copy_from_slice(row);
                }
                Place::Unknown(id) => {
                    if let Some(&first) = unknown_lines.get(&id) {
                        return Err(duplicate(&id, number, first));
                    }
                    unknown_lines.insert(id.clone(), number);
                    unknown.push(id);
                }
            }
        }
        Ok(())
    })?;
    if let Some(first) = lines.iter().position(|&line| line == 0) {
        let count = lines.iter().filter(|&&line| line == 0).count();
        return Err(Error::MissingPrediction { path: guess.to_owned(), id: gold.ids[first].clone(), count });
    }
    if !unknown.is_empty() {
        tracing::warn!(count = unknown.len(), first = %unknown[0], "predictions without a gold record are left out");
    }
    Ok(Aligned { records: PerRecord { ids: gold.ids.into(), names, values }, unknown })
}

/// What a thread needs not allocate again for each line.
fn memory<'a, S: Scoring>() -> (Line<'a>, S::Buffers) {
    Default::default()
}

/// Where a prediction belongs.
enum Place {
    /// At a gold record.
    Known(usize),
    /// Nowhere; its id.
    Unknown(String),
}

fn read_gold<S: Scoring>(path: &Path, scoring: &S, fields: &Fields) -> Result<GoldFile<S::Gold>> {
    let mut gold = GoldFile { ids: Vec::new(), records: Vec::new() };
    let mut lines = Vec::new();
    jsonl::open(path)?.chunks(|path, chunk| {
        let parsed: Vec<Result<(u64, String, S::Gold)>> = chunk
            .par_lines()
            .map_init(memory::<S>, |(line, buffers), (number, bytes)| {
                line.read(path, number, bytes, fields)?;
                let record = scoring
                    .gold(line, buffers)
                    .map_err(|(field, message)| Error::record(path, number, field, message))?;
                Ok((number, line.key().to_owned(), record))
            })
            .collect();
        gold.ids.reserve(parsed.len());
        gold.records.reserve(parsed.len());
        for parsed in parsed {
            let (number, id, record) = parsed?;
            lines.push(number);
            gold.ids.push(id);
            gold.records.push(record);
        }
        Ok(())
    })?;
    if gold.ids.is_empty() {
        return Err(Error::Empty { path: path.to_owned(), what: "gold record" });
    }
    let mut first_lines: FxHashMap<&str, u64> = FxHashMap::default();
    first_lines.reserve(gold.ids.len());
    for (id, &line) in gold.ids.iter().zip(&lines) {
        if let Some(first) = first_lines.insert(id, line) {
            return Err(Error::DuplicateId { path: path.to_owned(), line, first, id: id.clone() });
        }
    }
    Ok(gold)
}
