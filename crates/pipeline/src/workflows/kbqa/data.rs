//! The questions and the knowledge base of a config.

use std::path::{Path, PathBuf};

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use sporran_config::Diagnostic;
use sporran_kilt::{
    kb::{EntityId, KnowledgeBase},
    korc::{Question, Version, load_version},
};
use sporran_reasoner::korc::{Entities, EntityTables, label_relations};

use super::{
    options::{EntityNames, QuestionFiles, ReasonOptions},
    populated::{Evidence, merge},
};
use crate::{Error, Result};

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
pub(super) fn tests<'a>(
    options: &'a ReasonOptions,
    kb: &KnowledgeBase,
) -> Result<Vec<(&'static str, &'a Path, Vec<Question>)>> {
    let files = [("iid", &options.data.iid), ("ood", &options.data.ood)];
    let mut tests = Vec::new();
    for (name, path) in files {
        if let Some(path) = path {
            let mut questions = questions(&options.data, options.data.version, kb, path)?;
            questions.truncate(options.data.limit.unwrap_or(usize::MAX));
            tests.push((name, path.as_path(), questions));
        }
    }
    Ok(tests)
}

/// All questions of a config's tests, which some trainings read without their answers.
pub(super) fn all_tests(options: &ReasonOptions, kb: &KnowledgeBase) -> Result<Vec<Question>> {
    let data = &options.data;
    let mut all = Vec::new();
    for path in [&data.iid, &data.ood].into_iter().flatten() {
        all.extend(questions(data, data.version, kb, path)?);
    }
    Ok(all)
}

/// The training questions of a config, limited to `data.train-share`, and the validation questions.
pub(super) fn training(options: &ReasonOptions, kb: &KnowledgeBase) -> Result<[Vec<Question>; 2]> {
    let data = &options.data;
    let read = |path: &PathBuf| questions(data, data.learned_version(), kb, path);
    let mut learned = Vec::new();
    for path in &data.train {
        learned.extend(read(path)?);
    }
    if let Some(share) = data.train_share {
        learned = drawn(learned, share, options.seed);
    }
    let valid = data.valid.as_ref().map(read).transpose()?;
    Ok([learned, valid.unwrap_or_default()])
}

/// Reads every file of questions without keeping it, so that a wrong one is reported before a knowledge base or an index is opened.
///
/// # Errors
/// Errors of reading.
pub(super) fn check(data: &QuestionFiles, has_training: bool) -> Result<()> {
    let tests = [&data.iid, &data.ood].into_iter().flatten();
    let learned = data.train.iter().chain(&data.valid).filter(|_| has_training);
    for (path, version) in
        tests.map(|path| (path, data.version)).chain(learned.map(|path| (path, data.learned_version())))
    {
        load_version(path, version)?;
    }
    Ok(())
}

/// The questions of a file in a version, in the form of `[data]`.
///
/// # Errors
/// Errors of reading; [`Error::Config`] for a question whose entity has no label, if names are restored.
pub(super) fn questions(
    data: &QuestionFiles,
    version: Version,
    kb: &KnowledgeBase,
    path: &Path,
) -> Result<Vec<Question>> {
    let mut questions = load_version(path, version)?;
    for question in &mut questions {
        match (data.document, data.names) {
            (true, EntityNames::Anonymous) => {}
            (true, EntityNames::Restored) => {
                let topics = question.topics().iter().filter_map(|id| kb.entity(id));
                let label = topics.map(|topic| kb.labels(topic)).find_map(|labels| labels.first());
                let Some(label) = label else {
                    let id = question.id.text();
                    let path = path.display();
                    let message = format!(
                        "expected topic entities with a label in the knowledge base, found none for question {id} of {path}"
                    );
                    return Err(Error::Config(vec![Diagnostic::of_config("data.names", message)]));
                };
                question.append(label);
            }
            (false, _) => (question.context, question.text) = (None, None),
        }
    }
    Ok(questions)
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

    #[test]
    fn documents_are_left_out_and_names_are_restored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.json");
        let json = r#"[{"id":1,"question":"Who rules [a land]?","context":"[a land] is old.","topic_entity":["Q9","Q1"]},
            {"id":2,"question":"Why?","text":"It is.","topic_entity":"Q1"}]"#;
        std::fs::write(&path, json).unwrap();
        let mut kb = KnowledgeBase::default();
        let france = kb.add_entity("Q1").unwrap();
        let read = |data: &QuestionFiles, kb: &KnowledgeBase| questions(data, data.version, kb, &path);
        let documents = |questions: Vec<Question>| -> Vec<String> {
            questions.iter().map(|question| question.document().to_owned()).collect()
        };
        let whole = QuestionFiles::default();
        assert_eq!(documents(read(&whole, &kb).unwrap()), ["[a land] is old.", "It is."]);
        let alone = QuestionFiles { document: false, ..whole.clone() };
        assert_eq!(documents(read(&alone, &kb).unwrap()), ["", ""]);
        let restored = QuestionFiles { names: EntityNames::Restored, ..whole.clone() };
        let error = read(&restored, &kb).unwrap_err().to_string();
        assert!(error.contains("`data.names`") && error.contains("question 1 of"), "{error}");
        kb.set_label(france, "France");
        kb.add_alias(france, "French Republic");
        let found = documents(read(&restored, &kb).unwrap());
        assert_eq!(found, ["[a land] is old. France", "It is. France"]);
        // The name stays where the document is cut.
        let named = read(&restored, &kb).unwrap();
        assert_eq!(named[1].document_parts(), ("It is.", " France"));
        assert_eq!(read(&whole, &kb).unwrap()[1].document_parts(), ("It is.", ""));
    }
}
