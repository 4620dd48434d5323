//! Chat templates: the Jinja texts in a model's folder that format the turns of a conversation.
//!
//! The environment is that of `transformers`: `trim_blocks`, `lstrip_blocks`, loop controls, `raise_exception`,
//! `strftime_now`, a `tojson` that leaves HTML alone, tests as Jinja2 has them, and Python's methods of texts, lists and maps.

mod date;
mod python;
mod source;
mod to_json;

use std::path::{Path, PathBuf};

use minijinja::{Environment, ErrorKind, syntax::SyntaxConfig, value::Value};
use regex::Regex;

use crate::error::{Error, Result};
use source::Source;

/// A turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who speaks: `system`, `user` or `assistant`.
    pub role: &'static str,
    /// The text of the turn.
    pub content: String,
}

impl ChatMessage {
    /// A turn of `role`.
    pub fn new(role: &'static str, content: impl Into<String>) -> Self {
        Self { role, content: content.into() }
    }
}

/// The name of the one template of an environment.
const NAME: &str = "chat_template";

/// A model's own chat template, ready to be rendered.
#[derive(Debug)]
pub struct ChatTemplate {
    path: PathBuf,
    environment: Environment<'static>,
    /// The special tokens, by the names that templates give them.
    tokens: Vec<(&'static str, String)>,
}

impl ChatTemplate {
    /// The template of a model: of a folder, the first of `chat_template.jinja`, `chat_template` in
    /// `tokenizer_config.json`, and `chat_template` in `chat_template.json`; of a GGUF file, `tokenizer.chat_template`.
    /// Of several named templates it is `default`. None where the model has no template.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Json`], [`Error::Config`] where there are several templates without a default, and
    /// [`Error::ChatTemplate`] where the text is not a template.
    pub fn open(model: &Path) -> Result<Option<Self>> {
        Source::of(model)?.map(Self::compile).transpose()
    }

    fn compile(source: Source) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let Source { path, text, tokens } = source;
        let wrong = |source| Error::ChatTemplate { path: path.clone(), source };
        environment.set_syntax(syntax.map_err(wrong)?);
        python::add(&mut environment);
        // A template from elsewhere must end: millions of steps are far more than a conversation needs.
        environment.set_fuel(Some(10_000_000));
        environment.add_function("raise_exception", |message: String| -> Result<Value, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| date::strftime(date::now(), &format));
        environment.add_filter("tojson", to_json::to_json);
        environment.add_template_owned(NAME, without_generation_marks(&text)).map_err(wrong)?;
        Ok(Self { path, environment, tokens })
    }

    /// The same template, for which it is always the same time: so many seconds since the beginning of 1970 in UTC.
    #[must_use]
    pub fn at(mut self, seconds: u64) -> Self {
        self.environment.add_function("strftime_now", move |format: String| date::strftime(seconds, &format));
        self
    }

    /// The text of a conversation, with the special tokens of the template. Encode it without adding others. With
    /// `add_generation_prompt` it ends with the beginning of an answer.
    ///
    /// The template's `strftime_now` gives the time of the system's clock in UTC, so that the text of a template with the date differs from
    /// day to day, as in `transformers`. [`at`](Self::at) fixes it.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] where the template refuses the conversation (`raise_exception`) or cannot be rendered.
    pub fn render(&self, messages: &[ChatMessage], add_generation_prompt: bool) -> Result<String> {
        let wrong = |source| Error::ChatTemplate { path: self.path.clone(), source };
        let template = self.environment.get_template(NAME).map_err(wrong)?;
        let message = |message: &ChatMessage| {
            Value::from_pairs([("role", message.role), ("content", message.content.as_str())])
        };
        let mut context = vec![
            ("messages", messages.iter().map(message).collect::<Value>()),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        context.extend(self.tokens.iter().map(|(name, token)| (*name, Value::from(token.as_str()))));
        template.render(Value::from_pairs(context)).map_err(wrong)
    }

    /// The system's words that the template writes where a conversation has none, as that of Qwen 2 does; none where it writes
    /// none, or other words do not take their place.
    #[must_use]
    pub fn default_system(&self) -> Option<String> {
        const PROBE: &str = "system-probe";
        let user = || ChatMessage::new("user", "a");
        let asked = self.render(&[ChatMessage::new("system", PROBE), user()], true).ok()?;
        let alone = self.render(&[user()], true).ok()?;
        let (before, after) = asked.split_once(PROBE)?;
        let words = alone.strip_prefix(before)?.strip_suffix(after)?;
        (!words.is_empty()).then(|| words.to_owned())
    }

    /// The token that the model's tokenizer calls its end.
    #[must_use]
    pub fn eos_token(&self) -> Option<&str> {
        self.tokens.iter().find(|(name, _)| *name == "eos_token").map(|(_, token)| token.as_str())
    }
}

/// The template without the block `generation`, which marks the assistant's turns for training and writes its content as it is.
fn without_generation_marks(template: &str) -> String {
    let Ok(mark) = Regex::new(r"\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}") else { return template.into() };
    let block = |found: &regex::Captures<'_>| {
        let word = if found.get(2).is_some() { "endif" } else { "if true" };
        format!("{{%{} {word} {}%}}", &found[1], &found[3])
    };
    mark.replace_all(template, block).into_owned()
}

#[cfg(test)]
mod tests;
