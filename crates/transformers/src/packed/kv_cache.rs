//! The keys and values that a decoder-only model keeps of sequences.

use std::sync::Arc;

use sporran_checkpoint::{Error, Result};
use sporran_kernels::Rows;

/// The sizes of a model's attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    /// Heads of queries.
    pub(super) heads: usize,
    /// Heads of keys and values, each of which serves the same number of heads that follow each other.
    pub(super) groups: usize,
    /// The width of a head.
    pub(super) width: usize,
}

impl Heads {
    /// The width of queries, keys and values side by side.
    pub(super) fn inputs(self) -> usize {
        (self.heads + 2 * self.groups) * self.width
    }

    /// The width of a position's keys and values.
    pub(super) fn kept(self) -> usize {
        2 * self.groups * self.width
    }

    /// Heads that share a group.
    pub(super) fn each(self) -> usize {
        self.heads / self.groups
    }

    /// Writes the keys and values of a row of inputs: each group's key and then its value.
    pub(super) fn keep(self, inputs: &[f32], out: &mut [f32]) {
        let keys = self.heads * self.width;
        let values = keys + self.groups * self.width;
        for (group, out) in out.chunks_exact_mut(2 * self.width).enumerate() {
            out[..self.width].copy_from_slice(&inputs[keys + group * self.width..][..self.width]);
            out[self.width..].copy_from_slice(&inputs[values + group * self.width..][..self.width]);
        }
    }
}

/// The keys and values of partial sequences.
#[derive(Clone, Debug)]
pub(crate) struct KvCache {
    pub(super) rows: Vec<Row>,
    /// For each layer, a block for each step with a row for each sequence that was followed then.
    pub(super) blocks: Vec<Vec<Rows>>,
}

/// A sequence: its prompt's keys and values, which beams share, and at each step after it the row of that step's blocks
/// that is its own.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) prompt: Arc<Prompt>,
    pub(super) path: Vec<u32>,
}

#[derive(Debug)]
pub(super) struct Prompt {
    pub(super) length: usize,
    /// For each layer, position after position.
    pub(super) layers: Vec<Vec<f32>>,
}

impl KvCache {
    /// The number of sequences.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The tokens of the longest sequence.
    pub(crate) fn length(&self) -> usize {
        self.rows.iter().map(|row| row.prompt.length + row.path.len()).max().unwrap_or(0)
    }

    /// Makes row `i` the continuation of the previous row `rows[i]`.
    pub(crate) fn select(&mut self, rows: &[u32]) -> Result<()> {
        let one = |row: &u32| {
            self.rows.get(*row as usize).cloned().ok_or_else(|| Error::Batch {
                expected: format!("one of {} rows", self.rows.len()),
                found: format!("row {row}"),
            })
        };
        self.rows = rows.iter().map(one).collect::<Result<_>>()?;
        Ok(())
    }

    /// The cached keys and values of a group that `row` attends to in `layer`, oldest first.
    pub(super) fn seen(&self, layer: usize, row: usize, group: usize, heads: Heads) -> Vec<&[f32]> {
        let Row { prompt, path } = &self.rows[row];
        let part = 2 * heads.width;
        let prompt = prompt.layers[layer].chunks_exact(heads.kept());
        let steps = self.blocks[layer].iter().zip(path).map(|(block, row)| block.row(*row as usize));
        prompt.chain(steps).map(|kept| &kept[group * part..][..part]).collect()
    }
}
