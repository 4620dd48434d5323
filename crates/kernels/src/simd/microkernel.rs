//! Strips: products of some rows with a panel, tile by tile.

use std::{iter, ops::Range};

use super::{LANES, Piece, Prefetch, Simd, To};

/// Calls `$set::$tile::<M>` with `M` the number of rows, which must be at most `$set::ROWS`.
macro_rules! tile {
    ($set:ident::$tile:ident, $rows:expr, $($argument:expr),* $(,)?) => {
        match $rows {
            1 => $set::$tile::<1>($($argument),*),
            2 => $set::$tile::<2>($($argument),*),
            rows if $set::ROWS > 2 => match rows {
                3 => $set::$tile::<3>($($argument),*),
                4 => $set::$tile::<4>($($argument),*),
                5 => $set::$tile::<5>($($argument),*),
                6 => $set::$tile::<6>($($argument),*),
                rows if $set::ROWS > 6 => match rows {
                    7 => $set::$tile::<7>($($argument),*),
                    8 => $set::$tile::<8>($($argument),*),
                    9 => $set::$tile::<9>($($argument),*),
                    10 => $set::$tile::<10>($($argument),*),
                    11 => $set::$tile::<11>($($argument),*),
                    12 => $set::$tile::<12>($($argument),*),
                    _ => unreachable!("a tile has at most 12 rows"),
                },
                _ => unreachable!("a tile has at most 6 rows here"),
            },
            _ => unreachable!("a tile has at most 2 rows here"),
        }
    };
}
pub(crate) use tile;

/// The strips of `rows`, of similar height, so that the last is not much smaller.
#[inline(always)]
pub(crate) fn strips<S: Simd>(rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let strips = rows.len().div_ceil(S::STRIP);
    (0..strips)
        .map(move |at| rows.start + at * rows.len() / strips..rows.start + (at + 1) * rows.len() / strips)
}

/// A tile: its rows in the strip, the first of its steps and their number, and its block of the panel.
pub(crate) struct Tile {
    pub(crate) rows: Range<usize>,
    /// Whether its sums are final.
    pub(crate) ends: bool,
    from: usize,
    count: usize,
    piece: Piece,
}

/// The tiles of a strip of `rows` rows, in order. All tiles read a block of the panel before the next block.
///
/// Callers use loops: a closure that is not inlined would be compiled without the features of the instruction
/// set.
#[inline(always)]
pub(crate) fn tiles<S: Simd>(rows: usize, steps: usize) -> impl Iterator<Item = Tile> {
    tiles_of::<S>(rows, steps, SHARES, true)
}

/// The number of tiles that share the prefetch of the next block.
const SHARES: usize = 4;

/// The tiles of a strip, as [`tiles`] gives them. Their blocks begin at multiples of `unit` steps; `prefetches` says
/// whether tiles prefetch the panel.
#[inline(always)]
pub(crate) fn tiles_of<S: Simd>(
    rows: usize,
    steps: usize,
    unit: usize,
    prefetches: bool,
) -> impl Iterator<Item = Tile> {
    /// With this many rows, computation limits the speed.
    const MANY: usize = 32;
    let tiles = rows.div_ceil(S::ROWS);
    // A single tile avoids the division.
    let cut = move |at: usize| if tiles == 1 { at * rows } else { at * rows / tiles };
    let longest = if steps <= S::PIECE {
        steps
    } else {
        steps.div_ceil(steps.div_ceil(S::PIECE)).next_multiple_of(unit)
    };
    let (mut from, mut at) = (0, 0);
    iter::from_fn(move || {
        if from >= steps {
            return None;
        }
        let count = longest.min(steps - from);
        let prefetch = match rows {
            _ if !prefetches => Prefetch::Nothing,
            ..=MANY => Prefetch::Ahead,
            _ if at < SHARES => Prefetch::From(count + at * (count / SHARES)),
            _ => Prefetch::Nothing,
        };
        let piece = Piece { adds: from > 0, prefetch, to: None };
        let tile = Tile { rows: cut(at)..cut(at + 1), ends: from + count == steps, from, count, piece };
        at += 1;
        if at == tiles {
            (from, at) = (from + count, 0);
        }
        Some(tile)
    })
}

impl Tile {
    /// The tile with a destination to prefetch, with rows of the strip.
    #[inline(always)]
    pub(crate) fn to(mut self, first: *const f32, stride: usize) -> Self {
        let first = first.wrapping_add(self.rows.start * stride).cast();
        self.piece.to = self.ends.then_some(To { first, stride: 4 * stride });
        self
    }

    /// The steps of the tile.
    #[inline(always)]
    pub(crate) fn steps(&self) -> Range<usize> {
        self.from..self.from + self.count
    }

