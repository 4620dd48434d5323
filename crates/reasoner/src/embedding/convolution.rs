//! ConvE (Dettmers et al., 2018): the vectors of entity and relation, one above the other as a picture, go through 3 by 3
//! filters, batch normalisation and a rectifier, then through a projection, normalised and rectified again. An entity's row
//! ends with a bias, which the question's vector meets with 1.

use rayon::prelude::*;
use sporran_kernels::{Dropout, Isa, TrainingPrecision};

use super::parameters::{
    FILTERS, HIDDEN_MEAN, HIDDEN_SCALE, HIDDEN_SHIFT, HIDDEN_VARIANCE, MAP_MEAN, MAP_SCALE, MAP_SHIFT,
    MAP_VARIANCE, PROJECTION, Parameters, Shape,
};
use crate::product::{View, product, product_in, shared_product};

/// Questions of one piece of work, and rows of the projection's gradient.
const PIECE: usize = 16;
const ROWS: usize = 512;
/// What is added to variances.
const EPSILON: f32 = 1e-5;
/// How far running statistics follow those of a batch.
const MOMENTUM: f32 = 0.1;

/// How a batch is learned from: the dropout of whole maps and of values behind the projection, and how the projection's products
/// are computed.
#[derive(Clone, Copy)]
pub(super) struct ConvolutionTraining {
    pub(super) maps: Dropout,
    pub(super) hidden: Dropout,
    pub(super) precision: TrainingPrecision,
}

/// What the backward pass needs.
pub(super) struct Convolution {
    heads: Vec<f32>,
    relations: Vec<f32>,
    /// Normalised maps, before scale and shift.
    maps: Vec<f32>,
    /// The maps behind rectifier and dropout.
    active: Vec<f32>,
    /// Normalised values behind the projection.
    hidden: Vec<f32>,
    /// The questions' vectors.
    out: Vec<f32>,
    /// Mean and variance of each map and of each value.
    map_statistics: Statistics,
    hidden_statistics: Statistics,
}

/// Means and variances, each over so many values.
#[derive(Clone, Default)]
struct Statistics {
    means: Vec<f32>,
    variances: Vec<f32>,
    count: usize,
}

