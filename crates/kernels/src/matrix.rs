//! Packed weights and their products.

use std::ops::Range;

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use crate::amx::{self, Sums};
use crate::{
    buffer::{Buffer, Lines},
    coding::Coding,
    grid::Grid,
    isa::{Isa, dispatch},
    math::Activation,
    panels::{CodedPanels, Strip},
    quantise::{Scratch, quantise, quantise_output},
    rows::{Rows, SharedRows},
    simd::{
        LANES, Simd,
        microkernel::{strips, tiles},
    },
    stored::Stored,
    thread_pool::ThreadPool,
};

/// The storage type of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Unchanged; products are computed in f32.
    #[default]
    F32,
    /// In 8 bits with one scale an output; inputs are quantised to 8 bits with one scale a row, and the sums
    /// are exact.
    Int8,
}

/// The weights of a linear layer, (outputs, inputs), in panels of 32 outputs.
///
/// A panel has its 32 outputs' weights for the first input, then for the second, and so on. In int8 four
/// inputs' weights of an output are next to each other. Coded weights stay in their coding. A product reads a panel
/// sequentially.
#[derive(Debug)]
pub struct Matrix {
    inputs: usize,
    outputs: usize,
    values: Values,
}

#[derive(Debug)]
enum Values {
    F32(Buffer<f32>),
    /// In other codings than f32.
    Coded(CodedPanels),
    Int8 {
        values: Buffer<i8>,
        /// The scale of each output's weights.
        scales: Vec<f32>,
        /// 128 times the sum of each output's weights: inputs are stored with 128 added.
        offsets: Vec<i32>,
    },
}

/// The number of rows that are packed before the bytes that they were read from are released.
const TOGETHER: usize = 64 * LANES;

/// Packs `rows`, which `values` decodes into a buffer of `inputs` weights; `done` is told how many are packed.
fn pack<R: Sync>(
    rows: &[R],
    inputs: usize,
    precision: Precision,
    values: impl Fn(&R, &mut [f32]) + Sync,
    mut done: impl FnMut(usize),
) -> Values {
    let outputs = rows.len();
    let row = || vec![0f32; inputs];
    let together = || rows.chunks(TOGETHER).enumerate().map(|(at, rows)| (at * TOGETHER + rows.len(), rows));
    match precision {
        Precision::F32 => {
            let mut buffer = Buffer::zeroed(outputs.div_ceil(LANES) * LANES * inputs);
            for ((end, rows), panels) in together().zip(buffer.values_mut().chunks_mut(TOGETHER * inputs)) {
                let panels = panels.par_chunks_exact_mut(LANES * inputs);
                panels.zip(rows.par_chunks(LANES)).for_each_init(row, |weights, (panel, rows)| {
                    for (lane, row) in rows.iter().enumerate() {
                        values(row, weights);
                        for (values, weight) in panel.chunks_exact_mut(LANES).zip(&*weights) {
                            values[lane] = *weight;
                        }
                    }
                });
                done(end);
            }
            Values::F32(buffer)
        }
        Precision::Int8 => {
            let size = inputs.div_ceil(4) * 4 * LANES;
            let mut buffer = Buffer::zeroed(outputs.div_ceil(LANES) * size);
            let mut scales: Vec<(f32, i32)> = Vec::with_capacity(outputs);
            let panels = buffer.values_mut().chunks_mut(TOGETHER / LANES * size);
            for ((end, rows), panels) in together().zip(panels) {
                let panels = panels.par_chunks_exact_mut(size).zip(rows.par_chunks(LANES));
                let packed = panels.map_init(row, |weights, (panel, rows)| {
                    let quantised = |(lane, row)| {
                        values(row, weights);
                        quantise_output(weights, lane, panel)
                    };
                    rows.iter().enumerate().map(quantised).collect::<Vec<_>>()
                });
                scales.par_extend(packed.flatten_iter());
                done(end);
            }
            let (scales, offsets) = scales.into_iter().unzip();
            Values::Int8 { values: buffer, scales, offsets }
        }
    }
}

impl Matrix {
    /// Packs consecutive `blocks` of weights, each (outputs, `inputs`) row by row.
    ///
    /// # Panics
    /// If a block is not a whole number of rows.
    #[must_use]
    pub fn pack(blocks: &[&[f32]], inputs: usize, precision: Precision) -> Self {
        assert!(inputs > 0 && blocks.iter().all(|block| block.len() % inputs == 0));
        let rows: Vec<&[f32]> = blocks.iter().flat_map(|block| block.chunks_exact(inputs)).collect();
        let values = pack(&rows, inputs, precision, |row, values| values.copy_from_slice(row), |_| {});
        Self { inputs, outputs: rows.len(), values }
    }

