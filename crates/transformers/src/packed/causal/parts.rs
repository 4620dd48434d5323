//! The parts of a layer of a packed decoder: what attention reads, and what is added to the states.

use sporran_kernels::{Norm, Rows};

use super::{
    super::{
        kv_cache::Heads,
        layers::Machine,
        rotary::{turn, turn_neighbours},
    },
    Attention, CausalLayer, Inputs, Mixer, PackedLlama,
};
use crate::architectures::llama::{QueryGrowth, Rope};

/// The cosines and sines of rows' angles.
pub(super) struct Turns {
    /// For each place, one value a pair.
    values: (Vec<f32>, Vec<f32>),
    /// The place of each row.
    places: Vec<usize>,
    /// The factor of each row's queries afterwards; none where they do not grow.
    growth: Option<Vec<f32>>,
}

impl PackedLlama {
    /// The cosines and sines of a row for each of `rows`, which are a position and the length of its sequence, by the
    /// model's angles.
    pub(super) fn turns(&self, rows: &[(usize, usize)]) -> Vec<Turns> {
        let of = |rope: &Rope| {
            let grown = |growth: QueryGrowth| rows.iter().map(|(position, _)| growth.at(*position)).collect();
            let growth = self.query_growth.map(grown);
            let mut values = (Vec::new(), Vec::new());
            if rope.is_dynamic() {
                rows.iter().for_each(|(position, length)| rope.turns(*position, *length, &mut values));
                return Turns { values, places: (0..rows.len()).collect(), growth };
            }
            // Rows at the same position share a place.
            let mut positions: Vec<usize> = rows.iter().map(|(position, _)| *position).collect();
            positions.sort_unstable();
            positions.dedup();
            positions.iter().for_each(|position| rope.turns(*position, 0, &mut values));
            let place = |(position, _): &(usize, usize)| positions.partition_point(|other| other < position);
            Turns { values, places: rows.iter().map(place).collect(), growth }
        };
        self.ropes.iter().map(of).collect()
    }

    /// Normalises the queries and keys of each row where the layer does, and turns them by their angles.
    pub(super) fn prepare(
        &self,
        machine: &Machine,
        attention: &Attention,
        inputs: &mut Rows,
        turns: &[Turns],
    ) {
        let turns = attention.rope.map(|rope| (&turns[rope], self.ropes[rope].pairs()));
        let has_norms = attention.head_norms.iter().any(|norms| !norms.is_empty());
        if turns.is_none() && !has_norms && attention.value_norm.is_none() && self.clip.is_none() {
            return;
        }
        let Heads { heads, groups, width } = attention.heads;
        let groups = if attention.source.is_some() { 0 } else { groups };
        let all = inputs.width();
        let isa = machine.core.isa;
        let blocks: Vec<_> = (0..inputs.count()).map(|row| row..row + 1).collect();
        inputs.each_part(machine.core.pool, &blocks, all, &|row, _, mut part| {
            let all = part.row_mut(0);
            let normalise = |both: &mut [f32]| {
                let (queries, keys) = both.split_at_mut(heads * width);
                for (norms, values) in attention.head_norms.iter().zip([queries, keys]) {
                    let Some(first) = norms.first() else { continue };
                    let heads = values.chunks_exact_mut(first.weight.len());
                    norms.iter().cycle().zip(heads).for_each(|(norm, values)| norm.one(isa, values));
                }
            };
            if !self.turns_first {
                normalise(&mut all[..(heads + groups) * width]);
            }
            if let Some(most) = self.clip {
                all.iter_mut().for_each(|value| *value = value.clamp(-most, most));
            }
            if let Some(norm) = &attention.value_norm {
                let values = all[(heads + groups) * width..].chunks_exact_mut(width);
                values.for_each(|value| norm.one(isa, value));
            }
            let both = &mut all[..(heads + groups) * width];
            if let Some((turns, pairs)) = turns {
                let [cos, sin] = [&turns.values.0, &turns.values.1]
                    .map(|values| &values[turns.places[row] * pairs..][..pairs]);
                if self.turns_neighbours {
                    turn_neighbours(both, width, cos, sin);
                } else {
                    turn(both, width, cos, sin);
                }
                if let Some(growth) = &turns.growth {
                    both[..heads * width].iter_mut().for_each(|value| *value *= growth[row]);
                }
            }
            if self.turns_first {
                normalise(both);
            }
        });
    }

