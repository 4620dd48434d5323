//! RESCAL and TuckER: one matrix a relation. The questions of one relation are the rows of one product.

use std::borrow::Cow;

use rayon::prelude::*;
use sporran_kernels::{Dropout, Isa};

use super::{
    options::ModelKind,
    parameters::{CORE, Parameters, RELATIONS, Shape},
    questions::Question,
};
use crate::product::{View, product};

/// The number of relations whose matrices are computed in one product.
const PORTION: usize = 16;

/// Activations for the backward pass.
pub(super) struct Matrices {
    heads: Vec<f32>,
    /// The batch's relations in ascending order with their questions. Inverse questions are listed
    /// separately.
    used: Vec<(u32, [Vec<usize>; 2])>,
    /// TuckER: the relation vectors.
    vectors: Vec<f32>,
    /// The relation matrices, unless they are the parameters themselves.
    matrices: Vec<f32>,
}

fn used(questions: &[Question]) -> Vec<(u32, [Vec<usize>; 2])> {
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.sort_by_key(|&at| questions[at].relation);
    let mut used: Vec<(u32, [Vec<usize>; 2])> = Vec::new();
    for at in order {
        let Question { relation, inverse, .. } = questions[at];
        if used.last().is_none_or(|(last, _)| *last != relation) {
            used.push((relation, [Vec::new(), Vec::new()]));
        }
        if let Some((_, groups)) = used.last_mut() {
            groups[usize::from(inverse)].push(at);
        }
    }
    used
}

fn gathered(rows: &[f32], width: usize, which: &[usize]) -> Vec<f32> {
    which.iter().flat_map(|&at| &rows[at * width..][..width]).copied().collect()
}

fn scatter(rows: &[f32], width: usize, which: &[usize], out: &mut [f32]) {
    for (row, &at) in rows.chunks_exact(width).zip(which) {
        out[at * width..][..width].copy_from_slice(row);
    }
}

/// Computes the question vectors from those of their entities.
pub(super) fn forward(
    shape: &Shape,
    parameters: &Parameters,
    questions: &[Question],
    heads: Vec<f32>,
    dropout: Option<&Dropout>,
) -> (Vec<f32>, Matrices) {
    let isa = Isa::detected();
    let dim = shape.dim;
    let square = dim * dim;
    let width = shape.relation_width();
    let relations = &parameters.tensors[RELATIONS].values;
    let used = used(questions);
    let row = |relation: u32| &relations[relation as usize * width..][..width];
    let dropped = dropout.is_some() || shape.model == ModelKind::TuckEr;
    let mut vectors = Vec::new();
    if dropped {
        vectors.reserve(used.len() * width);
        for (relation, _) in &used {
            let start = vectors.len();
            vectors.extend_from_slice(row(*relation));
            if let Some(dropout) = dropout {
                dropout.apply(isa, *relation as usize * width, &mut vectors[start..]);
            }
        }
    }
    let matrices = if shape.model == ModelKind::TuckEr {
        let core = &parameters.tensors[CORE].values;
        let mut matrices = vec![0.0; used.len() * square];
        let portions = matrices.par_chunks_mut(PORTION * square).zip(vectors.par_chunks(PORTION * width));
        portions.for_each(|(out, vectors)| {
            let count = vectors.len() / width;
            let (out, a) = ((out, View::packed(count, square)), (vectors, View::packed(count, width)));
            product(out, a, (core, View::packed(width, square)), false);
        });
        matrices
    } else {
        std::mem::take(&mut vectors)
    };
    let made = Matrices { heads, used, vectors, matrices };
    let groups: Vec<[Vec<f32>; 2]> = made
        .used
        .par_iter()
        .enumerate()
        .map(|(at, (_, groups))| {
            let matrix = made.matrix(at, shape, relations);
            let of = |inverse: bool| {
                let which = &groups[usize::from(inverse)];
                let heads = gathered(&made.heads, dim, which);
                let mut out = vec![0.0; heads.len()];
                let view = View::packed(which.len(), dim);
                product((&mut out, view), (&heads, view), (&matrix, turned(dim, inverse)), false);
                out
            };
            [of(false), of(true)]
        })
        .collect();
    let mut out = vec![0.0; questions.len() * dim];
    for ((_, which), rows) in made.used.iter().zip(&groups) {
        for (which, rows) in which.iter().zip(rows) {
            scatter(rows, dim, which, &mut out);
        }
    }
    (out, made)
}

/// The matrix with rows from subject to object, or from object to subject.
fn turned(dim: usize, inverse: bool) -> View {
    let view = View::packed(dim, dim);
    if inverse { view.transposed() } else { view }
}

