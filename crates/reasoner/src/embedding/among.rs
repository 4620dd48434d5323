//! The gradients of one batch among all entities.

use std::ops::Range;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_kernels::{Comparison, Isa, TrainingPrecision, add_columns, draw, total, weighted_sum};

use super::{batch::Batch, euclidean, loss::Loss, options::TrainingOptions};
use crate::product::{View, product_in, shared_product};

/// Questions compared with all entities.
pub(super) struct Among {
    pub(super) loss: f64,
    /// Gradients of the questions' vectors.
    pub(super) to_queries: Vec<f32>,
    comparison: Comparison,
    /// Gradients of all scores, (questions, entities); of Euclidean distances the weights of differences.
    to_scores: Vec<f32>,
    way: Way,
}

/// How gradients of scores become those of vectors.
enum Way {
    /// By products of matrices.
    Products(TrainingPrecision),
    /// By sums of the rows that were drawn.
    Drawn(ByEntity),
    /// One by one, beside the scores.
    Differences(Vec<f32>),
}

/// Scores every question against all entities, whose rows are `table`, and turns the scores into gradients. `seed` is of what is drawn.
pub(super) fn among_all(
    comparison: Comparison,
    (loss, training): (&Loss, &TrainingOptions),
    batch: &Batch<'_>,
    queries: &[f32],
    table: &[f32],
    (mut buffer, seed): (Vec<f32>, u64),
) -> Among {
    let count = batch.questions.len();
    let entities = table.len() / (queries.len() / count);
    buffer.resize(count * entities, 0.0);
    match comparison {
        Comparison::Dot | Comparison::L2 => {
            by_products(comparison, (loss, training), batch, queries, table, (buffer, seed))
        }
        Comparison::L1 | Comparison::Modulus => {
            by_differences(comparison, loss, batch, queries, table, buffer)
        }
    }
}

