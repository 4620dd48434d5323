//! `sporran compare responses` and `sporran compare votes`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use sporran_pipeline::responses::{self, SheetOptions, VoteKind};

use super::evaluate::Rounds;
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran compare`
#[derive(Subcommand)]
pub(crate) enum Compare {
    /// Write a blind sheet of the responses of two systems, for annotators
    Responses(Responses),
    /// Count the votes of filled sheets: preferences or ratings, significance, agreement
    Votes(Votes),
}

/// What annotators vote on.
#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// Which of two responses is better
    Preference,
    /// 0, 1 or 2 for each response
    Rating,
}

/// `sporran compare responses`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran compare responses runs/tfidf/predictions.jsonl runs/reranker/predictions.jsonl \\\n    \
        --sheet sheets/table5 --limit 100 --seed 1")]
pub(crate) struct Responses {
    /// Predictions of the first system
    #[arg(value_name = "FIRST", value_hint = ValueHint::FilePath)]
    first: PathBuf,
    /// Predictions of the second system, for the same ids
    #[arg(value_name = "SECOND", value_hint = ValueHint::FilePath)]
    second: PathBuf,
    /// New folder for `sheet.csv`, `sheet.html` and `key.json`; annotators do not get the key
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    sheet: PathBuf,
    /// What annotators vote on
    #[arg(long, value_enum, default_value_t = Kind::Preference, value_name = "WHAT")]
    kind: Kind,
    /// Names of the systems in the key [default: the paths of the files]
    #[arg(long, value_delimiter = ',', value_name = "NAME,NAME")]
    names: Vec<String>,
    /// Records in the sheet, a random sample [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Seed of the sample and of the orders
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

/// `sporran compare votes`
#[derive(Args)]
#[command(after_help = "Example: sporran compare votes sheets/table5/key.json anna.csv ben.csv")]
pub(crate) struct Votes {
    /// Key of the sheet
    #[arg(value_name = "KEY", value_hint = ValueHint::FilePath)]
    key: PathBuf,
    /// Filled sheets, one for each annotator
    #[arg(required = true, value_name = "SHEET", value_hint = ValueHint::FilePath)]
    sheets: Vec<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
}

impl Compare {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Responses(command) => command.run(),
            Self::Votes(command) => command.run(),
        }
    }
}

impl Responses {
    fn run(self) -> Result<Outcome> {
        paths::file(&self.first)?;
        paths::file(&self.second)?;
        let shown = |path: &Path| path.display().to_string();
        let names = match <[String; 2]>::try_from(self.names) {
            Ok(names) => names,
            Err(names) if names.is_empty() => [shown(&self.first), shown(&self.second)],
            Err(names) => {
                return Err(Error::Usage(format!("--names: expected 2 names, found {}", names.len())));
            }
        };
        interrupt::keep(Kept::Output(self.sheet.clone()));
        let kind = match self.kind {
            Kind::Preference => VoteKind::Preference,
            Kind::Rating => VoteKind::Rating,
        };
        let options = SheetOptions {
            predictions: [self.first, self.second],
            names,
            kind,
            limit: self.limit.map(|limit| limit as usize),
            seed: self.seed,
        };
        Outcome::of(&responses::write_sheet(&options, &self.sheet)?)
    }
}

impl Votes {
    fn run(self) -> Result<Outcome> {
        paths::file(&self.key)?;
        self.sheets.iter().try_for_each(|sheet| paths::file(sheet))?;
        Outcome::of(&responses::read_votes(&self.key, &self.sheets, self.rounds.value())?)
    }
}
