//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{ResponseOptions, SelectionOptions, respond, train as learn, train_generator};
use crate::{
    Result,
    config::Config,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "knowledge-selection"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<SelectionOptions>(
    "knowledge-selection",
    "data",
    "Trains and evaluates rerankers of sentences for dialogues.",
    r#"name = "knowledge-selection"
[data]
train = "train.json"
[reranker-training]
kind = "tfidf"
"#,
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
    "Selects sentences for dialogues and generates the next turns.",
    r#"name = "dialogue"
[dialogues]
file = "dialogues.json"
[reranker]
kind = "tfidf"
model = "models/reranker"
[generator]
kind = "seq2seq"
model = "models/generator"
"#,
)
.with_train(train_responses)
.with_run(run);

fn train_responses(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = ResponseOptions::load_for_training(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = train_generator(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = ResponseOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let report = respond(&options, observe)?;
    Ok(Outcome::of(&report)?.written("predictions and report", &options.folder()))
}
