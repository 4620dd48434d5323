//! Shards of a run: ranges of the records of each task file. Their merge writes the run's folder.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_config::Overrides;
use sporran_kilt::{
    folder::{Shard, ShardManifest, ShardRange, ShardSet},
    observe::{Event, Observer},
};
use sporran_retriever::IndexRecall;
use sporran_transformers::Isa;

use super::{
    assemble::{Assembly, with_generator, without_generator},
    options::Options,
    overrides::overrides,
    report::Report,
    run::{
        Answering, CHUNK, Part, Summary, answer_file, finish_report, of_retrieval, options_key, paths_of,
        score, task_key, with_parts,
    },
    system::System,
};
use crate::{
    Result,
    config::Config,
    run_dir::{
        folder::RunDir,
        inputs::Inputs,
        key::StepKey,
        manifest::{Account, TaskEntry},
        shard::ShardReport,
        stale::{check_options, file_key, stale, stale_file},
        step::{FileStep, step_digest},
    },
    source::{
        options::SourceOptions,
        store::{PartHash, describe},
    },
    tasks::{
        files::{TaskFile, task_files},
        loader as tasks,
    },
    workflows::workflow::Outcome,
};

/// What the merge needs besides the results.
#[derive(Serialize, Deserialize)]
struct Details {
    tasks: BTreeMap<String, Task>,
    parts: Vec<PartHash>,
    overrides: Overrides,
    recalls: Vec<IndexRecall>,
}

/// A task file.
#[derive(Serialize, Deserialize)]
struct Task {
    /// Whether every record has gold outputs.
    has_gold: bool,
    /// The number of generated tokens.
    tokens: usize,
}

/// Answers the records of a shard. The shards together have all records of each task file, in order. If a model rounds in
/// batches, a shard has whole batches.
///
/// # Errors
/// As [`run`](super::run()).
pub fn run_shard(options: &Options, shard: Shard, observe: &mut Observer<'_>) -> Result<ShardReport> {
    execute(options, "run", shard, with_generator, observe)
}

/// Retrieves for the records of a shard, as [`retrieve`](super::retrieve) does.
///
/// # Errors
/// As [`run`](super::run()).
pub fn retrieve_shard(options: &Options, shard: Shard, observe: &mut Observer<'_>) -> Result<ShardReport> {
    execute(&of_retrieval(options), "retrieve", shard, without_generator, observe)
}

