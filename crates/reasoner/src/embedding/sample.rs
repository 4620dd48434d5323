//! The entities that a batch is scored against instead of all: its own entities and a sample of the others.
//! The sample represents the others, so the sum over all entities in a softmax is estimated without bias
//! (complementary sum sampling; Botev et al., 2017).

use std::borrow::Cow;

use rand::{SeedableRng, seq::index};
use rand_chacha::ChaCha8Rng;
use sporran_kilt::kb::EntityId;

use super::{batch::Batch, questions::Question};

/// A subset of the entities.
pub(super) struct Sample {
    /// The entities, ascending.
    pub(super) entities: Vec<u32>,
    /// How many entities each represents, and the logarithm of that.
    pub(super) counts: Vec<f32>,
    pub(super) logs: Vec<f32>,
    /// The number of all entities.
    pub(super) all: usize,
}

impl Sample {
    /// All entities in the batch's questions and answers with count 1, and `drawn` of the others, sampled
    /// uniformly.
    pub(super) fn new(batch: &Batch<'_>, all: usize, drawn: usize, seed: u64) -> Self {
        let mut own: Vec<u32> = batch.questions.iter().map(|question| question.entity).collect();
        own.extend(batch.answers.iter().flat_map(|answers| answers.iter().map(|answer| answer.0)));
        own.sort_unstable();
        own.dedup();
        let others = all - own.len();
        let drawn = drawn.min(others);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut places = index::sample(&mut rng, others, drawn).into_vec();
        places.sort_unstable();
        let count = others as f32 / drawn as f32;
        let (mut entities, mut counts) = (Vec::new(), Vec::new());
        let mut own = own.into_iter().peekable();
        for (before, place) in places.into_iter().enumerate() {
            // The other entity with index `place` comes after that many others and after the batch's smaller
            // entities.
            let passed = entities.len() - before;
            let mut entity = (place + passed) as u32;
            while let Some(next) = own.next_if(|next| *next <= entity) {
                entities.push(next);
                counts.push(1.0);
                entity += 1;
            }
            entities.push(entity);
            counts.push(count);
        }
        counts.resize(counts.len() + own.len(), 1.0);
        entities.extend(own);
        let logs = counts.iter().map(|count: &f32| count.ln()).collect();
        Self { entities, counts, logs, all }
    }

    /// Estimates the sum of all entities' scores from those of the subset.
    pub(super) fn total(&self, scores: &[f32]) -> f64 {
        scores.iter().zip(&self.counts).map(|(score, count)| f64::from(score * count)).sum()
    }

    /// The batch with entities renumbered to positions in this subset.
    pub(super) fn placed(&self, batch: &Batch<'_>) -> Batch<'static> {
        let place = |entity: u32| {
            let found = self.entities.binary_search(&entity);
            found.expect("a sample has all of its batch") as u32
        };
        let questions =
            batch.questions.iter().map(|question| Question { entity: place(question.entity), ..*question });
        let answers = batch.answers.iter();
        let answers = answers
            .map(|answers| Cow::Owned(answers.iter().map(|answer| EntityId(place(answer.0))).collect()));
        batch.renamed(questions.collect(), answers.collect())
    }
}

#[cfg(test)]
mod tests {
    use sporran_kilt::kb::Triple;

    use super::*;
    use crate::embedding::{
        questions::{Directions, Questions},
        training_options::TrainingOptions,
    };

    const ALL: usize = 12;

    /// A sample for a batch of two triples with the entities 3, 7 and 8.
    fn sample(drawn: usize, seed: u64) -> (Sample, Vec<Vec<u32>>) {
        let triples = [Triple::new(3, 0, 7), Triple::new(7, 0, 8)];
        let training = TrainingOptions::default();
        let questions = Questions::new(&triples, &training, Directions { relations: 1, reciprocal: true });
        let batch = Batch::new((0..questions.len()).map(|at| questions.at(at)), &training);
        let sample = Sample::new(&batch, ALL, drawn, seed);
        let placed = sample.placed(&batch);
        let named = |place: u32| sample.entities[place as usize];
        for (at, question) in placed.questions.iter().enumerate() {
            let before = batch.questions[at];
            assert_eq!(Question { entity: named(question.entity), ..*question }, before);
            assert_eq!(placed.scale(at), batch.scale(at));
        }
        let answers = placed.answers.iter().map(|answers| answers.iter().map(|a| named(a.0)).collect());
        let answers: Vec<Vec<u32>> = answers.collect();
        assert!(answers.iter().zip(&batch.answers).all(|(a, b)| a.iter().zip(&**b).all(|(a, b)| *a == b.0)));
        (sample, answers)
    }

    #[test]
    fn a_batch_keeps_its_entities_and_samples_the_others() {
        let mut drawn = [0; ALL];
        for seed in 0..900 {
            let (sample, answers) = sample(3, seed);
            assert_eq!(answers.len(), 4);
            assert!(sample.entities.is_sorted_by(|a, b| a < b));
            assert_eq!((sample.entities.len(), sample.all), (6, ALL));
            for ((entity, count), log) in sample.entities.iter().zip(&sample.counts).zip(&sample.logs) {
                let own = [3, 7, 8].contains(entity);
                assert_eq!(*count, if own { 1.0 } else { 3.0 });
                assert!((log.exp() - count).abs() < 1e-5);
                drawn[*entity as usize] += 1;
            }
        }
        // A third of 900, within about four standard deviations.
        for (entity, times) in drawn.into_iter().enumerate() {
            let own = [3, 7, 8].contains(&entity);
            assert!(if own { times == 900 } else { (240..360).contains(&times) }, "{entity}: {times}");
        }
    }

    #[test]
    fn more_than_there_are_is_all() {
        for drawn in [9, 100] {
            let (sample, _) = sample(drawn, 5);
            assert_eq!(sample.entities, (0..ALL as u32).collect::<Vec<_>>());
            assert_eq!((sample.counts, sample.logs), (vec![1.0; ALL], vec![0.0; ALL]));
        }
    }
}
