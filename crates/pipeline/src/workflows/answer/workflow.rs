//! The entry of the workflow in the registry.

use std::path::Path;

use sporran_kilt::{
    folder::Shard,
    observe::{Event, Observer},
};

use super::{Options, merge, run as answer, run_shard, train as learn};
use crate::{
    Result,
    config::Config,
    run_dir::shard::ShardReport,
    workflows::workflow::{Outcome, Workflow},
};

/// `workflow = "answer"`
pub(crate) const WORKFLOW: Workflow = Workflow::new::<Options>(
    "answer",
    "tasks",
    "Retrieves passages for the records of task files, answers them, and scores the answers and their evidence.",
    r#"name = "answer"
[source]
path = "pages.jsonl"
[tasks]
files = ["questions.jsonl"]
[retriever]
kind = "bm25"
[generator]
kind = "seq2seq"
model = "models/generator"
"#,
)
.without_table("encoder-training")
.with_train(train)
.with_run(run)
.with_shards(shard, merge);

/// `workflow = "retriever-training"`
pub(crate) const RETRIEVER_TRAINING: Workflow = Workflow::new::<Options>(
    "retriever-training",
    "encoder-training",
    "Trains an encoder that retrieves or reranks passages.",
    r#"name = "retriever-training"
[source]
path = "pages.jsonl"
[tasks]
files = ["questions.jsonl"]
[retriever]
kind = "bm25"
[encoder-training]
kind = "bi-encoder"
from = "models/encoder"
model = "models/retriever"
data = ["train.json"]
"#,
)
.with_train(train)
.with_run(run)
.with_shards(shard, merge);

fn shard(path: &Path, overrides: &[String], shard: Shard, observe: &mut Observer<'_>) -> Result<ShardReport> {
    run_shard(&Options::load(path, overrides)?, shard, observe)
}

fn run(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = Options::load(path, overrides)?;
    let general = &options.general;
    let folder = general.output.join(&general.name);
    observe(Event::Folder { path: folder.clone() });
    let report = answer(&options, observe)?;
    let outcome = Outcome::new(report.table(), &report)?;
    Ok(outcome.written("predictions, report and manifest", &folder).with_then(&general.then, &general.output))
}

fn train(path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
    let options = Options::load(path, overrides)?;
    observe(Event::Folder { path: options.general.output.join(&options.general.name) });
    let trained = learn(&options, observe)?;
    Ok(Outcome::of(&trained)?.with_model(&trained.model))
}
