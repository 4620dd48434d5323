//! Alignment of gold and predictions by id, one file each.

use std::{path::Path, sync::Arc};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::{
    line::{Fields, Line},
    mean,
};
use crate::{Error, Result, jsonl};

/// An error in a record: the field and the message.
pub(super) type Fault = (String, String);

/// The scores of every gold record, in the gold file's order.
#[derive(Clone, Debug, PartialEq)]
pub struct PerRecord {
    ids: Arc<[String]>,
    names: Vec<String>,
    /// One row of `names.len()` values an id.
    values: Vec<f64>,
}

impl PerRecord {
    /// The trimmed ids.
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

    /// One value of every record.
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

/// Scores, and the ids without gold.
pub(super) struct Aligned {
    pub(super) records: PerRecord,
    /// Ids of predictions without a gold record, in the file's order; they are skipped.
    pub(super) unknown: Vec<String>,
}

/// A scorer of one prediction against one gold record.
pub(super) trait Scoring: Sync {
    /// The stored part of a gold record.
    type Gold: Send + Sync;
    /// Reusable buffers.
    type Buffers: Default + Send;
    /// The names of a record's values.
    fn names(&self) -> Vec<String>;
    fn gold(&self, line: &Line<'_>, buffers: &mut Self::Buffers) -> Result<Self::Gold, Fault>;
    /// Computes one value a name. There is at least one name.
    fn score(
        &self,
        gold: &Self::Gold,
        guess: &Line<'_>,
        buffers: &mut Self::Buffers,
        row: &mut [f64],
    ) -> Result<(), Fault>;
}

/// The fields to read from both files.
pub(super) struct Columns {
    pub(super) gold: Fields,
    pub(super) guess: Fields,
}

impl Columns {
    /// Without columns; `input` selects whether the input of gold records is read.
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
/// records, and read errors.
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
    // The line of each gold record's prediction; 0 before it was read.
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
            path: path.to_path_buf(),
            line,
            first,
            field: "id",
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
        let (file, count) = (guess.display(), unknown.len());
        tracing::warn!(%file, count, first = %unknown[0], "predictions without a gold record are left out");
    }
    Ok(Aligned { records: PerRecord { ids: gold.ids.into(), names, values }, unknown })
}

/// Reusable buffers of a thread.
fn memory<'a, S: Scoring>() -> (Line<'a>, S::Buffers) {
    Default::default()
}

/// The gold record of a prediction.
enum Place {
    /// At a gold record.
    Known(usize),
    /// None; its id.
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
            return Err(Error::DuplicateId {
                path: path.to_owned(),
                line,
                first,
                field: "id",
                id: id.clone(),
            });
        }
    }
    Ok(gold)
}
