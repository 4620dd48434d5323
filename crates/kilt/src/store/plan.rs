//! What a store of a whole source will take, estimated from a sample.

use std::{path::Path, time::Instant};

use rayon::prelude::*;
use serde::Serialize;

use super::{ID_ROW, PAGE_ROW, PASSAGE_ROW, TITLE_ROW, build::prepare};
use crate::{Error, PassageStore, Result, jsonl, passage::Split};

/// An estimate from the first pages of a source.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Pages that were read for it.
    pub sampled_pages: u64,
    /// Whether the sample is the whole source, so that the counts are exact.
    pub complete: bool,
    /// Pages of the whole source.
    pub pages: u64,
    /// Passages of the whole source.
    pub passages: u64,
    /// Bytes that the store will take.
    pub disk_bytes: u64,
    /// Bytes that building it holds in memory.
    pub memory_bytes: u64,
    /// Seconds that reading, parsing and cutting will take at the sample's rate.
    pub seconds: f64,
}

/// Held while building for any source: line batches being read, parsed and written.
const FIXED_MEMORY: u64 = 96 << 20;
/// Held for each page: rows of ids and titles, and the line number.
const MEMORY_A_PAGE: u64 = 16 + 32 + 4;

impl PassageStore {
    /// Reads the first `sample` pages of a source and extrapolates by bytes read.
    ///
    /// # Errors
    /// As [`PassageStore::build`] for what it reads.
    pub fn plan(source: &Path, split: Split, sample: u64) -> Result<Plan> {
        let mut reader = jsonl::open(source)?;
        let position = reader.position();
        let start = Instant::now();
        let (mut pages, mut passages, mut bytes) = (0u64, 0u64, 0u64);
        let mut complete = false;
        while pages < sample && !complete {
            let mut lines: Vec<(u64, Vec<u8>)> = Vec::new();
            while lines.len() < 1024 && pages + (lines.len() as u64) < sample {
                match reader.next_line()? {
                    Some((line, bytes)) => lines.push((line, bytes.to_vec())),
                    None => {
                        complete = true;
                        break;
                    }
                }
            }
            let sizes: Result<Vec<(u64, u64)>> = lines
                .par_iter()
                .map(|(line, bytes)| Ok(prepare(source, *line, bytes, split)?.size()))
                .collect();
            for (of_passages, of_bytes) in sizes? {
                pages += 1;
                passages += of_passages;
                bytes += of_bytes;
            }
        }
        if pages == 0 {
            return Err(Error::Empty { path: source.to_owned(), what: "page" });
        }
        complete = complete || reader.next_line()?.is_none();
        let scale = if complete || position.read() == 0 {
            1.0
        } else {
            (position.size() as f64 / position.read() as f64).max(1.0)
        };
        let whole = |part: u64| (part as f64 * scale).round() as u64;
        Ok(Plan {
            sampled_pages: pages,
            complete,
            pages: whole(pages),
            passages: whole(passages),
            disk_bytes: whole(bytes),
            memory_bytes: FIXED_MEMORY + whole(pages) * MEMORY_A_PAGE,
            seconds: start.elapsed().as_secs_f64() * scale,
        })
    }
}

impl super::build::Prepared {
    /// Passages, and bytes in the store's files.
    fn size(&self) -> (u64, u64) {
        let rows = PAGE_ROW + ID_ROW + TITLE_ROW + self.spans.len() * PASSAGE_ROW + self.ends.len() * 4;
        (self.spans.len() as u64, (self.text.len() + self.id.len() + self.title.len() + rows) as u64)
    }
}
