//! The entry of a workflow in the registry, and the outcome of its verbs.

use std::{
    fmt::Display,
    path::{Path, PathBuf},
};

use schemars::Schema;
use serde::Serialize;
use serde_json::Value;
use sporran_config::{Diagnostic, explain};
use sporran_kilt::{
    folder::{Shard, ShardSet},
    observe::Observer,
};

use crate::{
    Error, Result,
    config::{Config, to_toml},
    run_dir::shard::ShardReport,
};

/// A workflow: the type of its configs, and its verbs.
///
/// Each workflow has a constant of this type in its folder and a line in [`WORKFLOWS`](crate::workflows::registry::WORKFLOWS).
pub struct Workflow {
    /// The value of the key `workflow`.
    pub name: &'static str,
    /// The description, in one sentence.
    pub summary: &'static str,
    /// A table that only its configs have.
    pub table: &'static str,
    /// The values of a starter config.
    starter: &'static str,
    schema: fn() -> Schema,
    /// A table of its options that belongs to another workflow.
    foreign: Option<&'static str>,
    /// The hint of the error for a verb that does not apply.
    hint: &'static str,
    show: fn(&Path, &[String]) -> Result<String>,
    mistakes: fn(&Path, &[String]) -> Result<Vec<Diagnostic>>,
    run: Option<Verb>,
    train: Option<Verb>,
    shards: Option<(ShardVerb, Merge)>,
}

/// Does a shard of a config file with its `key=value` overrides.
pub(crate) type ShardVerb = fn(&Path, &[String], Shard, &mut Observer<'_>) -> Result<ShardReport>;

/// Merges shards, given the config of one of them and overrides.
pub(crate) type Merge = fn(&ShardSet, &Path, &[String], &mut Observer<'_>) -> Result<Outcome>;

/// Processes a config file with its `key=value` overrides.
pub(crate) type Verb = fn(&Path, &[String], &mut Observer<'_>) -> Result<Outcome>;

impl Workflow {
    /// A workflow with configs of type `T`, without verbs.
    pub(crate) const fn new<T: Config>(
        name: &'static str,
        table: &'static str,
        summary: &'static str,
        starter: &'static str,
    ) -> Self {
        Self {
            name,
            summary,
            table,
            starter,
            schema: T::schema,
            foreign: None,
            hint: "use `sporran run`",
            show: show::<T>,
            mistakes: T::mistakes,
            run: None,
            train: None,
            shards: None,
        }
    }

    /// Sets the function of `sporran run`.
    pub(crate) const fn with_run(self, run: Verb) -> Self {
        Self { run: Some(run), ..self }
    }

    /// Sets the function of `sporran train`.
    pub(crate) const fn with_train(self, train: Verb) -> Self {
        Self { train: Some(train), hint: "it only trains a model; use `sporran train`", ..self }
    }

    /// Sets the functions of shards of `sporran run`.
    pub(crate) const fn with_shards(self, shard: ShardVerb, merge: Merge) -> Self {
        Self { shards: Some((shard, merge)), ..self }
    }

    /// Does a shard of `sporran run`.
    ///
    /// # Errors
    /// [`Error::Config`] for a workflow without shards, and errors of the work.
    pub(crate) fn shard(
        &self,
        path: &Path,
        overrides: &[String],
        shard: Shard,
        observe: &mut Observer<'_>,
    ) -> Result<ShardReport> {
        let (verb, _) = self.shards.ok_or_else(|| self.without_shards(path))?;
        verb(path, overrides, shard, observe)
    }

    /// The merge of its shards.
    ///
    /// # Errors
    /// [`Error::Config`] for a workflow without shards.
    pub(crate) fn merge(&self, path: &Path) -> Result<Merge> {
        Ok(self.shards.ok_or_else(|| self.without_shards(path))?.1)
    }

    fn without_shards(&self, path: &Path) -> Error {
        let message = format!("`{}` has no shards; remove `--shard`", self.name);
        let origin = path.display().to_string();
        Error::Config(vec![Diagnostic { origin, line: 0, key: "workflow".to_owned(), message }])
    }

    /// Sets the hint for a verb that does not apply.
    pub(crate) const fn with_hint(self, hint: &'static str) -> Self {
        Self { hint, ..self }
    }

    /// Whether `sporran run` applies.
    #[must_use]
    pub fn runs(&self) -> bool {
        self.run.is_some()
    }

    /// Removes a table that belongs to another workflow.
    pub(crate) const fn without_table(self, table: &'static str) -> Self {
        Self { foreign: Some(table), ..self }
    }

    /// The schema of its configs.
    pub(crate) fn schema(&self) -> Schema {
        let mut schema = (self.schema)();
        if let Some(table) = self.foreign
            && let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut)
        {
            properties.remove(table);
        }
        schema
    }

    /// A starter config with comments.
    #[must_use]
    pub fn starter(&self) -> Option<String> {
        let config = self.starter.parse().ok()?;
        Some(explain::as_toml(self.name, &self.schema(), Some(&config)))
    }

    /// All keys of its configs, as TOML with comments: meaning, unit, range and default.
    #[must_use]
    pub fn explain(&self) -> String {
        explain::as_toml(self.name, &self.schema(), None)
    }

    /// A config with every default, as TOML that loads as the same config.
    ///
    /// # Errors
    /// [`Error::Config`] with every mistake, and [`Error::Kilt`] if the file cannot be read.
    pub fn show(&self, path: &Path, overrides: &[String]) -> Result<String> {
        (self.show)(path, overrides)
    }

    /// All mistakes in a config.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn mistakes(&self, path: &Path, overrides: &[String]) -> Result<Vec<Diagnostic>> {
        (self.mistakes)(path, overrides)
    }

    /// Runs a config, as `sporran run`.
    ///
    /// # Errors
    /// [`Error::Config`] for a workflow without `run`, and errors of the work.
    pub fn run(&self, path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
        self.verb(self.run, path)?(path, overrides, observe)
    }

    /// Trains the model of a config, as `sporran train`.
    ///
    /// # Errors
    /// [`Error::Config`] for a workflow without `train`, and errors of the training.
    pub fn train(&self, path: &Path, overrides: &[String], observe: &mut Observer<'_>) -> Result<Outcome> {
        self.verb(self.train, path)?(path, overrides, observe)
    }

    fn verb(&self, verb: Option<Verb>, path: &Path) -> Result<Verb> {
        verb.ok_or_else(|| self.refusal(path))
    }

    /// The error for a verb that does not apply to the workflow of the config at `path`.
    #[must_use]
    pub fn refusal(&self, path: &Path) -> Error {
        let message = format!("this command does not apply to `{}`: {}", self.name, self.hint);
        let origin = path.display().to_string();
        Error::Config(vec![Diagnostic { origin, line: 0, key: "workflow".to_owned(), message }])
    }
}

fn show<T: Config>(path: &Path, overrides: &[String]) -> Result<String> {
    to_toml(&T::parse(path, overrides)?)
}

/// The outcome of a verb: a text summary, a JSON report, and the written models.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Lines for a terminal.
    pub summary: String,
    /// The report as one line of JSON.
    pub json: String,
    /// The folders of models that were written.
    pub models: Vec<PathBuf>,
    /// Configs to run after this one, with the overrides for them.
    pub then: Vec<(PathBuf, Vec<String>)>,
}

