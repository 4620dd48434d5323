//! The entity vectors: in memory in 32 or 16 bits, or memory-mapped.

use std::{ops::Range, sync::Arc};

use half::f16;
use memmap2::Mmap;
use sporran_kernels::Vectors;

/// Rows of equal length.
#[derive(Clone, Debug)]
pub(crate) struct EntityTable {
    count: usize,
    width: usize,
    rows: Rows,
}

#[derive(Clone, Debug)]
pub(crate) enum Rows {
    F32(Vec<f32>),
    F16(Vec<f16>),
    /// Rows in a mapped file, starting at a byte offset.
    Mapped {
        map: Arc<Mmap>,
        bytes: Range<usize>,
        half: bool,
    },
}

impl EntityTable {
    pub(crate) fn new(count: usize, width: usize, rows: Rows) -> Self {
        let expected = count * width;
        let found = match &rows {
            Rows::F32(values) => values.len(),
            Rows::F16(values) => values.len(),
            Rows::Mapped { bytes, half, .. } => bytes.len() / if *half { 2 } else { 4 },
        };
        assert_eq!(found, expected, "{count} rows of {width}");
        Self { count, width, rows }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn width(&self) -> usize {
        self.width
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    pub(crate) fn rows_mut(&mut self) -> &mut Rows {
        &mut self.rows
    }

    /// All values, if they are in memory in 32 bits.
    pub(crate) fn values(&self) -> Option<&[f32]> {
        match &self.rows {
            Rows::F32(values) => Some(values),
            _ => None,
        }
    }

    /// Copies the first `out.len()` values of row `at`.
    pub(crate) fn read(&self, at: usize, out: &mut [f32]) {
        let start = at * self.width;
        match &self.rows {
            Rows::F32(values) => out.copy_from_slice(&values[start..start + out.len()]),
            Rows::F16(values) => {
                let row = &values[start..start + out.len()];
                out.iter_mut().zip(row).for_each(|(out, value)| *out = value.to_f32());
            }
            Rows::Mapped { map, bytes, half } => {
                let vectors = Vectors::new(self.width, *half, &map[bytes.clone()]);
                if out.len() == self.width {
                    vectors.row(at, out);
                } else {
                    let mut row = vec![0.0; self.width];
                    vectors.row(at, &mut row);
                    out.copy_from_slice(&row[..out.len()]);
                }
            }
        }
    }

    /// Returns some rows as 32-bit values, one after the other. Other storage types are decoded into
    /// `scratch`.
    pub(crate) fn block<'a>(&'a self, rows: Range<usize>, scratch: &'a mut Vec<f32>) -> &'a [f32] {
        if let Rows::F32(values) = &self.rows {
            return &values[rows.start * self.width..rows.end * self.width];
        }
        scratch.resize(rows.len() * self.width, 0.0);
        for (at, out) in rows.zip(scratch.chunks_exact_mut(self.width)) {
            self.read(at, out);
        }
        scratch
    }
}
