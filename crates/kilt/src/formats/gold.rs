//! The gold sentences and responses of Wizard of Wikipedia for WOW++'s dialogues.

use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::elements;
use crate::{
    Error, Result,
    wow::Conversation,
    wowpp::{self, Dialogue, DialogueWriter, GOLD, RESPONSE, repaired},
};

/// The counts of [`add_gold`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GoldSummary {
    /// The dialogues of the file.
    pub dialogues: usize,
    /// The dialogues that are parts of a conversation.
    pub found: usize,
    /// The dialogues whose next turn is based on a sentence.
    pub with_gold: usize,
    /// The dialogues with this sentence among the annotated ones.
    pub among_candidates: usize,
}

/// Writes the dialogues of a WOW++ file with two more fields. `response` is the wizard's next turn in Wizard of Wikipedia,
/// and `gold_sentence` is the sentence that the wizard used for it. A dialogue is found by its turns, which are the turns before
/// a wizard's turn. `inputs` are files in Wizard of Wikipedia's published layout. Of several conversations with the turns, one about
/// the dialogue's topic comes first, then one that begins with them, then the first.
/// A dialogue that is not found keeps its fields.
///
/// # Errors
/// Read and write errors; [`Error::Argument`] if no dialogue is found. Then no file appears.
pub fn add_gold(wowpp: &Path, inputs: &[PathBuf], output: &Path) -> Result<GoldSummary> {
    let mut dialogues = wowpp::load(wowpp)?;
    // The dialogues with each last turn.
    let mut by_last: FxHashMap<String, Vec<usize>> = FxHashMap::default();
    let turns: Vec<Vec<String>> = dialogues.0.iter().map(|(_, dialogue)| turns_of(dialogue)).collect();
    for (at, turns) in turns.iter().enumerate() {
        if let Some(last) = turns.last() {
            by_last.entry(last.clone()).or_default().push(at);
        }
    }
    let mut found = vec![None; turns.len()];
    for input in inputs {
        for conversation in elements::open(input)?.records::<Conversation>() {
            let (_, conversation) = conversation?;
            let texts: Vec<String> = conversation.dialog.iter().map(|turn| plain(&turn.text)).collect();
            if !texts.iter().any(|text| by_last.contains_key(text)) {
                continue;
            }
            for (turn, gold) in conversation.wizard_turns() {
                for &at in by_last.get(&texts[turn - 1]).into_iter().flatten() {
                    if !texts[..turn].ends_with(&turns[at]) {
                        continue;
                    }
                    let (_, dialogue) = &mut dialogues.0[at];
                    let fit = (dialogue.topic == conversation.chosen_topic, turn == turns[at].len());
                    if found[at].is_some_and(|known| known >= fit) {
                        continue;
                    }
                    found[at] = Some(fit);
                    let extra = &mut dialogue.extra;
                    extra.remove(GOLD);
                    extra.insert(RESPONSE.to_owned(), conversation.dialog[turn].text.clone().into());
                    if let Some(gold) = &gold {
                        extra.insert(GOLD.to_owned(), gold.clone().into());
                    }
                }
            }
        }
    }
    let count = |is: fn(&Dialogue) -> bool| dialogues.0.iter().filter(|(_, dialogue)| is(dialogue)).count();
    let summary = GoldSummary {
        dialogues: dialogues.0.len(),
        found: found.iter().flatten().count(),
        with_gold: count(|dialogue| dialogue.gold_sentence().is_some()),
        among_candidates: count(|dialogue| !dialogue.gold_places().is_empty()),
    };
    if summary.found == 0 {
        let message = format!("{}: expected dialogues of the conversations, found none", wowpp.display());
        return Err(Error::Argument(message));
    }
    let mut writer = DialogueWriter::create(output)?;
    for (id, dialogue) in &dialogues.0 {
        writer.dialogue(id, dialogue)?;
    }
    writer.finish()?;
    Ok(summary)
}

fn turns_of(dialogue: &Dialogue) -> Vec<String> {
    dialogue.turns.iter().map(|turn| plain(turn)).collect()
}

