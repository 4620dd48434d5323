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

/// The source of relevance labels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Labels {
    /// The confidence of the annotators.
    #[default]
    Crowd,
    /// 1 for the sentence that the dialogue used, 0 for others.
    Gold,
}

/// A dialogue as a query with one turn in each line, its sentences as passages in the order of the file, and their relevance.
/// Repairs the encoding of texts. If all turns are blank, the query is the topic.
pub(super) fn graded(id: &str, dialogue: &Dialogue, labels: Labels) -> GradedQuery {
    let mut text = dialogue.turns.iter().map(|turn| repaired(turn.trim())).collect::<Vec<_>>().join("\n");
    if text.trim().is_empty() {
        text = repaired(&dialogue.topic);
    }
    let gold = dialogue.extra.get("gold_sentence").and_then(serde_json::Value::as_str).map(parts);
    let mut passages = Vec::with_capacity(dialogue.annotated_sentences.len());
    let mut targets = Vec::with_capacity(dialogue.annotated_sentences.len());
    for (at, annotated) in dialogue.annotated_sentences.iter().enumerate() {
        let (title, text) = annotated.parts();
        targets.push(match labels {
            Labels::Crowd => annotated.confidence as f32,
            Labels::Gold => {
                let is_gold = gold.as_ref().is_some_and(|(of, sentence)| {
                    if of.is_empty() {
                        // A title can precede the sentence without a separator.
                        !text.is_empty() && sentence.ends_with(&text)
                    } else {
                        (of, sentence) == (&title, &text)
                    }
                });
                f32::from(u8::from(is_gold))
            }
        });
        passages.push(Passage {
            id: PassageId(at as u32),
            page_id: annotated.article.clone().unwrap_or_else(|| title.clone()),
            title,
            ..Passage::of_text(text)
        });
    }
    GradedQuery { query: Query::of_text(id, text), passages, targets }
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
        let found = graded("d", &dialogue("x", "Caf\u{c3}\u{a9}?", None), Labels::Crowd);
        assert_eq!(found.query.text, "Café?\nb");
        assert_eq!(found.targets, [0.3, 0.8]);
        let (one, two) = (&found.passages[0], &found.passages[1]);
        assert_eq!((one.page_id.as_str(), one.title.as_str(), one.text.as_str()), ("A", "T", "One."));
        assert_eq!((two.page_id.as_str(), two.id), ("T", PassageId(1)));
    }

    #[test]
    fn the_gold_sentence_is_found_with_and_without_its_title() {
        for gold in ["Two.", "T Two.", "T <knowledge_separator> Two."] {
            let found = graded("d", &dialogue("x", "a", Some(gold)), Labels::Gold);
            assert_eq!(found.targets, [0.0, 1.0]);
        }
        let other = dialogue("x", "a", Some("Other <knowledge_separator> Two."));
        assert_eq!(graded("d", &other, Labels::Gold).targets, [0.0, 0.0]);
        assert_eq!(graded("d", &dialogue("x", "a", None), Labels::Gold).targets, [0.0, 0.0]);
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
