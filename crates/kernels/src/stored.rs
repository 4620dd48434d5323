//! Weights as a file stores them, and tables of which single rows are read.

use std::ops::Range;

use crate::coding::Coding;

/// A function that is called with bytes that are not read again.
type Release<'a> = &'a dyn Fn(&[u8]);

/// Weights in one coding, row by row.
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    coding: Coding,
    bytes: &'a [u8],
    /// The number of weights in a row, and its size in bytes.
    width: usize,
    row: usize,
    release: Option<Release<'a>>,
}

impl<'a> Stored<'a> {
    /// Rows of `width` weights.
    ///
    /// # Panics
    /// If a row is not whole blocks of the coding, or `bytes` are not whole rows.
    #[must_use]
    pub fn new(coding: Coding, bytes: &'a [u8], width: usize) -> Self {
        let row = coding.size(width).expect("rows of whole blocks");
        assert!(row > 0 && bytes.len().is_multiple_of(row), "whole rows");
        Self { coding, bytes, width, row, release: None }
    }

    /// The same weights, whose bytes are given to `release` when they have been packed. So a mapped file and the packed
    /// weights are not in memory at the same time.
    #[must_use]
    pub fn releasing(self, release: &'a dyn Fn(&[u8])) -> Self {
        Self { release: Some(release), ..self }
    }

    /// The coding.
    #[must_use]
    pub fn coding(&self) -> Coding {
        self.coding
    }

    /// The rows, each with its bytes.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.bytes.chunks_exact(self.row)
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    pub(crate) fn count(&self) -> usize {
        self.bytes.len() / self.row
    }

    /// Releases these rows, as far as there are so many.
    pub(crate) fn release(&self, rows: Range<usize>) {
        let end = rows.end.min(self.count());
        if let Some(release) = self.release
            && rows.start < end
        {
            release(&self.bytes[rows.start * self.row..end * self.row]);
        }
    }
}

/// A table whose rows stay in their coding, and are decoded when they are read.
#[derive(Debug)]
pub struct Table {
    coding: Coding,
    bytes: Vec<u8>,
    row: usize,
}

impl Table {
    /// Rows of `width` weights.
    ///
    /// # Panics
    /// As for [`Stored::new`].
    #[must_use]
    pub fn new(coding: Coding, bytes: Vec<u8>, width: usize) -> Self {
        let row = Stored::new(coding, &bytes, width).row;
        Self { coding, bytes, row }
    }

    /// Writes row `at`.
    ///
    /// # Panics
    /// If there is no such row, or the length of `out` is not the width.
    pub fn row(&self, at: usize, out: &mut [f32]) {
        self.coding.decode(&self.bytes[at * self.row..][..self.row], out);
    }

    /// The number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bytes.len() / self.row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_table_are_decoded_alone() {
        let bytes: Vec<u8> =
            [1.0f32, -2.0, 3.5, 0.0, 8.0, 9.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let table = Table::new(Coding::F32, bytes, 2);
        assert_eq!(table.count(), 3);
        let mut row = [0.0; 2];
        table.row(1, &mut row);
        assert_eq!(row, [3.5, 0.0]);
        // 1.5 and -0.25 in bf16.
        let table = Table::new(Coding::Bf16, vec![0xc0, 0x3f, 0x80, 0xbe], 1);
        let mut row = [0.0];
        table.row(1, &mut row);
        assert_eq!(row, [-0.25]);
    }
}