fn execute(
    options: &Options,
    command: &'static str,
    shard: Shard,
    assemble: impl FnOnce(&Options, Inputs, &mut Observer<'_>) -> Result<Assembly>,
    observe: &mut Observer<'_>,
) -> Result<ShardReport> {
    let files = task_files(&options.general.tasks, "tasks")?;
    tasks::check(&files)?;
    let folder = RunDir::open_shard(&options.general.output, &options.general.name, shard)?;
    observe(Event::Folder { path: folder.root.clone() });
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let key = options_key(options)?.read(&mut inputs)?;
    account.read(&inputs);
    let mut manifest = ShardManifest::new(command, &options.general.name, shard);
    manifest.config = key.clone().into_values();
    let assembly = assemble(options, inputs, observe)?;
    let key = with_parts(key, &assembly.hashes);
    account.parts(&assembly.hashes);
    let changed = overrides(options)?;
    account.overrides(changed.clone());
    let has_batches = options.generator.is_some()
        || options.retriever.as_ref().is_some_and(|retriever| retriever.has_batches());
    let part = Part { shard, unit: if has_batches { CHUNK } else { 1 } };
    manifest.inputs.insert("program".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let mut rounded = String::new();
    if has_batches {
        let isa = Isa::detected().to_string();
        rounded = format!(" with {isa}");
        manifest.inputs.insert(ShardManifest::ISA.to_owned(), isa);
    }
    for (at, part) in assembly.hashes.iter().enumerate() {
        manifest.inputs.insert(format!("parts[{at}] {}", part.part), part.blake3.clone());
    }
    let mut details = Details {
        tasks: BTreeMap::new(),
        parts: assembly.hashes.clone(),
        overrides: changed,
        recalls: assembly.recalls.clone(),
    };
    let system = System::new(options.clone(), assembly);
    account.took("assemble");

    let mut mark =
        folder.begin_answers(command, files.iter().map(|task| answer_file(task, options)).collect())?;
    folder.write_config(options)?;
    let mut results = Vec::new();
    for task in &files {
        let mut inputs = Inputs::default();
        let content = inputs.file(&task.path)?;
        let key = task_key(key.clone(), task, &content, &mut inputs)?;
        manifest.inputs.extend(inputs.hashes().map(|(path, hash)| (file_key(&path), hash)));
        manifest.inputs.insert(format!("task {}", task.name), step_digest(key.clone(), &task.name));
        let outputs = paths_of(task, options);
        let step = FileStep {
            title: format!("answer {} of shard {shard}", task.name),
            name: &task.name,
            key: key.input("shard", format!("{shard} by {}{rounded}", part.unit)),
            outputs: outputs.clone(),
            inputs: &inputs,
        };
        let mut work = Answering::new(&system, task, Some(part));
        let finished = folder.complete(step, &mut work, observe)?;
        mark.done(&task.name)?;
        account.read(&inputs);
        let Summary { has_gold, of } = finished.summary;
        manifest.ranges.insert(task.name.clone(), ShardRange::new(&shard.range(of, part.unit), of));
        details.tasks.insert(task.name.clone(), Task { has_gold, tokens: work.tokens });
        let entry = TaskEntry::new(&task.path, content, outputs.clone(), &finished);
        account.answered(TaskEntry { tokens: work.tokens, ..entry });
        account.took(task.name.as_str());
        results.extend(outputs);
    }
    account.finish(&folder, mark)?;
    folder.finish_shard(manifest, results, &details)
}

/// Merges the shards of `run` or `retrieve`: concatenates their predictions and rankings, scores them, and writes the report
/// and the manifest. `config` is that of a shard.
///
/// # Errors
/// [`Shard`](sporran_kilt::Error::Shard) if a model, another file of the options, the source or a task file has changed since the
/// shards read it; errors of files.
pub(crate) fn merge(
    set: &ShardSet,
    config: &Path,
    overrides: &[String],
    observe: &mut Observer<'_>,
) -> Result<Outcome> {
    let (_, manifest) = set.first();
    let options = Options::parse(config, overrides)?;
    let files = task_files(&options.general.tasks, "tasks")?;
    let all: Vec<Details> =
        set.iter().map(|(folder, shard)| shard.details(folder)).collect::<Result<_, _>>()?;
    let details = &all[0];
    let mut account = Account::begin(&options)?;
    account.overrides(details.overrides.clone());
    account.parts(&details.parts);
    let mut inputs = Inputs::default();
    check_options(set, options_key(&options)?, &mut inputs)?;
    account.read(&inputs);
    if let Some(source) = &options.general.source {
        check_source(set, source, &details.parts, &mut inputs, observe)?;
    }
    let key = with_parts(StepKey::of_values("answer", manifest.config.clone()), &details.parts);
    let mut tasks: Vec<(&TaskFile, String, String)> = Vec::new();
    for task in &files {
        let mut inputs = Inputs::default();
        let content = inputs.file(&task.path)?;
        let digest = step_digest(task_key(key.clone(), task, &content, &mut inputs)?, &task.name);
        if manifest.inputs.get(&format!("task {}", task.name)) != Some(&digest) {
            return Err(stale_file(set, &inputs, &task.path).into());
        }
        account.read(&inputs);
        tasks.push((task, content, digest));
    }

    let folder = RunDir::open(options.general.output.join(&options.general.name))?;
    observe(Event::Folder { path: folder.root.clone() });
    let command = if manifest.verb == "retrieve" { "retrieve" } else { "run" };
    let mut mark =
        folder.begin_answers(command, files.iter().map(|task| answer_file(task, &options)).collect())?;
    folder.write_config(&options)?;
    account.took("begin");
    let mut reports = Vec::new();
    for (task, content, digest) in tasks {
        let outputs = paths_of(task, &options);
        for path in &outputs {
            set.concatenate(&path.to_string_lossy(), &folder.root.join(path))?;
        }
        let of = |details: &Details| details.tasks.get(&task.name).is_some_and(|task| task.has_gold);
        let records = manifest.ranges.get(&task.name).map_or(0, |range| range.of as usize);
        let summary = Summary { has_gold: all.iter().all(of), of: records };
        let finished = folder.adopt(&task.name, digest, &outputs, records, summary)?;
        mark.done(&task.name)?;
        let tokens =
            all.iter().filter_map(|details| details.tasks.get(&task.name)).map(|task| task.tokens).sum();
        let entry = TaskEntry::new(&task.path, content, outputs, &finished);
        account.answered(TaskEntry { tokens, ..entry });
        account.took(format!("merge {}", task.name));
        reports.push(score(&options, &folder, task, &finished)?);
        account.took(format!("score {}", task.name));
    }
    let report = Report::new(&options.general.name, reports, details.recalls.clone());
    finish_report(&folder, &report, &account)?;
    account.finish(&folder, mark)?;
    let outcome = Outcome::new(report.table(), &report)?;
    let outcome = outcome.written("predictions, report and manifest", &folder.root);
    // `retrieve` runs no other config.
    let then: &[PathBuf] = if command == "run" { &options.general.then } else { &[] };
    Ok(outcome.with_then(then, &options.general.output))
}

/// Compares a source with that of the shards. `parts` are the parts of the shards.
fn check_source(
    set: &ShardSet,
    source: &SourceOptions,
    parts: &[PartHash],
    inputs: &mut Inputs,
    observe: &mut Observer<'_>,
) -> Result<()> {
    let described = describe(source, observe, inputs)?;
    let part = |name: &str| parts.iter().find(|part| part.part == name);
    if part("source").is_none_or(|part| part.blake3 != described.content) {
        return Err(stale(set, &format!("the source {}", source.first_path().display())).into());
    }
    // Its name has the hash of the redirects and the tokenizer.
    let store = part("store").and_then(|part| part.path.file_name());
    if store.is_none_or(|name| name != described.folder_name().as_str()) {
        let path = source.redirects.as_deref().unwrap_or(source.first_path()).display();
        return Err(stale(set, &format!("a file of the source, such as {path},")).into());
    }
    Ok(())
}