impl Statistics {
    /// Of groups of values: value `i` belongs to group `i / run % groups`.
    fn of(values: &[f32], groups: usize, run: usize) -> Self {
        let count = values.len() / groups;
        let pass = |term: &(dyn Fn(usize, f32) -> f32 + Sync)| -> Vec<f64> {
            let parts: Vec<Vec<f64>> = values
                .par_chunks(PIECE * groups * run)
                .map(|part| {
                    let mut sums = vec![0f64; groups];
                    for (at, run) in part.chunks(run).enumerate() {
                        let group = at % groups;
                        sums[group] += f64::from(run.iter().map(|value| term(group, *value)).sum::<f32>());
                    }
                    sums
                })
                .collect();
            let mut sums = vec![0f64; groups];
            parts.iter().for_each(|part| sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += part));
            sums
        };
        let means: Vec<f32> =
            pass(&|_, value| value).into_iter().map(|sum| (sum / count as f64) as f32).collect();
        let variances = pass(&|group, value| (value - means[group]) * (value - means[group]))
            .into_iter()
            .map(|sum| (sum / count as f64) as f32)
            .collect();
        Self { means, variances, count }
    }

    fn running(parameters: &Parameters, mean: usize, variance: usize) -> Self {
        let values = |at: usize| parameters.tensors[at].values.clone();
        Self { means: values(mean), variances: values(variance), count: 0 }
    }

    fn inverse(&self) -> Vec<f32> {
        self.variances.iter().map(|variance| 1.0 / (variance + EPSILON).sqrt()).collect()
    }

    fn normalise(&self, values: &mut [f32], run: usize) {
        let inverse = self.inverse();
        let groups = inverse.len();
        values.par_chunks_mut(PIECE * groups * run).for_each(|part| {
            for (at, run) in part.chunks_mut(run).enumerate() {
                let group = at % groups;
                let (mean, inverse) = (self.means[group], inverse[group]);
                run.iter_mut().for_each(|value| *value = (*value - mean) * inverse);
            }
        });
    }

    /// Turns the gradient of scaled and shifted values into that of the values that were normalised; adds those of scale
    /// and shift. With n values a group, normalised values h, deviation 1 / r and g = gradient * scale, the gradient is
    /// r (g - mean(g) - h mean(g h)).
    fn backward(
        &self,
        normed: &[f32],
        gradient: &mut [f32],
        run: usize,
        scale: &[f32],
        (to_scale, to_shift): (&mut [f32], &mut [f32]),
    ) {
        let groups = scale.len();
        let size = PIECE * groups * run;
        let parts: Vec<Vec<[f64; 2]>> = gradient
            .par_chunks(size)
            .zip(normed.par_chunks(size))
            .map(|(gradient, normed)| {
                let mut sums = vec![[0f64; 2]; groups];
                for (at, (gradient, normed)) in gradient.chunks(run).zip(normed.chunks(run)).enumerate() {
                    let (mut plain, mut pulled) = (0f32, 0f32);
                    for (g, h) in gradient.iter().zip(normed) {
                        plain += g;
                        pulled += g * h;
                    }
                    let sums = &mut sums[at % groups];
                    sums[0] += f64::from(plain);
                    sums[1] += f64::from(pulled);
                }
                sums
            })
            .collect();
        let mut sums = vec![[0f64; 2]; groups];
        for part in &parts {
            for (sum, part) in sums.iter_mut().zip(part) {
                sum[0] += part[0];
                sum[1] += part[1];
            }
        }
        for (group, [plain, pulled]) in sums.iter().enumerate() {
            to_shift[group] += *plain as f32;
            to_scale[group] += *pulled as f32;
        }
        let inverse = self.inverse();
        let count = self.count as f64;
        let means: Vec<[f32; 2]> =
            sums.iter().map(|[plain, pulled]| [(plain / count) as f32, (pulled / count) as f32]).collect();
        gradient.par_chunks_mut(size).zip(normed.par_chunks(size)).for_each(|(gradient, normed)| {
            for (at, (gradient, normed)) in gradient.chunks_mut(run).zip(normed.chunks(run)).enumerate() {
                let group = at % groups;
                let factor = inverse[group] * scale[group];
                let [plain, pulled] = means[group];
                for (g, h) in gradient.iter_mut().zip(normed) {
                    *g = factor * (*g - plain - h * pulled);
                }
            }
        });
    }

    fn follow(&self, parameters: &mut Parameters, mean: usize, variance: usize) {
        // The variance of a sample, not of the whole, as is usual.
        let correction = self.count as f32 / (self.count.max(2) - 1) as f32;
        for (at, found, factor) in [(mean, &self.means, 1.0), (variance, &self.variances, correction)] {
            for (running, found) in parameters.tensors[at].values.iter_mut().zip(found) {
                *running += MOMENTUM * (found * factor - *running);
            }
        }
    }
}

/// The nine shifted copies of a picture that its filters are multiplied with, (9, places).
fn patches(picture: &[f32], rows: usize, columns: usize, out: &mut [f32]) {
    let (high, wide) = (rows - 2, columns - 2);
    for (tap, out) in out.chunks_exact_mut(high * wide).enumerate() {
        for (row, out) in out.chunks_exact_mut(wide).enumerate() {
            let start = (row + tap / 3) * columns + tap % 3;
            out.copy_from_slice(&picture[start..start + wide]);
        }
    }
}

/// Adds the gradients of the copies up to that of the picture.
fn gather_patches(to_patches: &[f32], rows: usize, columns: usize, out: &mut [f32]) {
    let (high, wide) = (rows - 2, columns - 2);
    for (tap, to) in to_patches.chunks_exact(high * wide).enumerate() {
        for (row, to) in to.chunks_exact(wide).enumerate() {
            let start = (row + tap / 3) * columns + tap % 3;
            out[start..start + wide].iter_mut().zip(to).for_each(|(sum, to)| *sum += to);
        }
    }
}

