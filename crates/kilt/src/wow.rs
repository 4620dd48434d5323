//! Wizard of Wikipedia in its published layout (Dinan et al., 2019). In a conversation, one speaker, the
//! wizard, sees sentences of articles and marks the one that a turn is based on.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use serde::Deserialize;
use serde_json::Map;

use crate::wowpp::{AnnotatedSentence, Dialogue, GOLD, NONE_USED, RESPONSE, SEPARATOR};

/// Articles' sentences by title; the files have one article an object.
type Passages = Vec<BTreeMap<String, Vec<String>>>;

/// A conversation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Conversation {
    /// The title of its article.
    pub chosen_topic: String,
    /// The sentences of that article, which the wizard always sees.
    pub chosen_topic_passage: Vec<String>,
    /// The turns, oldest first.
    pub dialog: Vec<Turn>,
}

/// A turn of either speaker.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Turn {
    /// The speaker: `0_Wizard`, `1_Apprentice` and the like.
    pub speaker: String,
    /// The text.
    pub text: String,
    /// The passages retrieved for the text; the wizard sees them from the next turn on.
    pub retrieved_passages: Passages,
    /// The sentence that the wizard's text is based on, under a key; empty if none.
    #[serde(default)]
    pub checked_sentence: Option<BTreeMap<String, String>>,
    /// The title of that sentence's article, under a key.
    #[serde(default)]
    pub checked_passage: Option<BTreeMap<String, String>>,
}

impl Turn {
    /// Whether the wizard speaks.
    pub fn is_wizards(&self) -> bool {
        self.speaker.contains("Wizard")
    }

    /// The title of an article and its sentence that the turn is based on. None if it is based on none.
    ///
    /// Where the turn does not name the article, the sentence's key does, as in `partner_Cow_milk_0`.
    pub fn based_on(&self) -> Option<(String, &str)> {
        let sentence = self.checked()?;
        let named = self.checked_passage.as_ref().and_then(|titles| titles.values().next());
        if let Some(title) = named.filter(|title| !title.is_empty() && *title != NONE_USED) {
            return Some((title.clone(), sentence));
        }
        let key = self.checked_sentence.as_ref()?.keys().next()?;
        let (_, rest) = key.split_once('_')?;
        let (title, _) = rest.rsplit_once('_')?;
        Some((title.replace('_', " "), sentence))
    }

    fn checked(&self) -> Option<&str> {
        let sentence = self.checked_sentence.as_ref()?.values().next()?.as_str();
        (!sentence.is_empty() && sentence != NONE_USED).then_some(sentence)
    }

    /// The title and the sentence among those shown that the text is based on. Articles may share a sentence, and some
    /// checked articles were not shown.
    fn place_of<'s>(&self, used: &str, shown: &[(&'s str, &'s str)]) -> Option<(&'s str, &'s str)> {
        let article = self.checked_passage.as_ref().and_then(|titles| titles.values().next());
        let by_title = shown.iter().find(|place| place.1 == used && article.is_some_and(|it| it == place.0));
        by_title.or_else(|| shown.iter().find(|place| place.1 == used)).copied()
    }
}

/// The knowledge selections of the wizard in a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selections {
    /// The wizard's turns that follow another turn and are based on a sentence: the index in the
    /// conversation, from 0, and the choice.
    pub dialogues: Vec<(usize, Dialogue)>,
    /// Turns that open a conversation or are based on no sentence.
    pub without: u64,
    /// Turns based on a sentence that was not shown.
    pub not_shown: u64,
}

impl Conversation {
    /// The wizard's choices of sentences in WOW++'s layout: the previous turns and all shown sentences. The
    /// chosen one has a confidence of 1 and is `gold_sentence`; the others have 0. The wizard's text is `response`.
    ///
    /// The topic's sentences and the passages retrieved for the two previous turns are shown, each article
    /// once, as in the authors' knowledge-selection task.
    pub fn selections(&self) -> Selections {
        let mut selections = Selections::default();
        for (at, turn) in self.dialog.iter().enumerate().filter(|(_, turn)| turn.is_wizards()) {
            let Some(used) = turn.checked().filter(|_| at > 0) else {
                selections.without += 1;
                continue;
            };
            let shown: Vec<(&str, &str)> = self.shown(at).collect();
            let Some(gold) = turn.place_of(used, &shown) else {
                selections.not_shown += 1;
                continue;
            };
            let dialogue = Dialogue {
                turns: self.dialog[..at].iter().map(|turn| turn.text.clone()).collect(),
                topic: self.chosen_topic.clone(),
                annotated_sentences: shown.iter().map(|&place| annotated(place, place == gold)).collect(),
                extra: Map::from_iter([
                    (GOLD.to_owned(), label(gold).into()),
                    (RESPONSE.to_owned(), turn.text.clone().into()),
                ]),
            };
            selections.dialogues.push((at, dialogue));
        }
        selections
    }

    /// The wizard's turns that follow another turn: the index in the conversation, and the label of the sentence that the
    /// turn is based on, shown or not. A sentence of an unknown article has no title.
    pub(crate) fn wizard_turns(&self) -> impl Iterator<Item = (usize, Option<String>)> {
        let turns = self.dialog.iter().enumerate().filter(|(at, turn)| *at > 0 && turn.is_wizards());
        turns.map(|(at, turn)| {
            let gold = turn.checked().map(|used| {
                let shown: Vec<(&str, &str)> = self.shown(at).collect();
                let article = turn.checked_passage.as_ref().and_then(|titles| titles.values().next());
                let place = turn.place_of(used, &shown).or_else(|| Some((article?.as_str(), used)));
                place.map_or_else(|| used.to_owned(), label)
            });
            (at, gold)
        })
    }

    /// Titles and sentences that the wizard sees at a turn.
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

fn annotated(place: (&str, &str), used: bool) -> AnnotatedSentence {
    AnnotatedSentence {
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

    /// The turn, the labels with their confidences, and the chosen one.
    type Choice<'s> = (usize, Vec<(&'s str, f64)>, &'s str);

    fn choices(selections: &Selections) -> Vec<Choice<'_>> {
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
        // The passages of the later turn come first, and its Milk replaces that of the earlier one. It lacks
        // the chosen sentence, so that is the topic's.
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
            choices(&selections),
            [(2, both.to_vec(), tea[1].0), (4, both.to_vec()[..2].to_vec(), tea[1].0)]
        );
        assert_eq!((selections.without, selections.not_shown), (2, 1));
        let (_, first) = &selections.dialogues[0];
        assert_eq!(first.turns, ["I like tea.", "With milk?"]);
        assert_eq!((first.topic.as_str(), first.response()), ("Tea", Some("Hot milk.")));
        let turns: Vec<(usize, Option<String>)> = conversation.wizard_turns().collect();
        // The article of the last turn's sentence was not shown.
        let cow = "Cow <knowledge_separator> A cow eats.";
        let gold = |label: &str| Some(label.to_owned());
        assert_eq!(turns, [(2, gold(tea[1].0)), (4, gold(tea[1].0)), (6, None), (7, gold(cow))]);
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
        assert_eq!(choices(&conversation.selections()), [(1, both, "Milk <knowledge_separator> It is hot.")]);
    }
}
