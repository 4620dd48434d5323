//! Training examples with retrieved passages, and validation scores of generators.

use sporran_generator::{Candidate, Generator, Request};
use sporran_kilt::{
    Example, Metric, Output, Passage, PassageId, PassageStore, Query,
    observe::{Event, Observer, Unit, advance, begin},
    scores::answer::{self, Answers},
};

use crate::{
    Result,
    tasks::{files::task_files, loader as tasks, options::TasksOptions, query::for_retrieval},
    workflows::answer::{assemble::Assembly, options::Options},
};

/// An example with its retrieved passages.
pub(crate) struct RetrievedExample {
    pub(crate) example: Example,
    pub(crate) passages: Vec<(Passage, f32)>,
}

impl RetrievedExample {
    pub(crate) fn ask<T>(&self, use_request: impl FnOnce(&Request<'_>) -> T) -> T {
        let candidates: Vec<Candidate<'_>> =
            self.passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect();
        use_request(&Request { query: &self.example.query, passages: &candidates })
    }
}

/// Reads task files and retrieves passages for each record, as in a run.
#[expect(
    clippy::too_many_arguments,
    reason = "one call for training and one for validation, with the same arguments"
)]
pub(crate) fn retrieved_examples(
    options: &Options,
    files: &TasksOptions,
    table: &str,
    limit: Option<usize>,
    wanted: usize,
    add_gold: bool,
    assembly: &Assembly,
    observe: &mut Observer<'_>,
) -> Result<Vec<RetrievedExample>> {
    let mut retrieved_examples = Vec::new();
    for mut task in task_files(files, table)? {
        task.limit = limit.or(task.limit);
        let examples = tasks::examples(&task)?;
        begin(observe, format!("retrieve for {}", task.name), examples.len() as u64, Unit::Records);
        for (number, chunk) in examples.chunks(512).enumerate() {
            let queries: Vec<Query> =
                chunk.iter().map(|example| for_retrieval(&example.query, &options.general.query)).collect();
            let hits = match &assembly.retriever {
                Some(retriever) => retriever.retrieve(&queries, wanted.max(1))?,
                None => vec![Vec::new(); queries.len()],
            };
            for (example, hits) in chunk.iter().zip(hits) {
                let mut passages: Vec<(Passage, f32)> = Vec::new();
                if let Some(store) = &assembly.store {
                    passages.extend(hits.iter().map(|hit| (store.passage(hit.passage), hit.score)));
                    if add_gold && !passages.is_empty() {
                        add_gold_passage(store, example, &mut passages);
                    }
                }
                if !example.answers().is_empty() {
                    retrieved_examples.push(RetrievedExample { example: example.clone(), passages });
                }
            }
            assembly.sound()?;
            advance(observe, (number * 512 + chunk.len()) as u64);
        }
        observe(Event::End);
    }
    Ok(retrieved_examples)
}

/// Replaces the answers of examples by the titles of their gold pages. Drops examples without a gold page in the store.
pub(crate) fn with_titles(retrieved_examples: &mut Vec<RetrievedExample>, store: &PassageStore) {
    for retrieved in retrieved_examples.iter_mut() {
        let gold = retrieved.example.gold.iter().flat_map(|output| output.evidence());
        let titles = gold.filter_map(|item| {
            let page = store.page_by_id(&item.wikipedia_id.as_ref()?.text())?;
            Some(store.page_title(page).to_owned())
        });
        let output = |title| Output { answer: Some(title), ..Output::default() };
        retrieved.example.gold = titles.map(output).collect();
    }
    retrieved_examples.retain(|retrieved| !retrieved.example.gold.is_empty());
}

/// If no gold page was retrieved, replaces the last passage by the first passage of the first gold page.
fn add_gold_passage(store: &PassageStore, example: &Example, passages: &mut [(Passage, f32)]) {
    let gold = || {
        example.gold.iter().flat_map(|output| output.evidence()).filter_map(|item| item.wikipedia_id.as_ref())
    };
    let retrieved =
        gold().any(|id| passages.iter().any(|(passage, _)| id.text() == passage.page_id.as_str()));
    if let (false, Some(id), Some(last)) = (retrieved, gold().next(), passages.last_mut())
        && let Some(page) = store.page_by_id(&id.text())
    {
        *last = (store.passage(PassageId(store.passages_of(page).start)), last.1);
    }
}

/// The mean over datasets of their headline scores.
pub(crate) fn mean_score(generator: &dyn Generator, validation: &[RetrievedExample]) -> Result<f64> {
    let mut groups: Vec<(Option<sporran_kilt::Dataset>, Vec<f64>)> = Vec::new();
    let candidates: Vec<Vec<Candidate<'_>>> = validation
        .iter()
        .map(|retrieved| {
            retrieved.passages.iter().map(|(passage, score)| Candidate { passage, score: *score }).collect()
        })
        .collect();
    let requests: Vec<Request<'_>> = validation
        .iter()
        .zip(&candidates)
        .map(|(retrieved, candidates)| Request { query: &retrieved.example.query, passages: candidates })
        .collect();
    for (retrieved, generation) in validation.iter().zip(generator.generate(&requests)?) {
        let dataset = retrieved.example.query.dataset;
        let scores: answer::Scores = Answers::new(retrieved.example.answers()).score(&generation.text);
        let score = match dataset.map_or(Metric::ExactMatch, |dataset| dataset.metric()) {
            Metric::Accuracy => scores.accuracy,
            Metric::ExactMatch => scores.em,
            Metric::F1 => scores.f1,
            Metric::RougeL => scores.rougel,
        };
        match groups.iter_mut().find(|(known, _)| *known == dataset) {
            Some((_, scores)) => scores.push(score),
            None => groups.push((dataset, vec![score])),
        }
    }
    let means = groups.iter().map(|(_, scores)| scores.iter().sum::<f64>() / scores.len() as f64);
    Ok(means.sum::<f64>() / groups.len().max(1) as f64)
}