/// What dropout multiplies each map of questions from number `first` on by.
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

/// The questions' vectors. In training statistics are those of the batch, otherwise the running ones.
pub(super) fn forward(
    shape: &Shape,
    parameters: &Parameters,
    heads: Vec<f32>,
    relations: Vec<f32>,
    training: Option<ConvolutionTraining>,
) -> (Vec<f32>, Convolution) {
    let (dim, filters) = (shape.dim, shape.filters);
    let (rows, columns, places) = shape.picture();
    let count = heads.len() / dim;
    let size = filters * places;
    let tensor = |at: usize| &parameters.tensors[at].values[..];
    let mut maps = vec![0.0; count * size];
    let pictures = heads.par_chunks(PIECE * dim).zip(relations.par_chunks(PIECE * dim));
    maps.par_chunks_mut(PIECE * size).zip(pictures).for_each(|(out, (heads, relations))| {
        let (mut picture, mut taps) = (vec![0.0; 2 * dim], vec![0.0; 9 * places]);
        let inputs = heads.chunks_exact(dim).zip(relations.chunks_exact(dim));
        for (out, (head, relation)) in out.chunks_exact_mut(size).zip(inputs) {
            picture[..dim].copy_from_slice(head);
            picture[dim..].copy_from_slice(relation);
            patches(&picture, rows, columns, &mut taps);
            let filter = (tensor(FILTERS), View::packed(filters, 9));
            product((out, View::packed(filters, places)), filter, (&taps, View::packed(9, places)), false);
        }
    });
    let map_statistics = match training {
        Some(_) => Statistics::of(&maps, filters, places),
        None => Statistics::running(parameters, MAP_MEAN, MAP_VARIANCE),
    };
    map_statistics.normalise(&mut maps, places);
    let mut active = vec![0.0; count * size];
    active.par_chunks_mut(PIECE * size).zip(maps.par_chunks(PIECE * size)).enumerate().for_each(
        |(piece, (out, maps))| {
            let factors = map_factors(training, piece * PIECE, out.len() / size, filters);
            for (at, (out, maps)) in out.chunks_mut(places).zip(maps.chunks(places)).enumerate() {
                let (scale, shift) = (tensor(MAP_SCALE)[at % filters], tensor(MAP_SHIFT)[at % filters]);
                let factor = factors[at];
                for (out, value) in out.iter_mut().zip(maps) {
                    *out = (value * scale + shift).max(0.0) * factor;
                }
            }
        },
    );
    let mut hidden = vec![0.0; count * dim];
    let projection = (tensor(PROJECTION), View::packed(size, dim));
    let precision = training.map_or(TrainingPrecision::F32, |training| training.precision);
    shared_product(precision, &mut hidden, (&active, View::packed(count, size)), projection, false);
    if let Some(training) = training {
        training.hidden.apply(Isa::detected(), 0, &mut hidden);
    }
    let hidden_statistics = match training {
        Some(_) => Statistics::of(&hidden, dim, 1),
        None => Statistics::running(parameters, HIDDEN_MEAN, HIDDEN_VARIANCE),
    };
    hidden_statistics.normalise(&mut hidden, 1);
    let mut out = vec![1.0; count * (dim + 1)];
    for (out, hidden) in out.chunks_exact_mut(dim + 1).zip(hidden.chunks_exact(dim)) {
        let scales = tensor(HIDDEN_SCALE).iter().zip(tensor(HIDDEN_SHIFT));
        for ((out, value), (scale, shift)) in out.iter_mut().zip(hidden).zip(scales) {
            *out = (value * scale + shift).max(0.0);
        }
    }
    let cache = Convolution {
        heads,
        relations,
        maps,
        active,
        hidden,
        out: out.clone(),
        map_statistics,
        hidden_statistics,
    };
    (out, cache)
}

