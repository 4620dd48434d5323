//! `sporran run` and `sporran retrieve`.

use std::path::Path;

use clap::Args;
use serde_json::Value;
use sporran_pipeline::{
    Config, ConfigKind, Report, documents, korc, linking,
    population::{self, PopulationOptions, Purpose},
    selection, slots,
};

use super::{ConfigArgs, convert::QUESTIONS_ARE_BUILT, populate, print, print_json, reason};
use crate::{
    error::{Error, Result},
    progress::Progress,
};

/// `sporran run`
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the report as one JSON object
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let ConfigArgs { config, overrides } = &self.config;
        let kind = ConfigKind::of(config, overrides)?;
        if kind != ConfigKind::Run {
            let done = complete(kind, config, overrides, quiet)?;
            return if self.json { print_json(&done.report) } else { print(&done.text) };
        }
        let options = self.config.load()?;
        let mut progress = Progress::new(quiet);
        let report = sporran_pipeline::run(&options, &mut |event| progress.event(event))?;
        if !self.json {
            show(&report, &options, false)?;
        }
        let mut also = Vec::new();
        for path in &options.general.also {
            let overrides = [format!("output={}", options.general.output.display())];
            let done = complete(ConfigKind::of(path, &overrides)?, path, &overrides, quiet)?;
            if !self.json {
                print(&format!("\n{}\n{}", path.display(), done.text))?;
            }
            also.push(done.report);
        }
        if !self.json {
            return Ok(());
        }
        let mut whole = json_of(&report)?;
        if let (Value::Object(whole), false) = (&mut whole, also.is_empty()) {
            whole.insert("also".into(), Value::Array(also));
        }
        print_json(&whole)
    }
}

/// What a config of another kind than a run's gave.
struct Done {
    report: Value,
    text: String,
}

/// Does what a config of another kind says.
fn complete(kind: ConfigKind, path: &Path, overrides: &[String], quiet: bool) -> Result<Done> {
    let mut progress = Progress::new(quiet);
    let observe = &mut |event| progress.event(event);
    Ok(match kind {
        ConfigKind::Population => {
            let options = PopulationOptions::load_for(path, overrides, Purpose::Populate)?;
            let report = population::populate(&options, observe)?;
            Done { report: json_of(&report)?, text: populate::told(&report, &options) }
        }
        ConfigKind::Reason => {
            let options = korc::ReasonOptions::load(path, overrides)?;
            let report = korc::reason(&options, observe, &mut |_| {})?;
            Done { report: json_of(&report)?, text: reason::told(&report) }
        }
        ConfigKind::Documents => {
            let options = documents::DocumentsOptions::load(path, overrides)?;
            let report = documents::find(&options, observe)?;
            Done { report: json_of(&report)?, text: documents_told(&report, &options) }
        }
        ConfigKind::Linking => {
            let options = linking::LinkingOptions::load(path, overrides)?;
            let report = linking::link(&options, observe)?;
            Done { report: json_of(&report)?, text: linked_told(&report, &options) }
        }
        ConfigKind::Responses => {
            let options = selection::ResponseOptions::load(path, overrides)?;
            let report = selection::respond(&options, observe)?;
            Done { report: json_of(&report)?, text: responded_told(&report) }
        }
        ConfigKind::Slots => {
            let options = slots::SlotsOptions::load(path, overrides)?;
            let report = slots::fill(&options, observe)?;
            Done { report: json_of(&report)?, text: slots_told(&report, &options) }
        }
        ConfigKind::Questions => return Err(Error::Usage(QUESTIONS_ARE_BUILT.into())),
        _ => {
            let message =
                format!("{}: nothing to run; `sporran train` makes what it describes", path.display());
            return Err(Error::Usage(message));
        }
    })
}

fn json_of(report: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(report)
        .map_err(|error| Error::Stream { stream: "standard output", source: error.into() })
}

