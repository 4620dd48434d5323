//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{
    PopulationOptions, Purpose, populate,
    shards::{merge, shard},
    train as learn,
};
use crate::{
    Result,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "population"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<PopulationOptions>(
    "population",
    "relations",
    "Trains a fact extractor, and extracts facts with evidence from text.",
    r#"name = "population"
[annotations]
files = ["train.json"]
[relations]
model = "models/relations"
[relations.linear]
[input]
format = "text"
files = ["texts.txt"]
"#,
)
.with_train(train)
.with_run(run)
.with_shards(shard, merge);

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = PopulationOptions::load_for(path, overrides, Purpose::Populate)?;
    observe(Event::Folder { path: options.folder() });
    let report = populate(&options, observe)?;
    Ok(Outcome::of(&report)?.written("predictions, triples and report", &options.folder()))
}

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = PopulationOptions::load_for(path, overrides, Purpose::Train)?;
    observe(Event::Folder { path: options.folder() });
    let trained = learn(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}
