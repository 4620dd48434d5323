//! Writing postings.

use bitpacking::{BitPacker, BitPacker4x};

use super::{
    super::{dictionary::Entry, varint},
    BLOCK, BLOCKS, Block, POSTINGS, Scorer,
};
use crate::{
    Error, Result,
    layout::{Folder, Section, SectionWriter},
};

/// Writes the postings of terms.
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

    /// Adds a term's postings `(passage, count)` in the order of passages; returns its entry.
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
