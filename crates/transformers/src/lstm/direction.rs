//! One direction of one layer.

use sporran_kernels::{
    Isa, Machine, Matrix, Precision, Product, Rows, Store, add_columns, lstm_step, lstm_step_back,
};

use super::{carried, packing::Packing};
use crate::fused::product::{View, add_product, product};

/// PyTorch's names of a direction's weights.
pub(super) const WEIGHTS: [&str; 4] = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"];

/// The weights of a direction.
#[derive(Debug)]
pub(super) struct PackedDirection {
    input: Matrix,
    recurrent: Matrix,
    /// Both biases, which enter the same sums.
    bias: Vec<f32>,
}

impl PackedDirection {
    /// Packs weights in the order of [`WEIGHTS`].
    pub(super) fn new(weights: &[Vec<f32>; 4], inputs: usize, hidden: usize) -> Self {
        let [input, recurrent, first, second] = weights;
        Self {
            input: Matrix::pack(&[input], inputs, Precision::F32),
            recurrent: Matrix::pack(&[recurrent], hidden, Precision::F32),
            bias: first.iter().zip(second).map(|(a, b)| a + b).collect(),
        }
    }
}

/// The activations of a pass, in the packed order.
#[derive(Debug)]
pub(super) struct Activations {
    /// The inputs.
    xs: Rows,
    /// The gates' values.
    gates: Rows,
    /// The cells after each step.
    cells: Rows,
    /// The output of each step.
    pub(super) out: Rows,
}

/// The weights and which way they read.
pub(super) struct Direction<'a> {
    pub(super) packed: &'a PackedDirection,
    pub(super) at: usize,
}

impl Direction<'_> {
    pub(super) fn forward(&self, xs: &[f32], packing: &Packing) -> Activations {
        let PackedDirection { input, recurrent, bias } = self.packed;
        let (tokens, inputs, width) = (packing.tokens(), input.inputs(), recurrent.inputs());
        let mut read = Rows::new(tokens, inputs);
        for (token, x) in xs.chunks_exact(inputs).enumerate() {
            read.row_mut(packing.row(self.at, token)).copy_from_slice(x);
        }
        let mut machine = Machine::alone();
        let isa = machine.isa;
        let mut gates = Rows::new(tokens, 4 * width);
        let from_below = Product { bias: Some(bias), ..Product::new(input) };
        from_below.run(&mut machine, &read, 0..tokens, &mut gates, 0);
        let (mut cells, mut out) = (Rows::new(tokens, width), Rows::new(tokens, width));
        let mut state = carried(packing, width);
        let from_before = Product { store: Store::Add, ..Product::new(recurrent) };
        let mut before = 0;
        for step in 0..packing.steps() {
            let (start, count) = packing.step(step);
            if step > 0 {
                from_before.run(&mut machine, &out, before..before + count, &mut gates, start);
            }
            for at in 0..count {
                let state = state.row_mut(at);
                lstm_step(isa, gates.row_mut(start + at), state, out.row_mut(start + at));
                cells.row_mut(start + at).copy_from_slice(state);
            }
            before = start;
        }
        Activations { xs: read, gates, cells, out }
    }
}

/// The gradients of a direction.
pub(super) struct Back {
    pub(super) input: Vec<f32>,
    pub(super) recurrent: Vec<f32>,
    /// Of either bias.
    pub(super) bias: Vec<f32>,
    /// The gradient of the inputs, in the packed order.
    pub(super) to_xs: Vec<f32>,
}

/// The backward pass of a direction. `to_states` are rows; this direction takes its part of them.
pub(super) fn backward(
    [input, recurrent]: &[Vec<f32>; 2],
    (inputs, width): (usize, usize),
    kept: Activations,
    packing: &Packing,
    direction: usize,
    (to_states, stride): (&[f32], usize),
) -> Back {
    let Activations { xs, mut gates, cells, out } = kept;
    let tokens = packing.tokens();
    let mut to_out = Rows::new(tokens, width);
    for (token, row) in to_states.chunks_exact(stride).enumerate() {
        let part = &row[direction * width..][..width];
        to_out.row_mut(packing.row(direction, token)).copy_from_slice(part);
    }
    let mut transposed = vec![0.0; recurrent.len()];
    for (at, row) in recurrent.chunks_exact(width).enumerate() {
        row.iter().enumerate().for_each(|(column, value)| transposed[column * 4 * width + at] = *value);
    }
    let transposed = Matrix::pack(&[&transposed], 4 * width, Precision::F32);
    let mut machine = Machine::alone();
    let isa: Isa = machine.isa;
    let to_before = Product { store: Store::Add, ..Product::new(&transposed) };
    let mut to_cells = carried(packing, width);
    let nothing = vec![0.0; width];
    // The previous outputs that each step read, for the gradient of the recurrent weights.
    let mut read = Rows::new(tokens, width);
    for step in (0..packing.steps()).rev() {
        let (start, count) = packing.step(step);
        let before = step.checked_sub(1).map(|before| packing.step(before).0);
        for at in 0..count {
            let row = start + at;
            let cells_before = before.map_or(nothing.as_slice(), |before| cells.row(before + at));
            lstm_step_back(
                isa,
                gates.row_mut(row),
                cells_before,
                cells.row(row),
                to_out.row(row),
                to_cells.row_mut(at),
            );
            if let Some(before) = before {
                read.row_mut(row).copy_from_slice(out.row(before + at));
            }
        }
        if let Some(before) = before {
            to_before.run(&mut machine, &gates, start..start + count, &mut to_out, before);
        }
    }
    let gate_rows = View::rows(0, tokens, 4 * width, gates.stride());
    let mut to_input = vec![0.0; input.len()];
    add_product(
        (&mut to_input, View::rows(0, 4 * width, inputs, inputs)),
        (gates.values(), gate_rows.transposed()),
        (xs.values(), View::rows(0, tokens, inputs, xs.stride())),
        1.0,
    );
    let mut to_recurrent = vec![0.0; recurrent.len()];
    add_product(
        (&mut to_recurrent, View::rows(0, 4 * width, width, width)),
        (gates.values(), gate_rows.transposed()),
        (read.values(), View::rows(0, tokens, width, read.stride())),
        1.0,
    );
    let mut to_bias = vec![0.0; 4 * width];
    (0..tokens).for_each(|row| add_columns(isa, gates.row(row), &mut to_bias));
    let mut to_xs = vec![0.0; tokens * inputs];
    product(
        (&mut to_xs, View::rows(0, tokens, inputs, inputs)),
        (gates.values(), gate_rows),
        (input, View::rows(0, 4 * width, inputs, inputs)),
        1.0,
    );
    Back { input: to_input, recurrent: to_recurrent, bias: to_bias, to_xs }
}