/// The words of a turn with single blanks. The files differ in blanks and in encoding.
fn plain(turn: &str) -> String {
    repaired(turn).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dialogues_get_the_gold_sentence_and_the_response_of_their_conversation() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let turn = |speaker, text, checked: serde_json::Value| {
            json!({ "speaker": speaker, "text": text, "retrieved_passages": [], "checked_sentence": checked,
                "checked_passage": { "chosen_topic_0": "Tea" } })
        };
        let conversation = json!([{ "chosen_topic": "Tea", "chosen_topic_passage": ["Tea is a drink.", "It is hot."],
            "dialog": [
                turn("0_Apprentice", "Hello.", json!(null)),
                turn("1_Wizard", "Tea is  hot.", json!({ "chosen_Tea_1": "It is hot." })),
                turn("0_Apprentice", "Oh!", json!(null)),
                turn("1_Wizard", "Yes.", json!({ "no_passages_used": "no_passages_used" })),
            ] }]);
        std::fs::write(path("train.json"), conversation.to_string()).unwrap();
        let sentences = json!([{ "label": "Tea <knowledge_separator> It is hot.", "confidence": 0.2 }]);
        let dialogue =
            |turns: &[&str]| json!({ "turns": turns, "topic": "Tea", "annotated_sentences": sentences });
        let all = json!({
            "a": dialogue(&["Hello."]),
            "b": dialogue(&["Tea is hot.", "Oh!"]),
            // The last turn is the same, the one before it is not.
            "c": dialogue(&["Milk is hot.", "Oh!"]),
            "d": dialogue(&[]),
        });
        std::fs::write(path("wowpp.json"), all.to_string()).unwrap();
        let summary = add_gold(&path("wowpp.json"), &[path("train.json")], &path("gold.json")).unwrap();
        assert_eq!(summary, GoldSummary { dialogues: 4, found: 2, with_gold: 1, among_candidates: 1 });
        let dialogues = wowpp::load(path("gold.json")).unwrap().0;
        let ids: Vec<&str> = dialogues.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c", "d"]);
        let (first, second) = (&dialogues[0].1, &dialogues[1].1);
        assert_eq!(first.gold_sentence(), Some("Tea <knowledge_separator> It is hot."));
        assert_eq!((first.response(), first.gold_places()), (Some("Tea is  hot."), vec![0]));
        assert_eq!((second.gold_sentence(), second.response()), (None, Some("Yes.")));
        assert!(dialogues[2].1.extra.is_empty() && dialogues[3].1.extra.is_empty());
    }

    #[test]
    fn a_file_of_other_dialogues_is_an_error_and_nothing_appears() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("train.json"), "[]").unwrap();
        let all = json!({ "a": { "turns": ["Hello."], "topic": "Tea", "annotated_sentences": [] } });
        std::fs::write(path("wowpp.json"), all.to_string()).unwrap();
        let error = add_gold(&path("wowpp.json"), &[path("train.json")], &path("gold.json")).unwrap_err();
        assert!(error.to_string().contains("wowpp.json: expected dialogues of the conversations"), "{error}");
        assert!(!path("gold.json").exists());
    }

    #[test]
    fn a_conversation_about_the_topic_comes_before_another_with_the_same_turns() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let conversation = |topic: &str| {
            let sentence = format!("{topic} is old.");
            let mut checked = serde_json::Map::new();
            checked.insert(format!("chosen_{topic}_0"), sentence.clone().into());
            json!({ "chosen_topic": topic, "chosen_topic_passage": [sentence], "dialog": [
                { "speaker": "0_Apprentice", "text": "Hi!", "retrieved_passages": [], "checked_sentence": null,
                    "checked_passage": null },
                { "speaker": "1_Wizard", "text": "Hello.", "retrieved_passages": [], "checked_sentence": checked,
                    "checked_passage": { "chosen_topic_0": topic } },
            ] })
        };
        let all = json!([conversation("Yoga"), conversation("Golf")]);
        std::fs::write(path("train.json"), all.to_string()).unwrap();
        let dialogue = |topic: &str| json!({ "turns": ["Hi!"], "topic": topic, "annotated_sentences": [] });
        let all = json!({ "a": dialogue("Golf"), "b": dialogue("Tea") });
        std::fs::write(path("wowpp.json"), all.to_string()).unwrap();
        add_gold(&path("wowpp.json"), &[path("train.json")], &path("gold.json")).unwrap();
        let found = wowpp::load(path("gold.json")).unwrap();
        let golds: Vec<_> = found.0.iter().map(|(_, dialogue)| dialogue.gold_sentence().unwrap()).collect();
        assert!(golds[0].contains("Golf is old.") && golds[1].contains("Yoga is old."), "{golds:?}");
    }
}
