//! ConvE (Dettmers et al., 2018). The vectors of entity and relation are stacked into a picture. 3 by 3
//! filters, batch normalisation and a rectifier follow, then a projection, normalised and rectified again. An
//! entity's row ends with a bias, and the question's vector with a constant 1 that it is multiplied with.

use rayon::prelude::*;
use sporran_kernels::{Dropout, Isa, NormalisedBack, TrainingPrecision};

use super::{
    normalisation::{Moments, Pulls, Statistics},
    parameters::{
        FILTERS, HIDDEN_MEAN, HIDDEN_SCALE, HIDDEN_SHIFT, HIDDEN_VARIANCE, MAP_MEAN, MAP_SCALE, MAP_SHIFT,
        MAP_VARIANCE, PROJECTION, Parameters, Shape,
    },
};
use crate::product::{View, product, shared_product};

/// The number of questions in one work unit.
const PIECE: usize = 16;

/// Training settings of the convolution: dropout of whole maps and after the projection, and the precision of
/// the projection's products.
#[derive(Clone, Copy)]
pub(super) struct ConvolutionTraining {
    pub(super) maps: Dropout,
    pub(super) hidden: Dropout,
    pub(super) precision: TrainingPrecision,
}

/// Activations for the backward pass.
pub(super) struct Convolution {
    heads: Vec<f32>,
    relations: Vec<f32>,
    memory: Memory,
    /// The outputs of the projection before normalisation.
    hidden: Vec<f32>,
    /// The question vectors.
    out: Vec<f32>,
    /// The statistics of the maps and of the hidden values.
    map_statistics: Statistics,
    hidden_statistics: Statistics,
}

/// The maps of a batch. They need about 50 KB a question, so their buffers are reused from batch to batch.
#[derive(Default)]
pub(super) struct Memory {
    /// Before normalisation.
    maps: Vec<f32>,
    /// After rectifier and dropout.
    active: Vec<f32>,
    /// The gradients of the maps.
    to_maps: Vec<f32>,
}

/// The nine shifted copies of a picture, (9, positions), that its filters are multiplied with.
fn patches(picture: &[f32], rows: usize, columns: usize, out: &mut [f32]) {
    let (high, wide) = (rows - 2, columns - 2);
    for (tap, out) in out.chunks_exact_mut(high * wide).enumerate() {
        for (row, out) in out.chunks_exact_mut(wide).enumerate() {
            let start = (row + tap / 3) * columns + tap % 3;
            out.copy_from_slice(&picture[start..start + wide]);
        }
    }
}

/// Sums the gradients of the copies into the gradient of the picture.
fn gather_patches(to_patches: &[f32], rows: usize, columns: usize, out: &mut [f32]) {
    let (high, wide) = (rows - 2, columns - 2);
    for (tap, to) in to_patches.chunks_exact(high * wide).enumerate() {
        for (row, to) in to.chunks_exact(wide).enumerate() {
            let start = (row + tap / 3) * columns + tap % 3;
            out[start..start + wide].iter_mut().zip(to).for_each(|(sum, to)| *sum += to);
        }
    }
}

/// The dropout factors of the maps, for the questions from index `first` on.
fn map_factors(
    training: Option<ConvolutionTraining>,
    first: usize,
    count: usize,
    filters: usize,
) -> Vec<f32> {
    let mut factors = vec![1.0; count * filters];
    if let Some(training) = training {
        training.maps.apply(Isa::detected(), first * filters, &mut factors);
    }
    factors
}

