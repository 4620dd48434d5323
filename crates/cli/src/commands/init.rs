//! `sporran init`: a config to start from.

use std::{
    fs::File,
    io::{ErrorKind, Write},
    path::PathBuf,
};

use clap::{Args, builder::PossibleValuesParser};
use serde_json::json;
use sporran_pipeline::{registry::WORKFLOWS, workflow_named};

use crate::{
    error::{Error, Result},
    outcome::Outcome,
};

/// `sporran init`
#[derive(Args)]
#[command(after_help = "Example: sporran init answer my.toml")]
pub(crate) struct Init {
    /// Workflow that the config runs
    #[arg(value_name = "WORKFLOW", value_parser = PossibleValuesParser::new(WORKFLOWS.map(|workflow| workflow.name)))]
    workflow: String,
    /// The file to write, which must not exist; by default WORKFLOW.toml
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
}

impl Init {
    pub(crate) fn run(self) -> Result<Outcome> {
        let text = workflow_named(&self.workflow).and_then(|workflow| workflow.starter()).unwrap_or_default();
        let path = self.file.unwrap_or_else(|| format!("{}.toml", self.workflow).into());
        let mut file = File::create_new(&path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                Error::Input(format!("{} exists; expected the name of a new file", path.display()))
            }
            _ => Error::io(&path, "create")(error),
        })?;
        file.write_all(text.as_bytes()).map_err(Error::io(&path, "write"))?;
        let check = format!("sporran config check {}", path.display());
        let summary = format!("{}: replace the paths in it, then run `{check}`", path.display());
        Outcome::new(summary, &json!({ "config": path }))
    }
}
