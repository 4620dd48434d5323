//! Matrix products on AMX, the matrix unit of Intel's server processors. It multiplies tiles of 16 rows of 64
//! bytes in bf16 or int8.
//!
//! A product in f32 is computed as six products in bf16 (Henry, Tang and Heinecke 2019, "Leveraging the
//! bfloat16 Artificial Intelligence Datatype For Higher-Precision Computations"). A value is the sum of three
//! bf16 parts: its rounding, the rounding of the remainder, and the rest, which is exact because 24 bits are
//! three times eight. The three smallest of the nine products of parts, below 2^-23 of the whole, are
//! dropped. The others are summed in f32. So a result is as accurate as with multiplications in f32, in half
//! the time, because the unit does sixteen times as many a cycle. Infinity has no such parts and gives NaN.
//! Products of parts below 2^-126 count as 0.
//!
//! A product in bf16, for training, rounds values to the first part alone.
//!
//! In int8 sums are exact and equal to those of every other instruction set.

use std::{
    arch::{asm, x86_64::*},
    cell::RefCell,
    sync::OnceLock,
};

use crate::simd::LANES;

/// From this number of rows on, a product in f32 is faster here than with [`Simd`](crate::simd::Simd): a
/// panel is split into parts once for all rows.
pub(crate) const FLOAT_ROWS: usize = 48;
/// The same in int8, without splitting.
pub(crate) const INT_ROWS: usize = 2 * HEIGHT;

/// The rows of a tile.
const HEIGHT: usize = 16;
/// The bytes of a tile.
const TILE: usize = 1024;
/// The inputs in a tile in bf16.
const PAIRS: usize = 32;
/// The parts of a value in a product in f32. A product in bf16 has the first alone.
pub(crate) const EXACT: usize = 3;
/// The parts of a value in a product in bf16.
pub(crate) const ROUNDED: usize = 1;
/// The inputs of a tile in int8, in fours.
pub(crate) const QUADS: usize = 16;
/// The number of inputs that are split at once: with these, 512 rows fit the L2 cache. The sums of blocks are
/// added in order, so the result does not depend on the partition of rows and panels.
const BLOCK: usize = 384;

/// Whether the machine has the unit and the system permits its use.
pub(crate) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has_unit() && is_permitted())
}

fn has_unit() -> bool {
    // Leaf 7: bit 22 of EDX is bf16, 24 the tiles, 25 int8.
    let needed = 1 << 22 | 1 << 24 | 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & needed == needed
}

/// Requests permission for the tile state from Linux.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: the call takes two numbers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// The unit, configured for this thread: eight tiles of 16 rows of 64 bytes. Compiled code never uses tiles,
/// so they keep their values between blocks of assembly.
struct Unit;

