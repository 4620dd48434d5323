//! Dialogues and sentences as queries and passages, and their folds.

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Passage, PassageId, Query,
    wowpp::{Dialogue, Dialogues, parts, repaired},
};
use sporran_reranker::training::GradedQuery;

use super::cutoff::Negatives;

/// The source of relevance labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Labels {
    /// The confidence of the annotators.
    #[default]
    Crowd,
    /// 1 for a sentence with a confidence of at least `threshold`, 0 for others.
    Relevant,
    /// 1 for the sentence that the dialogue used, 0 for others.
    Gold,
}

/// A dialogue as a query with one turn in each line, its sentences as passages in the order of the file, and the annotators'
/// confidence. Repairs the encoding of texts. If all turns are blank, the query is the topic.
pub(super) fn graded(id: &str, dialogue: &Dialogue) -> GradedQuery {
    let mut text = dialogue.turns.iter().map(|turn| repaired(turn.trim())).collect::<Vec<_>>().join("\n");
    if text.trim().is_empty() {
        text = repaired(&dialogue.topic);
    }
    let mut passages = Vec::with_capacity(dialogue.annotated_sentences.len());
    let mut targets = Vec::with_capacity(dialogue.annotated_sentences.len());
    for (at, annotated) in dialogue.annotated_sentences.iter().enumerate() {
        targets.push(annotated.confidence as f32);
        passages.push(passage(at, &annotated.label, annotated.article.as_deref()));
    }
    GradedQuery { query: Query::of_text(id, text), passages, targets }
}

/// A sentence as a passage of its article.
fn passage(at: usize, label: &str, article: Option<&str>) -> Passage {
    let (title, text) = parts(label);
    let page_id = article.map_or_else(|| title.clone(), str::to_owned);
    Passage { id: PassageId(at as u32), page_id, title, ..Passage::of_text(text) }
}

/// The gold sentence of a dialogue as a passage, also if it is not among the annotated sentences.
pub(super) fn gold_passage(dialogue: &Dialogue) -> Option<Passage> {
    let annotated = dialogue.gold_places().first().map(|&at| (at, &dialogue.annotated_sentences[at]));
    match annotated {
        Some((at, sentence)) => Some(passage(at, &sentence.label, sentence.article.as_deref())),
        None => Some(passage(dialogue.annotated_sentences.len(), dialogue.gold_sentence()?, None)),
    }
}

/// The labels of training dialogues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Labelling {
    pub(super) labels: Labels,
    /// The smallest confidence of a relevant sentence.
    pub(super) threshold: f64,
    pub(super) negatives: Negatives,
    pub(super) seed: u64,
}

impl Labelling {
    /// A training query of dialogue `place.1` in file `place.0`. `None` with gold labels if the dialogue has no gold sentence.
    pub(super) fn query(self, id: &str, dialogue: &Dialogue, place: (u32, usize)) -> Option<GradedQuery> {
        let mut query = graded(id, dialogue);
        match self.labels {
            Labels::Crowd => {}
            Labels::Relevant => {
                let sentences = &dialogue.annotated_sentences;
                let is_relevant = |at: usize| sentences[at].confidence >= self.threshold;
                query.targets = (0..sentences.len()).map(|at| f32::from(u8::from(is_relevant(at)))).collect();
            }
            Labels::Gold => self.keep_gold(&mut query, dialogue, place)?,
        }
        Some(query)
    }

