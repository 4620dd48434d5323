//! One file per verb.

mod annotate;
mod answer_model;
mod ask;
mod compare;
mod completions;
mod config;
mod convert;
mod describe;
mod docs;
mod doctor;
mod embed;
mod eval_set;
mod evaluate;
mod explain;
mod generate;
mod index;
mod indexes;
mod init;
mod input;
mod man;
mod mcp;
mod merge;
pub(crate) mod models;
mod populate;
mod reason;
mod report;
mod reproduce;
mod rerank;
mod run;
mod serve;
mod served;
mod shard;
mod submit;
mod train;
mod tune;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use sporran_pipeline::{Config as _, Options, registry, workflow_of};

use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths,
};

/// The verbs. `help::GROUPS` says under which heading each is listed.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the workflow of a config: write predictions with evidence, and score them
    Run(run::Run),
    /// Answer questions out of files and folders, with evidence
    Ask(ask::Ask),
    /// Extract facts from documents, with evidence and as triples
    Populate(populate::Populate),
    /// Answer questions over a document and a knowledge base, or complete triples
    Reason(reason::Reason),
    /// Build the passage store and the index of a config, or estimate their size
    Index(index::Index),
    /// Serve answers, searches, models and facts over HTTP, with a page to ask questions on
    Serve(serve::Serve),
    /// Give an agent documents, answers and runs as tools of the Model Context Protocol
    Mcp(mcp::Mcp),
    /// List, show and remove the cached indexes of `ask`
    #[command(subcommand)]
    Indexes(indexes::Indexes),
    /// Retrieve only: write rankings, and predictions with evidence but no answers
    Retrieve(run::Retrieve),
    /// Show how one record or text is answered: query, hits, prompt, answers, evidence
    Explain(explain::Explain),
    /// Merge the shards of `index`, `embed`, `run`, `retrieve` or `populate`
    Merge(merge::Merge),
    /// Embed lines of standard input, or build the indexes of vectors of a config
    Embed(embed::Embed),
    /// Score passages for queries from standard input
    Rerank(rerank::Rerank),
    /// Generate text for lines of standard input
    Generate(generate::Generate),
    /// Train the model of a config
    Train(train::Train),
    /// Choose the weights of a hybrid retriever on task files with gold
    Tune(tune::Tune),
    /// Make a test set of synthetic questions out of files and folders
    EvalSet(eval_set::MakeEvalSet),
    /// Score predictions, rankings and models
    #[command(subcommand)]
    Evaluate(evaluate::Evaluate),
    /// Compare finished runs with each other and with published results
    Report(report::ReportRuns),
    /// Compare responses of two systems by people: sheets and votes
    #[command(subcommand)]
    Compare(compare::Compare),
    /// Run rows of `configs/expected.toml` and compare the figures
    Reproduce(reproduce::Reproduce),
    /// Check or pack files for submission
    #[command(subcommand)]
    Submit(submit::Submit),
    /// Collect evidence for task files from annotators
    #[command(subcommand)]
    Annotate(annotate::Annotate),
    /// Convert data sets and file formats
    #[command(subcommand)]
    Convert(convert::Convert),
    /// Print the statistics of a data set
    Describe(describe::Describe),
    /// Fetch, import and describe models
    #[command(subcommand)]
    Models(models::Models),
    /// Write a config to start from
    Init(init::Init),
    /// Check or show a config
    #[command(subcommand)]
    Config(config::Config),
    /// Show the capabilities of this machine and this build
    Doctor(doctor::Doctor),
    /// Print the completions of a shell
    Completions(completions::Completions),
    /// Write man pages
    Man(man::Man),
    /// Print generated pages of the manual
    #[command(subcommand, hide = true)]
    Docs(docs::Docs),
}

impl Command {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        match self {
            Self::Run(command) => command.run(context),
            Self::Ask(command) => command.run(context),
            Self::Populate(command) => command.run(context),
            Self::Reason(command) => command.run(context),
            Self::Index(command) => command.run(context),
            Self::Serve(command) => command.run(context),
            Self::Mcp(command) => command.run(context),
            Self::Indexes(command) => command.run(),
            Self::Retrieve(command) => command.run(context),
            Self::Explain(command) => command.run(context),
            Self::Merge(command) => command.run(context),
            Self::Embed(command) => command.run(context),
            Self::Rerank(command) => command.run(context),
            Self::Generate(command) => command.run(context),
            Self::Train(command) => command.run(context),
            Self::Tune(command) => command.run(context),
            Self::EvalSet(command) => command.run(context),
            Self::Evaluate(command) => command.run(),
            Self::Report(command) => command.run(context),
            Self::Compare(command) => command.run(),
            Self::Reproduce(command) => command.run(context),
            Self::Submit(command) => command.run(),
            Self::Annotate(command) => command.run(),
            Self::Convert(command) => command.run(context),
            Self::Describe(command) => command.run(),
            Self::Models(command) => command.run(context),
            Self::Init(command) => command.run(),
            Self::Config(command) => command.run(),
            Self::Doctor(command) => command.run(context),
            Self::Completions(command) => command.run(),
            Self::Man(command) => command.run(),
            Self::Docs(command) => command.run(),
        }
    }
}

/// A config and overrides of its values.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    /// The config, a TOML file
    #[arg(value_name = "CONFIG", value_hint = clap::ValueHint::FilePath)]
    config: PathBuf,
    /// Overrides of config values, such as `retriever.k1=1.2`; `~KEY` takes a key out
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl ConfigArgs {
    /// The config's path, checked to be a file, and the overrides.
    fn parts(&self) -> Result<(&Path, &[String])> {
        if self.config.is_dir() {
            let folder = self.config.display();
            return Err(Error::Input(format!(
                "expected a config, found the folder {folder}; for documents, `sporran ask {folder} --show-config` prints one"
            )));
        }
        paths::file(&self.config)?;
        Ok((&self.config, &self.overrides))
    }

    /// A result whose mistakes name the config and the line.
    fn placed<T>(&self, result: sporran_pipeline::Result<T>) -> Result<T> {
        let placed = |error| registry::placed(&self.config, &self.overrides, error);
        Ok(result.map_err(placed)?)
    }

    /// Reads the config after all checks that need no model. The workflow is `answer` or `retriever-training`.
    fn load(&self) -> Result<Options> {
        let (config, overrides) = self.parts()?;
        let options = || {
            let mistakes = sporran_pipeline::check(config, overrides)?;
            if !mistakes.is_empty() {
                return Err(sporran_pipeline::Error::Config(mistakes).into());
            }
            Ok(Options::parse(config, overrides)?)
        };
        self.load_by(options)
    }

    /// As [`load`](Self::load), for a config whose task files are not used.
    fn load_without_tasks(&self) -> Result<Options> {
        let (config, overrides) = self.parts()?;
        self.load_by(|| Ok(Options::load_without_tasks(config, overrides)?))
    }

    /// Checks the workflow, and reads the config with `options`.
    fn load_by(&self, options: impl FnOnce() -> Result<Options>) -> Result<Options> {
        let (config, overrides) = self.parts()?;
        // A verb that does not apply comes before the config's mistakes.
        let workflow = workflow_of(config, overrides)?;
        if !Options::WORKFLOWS.contains(&workflow.name) {
            return Err(workflow.refusal(config).into());
        }
        let options = options()?;
        if let Some(source) = &options.general.source {
            // Every verb that searches builds the indexes that are missing.
            interrupt::keep(Kept::Folder(source.indexes.clone()));
        }
        Ok(options)
    }
}
