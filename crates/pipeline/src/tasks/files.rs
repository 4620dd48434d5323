//! The task files of a config.

use std::path::{Path, PathBuf};

use super::options::TasksOptions;
use crate::{Error, Result};
use sporran_config::Diagnostic;
use sporran_kilt::{Dataset, Split};

/// A task file of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFile {
    /// The path.
    pub path: PathBuf,
    /// The file name without the extension of the compression, which is also the name of the predictions.
    pub name: String,
    /// The dataset, by the file name.
    pub dataset: Option<Dataset>,
    /// The separate file of gold answers, if there is one.
    pub gold: Option<PathBuf>,
    /// TriviaQA's question files, for a file without inputs.
    pub questions: Vec<PathBuf>,
    /// Whether the file has queries in BEIR's or MS MARCO's layout instead of records.
    pub has_queries: bool,
    /// The judgements of the queries.
    pub qrels: Option<PathBuf>,
    /// The largest number of records.
    pub limit: Option<usize>,
}

const COMPRESSIONS: [&str; 3] = ["", ".gz", ".zst"];

/// A file in a folder, compressed or not.
fn find(folder: &Path, name: &str) -> Option<PathBuf> {
    COMPRESSIONS.iter().map(|ending| folder.join(format!("{name}{ending}"))).find(|path| path.is_file())
}

/// The name without the extension of the compression.
fn plain_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    COMPRESSIONS[1..].iter().find_map(|ending| name.strip_suffix(ending).map(str::to_owned)).unwrap_or(name)
}

/// Mistakes of `[tasks]` (or `[train.examples]`), as a key in the table and a message.
type Fault = (&'static str, String);

impl TasksOptions {
    /// The task files, in the order of KILT's tables and then of `files`.
    ///
    /// # Errors
    /// The mistakes, with their keys.
    pub(crate) fn resolve(&self) -> Result<Vec<TaskFile>, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut paths: Vec<PathBuf> = Vec::new();
        match (&self.folder, self.split) {
            (Some(folder), Some(split)) => paths.extend(self.in_folder(folder, split, &mut faults)),
            (Some(_), None) => {
                faults.push(("split", "is missing; expected `train`, `dev` or `test`".to_owned()))
            }
            (None, Some(_)) => faults.push(("folder", "is missing; `split` needs it".to_owned())),
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
        let mut files: Vec<TaskFile> = self.of_queries(&mut faults).into_iter().collect();
        if paths.is_empty() && files.is_empty() && faults.is_empty() {
            let message = "is missing; expected `folder` and `split`, `files`, or `queries`";
            faults.push(("folder", message.to_owned()));
        }
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
                    // The gold file of a test split has the name of KILT, with or without `_without_answers`.
                    let found =
                        find(folder, &name).or_else(|| find(folder, &name.replace("_without_answers", "")));
                    if found.is_none() {
                        faults.push(("gold", format!("no file {name} in {}", folder.display())));
                    }
                    found
                }
            };
            let (has_queries, qrels) = (false, None);
            files.push(TaskFile {
                path,
                name,
                dataset,
                gold,
                questions,
                has_queries,
                qrels,
                limit: self.limit,
            });
        }
        if faults.is_empty() { Ok(files) } else { Err(faults) }
    }

    /// The file of queries.
    fn of_queries(&self, faults: &mut Vec<Fault>) -> Option<TaskFile> {
        for (key, path) in [("queries", &self.queries), ("qrels", &self.qrels)] {
            if let Some(path) = path.as_ref().filter(|path| !path.is_file()) {
                faults.push((key, format!("no file {}", path.display())));
            }
        }
        let Some(path) = self.queries.clone() else {
            if self.qrels.is_some() {
                faults.push(("queries", "is missing; `qrels` needs it".to_owned()));
            }
            return None;
        };
        let name = plain_name(self.qrels.as_ref().unwrap_or(&path));
        let stem = [".jsonl", ".tsv", ".txt"].iter().find_map(|ending| name.strip_suffix(ending));
        Some(TaskFile {
            name: format!("{}.jsonl", stem.unwrap_or(&name)),
            path,
            dataset: None,
            gold: None,
            questions: Vec::new(),
            has_queries: true,
            qrels: self.qrels.clone(),
            limit: self.limit,
        })
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
            // TriviaQA's file has no `_id` after its questions are joined.
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

/// The task files of a table of the config.
///
/// # Errors
/// [`Error::Config`] with the keys of the table.
pub(crate) fn task_files(tasks: &TasksOptions, table: &str) -> Result<Vec<TaskFile>> {
    tasks.resolve().map_err(|faults| {
        let diagnostic = |(key, message): Fault| Diagnostic::of_config(&format!("{table}.{key}"), message);
        Error::Config(faults.into_iter().map(diagnostic).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_a_task_file_with_the_name_of_their_judgements() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["queries.jsonl", "test.tsv.gz"] {
            std::fs::write(path(name), "").unwrap();
        }
        let queries = Some(path("queries.jsonl"));
        let options = TasksOptions { queries, qrels: Some(path("test.tsv.gz")), ..TasksOptions::default() };
        let files = options.resolve().unwrap();
        assert_eq!((files.len(), files[0].name.as_str(), files[0].has_queries), (1, "test.jsonl", true));
        let without = TasksOptions { qrels: None, ..options.clone() };
        assert_eq!(without.resolve().unwrap()[0].name, "queries.jsonl");
        let faults = TasksOptions { queries: None, ..options.clone() }.resolve().unwrap_err();
        assert_eq!(faults, [("queries", "is missing; `qrels` needs it".to_owned())]);
        let faults = TasksOptions { qrels: Some(path("none.tsv")), ..options }.resolve().unwrap_err();
        assert!(faults[0].0 == "qrels" && faults[0].1.contains("no file"), "{faults:?}");
    }
}
