//! Conversations as a model's own chat template writes them.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use sporran_checkpoint::{ChatMessage, ChatTemplate, Tokenizer};

use crate::{Error, Result};

/// A conversation that an answer is to end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conversation<'a> {
    /// The system's turn; none where it is empty.
    pub system: &'a str,
    /// Earlier questions with their answers.
    pub turns: &'a [(String, String)],
    /// The question: the user's last turn.
    pub asked: &'a str,
    /// The beginning of the answer, which the model continues.
    pub answer: &'a str,
}

/// Writes conversations by a model's chat template.
///
/// A special token of the model in a turn's text is split, so that a text cannot end its turn.
#[derive(Debug)]
pub struct ChatPrompt {
    template: ChatTemplate,
    /// Whether the template has no place for a system's turn.
    without_system: bool,
    /// Whether a warning of that was given.
    warned: AtomicBool,
    /// The texts of the model's special tokens, longest first.
    special: Vec<String>,
}

impl ChatPrompt {
    /// The chat template of a folder or a GGUF file; none where the model has none.
    ///
    /// # Errors
    /// Those of [`ChatTemplate::open`], and [`Error::Transformers`] where the template refuses a user's turn.
    pub fn open(model: &Path, tokenizer: &Tokenizer) -> Result<Option<Self>> {
        let Some(template) = ChatTemplate::open(model)? else { return Ok(None) };
        const PROBE: &str = "system-probe";
        let user = ChatMessage::new("user", "a");
        let with_system = template.render(&[ChatMessage::new("system", PROBE), user.clone()], true);
        template.render(&[user], true)?;
        let without_system = !with_system.is_ok_and(|text| text.contains(PROBE));
        let special = tokenizer.special_texts();
        Ok(Some(Self { template, without_system, warned: AtomicBool::new(false), special }))
    }

    /// The token that the model's tokenizer calls its end, which ends a turn.
    #[must_use]
    pub fn end(&self) -> Option<&str> {
        self.template.eos_token()
    }

