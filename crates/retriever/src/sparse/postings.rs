//! Postings on disk: in which passages a term is, how often, and bounds on what it can add to a score.
//!
//! A term's postings are cut into blocks of 128. Full blocks are bit-packed, the steps between passages first, then the
//! counts less 1. What is left over follows as varints: the step doubled, plus 1 where the term occurs once, otherwise its
//! count comes next. Where there is at least one full block, the file `blocks` says of each block, the last included: its
//! last passage, its greatest impact, where it begins, and the two bit widths.

use std::path::Path;

use bitpacking::{BitPacker, BitPacker4x};

use super::{
    dictionary::Entry,
    layout::{Folder, Header, Mapped, Section, SectionWriter, map},
    varint,
};
use crate::{Error, Result};

const POSTINGS: &str = "postings";
const BLOCKS: &str = "blocks";

/// Postings in a block.
pub(crate) const BLOCK: usize = BitPacker4x::BLOCK_LEN;

/// What a term adds to a passage's score, apart from its weight in the query.
pub(crate) trait Scorer: Sync {
    /// The impact, finite and not negative, of a term that occurs `count` times in a passage. The index keeps maxima of
    /// these numbers, so building and searching must compute them alike.
    fn impact(&self, passage: u32, count: u32) -> f32;

    /// [`Scorer::impact`], bit for bit, of several passages.
    fn impacts(&self, passages: &[u32], counts: &[u32], impacts: &mut [f32]) {
        for ((&passage, &count), impact) in passages.iter().zip(counts).zip(impacts) {
            *impact = self.impact(passage, count);
        }
    }
}

/// What `blocks` says of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Block {
    last: u32,
    impact: f32,
    /// From the beginning of the term's postings.
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

/// Writes the postings of terms as they come.
pub(crate) struct PostingsWriter {
    postings: SectionWriter,
    blocks: SectionWriter,
    bytes: u64,
    block_count: u64,
    packer: BitPacker4x,
    packed: Vec<u8>,
    metas: Vec<Block>,
}

impl PostingsWriter {
    /// Starts the files.
    pub(crate) fn create(folder: &Folder) -> Result<Self> {
        Ok(Self {
            postings: folder.section(POSTINGS)?,
            blocks: folder.section(BLOCKS)?,
            bytes: 0,
            block_count: 0,
            packer: BitPacker4x::new(),
            packed: Vec::new(),
            metas: Vec::new(),
        })
    }

    /// Adds a term's postings `(passage, count)`, which come in the order of passages; returns its entry.
    pub(crate) fn put(&mut self, postings: &[(u32, u32)], scorer: &impl Scorer) -> Result<Entry> {
        self.packed.clear();
        self.metas.clear();
        let (mut before, mut greatest) = (None, 0f32);
        let (full, rest) = postings.as_chunks::<BLOCK>();
        for block in full {
            let (passages, counts) = (block.map(|(passage, _)| passage), block.map(|(_, count)| count - 1));
            let step_bits = self.packer.num_bits_strictly_sorted(before, &passages);
            let count_bits = self.packer.num_bits(&counts);
            self.meta(block, step_bits, count_bits, scorer)?;
            let begin = self.packed.len();
            let middle = begin + BitPacker4x::compressed_block_size(step_bits);
            self.packed.resize(middle + BitPacker4x::compressed_block_size(count_bits), 0);
            self.packer.compress_strictly_sorted(
                before,
                &passages,
                &mut self.packed[begin..middle],
                step_bits,
            );
            self.packer.compress(&counts, &mut self.packed[middle..], count_bits);
            before = Some(passages[BLOCK - 1]);
        }
        if !rest.is_empty() {
            self.meta(rest, 0, 0, scorer)?;
        }
        let mut base = before.unwrap_or(0);
        for &(passage, count) in rest {
            varint::write(u64::from(passage - base) << 1 | u64::from(count == 1), &mut self.packed);
            if count != 1 {
                varint::write(u64::from(count), &mut self.packed);
            }
            base = passage;
        }
        for meta in &self.metas {
            greatest = greatest.max(meta.impact);
        }
        let blocks = u32::try_from(self.block_count)
            .map_err(|_| Error::TooLarge { what: "blocks of postings", most: u64::from(u32::MAX) })?;
        let entry = Entry {
            name: 0,
            postings: self.bytes,
            blocks,
            passages: postings.len() as u32,
            impact: greatest,
        };
        if !full.is_empty() {
            for meta in &self.metas {
                self.blocks.put(&meta.to_bytes())?;
            }
            self.block_count += self.metas.len() as u64;
        }
        self.postings.put(&self.packed)?;
        self.bytes += self.packed.len() as u64;
        Ok(entry)
    }

