//! The convolution over embeddings of some DeBERTas, without padding.

use std::ops::Range;

use sporran_kernels::{Activation, Norm, Rows};

use super::layers::{Linear, Machine};

/// What is added to the states after the first layer: `norm(states + function(convolution of embeddings))`.
#[derive(Debug)]
pub(super) struct StateConvolution {
    /// From the values of `kernel` tokens to those of the one in the middle. Those of a channel lie side by side.
    pub(super) linear: Linear,
    /// An odd number of tokens.
    pub(super) kernel: usize,
    pub(super) function: Activation,
    pub(super) norm: Norm,
}

impl StateConvolution {
    /// Changes the states `xs`: of all rows of `embeddings`, whose inputs are `blocks`, or of the `wanted` ones.
    pub(super) fn forward(
        &self,
        machine: &mut Machine,
        embeddings: &Rows,
        blocks: &[Range<usize>],
        wanted: Option<&[usize]>,
        xs: &mut Rows,
    ) {
        let width = embeddings.width();
        let mut read = Rows::new(embeddings.count(), width * self.kernel);
        for block in blocks {
            for row in block.clone() {
                let out = read.row_mut(row);
                for place in 0..self.kernel {
                    let from = (row + place).checked_sub(self.kernel / 2).filter(|from| block.contains(from));
                    let Some(from) = from else { continue };
                    let values = embeddings.row(from);
                    out.iter_mut()
                        .skip(place)
                        .step_by(self.kernel)
                        .zip(values)
                        .for_each(|(out, x)| *out = *x);
                }
            }
        }
        let mut made = Rows::default();
        self.linear.forward(machine, &read, &mut made);
        for row in 0..xs.count() {
            let from = made.row_mut(wanted.map_or(row, |wanted| wanted[row]));
            self.function.forward(machine.core.isa, from);
            xs.row_mut(row).iter_mut().zip(from).for_each(|(x, made)| *x += *made);
        }
        self.norm.forward(machine.core.isa, machine.core.pool, xs);
    }
}
