//! Training data of encoders: queries with positive and negative passages.

use rustc_hash::FxHashSet;
use sporran_kilt::{
    Example, PassageId, PassageStore,
    contrast::{ContrastExample, TitledText},
    formats::{
        dpr::{TrainingContext, TrainingExample},
        elements,
    },
    observe::{Event, Observer, Unit, advance, begin},
    wowpp::{self, Dialogue, repaired},
};
use sporran_retriever::Retriever;

use super::encoder_options::ContrastRecords;
use crate::{
    Result,
    tasks::{files::task_files, loader as tasks, options::TasksOptions},
    workflows::answer::options::Options,
};

/// The number of records of one retrieval.
const CHUNK: usize = 256;

/// Reads dialogues and DPR's training data. Skips questions without a positive passage.
pub(super) fn of_files(records: &ContrastRecords) -> Result<Vec<ContrastExample>> {
    let mut found = Vec::new();
    each_of_files(records, |example| found.push(example))?;
    Ok(found)
}

/// As [`of_files`], one example at a time.
pub(super) fn each_of_files(records: &ContrastRecords, mut each: impl FnMut(ContrastExample)) -> Result<()> {
    for path in &records.dialogues {
        wowpp::load(path)?.0.iter().flat_map(|(_, dialogue)| of_dialogue(dialogue)).for_each(&mut each);
    }
    let titled = |contexts: Vec<TrainingContext>| -> Vec<TitledText> {
        contexts.into_iter().map(|context| TitledText { title: context.title, text: context.text }).collect()
    };
    for path in &records.data {
        for record in elements::open(path)?.records::<TrainingExample>() {
            let (_, record) = record?;
            let hard = titled(record.hard_negative_ctxs.unwrap_or_default());
            let negatives =
                if hard.is_empty() { titled(record.negative_ctxs.unwrap_or_default()) } else { hard };
            let positives = titled(record.positive_ctxs);
            if !positives.is_empty() {
                each(ContrastExample { query: record.question, positives, negatives });
            }
        }
    }
    Ok(())
}

/// One example for each turn of a dialogue. The article of the dialogue's topic is positive, the other annotated articles are
/// negative. The text of an article is its annotated sentences.
fn of_dialogue(dialogue: &Dialogue) -> Vec<ContrastExample> {
    let mut articles: Vec<(String, Vec<String>)> = Vec::new();
    for annotated in &dialogue.annotated_sentences {
        let (title, sentence) = annotated.parts();
        let at = articles.iter().position(|(known, _)| *known == title).unwrap_or_else(|| {
            articles.push((title, Vec::new()));
            articles.len() - 1
        });
        if !articles[at].1.contains(&sentence) {
            articles[at].1.push(sentence);
        }
    }
    let topic = repaired(&dialogue.topic).to_lowercase();
    let (of_topic, others): (Vec<_>, Vec<_>) =
        articles.into_iter().partition(|(title, _)| title.to_lowercase() == topic);
    if of_topic.is_empty() {
        return Vec::new();
    }
    let texts = |articles: Vec<(String, Vec<String>)>| -> Vec<TitledText> {
        articles
            .into_iter()
            .map(|(title, sentences)| TitledText { title, text: sentences.join(" ") })
            .collect()
    };
    let (positives, negatives) = (texts(of_topic), texts(others));
    let turns: Vec<String> = dialogue.turns.iter().map(|turn| repaired(turn)).collect();
    (1..=turns.len())
        .map(|count| ContrastExample {
            query: turns[..count].join("\n"),
            positives: positives.clone(),
            negatives: negatives.clone(),
        })
        .collect()
}

/// Retrieves passages for the records of task files. Passages of gold pages are positive, the others are hard negatives.
pub(super) fn of_tasks(
    options: &Options,
    records: &ContrastRecords,
    (tasks_options, table): (&TasksOptions, &str),
    limit: usize,
    (retriever, store): (&dyn Retriever, &PassageStore),
    observe: &mut Observer<'_>,
) -> Result<Vec<ContrastExample>> {
    let mut found = Vec::new();
    for task in task_files(tasks_options, table)? {
        let mut examples = tasks::examples(&task)?;
        examples.truncate(limit);
        begin(observe, format!("mine {}", task.name), examples.len() as u64, Unit::Records);
        for (number, chunk) in examples.chunks(CHUNK).enumerate() {
            let queries: Vec<_> =
                chunk.iter().map(|example| options.general.for_retrieval(&example.query)).collect();
            let rankings = retriever.retrieve(&queries, records.depth)?;
            for ((example, query), hits) in chunk.iter().zip(queries).zip(rankings) {
                let ids: Vec<PassageId> = hits.iter().map(|hit| hit.passage).collect();
                found.extend(contrast_of(store, example, query.text, &ids));
            }
            store.sound()?;
            advance(observe, (number * CHUNK + chunk.len()) as u64);
        }
        observe(Event::End);
    }
    Ok(found)
}

/// A record with its retrieved passages; `None` if no gold page is in the store.
fn contrast_of(
    store: &PassageStore,
    example: &Example,
    query: String,
    found: &[PassageId],
) -> Option<ContrastExample> {
    let evidence = example.gold.iter().flat_map(|output| output.evidence());
    let mut pages = Vec::new();
    let mut known = FxHashSet::default();
    for id in evidence.filter_map(|item| item.wikipedia_id.as_ref()) {
        if let Some(page) = store.page_by_id(&id.text())
            && known.insert(page)
        {
            pages.push(page);
        }
    }
    let titled = |id: PassageId| TitledText {
        title: store.page_title(store.page_of(id)).to_owned(),
        text: store.text(id),
    };
    // The retrieved passage of a gold page, else its first.
    let best = |page| {
        let passage = found.iter().copied().find(|&id| store.page_of(id) == page);
        titled(passage.unwrap_or_else(|| PassageId(store.passages_of(page).start)))
    };
    let positives: Vec<TitledText> = pages.iter().map(|&page| best(page)).collect();
    let others = found.iter().filter(|&&id| !known.contains(&store.page_of(id)));
    let negatives = others.map(|&id| titled(id)).collect();
    (!positives.is_empty()).then_some(ContrastExample { query, positives, negatives })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_of_a_dialogue_is_a_query_for_its_topic() {
        let sentence = |label: &str| serde_json::json!({"label": label, "confidence": 0.0});
        let dialogue = |topic: &str| -> Dialogue {
            let sentences = [
                "Tea <knowledge_separator> It is a drink.",
                "Milk <knowledge_separator> It is white.",
                "Tea <knowledge_separator> It is a drink.",
                "Tea <knowledge_separator> It is hot.",
            ];
            let sentences: Vec<_> = sentences.into_iter().map(sentence).collect();
            serde_json::from_value(
                serde_json::json!({"turns": ["a", "b"], "topic": topic, "annotated_sentences": sentences}),
            )
            .unwrap()
        };
        let found = of_dialogue(&dialogue("tea"));
        let queries: Vec<&str> = found.iter().map(|example| example.query.as_str()).collect();
        assert_eq!(queries, ["a", "a\nb"]);
        let titled = |title: &str, text: &str| TitledText { title: title.into(), text: text.into() };
        for example in &found {
            assert_eq!(example.positives, [titled("Tea", "It is a drink. It is hot.")]);
            assert_eq!(example.negatives, [titled("Milk", "It is white.")]);
        }
        assert!(of_dialogue(&dialogue("coffee")).is_empty());
    }
}
