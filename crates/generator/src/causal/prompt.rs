//! The text and the tokens that a decoder-only model continues.

use std::{borrow::Cow, path::Path};

use sporran_checkpoint::Tokenizer;
use sporran_transformers::{CausalLm, GenerationOptions};

use super::options::{CausalOptions, Chat};
use crate::{
    ChatPrompt, Conversation, Demonstration, Error, Prompt, Request, Result,
    in_context::{Turn, instruction, lines, quoted, turns},
    text::{NEW_TOKENS, prompt_room},
};

/// Writes prompts, the same in training and in a run.
pub(super) struct CausalPrompt {
    prompt: Prompt,
    tokenizer: Tokenizer,
    /// Tokens of a prompt, at most.
    most: usize,
    /// Tokens of a prompt with examples, at most.
    pub(super) room: usize,
    /// The model's own template, where turns are marked by it.
    template: Option<ChatPrompt>,
    options: CausalOptions,
}

impl CausalPrompt {
    /// The prompts of a model. `folder` has its chat template; `generation` are the options with the folder's defaults.
    ///
    /// # Errors
    /// [`Error::Option`] for an option outside its range or a missing chat template, and errors of the template.
    pub(super) fn new(
        options: &CausalOptions,
        folder: &Path,
        tokenizer: Tokenizer,
        model: &dyn CausalLm,
        generation: &GenerationOptions,
    ) -> Result<Self> {
        if options.max_tokens < 2 {
            let found = options.max_tokens.to_string();
            return Err(Error::Option { option: "max-tokens", expected: "at least 2", found });
        }
        let prompt = Prompt::new(options.prompt.clone())?;
        let most = options.max_tokens.min(prompt_room(model, generation).unwrap_or(usize::MAX));
        let answer = options.generation.max_new_tokens.unwrap_or(NEW_TOKENS);
        let room = model.max_length().saturating_sub(answer).min(most).max(1);
        let template = match options.chat {
            Chat::Auto | Chat::Template => ChatPrompt::open(folder, &tokenizer)?,
            Chat::None | Chat::Chatml => None,
        };
        if options.chat == Chat::Template && template.is_none() {
            let found = format!("`template`, and {} has none", folder.display());
            return Err(Error::Option { option: "chat", expected: "a model with a chat template", found });
        }
        Ok(Self { prompt, tokenizer, most, room, template, options: options.clone() })
    }

    /// The token that ends an answer in the model's chat template.
    pub(super) fn end(&self) -> Option<&str> {
        self.template.as_ref().and_then(ChatPrompt::end)
    }

    /// The number of passages that a prompt has.
    pub(super) fn passages(&self) -> usize {
        self.prompt.options().passages
    }

    /// The turns of a request: the examples that there is room for, and the question.
    fn turns(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<(Vec<Turn>, String)> {
        let output = |shown: &Demonstration| match (&self.template, self.options.answer.trim_end()) {
            (Some(_), label) if !label.is_empty() => format!("{label} {}", shown.answer),
            _ => shown.answer.clone(),
        };
        let instruction = self.instruction(request);
        let fits = |examples: &[Turn], asked: &str| -> Result<bool> {
            let text = self.join(&instruction, examples, asked)?;
            let tokens = match self.template {
                Some(_) => self.tokenizer.encode_plain(&text)?,
                None => self.tokenizer.encode(&text, None)?,
            };
            Ok(tokens.len() <= self.room)
        };
        turns((request, shown), |request| self.prompt.text(request, &self.tokenizer), output, fits)
    }

    /// The text that the model reads for a request.
    pub(super) fn text(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<String> {
        let (examples, asked) = self.turns(request, shown)?;
        self.join(&self.instruction(request), &examples, &asked)
    }

    /// The tokens of that text, as many as the model reads at most, and their number before any cut.
    pub(super) fn row(&self, request: &Request<'_>, shown: &[&Demonstration]) -> Result<(Vec<u32>, usize)> {
        let (examples, asked) = self.turns(request, shown)?;
        let instruction = self.instruction(request);
        if let Some(template) = &self.template {
            let conversation = self.conversation(&instruction, &examples, &asked);
            return template.encode(&conversation, &self.tokenizer, self.most);
        }
        let text = self.join(&instruction, &examples, &asked)?;
        let whole = self.tokenizer.encode(&text, None)?;
        let count = whole.len();
        if count <= self.most {
            return Ok((whole, count));
        }
        Ok((self.tokenizer.encode(&text, Some(self.most))?, count))
    }

    /// The tokens of `answer` as the continuation of a prompt, without an end token. A space separates it from a prompt that
    /// does not end with white space.
    pub(super) fn continuation(&self, request: &Request<'_>, answer: &str) -> Result<Vec<u32>> {
        let text = self.text(request, &[])?;
        // A tokenizer can put a mark before the first word of a text, so the answer is encoded after another word.
        let before = if text.ends_with(char::is_whitespace) { "\n" } else { "a" };
        let space = if before == "a" { " " } else { "" };
        let answer = answer.trim();
        let prefix = self.tokenizer.encode_plain(before)?;
        let whole = self.tokenizer.encode_plain(&format!("{before}{space}{answer}"))?;
        match whole.strip_prefix(prefix.as_slice()) {
            Some(tokens) => Ok(tokens.to_vec()),
            None => Ok(self.tokenizer.encode_plain(&format!("{space}{answer}"))?),
        }
    }

    fn instruction<'a>(&'a self, request: &Request<'a>) -> Cow<'a, str> {
        instruction(&self.options.instruction, request.query)
    }

    fn conversation<'a>(
        &'a self,
        instruction: &'a str,
        turns: &'a [Turn],
        asked: &'a str,
    ) -> Conversation<'a> {
        Conversation { system: instruction, turns, asked, answer: self.options.answer.trim_end() }
    }

    pub(super) fn join(&self, instruction: &str, examples: &[Turn], asked: &str) -> Result<String> {
        let CausalOptions { chat, answer, .. } = &self.options;
        if let Some(template) = &self.template {
            return template.text(&self.conversation(instruction, examples, asked));
        }
        if *chat != Chat::Chatml {
            return Ok(lines((instruction, answer), examples, asked));
        }
        let mut text = String::new();
        let mut turn = |role: &str, content: &str| {
            text.push_str(&format!("<|im_start|>{role}\n{content}<|im_end|>\n"));
        };
        if !instruction.is_empty() {
            turn("system", instruction);
        }
        let answer = if answer.is_empty() { String::new() } else { format!("{answer} ") };
        for (input, output) in examples {
            turn("user", &quoted(input));
            turn("assistant", &format!("{answer}{}", quoted(output)));
        }
        turn("user", &quoted(asked));
        text.push_str(&format!("<|im_start|>assistant\n{}", answer.trim_end()));
        Ok(text)
    }
}
