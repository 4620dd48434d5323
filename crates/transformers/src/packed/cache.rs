//! The state of a decoder between steps.

use std::sync::{Arc, Mutex, PoisonError};

use sporran_checkpoint::Result;
use sporran_kernels::{Buffer, PackedHead, Precision, Rows};

use super::{
    layers::Machine,
    steps::{Steps, select},
};

/// The keys and values of a decoder: of the steps of each row (a row's keys, then its values), and of its input.
#[derive(Clone, Debug)]
pub(crate) struct State {
    steps: Steps,
    sources: Vec<Arc<Source>>,
}

/// The keys and values of an input's positions, packed for every layer and head.
#[derive(Debug)]
pub(super) struct Source {
    /// The number of positions.
    count: usize,
    packed: Packed,
}

/// Keys and values as every step reads them.
#[derive(Debug)]
enum Packed {
    F32(Buffer<f32>),
    F16(Buffer<u16>),
}

/// The part of those for a layer and a head.
enum Part<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [u16]),
}

impl Source {
    /// Room for `count` positions in this many layers and heads. Where weights are kept in 8 bits, the keys and values are
    /// kept in 16.
    pub(super) fn new(
        count: usize,
        layers: usize,
        [heads, head_width]: [usize; 2],
        weights: Precision,
    ) -> Self {
        let size = layers * heads * PackedHead::size(count, head_width);
        let packed = match weights {
            Precision::Int8 => Packed::F16(Buffer::zeroed(size)),
            Precision::F32 => Packed::F32(Buffer::zeroed(size)),
        };
        Self { count, packed }
    }

    /// Packs the keys and values of `layer` on all threads: of `rows`, which have the positions of every source, one source
    /// after the other, first the keys and then the values of each.
    pub(super) fn pack(
        sources: &mut [Self],
        layer: usize,
        rows: &Rows,
        [heads, head_width]: [usize; 2],
        machine: &Machine,
    ) {
        let mut parts = Vec::with_capacity(sources.len() * heads);
        let mut end = 0;
        for source in sources {
            let positions = end..end + source.count;
            end = positions.end;
            let views = |head: usize| {
                [0, 1].map(|which| {
                    rows.view(positions.clone(), (which * heads + head) * head_width, head_width)
                })
            };
            let size = PackedHead::size(source.count, head_width);
            let own = layer * heads * size..(layer + 1) * heads * size;
            let mut push = |head: usize, part| parts.push(Mutex::new((views(head), part)));
            match &mut source.packed {
                Packed::F32(packed) => {
                    let heads = packed.values_mut()[own].chunks_exact_mut(size).enumerate();
                    heads.for_each(|(head, part)| push(head, Part::F32(part)));
                }
                Packed::F16(packed) => {
                    let heads = packed.values_mut()[own].chunks_exact_mut(size).enumerate();
                    heads.for_each(|(head, part)| push(head, Part::F16(part)));
                }
            }
        }
        let (isa, values) = (machine.core.isa, rows.values());
        machine.core.pool.run(parts.len(), &|at| {
            let mut part = parts[at].lock().unwrap_or_else(PoisonError::into_inner);
            let ([keys, own], out) = &mut *part;
            match out {
                Part::F32(out) => PackedHead::pack(isa, values, *keys, *own, out),
                Part::F16(out) => PackedHead::pack_halves(isa, values, *keys, *own, out),
            }
        });
    }
}

impl State {
    /// The state of inputs before the first step.
    pub(super) fn new(sources: Vec<Source>, layers: usize) -> Self {
        Self { steps: Steps::new(layers, 0), sources: sources.into_iter().map(Arc::new).collect() }
    }

    /// The number of steps of the longest row.
    pub(crate) fn length(&self) -> usize {
        self.steps.longest()
    }

    /// The number of steps of a row; 0 before its first.
    pub(super) fn length_of(&self, row: usize) -> usize {
        self.steps.length(row)
    }

    /// The number of inputs that are still decoded.
    pub(super) fn inputs(&self) -> usize {
        self.sources.len()
    }

    /// Begins a step of `rows` rows.
    pub(super) fn push_step(&mut self, rows: usize) {
        self.steps.push(rows);
    }

    /// Stores the keys and values of this step for `layer`: the values after the first `width` of each row.
    pub(super) fn extend(&mut self, layer: usize, inputs: &Rows, width: usize) {
        let mut block = Rows::new(inputs.count(), inputs.width() - width);
        for row in 0..inputs.count() {
            block.row_mut(row).copy_from_slice(&inputs.row(row)[width..]);
        }
        self.steps.extend(layer, block);
    }

    /// The keys and values that `row` sees in `layer`, oldest first.
    pub(super) fn steps(&self, layer: usize, row: usize) -> Vec<&[f32]> {
        self.steps.of(layer, row).collect()
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
        let Source { count, packed } = &*self.sources[input];
        let size = PackedHead::size(*count, width);
        let start = (layer * heads + head) * size;
        match packed {
            Packed::F32(packed) => PackedHead::new(&packed[start..start + size], *count, width),
            Packed::F16(packed) => PackedHead::of_halves(&packed[start..start + size], *count, width),
        }
    }

    /// Makes row `i` the continuation of the previous row `rows[i]`.
    ///
    /// # Errors
    /// [`Error::Batch`](sporran_checkpoint::Error::Batch) where a row does not exist.
    pub(crate) fn reorder(&mut self, rows: &[u32]) -> Result<()> {
        self.steps.select(rows)
    }

    /// Keeps the inputs `inputs` only, in that order.
    ///
    /// # Errors
    /// [`Error::Batch`](sporran_checkpoint::Error::Batch) where an input does not exist.
    pub(crate) fn keep_inputs(&mut self, inputs: &[u32]) -> Result<()> {
        self.sources = select(&self.sources, inputs, "inputs")?;
        Ok(())
    }

    /// Appends the inputs and rows of another state of the same model, with as many rows for each input.
    pub(crate) fn join(&mut self, other: Self) {
        self.sources.extend(other.sources);
        self.steps.join(other.steps);
    }

    /// Frees memory of rows that are gone.
    pub(crate) fn compact(&mut self) {
        self.steps.compact();
    }
}
