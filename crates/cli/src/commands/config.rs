//! `sporran config check` and `sporran config show`.

use std::path::PathBuf;

use clap::{Args, Subcommand, builder::PossibleValuesParser};
use serde_json::json;
use sporran_pipeline::{
    Diagnostic, check,
    registry::{WORKFLOWS, explain},
    show, workflow_named,
};

use super::ConfigArgs;
use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

/// `sporran config`
#[derive(Subcommand)]
pub(crate) enum Config {
    /// Find every mistake in a config without loading a model
    #[command(after_help = "Example: sporran config check configs/quickstart.toml")]
    Check(ConfigArgs),
    /// Print a config with all its defaults
    #[command(after_help = "Example: sporran config show configs/quickstart.toml > full.toml")]
    Show(Show),
}

/// `sporran config show`
#[derive(Args)]
pub(crate) struct Show {
    /// The config, a TOML file
    #[arg(value_name = "CONFIG", value_hint = clap::ValueHint::FilePath, required_unless_present = "workflow")]
    config: Option<PathBuf>,
    /// Overrides of config values, such as `retriever.k1=1.2`; `~KEY` takes a key out
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Show every key with its meaning, unit, range and default, and mark those that the config sets
    #[arg(long)]
    explain: bool,
    /// Explain the keys of a workflow, without a config
    #[arg(long, value_name = "NAME", requires = "explain", conflicts_with = "config",
          value_parser = PossibleValuesParser::new(WORKFLOWS.map(|workflow| workflow.name)))]
    workflow: Option<String>,
}

impl Config {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Check(config) => {
                let (path, overrides) = config.parts()?;
                let mistakes = check(path, overrides)?;
                if !mistakes.is_empty() {
                    let listed: Vec<_> = mistakes
                        .iter()
                        .map(|Diagnostic { origin, line, key, message }| {
                            let line = (*line > 0).then_some(line);
                            json!({ "origin": origin, "line": line, "key": key, "message": message })
                        })
                        .collect();
                    let failure = sporran_pipeline::Error::Config(mistakes).into();
                    let outcome = Outcome::new("", &json!({ "ok": false, "mistakes": listed }))?;
                    return Ok(outcome.failing(Some(failure)));
                }
                Outcome::new(format!("{}: no mistakes", path.display()), &json!({ "ok": true }))
            }
            Self::Show(command) => command.run(),
        }
    }
}

impl Show {
    fn run(self) -> Result<Outcome> {
        let Some(path) = self.config else {
            let explained =
                self.workflow.as_deref().and_then(workflow_named).map_or_else(String::new, |it| it.explain());
            return Outcome::new(&explained, &json!({ "toml": explained }));
        };
        paths::file(&path)?;
        if self.explain {
            let explained = explain(&path, &self.overrides)?;
            return Outcome::new(&explained, &json!({ "toml": explained }));
        }
        let shown = show(&path, &self.overrides)?;
        let value: toml::Table = toml::from_str(&shown)
            .map_err(|error| Error::Input(format!("{}: {}", path.display(), error.message())))?;
        Outcome::new(shown, &value)
    }
}