    /// What the mixer of a layer reads of the states `xs`; `normed` is overwritten.
    pub(super) fn source<'a>(
        &self,
        machine: &Machine,
        layer: &CausalLayer,
        xs: &'a Rows,
        normed: &'a mut Rows,
    ) -> &'a Rows {
        if !self.norm_first {
            return xs;
        }
        layer.norm.forward_to(machine.core.isa, machine.core.pool, xs, normed);
        normed
    }

    /// The norm of the result of a part, whose own norm is `own`.
    fn result_norm<'a>(&self, own: &'a Norm, second: &'a Option<Norm>) -> Option<&'a Norm> {
        if self.norm_first { second.as_ref() } else { Some(own) }
    }

    /// Whether the result of a part is added to the states as it is.
    fn adds_plainly(&self, norm: Option<&Norm>) -> bool {
        norm.is_none() && self.residual_scale == 1.0
    }

    /// Adds the result of a part to the states `xs`: normalised by `norm`, or it normalises the sums.
    fn add_result(&self, machine: &Machine, result: &mut Rows, norm: Option<&Norm>, xs: &mut Rows) {
        let (own, of_sums) = if self.norms_sums { (None, norm) } else { (norm, None) };
        if let Some(norm) = own {
            norm.forward(machine.core.isa, machine.core.pool, result);
        }
        let blocks: Vec<_> = (0..xs.count()).map(|row| row..row + 1).collect();
        let (scale, result) = (self.residual_scale, &*result);
        xs.each_part(machine.core.pool, &blocks, self.width, &|row, _, mut part| {
            let values = part.row_mut(0).iter_mut().zip(result.row(row));
            values.for_each(|(value, added)| *value += scale * added);
        });
        if let Some(norm) = of_sums {
            norm.forward(machine.core.isa, machine.core.pool, xs);
        }
    }

    /// Adds the output of `mixed` values to the states `xs`; `result` is overwritten. Where both parts read the same states, it
    /// becomes what the feed-forward part reads.
    pub(super) fn mixed(
        &self,
        machine: &mut Machine,
        layer: &CausalLayer,
        mixed: &Rows,
        result: &mut Rows,
        xs: &mut Rows,
    ) {
        let narrow;
        let mixed = match &layer.mixer {
            Mixer::Attention(attention) => match &attention.inputs {
                Inputs::Together(_) => mixed,
                Inputs::Latent(latent) => {
                    narrow = latent.narrowed(mixed);
                    &narrow
                }
            },
            Mixer::Recurrence(_) => mixed,
        };
        if self.is_parallel {
            // The feed-forward part reads the states as they are before attention is added.
            layer.part_norm.forward_to(machine.core.isa, machine.core.pool, xs, result);
            return layer.output.add(machine, mixed, xs);
        }
        let norm = self.result_norm(&layer.norm, &layer.result_norms[0]);
        if self.adds_plainly(norm) {
            return layer.output.add(machine, mixed, xs);
        }
        layer.output.forward(machine, mixed, result);
        self.add_result(machine, result, norm, xs);
    }

    /// Adds the feed-forward part of the states `xs` to them; the other rows are overwritten. Where both parts read the same
    /// states, `normed` are those.
    pub(super) fn feed_forward(
        &self,
        machine: &mut Machine,
        layer: &CausalLayer,
        [normed, result]: [&mut Rows; 2],
        inner: &mut Rows,
        xs: &mut Rows,
    ) {
        if self.is_parallel {
            return layer.part.add(machine, normed, inner, xs);
        }
        if self.norm_first {
            layer.part_norm.forward_to(machine.core.isa, machine.core.pool, xs, normed);
        }
        let norm = self.result_norm(&layer.part_norm, &layer.result_norms[1]);
        if self.adds_plainly(norm) {
            return layer.part.add(machine, normed, inner, xs);
        }
        *result = Rows::new(xs.count(), self.width);
        layer.part.add(machine, if self.norm_first { normed } else { xs }, inner, result);
        if let Some(beside) = &layer.experts_beside {
            beside.add(machine, xs, inner, result);
        }
        self.add_result(machine, result, norm, xs);
    }
}
