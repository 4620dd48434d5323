//! `sporran evaluate mentions`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::scores::mentions;

use super::figures::check_scored;
use crate::{error::Result, outcome::Outcome, paths};

/// `sporran evaluate mentions`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran evaluate mentions --gold examples/minikilt/kilt/aidayago2-dev-kilt.jsonl \\\n    \
        --guess runs/quickstart/predictions/aidayago2-dev-kilt.jsonl --document minikilt_aida_20000")]
pub(crate) struct Mentions {
    /// Gold file of entity linking, in KILT's layout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    gold: PathBuf,
    /// Predictions in KILT's layout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    guess: PathBuf,
    /// Document to list: the records' ids without `:` and the number at their end
    #[arg(long, value_name = "ID")]
    document: Option<String>,
}

impl Mentions {
    pub(crate) fn run(self) -> Result<Outcome> {
        paths::file_to_reread(&self.gold)?;
        check_scored(&self.guess)?;
        paths::file_to_reread(&self.guess)?;
        let texts = mentions::by_text(&self.gold, &self.guess, self.document.as_deref())?;
        let blocks: Vec<String> = texts.iter().map(ToString::to_string).collect();
        Outcome::list(blocks.join("\n\n"), texts)
    }
}
