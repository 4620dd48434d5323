//! Training questions with their answers, in an order that a seed decides.

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_kilt::kb::{EntityId, Triple, TripleIndex};

use super::training_options::{Regime, TrainingOptions, Weight};

/// A question: its entity, its row of the relation table, and its direction if one row serves both
/// directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) entity: u32,
    pub(crate) relation: u32,
    pub(crate) inverse: bool,
    /// Whether the answers are subjects, independently of the row.
    pub(crate) subjects: bool,
}

/// The numbering of relation rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directions {
    pub(crate) relations: usize,
    pub(crate) reciprocal: bool,
}

impl Directions {
    pub(crate) fn question(self, entity: EntityId, relation: u32, subjects: bool) -> Question {
        let other_row = subjects && self.reciprocal;
        Question {
            entity: entity.0,
            relation: if other_row { relation + self.relations as u32 } else { relation },
            inverse: subjects && !self.reciprocal,
            subjects,
        }
    }

    /// The number of rows of the relation table.
    pub(crate) fn rows(self) -> usize {
        if self.reciprocal { 2 * self.relations } else { self.relations }
    }
}

/// All training questions.
pub(crate) enum Questions<'t> {
    /// Two questions a triple: question 2i for the object of triple i, 2i + 1 for its subject. The default
    /// weight is 1.
    Triples { triples: &'t [Triple], weights: Option<Vec<f32>>, directions: Directions },
    /// Each question with all its answers, or several times with a part of them.
    Grouped { questions: Vec<Question>, ends: Vec<usize>, answers: Vec<EntityId>, weight: Weight },
}

impl<'t> Questions<'t> {
    pub(crate) fn new(triples: &'t [Triple], training: &TrainingOptions, directions: Directions) -> Self {
        if training.regime == Regime::KvsAll {
            return Self::grouped(triples, training.max_answers, training.weight, directions);
        }
        let weights = (training.weight == Weight::Subsampled).then(|| subsampled(triples));
        Self::Triples { triples, weights, directions }
    }

    /// One question a pair of entity and relation. More than `max_answers` answers are split evenly.
    pub(crate) fn grouped(
        triples: &'t [Triple],
        max_answers: Option<usize>,
        weight: Weight,
        directions: Directions,
    ) -> Self {
        let index = TripleIndex::new(triples);
        let (mut questions, mut ends, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        let objects = index.by_subject().map(|row| (row, false));
        for (((entity, relation), found), subjects) in objects.chain(index.by_object().map(|row| (row, true)))
        {
            let times = max_answers.map_or(1, |max| found.len().div_ceil(max));
            let before = answers.len();
            answers.extend_from_slice(found);
            for time in 1..=times {
                questions.push(directions.question(entity, relation.0, subjects));
                ends.push(before + found.len() * time / times);
            }
        }
        Self::Grouped { questions, ends, answers, weight }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Triples { triples, .. } => 2 * triples.len(),
            Self::Grouped { questions, .. } => questions.len(),
        }
    }

    /// Question `at` with its answers and weight.
    pub(crate) fn at(&self, at: usize) -> (Question, &[EntityId], f32) {
        match self {
            Self::Triples { triples, weights, directions } => {
                let Triple { subject, relation, object } = &triples[at / 2];
                let weight = weights.as_ref().map_or(1.0, |weights| weights[at / 2]);
                let (entity, answer) = if at % 2 == 1 { (object, subject) } else { (subject, object) };
                let question = directions.question(*entity, relation.0, at % 2 == 1);
                (question, std::slice::from_ref(answer), weight)
            }
            Self::Grouped { questions, ends, answers, weight } => {
                let start = at.checked_sub(1).map_or(0, |before| ends[before]);
                let answers = &answers[start..ends[at]];
                let weight = if *weight == Weight::Question { 1.0 } else { answers.len() as f32 };
                (questions[at], answers, weight)
            }
        }
    }

    /// The order of the questions in an epoch.
    pub(crate) fn order(&self, seed: u64, epoch: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(epoch as u64);
        order.shuffle(&mut rng);
        order
    }
}

/// The weights of [`Weight::Subsampled`], so that frequent pairs do not dominate. A triple's weight is 1 /
/// sqrt(n). n counts the triples with its subject and relation and those with its relation and object, plus a
/// smoothing of 3 each (as in RotatE's published program).
fn subsampled(triples: &[Triple]) -> Vec<f32> {
    let index = TripleIndex::new(triples);
    let alike = |triple: &Triple| {
        let Triple { subject, relation, object } = *triple;
        index.objects(subject, relation).len() + index.subjects(relation, object).len() + 6
    };
    triples.iter().map(|triple| 1.0 / (alike(triple) as f32).sqrt()).collect()
}