impl Outcome {
    /// An outcome with a report as summary and as JSON.
    ///
    /// # Errors
    /// [`Error::Io`] for a report that is no JSON.
    pub fn of<T: Display + Serialize>(report: &T) -> Result<Self> {
        Self::new(report, report)
    }

    /// An outcome with a summary, and a report as JSON.
    pub(crate) fn new(summary: impl Display, report: &impl Serialize) -> Result<Self> {
        let json = serde_json::to_string(report)
            .map_err(|error| Error::io(Path::new("the report"), "write")(error.into()))?;
        Ok(Self { summary: summary.to_string(), json, ..Self::default() })
    }

    /// Adds a written model.
    pub(crate) fn with_model(mut self, model: impl AsRef<Path>) -> Self {
        self.models.push(model.as_ref().to_owned());
        self
    }

    /// Adds the folder of written files to the summary.
    pub(crate) fn written(mut self, what: &str, folder: &Path) -> Self {
        if !self.summary.is_empty() && !self.summary.ends_with('\n') {
            self.summary.push('\n');
        }
        self.summary.push_str(&format!("{what}: {}", folder.display()));
        self
    }

    /// Adds configs to run after this one, with the same `output`.
    pub(crate) fn with_then(mut self, configs: &[PathBuf], output: &Path) -> Self {
        let overrides = vec![format!("output={}", output.display())];
        self.then.extend(configs.iter().map(|config| (config.clone(), overrides.clone())));
        self
    }
}
