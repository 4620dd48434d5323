//! 4-bit codes looked up for several queries. A block's codes are rearranged once for all of them. Then two
//! instructions look up and sum four parts of 16 rows (AVX-512 VBMI and VNNI).

use std::arch::x86_64::*;

use super::{Codes, ROWS};
use crate::{
    isa::Isa,
    pq::lookup::{has_vbmi, reaching_avx512},
    scan::{Filter, best},
    top::Top,
};

/// The number of queries that share a rearranged block: their tables stay in the L2 cache.
const TOGETHER: usize = 64;

/// Fewer queries are faster without rearrangement.
const FEWEST: usize = 4;

/// An aligned vector, because unaligned ones across two cache lines are read twice.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u8; 64]);

impl Line {
    const ZERO: Self = Self([0; 64]);

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load(&self) -> __m512i {
        // SAFETY: a line has 64 bytes and their alignment.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn store(&mut self, values: __m512i) {
        // SAFETY: as above.
        unsafe { _mm512_store_si512(self.0.as_mut_ptr().cast(), values) };
    }
}

/// The indices of eight parts of a block: four lines of the even parts and four of the odd ones. Each line
/// has 16 rows with four parts next to each other. Line `v` has the rows `4 v` to `4 v + 3` of every 16 rows.
type Indices = [[Line; 4]; 2];
/// The tables of eight parts: the even ones, and the odd ones.
type Tables = [Line; 2];

/// Whether this number of queries is large enough, and the machine has the instructions.
pub(super) fn is_faster(isa: Isa, queries: usize) -> bool {
    queries >= FEWEST && isa >= Isa::Vnni && has_vbmi()
}

impl Codes<'_> {
    /// As [`search`](Self::search), if [`is_faster`].
    pub(super) fn search_together(
        &self,
        tables: &[u8],
        k: usize,
        filter: Option<Filter<'_>>,
    ) -> Vec<Vec<(u32, f32)>> {
        assert!(Isa::detected() >= Isa::Vnni && has_vbmi());
        let eights = self.parts.div_ceil(8);
        let tables = arranged(tables, self.parts);
        best(self.chunks(), tables.len() / eights, k, &|chunk, tops| {
            let mut indices = vec![[[Line::ZERO; 4]; 2]; eights];
            let share = |(tables, tops): (&[Tables], &mut [Top])| {
                for block in self.blocks(chunk) {
                    // SAFETY: the assertion above.
                    unsafe { spread(self.block(block), &mut indices) };
                    for (tables, top) in tables.chunks_exact(eights).zip(&mut *tops) {
                        self.offer(block, top, filter, |least, sums| {
                            // SAFETY: as above.
                            unsafe { sum(&indices, tables, least, sums) }
                        });
                    }
                }
            };
            tables.chunks(TOGETHER * eights).zip(tops.chunks_mut(TOGETHER)).for_each(share);
        })
    }
}

/// The tables of queries, each of `parts` parts of 16 entries, padded with zeros to a multiple of eight
/// parts.
fn arranged(tables: &[u8], parts: usize) -> Vec<Tables> {
    let eights = parts.div_ceil(8);
    let mut out = vec![[Line::ZERO; 2]; tables.len() / (parts * 16) * eights];
    for (out, tables) in out.chunks_exact_mut(eights).zip(tables.chunks_exact(parts * 16)) {
        for (part, table) in tables.as_chunks::<16>().0.iter().enumerate() {
            out[part / 8][part % 2].0[part % 8 / 2 * 16..][..16].copy_from_slice(table);
        }
    }
    out
}

/// Computes indices into the tables of four parts from a block's codes.
#[target_feature(enable = "avx512f,avx512bw")]
fn spread(block: &[u8], indices: &mut [Indices]) {
    let low = _mm512_set1_epi8(15);
    let parts = _mm512_set1_epi32(0x3020_1000);
    for (codes, [even, odd]) in block.chunks(4 * ROWS).zip(indices) {
        let mut of = [_mm512_setzero_si512(); 4];
        for (of, codes) in of.iter_mut().zip(codes.as_chunks::<ROWS>().0) {
            // SAFETY: 64 bytes.
            *of = unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) };
        }
        let [a, b, c, d] = of;
        let (lower, upper) = (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d));
        let first = [_mm512_unpacklo_epi16(lower, upper), _mm512_unpackhi_epi16(lower, upper)];
        let (lower, upper) = (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d));
        let second = [_mm512_unpacklo_epi16(lower, upper), _mm512_unpackhi_epi16(lower, upper)];
        for (at, codes) in [first[0], first[1], second[0], second[1]].into_iter().enumerate() {
            even[at].store(_mm512_or_si512(_mm512_and_si512(codes, low), parts));
            let codes = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), low);
            odd[at].store(_mm512_or_si512(codes, parts));
        }
    }
}

/// The sums of a block. A bit for each row whose sum is at least `least`; without one there are no sums.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vnni")]
fn sum(indices: &[Indices], tables: &[Tables], least: u16, sums: &mut [u16; ROWS]) -> u64 {
    let ones = _mm512_set1_epi8(1);
    // Twice as many sums as rows, because each addition takes several cycles.
    let mut found = [[_mm512_setzero_si512(); 4]; 2];
    for (indices, tables) in indices.iter().zip(tables) {
        for ((found, indices), table) in found.iter_mut().zip(indices).zip(tables) {
            let table = table.load();
            for (sum, index) in found.iter_mut().zip(indices) {
                *sum = _mm512_dpbusd_epi32(*sum, _mm512_permutexvar_epi8(index.load(), table), ones);
            }
        }
    }
    let bound = _mm512_set1_epi32(i32::from(least));
    let [mut all, odd] = found;
    let mut reached = 0;
    for (sum, odd) in all.iter_mut().zip(odd) {
        *sum = _mm512_add_epi32(*sum, odd);
        reached |= _mm512_cmpge_epi32_mask(*sum, bound);
    }
    if reached == 0 {
        return 0;
    }
    let [first, second, third, fourth] = all;
    let (mut lower, mut upper) = ([0u16; 32], [0u16; 32]);
    // SAFETY: both arrays have 64 bytes.
    unsafe {
        _mm512_storeu_si512(lower.as_mut_ptr().cast(), _mm512_packus_epi32(first, second));
        _mm512_storeu_si512(upper.as_mut_ptr().cast(), _mm512_packus_epi32(third, fourth));
    }
    let eights = lower.as_chunks::<8>().0.iter().zip(upper.as_chunks::<8>().0);
    for (sums, (lower, upper)) in sums.as_chunks_mut::<16>().0.iter_mut().zip(eights) {
        sums[..8].copy_from_slice(lower);
        sums[8..].copy_from_slice(upper);
    }
    reaching_avx512(least, sums)
}