/// Computes the question vectors. Training uses the batch statistics, inference the running ones.
pub(super) fn forward(
    shape: &Shape,
    parameters: &Parameters,
    heads: Vec<f32>,
    relations: Vec<f32>,
    training: Option<ConvolutionTraining>,
    mut memory: Memory,
) -> (Vec<f32>, Convolution) {
    let (dim, filters) = (shape.dim, shape.filters);
    let (rows, columns, places) = shape.picture();
    let count = heads.len() / dim;
    let size = filters * places;
    let tensor = |at: usize| &parameters.tensors[at].values[..];
    memory.maps.resize(count * size, 0.0);
    memory.active.resize(count * size, 0.0);
    let pictures = heads.par_chunks(PIECE * dim).zip(relations.par_chunks(PIECE * dim));
    let moments: Vec<Moments> = memory
        .maps
        .par_chunks_mut(PIECE * size)
        .zip(pictures)
        .map(|(out, (heads, relations))| {
            let (mut picture, mut taps) = (vec![0.0; 2 * dim], vec![0.0; 9 * places]);
            let inputs = heads.chunks_exact(dim).zip(relations.chunks_exact(dim));
            let mut moments = Moments::new(filters);
            for (out, (head, relation)) in out.chunks_exact_mut(size).zip(inputs) {
                picture[..dim].copy_from_slice(head);
                picture[dim..].copy_from_slice(relation);
                patches(&picture, rows, columns, &mut taps);
                let filter = (tensor(FILTERS), View::packed(filters, 9));
                product(
                    (out, View::packed(filters, places)),
                    filter,
                    (&taps, View::packed(9, places)),
                    false,
                );
                if training.is_some() {
                    moments.add_runs(out, places);
                }
            }
            moments
        })
        .collect();
    let map_statistics = match training {
        Some(_) => Statistics::of(moments),
        None => Statistics::running(parameters, MAP_MEAN, MAP_VARIANCE),
    };
    let lines = map_statistics.lines(tensor(MAP_SCALE), tensor(MAP_SHIFT));
    let outs = memory.active.par_chunks_mut(PIECE * size).zip(memory.maps.par_chunks(PIECE * size));
    outs.enumerate().for_each(|(piece, (out, maps))| {
        let factors = map_factors(training, piece * PIECE, out.len() / size, filters);
        let runs = out.chunks_exact_mut(places).zip(maps.chunks_exact(places));
        for ((out, maps), (factor, line)) in runs.zip(factors.iter().zip(lines.iter().cycle())) {
            line.rectify(Isa::detected(), maps, *factor, out);
        }
    });
    let mut hidden = vec![0.0; count * dim];
    let projection = (tensor(PROJECTION), View::packed(size, dim));
    let precision = training.map_or(TrainingPrecision::F32, |training| training.precision);
    shared_product(precision, &mut hidden, (&memory.active, View::packed(count, size)), projection, false);
    if let Some(training) = training {
        training.hidden.apply(Isa::detected(), 0, &mut hidden);
    }
    let hidden_statistics = match training {
        Some(_) => {
            Statistics::of(hidden.par_chunks(PIECE * dim).map(|rows| Moments::of_rows(rows, dim)).collect())
        }
        None => Statistics::running(parameters, HIDDEN_MEAN, HIDDEN_VARIANCE),
    };
    let lines = hidden_statistics.lines(tensor(HIDDEN_SCALE), tensor(HIDDEN_SHIFT));
    let mut out = vec![1.0; count * (dim + 1)];
    for (out, hidden) in out.chunks_exact_mut(dim + 1).zip(hidden.chunks_exact(dim)) {
        for ((out, value), line) in out.iter_mut().zip(hidden).zip(&lines) {
            *out = line.at(*value).max(0.0);
        }
    }
    let cache =
        Convolution { heads, relations, memory, hidden, out: out.clone(), map_statistics, hidden_statistics };
    (out, cache)
}

impl Convolution {
    /// Moves the running statistics towards those of the batch.
    pub(super) fn follow(&self, parameters: &mut Parameters) {
        self.map_statistics.follow(parameters, MAP_MEAN, MAP_VARIANCE);
        self.hidden_statistics.follow(parameters, HIDDEN_MEAN, HIDDEN_VARIANCE);
    }

    /// Returns the buffers of the maps for reuse.
    pub(super) fn into_memory(self) -> Memory {
        self.memory
    }

    /// Computes the gradients of the entity and relation vectors from those of the question vectors. Adds the
    /// gradients of the parameters.
    pub(super) fn backward(
        &mut self,
        shape: &Shape,
        parameters: &Parameters,
        to: &[f32],
        training: ConvolutionTraining,
        gradients: &mut [Vec<f32>],
    ) -> (Vec<f32>, Vec<f32>) {
        let (dim, filters) = (shape.dim, shape.filters);
        let (_, _, places) = shape.picture();
        let count = self.heads.len() / dim;
        let size = filters * places;
        let tensor = |at: usize| &parameters.tensors[at].values[..];
        let to_hidden = self.backward_hidden(dim, to, tensor(HIDDEN_SCALE), training, gradients);
        let Memory { maps, active, to_maps } = &mut self.memory;
        let columns = View::packed(count, size).transposed();
        let out = &mut gradients[PROJECTION];
        shared_product(
            training.precision,
            out,
            (active, columns),
            (&to_hidden, View::packed(count, dim)),
            true,
        );
        to_maps.resize(count * size, 0.0);
        let projection = (tensor(PROJECTION), View::packed(size, dim).transposed());
        shared_product(
            training.precision,
            to_maps,
            (&to_hidden, View::packed(count, dim)),
            projection,
            false,
        );
        let inputs = active.par_chunks(PIECE * size).zip(maps.par_chunks(PIECE * size));
        let outs = to_maps.par_chunks_mut(PIECE * size).zip(inputs);
        let pulls: Vec<Pulls> = outs
            .enumerate()
            .map(|(piece, (to, (active, maps)))| {
                let factors = map_factors(Some(training), piece * PIECE, to.len() / size, filters);
                let mut pulls = Pulls::new(filters);
                let questions = to.chunks_exact_mut(size).zip(active.chunks_exact(size));
                let questions = questions.zip(maps.chunks_exact(size)).zip(factors.chunks_exact(filters));
                for (((to, active), maps), factors) in questions {
                    pulls.rectify_back(to, (active, factors), maps, &self.map_statistics, places);
                }
                pulls
            })
            .collect();
        let back = self.map_statistics.back(pulls, tensor(MAP_SCALE), MAP_SCALE, gradients);
        self.backward_pictures(shape, tensor(FILTERS), &back, &mut gradients[FILTERS])
    }