    /// Packs consecutive `blocks` of weights as they are stored. In f32 they stay in their coding, and products equal
    /// those of the decoded weights, bit for bit.
    ///
    /// # Panics
    /// If a row of a block has another number of weights than `inputs`.
    #[must_use]
    pub fn pack_stored(blocks: &[Stored<'_>], inputs: usize, precision: Precision) -> Self {
        assert!(inputs > 0 && blocks.iter().all(|block| block.width() == inputs));
        let rows: Vec<(Coding, &[u8])> =
            blocks.iter().flat_map(|block| block.rows().map(|row| (block.coding(), row))).collect();
        let is_plain = blocks.iter().all(|block| block.coding() == Coding::F32);
        let mut packed = 0;
        let done = |rows: usize| {
            let mut first = 0;
            for block in blocks {
                block.release(packed.max(first) - first..rows.max(first) - first);
                first += block.count();
            }
            packed = rows;
        };
        let values = if is_plain || precision != Precision::F32 {
            pack(&rows, inputs, precision, |(coding, row), values| coding.decode(row, values), done)
        } else {
            Values::Coded(CodedPanels::pack(&rows, inputs, TOGETHER, done))
        };
        Self { inputs, outputs: rows.len(), values }
    }

    /// The number of inputs.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// The number of outputs.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Copies the weights of output `at`: the row of an embedding table.
    ///
    /// # Panics
    /// If there is no such output, or the length of `out` is not the number of inputs.
    pub fn output(&self, at: usize, out: &mut [f32]) {
        assert!(at < self.outputs && out.len() == self.inputs);
        let (panel, lane) = (at / LANES, at % LANES);
        match &self.values {
            Values::F32(values) => {
                let panel = &values[panel * LANES * self.inputs..][..LANES * self.inputs];
                for (out, values) in out.iter_mut().zip(panel.chunks_exact(LANES)) {
                    *out = values[lane];
                }
            }
            Values::Coded(panels) => panels.output(at, out),
            Values::Int8 { values, scales, .. } => {
                let size = self.inputs.div_ceil(4) * 4 * LANES;
                let panel = &values[panel * size..][..size];
                for (i, out) in out.iter_mut().enumerate() {
                    *out = f32::from(panel[i / 4 * 4 * LANES + lane * 4 + i % 4]) * scales[at];
                }
            }
        }
    }
}

/// How a product's result is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// It replaces the previous value.
    Set,
    /// It is added to the previous value.
    Add,
    /// The previous value is multiplied by it.
    Multiply,
}

/// `activation(x W^T + bias)`, stored as `store` says.
#[derive(Clone, Copy, Debug)]
pub struct Product<'a> {
    /// W
    pub matrix: &'a Matrix,
    /// One value for each output.
    pub bias: Option<&'a [f32]>,
    /// Applied before the result is stored.
    pub activation: Option<Activation>,
    /// How the result is stored.
    pub store: Store,
}

/// The resources of products: an instruction set, threads, and a reusable buffer for int8 inputs.
#[derive(Debug)]
pub struct Machine {
    /// The instruction set.
    pub isa: Isa,
    /// The threads.
    pub pool: &'static ThreadPool,
    scratch: Scratch,
}

impl Machine {
    /// The threads of the process, with the instruction set `isa`.
    #[must_use]
    pub fn new(isa: Isa) -> Self {
        Self { isa, pool: ThreadPool::global(), scratch: Scratch::default() }
    }

    /// The caller's thread only, with the widest instruction set of the machine.
    #[must_use]
    pub fn alone() -> Self {
        Self { isa: Isa::detected(), pool: ThreadPool::alone(), scratch: Scratch::default() }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new(Isa::detected())
    }
}

/// The inputs of a product in the layout of tiles.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    F32 { values: &'a [f32], stride: usize },
    Int8 { values: &'a [u8], stride: usize, scales: &'a [f32] },
}

