//! A run's folder: its lock, the removal of leftovers of killed processes, and marks of unfinished work.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    StagedFolder,
    folder::{Lock, Shard, ShardManifest, make},
    jsonl, remove_leftovers,
};

use crate::{
    Error, Result,
    config::{Config, to_toml},
    run_dir::{journal::Journal, key::StepKey, untouched::Before},
};

/// The subfolder of internal files.
pub(super) const WORK: &str = "work";
/// Files in it: the lock, and the key of the checkpoints of a training.
pub(super) const LOCK: &str = "lock";
pub(super) const TRAINING_KEY: &str = "training.json";
/// The list of the results of the last run, and the folder of results of earlier runs.
pub(super) const WRITTEN: &str = "written.json";
const ASIDE: &str = "aside";
/// The config of the last run.
pub(super) const CONFIG: &str = "config.toml";
/// The results of runs. All other files are results of trainings.
pub(super) const ANSWERS: [&str; 9] = [
    "predictions",
    "predictions.jsonl",
    "ranking.jsonl",
    "retrieval",
    "answer-sets",
    "triples",
    "knowledgenet",
    "report.json",
    "report.html",
];

/// A run's folder, locked by this process. If it is dropped before [`Self::finished`] and there is no work to resume,
/// nothing of the call stays in it.
pub(crate) struct RunDir {
    pub(crate) root: PathBuf,
    before: Before,
    is_finished: AtomicBool,
    /// Released last.
    lock: Option<Lock>,
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let is_kept = self.is_finished.load(Ordering::Relaxed) || self.has_checkpoint();
        let is_undone = !is_kept && self.before.remove_files(&self.root);
        self.lock = None;
        if is_undone {
            self.before.remove_folders(&self.root);
        }
    }
}

/// The kind of work in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// A training, by `sporran train`.
    Training,
    /// A run, by the command of this name.
    Answering(&'static str),
}

impl Work {
    fn file(self, root: &Path) -> PathBuf {
        root.join(WORK).join(match self {
            Self::Training => "training.unfinished",
            Self::Answering(_) => "answers.unfinished",
        })
    }
}

/// A file of answers: its name, and the paths of its results relative to the run's folder.
pub(crate) struct AnswerFile {
    pub(crate) name: String,
    pub(crate) paths: Vec<PathBuf>,
}

/// A file that marks the work in a folder as unfinished.
pub(crate) struct Mark {
    path: PathBuf,
    unfinished: Unfinished,
}

/// The content of a mark's file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Unfinished {
    /// The command that finishes the work.
    command: String,
    /// The files without predictions.
    files: Vec<String>,
}

impl Mark {
    /// Marks the predictions of one file as finished.
    pub(crate) fn done(&mut self, file: &str) -> Result<()> {
        self.unfinished.files.retain(|other| other != file);
        Ok(jsonl::write_json(&self.path, &self.unfinished)?)
    }

    /// Removes the mark.
    pub(crate) fn finish(self) -> Result<()> {
        fs::remove_file(&self.path).map_err(Error::io(&self.path, "remove"))
    }
}

impl RunDir {
    /// Locks a run's folder and removes the leftovers of killed processes. A folder that does not exist is made.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process has the lock; [`Error::Io`] for file system errors.
    pub(crate) fn open(root: PathBuf) -> Result<Self> {
        let work = root.join(WORK);
        let path = work.join(LOCK);
        let before = Before::of(&root);
        let lock = loop {
            make(&work)?;
            match Lock::try_take(&path) {
                // Another call failed and removed the folder.
                Err(_) if !work.is_dir() => {}
                lock => break lock?,
            }
        };
        let Some(lock) = lock else {
            let process = holder(&path);
            return Err(Error::Busy { path: Lock::file(&path), process });
        };
        let folder = Self { root, before, is_finished: AtomicBool::new(false), lock: Some(lock) };
        // Leftovers of a killed process. The lock excludes that a process is writing here.
        remove_leftovers(&folder.root)?;
        Ok(folder)
    }

