//! Rows of activations.

use std::{marker::PhantomData, ops::Range};

use crate::{buffer::Lines, multiply::View, thread_pool::ThreadPool};

/// The gap between rows, in values: one cache line. Rows at multiples of 4 KiB would share few lines of the
/// L1 cache.
const GAP: usize = 16;

/// A matrix of activations, row by row, each row followed by a gap.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    values: Lines,
    count: usize,
    width: usize,
    stride: usize,
}

impl Rows {
    /// `count` rows of `width` zeros.
    #[must_use]
    pub fn new(count: usize, width: usize) -> Self {
        let mut rows = Self::default();
        rows.reshape(count, width);
        rows
    }

    /// Changes the shape to `count` rows of `width`. The values are lost; the new ones are undefined.
    /// Existing memory is reused.
    pub fn reshape(&mut self, count: usize, width: usize) {
        self.stride = width.next_multiple_of(GAP) + GAP;
        self.count = count;
        self.width = width;
        self.values.resize(count * self.stride);
    }

    /// The first `width` values of the rows `which`.
    ///
    /// # Panics
    /// If there is no such row or value.
    #[must_use]
    pub fn pick(&self, which: &[usize], width: usize) -> Self {
        let mut picked = Self::new(which.len(), width);
        for (at, row) in which.iter().enumerate() {
            picked.row_mut(at).copy_from_slice(&self.row(*row)[..width]);
        }
        picked
    }

    /// The number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The width of a row.
    #[must_use]
    pub fn width(&self) -> usize {
        self.width
    }

    /// The distance between rows, in values.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Row `at`.
    #[must_use]
    pub fn row(&self, at: usize) -> &[f32] {
        assert!(at < self.count);
        &self.values[at * self.stride..][..self.width]
    }

    /// Row `at`, mutable.
    pub fn row_mut(&mut self, at: usize) -> &mut [f32] {
        assert!(at < self.count);
        &mut self.values[at * self.stride..][..self.width]
    }

    /// All values, gaps included.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The view of `width` columns from `column` on of some rows, in [`values`](Self::values).
    #[must_use]
    pub fn view(&self, rows: Range<usize>, column: usize, width: usize) -> View {
        View::rows(rows.start * self.stride + column, rows.len(), width, self.stride)
    }

    /// Calls `job` for every one of `blocks` of rows and every `width` columns, on all threads of `pool`,
    /// with the indices of the block and of the columns.
    ///
    /// # Panics
    /// If the blocks overlap or are not ascending, or `width` does not divide the row width.
    pub fn each_part(
        &mut self,
        pool: &ThreadPool,
        blocks: &[Range<usize>],
        width: usize,
        job: &(dyn Fn(usize, usize, Part<'_>) + Sync),
    ) {
        assert!(width > 0 && self.width.is_multiple_of(width));
        assert!(
            blocks.is_sorted_by(|a, b| a.end <= b.start)
                && blocks.iter().all(|block| block.start <= block.end)
        );
        assert!(blocks.last().is_none_or(|last| last.end <= self.count));
        let groups = self.width / width;
        let rows = self.shared();
        pool.run(blocks.len() * groups, &|at| {
            let (block, group) = (at / groups, at % groups);
            job(
                block,
                group,
                Part { rows, block: blocks[block].clone(), start: group * width, width, life: PhantomData },
            );
        });
    }

    /// All rows, for writing by several threads.
    pub(crate) fn shared(&mut self) -> SharedRows {
        SharedRows {
            values: self.values.as_mut_ptr(),
            count: self.count,
            width: self.width,
            stride: self.stride,
        }
    }
}

/// Some columns of a block of rows, with exclusive access.
pub struct Part<'a> {
    rows: SharedRows,
    block: Range<usize>,
    start: usize,
    width: usize,
    life: PhantomData<&'a mut [f32]>,
}

impl Part<'_> {
    /// The columns of row `at` of the block.
    ///
    /// # Panics
    /// If the block has no such row.
    pub fn row_mut(&mut self, at: usize) -> &mut [f32] {
        assert!(at < self.block.len());
        // SAFETY: blocks and columns of different parts do not overlap. `each_part` alone creates parts and
        // borrows the rows, and a part returns one row at a time.
        unsafe { self.rows.part(self.block.start + at, self.start, self.width) }
    }
}

/// Rows that several threads write to, each in separate parts.
#[derive(Clone, Copy)]
pub(crate) struct SharedRows {
    values: *mut f32,
    pub(crate) count: usize,
    pub(crate) width: usize,
    pub(crate) stride: usize,
}

// SAFETY: the pointer is only used through `part`, whose callers separate the parts of different threads.
unsafe impl Send for SharedRows {}
// SAFETY: as above.
unsafe impl Sync for SharedRows {}

impl SharedRows {
    /// `count` rows without gaps.
    pub(crate) fn of_values(values: &mut [f32], count: usize) -> Self {
        let width = values.len().checked_div(count).unwrap_or(0);
        Self { values: values.as_mut_ptr(), count, width, stride: width }
    }

    /// The address of column `start` of row `at`.
    #[inline(always)]
    pub(crate) fn place(&self, at: usize, start: usize) -> *const f32 {
        self.values.wrapping_add(at * self.stride + start)
    }

    /// Columns `start..start + length` of row `at`.
    ///
    /// # Safety
    /// The rows must be alive and not used elsewhere, and no other thread may have an overlapping part.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "the contract keeps the parts apart")]
    pub(crate) unsafe fn part(&self, at: usize, start: usize, length: usize) -> &mut [f32] {
        assert!(at < self.count && start + length <= self.width);
        // SAFETY: inside the rows by the assertion; alive and unshared by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.values.add(at * self.stride + start), length) }
    }
}
