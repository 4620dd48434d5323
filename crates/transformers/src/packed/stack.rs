//! The layers of an encoder or of a decoder, and their forward pass.

use std::ops::Range;

use sporran_kernels::{Distances, Lines, Norm, PackedHead, Queries, Rows, attend, attend_steps};

use super::{
    cache::State,
    disentangled::{Asked, DistanceRows, HeadColumns},
    layers::{Buffers, CrossAttention, FeedForward, Machine, SelfAttention},
    local::{Reading, Windows},
    rotary::Rotations,
    state_convolution::StateConvolution,
};
use crate::architectures::alibi::Alibi;

/// One layer: self-attention, in a decoder cross-attention, and the feed-forward part.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) own: SelfAttention,
    pub(super) cross: Option<CrossAttention>,
    pub(super) feed_forward: FeedForward,
}

/// The position encoding of a stack.
#[derive(Debug)]
pub(super) enum Positions {
    /// A vector for each position is added to the embeddings. Row `offset` of the table is position 0.
    Learned { table: Vec<f32>, offset: usize, count: usize },
    /// Sinusoids of each position are added to the embeddings.
    Sinusoids { count: usize },
    /// Sinusoids of the number of tokens other than `pad`, counted from after its id; it has none itself.
    CountedSinusoids { pad: u32, count: usize },
    /// They are in the embeddings already.
    Embedded,
    /// A value for each distance is added to the scores: `weights` has one for each bucket and head, once for all layers or
    /// for each.
    Relative { weights: Vec<Vec<f32>>, buckets: usize, max_distance: usize },
    /// A bias that falls with the distance in both directions is added to the scores.
    Falling(Alibi),
    /// Queries and keys read embeddings of the distances between them.
    Disentangled(DistanceRows),
    /// Queries and keys are turned by their positions: `steps` has the factors from a position to its angles.
    Rotary { steps: Vec<f32>, turns_neighbours: bool },
}

/// The layers of an encoder or of a decoder.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) layers: Vec<Layer>,
    /// The layers that run in an encoder, by their numbers: some more than once where they share weights.
    pub(super) order: Vec<usize>,
    /// Whether a part reads normalised states (T5), or its sum with the states is normalised (BART).
    pub(super) norm_first: bool,
    pub(super) heads: usize,
    pub(super) head_width: usize,
    /// The factor of the products of queries and keys.
    pub(super) scale: f32,
    pub(super) positions: Positions,
    /// What the layers of an encoder attend to; all tokens where there is none.
    pub(super) windows: Option<Windows>,
    /// The normalisation of the embeddings of tokens without a factor; positions are added afterwards.
    pub(super) word_norm: Option<Norm>,
    pub(super) embedding_norm: Option<Norm>,
    pub(super) final_norm: Option<Norm>,
    /// What is added to an encoder's states after the first layer.
    pub(super) convolution: Option<StateConvolution>,
}

/// Biases on scores by distance, for each head: of one layer that stands for all, of each layer, or of none.
pub(super) struct DistanceBiases(Vec<Vec<Vec<f32>>>);

impl DistanceBiases {
    /// Those of a layer, for each head.
    fn of(&self, layer: usize) -> Option<&[Vec<f32>]> {
        self.0.get(layer).or(self.0.first()).map(Vec::as_slice)
    }
}

impl Stack {
    fn width(&self) -> usize {
        self.heads * self.head_width
    }

    /// The biases on the scores of the distances `first..=last` (key minus query).
    pub(super) fn distances(&self, bidirectional: bool, first: i64, last: i64) -> DistanceBiases {
        let (weights, buckets, max_distance) = match &self.positions {
            Positions::Relative { weights, buckets, max_distance } => (weights, buckets, max_distance),
            Positions::Falling(alibi) => {
                let of = |head: usize| {
                    (first..=last)
                        .map(|distance| alibi.bias(head, distance.unsigned_abs() as usize, 0))
                        .collect()
                };
                return DistanceBiases(vec![(0..self.heads).map(of).collect()]);
            }
            _ => return DistanceBiases(Vec::new()),
        };
        let places: Vec<usize> = (first..=last)
            .map(|distance| {
                crate::architectures::t5::bucket(distance, bidirectional, *buckets, *max_distance) as usize
            })
            .collect();
        let of_layer = |weights: &Vec<f32>| {
            let of = |head: usize| places.iter().map(|bucket| weights[bucket * self.heads + head]).collect();
            (0..self.heads).map(of).collect()
        };
        DistanceBiases(weights.iter().map(of_layer).collect())
    }

