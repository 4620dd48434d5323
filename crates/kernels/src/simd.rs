//! Thirty-two lanes of each instruction set, and the microkernels of a product.

use half::f16;

/// The number of columns in a panel, which is the width of a tile's rows in registers.
pub(crate) const LANES: usize = 32;
/// The most rows of a tile on any instruction set.
pub(crate) const MOST_ROWS: usize = 12;
/// The rows and columns that [`Simd::transpose`] takes.
pub(crate) const SQUARE: usize = 16;
/// The most rows of a strip on any instruction set.
pub(crate) const STRIP: usize = 192;

/// The prefetch distance of a tile in bytes. The hardware prefetcher keeps too few reads in flight if a tile
/// has several rows. With eight rows on two cores of a Sapphire Rapids, this distance reads 50 GB/s of
/// weights instead of 21 GB/s; 4 KiB gives 43, and more than 8 KiB no more.
pub(crate) const AHEAD: usize = 8 << 10;

/// The work of a tile on its block of a panel.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    /// Whether the sums are added to those of earlier blocks.
    adds: bool,
    /// The memory to prefetch.
    prefetch: Prefetch,
    /// The destination of the final sums, which is prefetched too.
    to: Option<To>,
}

/// The destination of 32 results of each row of a tile.
#[derive(Clone, Copy)]
pub(crate) struct To {
    first: *const u8,
    /// The distance between rows, in bytes.
    stride: usize,
}

/// The memory that a tile prefetches.
#[derive(Clone, Copy)]
enum Prefetch {
    /// The memory [`AHEAD`] bytes after the reads: with few rows, memory bandwidth limits the speed.
    Ahead,
    /// The memory from that many steps after the block's first on, one step's row for each four steps: the
    /// tile's share of the next block.
    From(usize),
    Nothing,
}

/// Thirty-two lanes.
///
/// # Safety
/// Of every function: the machine must have the instruction set, and a pointer must be valid for all lanes (32 values;
/// 128 bytes for `load_bytes`). No alignment is needed.
pub(crate) trait Simd: Copy {
    /// The most rows of a tile, which fit the registers.
    const ROWS: usize;
    /// The most rows that are computed together, by tiles that read a block of a panel in turn.
    const STRIP: usize = Self::ROWS;
    /// The most rows of such a block of a panel, 128 bytes each, which stays in cache for the tiles.
    const PIECE: usize = usize::MAX;
    /// The number of bytes of an input of [`tile_i8`](Self::tile_i8), which has 8 bits. With two, the second
    /// and the third of each four are swapped.
    const INPUT: usize = 1;
    /// Whether `mul_add` is one instruction.
    const FMA: bool;
    type Floats: Copy;

    unsafe fn zero_floats() -> Self::Floats;
    unsafe fn load_floats(from: *const f32) -> Self::Floats;
    /// `sum + a * b`
    unsafe fn add_product(sum: Self::Floats, a: f32, b: Self::Floats) -> Self::Floats;
    unsafe fn store_floats(to: *mut f32, values: Self::Floats);
    /// Thirty-two values in 16 bits (64 bytes), widened.
    unsafe fn load_halves(from: *const u16) -> Self::Floats;
    /// `sum + a * b`, lane by lane.
    unsafe fn add_products(sum: Self::Floats, a: Self::Floats, b: Self::Floats) -> Self::Floats;

    /// Thirty-two words of 32 bits.
    type Words: Copy;

    unsafe fn load_words(from: *const u32) -> Self::Words;
    /// Fills with zeros, as the next does; `bits` must be less than 32.
    unsafe fn shift_right(words: Self::Words, bits: u32) -> Self::Words;
    unsafe fn shift_left(words: Self::Words, bits: u32) -> Self::Words;
    unsafe fn and(words: Self::Words, mask: u32) -> Self::Words;
    unsafe fn or(a: Self::Words, b: Self::Words) -> Self::Words;
    /// Signed integers, converted.
    unsafe fn integers(words: Self::Words) -> Self::Floats;
    /// The bits of floats.
    unsafe fn floats(words: Self::Words) -> Self::Floats;