impl Input<'_> {
    /// Whether a product of `rows` rows of `depth` values uses AMX. This depends on the whole product, so
    /// sums depend on neither threads nor parts.
    #[cfg(target_arch = "x86_64")]
    fn is_tiled(&self, isa: Isa, rows: usize, depth: usize) -> bool {
        isa == Isa::Amx
            && match self {
                Self::F32 { .. } => rows >= amx::FLOAT_ROWS,
                Self::Int8 { .. } => rows >= amx::INT_ROWS && depth.div_ceil(4).is_multiple_of(amx::QUADS),
            }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn is_tiled(&self, _isa: Isa, _rows: usize, _depth: usize) -> bool {
        false
    }
}

impl<'a> Product<'a> {
    /// A product without bias or activation.
    #[must_use]
    pub fn new(matrix: &'a Matrix) -> Self {
        Self { matrix, bias: None, activation: None, store: Store::Set }
    }

    /// Multiplies the rows `from` of `input`, and stores the results in the rows of `out` from `to` on.
    ///
    /// # Panics
    /// If a width or a number of rows does not match.
    pub fn run(&self, machine: &mut Machine, input: &Rows, from: Range<usize>, out: &mut Rows, to: usize) {
        assert!(out.width() == self.matrix.outputs);
        // SAFETY: `out` is borrowed until all parts are finished.
        unsafe { self.write(machine, input, from, out.shared(), to) };
    }

    /// Multiplies all rows of `input`; returns the results row by row without gaps.
    ///
    /// # Panics
    /// If a width does not match.
    #[must_use]
    pub fn values(&self, machine: &mut Machine, input: &Rows) -> Vec<f32> {
        let mut values = vec![0.0; input.count() * self.matrix.outputs];
        let out = SharedRows::of_values(&mut values, input.count());
        // SAFETY: this call has exclusive access to the values until all parts are finished.
        unsafe { self.write(machine, input, 0..input.count(), out, 0) };
        values
    }

    /// [`run`](Self::run) into rows whose width is the number of outputs.
    ///
    /// # Safety
    /// `out` must be alive and not used elsewhere.
    unsafe fn write(
        &self,
        machine: &mut Machine,
        input: &Rows,
        from: Range<usize>,
        out: SharedRows,
        to: usize,
    ) {
        let Machine { isa, pool, scratch } = machine;
        let (isa, pool) = (*isa, *pool);
        let (matrix, count) = (self.matrix, from.len());
        assert!(from.end <= input.count() && input.width() == matrix.inputs);
        assert!(to + count <= out.count);
        assert!(self.bias.is_none_or(|bias| bias.len() == matrix.outputs));
        let stride = input.stride();
        let values = &input.values()[from.start * stride..from.end * stride];
        let input = match &matrix.values {
            Values::F32(_) | Values::Coded(_) => Input::F32 { values, stride },
            Values::Int8 { .. } => quantise(isa, pool, values, stride, matrix.inputs, scratch),
        };
        let is_tiled = input.is_tiled(isa, count, matrix.inputs);
        let grid =
            Grid::new(isa, count, matrix.outputs.div_ceil(LANES), matrix.inputs, pool.threads(), is_tiled);
        pool.run(grid.parts(), &|part| {
            let (rows, panels) = grid.part(part);
            // SAFETY: the parts of a grid do not overlap, and the rest is the contract.
            unsafe {
                #[cfg(target_arch = "x86_64")]
                if is_tiled {
                    return self.tiled_part(isa, input, rows, panels, out, to);
                }
                self.part(isa, input, rows, panels, out, to);
            }
        });
    }

