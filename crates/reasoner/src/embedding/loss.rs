//! Losses of a row of scores, and their gradients.

use sporran_kernels::{Isa, add_columns, scaled_sigmoid, scaled_softmax, total};
use sporran_kilt::kb::EntityId;

use super::{
    sample::Sample,
    training_options::{LossKind, TrainingOptions},
};

/// The settings of a loss.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) kind: LossKind,
    pub(super) smoothing: f32,
    pub(super) margin: f32,
    pub(super) temperature: f32,
}

impl Loss {
    pub(super) fn new(options: &TrainingOptions) -> Self {
        Self {
            kind: options.loss,
            smoothing: options.label_smoothing as f32,
            margin: options.margin as f32,
            temperature: options.temperature as f32,
        }
    }

    /// Replaces the scores of all entities, or of a sample, by the gradient of `scale` times the question's
    /// loss. Returns the loss without `scale`.
    pub(super) fn all(
        &self,
        isa: Isa,
        row: &mut [f32],
        answers: &[EntityId],
        scale: f32,
        sample: Option<&Sample>,
    ) -> f64 {
        let (count, many) = (answers.len() as f32, sample.map_or(row.len(), |sample| sample.all) as f32);
        let share = (1.0 - self.smoothing) / count;
        let base = self.smoothing / many;
        let of_answers: f64 = answers.iter().map(|answer| f64::from(row[answer.index()])).sum();
        if self.kind == LossKind::CrossEntropy {
            let mut loss = -f64::from(share) * of_answers;
            if base > 0.0 {
                loss -= f64::from(base) * sample.map_or_else(|| total(isa, row), |sample| sample.total(row));
            }
            if let Some(sample) = sample {
                add_columns(isa, &sample.logs, row);
            }
            loss += scaled_softmax(isa, row, scale);
            if base > 0.0 {
                match sample {
                    None => row.iter_mut().for_each(|value| *value -= scale * base),
                    Some(Sample { counts, .. }) => {
                        row.iter_mut().zip(counts).for_each(|(value, count)| *value -= scale * base * count);
                    }
                }
            }
            answers.iter().for_each(|answer| row[answer.index()] -= scale * share);
            return loss;
        }
        // Binary: the mean over all entities. Label smoothing moves the targets towards 1 / entities.
        let loss = scaled_sigmoid(isa, row, base, scale / many);
        let more = 1.0 - self.smoothing;
        answers.iter().for_each(|answer| row[answer.index()] -= scale / many * more);
        (loss - f64::from(more) * of_answers) / f64::from(many)
    }