    /// Takes the embeddings of sequences, which lie one after the other and have `lengths`, through an encoder. `see` is shown
    /// the embeddings as the first layer reads them, and the states after each layer.
    ///
    /// Where `wanted` names rows, which must rise, the last layer gives those alone: of the others it makes keys and values.
    pub(super) fn encode(
        &self,
        machine: &mut Machine,
        mut xs: Rows,
        lengths: &[usize],
        wanted: Option<&[usize]>,
        see: &mut dyn FnMut(&Rows),
    ) -> Rows {
        let longest = lengths.iter().copied().max().unwrap_or(1) as i64;
        let distances = self.distances(true, 1 - longest, longest - 1);
        let windows = self.windows.as_ref().filter(|windows| windows.applies(longest as usize));
        let mut blocks = Vec::with_capacity(lengths.len());
        let mut end = 0;
        for length in lengths {
            blocks.push(end..end + length);
            end += length;
        }
        let mut buffers = std::mem::take(&mut machine.buffers);
        if let Some(norm) = &self.embedding_norm {
            norm.forward(machine.core.isa, machine.core.pool, &mut xs);
        }
        see(&xs);
        let embeddings = self.convolution.as_ref().map(|_| xs.clone());
        let places: Vec<usize> = lengths.iter().flat_map(|length| 0..*length).collect();
        let rotations = match &self.positions {
            Positions::Rotary { steps, turns_neighbours } => {
                Some(Rotations::new(steps, 0..longest as usize, *turns_neighbours))
            }
            _ => None,
        };
        let mut asking = blocks.clone();
        for (at, number) in self.order.iter().copied().enumerate() {
            let layer = &self.layers[number];
            let distances = distances.of(number);
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            let own = &layer.own;
            let source = self.before(machine, &own.norm, &xs, normed);
            own.inputs.forward(machine, source, inputs);
            let summarised =
                windows.map(|windows| windows.summarise(machine, (number, &own.inputs), source, &blocks));
            let first = windows.map(|windows| windows.first_inputs(machine, number, source));
            if let Some(rotations) = &rotations {
                rotations.turn(machine, inputs, 2 * self.width(), &places);
            }
            let inputs = &*inputs;
            let mut picked = None;
            if let Some(wanted) = wanted.filter(|_| at + 1 == self.order.len()) {
                xs = xs.pick(wanted, xs.width());
                picked = Some(inputs.pick(wanted, self.width()));
                let before = |row: usize| wanted.partition_point(|wanted| *wanted < row);
                asking = blocks.iter().map(|rows| before(rows.start)..before(rows.end)).collect();
            }
            let asked = picked.as_ref().unwrap_or(inputs);
            mixed.reshape(xs.count(), self.width());
            if let (Some(windows), Some(summarised), Some(first)) = (windows, &summarised, &first) {
                let reading = Reading {
                    layer: number,
                    inputs,
                    asked,
                    wanted: wanted.filter(|_| picked.is_some()),
                    blocks: &blocks,
                    distances,
                    shape: (self.heads, self.head_width, self.scale),
                };
                windows.attend(machine, &reading, summarised, mixed);
                windows.attend_first(machine, &reading, first, mixed);
                self.attended(machine, layer, (normed, inner), mixed, (&mut xs, &asking));
                see(&xs);
                continue;
            }
            let isa = machine.core.isa;
            mixed.each_part(machine.core.pool, &asking, self.head_width, &|block, head, mut part| {
                let (rows, asking) = (blocks[block].clone(), asking[block].clone());
                if asking.is_empty() {
                    return;
                }
                let mut packed = Lines::zeroed(PackedHead::size(rows.len(), self.head_width));
                let columns = HeadColumns { head, heads: self.heads, width: self.head_width };
                let of = |which: usize| inputs.view(rows.clone(), columns.start(which), self.head_width);
                PackedHead::pack(isa, inputs.values(), of(1), of(2), &mut packed);
                let queries = Queries {
                    values: &asked.values()[asking.start * asked.stride() + columns.start(0)..],
                    count: asking.len(),
                    stride: asked.stride(),
                };
                // The positions of the queries.
                let offsets = || match wanted.filter(|_| picked.is_some()) {
                    Some(wanted) => wanted[asking.clone()].iter().map(|row| row - rows.start).collect(),
                    None => (0..rows.len()).collect::<Vec<_>>(),
                };
                let matrix = match (&self.positions, distances) {
                    (Positions::Disentangled(table), _) => {
                        let asked = Asked { rows: asked, range: asking.clone(), offsets: &offsets() };
                        let of = (number, self.scale);
                        Some(table.biases(isa, of, columns, (inputs, rows.clone()), &asked))
                    }
                    (_, Some(table)) if picked.is_some() => {
                        let biases = offsets().into_iter().flat_map(|offset| {
                            table[head][longest as usize - 1 - offset..][..rows.len()].iter().copied()
                        });
                        Some(biases.collect())
                    }
                    _ => None,
                };
                let distances = match (&matrix, distances) {
                    (Some(matrix), _) => {
                        Some(Distances { values: matrix, start: 0, step: rows.len() as isize })
                    }
                    (None, Some(table)) => {
                        Some(Distances { values: &table[head], start: longest as usize - 1, step: -1 })
                    }
                    (None, None) => None,
                };
                let head = PackedHead::new(&packed, rows.len(), self.head_width);
                attend(isa, head, queries, self.scale.into(), distances, &mut |query, values| {
                    part.row_mut(query).copy_from_slice(values);
                });
            });
            self.attended(machine, layer, (normed, inner), mixed, (&mut xs, &asking));
            if let (0, Some(convolution), Some(embeddings)) = (at, &self.convolution, &embeddings) {
                let wanted = wanted.filter(|_| picked.is_some());
                convolution.forward(machine, embeddings, &blocks, wanted, &mut xs);
            }
            see(&xs);
        }
        self.finish(machine, &mut xs);
        machine.buffers = buffers;
        xs
    }