    /// Computes `rows` by `panels` with [`amx`].
    ///
    /// # Safety
    /// As for [`part`](Self::part).
    #[cfg(target_arch = "x86_64")]
    unsafe fn tiled_part(
        &self,
        isa: Isa,
        input: Input<'_>,
        rows: Range<usize>,
        panels: Range<usize>,
        out: SharedRows,
        to: usize,
    ) {
        #[inline(always)]
        fn body<S: Simd>(
            product: &Product<'_>,
            sums: &mut Sums,
            input: Input<'_>,
            rows: Range<usize>,
            panels: Range<usize>,
            out: SharedRows,
            to: usize,
        ) {
            for panel in panels.clone() {
                let ends = product.ends(panel);
                for (at, row) in rows.clone().enumerate() {
                    let mut scaled = [0f32; LANES];
                    let at = (panel - panels.start, at);
                    let values = match input {
                        Input::F32 { .. } => sums.floats(at.0, at.1),
                        Input::Int8 { scales, .. } => {
                            ends.scale(sums.ints(at.0, at.1), scales[row], &mut scaled);
                            &mut scaled
                        }
                    };
                    // SAFETY: the contract of `tiled_part`.
                    let out = unsafe { out.part(to + row, ends.columns.start, ends.columns.len()) };
                    product.end_row::<S>(&ends, values, out);
                }
            }
        }
        let (product, depth) = (self, self.matrix.inputs);
        Sums::with(|sums| {
            match (&self.matrix.values, input) {
                (Values::F32(weights), Input::F32 { values, stride }) => {
                    let size = depth * LANES;
                    let weights = &weights[panels.start * size..panels.end * size];
                    let values = &values[rows.start * stride..];
                    sums.add_floats::<{ amx::EXACT }>(values, (stride, 1), rows.len(), depth, weights);
                }
                (Values::Coded(coded), Input::F32 { values, stride }) => {
                    let weights = coded.decode(isa, panels.clone());
                    let weights = &weights[..panels.len() * depth * LANES];
                    let values = &values[rows.start * stride..];
                    sums.add_floats::<{ amx::EXACT }>(values, (stride, 1), rows.len(), depth, weights);
                }
                (Values::Int8 { values: weights, .. }, Input::Int8 { values, stride, .. }) => {
                    let quads = depth.div_ceil(4);
                    let size = quads * 4 * LANES;
                    let weights = &weights[panels.start * size..panels.end * size];
                    sums.add_ints(&values[rows.start * stride..], stride, rows.len(), quads, weights);
                }
                _ => unreachable!("`run` makes the input for the kind of weights"),
            }
            dispatch!(isa, body(
                product: &Product<'_>,
                sums: &mut Sums,
                input: Input<'_>,
                rows: Range<usize>,
                panels: Range<usize>,
                out: SharedRows,
                to: usize,
            ));
        });
    }

    /// The scales and biases of a panel.
    #[inline(always)]
    fn ends(&self, panel: usize) -> Ends {
        let columns = panel * LANES..((panel + 1) * LANES).min(self.matrix.outputs);
        let bias = self.bias.map(|bias| lanes(&bias[columns.clone()]));
        let (scales, offsets) = match &self.matrix.values {
            Values::F32(_) | Values::Coded(_) => Default::default(),
            Values::Int8 { scales, offsets, .. } => {
                (lanes(&scales[columns.clone()]), lanes(&offsets[columns.clone()]))
            }
        };
        Ends { columns, bias, scales, offsets }
    }

    /// Computes the results from the sums of a row, and stores them.
    #[inline(always)]
    fn end_row<S: Simd>(&self, ends: &Ends, sums: &mut [f32; LANES], out: &mut [f32]) {
        if let Some(bias) = &ends.bias {
            for i in 0..LANES {
                sums[i] += bias[i];
            }
        }
        if let Some(activation) = self.activation {
            activation.apply::<S>(sums);
        }
        match out.as_mut_array::<LANES>() {
            Some(out) => store(self.store, sums, out),
            None => {
                let mut whole = lanes(out);
                store(self.store, sums, &mut whole);
                out.copy_from_slice(&whole[..out.len()]);
            }
        }
    }

    /// Computes `rows` by `panels`.
    ///
    /// # Safety
    /// No other thread may use these columns of these rows of `out`, which must be alive.
    unsafe fn part(
        &self,
        isa: Isa,
        input: Input<'_>,
        rows: Range<usize>,
        panels: Range<usize>,
        out: SharedRows,
        to: usize,
    ) {
        #[inline(always)]
        fn body<S: Simd>(
            product: &Product<'_>,
            isa: Isa,
            input: Input<'_>,
            rows: Range<usize>,
            panels: Range<usize>,
            out: SharedRows,
            to: usize,
        ) {
            // SAFETY: `dispatch` has checked that the machine supports `S`; the rest is the contract of
            // `part`.
            unsafe { product.part_body::<S>(isa, input, rows, panels, out, to) }
        }
        let product = self;
        dispatch!(isa, body(
            product: &Product<'_>,
            isa: Isa,
            input: Input<'_>,
            rows: Range<usize>,
            panels: Range<usize>,
            out: SharedRows,
            to: usize,
        ));
    }

