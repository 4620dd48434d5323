//! One batch: its questions, their weights, and the entities that are regularised.

use std::borrow::Cow;

use rustc_hash::FxHashMap;
use sporran_kilt::kb::EntityId;

use super::{
    options::ModelKind,
    parameters::Shape,
    questions::Question,
    training_options::{LossKind, Regime, Regularizer, TrainingOptions},
};

/// The number of entities whose gradients are computed in one block.
pub(super) const ENTITIES: usize = 512;

/// Questions with their answers and weights.
pub(super) struct Batch<'q> {
    pub(super) questions: Vec<Question>,
    pub(super) answers: Vec<Cow<'q, [EntityId]>>,
    weights: Vec<f32>,
    /// The sum of the weights.
    total: f32,
}

impl<'q> Batch<'q> {
    pub(super) fn new(
        rows: impl Iterator<Item = (Question, &'q [EntityId], f32)>,
        training: &TrainingOptions,
    ) -> Self {
        let (mut questions, mut weights) = (Vec::new(), Vec::new());
        let mut answers = Vec::<Cow<'q, [EntityId]>>::new();
        // If the loss of a question is a softmax with one answer, equal questions are merged. Merged
        // questions hold all answers and have the same summed loss.
        let merges = training.regime == Regime::OneVsAll && training.loss == LossKind::CrossEntropy;
        let mut places: FxHashMap<Question, usize> = FxHashMap::default();
        for (question, found, weight) in rows {
            if merges {
                let place = *places.entry(question).or_insert(questions.len());
                if place < questions.len() {
                    answers[place].to_mut().extend_from_slice(found);
                    weights[place] += weight;
                    continue;
                }
            }
            questions.push(question);
            answers.push(Cow::Borrowed(found));
            weights.push(weight);
        }
        let total = weights.iter().sum();
        Self { questions, answers, weights, total }
    }

    /// The same batch with renumbered entities.
    pub(super) fn renamed<'a>(
        &self,
        questions: Vec<Question>,
        answers: Vec<Cow<'a, [EntityId]>>,
    ) -> Batch<'a> {
        Batch { questions, answers, weights: self.weights.clone(), total: self.total }
    }

    /// A question's share of the batch's loss.
    pub(super) fn scale(&self, at: usize) -> f32 {
        self.weights[at] / self.total
    }

    /// The entities that questions start from, with the indices of the questions.
    pub(super) fn heads(&self) -> Vec<(u32, usize)> {
        self.questions.iter().enumerate().map(|(at, question)| (question.entity, at)).collect()
    }
}

/// The share of each entity and relation in a batch's triples. Regularisation uses these as weights. Empty if
/// every row has the same weight.
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

/// Adds the gradient of `weight * sum |x|^power` to a row's gradient.
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

/// The entities to regularise, and the penalty.
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