impl Convolution {
    /// Moves the running statistics towards those of the batch.
    pub(super) fn follow(&self, parameters: &mut Parameters) {
        self.map_statistics.follow(parameters, MAP_MEAN, MAP_VARIANCE);
        self.hidden_statistics.follow(parameters, HIDDEN_MEAN, HIDDEN_VARIANCE);
    }

    /// The gradients of the vectors of entities and of relations, given those of the questions' vectors; adds those of the
    /// parameters.
    pub(super) fn backward(
        &self,
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
        let mut to_hidden = vec![0.0; count * dim];
        let rows = to.chunks_exact(dim + 1).zip(self.out.chunks_exact(dim + 1));
        for (out, (to, value)) in to_hidden.chunks_exact_mut(dim).zip(rows) {
            for ((out, to), value) in out.iter_mut().zip(to).zip(value) {
                *out = if *value > 0.0 { *to } else { 0.0 };
            }
        }
        let (before, after) = gradients.split_at_mut(HIDDEN_SHIFT);
        let sums = (&mut before[HIDDEN_SCALE][..], &mut after[0][..]);
        self.hidden_statistics.backward(&self.hidden, &mut to_hidden, 1, tensor(HIDDEN_SCALE), sums);
        training.hidden.apply(Isa::detected(), 0, &mut to_hidden);
        gradients[PROJECTION].par_chunks_mut(ROWS * dim).enumerate().for_each(|(at, out)| {
            let rows = out.len() / dim;
            let columns = View::rows(0, count, rows, size).transposed();
            let active = (&self.active[at * ROWS..], columns);
            product_in(
                training.precision,
                (out, View::packed(rows, dim)),
                active,
                (&to_hidden, View::packed(count, dim)),
                true,
            );
        });
        let mut to_maps = vec![0.0; count * size];
        let projection = (tensor(PROJECTION), View::packed(size, dim).transposed());
        shared_product(
            training.precision,
            &mut to_maps,
            (&to_hidden, View::packed(count, dim)),
            projection,
            false,
        );
        to_maps.par_chunks_mut(PIECE * size).enumerate().for_each(|(piece, out)| {
            let factors = map_factors(Some(training), piece * PIECE, out.len() / size, filters);
            let active = &self.active[piece * PIECE * size..];
            for (at, (out, active)) in out.chunks_mut(places).zip(active.chunks(places)).enumerate() {
                for (out, active) in out.iter_mut().zip(active) {
                    *out = if *active > 0.0 { *out * factors[at] } else { 0.0 };
                }
            }
        });
        let (before, after) = gradients.split_at_mut(MAP_SHIFT);
        let sums = (&mut before[MAP_SCALE][..], &mut after[0][..]);
        self.map_statistics.backward(&self.maps, &mut to_maps, places, tensor(MAP_SCALE), sums);
        self.backward_pictures(shape, tensor(FILTERS), &to_maps, &mut gradients[FILTERS])
    }

    fn backward_pictures(
        &self,
        shape: &Shape,
        filter: &[f32],
        to_maps: &[f32],
        to_filter: &mut [f32],
    ) -> (Vec<f32>, Vec<f32>) {
        let (dim, filters) = (shape.dim, shape.filters);
        let (rows, columns, places) = shape.picture();
        let size = filters * places;
        let mut to_heads = vec![0.0; self.heads.len()];
        let mut to_relations = vec![0.0; self.heads.len()];
        let outs = to_heads.par_chunks_mut(PIECE * dim).zip(to_relations.par_chunks_mut(PIECE * dim));
        let inputs = self.heads.par_chunks(PIECE * dim).zip(self.relations.par_chunks(PIECE * dim));
        let sums: Vec<Vec<f32>> = outs
            .zip(inputs)
            .zip(to_maps.par_chunks(PIECE * size))
            .map(|(((to_heads, to_relations), (heads, relations)), to_maps)| {
                let mut sum = vec![0.0; filters * 9];
                let (mut picture, mut taps) = (vec![0.0; 2 * dim], vec![0.0; 9 * places]);
                for (at, to) in to_maps.chunks_exact(size).enumerate() {
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