    /// The gradients of the projection's outputs before normalisation.
    fn backward_hidden(
        &self,
        dim: usize,
        to: &[f32],
        scale: &[f32],
        training: ConvolutionTraining,
        gradients: &mut [Vec<f32>],
    ) -> Vec<f32> {
        let mut to_hidden = vec![0.0; self.hidden.len()];
        let rows = to.chunks_exact(dim + 1).zip(self.out.chunks_exact(dim + 1));
        for (out, (to, value)) in to_hidden.chunks_exact_mut(dim).zip(rows) {
            for ((out, to), value) in out.iter_mut().zip(to).zip(value) {
                *out = if *value > 0.0 { *to } else { 0.0 };
            }
        }
        let pieces = to_hidden.par_chunks(PIECE * dim).zip(self.hidden.par_chunks(PIECE * dim));
        let pulls = pieces.map(|(to, values)| Pulls::of_rows(to, values, &self.hidden_statistics)).collect();
        let back = self.hidden_statistics.back(pulls, scale, HIDDEN_SCALE, gradients);
        for (to, values) in to_hidden.chunks_exact_mut(dim).zip(self.hidden.chunks_exact(dim)) {
            for ((to, value), back) in to.iter_mut().zip(values).zip(&back) {
                *to = back.at(*to, *value);
            }
        }
        training.hidden.apply(Isa::detected(), 0, &mut to_hidden);
        to_hidden
    }

    fn backward_pictures(
        &mut self,
        shape: &Shape,
        filter: &[f32],
        back: &[NormalisedBack],
        to_filter: &mut [f32],
    ) -> (Vec<f32>, Vec<f32>) {
        let (dim, filters) = (shape.dim, shape.filters);
        let (rows, columns, places) = shape.picture();
        let size = filters * places;
        let mut to_heads = vec![0.0; self.heads.len()];
        let mut to_relations = vec![0.0; self.heads.len()];
        let outs = to_heads.par_chunks_mut(PIECE * dim).zip(to_relations.par_chunks_mut(PIECE * dim));
        let inputs = self.heads.par_chunks(PIECE * dim).zip(self.relations.par_chunks(PIECE * dim));
        let Memory { maps, to_maps, .. } = &mut self.memory;
        let sums: Vec<Vec<f32>> = outs
            .zip(inputs)
            .zip(to_maps.par_chunks_mut(PIECE * size).zip(maps.par_chunks(PIECE * size)))
            .map(|(((to_heads, to_relations), (heads, relations)), (to_maps, maps))| {
                let mut sum = vec![0.0; filters * 9];
                let (mut picture, mut taps) = (vec![0.0; 2 * dim], vec![0.0; 9 * places]);
                let questions = to_maps.chunks_exact_mut(size).zip(maps.chunks_exact(size));
                for (at, (to, values)) in questions.enumerate() {
                    let runs = to.chunks_exact_mut(places).zip(values.chunks_exact(places));
                    for ((to, values), back) in runs.zip(back) {
                        back.apply(Isa::detected(), values, to);
                    }
                    let own = at * dim..(at + 1) * dim;
                    picture[..dim].copy_from_slice(&heads[own.clone()]);
                    picture[dim..].copy_from_slice(&relations[own.clone()]);
                    patches(&picture, rows, columns, &mut taps);
                    let (maps, views) = (View::packed(filters, places), View::packed(9, places));
                    product(
                        (&mut sum, View::packed(filters, 9)),
                        (to, maps),
                        (&taps, views.transposed()),
                        true,
                    );
                    let turned = View::packed(filters, 9).transposed();
                    product((&mut taps, views), (filter, turned), (to, maps), false);
                    picture.fill(0.0);
                    gather_patches(&taps, rows, columns, &mut picture);
                    to_heads[own.clone()].copy_from_slice(&picture[..dim]);
                    to_relations[own].copy_from_slice(&picture[dim..]);
                }
                sum
            })
            .collect();
        for sum in &sums {
            to_filter.iter_mut().zip(sum).for_each(|(to, sum)| *to += sum);
        }
        (to_heads, to_relations)
    }
}