    /// The same for one answer, the first score of the row, and the scores of its negatives.
    pub(super) fn sampled(&self, row: &mut [f32], scale: f32) -> f64 {
        let isa = Isa::detected();
        let count = (row.len() - 1) as f32;
        match self.kind {
            LossKind::CrossEntropy => {
                let first = f64::from(row[0]);
                let loss = scaled_softmax(isa, row, scale) - first;
                row[0] -= scale;
                loss
            }
            LossKind::Margin => {
                let bound = self.margin - row[0];
                let mut loss = 0f64;
                let mut pulled = 0.0;
                for score in &mut row[1..] {
                    let excess = bound + *score;
                    *score = if excess > 0.0 { scale / count } else { 0.0 };
                    pulled += *score;
                    loss += f64::from(excess.max(0.0));
                }
                row[0] = -pulled;
                loss / f64::from(count)
            }
            LossKind::Binary | LossKind::SelfAdversarial => {
                row.iter_mut().for_each(|score| *score += self.margin);
                let (first, negatives) = row.split_at_mut(1);
                let mut weights: Vec<f32> = match self.kind {
                    LossKind::SelfAdversarial => negatives.iter().map(|s| s * self.temperature).collect(),
                    _ => vec![0.0; negatives.len()],
                };
                // The weights are constants: they get no gradient (Sun et al., 2019).
                scaled_softmax(isa, &mut weights, 1.0);
                let mut loss = scaled_sigmoid(isa, first, 1.0, scale);
                for (score, weight) in negatives.iter_mut().zip(weights) {
                    let own = std::slice::from_mut(score);
                    loss += f64::from(weight) * scaled_sigmoid(isa, own, 0.0, scale * weight);
                }
                loss
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(kind: LossKind, smoothing: f32) -> Loss {
        Loss { kind, smoothing, margin: 1.5, temperature: 0.0 }
    }

    fn scores() -> Vec<f32> {
        (0..37).map(|i| ((i * 11) % 17) as f32 * 0.2 - 1.5).collect()
    }

    /// Compares the gradient that `of` writes to the row with finite differences of the loss.
    fn check(scale: f32, of: impl Fn(&mut [f32]) -> f64) {
        let mut row = scores();
        of(&mut row);
        for i in 0..row.len() {
            let moved = |by: f32| {
                let mut row = scores();
                row[i] += by;
                of(&mut row)
            };
            let numeric = f64::from(scale) * (moved(0.02) - moved(-0.02)) / 0.04;
            assert!((f64::from(row[i]) - numeric).abs() < 2e-4, "{i}: {} {numeric}", row[i]);
        }
    }

    #[test]
    fn gradients_are_those_of_the_losses() {
        let answers = [EntityId(3), EntityId(20), EntityId(36)];
        for kind in [LossKind::CrossEntropy, LossKind::Binary] {
            for smoothing in [0.0, 0.2] {
                check(2.0, |row| loss(kind, smoothing).all(Isa::detected(), row, &answers, 2.0, None));
            }
        }
        for kind in [LossKind::CrossEntropy, LossKind::Binary, LossKind::Margin, LossKind::SelfAdversarial] {
            // With temperature 0, the weights of self-adversarial negatives are constants.
            check(0.5, |row| loss(kind, 0.0).sampled(row, 0.5));
        }
    }

    #[test]
    fn an_entity_with_a_count_equals_that_many_copies() {
        let answers = [EntityId(2)];
        let sample = Sample {
            entities: Vec::new(),
            counts: vec![2.0, 3.0, 1.0],
            logs: vec![2f32.ln(), 3f32.ln(), 0.0],
            all: 6,
        };
        for smoothing in [0.0, 0.3] {
            let loss = loss(LossKind::CrossEntropy, smoothing);
            let of_sample = |row: &mut [f32]| loss.all(Isa::detected(), row, &answers, 2.0, Some(&sample));
            let (mut row, mut all) = ([0.5, -0.25, 1.0], [0.5, 0.5, -0.25, -0.25, -0.25, 1.0]);
            let found = of_sample(&mut row);
            let expected = loss.all(Isa::detected(), &mut all, &[EntityId(5)], 2.0, None);
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            for (found, expected) in row.iter().zip([2.0 * all[0], 3.0 * all[2], all[5]]) {
                assert!((found - expected).abs() < 1e-5, "{row:?} {all:?}");
            }
        }
    }

    #[test]
    fn one_answer_among_all_costs_its_negative_log_probability() {
        let row = [1.0f32, 2.0, 0.5];
        let total: f64 = row.iter().map(|s| f64::from(*s).exp()).sum();
        let expected = total.ln() - 2.0;
        let found = loss(LossKind::CrossEntropy, 0.0).all(
            Isa::detected(),
            &mut row.clone(),
            &[EntityId(1)],
            1.0,
            None,
        );
        assert!((found - expected).abs() < 1e-6);
        let found = loss(LossKind::CrossEntropy, 0.0).sampled(&mut [2.0, 1.0, 0.5], 1.0);
        assert!((found - expected).abs() < 1e-6);
    }

    #[test]
    fn hard_negatives_weigh_more_the_higher_the_temperature() {
        let of = |temperature| {
            let mut row = [1.0, 2.0, -2.0];
            Loss { temperature, ..loss(LossKind::SelfAdversarial, 0.0) }.sampled(&mut row, 1.0);
            row[1] / row[2]
        };
        assert!(of(2.0) > of(1.0) && of(1.0) > of(0.0));
    }
}
