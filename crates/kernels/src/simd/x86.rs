//! The instruction sets of x86-64.

use std::arch::{asm, x86_64::*};

use super::{
    AHEAD, Asks, Dots, LANES, Piece, STRIP, Simd, tile_of_dots,
    tiles::{bytes, floats},
};

/// AVX2 with FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// AVX-512 without VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

/// AVX-512 with VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Vnni;

/// The bytes of a line of the caches.
const LINE: usize = 64;

/// Asks for each cache line of `values`.
#[inline(always)]
fn prefetch<T>(values: &[T]) {
    for at in (0..size_of_val(values)).step_by(LINE) {
        // SAFETY: every x86-64 machine has SSE, the address lies in `values`, and no memory is changed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(values.as_ptr().cast::<i8>().add(at)) };
    }
}

/// Asks for two cache lines, [`AHEAD`] bytes after `from`, into the second cache.
#[inline(always)]
fn prefetch_ahead<T>(from: *const T) {
    for line in 0..2 {
        let from = from.cast::<i8>().wrapping_add(AHEAD + line * LINE);
        // SAFETY: every x86-64 machine has SSE, and asking for memory neither changes it nor fails where there is none.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from) };
    }
}

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
    fn prefetch_ahead<T>(from: *const T) {
        prefetch_ahead(from);
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

    #[inline(always)]
    unsafe fn tile_f32<const M: usize>(
        depth: usize,
        a: *const f32,
        strides: (usize, usize),
        panel: *const f32,
        piece: Piece,
        out: *mut [f32; LANES],
    ) {
        // SAFETY: the trait's contract.
        unsafe { float_tile::<f32, M>(depth, a, strides, panel, piece, out) }
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

/// The bytes of a panel's row, but for one in f16.
const ROW: usize = 4 * LANES;

/// The rows of a panel, ahead of what is read, that are asked for into the first cache.
const SOON: usize = 16;

/// Tiles of more rows are computed sixteen columns after sixteen: the sums of six rows fit AVX2's registers then, and what is read
/// of a panel is used for all of them.
const WHOLE: usize = 2;

/// Asks for what is read behind `from`, of a row of a panel that only a few rows are multiplied by and that comes from memory. Whole
/// rows are read one after the other, while half of each row leaves the processor no run to follow; such halves are read again and
/// again, so the next piece can be asked for meanwhile. Beside more rows it would only take time from them.
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

/// What a panel of numbers holds.
trait Stored: Copy {
    /// Eight values as f32.
    ///
    /// # Safety
    /// The machine must have AVX2 and F16C, and `from` be good for eight values.
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

/// The sums of `M` rows and `N` times eight columns: those that begin at `panel` and at `out`.
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
    // SAFETY: the contract. No closures: see `strip::tiles`.
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
            if let Asks::Ahead = piece.asks {
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

/// `values`, which the compiler must have at this place: it would make one sum of two products first otherwise, for which it needs
/// more registers than there are.
#[inline]
#[target_feature(enable = "avx2")]
fn as_it_is(mut values: __m256i) -> __m256i {
    // SAFETY: it does nothing.
    unsafe { asm!("/* {0} */", inout(ymm_reg) values, options(pure, nomem, nostack, preserves_flags)) };
    values
}

/// The sums of `M` rows in 16 bits and `N` times eight columns in 8 bits: those that begin at `panel` and at `out`. Products of the
/// first and the third byte of four are summed, and of the second and the fourth, each pair by one instruction, whose inputs have 16
/// bits; the one for pairs of bytes has no room for the sum.
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
    // SAFETY: the contract. No closures: see `strip::tiles`.
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
            if let Asks::Ahead = piece.asks {
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

/// What the two AVX-512 sets share: all but the tile of bytes.
macro_rules! avx512 {
    ($set:ident, $tile_i8:item) => {
        impl Simd for $set {
            const ROWS: usize = 12;
            const STRIP: usize = STRIP;
            // 64 KiB, which stay in the second cache; what the first has room for brought no more.
            const PIECE: usize = 512;
            const FMA: bool = true;
            type Floats = (__m512, __m512);

            #[inline(always)]
            fn prefetch<T>(values: &[T]) {
                prefetch(values);
            }

            #[inline(always)]
            fn prefetch_ahead<T>(from: *const T) {
                prefetch_ahead(from);
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
                unsafe { floats::<M>(depth, a, (4 * stride, 4 * step), panel.cast(), piece, out.cast()) }
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
        unsafe { bytes::<M>(quads, a, (stride, 4), panel.cast(), piece, out.cast()) }
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
}

/// The products of even and of odd bytes are summed apart, since a sum of two would not fit 16 bits.
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
