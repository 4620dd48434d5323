//! `sporran run` and `sporran retrieve`.

use std::path::Path;

use clap::Args;
use serde_json::Value;
use sporran_pipeline::{
    Config, ConfigKind, Observer, Report, documents, korc, linking,
    population::{self, PopulationOptions, Purpose},
    selection, slots,
};

use super::{ConfigArgs, convert::QUESTIONS_ARE_BUILT};
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
}

impl Run {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (config, overrides) = self.config.parts()?;
        let kind = ConfigKind::of(config, overrides)?;
        if kind != ConfigKind::Run {
            return complete(kind, config, overrides, context);
        }
        let options = self.config.load()?;
        interrupt::keep(Kept::Folder(options.general.output.join(&options.general.name)));
        let report = sporran_pipeline::run(&options, &mut context.observer())?;
        if options.general.also.is_empty() {
            return answered(&report, &options);
        }
        // Each outcome is shown as soon as it is there; JSON is one object.
        if !context.json {
            context.print(answered(&report, &options)?)?;
        }
        let mut also = Vec::new();
        for path in &options.general.also {
            let overrides = [format!("output={}", options.general.output.display())];
            let outcome = complete(ConfigKind::of(path, &overrides)?, path, &overrides, context)?;
            for line in outcome.json() {
                also.push(serde_json::from_str(line).map_err(not_json)?);
            }
            if !context.json {
                context.print(Outcome::text(format!("\n{}\n{outcome}", path.display())))?;
            }
        }
        if !context.json {
            return Ok(Outcome::default());
        }
        let mut whole = serde_json::to_value(&report).map_err(not_json)?;
        if let Value::Object(whole) = &mut whole {
            whole.insert("also".into(), Value::Array(also));
        }
        Outcome::new("", &whole)
    }
}

fn not_json(error: serde_json::Error) -> Error {
    Error::Stream { stream: "standard output", source: error.into() }
}

/// Runs the workflow of a config of another kind than a run's.
fn complete(kind: ConfigKind, path: &Path, overrides: &[String], context: &Context) -> Result<Outcome> {
    workflow(kind, path, overrides, &mut context.observer())
}

fn workflow(
    kind: ConfigKind,
    path: &Path,
    overrides: &[String],
    observe: &mut Observer<'_>,
) -> Result<Outcome> {
    let started = |folder| interrupt::keep(Kept::Folder(folder));
    match kind {
        ConfigKind::Population => {
            let options = PopulationOptions::load_for(path, overrides, Purpose::Populate)?;
            started(options.folder());
            let report = population::populate(&options, observe)?;
            written(Outcome::of(&report)?, "predictions, triples and report", &options.folder())
        }
        ConfigKind::Reason => {
            let options = korc::ReasonOptions::load(path, overrides)?;
            started(options.folder());
            let report = korc::reason(&options, observe, &mut |_| {})?;
            Ok(Outcome::of(&report)?.with_model(&report.model))
        }
        ConfigKind::Documents => {
            let options = documents::DocumentsOptions::load(path, overrides)?;
            started(options.folder());
            let report = documents::find(&options, observe)?;
            written(Outcome::of(&report)?, "predictions and report", &options.folder())
        }
        ConfigKind::Linking => {
            let options = linking::LinkingOptions::load(path, overrides)?;
            started(options.folder());
            let report = linking::link(&options, observe)?;
            written(Outcome::of(&report)?, "predictions and report", &options.folder())
        }
        ConfigKind::Responses => {
            let options = selection::ResponseOptions::load(path, overrides)?;
            started(options.folder());
            let report = selection::respond(&options, observe)?;
            written(Outcome::of(&report)?, "predictions and report", &options.folder())
        }
        ConfigKind::Slots => {
            let options = slots::SlotsOptions::load(path, overrides)?;
            started(options.folder());
            let report = slots::fill(&options, observe)?;
            written(Outcome::of(&report)?, "predictions and report", &options.folder())
        }
        ConfigKind::Questions => Err(Error::Input(QUESTIONS_ARE_BUILT.into())),
        _ => Err(Error::Input(format!(
            "{}: this config only trains a model; use `sporran train`",
            path.display()
        ))),
    }
}

/// Populates from a config, as `sporran populate` does.
pub(super) fn populate(config: &ConfigArgs, context: &Context) -> Result<Outcome> {
    let (path, overrides) = config.parts()?;
    complete(ConfigKind::Population, path, overrides, context)
}

/// Says where a workflow wrote its files.
fn written(outcome: Outcome, what: &str, folder: &Path) -> Result<Outcome> {
    Ok(outcome.with_line(format!("{what}: {}", folder.display())))
}

/// `sporran retrieve`
#[derive(Args)]
#[command(after_help = "Example: sporran retrieve configs/quickstart.toml retriever.k1=1.2")]
pub(crate) struct Retrieve {
    #[command(flatten)]
    config: ConfigArgs,
    /// Show how the ranking of one record comes about: the query and the hits of each step
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Hits that the trace shows at each step
    #[arg(long, default_value_t = 10, requires = "trace", value_name = "N")]
    hits: usize,
}

impl Retrieve {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let options = self.config.load()?;
        if let Some(id) = &self.trace {
            let trace = sporran_pipeline::trace(&options, id, self.hits, &mut context.observer())?;
            return Outcome::of(&trace);
        }
        interrupt::keep(Kept::Folder(
            options.general.output.join(format!("{}-retrieval", options.general.name)),
        ));
        let report = sporran_pipeline::retrieve(&options, &mut context.observer())?;
        answered(&report, &options)
    }
}

fn answered(report: &Report, options: &sporran_pipeline::Options) -> Result<Outcome> {
    let folder = options.general.output.join(&report.name);
    let outcome = Outcome::new(report.table(), report)?;
    written(outcome, "predictions, report and manifest", &folder)
}