impl Unit {
    fn new() -> Self {
        #[repr(C, align(64))]
        struct Config([u8; 64]);

        assert!(is_available(), "the machine has no AMX");
        let mut config = Config([0; 64]);
        config.0[0] = 1;
        for tile in 0..8 {
            // Bytes of a row, in 16 bits, and rows.
            config.0[16 + 2 * tile] = 64;
            config.0[48 + tile] = HEIGHT as u8;
        }
        // SAFETY: the unit exists, and the configuration is valid.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const config, options(nostack, readonly)) };
        Self
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        // SAFETY: `new` has checked the unit.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// A cache line, for aligned memory.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Buffers of a part of a product, reused by a thread.
#[derive(Default)]
pub(crate) struct Sums {
    rows: Vec<Line>,
    panel: Vec<Line>,
    /// For each panel its rows of 32 sums.
    floats: Vec<[f32; LANES]>,
    ints: Vec<[i32; LANES]>,
    /// The number of rows of a panel in the sums.
    height: usize,
}

thread_local! {
    static SUMS: RefCell<Sums> = RefCell::default();
}

impl Sums {
    /// Calls `work` with the buffers of this thread.
    pub(crate) fn with<T>(work: impl FnOnce(&mut Self) -> T) -> T {
        SUMS.with_borrow_mut(work)
    }

    /// The sums in f32 of row `row` and the 32 columns of panel `panel`.
    #[inline(always)]
    pub(crate) fn floats(&mut self, panel: usize, row: usize) -> &mut [f32; LANES] {
        &mut self.floats[panel * self.height + row]
    }

    /// The sums in int8.
    #[inline(always)]
    pub(crate) fn ints(&self, panel: usize, row: usize) -> &[i32; LANES] {
        &self.ints[panel * self.height + row]
    }

    /// Computes the products of `rows` rows of `a`, `depth` values each, with `panels`, in the layout of
    /// [`Simd::tile_f32`](crate::simd::Simd::tile_f32): in f32 with [`EXACT`] parts, in bf16 with [`ROUNDED`].
    ///
    /// # Panics
    /// If `a` or the last panel is too short.
    pub(crate) fn add_floats<const PARTS: usize>(
        &mut self,
        a: &[f32],
        (stride, step): (usize, usize),
        rows: usize,
        depth: usize,
        panels: &[f32],
    ) {
        assert!(rows > 0 && depth > 0 && a.len() > (rows - 1) * stride + (depth - 1) * step);
        let count = panels.len() / (depth * LANES);
        let tiles = rows.div_ceil(HEIGHT);
        self.height = tiles * HEIGHT;
        fit(&mut self.floats, self.height * count, [0.0; LANES]);
        let steps = BLOCK.min(depth).div_ceil(PAIRS);
        fit(&mut self.rows, tiles * steps * PARTS * HEIGHT, Line([0; 64]));
        fit(&mut self.panel, steps * PARTS * 2 * HEIGHT, Line([0; 64]));
        let _unit = Unit::new();
        for first in (0..depth).step_by(BLOCK) {
            let length = BLOCK.min(depth - first);
            let steps = length.div_ceil(PAIRS);
            // SAFETY: the unit comes with AVX-512, and the memory was sized above.
            unsafe { split_rows::<PARTS>(&a[first * step..], (stride, step), rows, length, &mut self.rows) };
            for (at, panel) in panels.chunks_exact(depth * LANES).enumerate() {
                let panel = panel[first * LANES..][..length * LANES].as_chunks::<LANES>().0;
                // SAFETY: as above.
                unsafe { split_panel::<PARTS>(panel, &mut self.panel) };
                for tile in (0..tiles).step_by(2) {
                    let lines = steps * PARTS * HEIGHT;
                    let a = &self.rows[tile * lines..];
                    let out = &mut self.floats[at * self.height + tile * HEIGHT..];
                    // SAFETY: the unit is set up; the slices hold one or two tiles' rows, a panel, and as many sums.
                    unsafe {
                        let (a, b) = (a.as_ptr().cast(), self.panel.as_ptr().cast());
                        let out = out.as_mut_ptr().cast();
                        match (PARTS, tile + 1 < tiles) {
                            (ROUNDED, true) => two_rounded_tiles(steps, a, b, out, first > 0),
                            (ROUNDED, false) => one_rounded_tile(steps, a, b, out, first > 0),
                            (_, true) => two_float_tiles(steps, a, b, out, first > 0),
                            (_, false) => one_float_tile(steps, a, b, out, first > 0),
                        }
                    }
                }
            }
        }
    }

    /// Computes the products of `rows` rows of `a` with `panels`, in the layout of
    /// [`Simd::tile_i8`](crate::simd::Simd::tile_i8).
    ///
    /// # Panics
    /// If `a` or the last panel is too short, there are fewer than [`INT_ROWS`] rows, or `quads` is not a multiple of [`QUADS`].
    pub(crate) fn add_ints(&mut self, a: &[u8], stride: usize, rows: usize, quads: usize, panels: &[i8]) {
        assert!(rows >= INT_ROWS && quads > 0 && quads.is_multiple_of(QUADS));
        assert!(a.len() >= (rows - 1) * stride + 4 * quads);
        let size = quads * 4 * LANES;
        self.height = rows;
        fit(&mut self.ints, rows * (panels.len() / size), [0; LANES]);
        let _unit = Unit::new();
        for (at, panel) in panels.chunks_exact(size).enumerate() {
            for group in 0..rows.div_ceil(INT_ROWS) {
                // The last rows may be computed twice.
                let row = (group * INT_ROWS).min(rows - INT_ROWS);
                let (a, out) = (&a[row * stride..], &mut self.ints[at * self.height + row..]);
                // SAFETY: the unit is set up; there are 32 rows of `a`, a panel, and 32 rows of sums.
                unsafe {
                    int_tiles(quads / QUADS, a.as_ptr(), stride, panel.as_ptr(), out.as_mut_ptr().cast());
                }
            }
        }
    }
}

/// Extends `values` to at least `length`.
fn fit<T: Copy>(values: &mut Vec<T>, length: usize, value: T) {
    values.resize(values.len().max(length), value);
}

/// The parts of two vectors. Each is in the upper 16 bits of its lanes. The lower bits of the third part are zero; so are those
/// of the others.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn split<const PARTS: usize>(mut x: __m512, mut y: __m512) -> [(__m512i, __m512i); PARTS] {
    // Rounded to the nearest, halves away from zero.
    let (half, upper) = (_mm512_set1_epi32(0x8000), _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
    let next = |value: &mut __m512| {
        let part = _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(*value), half), upper);
        *value = _mm512_sub_ps(*value, _mm512_castsi512_ps(part));
        part
    };
    let mut parts = [(_mm512_setzero_si512(), _mm512_setzero_si512()); PARTS];
    for (at, part) in parts.iter_mut().enumerate() {
        *part = if at + 1 == EXACT {
            (_mm512_castps_si512(x), _mm512_castps_si512(y))
        } else {
            (next(&mut x), next(&mut y))
        };
    }
    parts
}

