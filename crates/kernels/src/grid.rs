//! The partition of a matrix product.

use std::ops::Range;

use crate::{Isa, simd::MOST_ROWS};

/// Fewer rows are not worth a cached block.
const FEW: usize = 64;

/// The partition of a product into parts.
pub(crate) struct Grid {
    rows: usize,
    panels: usize,
    row_blocks: usize,
    panel_blocks: usize,
}

impl Grid {
    /// For a product of `rows` rows with `panels` panels of `depth` inputs, on AMX tiles if `is_tiled`.
    pub(crate) fn new(
        isa: Isa,
        rows: usize,
        panels: usize,
        depth: usize,
        threads: usize,
        is_tiled: bool,
    ) -> Self {
        // With few rows, each thread streams through separate panels. With many, a block of rows stays in the
        // L2 cache while panels are streamed, and blocks of panels keep the parts small enough for balance.
        const PANELS: usize = 16;
        /// The other work of a part, in units of rows.
        const PART: usize = 4;
        if rows <= FEW {
            return Self { rows, panels, row_blocks: 1, panel_blocks: panels.min(4 * threads) };
        }
        if is_tiled {
            // Each part splits its rows and panels again, so parts are large.
            let row_blocks = rows.div_ceil((rows / threads).clamp(128, 512));
            let panel_blocks = panels.div_ceil(PANELS).max(threads.div_ceil(row_blocks)).min(panels);
            return Self { rows, panels, row_blocks, panel_blocks };
        }
        let block =
            (isa.cached_values() / depth).clamp(4 * MOST_ROWS, 16 * MOST_ROWS) / MOST_ROWS * MOST_ROWS;
        let panel_blocks = panels.div_ceil(PANELS);
        let fewest = rows.div_ceil(block);
        // The slowest thread determines the time: its rows, and the fixed cost of its parts.
        let longest = |row_blocks: &usize| {
            (row_blocks * panel_blocks).div_ceil(threads) * (rows.div_ceil(*row_blocks) + PART)
        };
        let row_blocks = (fewest..fewest + threads).min_by_key(longest).unwrap_or(fewest);
        Self { rows, panels, row_blocks, panel_blocks }
    }

    /// For a product of `rows` rows with `panels` panels, `depth` inputs at a time, whose parts reorder their
    /// operands.
    pub(crate) fn of_pieces(isa: Isa, rows: usize, panels: usize, depth: usize, threads: usize) -> Self {
        /// The smallest numbers of rows and panels for which reordering the other operand pays.
        const ROWS: usize = 96;
        const PANELS: usize = 8;
        /// With this many parts a thread, one more or less does not matter.
        const MANY: usize = 16;
        if rows <= FEW {
            return Self { rows, panels, row_blocks: 1, panel_blocks: panels.min(4 * threads) };
        }
        let mut row_blocks = rows.div_ceil((isa.cached_values() / depth).max(4 * MOST_ROWS));
        let mut panel_blocks = panels.div_ceil(2 * PANELS);
        let parts = row_blocks * panel_blocks;
        if parts < MANY * threads {
            // The same number for each thread.
            let parts = parts.next_multiple_of(threads);
            if parts.div_ceil(row_blocks) * PANELS <= panels {
                panel_blocks = parts.div_ceil(row_blocks);
            } else {
                row_blocks = row_blocks.max(parts.div_ceil(panel_blocks).min(rows / ROWS));
                panel_blocks = panel_blocks.max(parts.div_ceil(row_blocks).min(panels));
            }
        }
        Self { rows, panels, row_blocks, panel_blocks }
    }

    /// The number of blocks of rows.
    pub(crate) fn row_blocks(&self) -> usize {
        self.row_blocks
    }

    pub(crate) fn parts(&self) -> usize {
        if self.rows == 0 { 0 } else { self.row_blocks * self.panel_blocks }
    }

    pub(crate) fn part(&self, at: usize) -> (Range<usize>, Range<usize>) {
        let cut = |at: usize, parts: usize, whole: usize| at * whole / parts..(at + 1) * whole / parts;
        (
            cut(at % self.row_blocks, self.row_blocks, self.rows),
            cut(at / self.row_blocks, self.panel_blocks, self.panels),
        )
    }
}
