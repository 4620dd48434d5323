//! The gradients of a batch among sampled negatives.

use std::cell::RefCell;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran_kernels::{Comparison, Dropout, Isa, add_columns};

use super::{
    batch::{Batch, EntityPenalty, Shares},
    loss::Loss,
    table::EntityTable,
    training_options::TrainingOptions,
};

/// Questions scored against their answers and sampled negatives.
pub(super) struct Sampled {
    pub(super) loss: f64,
    pub(super) to_queries: Vec<f32>,
    /// Groups of neighbouring questions that share negatives.
    groups: Vec<Group>,
    /// The number of questions in each group except the last.
    size: usize,
    dropout: CandidateDropout,
}

struct Group {
    loss: f64,
    /// The answer of each question, then the negatives.
    candidates: Vec<u32>,
    questions: Vec<Scored>,
}

/// The scores of a question and their gradients: first its answer, then the group's negatives for its
/// direction.
struct Scored {
    scores: Vec<f32>,
    to_scores: Vec<f32>,
}

/// Dropout of the candidates: each sampled entity has a separate mask.
#[derive(Clone, Copy)]
struct CandidateDropout {
    mask: Option<Dropout>,
    /// The largest number of values of a group's candidates.
    stride: usize,
}

impl CandidateDropout {
    /// Applies dropout to `rows`, the candidates of group `at` from index `slot` on, or to their gradients.
    fn apply(self, isa: Isa, at: usize, slot: usize, width: usize, rows: &mut [f32]) {
        if let Some(mask) = self.mask {
            mask.apply(isa, at * self.stride + slot * width, rows);
        }
    }
}

/// A row that gets a gradient, and its source: the index of a question that starts from it, or of a group
/// with the candidate's position.
type Contribution = (u32, u32, u32);
/// Marks a contribution from the entity that a question starts from.
const HEAD: u32 = u32::MAX;

thread_local! {
    /// An entity's row, the row after dropout, and the gradient of that.
    static ROWS: RefCell<[Vec<f32>; 3]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Samples negatives for every group of questions, and scores each question against them and its answer.
pub(super) fn among_negatives(
    comparison: Comparison,
    (loss, options): (&Loss, &TrainingOptions),
    batch: &Batch<'_>,
    queries: &[f32],
    table: &EntityTable,
    (seed, dropout): (u64, Option<Dropout>),
) -> Sampled {
    let isa = Isa::detected();
    let width = table.width();
    let size = options.share_negatives;
    let most = size + options.subject_negatives.max(options.object_negatives);
    let dropout = CandidateDropout { mask: dropout, stride: most * width };
    let entities = table.count() as u32;
    let mut to_queries = vec![0.0; queries.len()];
    let groups: Vec<Group> = batch
        .questions
        .par_chunks(size)
        .zip(batch.answers.par_chunks(size))
        .zip(queries.par_chunks(size * width).zip(to_queries.par_chunks_mut(size * width)))
        .enumerate()
        .map(|(group, ((questions, answers), (queries, to_queries)))| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(group as u64);
            let counts = questions.iter().map(|question| {
                if question.subjects { options.subject_negatives } else { options.object_negatives }
            });
            let drawn = counts.clone().max().unwrap_or(0);
            let mut candidates: Vec<u32> = answers.iter().map(|answers| answers[0].0).collect();
            candidates.extend((0..drawn).map(|_| rng.random_range(0..entities)));
            let mut rows = vec![0.0; candidates.len() * width];
            for (row, entity) in rows.chunks_exact_mut(width).zip(&candidates) {
                table.read(*entity as usize, row);
            }
            dropout.apply(isa, group, 0, width, &mut rows);
            let (answers, negatives) = rows.split_at(questions.len() * width);
            let mut lost = 0.0;
            let of_questions = queries.chunks_exact(width).zip(to_queries.chunks_exact_mut(width));
            let questions = counts
                .zip(answers.chunks_exact(width))
                .zip(of_questions)
                .enumerate()
                .map(|(at, ((count, answer), (query, to)))| {
                    let negatives = &negatives[..count * width];
                    let mut scores = vec![0.0; 1 + count];
                    comparison.scores(isa, query, answer, &mut scores[..1]);
                    comparison.scores(isa, query, negatives, &mut scores[1..]);
                    let mut to_scores = scores.clone();
                    // A question without negatives has no loss.
                    if count == 0 {
                        to_scores.fill(0.0);
                    } else {
                        let scale = batch.scale(group * size + at);
                        lost += f64::from(scale) * loss.sampled(&mut to_scores, scale);
                    }
                    let rows = std::iter::once(answer).chain(negatives.chunks_exact(width));
                    for ((row, by), score) in rows.zip(&to_scores).zip(&scores) {
                        comparison.add_gradient(isa, *by, *score, query, row, to);
                    }
                    Scored { scores, to_scores }
                })
                .collect();
            Group { loss: lost, candidates, questions }
        })
        .collect();
    let loss = groups.iter().map(|group| group.loss).sum();
    Sampled { loss, to_queries, groups, size, dropout }
}

