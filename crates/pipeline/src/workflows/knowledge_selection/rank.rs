//! Rankings of all sentences, and predictions with the best ones.

use std::{path::Path, sync::Arc};

use serde::Serialize;
use serde_json::{Map, json};
use sporran_kilt::{
    Id, Output, Passage, PassageStore, Record, jsonl,
    observe::{Observer, Unit, advance, begin},
    scores::ranking::{Candidate, Ranked},
    wowpp::{Dialogue, Dialogues, repaired},
};
use sporran_reranker::Reranker;

use super::data::graded;
use crate::{Result, source::pages::Pages};

/// Scores every sentence of every dialogue. The id of a sentence is its index in the dialogue, with leading zeros.
///
/// # Errors
/// Errors of the tokenizer or the model.
pub fn rank(
    dialogues: &[(String, Dialogue)],
    reranker: &dyn Reranker,
    observe: &mut Observer<'_>,
) -> Result<Vec<Ranked>> {
    begin(observe, "rank sentences", dialogues.len() as u64, Unit::Records);
    let mut ranked = Vec::with_capacity(dialogues.len());
    for (at, (id, dialogue)) in dialogues.iter().enumerate() {
        ranked.push(rank_one(id, dialogue, reranker)?);
        advance(observe, at as u64 + 1);
    }
    observe(sporran_kilt::observe::Event::End);
    Ok(ranked)
}

/// Scores every sentence of a dialogue.
///
/// # Errors
/// As [`rank`].
pub(super) fn rank_one(id: &str, dialogue: &Dialogue, reranker: &dyn Reranker) -> Result<Ranked> {
    let graded = graded(id, dialogue);
    let passages: Vec<_> = graded.passages.iter().collect();
    let scores = reranker.score(&graded.query, &passages)?;
    let each = dialogue.annotated_sentences.iter().zip(scores).enumerate();
    let candidates = each.map(|(at, (annotated, score))| Candidate {
        id: sentence_id(at),
        confidence: annotated.confidence,
        score: score.into(),
    });
    Ok(Ranked { id: id.into(), candidates: candidates.collect() })
}

/// The id of a sentence in a ranking.
pub(super) fn sentence_id(at: usize) -> Id {
    format!("{at:04}").into()
}

/// Writes rankings, one line for each dialogue.
///
/// # Errors
/// Errors of writing the file. A failed write leaves no partial file.
pub fn write_ranking(path: &Path, ranked: &[Ranked]) -> Result<()> {
    write(path, ranked)
}

/// Writes a prediction for each dialogue with its best sentence as the answer. If `store` has the sentence's article, its page
/// is the provenance. `meta.selection` always has the sentence with its article and score.
///
/// # Errors
/// Errors of writing the file. A failed write leaves no partial file.
pub fn write_predictions(
    path: &Path,
    dialogues: &Dialogues,
    ranked: &[Ranked],
    store: Option<Arc<PassageStore>>,
) -> Result<()> {
    let pages = Pages::of_store(store);
    let records: Vec<Record> = dialogues
        .0
        .iter()
        .zip(ranked)
        .map(|((id, dialogue), ranked)| prediction(id, dialogue, ranked, &pages))
        .collect();
    write(path, &records)
}

/// The indices of a dialogue's sentences, best first. Ties are ordered by descending id, as in the scores of rankings.
pub(super) fn order(ranked: &Ranked) -> Vec<usize> {
    let score = |at: usize| ranked.candidates[at].score;
    let mut order: Vec<usize> = (0..ranked.candidates.len()).collect();
    order.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(b.cmp(&a)));
    order
}

fn prediction(id: &str, dialogue: &Dialogue, ranked: &Ranked, pages: &Pages) -> Record {
    let graded = graded(id, dialogue);
    let best: Vec<(&Passage, f64)> = order(ranked)
        .first()
        .map(|&best| (&graded.passages[best], ranked.candidates[best].score))
        .into_iter()
        .collect();
    let answer = best.first().map_or_else(String::new, |(passage, _)| passage.text.clone());
    record(Id::from(id), &graded.query.text, answer, &best, pages)
}

/// The field of a prediction's `meta` that is true where a dialogue has no sentence for the generator.
pub(crate) const WITHOUT_SENTENCE: &str = "without_sentence";

