//! The gradients of all entities, computed block by block while a block is in the cache.

use sporran_kernels::{Dropout, Isa, add_columns};

use super::{
    among::Among,
    batch::{EntityPenalty, Shares},
};

/// Gradients of some entity vectors, any number for each entity.
pub(super) struct Contributions {
    /// Entities with the indices of their rows in `values`, ascending.
    order: Vec<(u32, usize)>,
    values: Vec<f32>,
}

impl Contributions {
    /// `order` maps entities to rows of `values`.
    pub(super) fn new(mut order: Vec<(u32, usize)>, values: Vec<f32>) -> Self {
        order.sort_unstable();
        Self { order, values }
    }
}

pub(super) struct Dense {
    pub(super) among: Among,
    pub(super) queries: Vec<f32>,
    pub(super) contributions: Vec<Contributions>,
    pub(super) shares: Shares,
    pub(super) penalty: EntityPenalty,
    pub(super) candidate: Option<Dropout>,
    pub(super) entities: usize,
    pub(super) width: usize,
    pub(super) dim: usize,
}

impl Dense {
    /// Writes the gradients of the entities from index `first` on. `table` holds their rows.
    pub(super) fn piece(&self, first: usize, table: &[f32], out: &mut [f32]) {
        let isa = Isa::detected();
        let which = first..first + table.len() / self.width;
        let compared = |rows: &[f32], out: &mut [f32]| {
            self.among.to_entities(&self.queries, self.entities, which.clone(), rows, out);
        };
        match &self.candidate {
            // With dropout, the questions were scored against the dropped rows.
            Some(dropout) => {
                let mut dropped = table.to_vec();
                dropout.apply(isa, first * self.width, &mut dropped);
                compared(&dropped, out);
                dropout.apply(isa, first * self.width, out);
            }
            None => compared(table, out),
        }
        for Contributions { order, values } in &self.contributions {
            let start = order.partition_point(|(entity, _)| (*entity as usize) < which.start);
            for (entity, row) in
                order[start..].iter().take_while(|(entity, _)| (*entity as usize) < which.end)
            {
                let out = &mut out[(*entity as usize - first) * self.width..][..self.dim];
                add_columns(isa, &values[row * self.dim..][..self.dim], out);
            }
        }
        let start = self.shares.entities.partition_point(|(entity, _)| (*entity as usize) < which.start);
        let mut shares = self.shares.entities[start..].iter().peekable();
        for (entity, (row, out)) in
            which.zip(table.chunks_exact(self.width).zip(out.chunks_exact_mut(self.width)))
        {
            let share = shares.next_if(|(next, _)| *next as usize == entity).map_or(0.0, |(_, share)| *share);
            self.penalty.add(share, &row[..self.dim], &mut out[..self.dim]);
        }
    }
}
