//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{TaggingOptions, train as learn};
use crate::{
    Result,
    config::Config,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "tagging"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<TaggingOptions>(
    "tagging",
    "annotations",
    "Trains a tagger that finds names and dates in text.",
    r#"name = "tagging"
[annotations]
docred = ["train.json"]
[tagger]
kind = "bilstm-crf"
"#,
)
.with_train(train);

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = TaggingOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = learn(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}
