//! The gradients of one batch that is scored against all entities.

use std::ops::Range;

use rayon::prelude::*;
use sporran_kernels::{Comparison, Isa, TrainingPrecision, add_columns, total};

use super::{batch::Batch, euclidean, loss::Loss, sample::Sample};
use crate::product::{View, product_in, shared_product};

/// Questions that are scored against all entities.
pub(super) struct Among {
    pub(super) loss: f64,
    /// Gradients of the question vectors.
    pub(super) to_queries: Vec<f32>,
    comparison: Comparison,
    /// Gradients of all scores, (questions, entities). For Euclidean distances: the weights of differences.
    to_scores: Vec<f32>,
    way: Way,
}

/// How gradients of scores become gradients of vectors.
enum Way {
    /// By matrix products.
    Products(TrainingPrecision),
    /// Element by element. The values are the scores.
    Differences(Vec<f32>),
}

/// Scores every question against all entities or a sample of them, and turns the scores into gradients.
/// `table` holds the rows of those entities.
pub(super) fn among(
    comparison: Comparison,
    (loss, precision): (&Loss, TrainingPrecision),
    (batch, sample): (&Batch<'_>, Option<&Sample>),
    queries: &[f32],
    table: &[f32],
    mut buffer: Vec<f32>,
) -> Among {
    let count = batch.questions.len();
    let entities = table.len() / (queries.len() / count);
    buffer.resize(count * entities, 0.0);
    match comparison {
        Comparison::Dot | Comparison::L2 => {
            by_products(comparison, (loss, precision), (batch, sample), queries, table, buffer)
        }
        Comparison::L1 | Comparison::Modulus => {
            by_differences(comparison, loss, (batch, sample), queries, table, buffer)
        }
    }
}

fn by_products(
    comparison: Comparison,
    (loss, precision): (&Loss, TrainingPrecision),
    (batch, sample): (&Batch<'_>, Option<&Sample>),
    queries: &[f32],
    table: &[f32],
    mut buffer: Vec<f32>,
) -> Among {
    let isa = Isa::detected();
    let count = batch.questions.len();
    let (width, entities) = (queries.len() / count, buffer.len() / count);
    let is_distance = comparison == Comparison::L2;
    let (left, all) = (View::packed(count, width), View::packed(entities, width));
    shared_product(precision, &mut buffer, (queries, left), (table, all.transposed()), false);
    if is_distance {
        euclidean::scores(&mut buffer, queries, table, width);
    }
    let rows = buffer.par_chunks_exact_mut(entities).enumerate();
    let losses: Vec<f64> = rows
        .map(|(at, row)| {
            let scale = batch.scale(at);
            let scores = if is_distance { row.to_vec() } else { Vec::new() };
            let lost = f64::from(scale) * loss.all(isa, row, &batch.answers[at], scale, sample);
            if is_distance {
                euclidean::weights(row, &scores);
            }
            lost
        })
        .collect();
    let mut to_queries = vec![0.0; queries.len()];
    let to_scores = (&buffer[..], View::packed(count, entities));
    shared_product(precision, &mut to_queries, to_scores, (table, all), false);
    if is_distance {
        let sums: Vec<f32> = buffer.par_chunks_exact(entities).map(|row| total(isa, row) as f32).collect();
        euclidean::gradients(queries, &sums, width, &mut to_queries);
    }
    let way = Way::Products(precision);
    Among { loss: losses.iter().sum(), to_queries, comparison, to_scores: buffer, way }
}

fn by_differences(
    comparison: Comparison,
    loss: &Loss,
    (batch, sample): (&Batch<'_>, Option<&Sample>),
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
            let lost = f64::from(scale) * loss.all(isa, row, &batch.answers[at], scale, sample);
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
    /// Writes the gradients of some entities as candidates. `table` holds their rows.
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
        match &self.way {
            Way::Products(precision) => {
                let columns = View::rows(0, count, which.len(), entities).transposed();
                let to_scores = (&self.to_scores[which.start..], columns);
                let to = (&mut *out, View::packed(which.len(), width));
                product_in(*precision, to, to_scores, (queries, View::packed(count, width)), false);
                if self.comparison == Comparison::L2 {
                    let mut sums = vec![0.0; which.len()];
                    for row in self.to_scores.chunks_exact(entities) {
                        add_columns(isa, &row[which.clone()], &mut sums);
                    }
                    euclidean::gradients(table, &sums, width, out);
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
    }

    /// Returns the score buffer for reuse.
    pub(super) fn into_buffer(self) -> Vec<f32> {
        self.to_scores
    }
}