    #[inline(always)]
    unsafe fn part_body<S: Simd>(
        &self,
        isa: Isa,
        input: Input<'_>,
        rows: Range<usize>,
        panels: Range<usize>,
        out: SharedRows,
        to: usize,
    ) {
        let depth = self.matrix.inputs;
        let quads = depth.div_ceil(4);
        let highest = rows.len().min(S::STRIP);
        let mut sums = Lines::zeroed(highest * LANES);
        let sums = sums.as_chunks_mut::<LANES>().0;
        let (mut ints, steps) = match input {
            Input::F32 { .. } => (vec![], depth),
            Input::Int8 { .. } => (vec![[0i32; LANES]; highest], quads),
        };
        for panel in panels {
            let ends = self.ends(panel);
            let columns = &ends.columns;
            for Range { start, end } in strips::<S>(rows.clone()) {
                if let (Values::Coded(coded), Input::F32 { values, stride }) = (&self.matrix.values, input) {
                    let strip = Strip { values: &values[start * stride..], rows: end - start, stride, depth };
                    // SAFETY: the contract.
                    unsafe { coded.sum::<S>(isa, panel, strip, sums) };
                    for (row, sums) in (start..end).zip(sums.iter_mut()) {
                        // SAFETY: this part's rows and columns only, by the contract.
                        let out = unsafe { out.part(to + row, columns.start, columns.len()) };
                        self.end_row::<S>(&ends, sums, out);
                    }
                    continue;
                }
                for tile in tiles::<S>(end - start, steps) {
                    let tile = tile.to(out.place(to + start, columns.start), out.stride);
                    let of_tile = start + tile.rows.start..start + tile.rows.end;
                    match (&self.matrix.values, input) {
                        (Values::F32(weights), Input::F32 { values, stride }) => {
                            let a = &values[start * stride..(end - 1) * stride + depth];
                            let panel = &weights[panel * depth * LANES..][..depth * LANES];
                            // SAFETY: the slices are the inputs of the strip: its rows and a panel.
                            unsafe { tile.sum_f32::<S>(a.as_ptr(), (stride, 1), panel.as_ptr(), sums) };
                        }
                        (Values::Int8 { values: weights, .. }, Input::Int8 { values, stride, scales }) => {
                            let a = &values[start * stride..(end - 1) * stride + 4 * quads * S::INPUT];
                            let bytes = &weights[panel * quads * 4 * LANES..][..quads * 4 * LANES];
                            // SAFETY: as above.
                            unsafe { tile.sum_i8::<S>(a.as_ptr(), stride, bytes.as_ptr(), &mut ints) };
                            if tile.ends {
                                let scales = &scales[of_tile.clone()];
                                let sums = &mut sums[tile.rows.clone()];
                                for ((sums, ints), scale) in
                                    sums.iter_mut().zip(&ints[tile.rows.clone()]).zip(scales)
                                {
                                    ends.scale(ints, *scale, sums);
                                }
                            }
                        }
                        _ => unreachable!("`run` makes the input for the kind of weights"),
                    }
                    if tile.ends {
                        for (row, sums) in of_tile.zip(&mut sums[tile.rows]) {
                            // SAFETY: this part's rows and columns only, by the contract.
                            let out = unsafe { out.part(to + row, columns.start, columns.len()) };
                            self.end_row::<S>(&ends, sums, out);
                        }
                    }
                }
            }
        }
    }
}

/// The scales and biases of a panel's columns.
struct Ends {
    columns: Range<usize>,
    bias: Option<[f32; LANES]>,
    /// The scales of int8 weights, and the excess of their sums.
    scales: [f32; LANES],
    offsets: [i32; LANES],
}

impl Ends {
    /// Converts the int8 sums of a row with scale `scale`.
    #[inline(always)]
    fn scale(&self, ints: &[i32; LANES], scale: f32, sums: &mut [f32; LANES]) {
        for i in 0..LANES {
            sums[i] = (ints[i] - self.offsets[i]) as f32 * (self.scales[i] * scale);
        }
    }
}

/// `values`, padded with zeros to the width of a panel: fixed-length loops compile to few instructions.
#[inline(always)]
fn lanes<T: Copy + Default>(values: &[T]) -> [T; LANES] {
    values.as_array::<LANES>().copied().unwrap_or_else(|| {
        let mut lanes = [T::default(); LANES];
        lanes[..values.len()].copy_from_slice(values);
        lanes
    })
}

#[inline(always)]
fn store(how: Store, sums: &[f32; LANES], out: &mut [f32; LANES]) {
    match how {
        Store::Set => *out = *sums,
        Store::Add => (0..LANES).for_each(|i| out[i] += sums[i]),
        Store::Multiply => (0..LANES).for_each(|i| out[i] *= sums[i]),
    }
}

#[cfg(test)]
mod tests;