    /// Takes the embeddings of the next token of every row through a decoder. To `watch` is added, for each input, the mean
    /// over layers and heads of the weights that its first row's queries give the positions of the memory.
    pub(super) fn step(
        &self,
        machine: &mut Machine,
        mut xs: Rows,
        state: &mut State,
        mut watch: Option<&mut Vec<Vec<f32>>>,
    ) -> Rows {
        let past = state.length();
        // The last key first: a distance of 0, then -1, and so on.
        let mut distances = self.distances(false, -(past as i64), 0);
        distances.0.iter_mut().flatten().for_each(|values| values.reverse());
        let rows: Vec<_> = (0..xs.count()).map(|row| row..row + 1).collect();
        let mut buffers = std::mem::take(&mut machine.buffers);
        if let Some(norm) = &self.embedding_norm {
            norm.forward(machine.core.isa, machine.core.pool, &mut xs);
        }
        state.push_step(xs.count());
        for (at, layer) in self.layers.iter().enumerate() {
            let Buffers { normed, inputs, mixed, inner } = &mut buffers;
            let own = &layer.own;
            own.inputs.forward(machine, self.before(machine, &own.norm, &xs, normed), inputs);
            state.extend(at, inputs, self.width());
            mixed.reshape(xs.count(), self.width());
            let isa = machine.core.isa;
            let kept: &State = state;
            let distances = distances.of(at);
            mixed.each_part(machine.core.pool, &rows, self.width(), &|row, _, mut part| {
                let steps = kept.steps(at, row);
                let queries = &inputs.row(row)[..self.width()];
                let out = part.row_mut(0);
                let scores = self.scale.into();
                attend_steps(isa, queries, &steps, self.heads, scores, distances, out);
            });
            own.output.add(machine, mixed, &mut xs);
            self.after(machine, &own.norm, &mut xs);
            if let Some(cross) = &layer.cross {
                let source = self.before(machine, &cross.norm, &xs, normed);
                cross.queries.forward(machine, source, inputs);
                let each = xs.count() / state.inputs().max(1);
                let groups: Vec<_> =
                    (0..state.inputs()).map(|input| input * each..(input + 1) * each).collect();
                let kept: &State = state;
                if let Some(watch) = &mut watch {
                    self.watch(kept, at, |input| inputs.row(input * each), watch);
                }
                mixed.each_part(machine.core.pool, &groups, self.head_width, &|input, head, mut part| {
                    let queries = Queries {
                        values: &inputs.values()[input * each * inputs.stride() + head * self.head_width..],
                        count: each,
                        stride: inputs.stride(),
                    };
                    let source = kept.source(at, input, head, self.heads, self.head_width);
                    attend(isa, source, queries, self.scale.into(), None, &mut |query, values| {
                        part.row_mut(query).copy_from_slice(values);
                    });
                });
                cross.output.add(machine, mixed, &mut xs);
                self.after(machine, &cross.norm, &mut xs);
            }
            self.feed_forward(machine, &layer.feed_forward, (normed, inner), (&mut xs, &rows));
        }
        self.finish(machine, &mut xs);
        machine.buffers = buffers;
        xs
    }

