//! Thirty-two lanes of each instruction set, and the innermost loops of a product over them.

use half::f16;

/// The columns of a panel: what one row of a tile holds in registers.
pub(crate) const LANES: usize = 32;
/// The most rows of a tile on any instruction set.
pub(crate) const MOST_ROWS: usize = 12;

/// How far ahead of its reads a tile asks for memory. The processor's own guesses keep too few reads under way where a tile has
/// several rows: with eight, Sapphire Rapids read 21 GB/s of weights on two cores, and 50 GB/s asked so; at 4 KiB 43, and beyond
/// 8 KiB no more.
pub(crate) const AHEAD: usize = 8 << 10;

/// Thirty-two lanes.
///
/// # Safety
/// Of every function: the machine must have the instruction set, and a pointer must be good for all lanes (32 values;
/// 128 bytes for `load_bytes`). No alignment is needed.
pub(crate) trait Simd: Copy {
    /// The most rows of a tile that fit the registers.
    const ROWS: usize;
    /// Whether `mul_add` is one instruction.
    const FMA: bool;
    type Floats: Copy;
    type Ints: Copy;
    type Bytes: Copy;

    unsafe fn zero_floats() -> Self::Floats;
    unsafe fn load_floats(from: *const f32) -> Self::Floats;
    /// `sum + a * b`
    unsafe fn add_product(sum: Self::Floats, a: f32, b: Self::Floats) -> Self::Floats;
    unsafe fn store_floats(to: *mut f32, values: Self::Floats);
    /// Thirty-two values in 16 bits (64 bytes), widened.
    unsafe fn load_halves(from: *const u16) -> Self::Floats;
    /// `sum + a * b`, lane by lane.
    unsafe fn add_products(sum: Self::Floats, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    unsafe fn zero_ints() -> Self::Ints;
    /// Four signed bytes for each lane.
    unsafe fn load_bytes(from: *const i8) -> Self::Bytes;
    /// In every lane, adds the products of the four unsigned bytes of `a` with the lane's four bytes of `b`.
    unsafe fn add_dot(sum: Self::Ints, a: i32, b: Self::Bytes) -> Self::Ints;
    unsafe fn store_ints(to: *mut i32, values: Self::Ints);

    /// Asks for the memory of `values`, which are needed soon.
    #[inline(always)]
    fn prefetch<T>(_values: &[T]) {}

    /// Asks for the 128 bytes that a walk over panels reads [`AHEAD`] bytes after those at `from`. There need not be any.
    #[inline(always)]
    fn prefetch_ahead<T>(_from: *const T) {}

    /// `a * b + c`, in one instruction where there is one.
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        if Self::FMA { a.mul_add(b, c) } else { a * b + c }
    }
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    const ROWS: usize = 2;
    const FMA: bool = false;
    type Floats = [f32; LANES];
    type Ints = [i32; LANES];
    type Bytes = [[i8; 4]; LANES];

    #[inline(always)]
    unsafe fn zero_floats() -> Self::Floats {
        [0.0; LANES]
    }

