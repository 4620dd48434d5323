//! Wizard of Wikipedia (Dinan et al. 2019).

use std::collections::{BTreeMap, BTreeSet};

use super::Layout;
use crate::{
    Error, Result, Split, jsonl,
    mapping::{
        own::{Claim, Own, Piece},
        source::{Source, Take},
    },
    wow::Conversation,
};

/// An array of conversations. A turn of the wizard that follows another turn and is based on a sentence is a record:
/// the turns before it are the input, one a line. Turns without a sentence are skipped.
///
/// The option `topics` is the dataset's `topic_splits.json`. Then only the conversations about the topics of the split
/// are read, so that `data.json` gives the unseen split. Without it, all conversations are read, as of
/// `valid_topic_split.json` and `test_topic_split.json`.
pub(super) const LAYOUT: Layout = Layout {
    name: "wow",
    about: "Wizard of Wikipedia: *_topic_split.json and train.json, or data.json with --topics topic_splits.json",
    options: &["topics"],
    read,
};

/// The topics of a split.
fn topics(source: &Source<'_>) -> Result<Option<BTreeSet<String>>> {
    let Some(path) = &source.options.topics else { return Ok(None) };
    let name = match source.split {
        Split::Train => "train",
        Split::Dev => "valid",
        Split::Test => "test",
    };
    let mut topics: BTreeMap<String, BTreeSet<String>> = jsonl::read_json(path)?;
    let found = topics.remove(name);
    let missing =
        || Error::record(path, 1, name, "expected a list of topics under this key, found no such key");
    found.ok_or_else(missing).map(Some)
}

fn read(source: &Source<'_>, take: &mut Take<'_>) -> Result<()> {
    let topics = topics(source)?;
    let mut number = 0u64;
    let mut convert = |conversation: Conversation| {
        let at = number;
        number += 1;
        if topics.as_ref().is_some_and(|topics| !topics.contains(&conversation.chosen_topic)) {
            return Vec::new();
        }
        let turns = &conversation.dialog;
        let record = |turn: usize| {
            let (title, sentence) = turns[turn].based_on().filter(|_| turn > 0)?;
            let before: Vec<&str> = turns[..turn].iter().map(|turn| turn.text.as_str()).collect();
            let evidence = vec![vec![Piece::text(title, sentence)]];
            let claim = Claim::of_answers(vec![turns[turn].text.clone()], evidence);
            Some(Own::new(format!("{at}:{turn}"), before.join("\n"), vec![claim]))
        };
        (0..turns.len()).filter(|&turn| turns[turn].is_wizards()).map(record).collect()
    };
    source.elements(None, |_, conversation| Ok(convert(conversation)), take)
}

#[cfg(test)]
mod tests {
    use super::{
        super::testing::{claim, dev, read as read_all},
        *,
    };
    use crate::mapping::options::LayoutOptions;

    const DATA: &str = r#"[{"chosen_topic":"Tea","persona":"p","wizard_eval":5,"chosen_topic_passage":["Tea is a drink."],"dialog":[
        {"speaker":"0_Wizard","text":"I like tea.","retrieved_topics":[],"retrieved_passages":[],
         "checked_sentence":{"chosen_Tea_0":"Tea is a drink."},"checked_passage":{"chosen_topic_0":"Tea"}},
        {"speaker":"1_Apprentice","text":"With milk?","retrieved_topics":["Cow milk"],"retrieved_passages":[{"Cow milk":["Milk is white."]}]},
        {"speaker":"0_Wizard","text":"It is white.","retrieved_topics":[],"retrieved_passages":[],
         "checked_sentence":{"partner_Cow_milk_0":"Milk is white."},"checked_passage":{"partner_0":"Cow milk"}},
        {"speaker":"1_Apprentice","text":"Bye.","retrieved_topics":[],"retrieved_passages":[]},
        {"speaker":"0_Wizard","text":"Bye!","retrieved_topics":[],"retrieved_passages":[],
         "checked_sentence":{"no_passages_used":"no_passages_used"},"checked_passage":{"no_passages_used":"no_passages_used"}}]},
      {"chosen_topic":"Chess","persona":"p","wizard_eval":5,"chosen_topic_passage":[],"dialog":[
        {"speaker":"0_Apprentice","text":"Chess?","retrieved_topics":[],"retrieved_passages":[]},
        {"speaker":"1_Wizard","text":"A game.","retrieved_topics":[],"retrieved_passages":[],
         "checked_sentence":{"chosen_Fast_chess_3":"Chess is a game."},"checked_passage":{}}]}]"#;

    #[test]
    fn turns_with_a_sentence_are_records() {
        let white = claim("It is white.", &[&["Cow milk|Milk is white."]]);
        // The title is in the key of the sentence.
        let game = claim("A game.", &[&["Fast chess|Chess is a game."]]);
        assert_eq!(
            dev(LAYOUT, DATA).unwrap(),
            [
                None,
                Some(Own::new("0:2", "I like tea.\nWith milk?", vec![white])),
                None,
                Some(Own::new("1:1", "Chess?", vec![game])),
            ]
        );
    }

    #[test]
    fn a_split_has_the_conversations_about_its_topics() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("topic_splits.json");
        jsonl::write(&path, br#"{"train":["Milk"],"valid":["Tea"],"test":["Chess","Go"]}"#).unwrap();
        let options = LayoutOptions { topics: Some(path.clone()), ..LayoutOptions::default() };
        let ids = |split| {
            let found = read_all(LAYOUT, &[DATA], split, &options).unwrap();
            found.into_iter().flatten().map(|own| own.id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(ids(Split::Dev), ["0:2"]);
        assert_eq!(ids(Split::Test), ["1:1"]);
        assert!(ids(Split::Train).is_empty());
        jsonl::write(&path, br#"{"train":[]}"#).unwrap();
        let message = read_all(LAYOUT, &[DATA], Split::Dev, &options).unwrap_err().to_string();
        assert!(
            message.contains("topic_splits.json:1: field `valid`: expected a list of topics"),
            "{message}"
        );
    }

    #[test]
    fn wrong_fields_are_named() {
        let message = dev(LAYOUT, "[\n{\"chosen_topic\":\"Tea\",\"chosen_topic_passage\":[],\"dialog\":[{\"speaker\":\"0_Wizard\"}]}]")
            .unwrap_err()
            .to_string();
        assert!(message.contains("in0:2: field `[0].dialog[0]`: missing field `text`"), "{message}");
    }
}
