//! Wizard of Wikipedia's conversations into WOW++'s layout.

use super::{Noun, Request, Summary, not_empty};
use crate::{
    Result,
    formats::elements,
    wow::{Conversation, Selections},
    wowpp::DialogueWriter,
};

/// A choice a record; its id is the number of the conversation among all of the inputs and that of the turn in it.
pub(super) fn convert(request: &Request) -> Result<Summary> {
    let mut summary = Summary::new(Noun::Dialogues);
    let mut output = DialogueWriter::create(&request.output)?;
    let mut conversations = 0;
    for input in &request.inputs {
        for conversation in elements::open(input)?.records::<Conversation>() {
            let Selections { dialogues, without, not_shown } = conversation?.1.selections();
            summary.read += dialogues.len() as u64 + without + not_shown;
            summary.written += dialogues.len() as u64;
            summary.left_out += without;
            summary.unresolved += not_shown;
            for (turn, dialogue) in dialogues {
                output.dialogue(&format!("{conversations}_{turn}"), &dialogue)?;
            }
            conversations += 1;
        }
    }
    let summary = not_empty(request, summary)?;
    output.finish()?;
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        formats::convert::{Format, convert},
        wowpp,
    };

    fn request(folder: &std::path::Path, conversations: &serde_json::Value) -> Request {
        let input = folder.join("train.json");
        std::fs::write(&input, serde_json::to_string_pretty(conversations).unwrap()).unwrap();
        Request {
            from: Format::Wow,
            to: Format::Wowpp,
            inputs: vec![input.clone(), input],
            output: folder.join("wow.json"),
            store: None,
            run: None,
            mapping: None,
            triviaqa: Vec::new(),
        }
    }

    fn conversations() -> serde_json::Value {
        let turn = |speaker, text, checked: serde_json::Value| json!({"speaker": speaker, "text": text, "retrieved_passages": [], "checked_sentence": checked});
        json!([
            {"chosen_topic": "Tea", "chosen_topic_passage": ["Tea is a drink.", "It is hot."], "dialog": [
                turn("0_Apprentice", "Hello.", json!(null)),
                turn("1_Wizard", "Tea is hot.", json!({"chosen_Tea_1": "It is hot."})),
                turn("0_Apprentice", "Oh!", json!(null)),
                turn("1_Wizard", "Yes.", json!({})),
            ]},
            {"chosen_topic": "Milk", "chosen_topic_passage": ["Milk is white."], "dialog": [
                turn("0_Apprentice", "Milk?", json!(null)),
                turn("1_Wizard", "White.", json!({"chosen_Milk_0": "Milk is white."})),
                turn("1_Wizard", "Wet.", json!({"chosen_Milk_0": "Milk is wet."})),
            ]},
        ])
    }

    #[test]
    fn every_choice_of_every_file_is_a_dialogue_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let request = request(folder.path(), &conversations());
        let summary = convert(&request).unwrap();
        assert_eq!((summary.read, summary.written, summary.left_out, summary.unresolved), (8, 4, 2, 2));
        let dialogues = wowpp::load(&request.output).unwrap().0;
        let ids: Vec<&str> = dialogues.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["0_1", "1_1", "2_1", "3_1"]);
        let (_, first) = &dialogues[0];
        assert_eq!(first.extra["gold_sentence"], "Tea <knowledge_separator> It is hot.");
        let relevant: Vec<bool> = first.annotated_sentences.iter().map(|it| it.is_relevant()).collect();
        assert_eq!(relevant, [false, true]);
    }

    #[test]
    fn a_wrong_conversation_is_named_and_nothing_appears() {
        let folder = tempfile::tempdir().unwrap();
        let mut wrong = conversations();
        wrong[1]["dialog"][1]["checked_sentence"]["chosen_Milk_0"] = json!(3);
        let request = request(folder.path(), &wrong);
        let message = convert(&request).unwrap_err().to_string();
        assert!(message.contains("[1].dialog[1].checked_sentence.chosen_Milk_0"), "{message}");
        assert!(!request.output.exists());
        std::fs::write(&request.inputs[0], "[]").unwrap();
        let message = convert(&request).unwrap_err().to_string();
        assert!(message.contains("dialogue"), "{message}");
        assert!(!request.output.exists());
    }
}
