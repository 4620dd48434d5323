//! AVX2.

use std::arch::{asm, x86_64::*};

use super::{prefetch, prefetch_ahead};
use crate::simd::{LANES, Piece, Prefetch, Simd, tiles::avx2};

/// AVX2 with FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

impl Simd for Avx2 {
    const ROWS: usize = 6;
    const STRIP: usize = 48;
    const PIECE: usize = 128;
    const INPUT: usize = 2;
    const FMA: bool = true;
    type Floats = [__m256; 4];

    #[inline(always)]
    fn prefetch<T>(values: &[T]) {
        prefetch(values);
    }

    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
        for (row, column) in [(0, 0), (0, 8), (8, 0), (8, 8)] {
            // SAFETY: AVX2, and pointers valid for 16 rows of 16 values, by the trait's contract.
            unsafe {
                let (from, to) = (from.add(row * stride + column), to.add(column * to_stride + row));
                transpose(from, stride, to, to_stride);
            }
        }
    }

    #[inline(always)]
    unsafe fn zero_floats() -> Self::Floats {
        // SAFETY: the machine has AVX2 by the trait's contract.
        unsafe { [_mm256_setzero_ps(); 4] }
    }

    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> Self::Floats {
        // SAFETY: AVX2, and a pointer that is good for 32 values, by the trait's contract.
        unsafe { std::array::from_fn(|i| _mm256_loadu_ps(from.add(8 * i))) }
    }

    #[inline(always)]
    unsafe fn add_product(mut sum: Self::Floats, a: f32, b: Self::Floats) -> Self::Floats {
        // SAFETY: AVX2 and FMA by the trait's contract.
        unsafe {
            let a = _mm256_set1_ps(a);
            for i in 0..4 {
                sum[i] = _mm256_fmadd_ps(a, b[i], sum[i]);
            }
        }
        sum
    }

    #[inline(always)]
    unsafe fn store_floats(to: *mut f32, values: Self::Floats) {
        // SAFETY: AVX2, and a pointer that is good for 32 values, by the trait's contract.
        unsafe {
            for (i, values) in values.into_iter().enumerate() {
                _mm256_storeu_ps(to.add(8 * i), values);
            }
        }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u16) -> Self::Floats {
        // SAFETY: AVX2 with F16C, and a pointer that is good for 32 values, by the trait's contract.
        unsafe { std::array::from_fn(|i| _mm256_cvtph_ps(_mm_loadu_si128(from.add(8 * i).cast()))) }
    }

    #[inline(always)]
    unsafe fn add_products(mut sum: Self::Floats, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: AVX2 and FMA by the trait's contract.
        unsafe {
            for i in 0..4 {
                sum[i] = _mm256_fmadd_ps(a[i], b[i], sum[i]);
            }
        }
        sum
    }

    type Words = [__m256i; 4];

    #[inline(always)]
    unsafe fn load_words(from: *const u32) -> Self::Words {
        // SAFETY: AVX2, and a pointer that is good for 32 words, by the trait's contract.
        unsafe { std::array::from_fn(|i| _mm256_loadu_si256(from.add(8 * i).cast())) }
    }

    #[inline(always)]
    unsafe fn shift_right(mut words: Self::Words, bits: u32) -> Self::Words {
        // SAFETY: AVX2 by the trait's contract.
        unsafe {
            let bits = _mm_cvtsi32_si128(bits as i32);
            for words in &mut words {
                *words = _mm256_srl_epi32(*words, bits);
            }
        }
        words
    }

    #[inline(always)]
    unsafe fn shift_left(mut words: Self::Words, bits: u32) -> Self::Words {
        // SAFETY: AVX2 by the trait's contract.
        unsafe {
            let bits = _mm_cvtsi32_si128(bits as i32);
            for words in &mut words {
                *words = _mm256_sll_epi32(*words, bits);
            }
        }
        words
    }

    #[inline(always)]
    unsafe fn and(mut words: Self::Words, mask: u32) -> Self::Words {
        // SAFETY: AVX2 by the trait's contract.
        unsafe {
            let mask = _mm256_set1_epi32(mask as i32);
            for words in &mut words {
                *words = _mm256_and_si256(*words, mask);
            }
        }
        words
    }

    #[inline(always)]
    unsafe fn or(mut a: Self::Words, b: Self::Words) -> Self::Words {
        // SAFETY: AVX2 by the trait's contract.
        unsafe {
            for i in 0..4 {
                a[i] = _mm256_or_si256(a[i], b[i]);
            }
        }
        a
    }

    #[inline(always)]
    unsafe fn integers(words: Self::Words) -> Self::Floats {
        // SAFETY: AVX2 by the trait's contract.
        unsafe {
            let mut floats = Self::zero_floats();
            for i in 0..4 {
                floats[i] = _mm256_cvtepi32_ps(words[i]);
            }
            floats
        }
    }

    #[inline(always)]
    unsafe fn floats(words: Self::Words) -> Self::Floats {
        // SAFETY: AVX2 by the trait's contract.
        unsafe {
            let mut floats = Self::zero_floats();
            for i in 0..4 {
                floats[i] = _mm256_castsi256_ps(words[i]);
            }
            floats
        }
    }

    #[inline(always)]
    unsafe fn tile_f32<const M: usize>(
        depth: usize,
        a: *const f32,
        strides: (usize, usize),
        panel: *const f32,
        piece: Piece,
        out: *mut [f32; LANES],
    ) {
        if M < MANY || matches!(piece.prefetch, Prefetch::Ahead) {
            // SAFETY: the trait's contract.
            return unsafe { float_tile::<f32, M>(depth, a, strides, panel, piece, out) };
        }
        let strides = (4 * strides.0, 4 * strides.1);
        for (first, piece) in halves(piece) {
            // SAFETY: the trait's contract; a row of a panel is twice 16 values.
            unsafe {
                let (panel, out) = (panel.add(first).cast(), out.cast::<f32>().add(first).cast());
                avx2::floats::<M>(depth, a, strides, panel, piece, out);
            }
        }
    }

    #[inline(always)]
    unsafe fn tile_f16<const M: usize>(
        depth: usize,
        a: *const f32,
        stride: usize,
        panel: *const u16,
        piece: Piece,
        out: *mut [f32; LANES],
    ) {
        // SAFETY: the trait's contract.
        unsafe { float_tile::<u16, M>(depth, a, (stride, 1), panel, piece, out) }
    }

    #[inline(always)]
    unsafe fn tile_i8<const M: usize>(
        quads: usize,
        a: *const u8,
        stride: usize,
        panel: *const i8,
        piece: Piece,
        out: *mut [i32; LANES],
    ) {
        if M >= MANY && !matches!(piece.prefetch, Prefetch::Ahead) {
            for (first, piece) in halves(piece) {
                // SAFETY: the trait's contract; a row of a panel is twice 16 times four values.
                unsafe {
                    let (panel, out) = (panel.add(4 * first).cast(), out.cast::<i32>().add(first).cast());
                    avx2::bytes::<M>(quads, a, (stride, 8), panel, piece, out);
                }
            }
            return;
        }
        // SAFETY: the trait's contract.
        unsafe {
            if M <= WHOLE {
                int_columns::<4, M>(quads, a, stride, panel, piece, out.cast());
            } else {
                for first in [0, 16] {
                    let out = out.cast::<i32>().add(first);
                    int_columns::<2, M>(quads, a, stride, panel.add(4 * first), piece, out);
                }
            }
        }
    }
}