/// The prediction of a dialogue: an answer, and the supporting sentences with their scores, best first.
pub(super) fn record(
    id: Id,
    input: &str,
    answer: String,
    sentences: &[(&Passage, f64)],
    pages: &Pages,
) -> Record {
    let (mut provenance, mut selection) = (Vec::new(), Vec::new());
    for (passage, score) in sentences {
        // The page of the article's name, else of the title before the sentence.
        let names = [&passage.page_id, &passage.title];
        if let Some(page) = names.into_iter().find_map(|name| pages.titled(&repaired(name))) {
            let mut item = pages.provenance(&page, Some(&passage.text));
            item.extra.insert("text".into(), passage.text.clone().into());
            item.extra.insert("score".into(), json!(score));
            provenance.push(item);
        }
        selection.push(json!({ "title": passage.page_id, "text": passage.text, "score": score }));
    }
    let output = Output { answer: Some(answer), provenance: Some(provenance), extra: Map::new() };
    Record {
        id,
        input: Some(input.to_owned()),
        output: Some(vec![output]),
        meta: Some(json!({ "selection": selection })),
        extra: Map::new(),
    }
}

fn write<T: Serialize>(path: &Path, lines: &[T]) -> Result<()> {
    let mut writer = jsonl::Writer::create(path)?;
    for line in lines {
        writer.record(line)?;
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use sporran_kilt::{PassageSplit, Query, store::BuildOptions};

    use super::*;

    /// Scores short texts higher.
    struct Short;

    impl Reranker for Short {
        fn score(&self, _: &Query, passages: &[&Passage]) -> sporran_reranker::Result<Vec<f32>> {
            Ok(passages.iter().map(|passage| -(passage.text.len() as f32)).collect())
        }
    }

    #[test]
    fn every_candidate_has_its_score_and_the_best_is_the_prediction() {
        let json = r#"{"d": {"turns": ["Hi", "Tea?"], "topic": "Tea", "annotated_sentences": [
            {"label": "Tea <knowledge_separator> It is long.", "confidence": 0.2, "article": "Tea (drink)"},
            {"label": "Milk <knowledge_separator> Short.", "confidence": 0.9}]},
            "e": {"turns": [], "topic": "None", "annotated_sentences": []}}"#;
        let dialogues: Dialogues = serde_json::from_str(json).unwrap();
        let ranked = rank(&dialogues.0, &Short, &mut |_| {}).unwrap();
        assert_eq!(ranked[0].candidates[1].id.text(), "0001");
        assert_eq!((ranked[0].candidates[1].confidence, ranked[0].candidates[1].score), (0.9, -6.0));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.jsonl");
        let predicted = |store| {
            write_predictions(&path, &dialogues, &ranked, store).unwrap();
            let lines = jsonl::read_to_string(&path).unwrap();
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
        };
        let lines = predicted(None);
        assert_eq!(lines[0]["input"], "Hi\nTea?");
        assert_eq!(lines[0]["output"], json!([{ "answer": "Short.", "provenance": [] }]));
        assert_eq!(
            lines[0]["meta"]["selection"],
            json!([{ "title": "Milk", "text": "Short.", "score": -6.0 }])
        );
        // Without sentences, the output has an empty answer.
        assert_eq!(lines[1]["output"], json!([{ "answer": "", "provenance": [] }]));
        let source = folder.path().join("pages.jsonl");
        let page = r#"{"wikipedia_id":"7","wikipedia_title":"Milk","text":["Milk\n","It is. Short.\n"]}"#;
        jsonl::write(&source, page.as_bytes()).unwrap();
        let build = BuildOptions { source, redirects: None, split: PassageSplit::Page };
        let store = PassageStore::build(&build, folder.path().join("store"), &mut |_| {}).unwrap();
        let item = &predicted(Some(store.into()))[0]["output"][0]["provenance"][0];
        assert_eq!(
            *item,
            json!({ "wikipedia_id": "7", "title": "Milk", "section": "Section::::Abstract.",
                "start_paragraph_id": 1, "start_character": 7, "end_paragraph_id": 1, "end_character": 13,
                "text": "Short.", "score": -6.0 })
        );
        write_ranking(&path, &ranked).unwrap();
        let report = sporran_kilt::scores::ranking::evaluate(&path, 0.6).unwrap().report;
        assert_eq!((report.scores.mrr_at_1, report.queries), (1.0.into(), 2));
    }
}
