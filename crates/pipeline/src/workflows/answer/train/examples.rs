//! The records of a training, with retrieved passages.

use sporran_generator::RetrievedExample;
use sporran_kilt::{
    Example, Passage, PassageId, PassageStore, Query,
    observe::{Event, Observer, Unit, advance, begin},
};

use crate::{
    Result,
    tasks::{files::task_files, loader as tasks, options::TasksOptions},
    workflows::answer::{assemble::Assembly, options::Options},
};

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
                chunk.iter().map(|example| options.general.for_retrieval(&example.query)).collect();
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
