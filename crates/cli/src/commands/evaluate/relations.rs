//! `sporran evaluate relations`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::scores::document_relations;

use super::figures::{self, check_scored, value};
use crate::{error::Result, outcome::Outcome, paths};

/// `sporran evaluate relations`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran evaluate relations --gold test.json --known train.json \\\n    \
        --guess runs/redocred/predictions/test.json")]
pub(crate) struct Relations {
    /// Gold file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    gold: PathBuf,
    /// Predicted relations
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    guess: PathBuf,
    /// Training documents; `ign_f1` leaves out the relations that they state
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    known: Vec<PathBuf>,
}

impl Relations {
    pub(crate) fn run(self) -> Result<Outcome> {
        paths::file(&self.gold)?;
        check_scored(&self.guess)?;
        self.known.iter().try_for_each(|known| paths::file(known))?;
        let report = document_relations::evaluate(&self.gold, &self.guess, &self.known)?;
        figures::outcome(&value(&report)?, &[])
    }
}
