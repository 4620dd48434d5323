//! Wizard of Wikipedia as its authors give it (Dinan et al., 2019): conversations in which one speaker, the wizard, sees
//! sentences of articles and says which of them a turn is made from.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use serde::Deserialize;
use serde_json::Map;

use crate::wowpp::{Dialogue, Judged, SEPARATOR};

/// What stands in the place of a sentence where a turn is made from none.
const NONE_USED: &str = "no_passages_used";

/// Articles' sentences by title; the files have one article an object.
type Passages = Vec<BTreeMap<String, Vec<String>>>;

/// A conversation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Conversation {
    /// The title of the article that it is about.
    pub chosen_topic: String,
    /// The sentences of that article, which the wizard sees all along.
    pub chosen_topic_passage: Vec<String>,
    /// What was said, oldest first.
    pub dialog: Vec<Turn>,
}

/// What one of the two says.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Turn {
    /// Who: `0_Wizard`, `1_Apprentice` and the like.
    pub speaker: String,
    /// What.
    pub text: String,
    /// What a search for the text found; the wizard sees it from the next turn on.
    pub retrieved_passages: Passages,
    /// The sentence that the wizard's text is made from, under a name of its place; nothing where it is made from none.
    #[serde(default)]
    pub checked_sentence: Option<BTreeMap<String, String>>,
    /// The title of that sentence's article, under a name of its place.
    #[serde(default)]
    pub checked_passage: Option<BTreeMap<String, String>>,
}

impl Turn {
    fn is_wizards(&self) -> bool {
        self.speaker.contains("Wizard")
    }

    fn checked(&self) -> Option<&str> {
        let sentence = self.checked_sentence.as_ref()?.values().next()?.as_str();
        (!sentence.is_empty() && sentence != NONE_USED).then_some(sentence)
    }
}

/// What the wizard's turns of a conversation come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selections {
    /// For each turn of the wizard's that follows another turn and is made from a sentence: its number in the conversation,
    /// counted from 0, and the choice that was made there.
    pub dialogues: Vec<(usize, Dialogue)>,
    /// Turns that open a conversation or are made from no sentence.
    pub without: u64,
    /// Turns that are made from a sentence that was not shown.
    pub not_shown: u64,
}

impl Conversation {
    /// The choices of sentences that the wizard made, in WOW++'s layout: the turns before, every sentence that was shown,
    /// the one that was used with a confidence of 1 and as `gold_sentence`, the others with 0.
    ///
    /// Shown are the topic's sentences and what was found for the two turns before, each article once, as in the authors'
    /// own teacher of knowledge selection.
    pub fn selections(&self) -> Selections {
        let mut selections = Selections::default();
        for (at, turn) in self.dialog.iter().enumerate().filter(|(_, turn)| turn.is_wizards()) {
            let Some(used) = turn.checked().filter(|_| at > 0) else {
                selections.without += 1;
                continue;
            };
            let shown: Vec<(&str, &str)> = self.shown(at).collect();
            // Articles can share a sentence, and not every one that is named as checked was shown.
            let article = turn.checked_passage.as_ref().and_then(|titles| titles.values().next());
            let by_title =
                shown.iter().find(|place| place.1 == used && article.is_some_and(|it| it == place.0));
            let Some(&gold) = by_title.or_else(|| shown.iter().find(|place| place.1 == used)) else {
                selections.not_shown += 1;
                continue;
            };
            let dialogue = Dialogue {
                turns: self.dialog[..at].iter().map(|turn| turn.text.clone()).collect(),
                topic: self.chosen_topic.clone(),
                annotated_sentences: shown.iter().map(|&place| judged(place, place == gold)).collect(),
                extra: Map::from_iter([("gold_sentence".to_owned(), label(gold).into())]),
            };
            selections.dialogues.push((at, dialogue));
        }
        selections
    }

    /// Titles and sentences that the wizard sees when it is their turn at a place.
    fn shown(&self, at: usize) -> impl Iterator<Item = (&str, &str)> {
        let topic = std::iter::once((self.chosen_topic.as_str(), self.chosen_topic_passage.as_slice()));
        let before = self.dialog[at.saturating_sub(2)..at].iter().rev();
        let found = before
            .flat_map(|turn| &turn.retrieved_passages)
            .flatten()
            .map(|(title, sentences)| (title.as_str(), sentences.as_slice()));
        let mut titles = FxHashSet::default();
        topic
            .chain(found)
            .filter(move |(title, _)| titles.insert(*title))
            .flat_map(|(title, sentences)| sentences.iter().map(move |sentence| (title, sentence.as_str())))
    }
}

fn label((title, sentence): (&str, &str)) -> String {
    format!("{title} {SEPARATOR} {sentence}")
}