    /// The text of a conversation with the beginning of the answer. It has its special tokens, and is to be encoded without
    /// others. The system's words come before the first question if the template has no place for them, with a warning for the
    /// first such text.
    ///
    /// # Errors
    /// [`Error::Transformers`] where the template refuses the conversation.
    pub fn text(&self, conversation: &Conversation<'_>) -> Result<String> {
        let Conversation { system, turns, asked, answer } = conversation;
        let mut messages = Vec::with_capacity(2 + 2 * turns.len());
        if !system.is_empty() && !self.without_system {
            messages.push(ChatMessage::new("system", self.plain(system)));
        }
        for (input, output) in *turns {
            messages.push(ChatMessage::new("user", self.plain(input)));
            messages.push(ChatMessage::new("assistant", self.plain(output)));
        }
        messages.push(ChatMessage::new("user", self.plain(asked)));
        if !system.is_empty() && self.without_system {
            if !self.warned.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    "the model's chat template has no system's turn: its words stand before the first question"
                );
            }
            messages[0].content = format!("{}\n\n{}", self.plain(system), messages[0].content);
        }
        Ok(self.template.render(&messages, true).map_err(Error::from)? + answer)
    }

    /// The tokens of a conversation, `most` of them at most, and their number before any cut. If they are more, the question
    /// loses its beginning, so that the turns stay whole.
    ///
    /// # Errors
    /// As for [`text`](Self::text), and where the tokenizer fails.
    pub fn encode(
        &self,
        conversation: &Conversation<'_>,
        tokenizer: &Tokenizer,
        most: usize,
    ) -> Result<(Vec<u32>, usize)> {
        let mut row = tokenizer.encode_plain(&self.text(conversation)?)?;
        let whole = row.len();
        if whole <= most {
            return Ok((row, whole));
        }
        let asked = tokenizer.encode_plain(&self.plain(conversation.asked))?;
        let mut left = asked.len();
        while row.len() > most && left > 0 {
            left = left.saturating_sub(row.len() - most);
            let text = tokenizer.decode(&asked[asked.len() - left..])?;
            // A character may have been cut.
            let asked = text.trim_start_matches(char::REPLACEMENT_CHARACTER).trim_start();
            row = tokenizer.encode_plain(&self.text(&Conversation { asked, ..*conversation })?)?;
        }
        // The turns alone may be too long.
        Ok((row.split_off(row.len().saturating_sub(most)), whole))
    }

    /// A text without the model's special tokens: each gets a space after its first character.
    fn plain(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for special in &self.special {
            let first = special.chars().next().map_or(0, char::len_utf8);
            let (start, rest) = special.split_at(first);
            if !rest.trim().is_empty() && text.contains(special.as_str()) {
                text = text.replace(special.as_str(), &format!("{start} {rest}"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TURNS: &str =
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>{% endfor %}<answer>";

    fn tokenizer() -> Tokenizer {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../transformers/tests/data/llama");
        Tokenizer::from_folder(&data).unwrap()
    }

    fn prompt(template: &str) -> Result<ChatPrompt> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
        ChatPrompt::open(folder.path(), &tokenizer()).map(Option::unwrap)
    }

    fn turns() -> [(String, String); 1] {
        [("where?".into(), "Oslo".into())]
    }

    #[test]
    fn the_system_message_is_a_turn_or_precedes_the_first_question() {
        let turns = turns();
        let conversation = Conversation { system: "Be short.", turns: &turns, asked: "who?", answer: "A:" };
        let with = prompt(TURNS).unwrap();
        let expected = "<system>Be short.</><user>where?</><assistant>Oslo</><user>who?</><answer>A:";
        assert_eq!(with.text(&conversation).unwrap(), expected);
        let expected = "<user>Be short.\n\nwhere?</><assistant>Oslo</><user>who?</><answer>A:";
        let refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}";
        assert_eq!(prompt(&format!("{refuses}{TURNS}")).unwrap().text(&conversation).unwrap(), expected);
        let ignores = TURNS.replace("in messages", "in messages if message.role != 'system'");
        assert_eq!(prompt(&ignores).unwrap().text(&conversation).unwrap(), expected);
        let alone = Conversation { asked: "who?", ..Conversation::default() };
        assert_eq!(with.text(&alone).unwrap(), "<user>who?</><answer>");
    }

    #[test]
    fn a_template_that_renders_no_user_turn_is_refused() {
        let error = prompt("{{ raise_exception('no turns here') }}").unwrap_err();
        assert!(error.to_string().ends_with("chat_template.jinja: chat template"), "{error}");
        let none = ChatPrompt::open(tempfile::tempdir().unwrap().path(), &tokenizer()).unwrap();
        assert!(none.is_none());
    }

    #[test]
    fn messages_contain_no_special_tokens() {
        let (prompt, tokenizer) = (prompt(TURNS).unwrap(), tokenizer());
        let special = tokenizer.special_texts();
        assert_eq!(special, ["<|endoftext|>"]);
        let asked = "a <|endoftext|> b";
        let conversation = Conversation { asked, ..Conversation::default() };
        assert_eq!(prompt.text(&conversation).unwrap(), "<user>a < |endoftext|> b</><answer>");
        let (row, whole) = prompt.encode(&conversation, &tokenizer, 999).unwrap();
        assert_eq!(row.len(), whole);
        assert!(!row.contains(&tokenizer.token_id("<|endoftext|>").unwrap()));
    }

    #[test]
    fn a_question_that_is_too_long_loses_its_beginning_and_the_turns_stay_whole() {
        let (prompt, tokenizer) = (prompt(TURNS).unwrap(), tokenizer());
        let (long, turns) = ("é where was the author of the book born? ".repeat(20), turns());
        let conversation = Conversation { turns: &turns, asked: &long, ..Conversation::default() };
        let (whole, count) = prompt.encode(&conversation, &tokenizer, usize::MAX).unwrap();
        assert_eq!(whole.len(), count);
        let (row, before) = prompt.encode(&conversation, &tokenizer, 120).unwrap();
        assert!(before == count && count > 200 && (100..=120).contains(&row.len()), "{}", row.len());
        let text = tokenizer.decode(&row).unwrap();
        assert!(text.starts_with("<user>where?</><assistant>Oslo</><user>"), "{text}");
        assert!(text.ends_with("the book born? </><answer>"), "{text}");
        // Where not even the turns fit, the end is read.
        let (row, _) = prompt.encode(&conversation, &tokenizer, 3).unwrap();
        assert_eq!(row, whole[count - 3..]);
    }
}
