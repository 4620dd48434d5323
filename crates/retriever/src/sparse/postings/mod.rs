//! Postings on disk: the passages of a term, its counts, and bounds on its scores.
//!
//! A term's postings are split into blocks of 128. Full blocks are bit-packed: first the differences between
//! passages, then the counts minus 1. The rest follows as varints: the difference doubled, plus 1 if the term
//! occurs once, otherwise its count comes next. If there is a full block, the file `blocks` describes each
//! block, the last included: its last passage, its greatest impact, its offset, and the two bit widths.

mod cursor;
#[cfg(test)]
mod tests;
mod writer;

use bitpacking::{BitPacker, BitPacker4x};

pub(crate) use cursor::Cursor;
pub(crate) use writer::PostingsWriter;

use super::dictionary::Entry;
use crate::{
    Error, Result,
    layout::{Files, Mapped},
};

const POSTINGS: &str = "postings";
const BLOCKS: &str = "blocks";

/// Postings in a block.
pub(crate) const BLOCK: usize = BitPacker4x::BLOCK_LEN;

/// The impact of a term on a passage's score, without its weight in the query.
pub(crate) trait Scorer: Sync {
    /// The impact, finite and not negative, of a term that occurs `count` times in a passage. The index
    /// stores maxima of these numbers, so building and searching must compute them equally.
    fn impact(&self, passage: u32, count: u32) -> f32;

    /// [`Scorer::impact`], bit for bit, of several passages.
    fn impacts(&self, passages: &[u32], counts: &[u32], impacts: &mut [f32]) {
        for ((&passage, &count), impact) in passages.iter().zip(counts).zip(impacts) {
            *impact = self.impact(passage, count);
        }
    }
}

/// A row of `blocks`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    last: u32,
    impact: f32,
    /// Relative to the start of the term's postings.
    offset: u32,
    step_bits: u8,
    count_bits: u8,
}

impl Block {
    const BYTES: usize = 16;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.last.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.impact.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.offset.to_le_bytes());
        bytes[12] = self.step_bits;
        bytes[13] = self.count_bits;
        bytes
    }
}

fn u32_at(bytes: &[u8; Block::BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn last_of(bytes: &[u8; Block::BYTES]) -> u32 {
    u32_at(bytes, 0)
}

fn impact_of(bytes: &[u8; Block::BYTES]) -> f32 {
    f32::from_bits(u32_at(bytes, 4))
}

/// The greatest impacts of all terms and blocks of an index.
pub(crate) struct Bounds {
    terms: Vec<f32>,
    /// The rows of `blocks` with these impacts.
    blocks: Vec<[u8; Block::BYTES]>,
}

impl Bounds {
    /// The greatest impact of a term by its number.
    pub(crate) fn of_term(&self, number: u32) -> f32 {
        self.terms.get(number as usize).copied().unwrap_or_default()
    }
}

/// Memory-mapped postings.
pub(crate) struct Postings {
    postings: Mapped,
    blocks: Mapped,
}

impl Postings {
    /// Opens the files of an index.
    pub(crate) fn open(files: &mut Files) -> Result<Self> {
        let blocks = files.take(BLOCKS)?;
        if blocks.len() % Block::BYTES != 0 {
            return Err(blocks.corrupt(format!("{} bytes are no whole number of blocks", blocks.len())));
        }
        Ok(Self { postings: files.take(POSTINGS)?, blocks })
    }

    /// The error for the postings of a term that cannot be right.
    pub(crate) fn corrupt(&self, number: u32) -> Error {
        self.postings.corrupt(format!("the postings of term {number} are not in the order of passages"))
    }

    /// A cursor before the first posting of a term; `weight` multiplies its impacts, and `number` identifies
    /// the term.
    pub(crate) fn cursor(&self, number: u32, entry: &Entry, weight: f32) -> Result<Cursor<'_>> {
        self.cursor_over(self.blocks.as_chunks().0, number, entry, weight)
    }

    /// As [`cursor`](Self::cursor), with other bounds of the blocks.
    pub(crate) fn bounded_cursor<'a>(
        &'a self,
        number: u32,
        entry: &Entry,
        weight: f32,
        bounds: &'a Bounds,
    ) -> Result<Cursor<'a>> {
        self.cursor_over(&bounds.blocks, number, entry, weight)
    }

    /// The bounds of all terms and blocks with other impacts than those of the build. `entries` are those of all terms.
    pub(crate) fn bounds(
        &self,
        entries: impl Iterator<Item = Result<Entry>>,
        scorer: &impl Scorer,
    ) -> Result<Bounds> {
        let mut bounds = Bounds { terms: Vec::new(), blocks: self.blocks.as_chunks().0.to_vec() };
        for (number, entry) in (0..).zip(entries) {
            let entry = entry?;
            // A term without a full block has no rows.
            let mut rows = (entry.passages as usize >= BLOCK).then_some(entry.blocks as usize..);
            let mut greatest = 0f32;
            self.cursor(number, &entry, 1.0)?.each_block(|passages, counts| {
                let impacts =
                    passages.iter().zip(counts).map(|(&passage, &count)| scorer.impact(passage, count));
                let impact = impacts.fold(0f32, f32::max);
                greatest = greatest.max(impact);
                let row = rows.as_mut().and_then(Iterator::next);
                if let Some(row) = row.and_then(|row| bounds.blocks.get_mut(row)) {
                    row[4..8].copy_from_slice(&impact.to_le_bytes());
                }
            })?;
            bounds.terms.push(greatest);
        }
        Ok(bounds)
    }

    fn cursor_over<'a>(
        &'a self,
        metas: &'a [[u8; Block::BYTES]],
        number: u32,
        entry: &Entry,
        weight: f32,
    ) -> Result<Cursor<'a>> {
        let passages = entry.passages as usize;
        let count = if passages < BLOCK { 0 } else { passages.div_ceil(BLOCK) };
        let first = entry.blocks as usize;
        let metas = metas
            .get(first..first + count)
            .ok_or_else(|| self.blocks.corrupt(format!("expected {count} blocks from {first}")))?;
        let bytes = self
            .postings
            .get(entry.postings as usize..)
            .ok_or_else(|| self.postings.corrupt(format!("expected postings at byte {}", entry.postings)))?;
        Cursor::new(&self.postings, number, entry, weight, bytes, metas)
    }
}
