//! Tiles of five or six rows and 16 outputs. Strips of more than 32 rows consist of them.

use std::arch::asm;

use crate::simd::{Piece, Prefetch, tiles::STEP};

/// Clears a row's sums.
#[rustfmt::skip]
macro_rules! clear {
    ($a:literal, $left:literal $right:literal, $_by:literal $by:literal, ()) => {
        concat!(
            "vxorps ymm", $left, ", ymm", $left, ", ymm", $left, "\n",
            "vxorps ymm", $right, ", ymm", $right, ", ymm", $right, "\n",
        )
    };
}

/// Loads a row's sums.
#[rustfmt::skip]
macro_rules! load {
    ($a:literal, $left:literal $right:literal, $_by:literal $by:literal, ()) => {
        concat!(
            "vmovups ymm", $left, ", [{out} + 64*", $left, "]\n",
            "vmovups ymm", $right, ", [{out} + 64*", $left, " + 32]\n",
        )
    };
}

/// Stores a row's sums.
#[rustfmt::skip]
macro_rules! store {
    ($a:literal, $left:literal $right:literal, $_by:literal $by:literal, ()) => {
        concat!(
            "vmovups [{out} + 64*", $left, "], ymm", $left, "\n",
            "vmovups [{out} + 64*", $left, " + 32], ymm", $right, "\n",
        )
    };
}

/// Adds a row's products of a step, whose value is at offset `$at`.
#[rustfmt::skip]
macro_rules! add_floats {
    ($a:literal, $left:literal $right:literal, $_by:literal $by:literal, $at:literal) => {
        concat!(
            "vbroadcastss ymm", $by, ", dword ptr [", $a, " + 4*", $at, "]\n",
            "vfmadd231ps ymm", $left, ", ymm", $by, ", ymm12\n",
            "vfmadd231ps ymm", $right, ", ymm", $by, ", ymm13\n",
        )
    };
}

/// Adds a row's products of half a step, whose two 16-bit values are `$more` bytes after those of step `$at`.
#[rustfmt::skip]
macro_rules! add_pairs {
    ($a:literal, $left:literal $right:literal, $_by:literal $by:literal, ($at:literal $more:literal)) => {
        concat!(
            "vpbroadcastd ymm14, dword ptr [", $a, " + 8*", $at, " + ", $more, "]\n",
            "vpmaddwd ymm15, ymm14, ymm12\n",
            "vpaddd ymm", $left, ", ymm", $left, ", ymm15\n",
            "vpmaddwd ymm15, ymm14, ymm13\n",
            "vpaddd ymm", $right, ", ymm", $right, ", ymm15\n",
        )
    };
}

/// The `$at`-th of four steps.
#[rustfmt::skip]
macro_rules! step {
    (floats $m:tt $at:literal) => {
        concat!(
            "vmovups ymm12, [{panel} + 128*", $at, "]\n",
            "vmovups ymm13, [{panel} + 128*", $at, " + 32]\n",
            rows!(add_floats $m $at),
        )
    };
    // Widens the first and the third byte of four, then the second and the fourth. Shifts with memory
    // operands need AVX-512.
    (bytes $m:tt $at:literal) => {
        concat!(
            "vmovdqu ymm12, [{panel} + 128*", $at, "]\n",
            "vmovdqu ymm13, [{panel} + 128*", $at, " + 32]\n",
            "vpsllw ymm12, ymm12, 8\n",
            "vpsllw ymm13, ymm13, 8\n",
            "vpsraw ymm12, ymm12, 8\n",
            "vpsraw ymm13, ymm13, 8\n",
            rows!(add_pairs $m ($at 0)),
            "vmovdqu ymm12, [{panel} + 128*", $at, "]\n",
            "vmovdqu ymm13, [{panel} + 128*", $at, " + 32]\n",
            "vpsraw ymm12, ymm12, 8\n",
            "vpsraw ymm13, ymm13, 8\n",
            rows!(add_pairs $m ($at 4)),
        )
    };
}

/// The sums of `$m` rows.
#[rustfmt::skip]
macro_rules! sums {
    ($kind:ident, $size:literal, $m:tt, ($steps:ident, $a:ident, $strides:ident, $panel:ident, $piece:ident, $out:ident)) => {{
        let (stride, step) = $strides;
        let fours = if step == $size { $steps / 4 } else { 0 };
        let ahead = match $piece.prefetch {
            Prefetch::From(step) => $panel.wrapping_add(step * STEP),
            Prefetch::Ahead | Prefetch::Nothing => $panel,
        };
        asm!(
            rows!(clear $m ()),
            "test {adds:e}, {adds:e}",
            "jz 2f",
            rows!(load $m ()),
            "2:",
            "test {fours}, {fours}",
            "jz 4f",
            ".p2align 5",
            "3:",
            step!($kind $m 0), "prefetcht1 [{ahead}]", "prefetcht1 [{ahead} + 64]",
            step!($kind $m 1),
            step!($kind $m 2),
            step!($kind $m 3),
            "add {panel}, 512", "add {ahead}, 128",
            concat!("add {a0}, 4*", $size), concat!("add {a3}, 4*", $size),
            "sub {fours}, 1",
            "jnz 3b",
            "4:",
            "test {ones}, {ones}",
            "jz 6f",
            "5:",
            step!($kind $m 0),
            "add {panel}, 128", "add {a0}, {step}", "add {a3}, {step}",
            "sub {ones}, 1",
            "jnz 5b",
            "6:",
            rows!(store $m ()),
            adds = in(reg) u32::from($piece.adds),
            fours = inout(reg) fours => _,
            ones = inout(reg) $steps - 4 * fours => _,
            panel = inout(reg) $panel => _,
            ahead = inout(reg) ahead => _,
            a0 = inout(reg) $a => _,
            a3 = inout(reg) $a.wrapping_byte_add(3 * stride) => _,
            stride = in(reg) stride,
            step = in(reg) step,
            out = in(reg) $out,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
            out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack),
        );
    }};
}

/// A function that computes the sums of `M` rows.
#[rustfmt::skip]
macro_rules! tile {
    ($(#[$doc:meta])* $name:ident, $features:literal, $value:ty, $size:literal) => {
        $(#[$doc])*
        #[target_feature(enable = $features)]
        pub(in crate::simd) unsafe fn $name<const M: usize>(
            steps: usize,
            a: *const $value,
            strides: (usize, usize),
            panel: *const u8,
            piece: Piece,
            out: *mut u8,
        ) {
            // SAFETY: the assembly reads and writes within the contract, and does not use the stack.
            unsafe {
                match M {
                    5 => sums!($name, $size, 5, (steps, a, strides, panel, piece, out)),
                    6 => sums!($name, $size, 6, (steps, a, strides, panel, piece, out)),
                    _ => unreachable!("a tile of many rows has five or six"),
                }
            }
        }
    };
}

tile!(
    /// [`Simd::tile_f32`](crate::simd::Simd::tile_f32), strides in bytes.
    ///
    /// # Safety
    /// As for that.
    floats, "avx2,fma", f32, 4
);

tile!(
    /// [`Simd::tile_i8`](crate::simd::Simd::tile_i8) of values in 16 bits, strides in bytes.
    ///
    /// # Safety
    /// As for that.
    bytes, "avx2", u8, 8
);
