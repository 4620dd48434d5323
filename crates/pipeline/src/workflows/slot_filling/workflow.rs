//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{SlotsOptions, fill, train as learn};
use crate::{
    Result,
    config::Config,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "slot-filling"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<SlotsOptions>(
    "slot-filling",
    "slot-filling",
    "Answers questions about relations from sentences, including relations without training data.",
    r#"name = "slot-filling"
[slot-filling]
files = ["questions.tsv"]
[slot-filling.training]
from = "models/encoder"
files = ["train.tsv"]
"#,
)
.with_train(train)
.with_run(run);

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = SlotsOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let report = fill(&options, observe)?;
    Ok(Outcome::of(&report)?.written("predictions and report", &options.folder()))
}

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = SlotsOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = learn(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.trained.model))
}
