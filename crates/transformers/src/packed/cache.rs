//! The state of a decoder between steps.

use std::sync::{Arc, Mutex, PoisonError};

use sporran_checkpoint::{Error, Result};
use sporran_kernels::{Buffer, PackedHead, Precision, Rows, View};

use super::layers::Machine;

/// The keys and values of a decoder.
///
/// Each step adds a block of rows to every layer, which stays where it is: `paths[row][step]` is the row of that
/// step's block from which `row` descends.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// For each layer, a block for each step: a row's keys, then its values.
    own: Vec<Vec<Rows>>,
    paths: Vec<Vec<u32>>,
    /// For each layer, the packed keys and values of all inputs.
    cross: Vec<Arc<Cross>>,
    /// Whether those are in 16 bits.
    in_halves: bool,
    /// Where the packed heads of each input begin and how many keys they have. Inputs that are done stay in `cross`.
    sources: Vec<Source>,
}

/// Keys and values as every step reads them.
#[derive(Debug)]
enum Cross {
    F32(Buffer<f32>),
    F16(Buffer<u16>),
}

#[derive(Clone, Copy, Debug)]
struct Source {
    start: usize,
    count: usize,
}

impl State {
    /// The state before the first step, without layers. Where weights are kept in 8 bits, the sources' keys and values are kept in 16.
    pub(super) fn new(lengths: &[usize], heads: usize, head_width: usize, weights: Precision) -> Self {
        let mut start = 0;
        let sources = lengths
            .iter()
            .map(|count| {
                let source = Source { start, count: *count };
                start += heads * PackedHead::size(*count, head_width);
                source
            })
            .collect();
        Self { sources, in_halves: weights == Precision::Int8, ..Self::default() }
    }

    /// Adds a layer, whose cross-attention sees `sources`: the keys and then the values of every input's positions,
    /// one input after the other.
    pub(super) fn add_layer(&mut self, sources: &Rows, heads: usize, head_width: usize, machine: &Machine) {
        let size: usize = self.sources.iter().map(|s| heads * PackedHead::size(s.count, head_width)).sum();
        let (isa, values) = (machine.core.isa, sources.values());
        let cross = if self.in_halves {
            let mut packed = Buffer::zeroed(size);
            self.pack(packed.values_mut(), sources, heads, head_width, machine, &|[keys, own], out| {
                PackedHead::pack_halves(isa, values, keys, own, out);
            });
            Cross::F16(packed)
        } else {
            let mut packed = Buffer::zeroed(size);
            self.pack(packed.values_mut(), sources, heads, head_width, machine, &|[keys, own], out| {
                PackedHead::pack(isa, values, keys, own, out);
            });
            Cross::F32(packed)
        };
        self.cross.push(Arc::new(cross));
        self.own.push(Vec::new());
    }

    /// Calls `pack` for each input and head, on all threads, with where its keys and values lie and its part of `packed`.
    fn pack<T: Send>(
        &self,
        packed: &mut [T],
        sources: &Rows,
        heads: usize,
        head_width: usize,
        machine: &Machine,
        pack: &(dyn Fn([View; 2], &mut [T]) + Sync),
    ) {
        let mut parts = Vec::new();
        let (mut rest, mut row) = (packed, 0);
        for source in &self.sources {
            for head in 0..heads {
                let of = |which: usize| {
                    let column = (which * heads + head) * head_width;
                    sources.view(row..row + source.count, column, head_width)
                };
                let (part, others) = rest.split_at_mut(PackedHead::size(source.count, head_width));
                parts.push(Mutex::new(([of(0), of(1)], part)));
                rest = others;
            }
            row += source.count;
        }
        machine.core.pool.run(parts.len(), &|at| {
            let mut part = parts[at].lock().unwrap_or_else(PoisonError::into_inner);
            let (views, out) = &mut *part;
            pack(*views, out);
        });
    }

    /// The number of steps so far.
    pub(super) fn length(&self) -> usize {
        self.paths.first().map_or(0, Vec::len)
    }

    /// The number of inputs that are still decoded.
    pub(super) fn inputs(&self) -> usize {
        self.sources.len()
    }

    /// Begins a step of `rows` rows.
    pub(super) fn push_step(&mut self, rows: usize) {
        self.paths.resize(rows, Vec::new());
        for (row, path) in self.paths.iter_mut().enumerate() {
            path.push(row as u32);
        }
    }

    /// Stores the keys and values of this step for `layer`: the values after the first `width` of each row.
    pub(super) fn extend(&mut self, layer: usize, inputs: &Rows, width: usize) {
        let mut block = Rows::new(inputs.count(), inputs.width() - width);
        for row in 0..inputs.count() {
            block.row_mut(row).copy_from_slice(&inputs.row(row)[width..]);
        }
        self.own[layer].push(block);
    }

    /// The keys and values that `row` sees in `layer`, oldest first.
    pub(super) fn steps(&self, layer: usize, row: usize) -> Vec<&[f32]> {
        let path = self.paths[row].iter();
        self.own[layer].iter().zip(path).map(|(block, row)| block.row(*row as usize)).collect()
    }

    /// The packed keys and values that `input` has for a head in `layer`.
    pub(super) fn source(
        &self,
        layer: usize,
        input: usize,
        head: usize,
        heads: usize,
        width: usize,
    ) -> PackedHead<'_> {
        debug_assert!(head < heads);
        let Source { start, count } = self.sources[input];
        let size = PackedHead::size(count, width);
        let values = start + head * size..start + (head + 1) * size;
        match &*self.cross[layer] {
            Cross::F32(packed) => PackedHead::new(&packed[values], count, width),
            Cross::F16(packed) => PackedHead::of_halves(&packed[values], count, width),
        }
    }

    /// Makes row `i` the continuation of the previous row `rows[i]`.
    ///
    /// # Errors
    /// [`Error::Batch`] where a row does not exist.
    pub(crate) fn reorder(&mut self, rows: &[u32]) -> Result<()> {
        self.paths = select(&self.paths, rows, "rows")?;
        Ok(())
    }

    /// Keeps the inputs `inputs` only, in that order.
    ///
    /// # Errors
    /// [`Error::Batch`] where an input does not exist.
    pub(crate) fn keep_inputs(&mut self, inputs: &[u32]) -> Result<()> {
        self.sources = select(&self.sources, inputs, "inputs")?;
        Ok(())
    }
}

fn select<T: Clone>(all: &[T], places: &[u32], what: &str) -> Result<Vec<T>> {
    let one = |place: &u32| {
        all.get(*place as usize).cloned().ok_or_else(|| Error::Batch {
            expected: format!("{what} below {}", all.len()),
            found: place.to_string(),
        })
    };
    places.iter().map(one).collect()
}
