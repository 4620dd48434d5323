//! Tiles of up to 12 rows and 32 outputs.

use std::arch::asm;

use crate::simd::{AHEAD, Piece, Prefetch, To, tiles::STEP};

/// Loads a row's sums so far, or zeros.
#[rustfmt::skip]
macro_rules! begin {
    ($a:literal, $left:literal $right:literal, $by:literal $_by:literal, ()) => {
        concat!(
            "vmovups zmm", $left, " {{k1}}{{z}}, [{out} + 64*", $left, "]\n",
            "vmovups zmm", $right, " {{k1}}{{z}}, [{out} + 64*", $right, "]\n",
        )
    };
}

/// Stores a row's sums.
#[rustfmt::skip]
macro_rules! end {
    ($a:literal, $left:literal $right:literal, $by:literal $_by:literal, ()) => {
        concat!(
            "vmovups [{out} + 64*", $left, "], zmm", $left, "\n",
            "vmovups [{out} + 64*", $right, "], zmm", $right, "\n",
        )
    };
}

/// Adds a row's products of a step, whose value is at offset `$at`.
#[rustfmt::skip]
macro_rules! add {
    ($a:literal, $left:literal $right:literal, $by:literal $_by:literal, ($broadcast:literal, $product:literal, $at:literal)) => {
        concat!(
            $broadcast, " zmm", $by, ", dword ptr [", $a, " + ", $at, "]\n",
            $product, " zmm", $left, ", zmm", $by, ", zmm24\n",
            $product, " zmm", $right, ", zmm", $by, ", zmm25\n",
        )
    };
}

/// One of four steps.
#[rustfmt::skip]
macro_rules! step {
    ($m:tt, $broadcast:literal, $product:literal, $at:literal) => {
        concat!(
            "vmovups zmm24, [{panel} + 32*", $at, "]\n",
            "vmovups zmm25, [{panel} + 32*", $at, " + 64]\n",
            rows!(add $m ($broadcast, $product, $at)),
        )
    };
}

/// Prefetches both cache lines of a step's row, the `$at`-th after `ahead`.
#[rustfmt::skip]
macro_rules! ask {
    ($at:literal) => {
        concat!("prefetcht1 [{ahead} + 128*", $at, "]\n", "prefetcht1 [{ahead} + 128*", $at, " + 64]\n")
    };
}

/// Advances by four steps.
#[rustfmt::skip]
macro_rules! go_on {
    ($ahead:literal, $count:literal) => {
        concat!(
            "add {panel}, 512\n", "add {ahead}, ", $ahead, "\n",
            "add {a0}, 16\n", "add {a3}, 16\n", "add {a6}, 16\n", "add {a9}, 16\n",
            "sub ", $count, ", 1\n",
        )
    };
}

/// The products of `$m` rows. A row is read relative to an earlier pointer. The pointers to the rows 3, 6 and
/// 9 are not read if there are no such rows.
#[rustfmt::skip]
macro_rules! sums {
    ($m:tt, $broadcast:literal, $product:literal, ($steps:ident, $a:ident, $strides:ident, $panel:ident, $piece:ident, $out:ident)) => {{
        let (stride, step) = $strides;
        let fours = if step == 4 { $steps / 4 } else { 0 };
        let ones = u16::try_from($steps - 4 * fours).expect("a piece is short");
        let (ahead, all) = match $piece.prefetch {
            Prefetch::Ahead => ($panel.wrapping_add(AHEAD), true),
            Prefetch::From(step) => ($panel.wrapping_add(step * STEP), false),
            Prefetch::Nothing => ($panel, false),
        };
        // Prefetches are spread out, because requests at the same time would delay all later reads.
        let (to, lines) = match $piece.to {
            Some(to) if !all => (to, fours.min($m)),
            _ => (To { first: $panel, stride: 0 }, 0),
        };
        asm!(
            "/* {stride} */",
            rows!(begin $m ()),
            "test {lines}, {lines}",
            "jz 3f",
            ".p2align 5",
            "2:",
            step!($m, $broadcast, $product, 0), ask!(0),
            step!($m, $broadcast, $product, 4), "prefetchw [{to}]", "prefetchw [{to} + 64]", "add {to}, {to_stride}",
            step!($m, $broadcast, $product, 8),
            step!($m, $broadcast, $product, 12),
            go_on!(128, "{lines}"),
            "jnz 2b",
            "3:",
            "test {fours}, {fours}",
            "jz 6f",
            "kortestw k2, k2",
            "jnz 5f",
            ".p2align 5",
            "4:",
            step!($m, $broadcast, $product, 0), ask!(0),
            step!($m, $broadcast, $product, 4),
            step!($m, $broadcast, $product, 8),
            step!($m, $broadcast, $product, 12),
            go_on!(128, "{fours}"),
            "jnz 4b",
            "jmp 6f",
            ".p2align 5",
            "5:",
            step!($m, $broadcast, $product, 0), ask!(0),
            step!($m, $broadcast, $product, 4), ask!(1),
            step!($m, $broadcast, $product, 8), ask!(2),
            step!($m, $broadcast, $product, 12), ask!(3),
            go_on!(512, "{fours}"),
            "jnz 5b",
            "6:",
            "kmovw {fours:e}, k3",
            "test {fours:e}, {fours:e}",
            "jz 8f",
            "7:",
            step!($m, $broadcast, $product, 0),
            "add {panel}, 128",
            "add {a0}, {step}", "add {a3}, {step}", "add {a6}, {step}", "add {a9}, {step}",
            "sub {fours:e}, 1",
            "jnz 7b",
            "8:",
            rows!(end $m ()),
            in("k1") if $piece.adds { u16::MAX } else { 0 },
            in("k2") u16::from(all),
            in("k3") ones,
            lines = inout(reg) lines => _,
            fours = inout(reg) fours - lines => _,
            panel = inout(reg) $panel => _,
            ahead = inout(reg) ahead => _,
            to = inout(reg) to.first => _,
            to_stride = in(reg) to.stride,
            a0 = inout(reg) $a => _,
            a3 = inout(reg) $a.wrapping_byte_add(3 * stride) => _,
            a6 = inout(reg) $a.wrapping_byte_add(6 * stride) => _,
            a9 = inout(reg) $a.wrapping_byte_add(9 * stride) => _,
            stride = in(reg) stride,
            step = in(reg) step,
            out = in(reg) $out,
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
            out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
            out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _, out("zmm16") _, out("zmm17") _,
            out("zmm18") _, out("zmm19") _, out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _, out("zmm28") _, out("zmm29") _,
            options(nostack),
        );
    }};
}

/// A function that computes the sums of `M` rows.
#[rustfmt::skip]
macro_rules! tile {
    ($(#[$doc:meta])* $name:ident, $features:literal, $value:ty, $broadcast:literal, $product:literal) => {
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
                    1 => sums!(1, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    2 => sums!(2, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    3 => sums!(3, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    4 => sums!(4, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    5 => sums!(5, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    6 => sums!(6, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    7 => sums!(7, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    8 => sums!(8, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    9 => sums!(9, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    10 => sums!(10, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    11 => sums!(11, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    12 => sums!(12, $broadcast, $product, (steps, a, strides, panel, piece, out)),
                    _ => unreachable!("a tile has at most 12 rows"),
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
    floats, "avx512f", f32, "vbroadcastss", "vfmadd231ps"
);

tile!(
    /// [`Simd::tile_i8`](crate::simd::Simd::tile_i8), strides in bytes.
    ///
    /// # Safety
    /// As for that.
    bytes, "avx512f,avx512vnni", u8, "vpbroadcastd", "vpdpbusd"
);