/// Splits a block of a panel, 32 columns for each input. Every 32 inputs give the parts, each with the left
/// and the right 16 columns. A tile's rows have two inputs of every column next to each other.
#[target_feature(enable = "avx512f,avx512bw")]
fn split_panel<const PARTS: usize>(panel: &[[f32; LANES]], out: &mut [Line]) {
    const ZEROS: [f32; LANES] = [0.0; LANES];
    for (inputs, out) in panel.chunks(PAIRS).zip(out.chunks_exact_mut(PARTS * 2 * HEIGHT)) {
        for row in 0..HEIGHT {
            let [even, odd] = [2 * row, 2 * row + 1].map(|at| inputs.get(at).unwrap_or(&ZEROS));
            for side in 0..2 {
                // SAFETY: each has 32 values.
                let (x, y) = unsafe {
                    let from = side * HEIGHT;
                    (_mm512_loadu_ps(even.as_ptr().add(from)), _mm512_loadu_ps(odd.as_ptr().add(from)))
                };
                for (part, (x, y)) in split::<PARTS>(x, y).into_iter().enumerate() {
                    let pairs = _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(x), y);
                    let line = &mut out[(part * 2 + side) * HEIGHT + row];
                    // SAFETY: a line has 64 bytes and begins at a multiple of 64.
                    unsafe { _mm512_store_si512((&raw mut *line).cast(), pairs) };
                }
            }
        }
    }
}

/// Splits rows. Every 16 rows and 32 inputs give the parts, each a tile; missing rows and inputs are zeros.
#[target_feature(enable = "avx512f,avx512bw")]
fn split_rows<const PARTS: usize>(
    a: &[f32],
    (stride, step): (usize, usize),
    rows: usize,
    depth: usize,
    out: &mut [Line],
) {
    let upper: [u16; PAIRS] = std::array::from_fn(|at| 2 * at as u16 + 1);
    // SAFETY: 64 bytes.
    let upper = unsafe { _mm512_loadu_si512(upper.as_ptr().cast()) };
    let steps = depth.div_ceil(PAIRS);
    for row in 0..rows.next_multiple_of(HEIGHT) {
        let first = row / HEIGHT * steps * PARTS * HEIGHT + row % HEIGHT;
        for at in 0..steps {
            let start = row * stride + at * PAIRS * step;
            let count = if row < rows { PAIRS.min(depth - at * PAIRS) } else { 0 };
            let (x, y) = if step == 1 {
                let from = a.as_ptr().wrapping_add(start);
                let mask = ((1_u64 << count) - 1) as u32;
                // SAFETY: `a` has `count` values from `start` on, as the caller has checked; others are not
                // read.
                unsafe {
                    (
                        _mm512_maskz_loadu_ps(mask as u16, from),
                        _mm512_maskz_loadu_ps((mask >> 16) as u16, from.wrapping_add(16)),
                    )
                }
            } else {
                let mut values = [0f32; PAIRS];
                for (at, value) in values[..count].iter_mut().enumerate() {
                    *value = a[start + at * step];
                }
                // SAFETY: there are 32 values.
                unsafe { (_mm512_loadu_ps(values.as_ptr()), _mm512_loadu_ps(values.as_ptr().add(16))) }
            };
            for (part, (x, y)) in split::<PARTS>(x, y).into_iter().enumerate() {
                let line = &mut out[first + (at * PARTS + part) * HEIGHT];
                let halves = _mm512_permutex2var_epi16(x, upper, y);
                // SAFETY: a line has 64 bytes and begins at a multiple of 64.
                unsafe { _mm512_store_si512((&raw mut *line).cast(), halves) };
            }
        }
    }
}