fn documents_told(report: &documents::DocumentsReport, options: &documents::DocumentsOptions) -> String {
    let mut told = String::new();
    for (file, scores) in &report.files {
        told += &match scores {
            Some(scores) => {
                let ign =
                    scores.ign_f1.map_or_else(String::new, |f1| format!(", without known facts {f1:.3}"));
                format!(
                    "{file}: {} relations found of {}, {} right: precision {:.3}, recall {:.3}, F1 {:.3}{ign}; evidence F1 {:.3}\n",
                    scores.found,
                    scores.gold,
                    scores.right,
                    scores.precision,
                    scores.recall,
                    scores.f1,
                    scores.evidence_f1
                )
            }
            None => format!("{file}: no relations to compare with\n"),
        };
    }
    told + &format!(
        "{} documents in {:.1} s; predictions and report: {}\n",
        report.documents,
        report.seconds,
        options.folder().display()
    )
}

fn slots_told(report: &slots::SlotsReport, options: &slots::SlotsOptions) -> String {
    let mut told = String::new();
    for (file, scores) in &report.files {
        for (what, scores) in [("unseen", &scores.unseen), ("seen", &scores.seen)] {
            told += &format!(
                "{file}, {} {what} relations: {} of {} questions answered, {} rightly: precision {:.3}, recall {:.3}, F1 {:.3}\n",
                scores.relations,
                scores.answered,
                scores.questions,
                scores.right,
                scores.precision,
                scores.recall,
                scores.f1
            );
        }
    }
    told + &format!("{:.1} s; predictions and report: {}\n", report.seconds, options.folder().display())
}

fn linked_told(report: &linking::LinkingReport, options: &linking::LinkingOptions) -> String {
    let mut told = format!(
        "{} names of {} entities\n{:<28} {:>8} {:>6} {:>6} {:>6} {:>8} {:>9} {:>6}\n",
        report.names,
        report.entities,
        "file",
        "mentions",
        "held",
        "linked",
        "right",
        "accuracy",
        "precision",
        "F1"
    );
    for file in &report.files {
        told += &format!(
            "{:<28} {:>8} {:>6} {:>6} {:>6} {:>8.3} {:>9.3} {:>6.3}\n",
            file.file,
            file.mentions,
            file.held,
            file.linked,
            file.right,
            file.accuracy,
            file.precision,
            file.f1
        );
    }
    told + &format!("{:.1} s; predictions and report: {}\n", report.seconds, options.folder().display())
}

fn responded_told(responded: &selection::Responded) -> String {
    format!(
        "{} dialogues, knowledge F1 {:.1}, {:.1} words a response\n\
         ranking: {}\n\
         {:.1} s to rank, {:.1} s to respond\n\
         predictions: {}\n",
        responded.dialogues,
        responded.knowledge_f1.percent(),
        responded.words,
        responded.ranking,
        responded.seconds[0],
        responded.seconds[1],
        responded.predictions.display()
    )
}

/// `sporran retrieve`
#[derive(Args)]
pub(crate) struct Retrieve {
    #[command(flatten)]
    config: ConfigArgs,
    /// Only show how the ranking of one record comes about: what was asked at each step, and what was found
    #[arg(long, value_name = "ID")]
    trace: Option<String>,
    /// Hits that the trace shows at each step
    #[arg(long, default_value_t = 10, requires = "trace", value_name = "N")]
    hits: usize,
    /// Print the report, or the trace, as one JSON object
    #[arg(long)]
    json: bool,
}

impl Retrieve {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        let options = self.config.load()?;
        let mut progress = Progress::new(quiet);
        if let Some(id) = &self.trace {
            let trace = sporran_pipeline::trace(&options, id, self.hits, &mut |event| progress.event(event))?;
            return if self.json { print_json(&trace) } else { print(&trace.to_string()) };
        }
        let report = sporran_pipeline::retrieve(&options, &mut |event| progress.event(event))?;
        show(&report, &options, self.json)
    }
}

fn show(report: &Report, options: &sporran_pipeline::Options, json: bool) -> Result<()> {
    if json {
        return print_json(report);
    }
    let folder = options.general.output.join(&report.name);
    print(&format!("{}\npredictions, report and manifest: {}\n", report.table(), folder.display()))
}
