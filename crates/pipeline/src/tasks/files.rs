//! The task files that a config names.

use std::path::{Path, PathBuf};

use super::options::TasksOptions;
use crate::{Error, Result};
use sporran_config::Diagnostic;
use sporran_kilt::{Dataset, Split};

/// A task file that a run answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFile {
    /// The file.
    pub path: PathBuf,
    /// Its name without a compression's ending: the name of its predictions.
    pub name: String,
    /// The dataset that its name tells.
    pub dataset: Option<Dataset>,
    /// A file with its gold, where that stands apart.
    pub gold: Option<PathBuf>,
    /// TriviaQA's question files, for a file without inputs.
    pub questions: Vec<PathBuf>,
    /// How many of its records are used.
    pub limit: Option<usize>,
}

const COMPRESSIONS: [&str; 3] = ["", ".gz", ".zst"];

/// A file in a folder, compressed or not.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    COMPRESSIONS.iter().map(|ending| folder.join(format!("{name}{ending}"))).find(|path| path.is_file())
}

/// The name without a compression's ending.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    COMPRESSIONS[1..].iter().find_map(|ending| name.strip_suffix(ending).map(str::to_owned)).unwrap_or(name)
}

/// What is wrong with `[tasks]` (or `[train.examples]`): the key below it and what was expected.
type Fault = (&'static str, String);

impl TasksOptions {
    /// The task files, in the order of KILT's tables and then of `files`.
    ///
    /// # Errors
    /// The key at fault and what is wrong with it.
    pub(crate) fn resolve(&self) -> Result<Vec<TaskFile>, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut paths: Vec<PathBuf> = Vec::new();
        match (&self.folder, self.split) {
            (Some(folder), Some(split)) => paths.extend(self.in_folder(folder, split, &mut faults)),
            (Some(_), None) => {
                faults.push(("split", "is missing; expected `train`, `dev` or `test`".to_owned()))
            }
            (None, Some(_)) => faults.push(("folder", "is missing; `split` goes with it".to_owned())),
            (None, None) => {}
        }
        for path in &self.files {
            if !path.is_file() {
                faults.push(("files", format!("no file {}", path.display())));
            }
            paths.push(path.clone());
        }
        for path in self.triviaqa.iter().filter(|path| !path.is_file()) {
            faults.push(("triviaqa", format!("no file {}", path.display())));
        }
        if paths.is_empty() && faults.is_empty() {
            faults.push(("folder", "is missing; expected `folder` and `split`, or `files`".to_owned()));
        }
        let mut files: Vec<TaskFile> = Vec::new();
        for path in paths {
            let name = plain_name(&path);
            if files.iter().any(|file| file.name == name) {
                faults.push((
                    "files",
                    format!("two task files are named {name}; their predictions would be one file"),
                ));
            }
            let dataset = Dataset::of_file_name(&name);
            let questions =
                if dataset == Some(Dataset::TriviaQa) { self.triviaqa.clone() } else { Vec::new() };
            let gold = match &self.gold {
                None => None,
                Some(folder) => {
                    // A gold file of a test part is named as KILT names it, or without saying that answers are missing.
                    let found =
                        find(folder, &name).or_else(|| find(folder, &name.replace("_without_answers", "")));
                    if found.is_none() {
                        faults.push(("gold", format!("no file {name} in {}", folder.display())));
                    }
                    found
                }
            };
            files.push(TaskFile { path, name, dataset, gold, questions, limit: self.limit });
        }
        if faults.is_empty() { Ok(files) } else { Err(faults) }
    }

    fn in_folder(&self, folder: &Path, split: Split, faults: &mut Vec<Fault>) -> Vec<PathBuf> {
        if !folder.is_dir() {
            faults.push(("folder", format!("no folder {}", folder.display())));
            return Vec::new();
        }
        let mut found = Vec::new();
        for dataset in Dataset::ALL {
            if !self.datasets.is_empty() && !self.datasets.contains(&dataset) {
                continue;
            }
            let name = dataset.file_name(split);
            // TriviaQA's file loses its `_id` once its questions are joined.
            let joined = name.replace("_id", "");
            match find(folder, &joined).or_else(|| find(folder, &name)) {
                Some(path) => found.push(path),
                None if !self.datasets.is_empty() => {
                    faults.push(("datasets", format!("no file {name} in {}", folder.display())));
                }
                None => {}
            }
        }
        if found.is_empty() && faults.is_empty() {
            let example = Dataset::Nq.file_name(split);
            faults.push(("folder", format!("{} holds no task file such as {example}", folder.display())));
        }
        found
    }
}

/// The task files of a config's table.
///
/// # Errors
/// [`Error::Config`] naming the table's keys.
pub(crate) fn task_files(tasks: &TasksOptions, table: &str) -> Result<Vec<TaskFile>> {
    tasks.resolve().map_err(|faults| {
        let diagnostic = |(key, message): Fault| Diagnostic::of_config(&format!("{table}.{key}"), message);
        Error::Config(faults.into_iter().map(diagnostic).collect())
    })
}
