//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{LinkingOptions, link};
use crate::{
    Result,
    config::Config,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "entity-linking"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<LinkingOptions>(
    "entity-linking",
    "linking",
    "Links mentions in texts to the entities of a knowledge base.",
    r#"name = "entity-linking"
[linking]
files = ["texts.json"]
[linker]
[[linker.names]]
file = "kb"
format = "knowledge-base"
"#,
)
.with_run(run);

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = LinkingOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let report = link(&options, observe)?;
    Ok(Outcome::of(&report)?.written("predictions and report", &options.folder()))
}
