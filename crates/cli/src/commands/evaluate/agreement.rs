//! `sporran evaluate agreement`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::scores::agreement;

use super::figures::{self, value};
use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

/// `sporran evaluate agreement`
#[derive(Args)]
#[command(after_help = "Example: sporran evaluate agreement wow++/test.json")]
pub(crate) struct Agreement {
    /// Dialogues in WOW++'s layout whose sentences have `votes`
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
}

impl Agreement {
    pub(crate) fn run(self) -> Result<Outcome> {
        paths::file(&self.file)?;
        match agreement::of_wowpp(&self.file)? {
            Some(agreement) => figures::outcome(&value(&agreement)?, &[]),
            None => Err(Error::Input(format!(
                "{}: expected sentences with `votes`, found none; agreement needs votes, not confidences",
                self.file.display()
            ))),
        }
    }
}