fn judged(place: (&str, &str), used: bool) -> Judged {
    Judged {
        label: label(place),
        confidence: f64::from(u8::from(used)),
        relevance: Some(if used { "relevant" } else { "notRelevant" }.to_owned()),
        article: Some(place.0.to_owned()),
        extra: Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(json: serde_json::Value) -> Conversation {
        serde_json::from_value(json).unwrap()
    }

    /// The turn, the labels with their confidences, and the one that was used.
    type Choice<'s> = (usize, Vec<(&'s str, f64)>, &'s str);

    fn told(selections: &Selections) -> Vec<Choice<'_>> {
        let each = selections.dialogues.iter().map(|(at, dialogue)| {
            let sentences = dialogue.annotated_sentences.iter();
            let gold = dialogue.extra["gold_sentence"].as_str().unwrap();
            (*at, sentences.map(|it| (it.label.as_str(), it.confidence)).collect(), gold)
        });
        each.collect()
    }

    #[test]
    fn a_wizards_turn_is_a_choice_among_what_was_shown_before_it() {
        let conversation = conversation(serde_json::json!({
            "chosen_topic": "Tea", "persona": "i like tea", "wizard_eval": 5,
            "chosen_topic_passage": ["Tea is a drink.", "It is hot."],
            "dialog": [
                {"speaker": "0_Wizard", "text": "I like tea.", "retrieved_topics": ["Milk"],
                 "retrieved_passages": [{"Milk": ["Milk is white.", "It is hot."]}],
                 "checked_sentence": {"chosen_Tea_0": "Tea is a drink."}, "checked_passage": {"chosen_topic_0": "Tea"}},
                {"speaker": "1_Apprentice", "text": "With milk?", "retrieved_topics": ["Cow", "Milk"],
                 "retrieved_passages": [{"Cow": ["A cow eats."]}, {"Milk": ["Milk is wet."]}]},
                {"speaker": "0_Wizard", "text": "Hot milk.", "retrieved_topics": [], "retrieved_passages": [],
                 "checked_sentence": {"self_Milk_1": "It is hot."}, "checked_passage": {"self_0": "Milk"}},
                {"speaker": "1_Apprentice", "text": "Good.", "retrieved_topics": [], "retrieved_passages": []},
                {"speaker": "0_Wizard", "text": "Hot.", "retrieved_topics": [], "retrieved_passages": [],
                 "checked_sentence": {"self_Milk_1": "It is hot."}, "checked_passage": {"self_0": "Milk"}},
                {"speaker": "1_Apprentice", "text": "Bye.", "retrieved_topics": [], "retrieved_passages": []},
                {"speaker": "0_Wizard", "text": "Bye!", "retrieved_topics": [], "retrieved_passages": [],
                 "checked_sentence": {"no_passages_used": "no_passages_used"}, "checked_passage": {}},
                {"speaker": "0_Wizard", "text": "Moo.", "retrieved_topics": [], "retrieved_passages": [],
                 "checked_sentence": {"partner_Cow_0": "A cow eats."}, "checked_passage": {"partner_0": "Cow"}}
            ]
        }));
        let selections = conversation.selections();
        // What the later of the two turns found comes first; its Milk stands for that of the earlier one, where the sentence
        // that was used does not stand, so it is the topic's.
        let tea = [
            ("Tea <knowledge_separator> Tea is a drink.", 0.0),
            ("Tea <knowledge_separator> It is hot.", 1.0),
        ];
        let both = [
            tea[0],
            tea[1],
            ("Cow <knowledge_separator> A cow eats.", 0.0),
            ("Milk <knowledge_separator> Milk is wet.", 0.0),
        ];
        assert_eq!(
            told(&selections),
            [(2, both.to_vec(), tea[1].0), (4, both.to_vec()[..2].to_vec(), tea[1].0)]
        );
        assert_eq!((selections.without, selections.not_shown), (2, 1));
        let (_, first) = &selections.dialogues[0];
        assert_eq!(first.turns, ["I like tea.", "With milk?"]);
        assert_eq!(first.topic, "Tea");
        assert_eq!(first.annotated_sentences[1].relevance.as_deref(), Some("relevant"));
    }

    #[test]
    fn of_two_articles_with_the_same_sentence_the_one_that_is_named_was_used() {
        let conversation = conversation(serde_json::json!({
            "chosen_topic": "Tea", "chosen_topic_passage": ["It is hot."],
            "dialog": [
                {"speaker": "0_Apprentice", "text": "Milk?", "retrieved_passages": [{"Milk": ["It is hot."]}]},
                {"speaker": "1_Wizard", "text": "Hot.", "retrieved_passages": [],
                 "checked_sentence": {"partner_Milk_0": "It is hot."}, "checked_passage": {"partner_0": "Milk"}}
            ]
        }));
        let both = vec![
            ("Tea <knowledge_separator> It is hot.", 0.0),
            ("Milk <knowledge_separator> It is hot.", 1.0),
        ];
        assert_eq!(told(&conversation.selections()), [(1, both, "Milk <knowledge_separator> It is hot.")]);
    }
}