    fn meta(
        &mut self,
        block: &[(u32, u32)],
        step_bits: u8,
        count_bits: u8,
        scorer: &impl Scorer,
    ) -> Result<()> {
        let impact = block.iter().map(|&(passage, count)| scorer.impact(passage, count)).fold(0f32, f32::max);
        let offset = u32::try_from(self.packed.len()).map_err(|_| Error::TooLarge {
            what: "bytes of one term's postings",
            most: u64::from(u32::MAX),
        })?;
        let last = block.last().map_or(0, |&(passage, _)| passage);
        self.metas.push(Block { last, impact, offset, step_bits, count_bits });
        Ok(())
    }

    /// Ends the files.
    pub(crate) fn finish(self) -> Result<[Section; 2]> {
        Ok([self.postings.finish()?, self.blocks.finish()?])
    }
}

/// Mapped postings.
pub(crate) struct Postings {
    postings: Mapped,
    blocks: Mapped,
}

impl Postings {
    /// Maps the files.
    pub(crate) fn open(folder: &Path, header: &Header) -> Result<Self> {
        let blocks = map(folder, header, BLOCKS)?;
        if blocks.len() % Block::BYTES != 0 {
            return Err(blocks.corrupt(format!("{} bytes are no whole number of blocks", blocks.len())));
        }
        Ok(Self { postings: map(folder, header, POSTINGS)?, blocks })
    }

    /// A cursor before the first posting of a term; `weight` multiplies its impacts, and `number` tells terms apart.
    pub(crate) fn cursor(&self, number: u32, entry: &Entry, weight: f32) -> Result<Cursor<'_>> {
        let (metas, _) = self.blocks.as_chunks::<{ Block::BYTES }>();
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
        let mut cursor = Cursor {
            source: &self.postings,
            number,
            weight,
            bound: weight * entry.impact,
            bytes,
            metas,
            rest: passages % BLOCK,
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
}

/// Walks a term's postings in the order of passages.
pub(crate) struct Cursor<'a> {
    source: &'a Mapped,
    /// The term's number.
    pub(crate) number: u32,
    weight: f32,
    /// The most that the term adds to any score.
    pub(crate) bound: f32,
    bytes: &'a [u8],
    /// Empty where the term has no full block.
    metas: &'a [[u8; Block::BYTES]],
    /// Postings after the full blocks.
    rest: usize,
    /// The first block that can reach the window that was last asked for.
    bound_block: usize,
    /// The block that is loaded, or that comes next.
    block: usize,
    loaded: bool,
    /// The current posting in the loaded block.
    at: usize,
    len: usize,
    passages: [u32; BLOCK],
    counts: [u32; BLOCK],
}

