//! `sporran submit check` and `sporran submit pack`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use sporran_kilt::{Dataset, PassageStore, Split};
use sporran_pipeline::submission::{self, Entry};

use super::{print, print_json};
use crate::error::{Error, Result};

/// `sporran submit`
#[derive(Subcommand)]
pub(crate) enum Submit {
    /// Check the shape of predictions, and their ids against the inputs, and list what is wrong by line
    Check(Check),
    /// Write one archive of all datasets, after checking them
    Pack(Pack),
}

/// Which of a folder's inputs.
#[derive(Args)]
struct Which {
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

impl Which {
    fn entries(&self, inputs: &Path, predictions: &Path) -> Result<Vec<Entry>> {
        let split = match self.split {
            Part::Train => Split::Train,
            Part::Dev => Split::Dev,
            Part::Test => Split::Test,
        };
        Ok(submission::pair(inputs, predictions, split, &self.datasets)?)
    }
}

/// `sporran submit check`
#[derive(Args)]
pub(crate) struct Check {
    /// Prediction files of any workflow, checked by themselves
    #[arg(value_name = "FILE", required_unless_present = "inputs")]
    files: Vec<PathBuf>,
    /// The folder of the inputs, with KILT's file names
    #[arg(long, value_name = "DIR", requires = "predictions")]
    inputs: Option<PathBuf>,
    /// The folder of the predictions, such as `runs/NAME/predictions`
    #[arg(long, value_name = "DIR", requires = "inputs")]
    predictions: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// The passage store of the knowledge source, such as `indexes/store-KEY`: provenance must name its pages, and places on them
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// `sporran submit pack`
#[derive(Args)]
pub(crate) struct Pack {
    /// The folder of the inputs, with KILT's file names
    #[arg(long, value_name = "DIR")]
    inputs: PathBuf,
    /// The folder of the predictions, such as `runs/NAME/predictions`
    #[arg(long, value_name = "DIR")]
    predictions: PathBuf,
    #[command(flatten)]
    which: Which,
    /// The archive to write, a `.tar.gz`
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

impl Check {
    /// What is wrong with each file, by its name.
    fn faults(&self) -> Result<Vec<(String, Vec<String>)>> {
        let store = self.store.as_ref().map(PassageStore::open).transpose()?;
        let store = store.as_ref();
        let mut faults = Vec::new();
        for file in &self.files {
            faults.push((file.display().to_string(), submission::check_file(file, store)?));
        }
        if let (Some(inputs), Some(predictions)) = (&self.inputs, &self.predictions) {
            for entry in self.which.entries(inputs, predictions)? {
                let found = submission::check(&entry, store)?;
                faults.push((entry.name, found));
            }
        }
        Ok(faults)
    }
}

impl Submit {
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Check(check) => {
                let faults = check.faults()?;
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
                let entries = pack.which.entries(&pack.inputs, &pack.predictions)?;
                submission::pack(&entries, &pack.output)?;
                print(&format!("{}: {} datasets\n", pack.output.display(), entries.len()))
            }
        }
    }
}
