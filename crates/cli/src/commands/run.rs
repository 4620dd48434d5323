//! `sporran run` and `sporran retrieve`.

use std::path::Path;

use clap::Args;
use serde_json::Value;
use sporran_pipeline::{Asked, Report, registry};
use sporran_retriever::FilterOptions;

use super::{
    ConfigArgs,
    shard::{ShardArgs, done},
};
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
};

/// `sporran run`
#[derive(Args)]
#[command(after_help = "Example: sporran run configs/quickstart.toml tasks.limit=20")]
pub(crate) struct Run {
    #[command(flatten)]
    config: ConfigArgs,
    #[command(flatten)]
    shard: ShardArgs,
}

impl Run {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (path, overrides) = self.config.parts()?;
        match self.shard.get()? {
            Some(shard) => done(&registry::run_shard(path, overrides, shard, &mut context.observer())?),
            None => with_then(registry::run(path, overrides, &mut context.observer())?, context),
        }
    }
}

/// Runs the configs that follow a run, and adds their outcomes to its outcome.
pub(crate) fn with_then(mut first: sporran_pipeline::Outcome, context: &Context) -> Result<Outcome> {
    let then = std::mem::take(&mut first.then);
    if then.is_empty() {
        return Ok(first.into());
    }
    // Each outcome is printed as soon as it is complete; JSON is one object at the end.
    let report = first.json.clone();
    if !context.json {
        context.print(first.into())?;
    }
    let mut also = Vec::new();
    for (path, overrides) in &then {
        let outcome = registry::run(path, overrides, &mut context.observer())?;
        also.push(serde_json::from_str(&outcome.json).map_err(not_json)?);
        if !context.json {
            let outcome = Outcome::from(outcome);
            context.print(Outcome::text(format!("\n{}\n{outcome}", path.display())))?;
        }
    }
    if !context.json {
        return Ok(Outcome::default());
    }
    let mut whole = serde_json::from_str(&report).map_err(not_json)?;
    if let Value::Object(whole) = &mut whole {
        whole.insert("also".into(), Value::Array(also));
    }
    Outcome::new("", &whole)
}

fn not_json(error: serde_json::Error) -> Error {
    Error::Stream { stream: "standard output", source: error.into() }
}

/// Adds the folder with the workflow's files to the summary.
fn written(outcome: Outcome, what: &str, folder: &Path) -> Result<Outcome> {
    Ok(outcome.with_line(format!("{what}: {}", folder.display())))
}

/// `sporran retrieve`
#[derive(Args)]
#[command(after_help = "Example: sporran retrieve configs/quickstart.toml retriever.k1=1.2")]
pub(crate) struct Retrieve {
    #[command(flatten)]
    config: ConfigArgs,
    /// Show the retrieval steps of one record: the query and the hits of each step. Without an id, those of `--query`
    #[arg(long, value_name = "ID", num_args = 0..=1, conflicts_with = "shard")]
    trace: Option<Option<String>>,
    /// Show the retrieval steps of a text; the config needs no task files
    #[arg(long, value_name = "TEXT", conflicts_with = "shard")]
    query: Option<String>,
    /// Number of hits to show for each step of the trace
    #[arg(long, default_value_t = 10, value_name = "N")]
    hits: usize,
    /// Retrieve only passages whose metadata match, such as `lang=en AND year>=2000`.
    ///
    /// A condition is `key=value`, `key!=value`, `key>=number` or `key<=number`; ` AND ` joins several. In place of a number
    /// there can be a date, such as `2024-05-31` or `2024-05`. The value of `source` and `file` can be a glob. `key=value`
    /// also matches a list with the value in it. `key!=value` also matches passages without the key. A value in double
    /// quotes can have ` AND ` in it. The keys are the fields of the source's records, `title` and `section`. The option can
    /// be repeated; then all must match. `[retriever.filter]` of a config has more conditions.
    #[arg(long, value_name = "CONDITIONS")]
    filter: Vec<String>,
    #[command(flatten)]
    shard: ShardArgs,
}

impl Retrieve {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let asked = match (&self.query, &self.trace) {
            (Some(_), Some(Some(_))) => {
                return Err(Error::Usage("--trace: expected no id with `--query`".into()));
            }
            (Some(text), _) => Some(Asked::Text(text)),
            (None, Some(None)) => {
                return Err(Error::Usage(
                    "--trace: expected the id of a record, or a text in `--query`".into(),
                ));
            }
            (None, Some(Some(id))) => Some(Asked::Record(id)),
            (None, None) => None,
        };
        let mut options = match asked {
            Some(Asked::Text(_)) => self.config.load_without_tasks()?,
            _ => self.config.load()?,
        };
        for conditions in &self.filter {
            options = options.filtered(FilterOptions::parse(conditions)?)?;
        }
        if let Some(asked) = asked {
            let trace = self.config.placed(sporran_pipeline::trace(
                &options,
                asked,
                self.hits,
                &mut context.observer(),
            ))?;
            return Outcome::of(&trace);
        }
        if let Some(shard) = self.shard.get()? {
            return done(&sporran_pipeline::retrieve_shard(&options, shard, &mut context.observer())?);
        }
        interrupt::keep(Kept::Folder(
            options.general.output.join(format!("{}-retrieval", options.general.name)),
        ));
        let report = self.config.placed(sporran_pipeline::retrieve(&options, &mut context.observer()))?;
        answered(&report, &options)
    }
}

fn answered(report: &Report, options: &sporran_pipeline::Options) -> Result<Outcome> {
    let folder = options.general.output.join(&report.name);
    let outcome = Outcome::new(report.table(), report)?;
    written(outcome, "predictions, report and manifest", &folder)
}
