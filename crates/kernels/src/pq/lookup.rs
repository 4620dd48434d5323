//! Table look-ups of a byte for each row of a block of 64, and their sums.

use std::{arch::x86_64::*, sync::OnceLock};

use crate::pq::reaching;

const ROWS: usize = 64;

/// Whether bytes can be permuted across a whole vector.
pub(crate) fn has_vbmi() -> bool {
    static VBMI: OnceLock<bool> = OnceLock::new();
    *VBMI.get_or_init(|| is_x86_feature_detected!("avx512vbmi"))
}

/// Two parts in a byte, 16 entries a part. A bit for each row whose sum is at least `least`.
#[target_feature(enable = "avx2")]
pub(crate) fn four_avx2(block: &[u8], table: &[u8], least: u16, sums: &mut [u16; ROWS]) -> u64 {
    let low = _mm256_set1_epi8(15);
    let bytes = _mm256_set1_epi16(0x00ff);
    for (half, sums) in sums.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        // Bytes of even and of odd rows are summed separately.
        let (mut even, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for (codes, table) in block.as_chunks::<ROWS>().0.iter().zip(table.as_chunks::<32>().0) {
            // SAFETY: 32 bytes of the block's 64 from `32 * half` on, and the 32 bytes of two parts' tables.
            let (codes, lower, upper) = unsafe {
                (
                    _mm256_loadu_si256(codes.as_ptr().add(32 * half).cast()),
                    _mm_loadu_si128(table.as_ptr().cast()),
                    _mm_loadu_si128(table.as_ptr().add(16).cast()),
                )
            };
            let first = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(lower), _mm256_and_si256(codes, low));
            let codes = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), low);
            let second = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(upper), codes);
            for found in [first, second] {
                even = _mm256_add_epi16(even, _mm256_and_si256(found, bytes));
                odd = _mm256_add_epi16(odd, _mm256_srli_epi16::<8>(found));
            }
        }
        let (mut evens, mut odds) = ([0u16; 16], [0u16; 16]);
        // SAFETY: both arrays have 32 bytes.
        unsafe {
            _mm256_storeu_si256(evens.as_mut_ptr().cast(), even);
            _mm256_storeu_si256(odds.as_mut_ptr().cast(), odd);
        }
        interleave(&evens, &odds, sums);
    }
    reaching(least, sums)
}

/// Two parts in a byte, 16 entries a part. A bit for each row whose sum is at least `least`; without one
/// there are no sums.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) fn four_avx512(block: &[u8], table: &[u8], least: u16, sums: &mut [u16; ROWS]) -> u64 {
    let low = _mm512_set1_epi8(15);
    let mut both = Sums::default();
    for (codes, table) in block.as_chunks::<ROWS>().0.iter().zip(table.as_chunks::<32>().0) {
        // SAFETY: a block's 64 bytes, and the 32 bytes of two parts' tables.
        let (codes, lower, upper) = unsafe {
            (
                _mm512_loadu_si512(codes.as_ptr().cast()),
                _mm_loadu_si128(table.as_ptr().cast()),
                _mm_loadu_si128(table.as_ptr().add(16).cast()),
            )
        };
        let first = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(lower), _mm512_and_si512(codes, low));
        let codes = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), low);
        let second = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(upper), codes);
        both.add(first);
        both.add(second);
    }
    both.store(least, sums)
}

/// As [`reaching`].
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub(crate) fn reaching_avx512(least: u16, sums: &[u16; ROWS]) -> u64 {
    let bound = _mm512_set1_epi16(least as i16);
    // SAFETY: 32 of 64 sums.
    let (lower, upper) = unsafe {
        (_mm512_loadu_si512(sums.as_ptr().cast()), _mm512_loadu_si512(sums.as_ptr().add(32).cast()))
    };
    let (lower, upper) = (_mm512_cmpge_epu16_mask(lower, bound), _mm512_cmpge_epu16_mask(upper, bound));
    u64::from(lower) | u64::from(upper) << 32
}

/// One part in a byte, 256 entries a part. A bit for each row whose sum is at least `least`; without one
/// there are no sums.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(crate) fn eight_vbmi(block: &[u8], table: &[u8], least: u16, sums: &mut [u16; ROWS]) -> u64 {
    let mut both = Sums::default();
    for (codes, table) in block.as_chunks::<ROWS>().0.iter().zip(table.as_chunks::<256>().0) {
        // SAFETY: a block's 64 bytes, and the 256 bytes of a part's table.
        let (codes, table) = unsafe {
            let quarter = |at: usize| _mm512_loadu_si512(table.as_ptr().add(64 * at).cast());
            (_mm512_loadu_si512(codes.as_ptr().cast()), [quarter(0), quarter(1), quarter(2), quarter(3)])
        };
        let lower = _mm512_permutex2var_epi8(table[0], codes, table[1]);
        let upper = _mm512_permutex2var_epi8(table[2], codes, table[3]);
        both.add(_mm512_mask_blend_epi8(_mm512_movepi8_mask(codes), lower, upper));
    }
    both.store(least, sums)
}

/// Sums of 64 rows: of odd ones, and of even ones plus 256 times the odd ones. The latter overflow, and a
/// wrapping subtraction corrects them.
struct Sums {
    both: __m512i,
    odd: __m512i,
}

impl Sums {
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn default() -> Self {
        Self { both: _mm512_setzero_si512(), odd: _mm512_setzero_si512() }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn add(&mut self, found: __m512i) {
        self.both = _mm512_add_epi16(self.both, found);
        self.odd = _mm512_add_epi16(self.odd, _mm512_srli_epi16::<8>(found));
    }

    /// Writes the sums if one is at least `least`.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn store(&self, least: u16, sums: &mut [u16; ROWS]) -> u64 {
        let even = _mm512_sub_epi16(self.both, _mm512_slli_epi16::<8>(self.odd));
        let bound = _mm512_set1_epi16(least as i16);
        if _mm512_cmpge_epu16_mask(even, bound) == 0 && _mm512_cmpge_epu16_mask(self.odd, bound) == 0 {
            return 0;
        }
        let (mut evens, mut odds) = ([0u16; 32], [0u16; 32]);
        // SAFETY: both arrays have 64 bytes.
        unsafe {
            _mm512_storeu_si512(evens.as_mut_ptr().cast(), even);
            _mm512_storeu_si512(odds.as_mut_ptr().cast(), self.odd);
        }
        interleave(&evens, &odds, sums);
        reaching_avx512(least, sums)
    }
}

#[inline(always)]
fn interleave(evens: &[u16], odds: &[u16], sums: &mut [u16]) {
    for ((sums, even), odd) in sums.as_chunks_mut::<2>().0.iter_mut().zip(evens).zip(odds) {
        *sums = [*even, *odd];
    }
}
