//! `sporran submit check` and `sporran submit pack`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use serde_json::json;
use sporran_kilt::{Dataset, PassageStore, Split, counted};
use sporran_pipeline::submit::{self, Entry};

use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran submit`
#[derive(Subcommand)]
pub(crate) enum Submit {
    /// Check predictions and their ids against the inputs; list all mistakes by line
    Check(Check),
    /// Check the predictions of all datasets and write them as one archive
    Pack(Pack),
}

/// The inputs of a folder to use.
#[derive(Args)]
struct Which {
    /// Split of the inputs
    #[arg(long, value_enum, default_value_t = Part::Test, value_name = "SPLIT")]
    split: Part,
    /// Only these datasets, such as `nq,trex`
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
        paths::folder(inputs)?;
        if !predictions.exists() {
            // A run that was killed before its first prediction gets an error with its progress.
            sporran_pipeline::check_finished(predictions)?;
        }
        paths::folder(predictions)?;
        let split = match self.split {
            Part::Train => Split::Train,
            Part::Dev => Split::Dev,
            Part::Test => Split::Test,
        };
        Ok(submit::pair(inputs, predictions, split, &self.datasets)?)
    }
}

/// `sporran submit check`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran submit check --inputs examples/minikilt/kilt --split dev \\\n    \
        --predictions runs/quickstart/predictions")]
pub(crate) struct Check {
    /// Prediction files of any workflow, checked without inputs
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "inputs")]
    files: Vec<PathBuf>,
    /// Folder of the inputs, with KILT's file names
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "predictions")]
    inputs: Option<PathBuf>,
    /// Folder of the predictions, such as `runs/NAME/predictions`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "inputs")]
    predictions: Option<PathBuf>,
    #[command(flatten)]
    which: Which,
    /// Passage store of the knowledge source, such as `indexes/store-KEY`; provenance must name its pages
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
}

/// `sporran submit pack`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran submit pack --inputs examples/minikilt/kilt --split dev \\\n    \
        --predictions runs/quickstart/predictions --output submission.tar.gz")]
pub(crate) struct Pack {
    /// Folder of the inputs, with KILT's file names
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    inputs: PathBuf,
    /// Folder of the predictions, such as `runs/NAME/predictions`
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    predictions: PathBuf,
    #[command(flatten)]
    which: Which,
    /// Archive to write, a `.tar.gz`
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Check {
    /// The mistakes of each file, by file name.
    fn faults(&self) -> Result<Vec<(String, Vec<String>)>> {
        self.store.as_deref().map_or(Ok(()), paths::folder)?;
        self.files.iter().try_for_each(|file| paths::file(file))?;
        let store = self.store.as_ref().map(PassageStore::open).transpose()?;
        let store = store.as_ref();
        let mut faults = Vec::new();
        for file in &self.files {
            faults.push((file.display().to_string(), submit::check_file(file, store)?));
        }
        if let (Some(inputs), Some(predictions)) = (&self.inputs, &self.predictions) {
            for entry in self.which.entries(inputs, predictions)? {
                let found = submit::check(&entry, store)?;
                faults.push((entry.name, found));
            }
        }
        Ok(faults)
    }
}

impl Submit {
    pub(crate) fn run(self) -> Result<Outcome> {
        match self {
            Self::Check(check) => check.run(),
            Self::Pack(pack) => pack.run(),
        }
    }
}

impl Check {
    fn run(&self) -> Result<Outcome> {
        let faults = self.faults()?;
        let wrong: usize = faults.iter().map(|(_, faults)| faults.len()).sum();
        let mut text = String::new();
        for (name, faults) in &faults {
            let verdict = if faults.is_empty() { "ready" } else { "not ready" };
            text.push_str(&format!("{name}: {verdict}\n"));
            faults.iter().for_each(|fault| text.push_str(&format!("  {fault}\n")));
        }
        let files: serde_json::Map<_, _> =
            faults.into_iter().map(|(name, faults)| (name, faults.into())).collect();
        let noun = if wrong == 1 { "mistake" } else { "mistakes" };
        let failure = (wrong > 0).then(|| Error::Found(format!("{wrong} {noun} in the predictions")));
        Ok(Outcome::new(text, &json!({ "ok": wrong == 0, "files": files }))?.failing(failure))
    }
}

impl Pack {
    fn run(&self) -> Result<Outcome> {
        let name = self.output.file_name().unwrap_or_default().to_string_lossy();
        if self.output.is_dir() || !(name.ends_with(".tar.gz") || name.ends_with(".tgz")) {
            let message = format!(
                "--output: expected a file that ends in .tar.gz or .tgz, found {}",
                self.output.display()
            );
            return Err(Error::Usage(message));
        }
        interrupt::keep(Kept::Output(self.output.clone()));
        let entries = self.which.entries(&self.inputs, &self.predictions)?;
        submit::pack(&entries, &self.output)?;
        let text = format!("{}: {}", self.output.display(), counted(entries.len() as u64, "dataset"));
        Outcome::new(text, &json!({ "archive": self.output, "datasets": entries.len() }))
    }
}
