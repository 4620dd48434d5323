//! `sporran submit check` and `sporran submit pack`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use sporran_kilt::{Dataset, Split};
use sporran_pipeline::submission::{self, Entry};

use super::{print, print_json};
use crate::error::{Error, Result};

/// `sporran submit`
#[derive(Subcommand)]
pub(crate) enum Submit {
    /// Compare ids and shapes of predictions with the inputs and list what is wrong by line
    Check(Check),
    /// Write one archive of all datasets, after checking them
    Pack(Pack),
}

#[derive(Args)]
struct Files {
    /// The folder of the inputs, with KILT's file names
    #[arg(long, value_name = "DIR")]
    inputs: PathBuf,
    /// The folder of the predictions, such as `runs/NAME/predictions`
    #[arg(long, value_name = "DIR")]
    predictions: PathBuf,
    /// Which of the inputs
    #[arg(long, value_enum, default_value_t = Part::Test)]
    split: Part,
    /// Only these datasets, such as `nq,trex`: systems that answer questions alone have no predictions for the others
    #[arg(long, value_delimiter = ',', value_parser = dataset, value_name = "NAME,..")]
    datasets: Vec<Dataset>,
}

fn dataset(name: &str) -> std::result::Result<Dataset, String> {
    let stems = || Dataset::ALL.map(Dataset::stem).join(", ");
    let found = Dataset::from_stem(name);
    found.ok_or_else(|| format!("expected one of {}", stems()))
}

#[derive(Clone, Copy, ValueEnum)]
enum Part {
    Train,
    Dev,
    Test,
}

impl Files {
    fn entries(&self) -> Result<Vec<Entry>> {
        let split = match self.split {
            Part::Train => Split::Train,
            Part::Dev => Split::Dev,
            Part::Test => Split::Test,
        };
        Ok(submission::pair(&self.inputs, &self.predictions, split, &self.datasets)?)
    }
}

/// `sporran submit check`
#[derive(Args)]
pub(crate) struct Check {
    #[command(flatten)]
    files: Files,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `sporran submit pack`
#[derive(Args)]
pub(crate) struct Pack {
    #[command(flatten)]
    files: Files,
    /// The archive to write, a `.tar.gz`
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Submit {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Check(check) => {
                let entries = check.files.entries()?;
                let faults: Vec<(String, Vec<String>)> = entries
                    .iter()
                    .map(|entry| Ok((entry.name.clone(), submission::check(entry)?)))
                    .collect::<Result<_>>()?;
                let wrong: usize = faults.iter().map(|(_, faults)| faults.len()).sum();
                if check.json {
                    let files: serde_json::Map<_, _> =
                        faults.into_iter().map(|(name, faults)| (name, faults.into())).collect();
                    print_json(&serde_json::json!({ "ok": wrong == 0, "files": files }))?;
                } else {
                    for (name, faults) in &faults {
                        let verdict = if faults.is_empty() { "ready" } else { "not ready" };
                        print(&format!("{name}: {verdict}\n"))?;
                        for fault in faults {
                            print(&format!("  {fault}\n"))?;
                        }
                    }
                }
                if wrong == 0 {
                    Ok(())
                } else {
                    Err(Error::Found(format!("{wrong} mistakes in the predictions")))
                }
            }
            Self::Pack(pack) => {
                let entries = pack.files.entries()?;
                submission::pack(&entries, &pack.output)?;
                print(&format!("{}: {} datasets\n", pack.output.display(), entries.len()))
            }
        }
    }
}