    #[inline(always)]
    unsafe fn load_floats(from: *const f32) -> Self::Floats {
        // SAFETY: good for all lanes by the trait's contract.
        unsafe { from.cast::<Self::Floats>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn add_product(mut sum: Self::Floats, a: f32, b: Self::Floats) -> Self::Floats {
        for (sum, b) in sum.iter_mut().zip(b) {
            *sum += a * b;
        }
        sum
    }

    #[inline(always)]
    unsafe fn store_floats(to: *mut f32, values: Self::Floats) {
        // SAFETY: good for all lanes by the trait's contract.
        unsafe { to.cast::<Self::Floats>().write_unaligned(values) }
    }

    #[inline(always)]
    unsafe fn load_halves(from: *const u16) -> Self::Floats {
        // SAFETY: good for 32 values of 16 bits by the trait's contract.
        let halves = unsafe { from.cast::<[u16; LANES]>().read_unaligned() };
        halves.map(|half| f16::from_bits(half).to_f32())
    }

    #[inline(always)]
    unsafe fn add_products(mut sum: Self::Floats, a: Self::Floats, b: Self::Floats) -> Self::Floats {
        for (sum, (a, b)) in sum.iter_mut().zip(a.into_iter().zip(b)) {
            *sum += a * b;
        }
        sum
    }

    #[inline(always)]
    unsafe fn zero_ints() -> Self::Ints {
        [0; LANES]
    }

    #[inline(always)]
    unsafe fn load_bytes(from: *const i8) -> Self::Bytes {
        // SAFETY: good for 128 bytes by the trait's contract.
        unsafe { from.cast::<Self::Bytes>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn add_dot(mut sum: Self::Ints, a: i32, b: Self::Bytes) -> Self::Ints {
        let a = a.to_le_bytes();
        for (sum, b) in sum.iter_mut().zip(b) {
            *sum += a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(b)).sum::<i32>();
        }
        sum
    }

    #[inline(always)]
    unsafe fn store_ints(to: *mut i32, values: Self::Ints) {
        // SAFETY: good for all lanes by the trait's contract.
        unsafe { to.cast::<Self::Ints>().write_unaligned(values) }
    }
}

/// The sum of all lanes: halves are added to halves, which takes five steps where one after the other takes 31.
#[inline(always)]
pub(crate) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    for width in [16, 8, 4, 2, 1] {
        let (lower, upper) = lanes.split_at_mut(width);
        lower.iter_mut().zip(upper).for_each(|(lower, upper)| *lower += *upper);
    }
    lanes[0]
}

/// The sums of a tile in f32: `out[r]` is row `r` of `a` times the panel.
///
/// # Safety
/// The machine must have `S`. `a` must be good for `M` rows of `depth` values, the rows `stride` and the values `step` apart, and
/// `panel` for `depth` times 32 values.
#[inline(always)]
pub(crate) unsafe fn tile_f32<S: Simd, const M: usize>(
    depth: usize,
    a: *const f32,
    (stride, step): (usize, usize),
    panel: *const f32,
    out: &mut [[f32; LANES]; MOST_ROWS],
) {
    // SAFETY: `at < depth` and `row < M`, so the pointers are good by the contract; each row of `out` has 32 values.
    unsafe {
        let mut sums = [S::zero_floats(); M];
        for at in 0..depth {
            S::prefetch_ahead(panel.wrapping_add(at * LANES));
            let b = S::load_floats(panel.add(at * LANES));
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = S::add_product(*sum, *a.add(row * stride + at * step), b);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            S::store_floats(out.as_mut_ptr(), sum);
        }
    }
}

/// The sums of a tile whose panel is in 16 bits: `out[r]` is row `r` of `a` times the panel.
///
/// # Safety
/// As for [`tile_f32`], values lying side by side.
#[inline(always)]
pub(crate) unsafe fn tile_f16<S: Simd, const M: usize>(
    depth: usize,
    a: *const f32,
    stride: usize,
    panel: *const u16,
    out: &mut [[f32; LANES]; MOST_ROWS],
) {
    // SAFETY: as in `tile_f32`.
    unsafe {
        let mut sums = [S::zero_floats(); M];
        for at in 0..depth {
            let b = S::load_halves(panel.add(at * LANES));
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = S::add_product(*sum, *a.add(row * stride + at), b);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            S::store_floats(out.as_mut_ptr(), sum);
        }
    }
}

/// The sums of a tile in int8: `out[r]` is row `r` of `a` (unsigned) times the panel (signed, four rows interleaved).
///
/// # Safety
/// The machine must have `S`. `a` must be good for `M` rows of `quads` times 4 bytes, `stride` apart, and `panel` for
/// `quads` times 128 bytes.
#[inline(always)]
pub(crate) unsafe fn tile_i8<S: Simd, const M: usize>(
    quads: usize,
    a: *const u8,
    stride: usize,
    panel: *const i8,
    out: &mut [[i32; LANES]; MOST_ROWS],
) {
    // SAFETY: as in `tile_f32`; four bytes are read without alignment.
    unsafe {
        let mut sums = [S::zero_ints(); M];
        for at in 0..quads {
            S::prefetch_ahead(panel.wrapping_add(at * 4 * LANES));
            let b = S::load_bytes(panel.add(at * 4 * LANES));
            for (row, sum) in sums.iter_mut().enumerate() {
                *sum = S::add_dot(*sum, a.add(row * stride + 4 * at).cast::<i32>().read_unaligned(), b);
            }
        }
        for (out, sum) in out.iter_mut().zip(sums) {
            S::store_ints(out.as_mut_ptr(), sum);
        }
    }
}

/// Calls `$tile::<S, M>` with `M` the number of rows, which must be at most `S::ROWS`.
macro_rules! tile {
    ($tile:ident, $set:ident, $rows:expr, $($argument:expr),*) => {
        match $rows {
            1 => $tile::<$set, 1>($($argument),*),
            2 => $tile::<$set, 2>($($argument),*),
            rows if $set::ROWS > 2 => match rows {
                3 => $tile::<$set, 3>($($argument),*),
                4 => $tile::<$set, 4>($($argument),*),
                5 => $tile::<$set, 5>($($argument),*),
                6 => $tile::<$set, 6>($($argument),*),
                7 => $tile::<$set, 7>($($argument),*),
                8 => $tile::<$set, 8>($($argument),*),
                9 => $tile::<$set, 9>($($argument),*),
                10 => $tile::<$set, 10>($($argument),*),
                11 => $tile::<$set, 11>($($argument),*),
                12 => $tile::<$set, 12>($($argument),*),
                _ => unreachable!("a tile has at most 12 rows"),
            },
            _ => unreachable!("a tile has at most 2 rows here"),
        }
    };
}
pub(crate) use tile;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Vnni};

#[cfg(target_arch = "x86_64")]
pub(crate) mod lookup;
#[cfg(target_arch = "x86_64")]
mod x86;
