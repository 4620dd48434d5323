//! The splits of questions.

use rand::{Rng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rustc_hash::{FxHashMap, FxHashSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::kb::EntityId;

use super::build::{BuildOptions, Origin};
use crate::rules::Step;

/// What the splits divide.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Questions (section 4.2 of the paper). Training and validation share documents. Test documents are in neither,
    /// and keep one random question entity.
    #[default]
    Questions,
    /// Documents, so that no document is in two splits. Validation and test documents keep one random question entity.
    Documents,
}

/// Divides questions, in the order of [`super::SPLITS`]. A test question is in distribution if training has its
/// entity with its relation.
pub(super) fn split(
    candidates: Vec<Origin>,
    options: &BuildOptions,
    rng: &mut ChaCha8Rng,
) -> [Vec<Origin>; 4] {
    match options.split {
        Unit::Questions => by_questions(candidates, options, rng),
        Unit::Documents => by_documents(candidates, options, rng),
    }
}

/// The candidates' documents in random order.
fn documents(candidates: &[Origin], rng: &mut ChaCha8Rng) -> Vec<usize> {
    let mut documents: Vec<usize> = candidates.iter().map(|origin| origin.document).collect();
    documents.dedup();
    documents.shuffle(rng);
    documents
}

/// Test documents are drawn until they have the tests' share of questions. The other questions are divided.
fn by_questions(candidates: Vec<Origin>, options: &BuildOptions, rng: &mut ChaCha8Rng) -> [Vec<Origin>; 4] {
    let share = |share: f64| (candidates.len() as f64 * share).round() as usize;
    let (train, tests) = (share(options.train), share(1.0 - options.train - options.valid));
    let mut counts: FxHashMap<usize, usize> = FxHashMap::default();
    candidates.iter().for_each(|origin| *counts.entry(origin.document).or_default() += 1);
    let mut held = 0;
    let tested: FxHashSet<usize> = documents(&candidates, rng)
        .into_iter()
        .take_while(|document| {
            let more = held < tests;
            held += counts[document];
            more
        })
        .collect();
    let (test, mut rest): (Vec<Origin>, Vec<Origin>) =
        candidates.into_iter().partition(|origin| tested.contains(&origin.document));
    rest.shuffle(rng);
    let valid = rest.split_off(train.min(rest.len()));
    let mut splits = [rest, valid, Vec::new(), Vec::new()];
    splits[..2].iter_mut().for_each(|split| split.sort_by_key(Origin::key));
    cap(&mut splits[0], options.per_relation, rng);
    let trained = trained(&splits[0]);
    for group in test.chunk_by(|a, b| a.document == b.document) {
        let mut entities: Vec<EntityId> = group.iter().map(|origin| origin.entity).collect();
        entities.dedup();
        let kept = entities[rng.random_range(0..entities.len())];
        for origin in group.iter().filter(|origin| origin.entity == kept) {
            splits[test_of(origin, &trained)].push(origin.clone());
        }
    }
    splits[1..].iter_mut().for_each(|split| cap(split, options.per_relation, rng));
    splits
}

/// Assigns documents to splits. Test and validation splits keep one entity of a document.
fn by_documents(candidates: Vec<Origin>, options: &BuildOptions, rng: &mut ChaCha8Rng) -> [Vec<Origin>; 4] {
    let documents = documents(&candidates, rng);
    let share = |share: f64| (documents.len() as f64 * share).round() as usize;
    let (train, valid) = (share(options.train), share(options.valid));
    let place: FxHashMap<usize, usize> =
        documents.iter().enumerate().map(|(at, &document)| (document, at)).collect();
    let mut splits: [Vec<Origin>; 4] = Default::default();
    let mut later: Vec<Vec<Origin>> = Vec::new();
    for origin in candidates {
        if place[&origin.document] < train {
            splits[0].push(origin);
        } else {
            match later.last_mut() {
                Some(group) if group[0].document == origin.document => group.push(origin),
                _ => later.push(vec![origin]),
            }
        }
    }
    cap(&mut splits[0], options.per_relation, rng);
    let trained = trained(&splits[0]);
    for mut group in later {
        let kept = group[rng.random_range(0..group.len())].entity;
        group.retain(|origin| origin.entity == kept);
        if place[&group[0].document] < train + valid {
            splits[1].append(&mut group);
            continue;
        }
        for origin in group {
            splits[test_of(&origin, &trained)].push(origin);
        }
    }
    splits[1..].iter_mut().for_each(|split| cap(split, options.per_relation, rng));
    splits
}

/// The question triples of training, without their answers.
pub(super) fn trained(train: &[Origin]) -> FxHashSet<(EntityId, Step)> {
    train.iter().map(|origin| (origin.entity, origin.asked)).collect()
}

/// The index of a question's test.
fn test_of(origin: &Origin, trained: &FxHashSet<(EntityId, Step)>) -> usize {
    if trained.contains(&(origin.entity, origin.asked)) { 2 } else { 3 }
}

/// Keeps `per_relation` random questions of each relation; all if it is 0.
fn cap(split: &mut Vec<Origin>, per_relation: usize, rng: &mut ChaCha8Rng) {
    if per_relation == 0 {
        return;
    }
    split.shuffle(rng);
    let mut counts: FxHashMap<Step, usize> = FxHashMap::default();
    split.retain(|origin| {
        let count = counts.entry(origin.asked).or_default();
        *count += 1;
        *count <= per_relation
    });
    split.sort_by_key(Origin::key);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    /// Document `d` of `documents` has questions about the entities 0 and `1 + d`, each with two relations and
    /// the inverse of one.
    fn candidates(documents: usize) -> Vec<Origin> {
        let mut found = Vec::new();
        for document in 0..documents {
            for entity in [0, 1 + document as u32] {
                for asked in [Step::forward(0), Step::backward(0), Step::forward(1)] {
                    found.push(Origin {
                        document,
                        entity: EntityId(entity),
                        asked,
                        answers: Vec::new(),
                        chains: Vec::new(),
                    });
                }
            }
        }
        found
    }

    fn made(unit: Unit, documents: usize, seed: u64) -> [Vec<Origin>; 4] {
        let options = BuildOptions { split: unit, ..BuildOptions::default() };
        split(candidates(documents), &options, &mut ChaCha8Rng::seed_from_u64(seed))
    }

    #[test]
    fn half_of_the_questions_are_for_training_and_training_shares_documents_with_validation() {
        for seed in 0..20 {
            // 240 questions: 120 for training. 72 are for tests, in 12 documents of 6 questions, so 48 are for
            // validation.
            let splits = made(Unit::Questions, 40, seed);
            assert_eq!((splits[0].len(), splits[1].len()), (120, 48));
            // A test document keeps the three questions of one entity.
            assert_eq!(splits[2].len() + splits[3].len(), 36);
            let documents = |split: &[Origin]| -> FxHashSet<usize> {
                split.iter().map(|origin| origin.document).collect()
            };
            let [train, valid] = [documents(&splits[0]), documents(&splits[1])];
            assert!(!train.is_disjoint(&valid), "{seed}");
            for test in &splits[2..] {
                let test = documents(test);
                assert!(test.is_disjoint(&train) && test.is_disjoint(&valid), "{seed}");
            }
            let trained = trained(&splits[0]);
            let known = |origin: &Origin| trained.contains(&(origin.entity, origin.asked));
            assert!(splits[2].iter().all(known) && !splits[3].iter().any(known), "{seed}");
            // Entity 0 is in every document, and the other ones are in one.
            assert!(splits[2].iter().all(|origin| origin.entity == EntityId(0)), "{seed}");
            let mut entities: FxHashMap<usize, EntityId> = FxHashMap::default();
            for origin in splits[2..].iter().flatten() {
                assert_eq!(*entities.entry(origin.document).or_insert(origin.entity), origin.entity);
            }
            assert_eq!(splits, made(Unit::Questions, 40, seed));
        }
    }

    #[test]
    fn documents_are_in_one_split_if_they_are_divided() {
        let splits = made(Unit::Documents, 40, 3);
        let mut places: FxHashMap<usize, usize> = FxHashMap::default();
        for (at, split) in splits.iter().enumerate() {
            for origin in split {
                assert_eq!(*places.entry(origin.document).or_insert(at.min(2)), at.min(2));
            }
        }
        // 20 documents of 6 questions, 8 and 12 of 3.
        let lengths = [splits[0].len(), splits[1].len(), splits[2].len() + splits[3].len()];
        assert_eq!(lengths, [120, 24, 36]);
    }

    #[test]
    fn relations_keep_a_number_of_questions_in_each_direction() {
        let options = BuildOptions { per_relation: 2, ..BuildOptions::default() };
        let splits = split(candidates(40), &options, &mut ChaCha8Rng::seed_from_u64(1));
        assert_eq!((splits[0].len(), splits[1].len()), (6, 6));
    }
}