    /// Transposes 16 by 16 values, from rows `stride` apart to rows `to_stride` apart.
    ///
    /// # Safety
    /// The machine must have the instruction set, and the pointers must be valid for those rows.
    #[inline(always)]
    unsafe fn transpose(from: *const f32, stride: usize, to: *mut f32, to_stride: usize) {
        for row in 0..SQUARE {
            for column in 0..SQUARE {
                // SAFETY: the contract.
                unsafe { *to.add(column * to_stride + row) = *from.add(row * stride + column) };
            }
        }
    }

    /// Prefetches `values`.
    #[inline(always)]
    fn prefetch<T>(_values: &[T]) {}

    /// `a * b + c`, in one instruction if possible.
    #[inline(always)]
    fn mul_add(a: f32, b: f32, c: f32) -> f32 {
        if Self::FMA { a.mul_add(b, c) } else { a * b + c }
    }

    /// The initial sums of a tile.
    ///
    /// # Safety
    /// The machine must support `S`, and `out` must be valid for `M` rows.
    #[inline(always)]
    unsafe fn begin_floats<const M: usize>(piece: Piece, out: *const [f32; LANES]) -> [Self::Floats; M] {
        // SAFETY: the contract.
        unsafe {
            let mut sums = [Self::zero_floats(); M];
            if piece.adds {
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = Self::load_floats(out.add(row).cast());
                }
            }
            sums
        }
    }

    /// The sums of a tile in f32: `out[r]` is row `r` of `a` times the panel.
    ///
    /// # Safety
    /// The machine must have `S`. `a` must be good for `M` rows of `depth` values, the rows `stride` and the values `step` apart,
    /// `panel` for `depth` times 32 values, and `out` for `M` rows.
    #[inline(always)]
    unsafe fn tile_f32<const M: usize>(
        depth: usize,
        a: *const f32,
        (stride, step): (usize, usize),
        panel: *const f32,
        piece: Piece,
        out: *mut [f32; LANES],
    ) {
        // SAFETY: `at < depth` and `row < M`, so the pointers are good by the contract.
        unsafe {
            let mut sums = Self::begin_floats::<M>(piece, out);
            for at in 0..depth {
                let b = Self::load_floats(panel.add(at * LANES));
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = Self::add_product(*sum, *a.add(row * stride + at * step), b);
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                Self::store_floats(out.add(row).cast(), sum);
            }
        }
    }

    /// The sums of a tile whose panel is in 16 bits, otherwise as [`tile_f32`](Self::tile_f32).
    ///
    /// # Safety
    /// As for [`tile_f32`](Self::tile_f32).
    #[inline(always)]
    unsafe fn tile_f16<const M: usize>(
        depth: usize,
        a: *const f32,
        stride: usize,
        panel: *const u16,
        piece: Piece,
        out: *mut [f32; LANES],
    ) {
        // SAFETY: as in `tile_f32`.
        unsafe {
            let mut sums = Self::begin_floats::<M>(piece, out);
            for at in 0..depth {
                let b = Self::load_halves(panel.add(at * LANES));
                for (row, sum) in sums.iter_mut().enumerate() {
                    *sum = Self::add_product(*sum, *a.add(row * stride + at), b);
                }
            }
            for (row, sum) in sums.into_iter().enumerate() {
                Self::store_floats(out.add(row).cast(), sum);
            }
        }
    }

    /// The sums of a tile in int8: `out[r]` is row `r` of `a` (unsigned) times the panel (signed, four rows interleaved).
    ///
    /// # Safety
    /// The machine must have `S`. `a` must be good for `M` rows of `quads` times 4 inputs, `stride` bytes apart, `panel` for `quads`
    /// times 128 bytes, and `out` for `M` rows.
    unsafe fn tile_i8<const M: usize>(
        quads: usize,
        a: *const u8,
        stride: usize,
        panel: *const i8,
        piece: Piece,
        out: *mut [i32; LANES],
    );
}

