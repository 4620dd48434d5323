//! Questions one after the other: on a terminal with a prompt and a history, otherwise from standard input.

use std::{
    fs,
    io::{self, IsTerminal},
};

use rustyline::{DefaultEditor, error::ReadlineError};
use sporran_pipeline::workflows::answer::Conversation;

use super::super::input::Lines;
use crate::{
    error::{Error, Result},
    outcome::{Context, Outcome, stderr},
    settings,
};

const PROMPT: &str = "question> ";

/// Answers every question with `answer`, which prints. Blank lines are skipped. Questions on a terminal are a conversation,
/// unless the answers are JSON for a program; those of standard input stand alone.
pub(super) fn run(
    context: &Context,
    mut answer: impl FnMut(&str, Option<&mut Conversation>) -> Result<()>,
) -> Result<Outcome> {
    if !io::stdin().is_terminal() {
        let mut asked = 0u64;
        Lines::stdin(1).each_portion(Ok, |questions| {
            let questions = questions.iter().filter(|question| !question.trim().is_empty());
            questions.inspect(|_| asked += 1).try_for_each(|question| answer(question, None))
        })?;
        if asked == 0 {
            return Err(Error::Usage(
                "QUESTION: expected a question, found none in standard input either".into(),
            ));
        }
        return Ok(Outcome::default());
    }
    if !context.quiet {
        stderr("Ctrl-D ends the session.\n");
    }
    let mut editor = DefaultEditor::new().map_err(failed)?;
    let mut conversation = (!context.json).then(Conversation::default);
    let history = settings::history();
    if let Some(file) = history.as_ref().filter(|file| file.is_file())
        && let Err(error) = editor.load_history(file)
    {
        tracing::warn!("{}: the history cannot be read: {error}", file.display());
    }
    loop {
        match editor.readline(PROMPT) {
            Ok(line) if line.trim().is_empty() => {}
            Ok(line) => {
                // A session without a history is still a session.
                let _ = editor.add_history_entry(&line);
                match answer(&line, conversation.as_mut()) {
                    // One question that fails does not end the session.
                    Err(error) if !error.is_broken_pipe() => error.print(),
                    done => done?,
                }
            }
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    if let Some(file) = history {
        let folder = file.parent().map(fs::create_dir_all).transpose();
        let saved = folder.map_err(ReadlineError::Io).and_then(|_| editor.save_history(&file));
        if let Err(error) = saved {
            tracing::warn!("{}: the history cannot be written: {error}", file.display());
        }
    }
    Ok(Outcome::default())
}

fn failed(error: ReadlineError) -> Error {
    Error::Stream { stream: "standard input", source: io::Error::other(error) }
}
