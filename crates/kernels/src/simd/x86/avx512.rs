//! AVX-512.

use std::arch::x86_64::*;

use super::{prefetch, prefetch_ahead};
use crate::simd::{Dots, LANES, Piece, SQUARE, STRIP, Simd, tile_of_dots, tiles::avx512};

/// AVX-512 without VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// AVX-512 with VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Vnni;

/// The common part of the two AVX-512 sets: all except the tile of bytes.
macro_rules! avx512 {
    ($set:ident, $tile_i8:item) => {
        impl Simd for $set {
            const ROWS: usize = 12;
            const STRIP: usize = STRIP;
            // 64 KiB, which stay in the L2 cache; blocks for the L1 cache were no faster.
            const PIECE: usize = 512;
            const FMA: bool = true;
            type Floats = (__m512, __m512);

            #[inline(always)]
            fn prefetch<T>(values: &[T]) {
                prefetch(values);
            }

            #[inline(always)]
            unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
                // SAFETY: AVX-512, and pointers that are good for 16 rows of 16 values, by the trait's contract.
                unsafe {
                    // Loops: a closure would be compiled without AVX-512.
                    let mut rows = [_mm512_setzero_si512(); SQUARE];
                    for (row, values) in rows.iter_mut().enumerate() {
                        *values = _mm512_loadu_si512(from.add(row * stride).cast());
                    }
                    for (row, values) in transpose(rows).iter().enumerate() {
                        _mm512_storeu_si512(to.add(row * to_stride).cast(), *values);
                    }
                }
            }

            #[inline(always)]
            unsafe fn zero_floats() -> Self::Floats {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe { (_mm512_setzero_ps(), _mm512_setzero_ps()) }
            }

            #[inline(always)]
            unsafe fn load_floats(from: *const f32) -> Self::Floats {
                // SAFETY: AVX-512, and a pointer that is good for 32 values, by the trait's contract.
                unsafe { (_mm512_loadu_ps(from), _mm512_loadu_ps(from.add(16))) }
            }

            #[inline(always)]
            unsafe fn add_product(sum: Self::Floats, a: f32, b: Self::Floats) -> Self::Floats {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe {
                    let a = _mm512_set1_ps(a);
                    (_mm512_fmadd_ps(a, b.0, sum.0), _mm512_fmadd_ps(a, b.1, sum.1))
                }
            }

            #[inline(always)]
            unsafe fn store_floats(to: *mut f32, values: Self::Floats) {
                // SAFETY: AVX-512, and a pointer that is good for 32 values, by the trait's contract.
                unsafe {
                    _mm512_storeu_ps(to, values.0);
                    _mm512_storeu_ps(to.add(16), values.1);
                }
            }

            #[inline(always)]
            unsafe fn load_halves(from: *const u16) -> Self::Floats {
                // SAFETY: AVX-512, and a pointer that is good for 32 values, by the trait's contract.
                unsafe {
                    let halves = |at: usize| _mm512_cvtph_ps(_mm256_loadu_si256(from.add(at).cast()));
                    (halves(0), halves(16))
                }
            }

            #[inline(always)]
            unsafe fn add_products(sum: Self::Floats, a: Self::Floats, b: Self::Floats) -> Self::Floats {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe { (_mm512_fmadd_ps(a.0, b.0, sum.0), _mm512_fmadd_ps(a.1, b.1, sum.1)) }
            }

            type Words = (__m512i, __m512i);

            #[inline(always)]
            unsafe fn load_words(from: *const u32) -> Self::Words {
                // SAFETY: AVX-512, and a pointer that is good for 32 words, by the trait's contract.
                unsafe { (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(16).cast())) }
            }

            #[inline(always)]
            unsafe fn shift_right(words: Self::Words, bits: u32) -> Self::Words {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe {
                    let bits = _mm_cvtsi32_si128(bits as i32);
                    (_mm512_srl_epi32(words.0, bits), _mm512_srl_epi32(words.1, bits))
                }
            }

            #[inline(always)]
            unsafe fn shift_left(words: Self::Words, bits: u32) -> Self::Words {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe {
                    let bits = _mm_cvtsi32_si128(bits as i32);
                    (_mm512_sll_epi32(words.0, bits), _mm512_sll_epi32(words.1, bits))
                }
            }

            #[inline(always)]
            unsafe fn and(words: Self::Words, mask: u32) -> Self::Words {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe {
                    let mask = _mm512_set1_epi32(mask as i32);
                    (_mm512_and_si512(words.0, mask), _mm512_and_si512(words.1, mask))
                }
            }

            #[inline(always)]
            unsafe fn or(a: Self::Words, b: Self::Words) -> Self::Words {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe { (_mm512_or_si512(a.0, b.0), _mm512_or_si512(a.1, b.1)) }
            }

            #[inline(always)]
            unsafe fn integers(words: Self::Words) -> Self::Floats {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe { (_mm512_cvtepi32_ps(words.0), _mm512_cvtepi32_ps(words.1)) }
            }

            #[inline(always)]
            unsafe fn floats(words: Self::Words) -> Self::Floats {
                // SAFETY: AVX-512 by the trait's contract.
                unsafe { (_mm512_castsi512_ps(words.0), _mm512_castsi512_ps(words.1)) }
            }

            #[inline(always)]
            unsafe fn tile_f32<const M: usize>(
                depth: usize,
                a: *const f32,
                (stride, step): (usize, usize),
                panel: *const f32,
                piece: Piece,
                out: *mut [f32; LANES],
            ) {
                // SAFETY: the trait's contract.
                unsafe { avx512::floats::<M>(depth, a, (4 * stride, 4 * step), panel.cast(), piece, out.cast()) }
            }

            #[inline(always)]
            $tile_i8
        }
    };
}

