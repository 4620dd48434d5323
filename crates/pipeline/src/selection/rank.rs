//! Rankings of every candidate, and the chosen sentences as predictions.

use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value};
use sporran_kilt::{
    Id, Output, Passage, Provenance, Record, jsonl,
    scores::ranking::{Candidate, Ranked},
    wowpp::{Dialogue, Dialogues},
};
use sporran_reranker::Reranker;

use super::data::{Labels, Selection};
use crate::{
    Result,
    observe::{Observer, Unit, advance, begin},
};

/// Scores every sentence of every dialogue. The number of a sentence in its dialogue, with zeros before it, is its id.
///
/// # Errors
/// Where the tokenizer or the model fails.
pub fn rank(
    dialogues: &[(String, Dialogue)],
    reranker: &dyn Reranker,
    observe: &mut Observer<'_>,
) -> Result<Vec<Ranked>> {
    begin(observe, "rank sentences", dialogues.len() as u64, Unit::Records);
    let mut ranked = Vec::with_capacity(dialogues.len());
    for (at, (id, dialogue)) in dialogues.iter().enumerate() {
        let selection = Selection::new(id, dialogue, Labels::Crowd);
        let passages: Vec<_> = selection.passages.iter().collect();
        let scores = reranker.score(&selection.query, &passages)?;
        let candidates = dialogue
            .annotated_sentences
            .iter()
            .zip(scores)
            .enumerate()
            .map(|(at, (judged, score))| Candidate {
                id: format!("{at:04}").into(),
                confidence: judged.confidence,
                score: score.into(),
            })
            .collect();
        ranked.push(Ranked { id: id.as_str().into(), candidates });
        advance(observe, at as u64 + 1);
    }
    observe(crate::Event::End);
    Ok(ranked)
}

/// Writes rankings, one dialogue a line.
///
/// # Errors
/// Where the disk refuses; then nothing appears.
pub fn write_ranking(path: &Path, ranked: &[Ranked]) -> Result<()> {
    write(path, ranked)
}

/// Writes a prediction for each dialogue: its best sentence as the answer, with the sentence's article as the provenance.
///
/// # Errors
/// Where the disk refuses; then nothing appears.
pub fn write_predictions(path: &Path, dialogues: &Dialogues, ranked: &[Ranked]) -> Result<()> {
    let records: Vec<Record> = dialogues
        .0
        .iter()
        .zip(ranked)
        .map(|((id, dialogue), ranked)| prediction(id, dialogue, ranked))
        .collect();
    write(path, &records)
}

/// The numbers of a dialogue's sentences, best first. Ties stand as the ranking's scores break them: by falling id.
pub(super) fn order(ranked: &Ranked) -> Vec<usize> {
    let score = |at: usize| ranked.candidates[at].score;
    let mut order: Vec<usize> = (0..ranked.candidates.len()).collect();
    order.sort_by(|&a, &b| score(b).total_cmp(&score(a)).then(b.cmp(&a)));
    order
}

fn prediction(id: &str, dialogue: &Dialogue, ranked: &Ranked) -> Record {
    let selection = Selection::new(id, dialogue, Labels::Crowd);
    let output = order(ranked).first().map(|&best| {
        let passage = &selection.passages[best];
        (passage.text.clone(), vec![evidence(passage, ranked.candidates[best].score)])
    });
    record(Id::from(id), selection.query.text, output)
}

/// A sentence as evidence: its article, its text, its score.
pub(super) fn evidence(passage: &Passage, score: f64) -> Provenance {
    let mut extra = Map::new();
    extra.insert("text".into(), Value::String(passage.text.clone()));
    extra.insert("score".into(), score.into());
    Provenance { title: Some(passage.page_id.clone()), extra, ..Provenance::default() }
}

/// A dialogue's prediction: an answer with its evidence, or nothing.
pub(super) fn record(id: Id, input: String, output: Option<(String, Vec<Provenance>)>) -> Record {
    let output = output.map(|(answer, provenance)| Output {
        answer: Some(answer),
        provenance: Some(provenance),
        extra: Map::new(),
    });
    let output = Some(output.into_iter().collect());
    Record { id, input: Some(input), output, meta: None, extra: Map::new() }
}

pub(super) fn write<T: Serialize>(path: &Path, lines: &[T]) -> Result<()> {
    let mut writer = jsonl::Writer::create(path)?;
    for line in lines {
        writer.record(line)?;
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use sporran_kilt::Query;

    use super::*;

    /// Likes short texts.
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
        write_predictions(&path, &dialogues, &ranked).unwrap();
        let lines = jsonl::read_to_string(&path).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["output"][0]["answer"], "Short.");
        assert_eq!(lines[0]["output"][0]["provenance"][0]["title"], "Milk");
        assert_eq!(
            (&lines[0]["input"], lines[1]["output"].as_array().unwrap().len()),
            (&"Hi\nTea?".into(), 0)
        );
        write_ranking(&path, &ranked).unwrap();
        let report = sporran_kilt::scores::ranking::evaluate(&path, 0.6).unwrap().report;
        assert_eq!((report.scores.mrr_at_1, report.queries), (1.0.into(), 2));
    }
}
