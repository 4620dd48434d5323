//! One batch: its questions, what they count, and their gradients among sampled entities.

use std::{borrow::Cow, cell::RefCell};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use sporran_kernels::{Comparison, Dropout, Isa, add_columns};
use sporran_kilt::kb::EntityId;

use super::{
    loss::Loss,
    options::{LossKind, ModelKind, Regime, Regularizer, TrainingOptions, Weight},
    parameters::Shape,
    questions::Question,
    table::EntityTable,
};

/// Entities whose gradients are made in one piece.
pub(super) const ENTITIES: usize = 512;

/// Questions with their answers and weights.
pub(super) struct Batch<'q> {
    pub(super) questions: Vec<Question>,
    pub(super) answers: Vec<Cow<'q, [EntityId]>>,
    weight: Weight,
    /// The sum of all weights.
    total: f32,
}

impl<'q> Batch<'q> {
    pub(super) fn new(
        rows: impl Iterator<Item = (Question, &'q [EntityId])>,
        training: &TrainingOptions,
    ) -> Self {
        let (mut questions, mut answers) = (Vec::new(), Vec::<Cow<'q, [EntityId]>>::new());
        // Questions with one answer each whose losses are softmaxes of the same scores: equal ones are asked once, with
        // all their answers, which is the same sum.
        let merges = training.regime == Regime::OneVsAll && training.loss == LossKind::CrossEntropy;
        let mut places: FxHashMap<Question, usize> = FxHashMap::default();
        for (question, found) in rows {
            if merges {
                let place = *places.entry(question).or_insert(questions.len());
                if place < questions.len() {
                    answers[place].to_mut().extend_from_slice(found);
                    continue;
                }
            }
            questions.push(question);
            answers.push(Cow::Borrowed(found));
        }
        let weight = if training.regime == Regime::KvsAll { training.weight } else { Weight::Triple };
        let total = match weight {
            Weight::Question => questions.len() as f32,
            Weight::Triple => answers.iter().map(|answers| answers.len() as f32).sum(),
        };
        Self { questions, answers, weight, total }
    }

    /// A question's share of the batch's loss.
    pub(super) fn scale(&self, at: usize) -> f32 {
        let weight = match self.weight {
            Weight::Question => 1.0,
            Weight::Triple => self.answers[at].len() as f32,
        };
        weight / self.total
    }

    /// The entities that questions start from, with the questions' numbers.
    pub(super) fn heads(&self) -> Vec<(u32, usize)> {
        self.questions.iter().enumerate().map(|(at, question)| (question.entity, at)).collect()
    }
}

/// How often entities and relations stand in a batch's triples, as shares of them: what they are regularised by. Empty
/// where every row counts alike.
pub(super) struct Shares {
    pub(super) relations: Vec<f32>,
    /// Entities with their shares, ascending.
    pub(super) entities: Vec<(u32, f32)>,
}

impl Shares {
    pub(super) fn new(batch: &Batch<'_>, relations: usize) -> Self {
        let mut of_relations = vec![0.0; relations];
        let mut found: Vec<(u32, f32)> = Vec::new();
        for (at, (question, answers)) in batch.questions.iter().zip(&batch.answers).enumerate() {
            let scale = batch.scale(at);
            of_relations[question.relation as usize] += scale;
            found.push((question.entity, scale));
            let each = scale / answers.len() as f32;
            found.extend(answers.iter().map(|answer| (answer.0, each)));
        }
        found.sort_by_key(|(entity, _)| *entity);
        let mut entities: Vec<(u32, f32)> = Vec::new();
        for (entity, share) in found {
            match entities.last_mut() {
                Some((last, sum)) if *last == entity => *sum += share,
                _ => entities.push((entity, share)),
            }
        }
        Self { relations: of_relations, entities }
    }
}

/// Adds the gradient of `weight * sum |x|^power` to a row's.
pub(super) fn regularise(power: u8, weight: f32, complex: bool, row: &[f32], gradient: &mut [f32]) {
    match power {
        2 => gradient.iter_mut().zip(row).for_each(|(g, x)| *g += 2.0 * weight * x),
        _ if complex => {
            let half = row.len() / 2;
            let ((re, im), (to_re, to_im)) = (row.split_at(half), gradient.split_at_mut(half));
            for k in 0..half {
                let factor = 3.0 * weight * (re[k] * re[k] + im[k] * im[k]).sqrt();
                to_re[k] += factor * re[k];
                to_im[k] += factor * im[k];
            }
        }
        _ => gradient.iter_mut().zip(row).for_each(|(g, x)| *g += 3.0 * weight * x * x.abs()),
    }
}

/// What is regularised of entities, and how.
#[derive(Clone, Copy)]
pub(super) struct EntityPenalty {
    pub(super) options: Regularizer,
    pub(super) complex: bool,
}

impl EntityPenalty {
    pub(super) fn new(shape: &Shape, options: &TrainingOptions) -> Self {
        Self { options: options.regularizer, complex: shape.model == ModelKind::ComplEx }
    }

    pub(super) fn add(&self, share: f32, row: &[f32], gradient: &mut [f32]) {
        let weight = self.options.entity as f32 * if self.options.weighted { share } else { 1.0 };
        if weight > 0.0 {
            regularise(self.options.power, weight, self.complex, row, gradient);
        }
    }
}

/// Questions compared with their answers and with sampled negatives.
pub(super) struct Sampled {
    pub(super) loss: f64,
    pub(super) to_queries: Vec<f32>,
    /// The entities that each question was compared with: its answer, then negatives.
    candidates: Vec<Vec<u32>>,
    scores: Vec<Vec<f32>>,
    to_scores: Vec<Vec<f32>>,
    dropout: CandidateDropout,
}

/// Dropout of what questions are compared with: each time that an entity is drawn it has a mask of its own.
#[derive(Clone, Copy)]
struct CandidateDropout {
    mask: Option<Dropout>,
    /// Values of all candidates of a question, at most.
    stride: usize,
}

impl CandidateDropout {
    /// Drops values of `rows`, candidates of question `at` from number `slot` on, or of their gradients.
    fn apply(self, isa: Isa, at: usize, slot: usize, width: usize, rows: &mut [f32]) {
        if let Some(mask) = self.mask {
            mask.apply(isa, at * self.stride + slot * width, rows);
        }
    }
}

/// A row that gets a gradient, and where it comes from: of a question as the entity that it starts from, or as one of
/// those that it was compared with.
type Contribution = (u32, u32, u32);
/// The place of a question's own entity among its contributions.
const HEAD: u32 = u32::MAX;

thread_local! {
    /// An entity's row, what a question saw of it, and the gradient of that.
    static ROWS: RefCell<[Vec<f32>; 3]> = const { RefCell::new([Vec::new(), Vec::new(), Vec::new()]) };
}

/// Draws negatives for every question and scores it against them and its answer.
pub(super) fn among_sampled(
    comparison: Comparison,
    (loss, options): (&Loss, &TrainingOptions),
    batch: &Batch<'_>,
    queries: &[f32],
    table: &EntityTable,
    (seed, dropout): (u64, Option<Dropout>),
) -> Sampled {
    let isa = Isa::detected();
    let width = table.width();
    let most = 1 + options.subject_negatives.max(options.object_negatives);
    let dropout = CandidateDropout { mask: dropout, stride: most * width };
    let entities = table.count() as u32;
    let mut to_queries = vec![0.0; queries.len()];
    let rows: Vec<_> = batch
        .questions
        .par_iter()
        .zip(&batch.answers)
        .zip(queries.par_chunks_exact(width).zip(to_queries.par_chunks_exact_mut(width)))
        .enumerate()
        .map(|(at, ((question, answers), (query, to)))| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            rng.set_stream(at as u64);
            let count = if question.subjects { options.subject_negatives } else { options.object_negatives };
            let mut candidates = Vec::with_capacity(count + 1);
            candidates.push(answers[0].0);
            candidates.extend((0..count).map(|_| rng.random_range(0..entities)));
            let mut rows = vec![0.0; candidates.len() * width];
            for (row, entity) in rows.chunks_exact_mut(width).zip(&candidates) {
                table.read(*entity as usize, row);
            }
            dropout.apply(isa, at, 0, width, &mut rows);
            let mut scores = vec![0.0; candidates.len()];
            comparison.scores(isa, query, &rows, &mut scores);
            let mut to_scores = scores.clone();
            // A question without negatives teaches nothing.
            let lost = if count == 0 {
                to_scores.fill(0.0);
                0.0
            } else {
                loss.sampled(&mut to_scores, batch.scale(at))
            };
            for ((row, by), score) in rows.chunks_exact(width).zip(&to_scores).zip(&scores) {
                comparison.add_gradient(isa, *by, *score, query, row, to);
            }
            (f64::from(batch.scale(at)) * lost, candidates, scores, to_scores)
        })
        .collect();
    let (candidates, scores, to_scores) = (Vec::new(), Vec::new(), Vec::new());
    let mut sampled = Sampled { loss: 0.0, to_queries, candidates, scores, to_scores, dropout };
    for (loss, candidates, scores, to_scores) in rows {
        sampled.loss += loss;
        sampled.candidates.push(candidates);
        sampled.scores.push(scores);
        sampled.to_scores.push(to_scores);
    }
    sampled
}

impl Sampled {
    /// The entities that get a gradient, ascending, and those gradients, row after row.
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
        let mut from: Vec<Contribution> = Vec::new();
        for (at, (question, candidates)) in batch.questions.iter().zip(&self.candidates).enumerate() {
            from.push((question.entity, at as u32, HEAD));
            from.extend(
                candidates.iter().enumerate().map(|(slot, entity)| (*entity, at as u32, slot as u32)),
            );
        }
        from.par_sort_unstable();
        let groups: Vec<&[Contribution]> = from.chunk_by(|a, b| a.0 == b.0).collect();
        let entities: Vec<u32> = groups.iter().map(|group| group[0].0).collect();
        let mut out = vec![0.0; groups.len() * width];
        out.par_chunks_exact_mut(width).zip(&groups).for_each(|(out, group)| {
            ROWS.with_borrow_mut(|[row, seen, gradient]| {
                [&mut *row, seen, gradient].into_iter().for_each(|row| row.resize(width, 0.0));
                table.read(group[0].0 as usize, row);
                for (_, at, slot) in *group {
                    let (at, slot) = (*at as usize, *slot);
                    if slot == HEAD {
                        add_columns(isa, &to_heads[at * dim..][..dim], &mut out[..dim]);
                        continue;
                    }
                    let slot = slot as usize;
                    let (by, score) = (self.to_scores[at][slot], self.scores[at][slot]);
                    let query = &queries[at * width..][..width];
                    if self.dropout.mask.is_none() {
                        comparison.add_gradient(isa, by, score, row, query, out);
                        continue;
                    }
                    seen.copy_from_slice(row);
                    self.dropout.apply(isa, at, slot, width, seen);
                    gradient.fill(0.0);
                    comparison.add_gradient(isa, by, score, seen, query, gradient);
                    self.dropout.apply(isa, at, slot, width, gradient);
                    add_columns(isa, gradient, out);
                }
                let found = shares.entities.binary_search_by_key(&group[0].0, |(entity, _)| *entity);
                let share = found.map_or(0.0, |at| shares.entities[at].1);
                penalty.add(share, &row[..dim], &mut out[..dim]);
            });
        });
        (entities, out)
    }
}
