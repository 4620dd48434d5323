//! `sporran evaluate agreement`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::{annotation, scores::agreement};

use super::figures::{self, value};
use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

/// `sporran evaluate agreement`
#[derive(Args)]
#[command(after_help = "Examples:\n  \
        sporran evaluate agreement wow++/test.json\n  \
        sporran evaluate agreement --sheets ann.csv ben.csv eve.csv")]
pub(crate) struct Agreement {
    /// Dialogues in WOW++'s layout whose sentences have `votes`; with --sheets, annotated sheets
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// The files are sheets of `annotate candidates`, one for each annotator, or with a column `annotator`. Prints
    /// Cohen's and Fleiss' kappa
    #[arg(long)]
    sheets: bool,
    /// Key of `annotate candidates`: also counts the gold passages that each annotator accepted
    #[arg(long, value_name = "FILE", requires = "sheets", value_hint = ValueHint::FilePath)]
    key: Option<PathBuf>,
}

impl Agreement {
    pub(crate) fn run(self) -> Result<Outcome> {
        self.files.iter().chain(&self.key).try_for_each(|path| paths::file(path))?;
        if self.sheets {
            return Outcome::of(&annotation::agreement::agreement(&self.files, self.key.as_deref())?);
        }
        let [file] = self.files.as_slice() else {
            return Err(Error::Usage(format!(
                "expected one file of dialogues, found {}; for the sheets of annotators add --sheets",
                self.files.len()
            )));
        };
        match agreement::of_wowpp(file)? {
            Some(agreement) => figures::outcome(&value(&agreement)?, &[]),
            None => Err(Error::Input(format!(
                "{}: expected sentences with `votes`, found none; agreement needs votes, not confidences",
                file.display()
            ))),
        }
    }
}
