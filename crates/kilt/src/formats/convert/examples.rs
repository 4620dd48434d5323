//! Task files with retrieved passages as training data for DPR and FiD.

use std::path::Path;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value};
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

use super::{
    Format, Noun, Request, Summary, not_empty,
    queries::{at, dataset, kilt},
    rankings::passage_id,
    unique::UniqueIds,
};
use crate::{
    Error, Example, Id, Passage, PassageId, PassageStore, Provenance, Query, Result,
    formats::{
        dpr::{RetrievedContext, RetrievedExample, Score, TrainingContext, TrainingExample},
        elements::ElementWriter,
        trec,
    },
};

pub(super) fn convert(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Examples);
    let (Some(folder), Some(run)) = (&request.store, &request.run) else {
        // `check` has seen both.
        return Err(Error::Argument("expected a store and a run".to_owned()));
    };
    let store = PassageStore::open(folder)?;
    let rankings = rankings(run, &store)?;
    let mut output = ElementWriter::create(&request.output)?;
    let mut first_missing = None;
    let mut ids = UniqueIds::of(request.from);
    for input in &request.inputs {
        kilt(input, &mut |line, record, query| {
            let id = query.id.text();
            ids.add(&id, input, line)?;
            summary.read += 1;
            let hits = match rankings.get(&*id) {
                Some(hits) => hits.as_slice(),
                None => {
                    summary.unresolved += 1;
                    first_missing.get_or_insert_with(|| (input.clone(), line, id.to_string()));
                    &[]
                }
            };
            drop(id);
            let example = Example { query, gold: record.outputs().to_vec() };
            if request.to == Format::Fid {
                summary.written += 1;
                return output.record(&retrieved(&store, example, hits));
            }
            match training(&store, &example, hits, input) {
                None => summary.left_out += 1,
                Some(training) => {
                    summary.written += 1;
                    output.record(&training)?;
                }
            }
            Ok(())
        })?;
    }
    let summary = not_empty(request, summary)?;
    // A system may find nothing for a query, but not for every query.
    if let Some((path, line, id)) = first_missing.filter(|_| summary.unresolved == summary.read) {
        let message = format!("no record has a ranking in {}; `{id}` is the first", run.display());
        return Err(at(&path, line, ("id", message)));
    }
    store.sound()?;
    output.finish()?;
    Ok(summary)
}

/// Retrieved passages with their scores, by query.
type Rankings = FxHashMap<String, Vec<(PassageId, f64)>>;

fn rankings(path: &Path, store: &PassageStore) -> Result<Rankings> {
    let mut rankings = Rankings::default();
    for ranking in trec::read_rankings(path)? {
        let ranking = ranking?;
        let hits: Result<_> = ranking
            .documents
            .iter()
            .map(|document| {
                Ok((
                    passage_id(path, (document.line, ranking.of_pages), &document.id, store)?,
                    document.score,
                ))
            })
            .collect();
        rankings.insert(ranking.query, hits?);
    }
    Ok(rankings)
}

fn retrieved(store: &PassageStore, example: Example, hits: &[(PassageId, f64)]) -> RetrievedExample {
    let answers = Answers::new(example.answers());
    let ctxs = hits
        .iter()
        .map(|&(id, score)| {
            let passage = store.passage(id);
            RetrievedContext {
                id: Some(Id::Text(id.to_string())),
                has_answer: Some(answers.occur_in(&passage.text)),
                score: Score::try_from(score).ok(),
                title: passage.title,
                text: passage.text,
                extra: Map::new(),
            }
        })
        .collect();
    let answers = example.answers().into_iter().map(str::to_owned).collect();
    let Query { id, text, .. } = example.query;
    RetrievedExample { id: Some(id), question: text, answers: Some(answers), ctxs, extra: Map::new() }
}