/// A seed for one purpose in one batch (SplitMix64; Steele et al., 2014).
pub(crate) fn mixed(seed: u64, epoch: usize, batch: usize, purpose: u64) -> u64 {
    let mut state = seed;
    for part in [epoch as u64, batch as u64, purpose] {
        state = state.wrapping_add(part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grouped_questions_have_the_answers_of_single_ones() {
        let triples = [Triple::new(0, 0, 1), Triple::new(0, 0, 2), Triple::new(3, 1, 2)];
        for reciprocal in [false, true] {
            let directions = Directions { relations: 2, reciprocal };
            let [single, grouped] = [Regime::OneVsAll, Regime::KvsAll].map(|regime| {
                let training = TrainingOptions { regime, ..TrainingOptions::default() };
                Questions::new(&triples, &training, directions)
            });
            assert_eq!((single.len(), grouped.len()), (6, 5));
            let mut expected: Vec<_> = (0..6)
                .map(|at| single.at(at))
                .map(|(q, answers, _)| (q.entity, q.relation, q.inverse, answers[0]))
                .collect();
            let mut found: Vec<_> = (0..5)
                .map(|at| grouped.at(at))
                .flat_map(|(q, answers, _)| {
                    answers.iter().map(move |a| (q.entity, q.relation, q.inverse, *a))
                })
                .collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_question_with_many_answers_is_split() {
        let triples: Vec<Triple> = (1..=7).map(|object| Triple::new(0, 0, object)).collect();
        let directions = Directions { relations: 1, reciprocal: true };
        let sizes = |max_answers| {
            let questions = Questions::grouped(&triples, max_answers, Weight::Triple, directions);
            let of_objects = (0..questions.len()).map(|at| questions.at(at)).filter(|(q, ..)| !q.subjects);
            let parts: Vec<Vec<u32>> =
                of_objects.map(|(_, answers, _)| answers.iter().map(|answer| answer.0).collect()).collect();
            assert_eq!(parts.concat(), [1, 2, 3, 4, 5, 6, 7]);
            parts.iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(None), [7]);
        assert_eq!(sizes(Some(7)), [7]);
        assert_eq!(sizes(Some(6)), [3, 4]);
        assert_eq!(sizes(Some(3)), [2, 2, 3]);
        assert_eq!(sizes(Some(1)), [1; 7]);
    }

    #[test]
    fn questions_count_by_their_weight() {
        let triples = [Triple::new(0, 0, 1), Triple::new(0, 0, 2), Triple::new(3, 1, 2)];
        let weights = |regime, weight| -> Vec<f32> {
            let training = TrainingOptions { regime, weight, ..TrainingOptions::default() };
            let questions =
                Questions::new(&triples, &training, Directions { relations: 2, reciprocal: true });
            (0..questions.len()).map(|at| questions.at(at).2).collect()
        };
        // Who follows 0, who follows 3, whom 1 and 2 follow by the first relation, whom 2 by the second.
        assert_eq!(weights(Regime::KvsAll, Weight::Triple), [2.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(weights(Regime::KvsAll, Weight::Question), [1.0; 5]);
        assert_eq!(weights(Regime::NegativeSampling, Weight::Triple), [1.0; 6]);
        let (of_two, alone) = (1.0 / 3.0, 1.0 / 8f32.sqrt());
        let subsampled = [of_two, of_two, of_two, of_two, alone, alone];
        assert_eq!(weights(Regime::NegativeSampling, Weight::Subsampled), subsampled);
    }

    #[test]
    fn every_pass_has_an_order_of_its_own() {
        let triples: Vec<Triple> = (0..50).map(|at| Triple::new(at, 0, at + 1)).collect();
        let training = TrainingOptions { regime: Regime::OneVsAll, ..TrainingOptions::default() };
        let questions = Questions::new(&triples, &training, Directions { relations: 1, reciprocal: true });
        let (first, second) = (questions.order(7, 0), questions.order(7, 1));
        assert_ne!(first, second);
        assert_eq!(first, questions.order(7, 0));
        let mut sorted = second.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
        assert_ne!(mixed(1, 2, 3, 4), mixed(1, 3, 2, 4));
    }
}