    /// Adds a layer's share to the recorded weights; `queries` are those of an input's first row, head after head.
    fn watch<'q>(
        &self,
        state: &State,
        layer: usize,
        queries: impl Fn(usize) -> &'q [f32],
        watch: &mut Vec<Vec<f32>>,
    ) {
        let share = 1.0 / (self.heads * self.layers.len()) as f32;
        watch.resize(state.inputs(), Vec::new());
        for (input, sums) in watch.iter_mut().enumerate() {
            for (head, query) in queries(input)[..self.width()].chunks_exact(self.head_width).enumerate() {
                let source = state.source(layer, input, head, self.heads, self.head_width);
                let mut weights = source.products(query);
                let most = weights.iter().fold(f32::NEG_INFINITY, |most, product| most.max(*product));
                weights.iter_mut().for_each(|weight| *weight = ((*weight - most) * self.scale).exp());
                let share = share / weights.iter().sum::<f32>();
                sums.resize(weights.len(), 0.0);
                sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += share * weight);
            }
        }
    }

    /// Adds the output of an encoder layer's attention over `mixed` values and its feed-forward part to the states.
    fn attended(
        &self,
        machine: &mut Machine,
        layer: &Layer,
        (normed, inner): (&mut Rows, &mut Rows),
        mixed: &Rows,
        (xs, blocks): (&mut Rows, &[Range<usize>]),
    ) {
        layer.own.output.add(machine, mixed, xs);
        self.after(machine, &layer.own.norm, xs);
        self.feed_forward(machine, &layer.feed_forward, (normed, inner), (xs, blocks));
    }

    /// The input of a sublayer: the states, normalised into `normed` if the norm comes first.
    fn before<'a>(&self, machine: &Machine, norm: &Norm, xs: &'a Rows, normed: &'a mut Rows) -> &'a Rows {
        if !self.norm_first {
            return xs;
        }
        norm.forward_to(machine.core.isa, machine.core.pool, xs, normed);
        normed
    }

    /// Normalises the states after a part where the norm comes then.
    fn after(&self, machine: &Machine, norm: &Norm, xs: &mut Rows) {
        if !self.norm_first {
            norm.forward(machine.core.isa, machine.core.pool, xs);
        }
    }

    fn feed_forward(
        &self,
        machine: &mut Machine,
        part: &FeedForward,
        (normed, inner): (&mut Rows, &mut Rows),
        (xs, blocks): (&mut Rows, &[Range<usize>]),
    ) {
        if self.norm_first {
            part.norm.forward_to(machine.core.isa, machine.core.pool, xs, normed);
        }
        let normed = self.norm_first.then_some(&*normed);
        part.dense.add(machine, normed, inner, (xs, blocks));
        self.after(machine, &part.norm, xs);
    }

    fn finish(&self, machine: &Machine, xs: &mut Rows) {
        if let Some(norm) = &self.final_norm {
            norm.forward(machine.core.isa, machine.core.pool, xs);
        }
    }
}