/// Products of 32 rows and 32 columns, added to `out` if `adds`: `steps` times 32 inputs.
///
/// # Safety
/// The unit must be set up. `a` must be valid for two blocks of 16 split rows, `b` for a split panel, both of `steps`, and `out`
/// for 32 rows of 32 sums.
unsafe fn two_float_tiles(steps: usize, a: *const u8, b: *const u8, out: *mut f32, adds: bool) {
    // SAFETY: tiles are loaded from `a`, `b` and `out` within the bounds of the contract.
    unsafe {
        if adds {
            asm!(
                "tileloadd tmm0, [{out} + {row}]",
                "tileloadd tmm1, [{out} + {row} + 64]",
                "tileloadd tmm2, [{out} + {row} + 2048]",
                "tileloadd tmm3, [{out} + {row} + 2112]",
                out = in(reg) out, row = in(reg) 4 * LANES, options(nostack, readonly),
            );
        } else {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        }
        // Tiles 4 and 5 are parts of the rows, 6 and 7 of the columns: first by first, by third, by second, then the rows'
        // second by second, by first, and their third by first.
        asm!(
            "2:",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm4, [{a} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tileloadd tmm5, [{lower} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm6, [{b} + {row} + 4096]",
            "tileloadd tmm7, [{b} + {row} + 5120]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm6, [{b} + {row} + 2048]",
            "tileloadd tmm7, [{b} + {row} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm4, [{a} + {row} + 1024]",
            "tileloadd tmm5, [{lower} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "tileloadd tmm4, [{a} + {row} + 2048]",
            "tileloadd tmm5, [{lower} + {row} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 3072",
            "add {lower}, 3072",
            "add {b}, 6144",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            lower = inout(reg) a.add(steps * EXACT * TILE) => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            row = in(reg) 64_usize,
            options(nostack, readonly),
        );
        asm!(
            "tilestored [{out} + {row}], tmm0",
            "tilestored [{out} + {row} + 64], tmm1",
            "tilestored [{out} + {row} + 2048], tmm2",
            "tilestored [{out} + {row} + 2112], tmm3",
            out = in(reg) out, row = in(reg) 4 * LANES, options(nostack),
        );
    }
}

/// The same for 16 rows.
///
/// # Safety
/// As for [`two_float_tiles`], with one block of rows and 16 rows of sums.
unsafe fn one_float_tile(steps: usize, a: *const u8, b: *const u8, out: *mut f32, adds: bool) {
    // SAFETY: as in `two_float_tiles`.
    unsafe {
        if adds {
            asm!(
                "tileloadd tmm0, [{out} + {row}]",
                "tileloadd tmm1, [{out} + {row} + 64]",
                out = in(reg) out, row = in(reg) 4 * LANES, options(nostack, readonly),
            );
        } else {
            asm!("tilezero tmm0", "tilezero tmm1", options(nostack, nomem));
        }
        asm!(
            "2:",
            "tileloadd tmm4, [{a} + {row}]",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm2, [{b} + {row} + 4096]",
            "tileloadd tmm3, [{b} + {row} + 5120]",
            "tdpbf16ps tmm0, tmm4, tmm2",
            "tdpbf16ps tmm1, tmm4, tmm3",
            "tileloadd tmm2, [{b} + {row} + 2048]",
            "tileloadd tmm3, [{b} + {row} + 3072]",
            "tdpbf16ps tmm0, tmm4, tmm2",
            "tdpbf16ps tmm1, tmm4, tmm3",
            "tileloadd tmm5, [{a} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm5, tmm2",
            "tdpbf16ps tmm1, tmm5, tmm3",
            "tdpbf16ps tmm0, tmm5, tmm6",
            "tdpbf16ps tmm1, tmm5, tmm7",
            "tileloadd tmm4, [{a} + {row} + 2048]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a}, 3072",
            "add {b}, 6144",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            row = in(reg) 64_usize,
            options(nostack, readonly),
        );
        asm!(
            "tilestored [{out} + {row}], tmm0",
            "tilestored [{out} + {row} + 64], tmm1",
            out = in(reg) out, row = in(reg) 4 * LANES, options(nostack),
        );
    }
}

/// [`two_float_tiles`] of values that have one part.
///
/// # Safety
/// As for [`two_float_tiles`].
unsafe fn two_rounded_tiles(steps: usize, a: *const u8, b: *const u8, out: *mut f32, adds: bool) {
    // SAFETY: as in `two_float_tiles`.
    unsafe {
        if adds {
            asm!(
                "tileloadd tmm0, [{out} + {row}]",
                "tileloadd tmm1, [{out} + {row} + 64]",
                "tileloadd tmm2, [{out} + {row} + 2048]",
                "tileloadd tmm3, [{out} + {row} + 2112]",
                out = in(reg) out, row = in(reg) 4 * LANES, options(nostack, readonly),
            );
        } else {
            asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        }
        asm!(
            "2:",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm4, [{a} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tileloadd tmm5, [{lower} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 1024",
            "add {lower}, 1024",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            lower = inout(reg) a.add(steps * ROUNDED * TILE) => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            row = in(reg) 64_usize,
            options(nostack, readonly),
        );
        asm!(
            "tilestored [{out} + {row}], tmm0",
            "tilestored [{out} + {row} + 64], tmm1",
            "tilestored [{out} + {row} + 2048], tmm2",
            "tilestored [{out} + {row} + 2112], tmm3",
            out = in(reg) out, row = in(reg) 4 * LANES, options(nostack),
        );
    }
}

/// [`one_float_tile`] of values that have one part.
///
/// # Safety
/// As for [`one_float_tile`].
unsafe fn one_rounded_tile(steps: usize, a: *const u8, b: *const u8, out: *mut f32, adds: bool) {
    // SAFETY: as in `two_float_tiles`.
    unsafe {
        if adds {
            asm!(
                "tileloadd tmm0, [{out} + {row}]",
                "tileloadd tmm1, [{out} + {row} + 64]",
                out = in(reg) out, row = in(reg) 4 * LANES, options(nostack, readonly),
            );
        } else {
            asm!("tilezero tmm0", "tilezero tmm1", options(nostack, nomem));
        }
        asm!(
            "2:",
            "tileloadd tmm4, [{a} + {row}]",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a}, 1024",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            row = in(reg) 64_usize,
            options(nostack, readonly),
        );
        asm!(
            "tilestored [{out} + {row}], tmm0",
            "tilestored [{out} + {row} + 64], tmm1",
            out = in(reg) out, row = in(reg) 4 * LANES, options(nostack),
        );
    }
}

/// Products of 32 rows of bytes, `stride` apart, with a panel of bytes: `steps` times 64 inputs.
///
/// # Safety
/// The unit must be set up, and the pointers valid for that many values and for 32 rows of 32 sums.
unsafe fn int_tiles(steps: usize, a: *const u8, stride: usize, b: *const i8, out: *mut i32) {
    // SAFETY: tiles are loaded from `a` and `b` and stored to `out` within the bounds of the contract.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        asm!(
            "2:",
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm4, [{a} + {stride}]",
            "tileloadd tmm7, [{b} + {row} + 64]",
            "tileloadd tmm5, [{lower} + {stride}]",
            "tdpbusd tmm0, tmm4, tmm6",
            "tdpbusd tmm1, tmm4, tmm7",
            "tdpbusd tmm2, tmm5, tmm6",
            "tdpbusd tmm3, tmm5, tmm7",
            "add {a}, 64",
            "add {lower}, 64",
            "add {b}, 2048",
            "dec {steps}",
            "jnz 2b",
            a = inout(reg) a => _,
            lower = inout(reg) a.add(HEIGHT * stride) => _,
            b = inout(reg) b => _,
            steps = inout(reg) steps => _,
            stride = in(reg) stride,
            row = in(reg) 4 * LANES,
            options(nostack, readonly),
        );
        asm!(
            "tilestored [{out} + {row}], tmm0",
            "tilestored [{out} + {row} + 64], tmm1",
            "tilestored [{out} + {row} + 2048], tmm2",
            "tilestored [{out} + {row} + 2112], tmm3",
            out = in(reg) out, row = in(reg) 4 * LANES, options(nostack),
        );
    }
}
