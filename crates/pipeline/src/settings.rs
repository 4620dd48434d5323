//! From options (what is written) to settings (what is used): task files found, paths checked.

use std::path::{Path, PathBuf};

use sporran_kilt::{Dataset, Split};
use sporran_transformers::Precision;

use crate::{
    ConfigKind, Error, Result,
    config::Document,
    encoders::EncoderTraining,
    generation::{self, GeneratorOptions},
    options::{Options, Target, TasksOptions},
    pages::check_source,
    rag::dense_options,
    retrieval,
};

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
        let diagnostic = |(key, message)| crate::Diagnostic {
            origin: "config".to_owned(),
            line: 0,
            key: format!("{table}.{key}"),
            message,
        };
        Error::Config(faults.into_iter().map(diagnostic).collect())
    })
}

/// What is wrong with `[train]` beside another generator.
pub(crate) const UNTRAINED: &str = "expected `seq2seq`, `fid`, `memnet`, `rag-token`, `rag-sequence`, `verifier` or `extractive`: they are the kinds that `[train]` \
     makes a model for";

/// Finds what is wrong with a config that can be read: files that are not there, values that do not fit together.
pub(crate) fn check(options: &Options, document: &mut Document<'_>) {
    let general = &options.general;
    let name_fits = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.chars().all(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | '.'))
    };
    if !name_fits(&general.name) {
        document.report_key("name", "expected letters, digits, `-`, `_` and `.`: it names a folder");
    }
    for path in &general.also {
        use ConfigKind::{Documents, Linking, Population, Reason, Responses, Slots};
        match ConfigKind::of(path, &[]) {
            Ok(Documents | Linking | Population | Reason | Responses | Slots) => {}
            Ok(_) => {
                let expected = "expected a config that `sporran run` runs by itself, found";
                document.report_key("also", format!("{expected} {}", path.display()));
            }
            Err(error) => document.report_key("also", error.to_string()),
        }
    }
    if let Err(faults) = general.tasks.resolve() {
        for (key, message) in faults {
            document.report_key(&format!("tasks.{key}"), message);
        }
    }
    if let Some(source) = &general.source {
        check_source(source, document);
    } else if options.retriever.is_some() {
        document.report_key("source", "is missing; a retriever needs passages");
    }
    if options.retriever.is_none() && options.generator.is_none() {
        document.report_key("retriever", "is missing; expected `[retriever]`, `[generator]` or both");
    }
    for (key, value) in
        [("evidence.depth", general.evidence.depth), ("evidence.limit", general.evidence.limit)]
    {
        if value == 0 {
            document.report_key(key, "expected at least 1, found 0");
        }
    }
    if let Some(depth) = general.evaluation.recall_at.iter().find(|&&depth| depth < 2) {
        document.report_key("evaluation.recall-at", format!("expected depths of at least 2, found {depth}"));
    }
    if general.tasks.limit == Some(0) {
        document.report_key("tasks.limit", "expected at least 1, found 0");
    }
    if let Some(pages) = general.pages.as_ref().filter(|pages| !pages.file.is_file()) {
        document.report_key("pages.file", format!("no file {}", pages.file.display()));
    }
    if let Some(retriever) = &options.retriever {
        let learned = general.train.as_ref().is_some_and(|train| train.question_encoder.is_some());
        retrieval::check(retriever, learned, document);
    }
    if let Some(generator) = &options.generator {
        let depth = options.retriever.is_some().then_some(general.evidence.depth);
        generation::check(generator, general.train.is_some(), depth, document);
    }
    if let Some(training) = &general.encoder_training {
        check_encoder_training(training, options, document);
    }
    if let Some(train) = &general.train {
        if !matches!(
            options.generator,
            None | Some(
                GeneratorOptions::Seq2Seq(_)
                    | GeneratorOptions::Fid(_)
                    | GeneratorOptions::MemNet(_)
                    | GeneratorOptions::RagToken(_)
                    | GeneratorOptions::RagSequence(_)
                    | GeneratorOptions::Verifier(_)
                    | GeneratorOptions::Extractive(_)
            )
        ) {
            document.report_key("generator.kind", UNTRAINED);
        }
        if train.target == Target::Title && general.source.is_none() {
            document.report_key(
                "train.target",
                "expected a `[source]` beside it, whose titles are to be written",
            );
        }
        if let Err(faults) = train.examples.resolve() {
            for (key, message) in faults {
                document.report_key(&format!("train.examples.{key}"), message);
            }
        }
        for (key, from) in [("train.from", &train.from), ("train.question-encoder", &train.question_encoder)]
        {
            // A model that is made already can be run without what it was made from.
            let is_made = train.model.join("config.json").is_file();
            if let Some(from) = from.as_ref().filter(|_| !is_made) {
                document.check_checkpoint(key, from);
            }
        }
        if let Some(GeneratorOptions::RagToken(_) | GeneratorOptions::RagSequence(_)) = options.generator
            && let Err((key, message)) = dense_options(options)
        {
            document.report_key(key, message);
        }
        if let Err(error) = train.device.check(Precision::F32) {
            document.report_key("train.device", error.to_string());
        }
        if let Err(error) = train.optimizer.check() {
            document.report_key("train.optimizer", error.to_string());
        }
        if let Err(error) = train.knowledge.check() {
            document.report_key("train.knowledge", error.to_string());
        }
    }
}

/// Finds what is wrong with `[encoder-training]`.
fn check_encoder_training(training: &EncoderTraining, options: &Options, document: &mut Document<'_>) {
    let table = "encoder-training";
    if options.general.train.is_some() {
        document.report_key(table, "expected either this or `[train]`: a config trains one model");
    }
    if options.retriever.is_none() {
        document.report_key("retriever", "is missing; it finds what the encoder is to tell apart");
    }
    document.check_checkpoint("encoder-training.from", &training.from);
    if training.data.is_empty() && training.dialogues.is_empty() && training.examples.is_none() {
        document.report_key(table, "expected `data`, `dialogues` or `examples` to learn from");
    }
    for (key, paths) in [("data", &training.data), ("dialogues", &training.dialogues)] {
        for path in paths.iter().filter(|path| !path.is_file()) {
            document.report_key(&format!("encoder-training.{key}"), format!("no file {}", path.display()));
        }
    }
    if let Some(Err(faults)) = training.examples.as_ref().map(TasksOptions::resolve) {
        for (key, message) in faults {
            document.report_key(&format!("encoder-training.examples.{key}"), message);
        }
    }
    if training.depth == 0 {
        document.report_key("encoder-training.depth", "expected at least 1, found 0");
    }
    if let Err(error) = training.device.check(Precision::F32) {
        document.report_key("encoder-training.device", error.to_string());
    }
    if let Err(error) = training.optimizer.check() {
        document.report_key("encoder-training.optimizer", error.to_string());
    }
}
