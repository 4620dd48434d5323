//! What the kinds with demonstrations share: their defaults, the turns of a prompt, and its form without turns.

use std::borrow::Cow;

use serde::Deserialize;
use sporran_config::Document;
use sporran_kilt::Query;

use crate::{Demonstration, DemonstrationsOptions, Order, PromptOptions, Request, Result};

/// An input with its answer.
pub(crate) type Turn = (String, String);

/// The default of `prompt`.
pub(crate) fn prompt() -> PromptOptions {
    PromptOptions {
        order: Order::PassagesFirst,
        passage: "{title}: {text}".into(),
        separator: "\n".into(),
        input: "Question: {input}".into(),
        ..PromptOptions::default()
    }
}

/// A prompt with optional fields. Missing fields have the defaults of these kinds, not those of the type.
#[derive(Deserialize)]
#[serde(remote = "PromptOptions", default = "prompt", deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct GivenPrompt {
    passages: usize,
    passage_words: usize,
    passage: String,
    separator: String,
    input: String,
    order: Order,
    mention_context_words: usize,
    max_input_tokens: Option<usize>,
    speakers: Vec<String>,
    max_tokens: usize,
}

/// The default of `answer`.
pub(crate) fn answer() -> String {
    "Answer:".into()
}

/// Whether an option is off. Then it is left out of the keys of runs.
pub(crate) fn is_off(option: &bool) -> bool {
    !option
}

/// Reports files of examples that do not exist. `key` is the path of the generator's table.
pub(crate) fn check_files(key: &str, shown: Option<&DemonstrationsOptions>, document: &mut Document<'_>) {
    for file in shown.into_iter().flat_map(|shown| &shown.files).filter(|file| !file.is_file()) {
        let message = format!("no file {}", file.display());
        document.report_key(&format!("{key}.demonstrations.files"), message);
    }
}

/// The turns of a request: the examples that there is room for, and the question. `text` makes the text of an input,
/// `output` that of an example's answer. `fits` says whether a prompt is short enough; the least similar examples, which are
/// the first, are left out until it is.
pub(crate) fn turns(
    (request, shown): (&Request<'_>, &[&Demonstration]),
    text: impl Fn(&Request<'_>) -> Result<String>,
    output: impl Fn(&Demonstration) -> String,
    fits: impl Fn(&[Turn], &str) -> Result<bool>,
) -> Result<(Vec<Turn>, String)> {
    let asked = text(request)?;
    let example = |shown: &&Demonstration| -> Result<Turn> {
        Ok((text(&Request { query: &shown.query, passages: &[] })?, output(shown)))
    };
    let mut examples = shown.iter().map(example).collect::<Result<Vec<Turn>>>()?;
    while !examples.is_empty() && !fits(&examples, &asked)? {
        examples.remove(0);
    }
    Ok((examples, asked))
}

/// The instruction of a request: the generator's own, and what its client adds.
pub(crate) fn instruction<'a>(own: &'a str, query: &'a Query) -> Cow<'a, str> {
    match &query.instruction {
        None => own.into(),
        Some(given) if own.is_empty() => given.into(),
        Some(given) => format!("{own}\n\n{given}").into(),
    }
}

/// A prompt without marks of turns: the instruction, the examples and the question follow each other, a blank line between
/// them. It ends with `answer`.
pub(crate) fn lines((instruction, answer): (&str, &str), examples: &[Turn], asked: &str) -> String {
    let mut text = String::new();
    if !instruction.is_empty() {
        text.push_str(&format!("{instruction}\n\n"));
    }
    for (input, output) in examples {
        text.push_str(&format!("{}\n{answer} {}\n\n", quoted(input), quoted(output)));
    }
    text.push_str(&format!("{}\n{answer}", quoted(asked)));
    text
}

/// Text that cannot end a turn: the marks of turns are split.
pub(crate) fn quoted(text: &str) -> String {
    text.replace("<|", "< |")
}
