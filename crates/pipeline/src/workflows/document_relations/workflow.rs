//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{DocumentsOptions, find, train as learn};
use crate::{
    Result,
    config::Config,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "document-relations"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<DocumentsOptions>(
    "document-relations",
    "document-relations",
    "Finds relations between the entities of whole documents.",
    r#"name = "document-relations"
[document-relations]
files = ["documents.json"]
[document-relations.training]
from = "models/encoder"
files = ["train.json"]
"#,
)
.with_train(train)
.with_run(run);

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = DocumentsOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let report = find(&options, observe)?;
    Ok(Outcome::of(&report)?.written("predictions and report", &options.folder()))
}

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = DocumentsOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = learn(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.trained.model))
}