    /// Labels the gold sentence, and draws the others. Each dialogue has its own random stream, so that folds and limits do not
    /// change what is drawn.
    fn keep_gold(self, query: &mut GradedQuery, dialogue: &Dialogue, place: (u32, usize)) -> Option<()> {
        let gold = gold_passage(dialogue)?;
        let places = dialogue.gold_places();
        let candidates = query.passages.len();
        let count = match self.negatives {
            Negatives::All => None,
            Negatives::Match => Some(candidates.saturating_sub(1)),
            Negatives::Count(count) => Some(count),
        };
        let Some(count) = count else {
            query.targets = (0..candidates).map(|at| f32::from(u8::from(places.contains(&at)))).collect();
            if places.is_empty() {
                query.passages.push(gold);
                query.targets.push(1.0);
            }
            return Some(());
        };
        let mut others: Vec<usize> = (0..candidates).filter(|at| !places.contains(at)).collect();
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(((u64::from(place.0) + 1) << 32) | place.1 as u64);
        others.shuffle(&mut random);
        others.truncate(count);
        others.sort_unstable();
        let mut kept = vec![(gold, 1.0)];
        kept.extend(others.into_iter().map(|at| (query.passages[at].clone(), 0.0)));
        // The order of the file; a gold sentence that is not annotated is the last.
        kept.sort_by_key(|(passage, _)| passage.id);
        (query.passages, query.targets) = kept
            .into_iter()
            .enumerate()
            .map(|(at, (passage, target))| (Passage { id: PassageId(at as u32), ..passage }, target))
            .unzip();
        Some(())
    }
}

/// The fold of each dialogue. Dialogues with the same topic and first turn are parts of one conversation, and
/// are in the same fold. The seed shuffles the conversations.
pub(super) fn folds(dialogues: &Dialogues, count: usize, seed: u64) -> Vec<usize> {
    let key =
        |dialogue: &Dialogue| (dialogue.topic.clone(), dialogue.turns.first().cloned().unwrap_or_default());
    let mut conversations: Vec<(String, String)> = dialogues.0.iter().map(|(_, d)| key(d)).collect();
    conversations.sort();
    conversations.dedup();
    let sorted = conversations.clone();
    conversations.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let mut fold_of = vec![0; sorted.len()];
    for (at, conversation) in conversations.iter().enumerate() {
        if let Ok(place) = sorted.binary_search(conversation) {
            fold_of[place] = at % count;
        }
    }
    let fold = |dialogue: &Dialogue| sorted.binary_search(&key(dialogue)).map_or(0, |place| fold_of[place]);
    dialogues.0.iter().map(|(_, dialogue)| fold(dialogue)).collect()
}

