//! Reading one term's postings.

use bitpacking::{BitPacker, BitPacker4x};

use super::{
    super::{dictionary::Entry, varint},
    BLOCK, Block, Scorer, impact_of, last_of, u32_at,
};
use crate::{Error, Result, layout::Mapped};

/// Iterates over a term's postings in the order of passages.
pub(crate) struct Cursor<'a> {
    source: &'a Mapped,
    /// The term's number.
    pub(crate) number: u32,
    weight: f32,
    /// The largest contribution of the term to any score.
    pub(crate) bound: f32,
    bytes: &'a [u8],
    /// Empty if the term has no full block.
    metas: &'a [[u8; Block::BYTES]],
    /// Postings after the full blocks.
    rest: usize,
    /// The first block that can reach the last requested window.
    bound_block: usize,
    /// The loaded block, or the next one.
    block: usize,
    loaded: bool,
    /// The current posting in the loaded block.
    at: usize,
    len: usize,
    passages: [u32; BLOCK],
    counts: [u32; BLOCK],
}

impl<'a> Cursor<'a> {
    /// Before the first posting of the term `number` with the postings `bytes` and the blocks `metas`.
    pub(super) fn new(
        source: &'a Mapped,
        number: u32,
        entry: &Entry,
        weight: f32,
        bytes: &'a [u8],
        metas: &'a [[u8; Block::BYTES]],
    ) -> Result<Self> {
        let mut cursor = Self {
            source,
            number,
            weight,
            bound: weight * entry.impact,
            bytes,
            metas,
            rest: entry.passages as usize % BLOCK,
            bound_block: 0,
            block: 0,
            loaded: false,
            at: 0,
            len: 0,
            passages: [0; BLOCK],
            counts: [0; BLOCK],
        };
        if metas.is_empty() {
            cursor.load()?;
        }
        Ok(cursor)
    }

    fn block_count(&self) -> usize {
        self.metas.len().max(1)
    }

    fn corrupt(&self) -> Error {
        self.source.corrupt(format!("block {} of term {} cannot be read", self.block, self.number))
    }

    /// Unpacks the current block.
    fn load(&mut self) -> Result<()> {
        let before = self.block.checked_sub(1).and_then(|block| self.metas.get(block)).map(last_of);
        let meta = self.metas.get(self.block);
        let offset = meta.map_or(0, |meta| u32_at(meta, 8) as usize);
        let mut bytes = self.bytes.get(offset..).ok_or_else(|| self.corrupt())?;
        let full = self.metas.len() - usize::from(self.rest > 0 && !self.metas.is_empty());
        match meta {
            Some(meta) if self.block < full => {
                let [.., step_bits, count_bits, _, _] = *meta;
                let middle = BitPacker4x::compressed_block_size(step_bits);
                let end = middle + BitPacker4x::compressed_block_size(count_bits);
                if step_bits > 32 || count_bits > 32 || bytes.len() < end {
                    return Err(self.corrupt());
                }
                let packer = BitPacker4x::new();
                packer.decompress_strictly_sorted(before, &bytes[..middle], &mut self.passages, step_bits);
                packer.decompress(&bytes[middle..end], &mut self.counts, count_bits);
                for count in &mut self.counts {
                    *count = count.wrapping_add(1);
                }
                self.len = BLOCK;
            }
            _ => {
                let mut passage = before.unwrap_or(0);
                for at in 0..self.rest {
                    let code = varint::read(&mut bytes).ok_or_else(|| self.corrupt())?;
                    passage = passage.wrapping_add((code >> 1) as u32);
                    self.passages[at] = passage;
                    self.counts[at] = if code & 1 == 1 {
                        1
                    } else {
                        varint::read(&mut bytes).ok_or_else(|| self.corrupt())? as u32
                    };
                }
                self.len = self.rest;
            }
        }
        self.at = 0;
        self.loaded = true;
        Ok(())
    }

    /// Moves to the first posting at `target` or after it; false if there is none. Targets must not decrease.
    #[inline]
    pub(crate) fn seek(&mut self, target: u32) -> Result<bool> {
        if self.loaded {
            let ahead = &self.passages[self.at..self.len];
            if ahead.last().is_some_and(|&last| last >= target) {
                self.at += ahead.partition_point(|&passage| passage < target);
                return Ok(true);
            }
        }
        self.seek_block(target)
    }

    /// Moves to a later block for [`Cursor::seek`].
    #[inline(never)]
    fn seek_block(&mut self, target: u32) -> Result<bool> {
        if self.loaded {
            self.block += 1;
            self.loaded = false;
        }
        self.block = skip(self.metas, self.block, target);
        if self.block >= self.block_count() || self.metas.is_empty() {
            self.block = self.block_count();
            return Ok(false);
        }
        self.load()?;
        self.at = self.passages[..self.len].partition_point(|&passage| passage < target);
        Ok(self.at < self.len)
    }