impl Cursor<'_> {
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

    /// Goes to the first posting at `target` or after it; false where there is none. Targets must not go back.
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

    /// Goes on to a later block for [`Cursor::seek`].
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

    /// What the term adds to the score of `passage`; 0 where it is not in it.
    #[inline]
    pub(crate) fn score(&mut self, passage: u32, scorer: &impl Scorer) -> Result<f32> {
        if self.seek(passage)? && self.passages[self.at] == passage {
            Ok(self.weight * scorer.impact(passage, self.counts[self.at]))
        } else {
            Ok(0.0)
        }
    }

    /// The most that the term adds to the score of a passage in `from..to`, and about how many of its postings are there.
    /// Windows must not go back.
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
            // As if the block's postings were spread evenly.
            let inside = last.min(to - 1).saturating_sub(start.max(from)) as usize + 1;
            postings += BLOCK * inside / (last.saturating_sub(start) as usize + 1);
            start = last.saturating_add(1);
        }
        Ok((self.weight * impact, postings))
    }

    /// Adds the term's part to the scores of all passages in `from..from + scores.len()`, calling `touch` with the place
    /// of each. Windows must not go back.
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
    // Gallop, as targets are mostly near: everything before `low` ends before the target.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct Ratio;

    impl Scorer for Ratio {
        fn impact(&self, passage: u32, count: u32) -> f32 {
            count as f32 / (count as f32 + 1.0 + (passage % 7) as f32)
        }
    }

    fn postings() -> impl Strategy<Value = Vec<(u32, u32)>> {
        prop_oneof![Just(127usize), Just(128), Just(129), Just(256), 1usize..700].prop_flat_map(|length| {
            let counts = prop_oneof![8 => Just(1u32), 2 => 1u32..9, 1 => 1u32..5_000_000];
            prop::collection::vec((prop_oneof![9 => 1u32..5, 1 => 1u32..1000], counts), length).prop_map(
                |steps| {
                    let mut next = 0;
                    steps
                        .into_iter()
                        .map(|(step, count)| {
                            next += step;
                            (next - 1, count)
                        })
                        .collect()
                },
            )
        })
    }

    /// Writes one list after another one, so that offsets are not all zero.
    fn with_cursor(list: &[(u32, u32)], check: impl FnOnce(Cursor<'_>)) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("index");
        let folder = Folder::create(&path).unwrap();
        let mut writer = PostingsWriter::create(&folder).unwrap();
        let other: Vec<_> = (0..130).map(|passage| (passage * 3, 1)).collect();
        writer.put(&other, &Ratio).unwrap();
        let entry = writer.put(list, &Ratio).unwrap();
        let header = Header {
            kind: "bm25".into(),
            options: serde_json::Value::Null,
            passages: u32::MAX,
            passages_hash: String::new(),
            terms: 2,
            postings: 0,
            tokens: 0,
            sections: writer.finish().unwrap().into(),
        };
        folder.finish(&header).unwrap();
        let postings = Postings::open(&path, &header).unwrap();
        check(postings.cursor(1, &entry, 2.0).unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_cursor_gives_back_every_posting_window_by_window(list in postings(), width in 1usize..600) {
            with_cursor(&list, |mut cursor| {
                let end = list.last().unwrap().0 + 1;
                for from in (0..end).step_by(width) {
                    let to = from + width as u32;
                    let (bound, _) = cursor.window_bound(from, to).unwrap();
                    let mut scores = vec![0.0; width];
                    let mut touched = Vec::new();
                    cursor.accumulate(from, &mut scores, &Ratio, |place| touched.push(place)).unwrap();
                    let mut expected = vec![0.0; width];
                    let mut places = Vec::new();
                    for &(passage, count) in list.iter().filter(|posting| (from..to).contains(&posting.0)) {
                        places.push((passage - from) as usize);
                        expected[(passage - from) as usize] = 2.0 * Ratio.impact(passage, count);
                    }
                    assert_eq!(scores, expected);
                    assert_eq!(touched, places);
                    assert!(scores.iter().all(|&score| score <= bound && bound <= cursor.bound));
                }
            });
        }

        #[test]
        fn a_cursor_scores_any_rising_choice_of_passages(list in postings(), step in 1usize..400) {
            with_cursor(&list, |mut cursor| {
                for passage in (0..list.last().unwrap().0 + 3).step_by(step) {
                    let expected = list
                        .iter()
                        .find(|posting| posting.0 == passage)
                        .map_or(0.0, |&(_, count)| 2.0 * Ratio.impact(passage, count));
                    assert_eq!(cursor.score(passage, &Ratio).unwrap(), expected);
                }
            });
        }
    }
}
