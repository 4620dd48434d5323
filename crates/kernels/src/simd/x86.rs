//! The instruction sets of x86-64.

use std::arch::x86_64::*;

use super::{AHEAD, Simd};

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
    const ROWS: usize = 2;
    const FMA: bool = true;
    type Floats = [__m256; 4];
    type Ints = [__m256i; 4];
    type Bytes = [__m256i; 4];

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
    unsafe fn zero_ints() -> Self::Ints {
        // SAFETY: the machine has AVX2 by the trait's contract.
        unsafe { [_mm256_setzero_si256(); 4] }
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const i8) -> Self::Bytes {
        // SAFETY: AVX2, and a pointer that is good for 128 bytes, by the trait's contract.
        unsafe { std::array::from_fn(|i| _mm256_loadu_si256(from.add(32 * i).cast())) }
    }

    /// The products of even and of odd bytes are summed apart, since a sum of two would not fit 16 bits.
    #[inline(always)]
    unsafe fn add_dot(mut sum: Self::Ints, a: i32, b: Self::Bytes) -> Self::Ints {
        // SAFETY: the machine has AVX2 by the trait's contract.
        unsafe {
            let a = _mm256_set1_epi32(a);
            let (ones, low) = (_mm256_set1_epi16(1), _mm256_set1_epi16(0x00ff));
            for i in 0..4 {
                let even = _mm256_maddubs_epi16(a, _mm256_and_si256(b[i], low));
                let odd = _mm256_maddubs_epi16(a, _mm256_andnot_si256(low, b[i]));
                let even = _mm256_madd_epi16(even, ones);
                let odd = _mm256_madd_epi16(odd, ones);
                sum[i] = _mm256_add_epi32(sum[i], _mm256_add_epi32(even, odd));
            }
        }
        sum
    }

    #[inline(always)]
    unsafe fn store_ints(to: *mut i32, values: Self::Ints) {
        // SAFETY: AVX2, and a pointer that is good for 32 values, by the trait's contract.
        unsafe {
            for (i, values) in values.into_iter().enumerate() {
                _mm256_storeu_si256(to.add(8 * i).cast(), values);
            }
        }
    }
}

/// What the two AVX-512 sets share: all but the dot product of bytes.
macro_rules! avx512 {
    ($set:ident, $dot:expr) => {
        impl Simd for $set {
            const ROWS: usize = 12;
            const FMA: bool = true;
            type Floats = (__m512, __m512);
            type Ints = (__m512i, __m512i);
            type Bytes = (__m512i, __m512i);

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
                // SAFETY: AVX-512 by the trait's contract, with VNNI where the dot product uses it.
                unsafe {
                    let a = _mm512_set1_epi32(a);
                    ($dot(sum.0, a, b.0), $dot(sum.1, a, b.1))
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
    };
}

avx512!(Vnni, _mm512_dpbusd_epi32);
avx512!(Avx512, dot_without_vnni);

/// As in `Avx2`: even and odd bytes apart.
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