/// The tile height of [`tiles::avx2`](super::tiles::avx2), for strips with too many rows for prefetching
/// ahead. With fewer rows, prefetching matters more than the speed of computation.
const MANY: usize = 5;

/// The first 16 columns and then the others; the first prefetch the tile's share.
fn halves(piece: Piece) -> [(usize, Piece); 2] {
    [(0, piece), (16, Piece { prefetch: Prefetch::Nothing, ..piece })]
}

/// The size of a panel's row in bytes, except in f16.
const ROW: usize = 4 * LANES;

/// The prefetch distance into the L1 cache, in rows of a panel.
const SOON: usize = 16;

/// Larger tiles are computed 16 columns at a time: then the sums of six rows fit AVX2's registers, and panel
/// values are reused for all rows.
const WHOLE: usize = 2;

/// Prefetches the data after `from`, for panels from memory that are multiplied by few rows. The hardware
/// prefetcher follows whole rows, but not half rows. Half rows are read repeatedly, so the next block can be
/// prefetched in the meantime. With more rows this would only take time.
#[inline(always)]
fn prefetch_columns<T, const N: usize>(from: *const T) {
    if N == 4 {
        return prefetch_ahead(from);
    }
    // SAFETY: as in `prefetch_ahead`.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(SOON * ROW / size_of::<T>()).cast());
        _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(Avx2::PIECE * ROW / size_of::<T>()).cast());
    }
}

/// The value type of a panel.
trait Stored: Copy {
    /// Eight values as f32.
    ///
    /// # Safety
    /// The machine must have AVX2 and F16C, and `from` must be valid for eight values.
    unsafe fn load(from: *const Self) -> __m256;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> __m256 {
        // SAFETY: the contract.
        unsafe { _mm256_loadu_ps(from) }
    }
}