    /// Keeps what the call wrote.
    pub(crate) fn finished(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
    }

    /// Marks the answers to the files as missing. Moves results of earlier runs that this config does not
    /// produce to `work/aside`, so that they do not look like results of this config. A config that produces
    /// them again restores and reuses them.
    pub(crate) fn begin_answers(&self, command: &'static str, files: Vec<AnswerFile>) -> Result<Mark> {
        let mark =
            self.begin(Work::Answering(command), files.iter().map(|file| file.name.clone()).collect())?;
        let asked: BTreeSet<PathBuf> = files.into_iter().flat_map(|file| file.paths).collect();
        let aside = self.work(ASIDE);
        let rename = |from: &Path, to: &Path| -> Result<()> {
            let parent = to.parent().unwrap_or(to);
            fs::create_dir_all(parent).map_err(Error::io(parent, "create"))?;
            fs::rename(from, to).map_err(Error::io(from, "rename"))
        };
        for path in self.written().difference(&asked) {
            let (from, to) = (self.root.join(path), aside.join(path));
            if from.is_file() {
                tracing::warn!(
                    "{}: this config does not produce this result of an earlier run; moved to {}",
                    from.display(),
                    to.display()
                );
                rename(&from, &to)?;
            }
        }
        for path in &asked {
            let (from, to) = (aside.join(path), self.root.join(path));
            if from.is_file() && !to.exists() {
                rename(&from, &to)?;
            }
        }
        jsonl::write_json(self.work(WRITTEN), &asked)?;
        Ok(mark)
    }

    /// The results of the last run, relative to the run's folder, from its list or from the manifest of an older version.
    fn written(&self) -> BTreeSet<PathBuf> {
        if let Ok(written) = jsonl::read_json(self.work(WRITTEN)) {
            return written;
        }
        #[derive(Default, Deserialize)]
        struct Manifest {
            tasks: Vec<Task>,
        }
        #[derive(Deserialize)]
        struct Task {
            predictions: PathBuf,
        }
        let manifest: Manifest = jsonl::read_json(self.root.join("manifest.json")).unwrap_or_default();
        let both = |task: Task| {
            let ranking = ranking_of(&task.predictions);
            [task.predictions, ranking]
        };
        // Ignores absolute paths.
        let paths = manifest.tasks.into_iter().flat_map(both);
        paths
            .filter(|path| path.components().all(|part| matches!(part, std::path::Component::Normal(_))))
            .collect()
    }

    /// Marks work as unfinished, and the predictions for these files as missing.
    fn begin(&self, work: Work, files: Vec<String>) -> Result<Mark> {
        let command = match work {
            Work::Training => "train",
            Work::Answering(command) => command,
        };
        let mark =
            Mark { path: work.file(&self.root), unfinished: Unfinished { command: command.into(), files } };
        jsonl::write_json(&mark.path, &mark.unfinished)?;
        Ok(mark)
    }

    /// Marks a training as unfinished. Existing checkpoints must have the same key.
    ///
    /// # Errors
    /// [`Error::OtherTraining`] for checkpoints with another key.
    pub(crate) fn begin_training(&self, key: &StepKey) -> Result<Mark> {
        let path = self.work(TRAINING_KEY);
        if self.has_checkpoint()
            && let Ok(known) = jsonl::read_json::<StepKey>(&path)
            && let Some([name, here, there]) = key.difference(&known)
        {
            let [name, here, there] = [name, here, there].map(str::to_owned);
            return Err(Error::OtherTraining { folder: self.root.clone(), name, here, there });
        }
        jsonl::write_json(&path, key)?;
        self.begin(Work::Training, Vec::new())
    }

    /// Checks that existing models at these paths, relative to the folder, are of a training with this key.
    ///
    /// # Errors
    /// [`Error::OtherModel`] for a model of another key.
    pub(crate) fn check_models(&self, key: &StepKey, models: &[PathBuf]) -> Result<()> {
        let made = models.iter().map(|model| self.root.join(model)).find(|model| model.is_dir());
        if let Some(model) = made
            && let Ok(known) = jsonl::read_json::<StepKey>(self.work(TRAINING_KEY))
            && let Some([name, here, there]) = key.difference(&known)
        {
            let [name, here, there] = [name, here, there].map(str::to_owned);
            return Err(Error::OtherModel { model, name, here, there });
        }
        Ok(())
    }

