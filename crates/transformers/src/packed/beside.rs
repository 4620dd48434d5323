//! Experts beside a feed-forward part that every token reads (Gemma 4).

use sporran_kernels::{Norm, Rows};

use super::{layers::Machine, mixture::Mixture};

/// The experts with their norms.
#[derive(Debug)]
pub(super) struct Beside {
    /// The norm of the states that the router reads.
    pub(super) router_norm: Norm,
    pub(super) mixture: Mixture,
    /// The norms of what experts read, of what they add, and of what the other part adds.
    pub(super) norms: [Norm; 3],
}

impl Beside {
    /// Makes `result`, which the other part makes of the states `xs`, what both make of them; `inner` is overwritten.
    pub(super) fn add(&self, machine: &mut Machine, xs: &Rows, inner: &mut Rows, result: &mut Rows) {
        let [before, after, dense] = &self.norms;
        let (isa, pool) = (machine.core.isa, machine.core.pool);
        let mut read = Rows::default();
        self.router_norm.forward_to(isa, pool, xs, &mut read);
        let scores = self.mixture.router.values(machine, &read);
        before.forward_to(isa, pool, xs, &mut read);
        let mut added = Rows::new(xs.count(), xs.width());
        self.mixture.add_scored(machine, &scores, &read, inner, &mut added);
        after.forward(isa, pool, &mut added);
        dense.forward(isa, pool, result);
        for row in 0..result.count() {
            let values = result.row_mut(row).iter_mut().zip(added.row(row));
            values.for_each(|(value, added)| *value += added);
        }
    }
}
