//! Relation prediction as an auxiliary loss (Chen et al., 2021): which relation holds between two entities,
//! by a softmax over all rows of the relation table. Models must be linear in the relation vector.

use rayon::prelude::*;
use sporran_kernels::{Isa, add_columns, scaled_softmax};

use super::{
    batch::Batch,
    dense::Contributions,
    options::ModelKind,
    parameters::{RELATIONS, Shape},
    table::EntityTable,
    vectors,
};
use crate::product::{View, product};

/// The number of entity pairs, or of relation rows, in one work unit.
const PIECE: usize = 64;

/// Gradients of a batch's relation questions, one for each triple.
pub(super) struct Related {
    pub(super) loss: f64,
    /// Gradients of the entities that questions start from, (questions, dim).
    pub(super) to_heads: Vec<f32>,
    /// Gradients of the entities that answer them.
    pub(super) answers: Contributions,
}

/// The result of one work unit.
struct Piece {
    loss: f64,
    /// The vectors that relation vectors are multiplied with, (pairs, dim).
    pairs: Vec<f32>,
    /// Gradients of the scores, (pairs, rows of the table).
    to_scores: Vec<f32>,
    to_heads: Vec<f32>,
    to_answers: Vec<f32>,
}

/// Computes the gradients of `weight` times the mean cross-entropy of each triple's relation. Adds those of
/// the relation vectors to `gradients`.
pub(super) fn relate(
    shape: &Shape,
    (entities, relations): (&EntityTable, &[f32]),
    batch: &Batch<'_>,
    weight: f32,
    gradients: &mut [Vec<f32>],
) -> Related {
    let dim = shape.dim;
    let rows = relations.len() / dim;
    let triples: Vec<(usize, u32)> = batch
        .answers
        .iter()
        .enumerate()
        .flat_map(|(at, answers)| answers.iter().map(move |answer| (at, answer.0)))
        .collect();
    let pieces: Vec<Piece> = triples
        .par_chunks(PIECE)
        .map(|triples| piece(shape.model, (entities, relations, dim), batch, weight, triples))
        .collect();
    gradients[RELATIONS].par_chunks_mut(PIECE * dim).enumerate().for_each(|(at, out)| {
        let (first, many) = (at * PIECE, out.len() / dim);
        for piece in &pieces {
            let count = piece.pairs.len() / dim;
            let columns = View::rows(0, count, many, rows).transposed();
            let pairs = (&piece.pairs[..], View::packed(count, dim));
            product((out, View::packed(many, dim)), (&piece.to_scores[first..], columns), pairs, true);
        }
    });
    let mut to_heads = vec![0.0; batch.questions.len() * dim];
    let mut to_answers = Vec::with_capacity(triples.len() * dim);
    for (piece, triples) in pieces.iter().zip(triples.chunks(PIECE)) {
        to_answers.extend_from_slice(&piece.to_answers);
        for ((question, _), to) in triples.iter().zip(piece.to_heads.chunks_exact(dim)) {
            add_columns(Isa::detected(), to, &mut to_heads[question * dim..][..dim]);
        }
    }
    let order = triples.iter().enumerate().map(|(at, (_, answer))| (*answer, at)).collect();
    Related {
        loss: pieces.iter().map(|piece| piece.loss).sum(),
        to_heads,
        answers: Contributions::new(order, to_answers),
    }
}

fn piece(
    model: ModelKind,
    (entities, relations, dim): (&EntityTable, &[f32], usize),
    batch: &Batch<'_>,
    weight: f32,
    triples: &[(usize, u32)],
) -> Piece {
    let rows = relations.len() / dim;
    let (count, isa) = (triples.len(), Isa::detected());
    let zeros = || vec![0.0; count * dim];
    let (mut heads, mut answers, mut pairs, mut to_heads, mut to_answers) =
        (zeros(), zeros(), zeros(), zeros(), zeros());
    let of = |at: usize| at * dim..(at + 1) * dim;
    for (at, (question, answer)) in triples.iter().enumerate() {
        let question = &batch.questions[*question];
        entities.read(question.entity as usize, &mut heads[of(at)]);
        entities.read(*answer as usize, &mut answers[of(at)]);
        // The score is linear in the relation vector. So its gradient is the vector that it is multiplied
        // with.
        let inputs = (&heads[of(at)], &relations[of(question.relation as usize)]);
        let outs = (&mut to_heads[of(at)], &mut pairs[of(at)]);
        vectors::backward(model, question.inverse, inputs, &answers[of(at)], outs);
    }
    let (of_pairs, of_relations) = (View::packed(count, dim), View::packed(rows, dim));
    let mut to_scores = vec![0.0; count * rows];
    let of_scores = View::packed(count, rows);
    product((&mut to_scores, of_scores), (&pairs, of_pairs), (relations, of_relations.transposed()), false);
    let mut loss = 0.0;
    for (row, (question, _)) in to_scores.chunks_exact_mut(rows).zip(triples) {
        let relation = batch.questions[*question].relation as usize;
        let scale = weight * batch.scale(*question) / batch.answers[*question].len() as f32;
        let score = f64::from(row[relation]);
        loss += f64::from(scale) * (scaled_softmax(isa, row, scale) - score);
        row[relation] -= scale;
    }
    // A mixture of relations whose gradients are the sum of theirs.
    let mut mixed = zeros();
    product((&mut mixed, of_pairs), (&to_scores, of_scores), (relations, of_relations), false);
    let mut unused = vec![0.0; dim];
    for (at, (question, _)) in triples.iter().enumerate() {
        let inverse = batch.questions[*question].inverse;
        let (head, relation) = (&heads[of(at)], &mixed[of(at)]);
        vectors::forward(model, inverse, head, relation, &mut to_answers[of(at)]);
        let outs = (&mut to_heads[of(at)], &mut unused[..]);
        vectors::backward(model, inverse, (head, relation), &answers[of(at)], outs);
    }
    Piece { loss, pairs, to_scores, to_heads, to_answers }
}
