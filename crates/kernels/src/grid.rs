//! How the work of a product is shared out.

use std::ops::Range;

use crate::{Isa, simd::MOST_ROWS};

/// Rows of which no block is worth keeping in the cache.
const FEW: usize = 64;

/// How a product is cut into parts.
pub(crate) struct Grid {
    rows: usize,
    panels: usize,
    row_blocks: usize,
    panel_blocks: usize,
}

impl Grid {
    /// Of a product of `rows` rows with so many panels of `depth` inputs, by tiles of AMX where `is_tiled`.
    pub(crate) fn new(
        isa: Isa,
        rows: usize,
        panels: usize,
        depth: usize,
        threads: usize,
        is_tiled: bool,
    ) -> Self {
        // Few rows: each thread streams through panels of its own. Many: a block of rows stays in the second cache
        // while panels pass by, and the blocks of panels keep the parts small enough to be shared out evenly.
        const PANELS: usize = 16;
        /// Rows that take as long as what a part does besides, about.
        const PART: usize = 4;
        if rows <= FEW {
            return Self { rows, panels, row_blocks: 1, panel_blocks: panels.min(4 * threads) };
        }
        if is_tiled {
            // Each part splits its rows and its panels anew, so it has many of both.
            let row_blocks = rows.div_ceil((rows / threads).clamp(128, 512));
            let panel_blocks = panels.div_ceil(PANELS).max(threads.div_ceil(row_blocks)).min(panels);
            return Self { rows, panels, row_blocks, panel_blocks };
        }
        let block =
            (isa.cached_values() / depth).clamp(4 * MOST_ROWS, 16 * MOST_ROWS) / MOST_ROWS * MOST_ROWS;
        let panel_blocks = panels.div_ceil(PANELS);
        let fewest = rows.div_ceil(block);
        // A thread with a part more than the others keeps them waiting: the rows of the one that has most, and a part's own cost.
        let longest = |row_blocks: &usize| {
            (row_blocks * panel_blocks).div_ceil(threads) * (rows.div_ceil(*row_blocks) + PART)
        };
        let row_blocks = (fewest..fewest + threads).min_by_key(longest).unwrap_or(fewest);
        Self { rows, panels, row_blocks, panel_blocks }
    }

    /// Of a product of `rows` rows with so many panels, `depth` inputs of each at a time, whose parts bring their operands into order.
    pub(crate) fn of_pieces(isa: Isa, rows: usize, panels: usize, depth: usize, threads: usize) -> Self {
        /// Rows and panels that are worth bringing the other operand into order for.
        const ROWS: usize = 96;
        const PANELS: usize = 8;
        /// Parts for each thread with which one more or less makes no difference.
        const MANY: usize = 16;
        if rows <= FEW {
            return Self { rows, panels, row_blocks: 1, panel_blocks: panels.min(4 * threads) };
        }
        let mut row_blocks = rows.div_ceil((isa.cached_values() / depth).max(4 * MOST_ROWS));
        let mut panel_blocks = panels.div_ceil(2 * PANELS);
        let parts = row_blocks * panel_blocks;
        if parts < MANY * threads {
            // As many for each thread.
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

    /// The blocks that the rows are cut into.
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
