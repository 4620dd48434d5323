//! The workflow as the registry knows it.

use std::path::Path;

use super::{ResponseOptions, SelectionOptions, respond, train as learn};
use crate::{
    Result,
    config::load::Config,
    observe::{Event, Observer},
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "knowledge-selection"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<SelectionOptions>(
    "knowledge-selection",
    "data",
    "trains and evaluates rerankers of knowledge sentences (WOW++)",
)
.with_train(train);

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = SelectionOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = learn(&options, observe)?;
    Ok(trained.models.iter().fold(Outcome::of(&trained)?, Outcome::with_model))
}

/// `workflow = "dialogue"`
pub(crate) const DIALOGUE: Workflow = Workflow::new::<ResponseOptions>(
    "dialogue",
    "dialogues",
    "responds to dialogues from chosen knowledge sentences",
)
.with_run(run);

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = ResponseOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let report = respond(&options, observe)?;
    Ok(Outcome::of(&report)?.written("predictions and report", &options.folder()))
}