/// The bits of an f16.
impl Stored for u16 {
    #[inline(always)]
    unsafe fn load(from: *const Self) -> __m256 {
        // SAFETY: the contract.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }
}

/// [`Simd::tile_f32`], and [`Simd::tile_f16`].
///
/// # Safety
/// As for those.
#[inline(always)]
unsafe fn float_tile<T: Stored, const M: usize>(
    depth: usize,
    a: *const f32,
    strides: (usize, usize),
    panel: *const T,
    piece: Piece,
    out: *mut [f32; LANES],
) {
    // SAFETY: the contract; a row of a panel is twice 16 values.
    unsafe {
        if M <= WHOLE {
            float_columns::<T, 4, M>(depth, a, strides, panel, piece, out.cast());
        } else {
            for first in [0, 16] {
                float_columns::<T, 2, M>(
                    depth,
                    a,
                    strides,
                    panel.add(first),
                    piece,
                    out.cast::<f32>().add(first),
                );
            }
        }
    }
}

/// The products of `M` rows and `N` times eight columns, starting at `panel` and at `out`.
///
/// # Safety
/// As for [`Simd::tile_f32`].
#[inline(always)]
unsafe fn float_columns<T: Stored, const N: usize, const M: usize>(
    depth: usize,
    a: *const f32,
    (stride, step): (usize, usize),
    panel: *const T,
    piece: Piece,
    out: *mut f32,
) {
    // SAFETY: the contract. No closures: see `microkernel::tiles`.
    unsafe {
        let mut sums = [[_mm256_setzero_ps(); N]; M];
        if piece.adds {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_loadu_ps(out.add(row * LANES + 8 * i));
                }
            }
        }
        for at in 0..depth {
            let from = panel.add(at * LANES);
            if let Prefetch::Ahead = piece.prefetch {
                prefetch_columns::<_, N>(from);
            }
            let mut b = [_mm256_setzero_ps(); N];
            for (i, b) in b.iter_mut().enumerate() {
                *b = T::load(from.add(8 * i));
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let a = _mm256_set1_ps(*a.add(row * stride + at * step));
                for i in 0..N {
                    sums[i] = _mm256_fmadd_ps(a, b[i], sums[i]);
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (i, sum) in sums.iter().enumerate() {
                _mm256_storeu_ps(out.add(row * LANES + 8 * i), *sum);
            }
        }
    }
}

/// An optimisation barrier for `values`. Otherwise the compiler would first add two products, which needs too
/// many registers.
#[inline]
#[target_feature(enable = "avx2")]
fn as_it_is(mut values: __m256i) -> __m256i {
    // SAFETY: it does nothing.
    unsafe { asm!("/* {0} */", inout(ymm_reg) values, options(pure, nomem, nostack, preserves_flags)) };
    values
}

/// The products of `M` rows in 16 bits and `N` times eight columns in 8 bits, starting at `panel` and at
/// `out`. Products of the first and the third byte of four are summed by one instruction, and of the second
/// and the fourth by another, with 16-bit inputs. The instruction for pairs of bytes would overflow.
///
/// # Safety
/// As for [`Simd::tile_i8`].
#[inline(always)]
unsafe fn int_columns<const N: usize, const M: usize>(
    quads: usize,
    a: *const u8,
    stride: usize,
    panel: *const i8,
    piece: Piece,
    out: *mut i32,
) {
    // SAFETY: the contract. No closures: see `microkernel::tiles`.
    unsafe {
        let mut sums = [[_mm256_setzero_si256(); N]; M];
        if piece.adds {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm256_loadu_si256(out.add(row * LANES + 8 * i).cast());
                }
            }
        }
        for at in 0..quads {
            let from = panel.add(4 * at * LANES);
            if let Prefetch::Ahead = piece.prefetch {
                prefetch_columns::<_, N>(from);
            }
            for pair in 0..2 {
                let mut b = [_mm256_setzero_si256(); N];
                for (i, b) in b.iter_mut().enumerate() {
                    let bytes = _mm256_loadu_si256(from.add(32 * i).cast());
                    let bytes = if pair == 0 { _mm256_slli_epi16::<8>(bytes) } else { bytes };
                    *b = _mm256_srai_epi16::<8>(bytes);
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let inputs = a.add(row * stride + 8 * at + 4 * pair).cast::<i32>();
                    let inputs = _mm256_set1_epi32(inputs.read_unaligned());
                    for i in 0..N {
                        sums[i] = as_it_is(_mm256_add_epi32(sums[i], _mm256_madd_epi16(inputs, b[i])));
                    }
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            for (i, sum) in sums.iter().enumerate() {
                _mm256_storeu_si256(out.add(row * LANES + 8 * i).cast(), *sum);
            }
        }
    }
}

/// Transposes 8 by 8 values.
///
/// # Safety
/// The machine must have AVX2, and the pointers must be valid for 8 rows of 8 values.
#[inline(always)]
unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
    // SAFETY: the contract.
    unsafe {
        for column in [0, 4] {
            // Combines four values of the rows `r` and `4 + r`. No closure, which would be compiled without
            // AVX2.
            let mut rows = [_mm256_setzero_ps(); 4];
            for (row, values) in rows.iter_mut().enumerate() {
                let from = from.add(row * stride + column);
                let low = _mm256_castps128_ps256(_mm_loadu_ps(from));
                *values = _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(from.add(4 * stride)));
            }
            let [a, b, c, d] = rows;
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            let (low2, high2) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
            let columns = [
                _mm256_shuffle_ps::<0b01_00_01_00>(low, low2),
                _mm256_shuffle_ps::<0b11_10_11_10>(low, low2),
                _mm256_shuffle_ps::<0b01_00_01_00>(high, high2),
                _mm256_shuffle_ps::<0b11_10_11_10>(high, high2),
            ];
            for (at, values) in columns.iter().enumerate() {
                _mm256_storeu_ps(to.add((column + at) * to_stride), *values);
            }
        }
    }
}
