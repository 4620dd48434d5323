//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::observe::{Event, Observer};

use super::{BuildConfig, ReasonOptions, reason, train as learn};
use crate::{
    Result,
    config::Config,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "kbqa"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<ReasonOptions>(
    "kbqa",
    "reasoner",
    "Answers questions over a document and a knowledge base.",
    r#"name = "kbqa"
kb = "kb"
[data]
train = ["train.json"]
valid = "valid.json"
iid = "test.json"
[reasoner]
kind = "embed-kgqa"
model = "models/reasoner"
"#,
)
.with_train(train)
.with_run(run);

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = ReasonOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let report = reason(&options, observe, &mut |_| {})?;
    Ok(Outcome::of(&report)?.with_model(&report.model))
}

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = ReasonOptions::load(path, overrides)?;
    observe(Event::Folder { path: options.folder() });
    let trained = learn(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}

/// `workflow = "kbqa-benchmark"`
pub(crate) const BENCHMARK: Workflow = Workflow::new::<BuildConfig>(
    "kbqa-benchmark",
    "documents",
    "Builds a benchmark of questions over documents and a knowledge base.",
    r#"output = "benchmark"
kb = "kb"
[documents]
kind = "pages"
path = "pages.jsonl"
"#,
)
.with_hint("`sporran convert korc` builds the benchmark");