    /// Adds all postings, passages with counts, of a cursor that was not moved.
    pub(crate) fn read_all(self, postings: &mut Vec<(u32, u32)>) -> Result<()> {
        self.each_block(|passages, counts| {
            postings.extend(passages.iter().copied().zip(counts.iter().copied()));
        })
    }

    /// Calls `each` with the passages and the counts of each block of a cursor that was not moved.
    pub(crate) fn each_block(mut self, mut each: impl FnMut(&[u32], &[u32])) -> Result<()> {
        loop {
            if !self.loaded {
                self.load()?;
            }
            each(&self.passages[..self.len], &self.counts[..self.len]);
            self.block += 1;
            self.loaded = false;
            if self.block >= self.block_count() {
                return Ok(());
            }
        }
    }

    /// The score of the term in a passage that is saturated with it.
    pub(crate) fn weight(&self) -> f32 {
        self.weight
    }

    /// The score of the term in `passage`; 0 if it is not in it.
    #[inline]
    pub(crate) fn score(&mut self, passage: u32, scorer: &impl Scorer) -> Result<f32> {
        if self.seek(passage)? && self.passages[self.at] == passage {
            Ok(self.weight * scorer.impact(passage, self.counts[self.at]))
        } else {
            Ok(0.0)
        }
    }

    /// The largest score of the term in a passage of `from..to`, and its approximate number of postings
    /// there. Windows must not decrease.
    pub(crate) fn window_bound(&mut self, from: u32, to: u32) -> Result<(f32, usize)> {
        if self.metas.is_empty() {
            let inside = self.seek(from)? && self.passages[self.at] < to;
            return Ok(if inside { (self.bound, self.len - self.at) } else { (0.0, 0) });
        }
        self.bound_block = skip(self.metas, self.bound_block, from);
        let (mut impact, mut postings) = (0f32, 0);
        let mut start = match self.bound_block.checked_sub(1) {
            Some(before) => last_of(&self.metas[before]).saturating_add(1),
            None => 0,
        };
        for meta in &self.metas[self.bound_block..] {
            if start >= to {
                break;
            }
            let last = last_of(meta);
            impact = impact.max(impact_of(meta));
            // Assumes that the block's postings are spread evenly.
            let inside = last.min(to - 1).saturating_sub(start.max(from)) as usize + 1;
            postings += BLOCK * inside / (last.saturating_sub(start) as usize + 1);
            start = last.saturating_add(1);
        }
        Ok((self.weight * impact, postings))
    }

    /// Adds the term's scores to all passages in `from..from + scores.len()`, calling `touch` with the index
    /// of each. Windows must not decrease.
    #[inline]
    pub(crate) fn accumulate(
        &mut self,
        from: u32,
        scores: &mut [f32],
        scorer: &impl Scorer,
        mut touch: impl FnMut(usize),
    ) -> Result<()> {
        if !self.seek(from)? {
            return Ok(());
        }
        let to = from.saturating_add(scores.len() as u32);
        let (weight, mut impacts) = (self.weight, [0.0; BLOCK]);
        loop {
            let ahead = &self.passages[self.at..self.len];
            let inside = match ahead.last() {
                Some(&last) if last < to => ahead.len(),
                _ => ahead.partition_point(|&passage| passage < to),
            };
            let counts = &self.counts[self.at..self.at + inside];
            let impacts = &mut impacts[..inside];
            scorer.impacts(&ahead[..inside], counts, impacts);
            for (&passage, &impact) in ahead.iter().zip(&*impacts) {
                let place = passage.wrapping_sub(from) as usize;
                // Every passage is in the window unless the file is damaged.
                if let Some(score) = scores.get_mut(place) {
                    *score += weight * impact;
                    touch(place);
                }
            }
            self.at += inside;
            if self.at < self.len {
                return Ok(());
            }
            self.block += 1;
            self.loaded = false;
            if self.block >= self.block_count() {
                return Ok(());
            }
            self.load()?;
        }
    }
}

/// The first block from `block` on whose last passage is not before `target`.
fn skip(metas: &[[u8; Block::BYTES]], block: usize, target: u32) -> usize {
    let mut step = 1;
    let mut low = block;
    // Galloping search, because targets are mostly near: everything before `low` ends before the target.
    while low + step <= metas.len() && last_of(&metas[low + step - 1]) < target {
        low += step;
        step *= 2;
    }
    let high = (low + step).min(metas.len());
    if low >= high {
        return low;
    }
    low + metas[low..high].partition_point(|meta| last_of(meta) < target)
}
