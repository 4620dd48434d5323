//! One file a verb.

mod config;
mod convert;
mod doctor;
mod embed;
mod evaluate;
mod explain;
mod generate;
mod index;
mod input;
mod models;
mod populate;
mod reason;
mod report;
mod reproduce;
mod rerank;
mod run;
mod submit;
mod train;
mod tune;

use std::{
    io::{self, Write},
    path::PathBuf,
};

use clap::{Args, Subcommand};
use sporran_pipeline::{Config as _, Options};

use crate::error::{Error, Result};

/// The verbs.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Answer every task file of a config, with provenance, and score what has gold
    Run(run::Run),
    /// Build the passage store and the index of a config, or estimate what they take
    Index(index::Index),
    /// Choose the weights of a hybrid retriever on task files with gold
    Tune(tune::Tune),
    /// Retrieve only: rankings, and predictions that hold evidence
    Retrieve(run::Retrieve),
    /// Show one record's way: query, hits, prompt, answers, evidence
    Explain(explain::Explain),
    /// Score predictions
    Evaluate(evaluate::Evaluate),
    /// Put finished runs beside each other and beside the published rows of the KILT paper
    Report(report::ReportRuns),
    /// Run rows of `configs/expected.toml` and compare with their figures
    Reproduce(reproduce::Reproduce),
    /// Check or pack files for submission
    #[command(subcommand)]
    Submit(submit::Submit),
    /// Read facts from documents: predictions with evidence, and triples
    Populate(populate::Populate),
    /// Train the model of a config's generator
    Train(train::Train),
    /// Answer questions that need a document and a knowledge base, with what each answer rests on
    Reason(reason::Reason),
    /// Generate text for lines of standard input
    Generate(generate::Generate),
    /// Give the vectors of lines of standard input
    Embed(embed::Embed),
    /// Score passages for queries of standard input
    Rerank(rerank::Rerank),
    /// Fetch, import and describe models
    #[command(subcommand)]
    Models(models::Models),
    /// Turn one file format into another
    Convert(convert::Convert),
    /// Check or show a config
    #[command(subcommand)]
    Config(config::Config),
    /// Tell what this machine and this build can do
    Doctor(doctor::Doctor),
}

impl Command {
    pub(crate) fn run(self, quiet: bool) -> Result<()> {
        match self {
            Self::Run(command) => command.run(quiet),
            Self::Index(command) => command.run(quiet),
            Self::Tune(command) => command.run(quiet),
            Self::Retrieve(command) => command.run(quiet),
            Self::Explain(command) => command.run(quiet),
            Self::Evaluate(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Reproduce(command) => command.run(quiet),
            Self::Submit(command) => command.run(),
            Self::Populate(command) => command.run(quiet),
            Self::Train(command) => command.run(quiet),
            Self::Reason(command) => command.run(quiet),
            Self::Generate(command) => command.run(quiet),
            Self::Embed(command) => command.run(quiet),
            Self::Rerank(command) => command.run(quiet),
            Self::Models(command) => command.run(quiet),
            Self::Convert(command) => command.run(quiet),
            Self::Config(command) => command.run(),
            Self::Doctor(command) => command.run(),
        }
    }
}

/// A config and what is laid over it.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// The config, a TOML file
    config: PathBuf,
    /// Values that replace the config's, such as `retriever.k1=1.2`
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl ConfigArgs {
    /// Reads the config after checking all that can be checked without loading a model.
    fn load(&self) -> Result<Options> {
        let mistakes = sporran_pipeline::check(&self.config, &self.overrides)?;
        if !mistakes.is_empty() {
            return Err(sporran_pipeline::Error::Config(mistakes).into());
        }
        Ok(Options::parse(&self.config, &self.overrides)?)
    }
}

/// Writes to standard output.
fn print(text: &str) -> Result<()> {
    io::stdout()
        .write_all(text.as_bytes())
        .map_err(|source| Error::Stream { stream: "standard output", source })
}

/// Writes a value to standard output as one line of JSON.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(value)
        .map_err(|error| Error::Stream { stream: "standard output", source: error.into() })?;
    print(&format!("{text}\n"))
}
