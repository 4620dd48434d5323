//! Product-quantised search: a row has one code a part, and its score is the sum of a query's table entries
//! for the codes.
//!
//! Rows are in blocks of 64, part by part, so that one part of all 64 is looked up at once. 16 entries need a
//! byte shuffle, 256 need byte permutations (AVX-512 VBMI); otherwise look-ups are scalar. Entries are bytes
//! and sums have 16 bits, as in F. André et al., "Cache locality is not enough: high-performance nearest
//! neighbor search with product quantization fast scan", 2015. Sums are exact and equal on every instruction
//! set.

#[cfg(target_arch = "x86_64")]
mod batched;
#[cfg(target_arch = "x86_64")]
mod lookup;

use std::ops::Range;

use crate::{
    isa::{Isa, dispatch},
    math::ROUND,
    scan::{Filter, best},
    simd::Simd,
    top::Top,
};

/// The number of rows in a block.
const ROWS: usize = 64;
/// The number of parts whose sums fit 16 bits.
const MOST_PARTS: usize = 256;
/// Bytes of codes in a work unit: they stay in the L2 cache for all queries.
const CHUNK: usize = 64 << 10;

/// The size of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeBits {
    /// 16 codes, two in a byte; an even part is in the lower half.
    Four,
    /// 256 codes.
    Eight,
}

impl CodeBits {
    /// The number of codes.
    #[must_use]
    pub fn codes(self) -> usize {
        match self {
            Self::Four => 16,
            Self::Eight => 256,
        }
    }

    /// The length of a block of rows of `parts` parts, which must be even if two share a byte.
    #[must_use]
    pub fn block_bytes(self, parts: usize) -> usize {
        match self {
            Self::Four => parts / 2 * ROWS,
            Self::Eight => parts * ROWS,
        }
    }
}