impl Matrices {
    fn matrix<'a>(&'a self, at: usize, shape: &Shape, relations: &'a [f32]) -> Cow<'a, [f32]> {
        let square = shape.dim * shape.dim;
        let (from, at) = if self.matrices.is_empty() {
            (relations, self.used[at].0 as usize)
        } else {
            (&self.matrices[..], at)
        };
        Cow::Borrowed(&from[at * square..][..square])
    }

    /// Computes the gradients of the entity vectors from those of the question vectors. Adds the gradients of
    /// the parameters.
    pub(super) fn backward(
        &self,
        shape: &Shape,
        parameters: &Parameters,
        to: &[f32],
        dropout: Option<&Dropout>,
        gradients: &mut [Vec<f32>],
    ) -> Vec<f32> {
        let isa = Isa::detected();
        let dim = shape.dim;
        let square = dim * dim;
        let width = shape.relation_width();
        let relations = &parameters.tensors[RELATIONS].values;
        let is_tucker = shape.model == ModelKind::TuckEr;
        let mut to_matrices = vec![0.0; if is_tucker { self.used.len() * square } else { 0 }];
        let (to_relations, rest) = gradients.split_at_mut(1);
        let mut targets: Vec<&mut [f32]> = if is_tucker {
            to_matrices.chunks_exact_mut(square).collect()
        } else {
            let mut used = self.used.iter().map(|(relation, _)| *relation as usize).peekable();
            let rows = to_relations[0].chunks_exact_mut(square).enumerate();
            rows.filter_map(|(at, row)| used.next_if_eq(&at).map(|_| row)).collect()
        };
        let groups: Vec<[Vec<f32>; 2]> = self
            .used
            .par_iter()
            .enumerate()
            .zip(&mut targets)
            .map(|((at, (relation, groups)), target)| {
                let matrix = self.matrix(at, shape, relations);
                let of = |inverse: bool, target: &mut [f32]| {
                    let which = &groups[usize::from(inverse)];
                    let (heads, to) = (gathered(&self.heads, dim, which), gathered(to, dim, which));
                    let view = View::packed(which.len(), dim);
                    // Inverse questions use the transposed matrix, so the two factors of its gradient swap.
                    let (left, right) = if inverse { (&to, &heads) } else { (&heads, &to) };
                    product((target, View::packed(dim, dim)), (left, view.transposed()), (right, view), true);
                    let mut to_heads = vec![0.0; heads.len()];
                    product((&mut to_heads, view), (&to, view), (&matrix, turned(dim, !inverse)), false);
                    to_heads
                };
                let found = [of(false, target), of(true, target)];
                if let (Some(dropout), false) = (dropout, is_tucker) {
                    dropout.apply(isa, *relation as usize * width, target);
                }
                found
            })
            .collect();
        let mut out = vec![0.0; to.len()];
        for ((_, which), rows) in self.used.iter().zip(&groups) {
            for (which, rows) in which.iter().zip(rows) {
                scatter(rows, dim, which, &mut out);
            }
        }
        if is_tucker {
            self.backward_core(
                parameters,
                &to_matrices,
                (width, square),
                (&mut to_relations[0], &mut rest[0]),
                dropout,
            );
        }
        out
    }

    fn backward_core(
        &self,
        parameters: &Parameters,
        to_matrices: &[f32],
        (width, square): (usize, usize),
        (to_relations, to_core): (&mut [f32], &mut [f32]),
        dropout: Option<&Dropout>,
    ) {
        let count = self.used.len();
        let portion = PORTION.min(width);
        to_core.par_chunks_mut(portion * square).enumerate().for_each(|(at, out)| {
            let rows = out.len() / square;
            // Columns of the vectors, as rows.
            let columns = View::rows(0, count, rows, width).transposed();
            let vectors = &self.vectors[at * portion..];
            product(
                (out, View::packed(rows, square)),
                (vectors, columns),
                (to_matrices, View::packed(count, square)),
                true,
            );
        });
        let core = &parameters.tensors[CORE].values;
        let mut to_vectors = vec![0.0; count * width];
        let portions =
            to_vectors.par_chunks_mut(PORTION * width).zip(to_matrices.par_chunks(PORTION * square));
        portions.for_each(|(out, to)| {
            let rows = to.len() / square;
            let core = (&core[..], View::packed(width, square).transposed());
            product((out, View::packed(rows, width)), (to, View::packed(rows, square)), core, false);
        });
        for ((relation, _), to) in self.used.iter().zip(to_vectors.chunks_exact_mut(width)) {
            let start = *relation as usize * width;
            if let Some(dropout) = dropout {
                dropout.apply(Isa::detected(), start, to);
            }
            to_relations[start..start + width].iter_mut().zip(to).for_each(|(sum, to)| *sum += *to);
        }
    }
}
