//! The questions and the knowledge base of a config.

use std::path::Path;

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_kilt::{
    kb::{EntityId, KnowledgeBase},
    korc::{Question, load_version},
};
use sporran_reasoner::korc::{Entities, EntityTables, label_relations};

use super::{
    options::ReasonOptions,
    populated::{Evidence, merge},
};
use crate::Result;

/// The knowledge base of a config, with names of entities and relations, and with the facts of `[populated]`.
pub(super) fn knowledge(options: &ReasonOptions) -> Result<(KnowledgeBase, Evidence)> {
    let mut kb = KnowledgeBase::open(&options.kb)?;
    if let Some(path) = &options.relations {
        label_relations(path, &mut kb)?;
    }
    if let Some(path) = &options.entities {
        let tables = EntityTables { tables: vec![path.clone()], ..EntityTables::default() };
        let entities = Entities::load(&tables, &kb)?;
        for number in 0..kb.entity_count() as u32 {
            let id = EntityId(number);
            for (at, name) in entities.names(id).iter().enumerate() {
                if at == 0 { kb.set_label(id, name) } else { kb.add_alias(id, name) }
            }
        }
    }
    let evidence = merge(&options.populated, &mut kb)?;
    Ok((kb, evidence))
}

/// The tests of a config with their names, limited to `data.limit` questions.
pub(super) fn tests(options: &ReasonOptions) -> Result<Vec<(&'static str, &Path, Vec<Question>)>> {
    let files = [("iid", &options.data.iid), ("ood", &options.data.ood)];
    let mut tests = Vec::new();
    for (name, path) in files {
        if let Some(path) = path {
            let mut questions = load_version(path, options.data.version)?;
            questions.truncate(options.data.limit.unwrap_or(usize::MAX));
            tests.push((name, path.as_path(), questions));
        }
    }
    Ok(tests)
}

/// The training questions of a config, limited to `data.train-share`, and the validation questions.
pub(super) fn training(options: &ReasonOptions) -> Result<[Vec<Question>; 2]> {
    let version = options.data.learned_version();
    let mut questions = Vec::new();
    for path in &options.data.train {
        questions.extend(load_version(path, version)?);
    }
    if let Some(share) = options.data.train_share {
        questions = drawn(questions, share, options.seed);
    }
    let valid = options.data.valid.as_ref().map(|path| load_version(path, version)).transpose()?;
    Ok([questions, valid.unwrap_or_default()])
}

/// A random share of questions in their order, at least one of some. A smaller share is a part of a larger one.
fn drawn(questions: Vec<Question>, share: f64, seed: u64) -> Vec<Question> {
    let count = (questions.len() as f64 * share).round() as usize;
    let mut order: Vec<usize> = (0..questions.len()).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut is_drawn = vec![false; questions.len()];
    order.into_iter().take(count.max(1)).for_each(|at| is_drawn[at] = true);
    questions
        .into_iter()
        .zip(is_drawn)
        .filter_map(|(question, is_drawn)| is_drawn.then_some(question))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_questions_is_a_part_of_a_larger_share() {
        let all: Vec<Question> = (0..20)
            .map(|id| serde_json::from_value(serde_json::json!({ "id": id, "question": "q" })).unwrap())
            .collect();
        let ids = |share, seed| -> Vec<i64> {
            let drawn = drawn(all.clone(), share, seed);
            drawn.iter().map(|question| question.id.text().parse().unwrap()).collect()
        };
        let shares: Vec<Vec<i64>> = [0.01, 0.1, 0.5, 1.0].iter().map(|&share| ids(share, 7)).collect();
        assert_eq!(shares.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 10, 20]);
        for (small, large) in shares.iter().zip(&shares[1..]) {
            assert!(small.iter().all(|id| large.contains(id)), "{shares:?}");
        }
        assert!(shares.iter().all(|ids| ids.is_sorted()));
        assert_ne!(ids(0.5, 7), ids(0.5, 8));
        assert!(drawn(Vec::new(), 0.5, 7).is_empty());
    }
}