    /// Checks that a training does not replace a model that is outside of the folder and that no training of this folder made.
    ///
    /// # Errors
    /// [`Error::ForeignModel`] for such a model.
    pub(crate) fn check_foreign(&self, model: &Path) -> Result<()> {
        let is_own = model.starts_with(&self.root) || self.work(TRAINING_KEY).exists();
        let is_there =
            model.is_file() || fs::read_dir(model).is_ok_and(|mut entries| entries.next().is_some());
        if is_own || !is_there {
            return Ok(());
        }
        Err(Error::ForeignModel { model: model.to_owned(), run: self.root.clone() })
    }

    /// Whether there is a checkpoint to resume from.
    pub(crate) fn has_checkpoint(&self) -> bool {
        has_checkpoint(&self.root, 3)
    }

    /// Writes the config with its defaults. Returns the text.
    pub(crate) fn write_config(&self, options: &impl Config) -> Result<String> {
        let config = to_toml(options)?;
        jsonl::write(self.root.join(CONFIG), config.as_bytes())?;
        Ok(config)
    }

    /// A file of the folder `work`.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.root.join(WORK).join(name)
    }
}

/// The ranking of a task file, relative to the run's folder, by the path or the name of its predictions.
pub(crate) fn ranking_of(predictions: &Path) -> PathBuf {
    let name = predictions.file_name().unwrap_or_default().to_string_lossy();
    Path::new("retrieval").join(format!("{}.trec", name.trim_end_matches(".jsonl")))
}

/// Whether there is a checkpoint in a folder or its subfolders, up to a depth.
fn has_checkpoint(folder: &Path, depth: usize) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_hidden = name.starts_with('.');
        name.starts_with("checkpoint")
            || (depth > 0 && !is_hidden && has_checkpoint(&entry.path(), depth - 1))
    })
}

/// Whether the next call continues what was interrupted in a folder. A training without a checkpoint begins again.
#[must_use]
pub fn continues(folder: &Path) -> bool {
    !Work::Training.file(folder).exists() || has_checkpoint(folder, 3)
}

/// The files that every finished run has.
const OF_RUNS: [&str; 2] = ["manifest.json", "report.json"];
/// The file that every finished training has.
const OF_TRAININGS: &str = "training-manifest.json";
/// The largest number of names in a message about a folder.
const NAMES: usize = 3;

/// The path of a file that every finished run has.
///
/// # Errors
/// [`Error::Unfinished`] for an unfinished run; [`Error::NotARun`] for a folder without the file.
pub(crate) fn file_of_run(folder: &Path, file: &'static str) -> Result<PathBuf> {
    check_finished(folder)?;
    let path = folder.join(file);
    if path.exists() {
        return Ok(path);
    }
    let found = what_is_in(folder);
    Err(Error::NotARun { folder: folder.to_owned(), file, found })
}

