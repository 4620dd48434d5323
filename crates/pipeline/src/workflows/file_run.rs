//! A run of one model over input files: each file is a step, and has its own predictions.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use serde::Serialize;
use sporran_config::Diagnostic;
use sporran_kilt::{hash_json, jsonl, observe::Observer};

use crate::{
    Error, Result,
    config::Config,
    run_dir::{
        folder::{AnswerFile, Mark, RunDir, check_model},
        inputs::Inputs,
        key::StepKey,
        manifest::{Account, TaskEntry},
        step::{FileStep, FileWork},
    },
    source::{options::SourceOptions, pages::Pages},
};

/// An input file.
struct InputFile {
    path: PathBuf,
    /// The name without extension, that of its predictions.
    name: String,
    hash: String,
}

/// The inputs of a run, hashed before they are loaded.
pub(crate) struct HashedInputs {
    account: Account,
    inputs: Inputs,
    key: StepKey,
    files: Vec<InputFile>,
}

impl HashedInputs {
    /// Hashes the files and the model. `key` has the options of the run. `table` is the table with the key `files`.
    ///
    /// # Errors
    /// [`Error::Config`] without an input file; [`Error::Unfinished`] for a model that is being trained; errors of reading.
    pub(crate) fn of(
        options: &impl Config,
        (table, files): (&str, &[PathBuf]),
        model: &Path,
        key: StepKey,
    ) -> Result<Self> {
        if files.is_empty() {
            let message = "expected at least one file";
            return Err(Error::Config(vec![Diagnostic::of_config(&format!("{table}.files"), message)]));
        }
        let account = Account::begin(options)?;
        let mut inputs = Inputs::default();
        let key = key.read(&mut inputs)?;
        check_model(model)?;
        // Loading reports a missing model.
        let content = if model.exists() { inputs.content(model)? } else { Vec::new() };
        let key = key.input("model", hash_json(&content));
        let file = |path: &PathBuf| -> Result<InputFile> {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            Ok(InputFile { path: path.clone(), name, hash: inputs.file(path)? })
        };
        let files = files.iter().map(file).collect::<Result<_>>()?;
        Ok(Self { account, inputs, key, files })
    }

    /// Loads each file.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) fn load<T>(&self, load: impl Fn(&Path) -> sporran_kilt::Result<T>) -> Result<Vec<T>> {
        Ok(self.files.iter().map(|file| load(&file.path)).collect::<sporran_kilt::Result<_>>()?)
    }

    /// Locks the run's folder and opens the pages. `outputs` are the files of predictions for a name, and `portion` is the
    /// number of records that a killed run repeats at most.
    ///
    /// # Errors
    /// [`Error::Busy`] if another process uses the folder; errors of the source.
    pub(crate) fn open(
        self,
        (folder, options): (PathBuf, &impl Config),
        source: Option<&SourceOptions>,
        outputs: fn(&str) -> Vec<PathBuf>,
        portion: usize,
        observe: &mut Observer<'_>,
    ) -> Result<FileRun> {
        let Self { mut account, inputs, key, files } = self;
        let folder = RunDir::open(folder)?;
        let answers =
            files.iter().map(|file| AnswerFile { name: file.name.clone(), paths: outputs(&file.name) });
        let pages = Pages::open(source, None, observe)?;
        let mark = folder.begin_answers("run", answers.collect())?;
        folder.write_config(options)?;
        let key = key.input("pages", pages.hash()).input("portion", portion.to_string());
        account.took("load");
        Ok(FileRun { account, inputs, key, files, folder, mark, outputs, pages, seconds: 0.0 })
    }
}

/// A run with its folder.
pub(crate) struct FileRun {
    account: Account,
    inputs: Inputs,
    key: StepKey,
    files: Vec<InputFile>,
    pub(crate) folder: RunDir,
    mark: Mark,
    outputs: fn(&str) -> Vec<PathBuf>,
    pub(crate) pages: Pages,
    /// The duration of the finished steps, in seconds.
    pub(crate) seconds: f64,
}

impl FileRun {
    /// The name of an input file.
    pub(crate) fn name(&self, file: usize) -> &str {
        &self.files[file].name
    }

    /// The predictions of an input file, relative to the run's folder.
    pub(crate) fn outputs(&self, file: usize) -> Vec<PathBuf> {
        (self.outputs)(self.name(file))
    }

    /// Makes the predictions of an input file, or what is missing of them.
    ///
    /// # Errors
    /// Errors of the work and of the folder.
    pub(crate) fn complete(
        &self,
        file: usize,
        work: &mut impl FileWork,
        observe: &mut Observer<'_>,
    ) -> Result<Completed> {
        let start = Instant::now();
        let InputFile { name, hash, path } = &self.files[file];
        let step = FileStep {
            title: format!("read {name}"),
            name,
            key: self.key.clone().input("content", hash.as_str()),
            outputs: self.outputs(file),
            inputs: &self.inputs,
        };
        let finished = self.folder.complete(step, work, observe)?;
        let task = TaskEntry::new(path, hash.clone(), self.outputs(file), &finished);
        Ok(Completed { file, seconds: start.elapsed().as_secs_f64(), task })
    }

    /// Records a completed step.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) fn record(&mut self, completed: Completed) -> Result<()> {
        let Completed { file, seconds, task } = completed;
        let name = self.files[file].name.as_str();
        self.seconds += seconds;
        self.mark.done(name)?;
        self.account.took(name);
        self.account.answered(task);
        Ok(())
    }

    /// Writes the report and the manifest.
    ///
    /// # Errors
    /// Errors of the file system, and for inputs that changed.
    pub(crate) fn finish(mut self, report: &impl Serialize) -> Result<()> {
        jsonl::write_json(self.folder.root.join("report.json"), report)?;
        self.account.read(&self.inputs);
        self.account.parts(self.pages.parts());
        self.account.finish(&self.folder, self.mark)
    }
}

/// A step that is done but not recorded. Its work can hold the pages of the run.
pub(crate) struct Completed {
    file: usize,
    seconds: f64,
    task: TaskEntry,
}
