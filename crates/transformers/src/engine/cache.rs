//! What a decoder keeps between steps.

use sporran_kernels::{Lines, PackedHead, Rows};

use super::layers::Machine;
use crate::error::{Error, Result};

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
    cross: Vec<Lines>,
    /// Where the packed heads of each input begin and how many keys they have. Inputs that are done stay in `cross`.
    sources: Vec<Source>,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    start: usize,
    count: usize,
}

impl State {
    /// The state before the first step, without layers.
    pub(super) fn new(lengths: &[usize], heads: usize, head_width: usize) -> Self {
        let mut start = 0;
        let sources = lengths
            .iter()
            .map(|count| {
                let source = Source { start, count: *count };
                start += heads * PackedHead::size(*count, head_width);
                source
            })
            .collect();
        Self { sources, ..Self::default() }
    }

    /// Adds a layer, whose cross-attention sees `sources`: the keys and then the values of every input's positions,
    /// one input after the other.
    pub(super) fn add_layer(&mut self, sources: &Rows, heads: usize, head_width: usize, machine: &Machine) {
        let size: usize = self.sources.iter().map(|s| heads * PackedHead::size(s.count, head_width)).sum();
        let mut packed = Lines::zeroed(size);
        let mut parts: Vec<(usize, usize, usize, &mut [f32])> = Vec::new();
        let (mut rest, mut row) = (&mut packed[..], 0);
        for source in &self.sources {
            for head in 0..heads {
                let (part, others) = rest.split_at_mut(PackedHead::size(source.count, head_width));
                parts.push((row, source.count, head, part));
                rest = others;
            }
            row += source.count;
        }
        let parts: Vec<std::sync::Mutex<_>> = parts.into_iter().map(std::sync::Mutex::new).collect();
        machine.core.team.run(parts.len(), &|at| {
            let Ok(mut part) = parts[at].lock() else { return };
            let (row, count, head, out) = &mut *part;
            let of = |which: usize| {
                sources.view(*row..*row + *count, (which * heads + *head) * head_width, head_width)
            };
            PackedHead::pack(machine.core.isa, sources.values(), of(0), of(1), out);
        });
        drop(parts);
        self.cross.push(packed);
        self.own.push(Vec::new());
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

    /// Keeps the keys and values of this step for `layer`: what follows the first `width` values of each row.
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
        PackedHead::new(&self.cross[layer][start + head * size..][..size], count, width)
    }

    /// Makes row `i` the continuation of what was row `rows[i]`.
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