/// Quantises a query's tables, of `codes` values each, to bytes, with one step size for all and an offset for
/// each.
///
/// # Panics
/// If the tables are incomplete, or the number of bytes differs.
pub fn round_tables(isa: Isa, codes: CodeBits, tables: &[f32], bytes: &mut [u8]) {
    #[inline(always)]
    fn body<S: Simd>(codes: usize, tables: &[f32], bytes: &mut [u8]) {
        const LANES: usize = 16;
        let bounds = |table: &[f32]| {
            let (mut least, mut most) = ([f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
            for values in table.as_chunks::<LANES>().0 {
                for i in 0..LANES {
                    least[i] = if values[i] < least[i] { values[i] } else { least[i] };
                    most[i] = if values[i] > most[i] { values[i] } else { most[i] };
                }
            }
            let least = least.into_iter().fold(f32::INFINITY, f32::min);
            (least, most.into_iter().fold(f32::NEG_INFINITY, f32::max) - least)
        };
        let mut widest = 0f32;
        for table in tables.chunks_exact(codes) {
            widest = widest.max(bounds(table).1);
        }
        let steps = if widest > 0.0 { 255.0 / widest } else { 0.0 };
        for (table, bytes) in tables.chunks_exact(codes).zip(bytes.chunks_exact_mut(codes)) {
            let least = bounds(table).0;
            for (byte, value) in bytes.iter_mut().zip(table) {
                // From 0 to 255 up to rounding, which the last step of the range absorbs.
                *byte = (((value - least) * steps).min(255.0) + ROUND).to_bits() as u8;
            }
        }
    }
    let codes = codes.codes();
    assert!(tables.len() == bytes.len() && tables.len().is_multiple_of(codes));
    dispatch!(isa, body(codes: usize, tables: &[f32], bytes: &mut [u8]));
}

/// Rows as codes.
#[derive(Clone, Copy, Debug)]
pub struct Codes<'a> {
    bits: CodeBits,
    parts: usize,
    rows: usize,
    bytes: &'a [u8],
}

impl<'a> Codes<'a> {
    /// Rows of a block.
    pub const ROWS: usize = ROWS;
    /// The most parts of a row.
    pub const MOST_PARTS: usize = MOST_PARTS;

    /// `rows` rows of `parts` parts, as [`pack`](Self::pack) writes them, block by block.
    ///
    /// # Panics
    /// If the number of bytes or parts is wrong, or ids cannot number the rows.
    #[must_use]
    pub fn new(bits: CodeBits, parts: usize, rows: usize, bytes: &'a [u8]) -> Self {
        assert!((1..=MOST_PARTS).contains(&parts) && u32::try_from(rows).is_ok());
        assert!(bits == CodeBits::Eight || parts.is_multiple_of(2));
        assert_eq!(bytes.len(), rows.div_ceil(ROWS) * bits.block_bytes(parts));
        Self { bits, parts, rows, bytes }
    }

    /// Writes a block of at most 64 rows, given as codes, row by row; missing rows have code 0.
    ///
    /// # Panics
    /// If `codes` are not up to 64 whole rows, or `block` has another length than a block.
    pub fn pack(bits: CodeBits, parts: usize, codes: &[u8], block: &mut [u8]) {
        assert!(codes.len().is_multiple_of(parts) && codes.len() <= ROWS * parts);
        assert_eq!(block.len(), bits.block_bytes(parts));
        block.fill(0);
        for (row, codes) in codes.chunks_exact(parts).enumerate() {
            for (part, code) in codes.iter().enumerate() {
                match bits {
                    CodeBits::Four => block[part / 2 * ROWS + row] |= (code & 15) << (part % 2 * 4),
                    CodeBits::Eight => block[part * ROWS + row] = *code,
                }
            }
        }
    }

    /// The sum of a query's table entries for the codes of a row. Every fourth part is added first.
    ///
    /// # Panics
    /// If there is no such row, or the tables do not match the parts.
    #[must_use]
    pub fn sum(&self, tables: &[f32], row: usize) -> f32 {
        let codes = self.bits.codes();
        assert!(row < self.rows && tables.len() == self.parts * codes);
        let block = &self.bytes[row / ROWS * self.bits.block_bytes(self.parts)..];
        let of_row = block[row % ROWS..].iter().step_by(ROWS);
        let mut sums = [0f32; 4];
        match self.bits {
            CodeBits::Four => {
                for (at, (byte, tables)) in of_row.zip(tables.as_chunks::<32>().0).enumerate() {
                    sums[at % 2 * 2] += tables[usize::from(byte & 15)];
                    sums[at % 2 * 2 + 1] += tables[16 + usize::from(byte >> 4)];
                }
            }
            CodeBits::Eight => {
                for (at, (byte, table)) in of_row.zip(tables.as_chunks::<256>().0).enumerate() {
                    sums[at % 4] += table[usize::from(*byte)];
                }
            }
        }
        sums.iter().sum()
    }

    /// For each query the `k` rows with the largest sums, as row and sum: best first, ties by ascending row.
    /// `tables` has one byte a code, part by part, query by query.
    ///
    /// # Panics
    /// If the tables are incomplete.
    #[must_use]
    pub fn search(
        &self,
        isa: Isa,
        tables: &[u8],
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Vec<Vec<(u32, f32)>> {
        let size = self.parts * self.bits.codes();
        assert!(tables.len().is_multiple_of(size));
        assert!(isa <= Isa::detected(), "{isa:?} is not available here");
        let count = tables.len() / size;
        #[cfg(target_arch = "x86_64")]
        if self.bits == CodeBits::Four && batched::is_faster(isa, count) {
            return self.search_together(tables, k.min(self.rows), filter);
        }
        best(self.chunks(), count, k.min(self.rows), &|chunk, tops| {
            for (table, top) in tables.chunks_exact(size).zip(tops) {
                for block in self.blocks(chunk) {
                    self.offer(block, top, filter, |least, sums| {
                        lookup(isa, self.bits, self.block(block), table, least, sums)
                    });
                }
            }
        })
    }

    /// The number of chunks, which are the work units.
    fn chunks(&self) -> usize {
        self.rows.div_ceil(ROWS).div_ceil(self.chunk_blocks())
    }

    /// The blocks of a chunk.
    fn blocks(&self, chunk: usize) -> Range<usize> {
        let size = self.chunk_blocks();
        chunk * size..((chunk + 1) * size).min(self.rows.div_ceil(ROWS))
    }

    fn chunk_blocks(&self) -> usize {
        (CHUNK / self.bits.block_bytes(self.parts)).max(1)
    }

    fn block(&self, at: usize) -> &'a [u8] {
        let size = self.bits.block_bytes(self.parts);
        &self.bytes[at * size..][..size]
    }

    /// Offers the rows of a block to a query. `lookup` receives the smallest relevant sum. It returns a bit
    /// for each row that reaches it, and writes all sums if there is one.
    #[inline(always)]
    fn offer(
        &self,
        block: usize,
        top: &mut Top,
        filter: Option<Filter<'_>>,
        lookup: impl FnOnce(u16, &mut [u16; ROWS]) -> u64,
    ) {
        // A threshold is a sum or infinite.
        let least = if top.threshold() < 0.0 { 0.0 } else { top.threshold() + 1.0 };
        if least > f32::from(u16::MAX) {
            return;
        }
        let first = block * ROWS;
        let there = u64::MAX >> (ROWS - (self.rows - first).min(ROWS));
        let mut sums = [0; ROWS];
        let mut found = lookup(least as u16, &mut sums) & there;
        while found != 0 {
            let at = found.trailing_zeros() as usize;
            found &= found - 1;
            let (row, score) = ((first + at) as u32, f32::from(sums[at]));
            // The threshold may have risen in the meantime.
            if score > top.threshold() && filter.is_none_or(|filter| filter(row)) {
                top.offer(row, score);
            }
        }
    }
}

/// A bit for each row of a block whose sum is at least `least`; all sums are written if there is one.
#[inline]
fn lookup(isa: Isa, bits: CodeBits, block: &[u8], table: &[u8], least: u16, sums: &mut [u16; ROWS]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        match (bits, isa) {
            (CodeBits::Four, Isa::Amx | Isa::Vnni | Isa::Avx512) => {
                // SAFETY: `search` has checked that the machine has AVX-512 with BW.
                return unsafe { lookup::four_avx512(block, table, least, sums) };
            }
            (CodeBits::Four, Isa::Avx2) => {
                // SAFETY: `search` has checked that the machine has AVX2.
                return unsafe { lookup::four_avx2(block, table, least, sums) };
            }
            (CodeBits::Eight, Isa::Amx | Isa::Vnni) if lookup::has_vbmi() => {
                // SAFETY: `search` has checked that the machine has AVX-512 with BW; VBMI has been checked just now.
                return unsafe { lookup::eight_vbmi(block, table, least, sums) };
            }
            _ => {}
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = isa;
    one_by_one(bits, block, table, sums);
    reaching(least, sums)
}

/// A bit for each row whose sum is at least `least`.
#[inline(always)]
pub(crate) fn reaching(least: u16, sums: &[u16; ROWS]) -> u64 {
    // Usually there is none, which is checked several sums at a time.
    if sums.iter().copied().fold(0, u16::max) < least {
        return 0;
    }
    sums.iter().rev().fold(0, |rows, sum| rows << 1 | u64::from(*sum >= least))
}

fn one_by_one(bits: CodeBits, block: &[u8], table: &[u8], sums: &mut [u16; ROWS]) {
    match bits {
        CodeBits::Four => {
            for (codes, table) in block.chunks_exact(ROWS).zip(table.chunks_exact(32)) {
                for (sum, code) in sums.iter_mut().zip(codes) {
                    *sum += u16::from(table[usize::from(code & 15)]);
                    *sum += u16::from(table[16 + usize::from(code >> 4)]);
                }
            }
        }
        CodeBits::Eight => {
            for (codes, table) in block.chunks_exact(ROWS).zip(table.as_chunks::<256>().0) {
                for (sum, code) in sums.iter_mut().zip(codes) {
                    *sum += u16::from(table[usize::from(*code)]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::top::by_rank;

    #[test]
    fn tables_are_rounded_to_one_step() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for bits in [CodeBits::Four, CodeBits::Eight] {
            let codes = bits.codes();
            let mut tables: Vec<f32> = (0..3 * codes).map(|_| rng.random_range(-1.0..1.0)).collect();
            tables[codes..2 * codes].iter_mut().for_each(|value| *value *= 5.0);
            let (least, most) = tables[codes..2 * codes]
                .iter()
                .fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), value| (a.min(*value), b.max(*value)));
            let step = (most - least) / 255.0;
            for isa in Isa::available() {
                let mut bytes = vec![9; tables.len()];
                round_tables(isa, bits, &tables, &mut bytes);
                assert!(bytes.contains(&0) && bytes.contains(&255));
                for (table, bytes) in tables.chunks(codes).zip(bytes.chunks(codes)) {
                    let least = table.iter().copied().fold(f32::INFINITY, f32::min);
                    let near = |(value, byte): (&f32, &u8)| {
                        (value - least - f32::from(*byte) * step).abs() < 0.51 * step
                    };
                    assert!(table.iter().zip(bytes).all(near), "{isa:?} {bits:?}");
                }
                round_tables(isa, bits, &vec![3.0; codes], &mut bytes[..codes]);
                assert!(bytes[..codes].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn sums_are_those_of_the_tables_on_every_machine() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for (bits, parts, rows, queries) in [
            (CodeBits::Four, 2, 1, 1),
            (CodeBits::Four, 96, 1000, 5),
            (CodeBits::Four, 96, 130, 3),
            (CodeBits::Four, 10, 200, 70),
            (CodeBits::Four, 256, 130, 1),
            (CodeBits::Eight, 1, 64, 2),
            (CodeBits::Eight, 48, 20_000, 2),
            (CodeBits::Eight, 256, 65, 1),
        ] {
            let codes: Vec<u8> = (0..rows * parts).map(|_| rng.random_range(0..bits.codes()) as u8).collect();
            // Includes the largest possible sums.
            let tables: Vec<u8> = (0..queries * parts * bits.codes())
                .map(|_| if parts == 256 { 255 } else { rng.random() })
                .collect();
            let size = bits.block_bytes(parts);
            let mut bytes = vec![0xff; rows.div_ceil(ROWS) * size];
            for (block, codes) in bytes.chunks_mut(size).zip(codes.chunks(ROWS * parts)) {
                Codes::pack(bits, parts, codes, block);
            }
            let packed = Codes::new(bits, parts, rows, &bytes);
            let table = &tables[..parts * bits.codes()];
            let values: Vec<f32> = table.iter().map(|byte| f32::from(*byte)).collect();
            for row in [0, rows - 1] {
                let entries = codes[row * parts..][..parts].iter().zip(table.chunks(bits.codes()));
                let sum: u32 = entries.map(|(code, table)| u32::from(table[usize::from(*code)])).sum();
                assert_eq!(packed.sum(&values, row), sum as f32);
            }
            for isa in Isa::available() {
                for k in [rows, 10] {
                    let found = packed.search(isa, &tables, k, Some(&|row| row % 3 != 1));
                    for (found, table) in found.iter().zip(tables.chunks(parts * bits.codes())) {
                        let sum = |row: &[u8]| -> u32 {
                            let entries = row.iter().zip(table.chunks(bits.codes()));
                            entries.map(|(code, table)| u32::from(table[usize::from(*code)])).sum()
                        };
                        let mut expected: Vec<(u32, f32)> =
                            (0..).zip(codes.chunks(parts).map(|row| sum(row) as f32)).collect();
                        expected.retain(|(row, _)| row % 3 != 1);
                        expected.sort_by(by_rank);
                        expected.truncate(k);
                        assert_eq!(*found, expected, "{isa:?} {bits:?} {parts}");
                    }
                }
            }
        }
    }
}