impl Sampled {
    /// Returns the entities that get a gradient, ascending, and those gradients, row by row.
    pub(super) fn to_entities(
        &self,
        comparison: Comparison,
        batch: &Batch<'_>,
        (queries, to_heads): (&[f32], &[f32]),
        table: &EntityTable,
        (shares, penalty): (&Shares, EntityPenalty),
    ) -> (Vec<u32>, Vec<f32>) {
        let isa = Isa::detected();
        let (width, dim) = (table.width(), to_heads.len() / batch.questions.len());
        let heads = batch.questions.iter().enumerate();
        let mut from: Vec<Contribution> =
            heads.map(|(at, question)| (question.entity, at as u32, HEAD)).collect();
        for (at, group) in self.groups.iter().enumerate() {
            let slots = group.candidates.iter().enumerate();
            from.extend(slots.map(|(slot, entity)| (*entity, at as u32, slot as u32)));
        }
        from.par_sort_unstable();
        let contributions: Vec<&[Contribution]> = from.chunk_by(|a, b| a.0 == b.0).collect();
        let entities: Vec<u32> = contributions.iter().map(|of_entity| of_entity[0].0).collect();
        let mut out = vec![0.0; entities.len() * width];
        out.par_chunks_exact_mut(width).zip(&contributions).for_each(|(out, of_entity)| {
            ROWS.with_borrow_mut(|[row, seen, gradient]| {
                [&mut *row, seen, gradient].into_iter().for_each(|row| row.resize(width, 0.0));
                table.read(of_entity[0].0 as usize, row);
                for (_, at, slot) in *of_entity {
                    let (at, slot) = (*at as usize, *slot);
                    if slot == HEAD {
                        add_columns(isa, &to_heads[at * dim..][..dim], &mut out[..dim]);
                        continue;
                    }
                    let (first, slot) = (at * self.size, slot as usize);
                    let queries = &queries[first * width..];
                    let group = &self.groups[at];
                    if self.dropout.mask.is_none() {
                        group.add_gradient(comparison, slot, row, queries, out);
                        continue;
                    }
                    seen.copy_from_slice(row);
                    self.dropout.apply(isa, at, slot, width, seen);
                    gradient.fill(0.0);
                    group.add_gradient(comparison, slot, seen, queries, gradient);
                    self.dropout.apply(isa, at, slot, width, gradient);
                    add_columns(isa, gradient, out);
                }
                let found = shares.entities.binary_search_by_key(&of_entity[0].0, |(entity, _)| *entity);
                let share = found.map_or(0.0, |at| shares.entities[at].1);
                penalty.add(share, &row[..dim], &mut out[..dim]);
            });
        });
        (entities, out)
    }
}

impl Group {
    /// Adds the gradient of candidate `slot`. The questions were scored against `row`. The first vectors of
    /// `queries` are those of the group's questions.
    fn add_gradient(
        &self,
        comparison: Comparison,
        slot: usize,
        row: &[f32],
        queries: &[f32],
        out: &mut [f32],
    ) {
        let count = self.questions.len();
        // An answer belongs to one question, a negative to every question of the group with enough negatives.
        let (asked, place) = if slot < count { (slot..slot + 1, 0) } else { (0..count, 1 + slot - count) };
        let queries = queries.chunks_exact(row.len()).zip(&self.questions);
        for (query, question) in queries.take(asked.end).skip(asked.start) {
            if let (Some(by), Some(score)) = (question.to_scores.get(place), question.scores.get(place)) {
                comparison.add_gradient(Isa::detected(), *by, *score, row, query, out);
            }
        }
    }
}