avx512!(
    Vnni,
    unsafe fn tile_i8<const M: usize>(
        quads: usize,
        a: *const u8,
        stride: usize,
        panel: *const i8,
        piece: Piece,
        out: *mut [i32; LANES],
    ) {
        // SAFETY: the trait's contract.
        unsafe { avx512::bytes::<M>(quads, a, (stride, 4), panel.cast(), piece, out.cast()) }
    }
);

avx512!(
    Avx512,
    unsafe fn tile_i8<const M: usize>(
        quads: usize,
        a: *const u8,
        stride: usize,
        panel: *const i8,
        piece: Piece,
        out: *mut [i32; LANES],
    ) {
        // SAFETY: the trait's contract.
        unsafe { tile_of_dots::<Self, M>(quads, a, stride, panel, piece, out) }
    }
);

impl Dots for Avx512 {
    type Ints = (__m512i, __m512i);
    type Bytes = (__m512i, __m512i);

    #[inline(always)]
    unsafe fn zero_ints() -> Self::Ints {
        // SAFETY: AVX-512 by the trait's contract.
        unsafe { (_mm512_setzero_si512(), _mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const i8) -> Self::Bytes {
        // SAFETY: AVX-512, and a pointer that is good for 128 bytes, by the trait's contract.
        unsafe { (_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(64).cast())) }
    }

    #[inline(always)]
    unsafe fn add_dot(sum: Self::Ints, a: i32, b: Self::Bytes) -> Self::Ints {
        // SAFETY: AVX-512 by the trait's contract.
        unsafe {
            let a = _mm512_set1_epi32(a);
            (dot_without_vnni(sum.0, a, b.0), dot_without_vnni(sum.1, a, b.1))
        }
    }

    #[inline(always)]
    unsafe fn store_ints(to: *mut i32, values: Self::Ints) {
        // SAFETY: AVX-512, and a pointer that is good for 32 values, by the trait's contract.
        unsafe {
            _mm512_storeu_si512(to.cast(), values.0);
            _mm512_storeu_si512(to.add(16).cast(), values.1);
        }
    }

    #[inline(always)]
    fn prefetch_ahead<T>(from: *const T) {
        prefetch_ahead(from);
    }
}

/// The products of even and of odd bytes are summed separately, because a sum of two would overflow 16 bits.
#[inline(always)]
unsafe fn dot_without_vnni(sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: AVX-512 with BW by the caller's contract.
    unsafe {
        let (ones, low) = (_mm512_set1_epi16(1), _mm512_set1_epi16(0x00ff));
        let even = _mm512_maddubs_epi16(a, _mm512_and_si512(b, low));
        let odd = _mm512_maddubs_epi16(a, _mm512_andnot_si512(low, b));
        let products = _mm512_add_epi32(_mm512_madd_epi16(even, ones), _mm512_madd_epi16(odd, ones));
        _mm512_add_epi32(sum, products)
    }
}

/// Transposes sixteen rows of sixteen 32-bit values.
#[target_feature(enable = "avx512f")]
pub(crate) fn transpose(rows: [__m512i; SQUARE]) -> [__m512i; SQUARE] {
    // In each quarter of a vector, groups of four rows become columns.
    let mut fours = [_mm512_setzero_si512(); SQUARE];
    for (rows, fours) in rows.as_chunks::<4>().0.iter().zip(fours.as_chunks_mut::<4>().0) {
        let (low, high) = (_mm512_unpacklo_epi32(rows[0], rows[1]), _mm512_unpackhi_epi32(rows[0], rows[1]));
        let (low2, high2) =
            (_mm512_unpacklo_epi32(rows[2], rows[3]), _mm512_unpackhi_epi32(rows[2], rows[3]));
        *fours = [
            _mm512_unpacklo_epi64(low, low2),
            _mm512_unpackhi_epi64(low, low2),
            _mm512_unpacklo_epi64(high, high2),
            _mm512_unpackhi_epi64(high, high2),
        ];
    }
    // Then quarters are exchanged.
    let mut columns = fours;
    for at in 0..4 {
        let (even, odd) = (
            _mm512_shuffle_i32x4::<0b10_00_10_00>(fours[at], fours[4 + at]),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(fours[at], fours[4 + at]),
        );
        let (even2, odd2) = (
            _mm512_shuffle_i32x4::<0b10_00_10_00>(fours[8 + at], fours[12 + at]),
            _mm512_shuffle_i32x4::<0b11_01_11_01>(fours[8 + at], fours[12 + at]),
        );
        columns[at] = _mm512_shuffle_i32x4::<0b10_00_10_00>(even, even2);
        columns[4 + at] = _mm512_shuffle_i32x4::<0b10_00_10_00>(odd, odd2);
        columns[8 + at] = _mm512_shuffle_i32x4::<0b11_01_11_01>(even, even2);
        columns[12 + at] = _mm512_shuffle_i32x4::<0b11_01_11_01>(odd, odd2);
    }
    columns
}
