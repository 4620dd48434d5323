//! Random validation and test parts of a knowledge base that has none.

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashSet;

use super::{KnowledgeBase, Part, Triple};
use crate::{Error, Result};

impl KnowledgeBase {
    /// Moves random triples from the training part to validation and test: each `share` of the different triples, rounded.
    /// Every entity and every relation keeps a training triple. A triple that occurs several times moves as a whole. The
    /// same seed gives the same parts, whose triples stay in order.
    ///
    /// # Errors
    /// [`Error::Argument`] for shares that are negative, are less than a triple or whose sum is not below 1, if validation or test has triples
    /// already, and if fewer triples can be moved than the shares ask for.
    pub fn hold_out(&mut self, validation: f64, test: f64, seed: u64) -> Result<()> {
        if !(validation >= 0.0 && test >= 0.0 && validation + test < 1.0) {
            let message =
                format!("expected shares from 0 whose sum is below 1, found {validation} and {test}");
            return Err(Error::Argument(message));
        }
        for part in [Part::Valid, Part::Test] {
            if let count @ 1.. = self.triples(part).len() {
                let name = part.name();
                let message = format!("expected no triples in the part `{name}` to make, found {count}");
                return Err(Error::Argument(message));
            }
        }
        let mut known = FxHashSet::default();
        let mut different: Vec<Triple> =
            self.triples(Part::Train).iter().copied().filter(|&triple| known.insert(triple)).collect();
        different.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let count = |share: f64| (share * different.len() as f64).round() as usize;
        for share in [validation, test] {
            if share > 0.0 && count(share) == 0 {
                let message =
                    format!("expected shares of at least one of {} triples, found {share}", different.len());
                return Err(Error::Argument(message));
            }
        }
        let (validation, test) = (count(validation), count(test));
        // The first triple of an entity or a relation in random order stays.
        let mut entities = vec![false; self.entity_count()];
        let mut relations = vec![false; self.relation_count()];
        let mut is_covered = |triple: &Triple| {
            let subject = std::mem::replace(&mut entities[triple.subject.index()], true);
            let object = std::mem::replace(&mut entities[triple.object.index()], true);
            let relation = std::mem::replace(&mut relations[triple.relation.index()], true);
            subject && relation && object
        };
        let movable: Vec<Triple> = different.into_iter().filter(|triple| is_covered(triple)).collect();
        if movable.len() < validation + test {
            let message = format!(
                "expected at least {} triples whose entities and relations are in other triples, found {}; smaller shares fit",
                validation + test,
                movable.len()
            );
            return Err(Error::Argument(message));
        }
        let [validation, test] = [&movable[..validation], &movable[validation..validation + test]]
            .map(|part| part.iter().copied().collect::<FxHashSet<Triple>>());
        let all = std::mem::take(self.triples_mut(Part::Train));
        let mut moved = FxHashSet::default();
        for triple in all {
            let part = match (validation.contains(&triple), test.contains(&triple)) {
                (true, _) => Part::Valid,
                (_, true) => Part::Test,
                _ => Part::Train,
            };
            if part == Part::Train || moved.insert(triple) {
                self.triples_mut(part).push(triple);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 entities in a ring of two relations, one triple twice.
    fn ring() -> KnowledgeBase {
        let mut kb = KnowledgeBase::default();
        for at in 0..20u32 {
            kb.add_entity(&at.to_string()).unwrap();
        }
        kb.add_relation("next").unwrap();
        kb.add_relation("second").unwrap();
        for at in 0..20 {
            kb.add(Part::Train, Triple::new(at, 0, (at + 1) % 20)).unwrap();
            kb.add(Part::Train, Triple::new(at, 1, (at + 2) % 20)).unwrap();
        }
        kb.add(Part::Train, Triple::new(0, 0, 1)).unwrap();
        kb
    }

    #[test]
    fn parts_have_their_shares_and_training_has_every_entity() {
        for seed in 0..20 {
            let (mut kb, whole) = (ring(), ring());
            kb.hold_out(0.1, 0.2, seed).unwrap();
            let [train, valid, test] = Part::ALL.map(|part| kb.triples(part).to_vec());
            assert_eq!((valid.len(), test.len()), (4, 8));
            let all: FxHashSet<Triple> = train.iter().chain(&valid).chain(&test).copied().collect();
            assert_eq!(all.len(), 40);
            assert!(valid.iter().chain(&test).all(|triple| !train.contains(triple)));
            assert!(valid.iter().all(|triple| !test.contains(triple)));
            let entities: FxHashSet<u32> =
                train.iter().flat_map(|triple| [triple.subject.0, triple.object.0]).collect();
            let relations: FxHashSet<u32> = train.iter().map(|triple| triple.relation.0).collect();
            assert_eq!((entities.len(), relations.len()), (20, 2));
            // In the order of the file.
            let place = |triple: &Triple| whole.triples(Part::Train).iter().position(|other| other == triple);
            assert!(valid.is_sorted_by_key(place) && test.is_sorted_by_key(place));
            let mut again = ring();
            again.hold_out(0.1, 0.2, seed).unwrap();
            assert_eq!(again.triples(Part::Test), test);
        }
    }

    #[test]
    fn shares_that_do_not_fit_are_errors() {
        for (validation, test, expected) in [
            (0.5, 0.5, "expected shares from 0 whose sum is below 1"),
            (-0.1, 0.2, "expected shares"),
            (f64::NAN, 0.0, "expected shares"),
            (0.001, 0.0, "triples, found 0.001"),
            (0.1, 0.001, "expected shares of at least one"),
            (0.45, 0.5, "triples whose entities and relations are in other triples"),
        ] {
            let mut kb = ring();
            let message = kb.hold_out(validation, test, 1).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert_eq!(kb.triples(Part::Train).len(), 41);
        }
        let mut kb = ring();
        kb.hold_out(0.1, 0.0, 1).unwrap();
        let message = kb.hold_out(0.1, 0.0, 1).unwrap_err().to_string();
        assert!(message.contains("no triples in the part `valid` to make, found 4"), "{message}");
    }
}