/// Positives are the passages that contain gold evidence. Hard negatives are retrieved passages of other
/// pages without a gold answer. None without a positive passage.
fn training(
    store: &PassageStore,
    example: &Example,
    hits: &[(PassageId, f64)],
    path: &Path,
) -> Option<TrainingExample> {
    let mut gold_pages = FxHashSet::default();
    let mut positives: Vec<PassageId> = Vec::new();
    for item in example.gold.iter().flat_map(|output| output.evidence()) {
        let Some(page) = item.wikipedia_id.as_ref().and_then(|id| store.page_by_id(&id.text())) else {
            continue;
        };
        gold_pages.insert(page);
        for id in store.passages_of(page).map(PassageId) {
            if holds(&store.passage(id), item) && !positives.contains(&id) {
                positives.push(id);
            }
            if item.start_paragraph_id.is_none() {
                // Evidence that is a whole page means its first passage.
                break;
            }
        }
    }
    if positives.is_empty() {
        return None;
    }
    let scores: FxHashMap<PassageId, f64> = hits.iter().copied().collect();
    let answers = Answers::new(example.answers());
    let hard = hits
        .iter()
        .filter(|(id, _)| !gold_pages.contains(&store.page_of(*id)))
        .map(|&(id, score)| (store.passage(id), score))
        .filter(|(passage, _)| !answers.occur_in(&passage.text))
        .map(|(passage, score)| context(passage, Some(score)))
        .collect();
    let mut extra = Map::new();
    if let Some((dataset, _)) = dataset(path) {
        extra.insert("dataset".into(), Value::from(dataset.stem()));
    }
    Some(TrainingExample {
        question: example.query.text.clone(),
        answers: Some(example.answers().into_iter().map(str::to_owned).collect()),
        positive_ctxs: positives
            .into_iter()
            .map(|id| context(store.passage(id), scores.get(&id).copied()))
            .collect(),
        negative_ctxs: Some(Vec::new()),
        hard_negative_ctxs: Some(hard),
        extra,
    })
}

fn context(passage: Passage, score: Option<f64>) -> TrainingContext {
    TrainingContext {
        score: score.and_then(|score| Score::try_from(score).ok()),
        passage_id: Some(Id::Text(passage.id.to_string())),
        psg_id: None,
        title: passage.title,
        text: passage.text,
        extra: Map::new(),
    }
}

/// Whether evidence and passage share a character; evidence without a paragraph is the whole page, one without
/// characters the whole paragraph.
fn holds(passage: &Passage, item: &Provenance) -> bool {
    let number = |id: &Option<Id>| id.as_ref().and_then(Id::number);
    let Some(first) = number(&item.start_paragraph_id) else { return true };
    let last = number(&item.end_paragraph_id).unwrap_or(first);
    let start = (first, number(&item.start_character).unwrap_or(0));
    // FEVER's files write 0 for both ends where only the paragraph is known.
    let end = match number(&item.end_character) {
        Some(end) if (last, end) > start => (last, end),
        _ => (last, i64::MAX),
    };
    let passage_start = (i64::from(passage.start_paragraph), i64::from(passage.start_character));
    let passage_end = (i64::from(passage.end_paragraph), i64::from(passage.end_character));
    passage_start < end && start < passage_end
}

/// DPR's test of whether a passage contains an answer: the answer's tokens are consecutive in the text.
/// Tokens are runs of letters, digits and marks, or single other characters, decomposed and in lower case.
struct Answers(Vec<Vec<String>>);

impl Answers {
    fn new(answers: Vec<&str>) -> Self {
        Self(answers.into_iter().map(tokens).filter(|tokens| !tokens.is_empty()).collect())
    }

    fn occur_in(&self, text: &str) -> bool {
        let text = tokens(text);
        self.0.iter().any(|answer| text.windows(answer.len()).any(|window| window == answer))
    }
}

fn tokens(text: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut word = false;
    for letter in text.nfd().flat_map(char::to_lowercase) {
        let inside = letter.is_alphanumeric() || is_combining_mark(letter);
        match tokens.last_mut() {
            Some(last) if inside && word => last.push(letter),
            _ if letter.is_whitespace() || letter.is_control() => {}
            _ => tokens.push(letter.to_string()),
        }
        word = inside;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_match_whole_consecutive_words() {
        let answers = Answers::new(vec!["Café Noir", "3.5", ""]);
        assert!(answers.occur_in("The CAFE\u{301} noir."));
        assert!(answers.occur_in("it is 3.5 m"));
        assert!(!answers.occur_in("it is 13.5 m, a cafénoir, noir café"));
        assert!(!Answers::new(vec![""]).occur_in("anything"));
    }

    #[test]
    fn evidence_maps_to_the_passages_that_share_a_character() {
        let passage = Passage {
            page_id: "1".into(),
            start_paragraph: 1,
            start_character: 10,
            end_paragraph: 2,
            end_character: 5,
            ..Passage::of_text("")
        };
        let item = |start: (i64, i64), end: (i64, i64)| Provenance {
            start_paragraph_id: Some(start.0.into()),
            start_character: Some(start.1.into()),
            end_paragraph_id: Some(end.0.into()),
            end_character: Some(end.1.into()),
            ..Provenance::default()
        };
        for (start, end, expected) in [
            ((1, 0), (1, 10), false),
            ((1, 0), (1, 11), true),
            ((2, 4), (3, 1), true),
            ((2, 5), (2, 9), false),
            // Both ends 0: the whole paragraph.
            ((1, 0), (1, 0), true),
            ((3, 0), (3, 0), false),
        ] {
            assert_eq!(holds(&passage, &item(start, end)), expected, "{start:?} {end:?}");
        }
        assert!(holds(&passage, &Provenance::default()));
    }
}