/// An instruction set that multiplies four bytes of a lane at once.
///
/// # Safety
/// As for [`Simd`].
pub(crate) trait Dots: Simd {
    type Ints: Copy;
    type Bytes: Copy;

    unsafe fn zero_ints() -> Self::Ints;
    /// Four signed bytes for each lane.
    unsafe fn load_bytes(from: *const i8) -> Self::Bytes;
    /// In every lane, adds the products of the four unsigned bytes of `a` with the lane's four signed bytes
    /// of `b`.
    unsafe fn add_dot(sum: Self::Ints, a: i32, b: Self::Bytes) -> Self::Ints;
    unsafe fn store_ints(to: *mut i32, values: Self::Ints);

    /// Prefetches the 128 bytes that a walk over panels reads [`AHEAD`] bytes after those at `from`. They
    /// need not exist.
    #[inline(always)]
    fn prefetch_ahead<T>(_from: *const T) {}
}

/// [`Simd::tile_i8`] of such a set.
///
/// # Safety
/// As for that.
#[inline(always)]
unsafe fn tile_of_dots<S: Dots, const M: usize>(
    quads: usize,
    a: *const u8,
    stride: usize,
    panel: *const i8,
    piece: Piece,
    out: *mut [i32; LANES],
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
        for (row, sum) in sums.into_iter().enumerate() {
            let out = &mut *out.add(row);
            let before = if piece.adds { *out } else { [0; LANES] };
            S::store_ints(out.as_mut_ptr(), sum);
            out.iter_mut().zip(before).for_each(|(out, before)| *out += before);
        }
    }
}

/// Plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

impl Simd for Portable {
    const ROWS: usize = 2;
    const FMA: bool = false;
    type Floats = [f32; LANES];

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

    type Words = [u32; LANES];

    #[inline(always)]
    unsafe fn load_words(from: *const u32) -> Self::Words {
        // SAFETY: good for 32 words by the trait's contract.
        unsafe { from.cast::<Self::Words>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn shift_right(words: Self::Words, bits: u32) -> Self::Words {
        words.map(|word| word >> bits)
    }

    #[inline(always)]
    unsafe fn shift_left(words: Self::Words, bits: u32) -> Self::Words {
        words.map(|word| word << bits)
    }

    #[inline(always)]
    unsafe fn and(words: Self::Words, mask: u32) -> Self::Words {
        words.map(|word| word & mask)
    }

    #[inline(always)]
    unsafe fn or(mut a: Self::Words, b: Self::Words) -> Self::Words {
        for (a, b) in a.iter_mut().zip(b) {
            *a |= b;
        }
        a
    }

    #[inline(always)]
    unsafe fn integers(words: Self::Words) -> Self::Floats {
        words.map(|word| word as i32 as f32)
    }

    #[inline(always)]
    unsafe fn floats(words: Self::Words) -> Self::Floats {
        words.map(f32::from_bits)
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
        unsafe { tile_of_dots::<Self, M>(quads, a, stride, panel, piece, out) }
    }
}

impl Dots for Portable {
    type Ints = [i32; LANES];
    type Bytes = [[i8; 4]; LANES];

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

/// The sum of all lanes by halving, in five steps instead of 31.
#[inline(always)]
pub(crate) fn sum_lanes(mut lanes: [f32; LANES]) -> f32 {
    for width in [16, 8, 4, 2, 1] {
        let (lower, upper) = lanes.split_at_mut(width);
        lower.iter_mut().zip(upper).for_each(|(lower, upper)| *lower += *upper);
    }
    lanes[0]
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{Avx2, Avx512, Vnni, transpose};

pub(crate) mod microkernel;
#[cfg(target_arch = "x86_64")]
mod tiles;
#[cfg(target_arch = "x86_64")]
mod x86;