/// What a folder is that is not a finished run.
fn what_is_in(folder: &Path) -> String {
    if folder.is_file() {
        return "a file".to_owned();
    }
    if folder.join(OF_TRAININGS).is_file() {
        return match folder.join("ranking.jsonl").is_file() {
            true => "a training; `sporran evaluate ranking` scores its `ranking.jsonl`".to_owned(),
            false => {
                "a training; `sporran run` with its config makes a run, if its workflow has runs".to_owned()
            }
        };
    }
    let Ok(entries) = fs::read_dir(folder) else { return "no folder".to_owned() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_run = |path: &&PathBuf| OF_RUNS.iter().all(|file| path.join(file).is_file());
    let runs: Vec<&PathBuf> = paths.iter().filter(is_run).collect();
    if !runs.is_empty() {
        return format!("a folder of runs: {}", names(&runs, folder));
    }
    match paths.is_empty() {
        true => "an empty folder".to_owned(),
        false => format!("a folder with {}", names(&paths.iter().collect::<Vec<_>>(), Path::new(""))),
    }
}

/// The first of these paths: their names, below `folder`.
fn names(paths: &[&PathBuf], folder: &Path) -> String {
    let name = |path: &&&PathBuf| folder.join(path.file_name().unwrap_or_default()).display().to_string();
    let first: Vec<String> = paths.iter().take(NAMES).map(|path| name(&path)).collect();
    let rest = if paths.len() > NAMES { ", .." } else { "" };
    format!("{}{rest}", first.join(", "))
}

/// Checks that `path` is not a result of an unfinished run or training. Paths outside of a run's folder always pass.
///
/// # Errors
/// [`Error::Unfinished`] with the progress and the command that continues the work.
pub fn check_finished(path: &Path) -> Result<()> {
    let root = path.ancestors().find(|folder| folder.join(WORK).join(LOCK).is_file());
    let Some(root) = root else { return Ok(()) };
    if let Some(ShardManifest { shard, .. }) = ShardManifest::read(root)? {
        let progress = format!("it is shard {shard} only");
        let hint = "merge all shards with `sporran merge`".to_owned();
        return Err(Error::Unfinished { folder: root.to_owned(), progress, hint });
    }
    if let Some(shard) = Shard::of_folder(root) {
        let progress = format!("shard {shard} is not complete");
        let hint = format!("continue with the command that makes it, with `--shard {shard}`");
        return Err(Error::Unfinished { folder: root.to_owned(), progress, hint });
    }
    let rest = path.strip_prefix(root).unwrap_or(path);
    let first = rest.components().next().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let is_answer = first.as_ref().is_none_or(|first| ANSWERS.contains(&first.as_str()));
    if !is_answer {
        let is_trained = !Work::Training.file(root).is_file();
        let progress = "its training is incomplete".to_owned();
        return if is_trained { Ok(()) } else { Err(unfinished(root, progress, "train")) };
    }
    let mark = Work::Answering("run").file(root);
    let mut found: Unfinished = if mark.is_file() { jsonl::read_json(&mark)? } else { Unfinished::default() };
    let journals = journals(root);
    if found.command.is_empty() {
        if journals.is_empty() {
            return Ok(());
        }
        // A run of a version without marks, or a training that ranks its held-out folds.
        let command = if Work::Training.file(root).is_file() { "train" } else { "run" };
        found = Unfinished { command: command.into(), files: journals.clone() };
    }
    // Predictions, rankings and inputs have the same name before their extensions.
    let stem = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
    let last = rest.file_name().map(|name| name.to_string_lossy().into_owned());
    let asked =
        last.filter(|name| !name.starts_with("report.") && name.contains('.')).map(|name| stem(&name));
    // If the file `path` is there, another part of the run is missing.
    let is_asked = |name: &String| asked.as_ref() == Some(&stem(name));
    let is_missing = found.files.iter().any(is_asked);
    let concerned = |name: &&String| !is_missing || is_asked(name);
    let missing = found.files.iter().find(concerned);
    let journal = journals.iter().filter(concerned).find_map(|name| {
        let progress = Journal::progress(&root.join(WORK).join(format!("{name}.journal")))?;
        let total = progress.total.map_or_else(String::new, |total| format!(" of {}", grouped(total)));
        Some(format!("{}{total} records of {name}", grouped(progress.records)))
    });
    let progress = journal.unwrap_or_else(|| match missing {
        Some(file) => format!("nothing of {file} is answered"),
        None => "its report is not written".to_owned(),
    });
    Err(unfinished(root, progress, &found.command))
}

/// [`check_finished`] for a model's folder. Also accepts the folder of the run that trains the model. Also
/// detects an interrupted write of a folder outside of runs.
///
/// # Errors
/// [`Error::Unfinished`].
pub fn check_model(folder: &Path) -> Result<()> {
    if folder.join(WORK).join(LOCK).is_file() && !folder.join("config.json").exists() {
        return check_finished(&folder.join("model"));
    }
    if StagedFolder::is_unfinished(folder) {
        return Err(Error::Unfinished {
            folder: folder.to_owned(),
            progress: "it was not completely written".to_owned(),
            hint: "continue with the command that writes it, such as `sporran train` and its config"
                .to_owned(),
        });
    }
    check_finished(folder)
}

fn unfinished(root: &Path, progress: String, command: &str) -> Error {
    let lock = root.join(WORK).join(LOCK);
    let hint = if Lock::is_held(&lock) {
        format!("process {} is at work on it", holder(&lock))
    } else {
        format!("continue with `sporran {command}` and its config")
    };
    let folder = if root.as_os_str().is_empty() { PathBuf::from(".") } else { root.to_owned() };
    Error::Unfinished { folder, progress, hint }
}

/// The id of the process that has a lock.
fn holder(lock: &Path) -> String {
    Lock::holder(lock).unwrap_or_else(|| "unknown".to_owned())
}

/// The names of the files with a journal.
fn journals(root: &Path) -> Vec<String> {
    let entries = fs::read_dir(root.join(WORK)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        names.filter_map(|name| name.strip_suffix(".journal").map(str::to_owned)).collect();
    names.sort();
    names
}

/// A count with its digits in groups of three.
fn grouped(count: usize) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path) -> String {
        check_finished(path).err().map_or_else(String::new, |error| {
            assert!(error.is_input());
            error.to_string()
        })
    }

    #[test]
    fn what_is_not_finished_is_told_by_any_path_of_it() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("runs/r");
        let file = |name: &str| root.join(name);
        assert_eq!(message(&file("predictions/a-dev.jsonl")), "");
        let folder = RunDir::open(root.clone()).unwrap();
        let mut mark =
            folder.begin(Work::Answering("run"), vec!["a-dev.jsonl".into(), "b-dev.jsonl".into()]).unwrap();
        let mut journal = Journal::open(&folder.work("a-dev.jsonl.journal"), "key", Some(1757)).unwrap();
        for _ in 0..3 {
            journal.push(&"chunk", 128).unwrap();
        }
        let found = message(&file("predictions/a-dev.jsonl"));
        assert!(
            found.contains("384 of 1,757 records of a-dev.jsonl") && found.contains("is at work"),
            "{found}"
        );
        assert!(message(&root).contains("384 of 1,757"));
        assert!(message(&file("retrieval/b-dev.trec")).contains("nothing of b-dev.jsonl"));
        // A finished file of an unfinished run is not accepted; a model is.
        mark.done("a-dev.jsonl").unwrap();
        journal.remove().unwrap();
        assert!(message(&file("predictions/a-dev.jsonl")).contains("nothing of b-dev.jsonl"));
        assert_eq!(message(&file("model")), "");
        assert!(message(&file("report.json")).contains("nothing of b-dev.jsonl"));
        mark.done("b-dev.jsonl").unwrap();
        jsonl::write(file("predictions/b-dev.jsonl"), b"").unwrap();
        assert!(message(&file("predictions/b-dev.jsonl")).contains("report is not written"));
        assert!(message(&root).contains("report is not written"));
        drop(folder);
        assert!(message(&root).contains("continue with `sporran run` and its config"));
        mark.finish().unwrap();
        assert_eq!(message(&root), "");
        assert_eq!(message(&file("predictions/b-dev.jsonl")), "");
        // A run of a version without marks.
        Journal::open(&root.join("work/c.jsonl.journal"), "key", None).unwrap().push(&1, 1234).unwrap();
        assert!(message(&file("predictions/c.jsonl")).contains("1,234 records of c.jsonl"));
    }

    #[test]
    fn a_call_that_fails_before_its_first_result_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("runs/r");
        let answers = || vec![AnswerFile { name: "a".into(), paths: vec!["predictions/a.jsonl".into()] }];
        let begin = || {
            let folder = RunDir::open(root.clone()).unwrap();
            folder.begin_answers("run", answers()).unwrap();
            jsonl::write(root.join(CONFIG), b"").unwrap();
            fs::create_dir_all(root.join("predictions")).unwrap();
            Journal::open(&folder.work("a.journal"), "key", None).unwrap();
            folder
        };
        drop(begin());
        assert!(!place.path().join("runs").exists());
        // The folder of a training keeps the training.
        fs::create_dir_all(root.join("model")).unwrap();
        fs::write(root.join("model/config.json"), "{}").unwrap();
        drop(begin());
        let left: Vec<PathBuf> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [root.join("model")]);
        // Finished work stays, and so does a call that ends well.
        let folder = begin();
        Journal::open(&folder.work("a.journal"), "key", None).unwrap().push(&1, 1).unwrap();
        drop(folder);
        assert!(root.join("work/a.journal").is_file() && root.join(CONFIG).is_file());
        assert!(message(&root).contains("continue with `sporran run`"));
        fs::remove_dir_all(&root).unwrap();
        let folder = begin();
        folder.finished();
        drop(folder);
        assert!(root.join(CONFIG).is_file());
        // Results of an earlier call keep their config and their mark.
        fs::write(root.join("predictions/a.jsonl"), "").unwrap();
        fs::remove_file(root.join(CONFIG)).unwrap();
        drop(begin());
        assert!(root.join(CONFIG).is_file());
    }

    #[test]
    fn a_folder_that_is_no_run_is_named_with_its_content() {
        let place = tempfile::tempdir().unwrap();
        let found = |name: &str| {
            let error = file_of_run(&place.path().join(name), "report.json").unwrap_err();
            assert!(error.is_input());
            error.to_string().replace(&place.path().display().to_string(), "X")
        };
        let expected = "X/notes: expected the folder of a finished run, with report.json; found ";
        assert_eq!(found("notes"), format!("{expected}no folder"));
        fs::create_dir_all(place.path().join("notes")).unwrap();
        assert_eq!(found("notes"), format!("{expected}an empty folder"));
        for name in ["d.md", "a.md", "c.md", "b.md"] {
            fs::write(place.path().join("notes").join(name), "").unwrap();
        }
        assert_eq!(found("notes"), format!("{expected}a folder with a.md, b.md, c.md, .."));
        assert!(found("notes/a.md").ends_with("found a file"));
        let run = place.path().join("runs/r");
        fs::create_dir_all(&run).unwrap();
        OF_RUNS.iter().for_each(|name| fs::write(run.join(name), "{}").unwrap());
        assert!(found("runs").ends_with("found a folder of runs: X/runs/r"));
        assert_eq!(file_of_run(&run, "report.json").unwrap(), run.join("report.json"));
        fs::remove_file(run.join("report.json")).unwrap();
        fs::write(run.join(OF_TRAININGS), "{}").unwrap();
        assert!(found("runs/r").contains("found a training; `sporran run`"));
    }

    #[test]
    fn a_shard_is_not_the_whole_run() {
        let place = tempfile::tempdir().unwrap();
        let shard = Shard::new(1, 3).unwrap();
        let folder = RunDir::open_shard(place.path(), "r", shard).unwrap();
        let path = folder.root.join("predictions/a.jsonl");
        let found = message(&path);
        assert!(found.contains("shard 1/3 is not complete") && found.contains("`--shard 1/3`"), "{found}");
        folder.finish_shard(ShardManifest::new("run", "r", shard), Vec::new(), &()).unwrap_err();
        jsonl::write(folder.root.join("config.toml"), b"").unwrap();
        folder.finish_shard(ShardManifest::new("run", "r", shard), Vec::new(), &()).unwrap();
        assert!(message(&path).contains("it is shard 1/3 only"));
    }

    #[test]
    fn a_training_is_unfinished_until_it_ends_and_goes_on_under_its_own_key() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("r");
        let key = |rate: &str| StepKey::new("train", &toml::from_str::<toml::Table>(rate).unwrap()).unwrap();
        let folder = RunDir::open(root.clone()).unwrap();
        assert!(matches!(RunDir::open(root.clone()), Err(Error::Busy { .. })));
        let mark = folder.begin_training(&key("rate = 0.1")).unwrap();
        assert!(message(&root.join("model")).contains("training is incomplete"));
        assert!(message(&root.join("fold-1/model/config.json")).contains("is at work"));
        for folder in [root.clone(), root.join("model")] {
            let error = check_model(&folder).unwrap_err().to_string();
            assert!(error.contains("training is incomplete"), "{error}");
        }
        assert_eq!(message(&root.join("predictions/a.jsonl")), "");
        // Without a checkpoint there is nothing to resume from.
        let other = folder.begin_training(&key("rate = 0.2")).unwrap();
        fs::create_dir_all(root.join("fold-0/training/checkpoint-00000005")).unwrap();
        let error = folder.begin_training(&key("rate = 0.3")).err().unwrap();
        assert!(error.is_input());
        assert!(error.to_string().contains("`rate` is 0.3") && error.to_string().contains("0.2"), "{error}");
        folder.begin_training(&key("rate = 0.2")).unwrap().finish().unwrap();
        assert_eq!(message(&root.join("model")), "");
        drop((mark, other));
        let mark = folder.begin_training(&key("rate = 0.2")).unwrap();
        drop((folder, mark));
        assert!(message(&root.join("rules.tsv")).contains("continue with `sporran train` and its config"));
        // A model outside of the run's folder.
        let elsewhere = place.path().join("models/m");
        check_model(&elsewhere).unwrap();
        fs::create_dir_all(place.path().join("models/.m.unfinished/new")).unwrap();
        let error = check_model(&elsewhere).unwrap_err().to_string();
        assert!(error.contains("not completely written") && error.contains("`sporran train`"), "{error}");
    }

    #[test]
    fn what_a_config_no_longer_produces_is_set_aside_and_comes_back() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunDir::open(place.path().join("r")).unwrap();
        let write = |path: &str| jsonl::write(folder.root.join(path), path.as_bytes()).unwrap();
        let is_there = |path: &str| folder.root.join(path).is_file();
        let both = |name: &str| {
            let predictions = Path::new("predictions").join(name);
            AnswerFile { name: name.into(), paths: vec![ranking_of(&predictions), predictions] }
        };
        let begin = |names: &[&str]| {
            folder.begin_answers("run", names.iter().map(|name| both(name)).collect()).unwrap();
        };
        begin(&["a.jsonl", "b.jsonl"]);
        for path in
            ["predictions/a.jsonl", "predictions/b.jsonl", "retrieval/b.trec", "predictions/own.jsonl"]
        {
            write(path);
        }
        begin(&["a.jsonl"]);
        assert!(is_there("predictions/a.jsonl") && is_there("predictions/own.jsonl"));
        for path in ["predictions/b.jsonl", "retrieval/b.trec"] {
            assert!(!is_there(path) && is_there(&format!("work/aside/{path}")));
        }
        begin(&["a.jsonl", "b.jsonl"]);
        assert!(is_there("predictions/b.jsonl") && is_there("retrieval/b.trec"));
        // A version without the list. Nothing outside of the folder is touched.
        fs::remove_file(folder.work(WRITTEN)).unwrap();
        fs::write(place.path().join("x"), "").unwrap();
        let manifest =
            serde_json::json!({"tasks": [{"predictions": "predictions/b.jsonl"}, {"predictions": "../x"}]});
        jsonl::write_json(folder.root.join("manifest.json"), &manifest).unwrap();
        begin(&["c.jsonl"]);
        assert!(!is_there("predictions/b.jsonl") && !is_there("retrieval/b.trec"));
        assert!(is_there("predictions/a.jsonl") && place.path().join("x").exists());
    }

    #[test]
    fn counts_are_told_in_groups() {
        assert_eq!([7, 384, 1757, 1_000_000].map(grouped), ["7", "384", "1,757", "1,000,000"]);
    }
}