fn by_products(
    comparison: Comparison,
    (loss, training): (&Loss, &TrainingOptions),
    batch: &Batch<'_>,
    queries: &[f32],
    table: &[f32],
    (mut buffer, seed): (Vec<f32>, u64),
) -> Among {
    let isa = Isa::detected();
    let count = batch.questions.len();
    let (width, entities) = (queries.len() / count, buffer.len() / count);
    let (precision, samples) = (training.precision, training.gradient_samples);
    let is_distance = comparison == Comparison::L2;
    let (left, all) = (View::packed(count, width), View::packed(entities, width));
    shared_product(precision, &mut buffer, (queries, left), (table, all.transposed()), false);
    if is_distance {
        euclidean::scores(&mut buffer, queries, table, width);
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let offsets: Vec<f32> = (0..count).map(|_| rng.random()).collect();
    let rows = buffer.par_chunks_exact_mut(entities).zip(offsets).enumerate();
    let rows = rows.map(|(at, (row, offset))| {
        let scale = batch.scale(at);
        let scores = if is_distance { row.to_vec() } else { Vec::new() };
        let lost = f64::from(scale) * loss.all(isa, row, &batch.answers[at], scale);
        if is_distance {
            euclidean::weights(row, &scores);
        }
        (lost, if samples > 0 { draw(isa, row, samples, offset) } else { Vec::new() })
    });
    let (losses, drawn): (Vec<f64>, Vec<Vec<(u32, f32)>>) = rows.unzip();
    let mut to_queries = vec![0.0; queries.len()];
    let (way, sums): (Way, Vec<f32>);
    if samples > 0 {
        let rows = to_queries.par_chunks_exact_mut(width).zip(&drawn);
        rows.for_each(|(to, weighted)| weighted_sum(isa, weighted, table, to));
        sums = drawn.iter().map(|weighted| sum_of_weights(weighted)).collect();
        way = Way::Drawn(ByEntity::new(&drawn, entities));
    } else {
        let to_scores = (&buffer[..], View::packed(count, entities));
        shared_product(precision, &mut to_queries, to_scores, (table, all), false);
        let rows = buffer.par_chunks_exact(entities);
        sums = rows.map(|row| if is_distance { total(isa, row) as f32 } else { 0.0 }).collect();
        way = Way::Products(precision);
    }
    if is_distance {
        euclidean::gradients(queries, &sums, width, &mut to_queries);
    }
    Among { loss: losses.iter().sum(), to_queries, comparison, to_scores: buffer, way }
}

fn sum_of_weights(weighted: &[(u32, f32)]) -> f32 {
    weighted.iter().map(|(_, weight)| weight).sum()
}

/// What was drawn for questions, by entity: the questions, ascending, with their weights.
struct ByEntity {
    /// Where an entity's begin, and at the end how many there are.
    starts: Vec<usize>,
    weighted: Vec<(u32, f32)>,
}

impl ByEntity {
    fn new(drawn: &[Vec<(u32, f32)>], entities: usize) -> Self {
        let mut starts = vec![0; entities + 1];
        for (entity, _) in drawn.iter().flatten() {
            starts[*entity as usize + 1] += 1;
        }
        for entity in 0..entities {
            starts[entity + 1] += starts[entity];
        }
        let mut ends = starts.clone();
        let mut weighted = vec![(0, 0.0); starts[entities]];
        for (question, drawn) in drawn.iter().enumerate() {
            for (entity, weight) in drawn {
                let end = &mut ends[*entity as usize];
                weighted[*end] = (question as u32, *weight);
                *end += 1;
            }
        }
        Self { starts, weighted }
    }

    fn of(&self, entity: usize) -> &[(u32, f32)] {
        &self.weighted[self.starts[entity]..self.starts[entity + 1]]
    }
}

fn by_differences(
    comparison: Comparison,
    loss: &Loss,
    batch: &Batch<'_>,
    queries: &[f32],
    table: &[f32],
    mut buffer: Vec<f32>,
) -> Among {
    let isa = Isa::detected();
    let width = queries.len() / batch.questions.len();
    let entities = table.len() / width;
    let rows = buffer.par_chunks_exact_mut(entities).zip(queries.par_chunks_exact(width));
    rows.for_each(|(row, query)| comparison.scores(isa, query, table, row));
    let scores = buffer.clone();
    let mut to_queries = vec![0.0; queries.len()];
    let rows = buffer.par_chunks_exact_mut(entities).zip(scores.par_chunks_exact(entities));
    let rows = rows.zip(queries.par_chunks_exact(width).zip(to_queries.par_chunks_exact_mut(width)));
    let losses: Vec<f64> = rows
        .enumerate()
        .map(|(at, ((row, scores), (query, to)))| {
            let scale = batch.scale(at);
            let lost = f64::from(scale) * loss.all(isa, row, &batch.answers[at], scale);
            for ((entity, by), score) in table.chunks_exact(width).zip(&*row).zip(scores) {
                comparison.add_gradient(isa, *by, *score, query, entity, to);
            }
            lost
        })
        .collect();
    Among {
        loss: losses.iter().sum(),
        to_queries,
        comparison,
        to_scores: buffer,
        way: Way::Differences(scores),
    }
}

impl Among {
    /// Writes the gradients of some entities, whose rows are `table`, that come from being compared.
    pub(super) fn to_entities(
        &self,
        queries: &[f32],
        entities: usize,
        which: Range<usize>,
        table: &[f32],
        out: &mut [f32],
    ) {
        let count = self.to_scores.len() / entities;
        let width = queries.len() / count;
        let isa = Isa::detected();
        let is_distance = self.comparison == Comparison::L2;
        let mut sums = vec![0.0; if is_distance { which.len() } else { 0 }];
        match &self.way {
            Way::Products(precision) => {
                let columns = View::rows(0, count, which.len(), entities).transposed();
                let to_scores = (&self.to_scores[which.start..], columns);
                let out = (&mut *out, View::packed(which.len(), width));
                product_in(*precision, out, to_scores, (queries, View::packed(count, width)), false);
                if is_distance {
                    for row in self.to_scores.chunks_exact(entities) {
                        add_columns(isa, &row[which.clone()], &mut sums);
                    }
                }
            }
            Way::Drawn(by_entity) => {
                for (out, entity) in out.chunks_exact_mut(width).zip(which.clone()) {
                    weighted_sum(isa, by_entity.of(entity), queries, out);
                }
                for (sum, entity) in sums.iter_mut().zip(which) {
                    *sum = sum_of_weights(by_entity.of(entity));
                }
            }
            Way::Differences(scores) => {
                out.fill(0.0);
                let rows = out.chunks_exact_mut(width).zip(table.chunks_exact(width)).zip(which);
                for ((out, row), entity) in rows {
                    for (question, query) in queries.chunks_exact(width).enumerate() {
                        let at = question * entities + entity;
                        self.comparison.add_gradient(isa, self.to_scores[at], scores[at], row, query, out);
                    }
                }
            }
        }
        if is_distance {
            euclidean::gradients(table, &sums, width, out);
        }
    }

    /// The memory of the scores, to be used again.
    pub(super) fn into_buffer(self) -> Vec<f32> {
        self.to_scores
    }
}