/// A random sample of `limit` of `count` indices, in ascending order.
pub(super) fn sampled(count: usize, limit: Option<usize>, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if let Some(limit) = limit {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(1);
        order.shuffle(&mut rng);
        order.truncate(limit);
        order.sort_unstable();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialogue(topic: &str, first: &str, gold: Option<&str>) -> Dialogue {
        let gold = gold.map_or_else(String::new, |gold| format!(",\"gold_sentence\":\"{gold}\""));
        let json = format!(
            r#"{{"turns":["{first}","b"],"topic":"{topic}","annotated_sentences":[
                {{"label":"T <knowledge_separator> One.","confidence":0.3,"article":"A"}},
                {{"label":"T <knowledge_separator> Two.","confidence":0.8}}]{gold}}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn a_dialogue_is_a_query_and_its_sentences_are_passages() {
        let found = graded("d", &dialogue("x", "Caf\u{c3}\u{a9}?", None));
        assert_eq!(found.query.text, "Café?\nb");
        assert_eq!(found.targets, [0.3, 0.8]);
        let (one, two) = (&found.passages[0], &found.passages[1]);
        assert_eq!((one.page_id.as_str(), one.title.as_str(), one.text.as_str()), ("A", "T", "One."));
        assert_eq!((two.page_id.as_str(), two.id), ("T", PassageId(1)));
    }

    fn labelling(labels: Labels, negatives: Negatives) -> Labelling {
        Labelling { labels, threshold: 0.8, negatives, seed: 3 }
    }

    #[test]
    fn a_sentence_is_relevant_from_the_threshold() {
        let all = labelling(Labels::Relevant, Negatives::All);
        let targets = |threshold| {
            let own = Labelling { threshold, ..all };
            own.query("d", &dialogue("x", "a", None), (0, 0)).unwrap().targets
        };
        assert_eq!(
            (targets(0.8), targets(0.3), targets(0.81)),
            (vec![0.0, 1.0], vec![1.0, 1.0], vec![0.0; 2])
        );
    }

    #[test]
    fn the_gold_sentence_is_found_with_and_without_its_title() {
        let gold =
            |gold| labelling(Labels::Gold, Negatives::All).query("d", &dialogue("x", "a", gold), (0, 0));
        for label in ["Two.", "T Two.", "T <knowledge_separator> Two."] {
            assert_eq!(gold(Some(label)).unwrap().targets, [0.0, 1.0]);
        }
        // A gold sentence that was not annotated is added.
        let other = gold(Some("Other <knowledge_separator> Two.")).unwrap();
        assert_eq!(other.targets, [0.0, 0.0, 1.0]);
        assert_eq!((other.passages[2].title.as_str(), other.passages[2].id), ("Other", PassageId(2)));
        assert_eq!(gold(None), None);
    }

    /// A dialogue of ten sentences, the first and the last equal.
    fn ten(gold: &str) -> Dialogue {
        let sentence = |at: usize| serde_json::json!({ "label": format!("T <knowledge_separator> S{}.", at % 9), "confidence": 0.1 });
        let sentences: Vec<_> = (0..10).map(sentence).collect();
        let json = serde_json::json!({ "turns": ["a"], "topic": "x", "annotated_sentences": sentences, "gold_sentence": gold });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn negatives_are_drawn_for_one_gold_sentence() {
        let draw = |gold: &str, negatives, place| {
            let found = labelling(Labels::Gold, negatives).query("d", &ten(gold), place).unwrap();
            let texts: Vec<String> = found.passages.iter().map(|passage| passage.text.clone()).collect();
            let ids: Vec<PassageId> = found.passages.iter().map(|passage| passage.id).collect();
            assert_eq!(ids, (0..texts.len() as u32).map(PassageId).collect::<Vec<_>>());
            assert_eq!(found.targets.iter().sum::<f32>(), 1.0);
            let positive = found.targets.iter().position(|target| *target == 1.0).unwrap();
            (texts, positive)
        };
        let one = Negatives::Count(1);
        let (texts, positive) = draw("T <knowledge_separator> S4.", one, (0, 5));
        assert_eq!((texts.len(), texts[positive].as_str()), (2, "S4."));
        assert_eq!(draw("T <knowledge_separator> S4.", one, (0, 5)).0, texts);
        // Other dialogues draw other sentences.
        let drawn: std::collections::BTreeSet<Vec<String>> =
            (0..20).map(|at| draw("T <knowledge_separator> S4.", one, (0, at)).0).collect();
        assert!(drawn.len() > 3, "{drawn:?}");
        // As many pairs as annotated sentences: the gold sentence and all nine others.
        let (texts, positive) = draw("T <knowledge_separator> S4.", Negatives::Match, (0, 0));
        assert_eq!((texts.len(), positive), (10, 4));
        // A copy of the gold sentence is no negative.
        let (texts, positive) = draw("T <knowledge_separator> S0.", Negatives::Match, (0, 0));
        assert_eq!((texts.len(), positive), (9, 0));
        assert_eq!(texts.iter().filter(|text| *text == "S0.").count(), 1);
        // A gold sentence that was not annotated replaces one of the ten.
        let (texts, positive) = draw("U <knowledge_separator> New.", Negatives::Match, (0, 0));
        assert_eq!((texts.len(), positive), (10, 9));
    }

    #[test]
    fn folds_are_even_follow_the_seed_and_keep_conversations_together() {
        let all: Vec<(String, Dialogue)> =
            (0..40).map(|i| (i.to_string(), dialogue(&format!("t{}", i / 2), "a", None))).collect();
        let dialogues = Dialogues(all);
        let parts = folds(&dialogues, 5, 3);
        assert_eq!(parts, folds(&dialogues, 5, 3));
        assert_ne!(parts, folds(&dialogues, 5, 4));
        for fold in 0..5 {
            // Twenty conversations of two dialogues each.
            assert_eq!(parts.iter().filter(|part| **part == fold).count(), 8);
        }
        assert!(parts.chunks(2).all(|pair| pair[0] == pair[1]));
    }

    #[test]
    fn a_limit_samples_by_the_seed() {
        assert_eq!(sampled(4, None, 1), [0, 1, 2, 3]);
        let some = sampled(100, Some(10), 1);
        assert!(some.len() == 10 && some.is_sorted() && some == sampled(100, Some(10), 1));
        assert_ne!(some, sampled(100, Some(10), 2));
    }
}