    /// [`sum_f32`](Self::sum_f32) with the block of the panel that has the tile's steps alone.
    ///
    /// # Safety
    /// As for that, with contiguous values.
    #[inline(always)]
    pub(crate) unsafe fn sum_block<S: Simd>(
        &self,
        a: *const f32,
        stride: usize,
        block: *const f32,
        out: &mut [[f32; LANES]],
    ) {
        let Range { start, end } = self.rows;
        // SAFETY: rows and inputs of the strip, which are good by the contract.
        unsafe {
            let a = a.add(start * stride + self.from);
            let out = out[start..end].as_mut_ptr();
            tile!(S::tile_f32, end - start, self.count, a, (stride, 1), block, self.piece, out);
        }
    }

    /// The products of the tile in f32, of its steps and those before: `out[r]` is row `r` of the strip, `a`,
    /// times the panel.
    ///
    /// # Safety
    /// As for [`sum_f32`].
    #[inline(always)]
    pub(crate) unsafe fn sum_f32<S: Simd>(
        &self,
        a: *const f32,
        (stride, step): (usize, usize),
        panel: *const f32,
        out: &mut [[f32; LANES]],
    ) {
        let Range { start, end } = self.rows;
        // SAFETY: rows and inputs of the strip, which are good by the contract.
        unsafe {
            let a = a.add(start * stride + self.from * step);
            let panel = panel.add(self.from * LANES);
            let out = out[start..end].as_mut_ptr();
            tile!(S::tile_f32, end - start, self.count, a, (stride, step), panel, self.piece, out);
        }
    }

    /// The products of the tile in int8, of its steps and those before: `out[r]` is row `r` of the strip, `a`
    /// (unsigned), times the panel (signed, four rows interleaved).
    ///
    /// # Safety
    /// As for [`sum_i8`].
    #[inline(always)]
    pub(crate) unsafe fn sum_i8<S: Simd>(
        &self,
        a: *const u8,
        stride: usize,
        panel: *const i8,
        out: &mut [[i32; LANES]],
    ) {
        let Range { start, end } = self.rows;
        // SAFETY: as in `sum_f32`.
        unsafe {
            let a = a.add(start * stride + 4 * self.from * S::INPUT);
            let panel = panel.add(4 * self.from * LANES);
            let out = out[start..end].as_mut_ptr();
            tile!(S::tile_i8, end - start, self.count, a, stride, panel, self.piece, out);
        }
    }
}

/// The sums of a strip in f32: `out[r]` is row `r` of `a` times the panel.
///
/// # Safety
/// As for [`Simd::tile_f32`], for `rows` rows; `depth` must not be 0.
#[inline(always)]
pub(crate) unsafe fn sum_f32<S: Simd>(
    rows: usize,
    depth: usize,
    a: *const f32,
    (stride, step): (usize, usize),
    panel: *const f32,
    out: &mut [[f32; LANES]],
) {
    for tile in tiles::<S>(rows, depth) {
        // SAFETY: the contract.
        unsafe { tile.sum_f32::<S>(a, (stride, step), panel, out) };
    }
}

/// The products of a strip whose panel is in 16 bits: `out[r]` is row `r` of `a` times the panel.
///
/// # Safety
/// As for [`sum_f32`], with contiguous values.
#[inline(always)]
pub(crate) unsafe fn sum_f16<S: Simd>(
    rows: usize,
    depth: usize,
    a: *const f32,
    stride: usize,
    panel: *const u16,
    out: &mut [[f32; LANES]],
) {
    for Tile { rows: Range { start, end }, from, count, piece, .. } in tiles::<S>(rows, depth) {
        // SAFETY: as in `sum_f32`.
        unsafe {
            let a = a.add(start * stride + from);
            let panel = panel.add(from * LANES);
            let out = out[start..end].as_mut_ptr();
            tile!(S::tile_f16, end - start, count, a, stride, panel, piece, out);
        }
    }
}

/// The sums of a strip in int8: `out[r]` is row `r` of `a` (unsigned) times the panel (signed, four rows interleaved).
///
/// # Safety
/// As for [`Simd::tile_i8`], for `rows` rows; `quads` must not be 0.
#[inline(always)]
pub(crate) unsafe fn sum_i8<S: Simd>(
    rows: usize,
    quads: usize,
    a: *const u8,
    stride: usize,
    panel: *const i8,
    out: &mut [[i32; LANES]],
) {
    for tile in tiles::<S>(rows, quads) {
        // SAFETY: the contract.
        unsafe { tile.sum_i8::<S>(a, stride, panel, out) };
    }
}
