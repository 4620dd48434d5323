//! Training data of encoders: queries with positive and negative passages.

use rustc_hash::FxHashSet;
use sporran_kilt::{
    Example, PassageId, PassageStore,
    formats::{
        dpr::{TrainingContext, TrainingExample},
        elements,
    },
    observe::{Event, Observer, Unit, advance, begin},
    wowpp::{self, Dialogue, repaired},
};
use sporran_retriever::Retriever;

use super::EncoderTraining;
use crate::{
    Result,
    tasks::{files::task_files, loader as tasks, options::TasksOptions, query::for_retrieval},
    workflows::answer::options::Options,
};

/// The number of records of one retrieval.
const CHUNK: usize = 256;

/// The title and text of a passage.
pub(super) type Titled = (String, String);

/// A query with its positive and negative passages.
pub(super) struct Texts {
    pub(super) query: String,
    /// At least one positive passage, the best first.
    pub(super) positives: Vec<Titled>,
    /// Negative passages, the hardest first.
    pub(super) negatives: Vec<Titled>,
}

/// Reads dialogues and DPR's training data. Skips questions without a positive passage.
pub(super) fn of_files(training: &EncoderTraining) -> Result<Vec<Texts>> {
    let mut found = Vec::new();
    for path in &training.dialogues {
        found.extend(wowpp::load(path)?.0.iter().flat_map(|(_, dialogue)| of_dialogue(dialogue)));
    }
    let titled = |contexts: Vec<TrainingContext>| -> Vec<Titled> {
        contexts.into_iter().map(|context| (context.title, context.text)).collect()
    };
    for path in &training.data {
        for record in elements::open(path)?.records::<TrainingExample>() {
            let (_, record) = record?;
            let hard = titled(record.hard_negative_ctxs.unwrap_or_default());
            let negatives =
                if hard.is_empty() { titled(record.negative_ctxs.unwrap_or_default()) } else { hard };
            let positives = titled(record.positive_ctxs);
            if !positives.is_empty() {
                found.push(Texts { query: record.question, positives, negatives });
            }
        }
    }
    Ok(found)
}

/// One example for each turn of a dialogue. The article of the dialogue's topic is positive, the other annotated articles are
/// negative. The text of an article is its annotated sentences.
fn of_dialogue(dialogue: &Dialogue) -> Vec<Texts> {
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
    let texts = |articles: Vec<(String, Vec<String>)>| -> Vec<Titled> {
        articles.into_iter().map(|(title, sentences)| (title, sentences.join(" "))).collect()
    };
    let (positives, negatives) = (texts(of_topic), texts(others));
    let turns: Vec<String> = dialogue.turns.iter().map(|turn| repaired(turn)).collect();
    (1..=turns.len())
        .map(|count| Texts {
            query: turns[..count].join("\n"),
            positives: positives.clone(),
            negatives: negatives.clone(),
        })
        .collect()
}

/// Retrieves passages for the records of task files. Passages of gold pages are positive, the others are hard negatives.
pub(super) fn of_tasks(
    options: &Options,
    training: &EncoderTraining,
    (tasks_options, table): (&TasksOptions, &str),
    limit: usize,
    (retriever, store): (&dyn Retriever, &PassageStore),
    observe: &mut Observer<'_>,
) -> Result<Vec<Texts>> {
    let mut found = Vec::new();
    for task in task_files(tasks_options, table)? {
        let mut examples = tasks::examples(&task)?;
        examples.truncate(limit);
        begin(observe, format!("mine {}", task.name), examples.len() as u64, Unit::Records);
        for (number, chunk) in examples.chunks(CHUNK).enumerate() {
            let queries: Vec<_> =
                chunk.iter().map(|example| for_retrieval(&example.query, &options.general.query)).collect();
            let rankings = retriever.retrieve(&queries, training.depth)?;
            for ((example, query), hits) in chunk.iter().zip(queries).zip(rankings) {
                let ids: Vec<PassageId> = hits.iter().map(|hit| hit.passage).collect();
                found.extend(texts(store, example, query.text, &ids));
            }
            store.sound()?;
            advance(observe, (number * CHUNK + chunk.len()) as u64);
        }
        observe(Event::End);
    }
    Ok(found)
}

/// A record with its retrieved passages; `None` if no gold page is in the store.
fn texts(store: &PassageStore, example: &Example, query: String, found: &[PassageId]) -> Option<Texts> {
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
    let titled = |id: PassageId| (store.page_title(store.page_of(id)).to_owned(), store.text(id));
    // The retrieved passage of a gold page, else its first.
    let best = |page| {
        let passage = found.iter().copied().find(|&id| store.page_of(id) == page);
        titled(passage.unwrap_or_else(|| PassageId(store.passages_of(page).start)))
    };
    let positives: Vec<Titled> = pages.iter().map(|&page| best(page)).collect();
    let others = found.iter().filter(|&&id| !known.contains(&store.page_of(id)));
    let negatives = others.map(|&id| titled(id)).collect();
    (!positives.is_empty()).then_some(Texts { query, positives, negatives })
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
        let queries: Vec<&str> = found.iter().map(|texts| texts.query.as_str()).collect();
        assert_eq!(queries, ["a", "a\nb"]);
        for texts in &found {
            assert_eq!(texts.positives, [("Tea".to_owned(), "It is a drink. It is hot.".to_owned())]);
            assert_eq!(texts.negatives, [("Milk".to_owned(), "It is white.".to_owned())]);
        }
        assert!(of_dialogue(&dialogue("coffee")).is_empty());
    }
}
