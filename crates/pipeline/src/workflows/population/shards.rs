//! Shards of a population: ranges of the portions of documents of each input file. Their merge writes the run's folder.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_extractor::Parses;
use sporran_kilt::{
    folder::{Shard, ShardManifest, ShardRange, ShardSet},
    jsonl,
    observe::{Event, Observer},
};
use sporran_transformers::Isa;

use super::{
    options::{PopulationOptions, Purpose},
    options_key::options_key,
    parts::open,
    populate::{
        PopulatedFile, Populating, PopulationReport, check_input, check_pages, input_of, name_of, paths_of,
    },
    sources::each_portion,
};
use crate::{
    Result,
    config::Config,
    run_dir::{
        folder::{AnswerFile, RunDir},
        inputs::Inputs,
        key::StepKey,
        manifest::{Account, TaskEntry},
        shard::ShardReport,
        stale::{check_options, file_key, stale, stale_file},
        step::{FileStep, step_digest},
    },
    source::{pages::Pages, store::PartHash},
    workflows::workflow::Outcome,
};

/// What the merge needs besides the results.
#[derive(Serialize, Deserialize)]
struct Details {
    files: BTreeMap<String, PopulatedFile>,
    parts: Vec<PartHash>,
}

/// The files of answers of a config.
fn answer_files(options: &PopulationOptions) -> Result<Vec<AnswerFile>> {
    let input = input_of(options)?;
    let answers = |path: &PathBuf| {
        let name = name_of(path);
        AnswerFile { paths: paths_of(&name, input.format), name }
    };
    Ok(input.files.iter().map(answers).collect())
}

/// Extracts the facts of a shard. The shards together have all portions of documents of each input file, in order.
///
/// # Errors
/// As [`populate`](super::populate()).
pub(crate) fn shard(
    path: &Path,
    overrides: &[String],
    shard: Shard,
    observe: &mut Observer<'_>,
) -> Result<ShardReport> {
    let options = &PopulationOptions::load_for(path, overrides, Purpose::Populate)?;
    let input = input_of(options)?;
    let ids = check_input(input)?;
    let folder = RunDir::open_shard(&options.output, &options.name, shard)?;
    observe(Event::Folder { path: folder.root.clone() });
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let pages = Pages::open(options.source.as_ref(), input.pages.as_deref(), observe)?;
    check_pages(input, &ids, &pages)?;
    let key = options_key(options)?.read(&mut inputs)?;
    let mut manifest = ShardManifest::new("populate", &options.name, shard);
    manifest.config = key.clone().into_values();
    manifest.inputs.insert("program".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    manifest.inputs.insert("pages".to_owned(), pages.hash().to_owned());
    let isa = Isa::detected().to_string();
    manifest.inputs.insert(ShardManifest::ISA.to_owned(), isa.clone());
    let key = key.input("pages", pages.hash());
    let parses = if options.parses.is_empty() { None } else { Some(Parses::open(&options.parses)?) };
    let populator = open(options)?;
    inputs.verify()?;
    account.read(&inputs);
    account.parts(pages.parts());
    account.took("load");
    let mut details = Details { files: BTreeMap::new(), parts: pages.parts().to_vec() };
    let mut mark = folder.begin_answers("populate", answer_files(options)?)?;
    folder.write_config(options)?;
    let mut results = Vec::new();
    for path in &input.files {
        let name = name_of(path);
        let mut inputs = Inputs::default();
        let content = inputs.file(path)?;
        let outputs = paths_of(&name, input.format);
        let key = key.clone().input("content", content.as_str());
        manifest.inputs.insert(file_key(path), content.clone());
        manifest.inputs.insert(format!("step {name}"), step_digest(key.clone(), &name));
        let mut portions = 0;
        each_portion(path, input.format, &input.folds, |_| {
            portions += 1;
            Ok(())
        })?;
        let range = shard.range(portions, 1);
        manifest.ranges.insert(name.clone(), ShardRange::new(&range, portions));
        let step = FileStep {
            title: format!("populate {name} of shard {shard}"),
            name: &name,
            key: key.input("shard", format!("{shard} with {isa}")),
            outputs: outputs.clone(),
            inputs: &inputs,
        };
        let parses = parses.as_ref();
        let (populator, pages) = (&populator, &pages);
        let mut work = Populating { options, input, populator, parses, pages, path, range: Some(range) };
        let finished = folder.complete(step, &mut work, observe)?;
        mark.done(&name)?;
        account.read(&inputs);
        account.answered(TaskEntry::new(path, content, outputs.clone(), &finished));
        account.took(path.display().to_string());
        details.files.insert(name, finished.summary);
        results.extend(outputs);
    }
    account.finish(&folder, mark)?;
    folder.finish_shard(manifest, results, &details)
}

/// Merges shards: concatenates their predictions and triples, and adds up their counts. `config` is that of a shard.
///
/// # Errors
/// [`Shard`](sporran_kilt::Error::Shard) if a model, another file of the options, the source or an input file has changed since
/// the shards read it; errors of files.
pub(crate) fn merge(
    set: &ShardSet,
    config: &Path,
    overrides: &[String],
    observe: &mut Observer<'_>,
) -> Result<Outcome> {
    let (_, manifest) = set.first();
    let options = PopulationOptions::parse(config, overrides)?;
    let input = input_of(&options)?;
    let all: Vec<Details> =
        set.iter().map(|(folder, shard)| shard.details(folder)).collect::<Result<_, _>>()?;
    let mut account = Account::begin(&options)?;
    account.parts(&all[0].parts);
    let mut inputs = Inputs::default();
    check_options(set, options_key(&options)?, &mut inputs)?;
    account.read(&inputs);
    let pages = Pages::open(options.source.as_ref(), input.pages.as_deref(), observe)?.hash().to_owned();
    if manifest.inputs.get("pages") != Some(&pages) {
        return Err(stale(set, "the source or `input.pages`").into());
    }
    let key = StepKey::of_values("populate", manifest.config.clone()).input("pages", pages);
    let mut files = Vec::new();
    for path in &input.files {
        let name = name_of(path);
        let mut inputs = Inputs::default();
        let content = inputs.file(path)?;
        let digest = step_digest(key.clone().input("content", content.as_str()), &name);
        if manifest.inputs.get(&format!("step {name}")) != Some(&digest) {
            return Err(stale_file(set, &inputs, path).into());
        }
        account.read(&inputs);
        files.push((path, name, content, digest));
    }

    let folder = RunDir::open(options.folder())?;
    observe(Event::Folder { path: folder.root.clone() });
    let mut mark = folder.begin_answers("populate", answer_files(&options)?)?;
    folder.write_config(&options)?;
    account.took("begin");
    let mut reports = Vec::new();
    for (path, name, content, digest) in files {
        let outputs = paths_of(&name, input.format);
        for output in &outputs {
            set.concatenate(&output.to_string_lossy(), &folder.root.join(output))?;
        }
        let mut counts =
            PopulatedFile { input: path.clone(), written: outputs.clone(), ..PopulatedFile::default() };
        all.iter().filter_map(|details| details.files.get(&name)).for_each(|part| counts.add(part));
        let documents = counts.documents;
        let finished = folder.adopt(&name, digest, &outputs, documents, counts)?;
        mark.done(&name)?;
        account.answered(TaskEntry::new(path, content, outputs, &finished));
        account.took(format!("merge {name}"));
        reports.push(finished.summary);
    }
    let report = PopulationReport { name: options.name.clone(), files: reports };
    jsonl::write_json(folder.root.join("report.json"), &report)?;
    account.finish(&folder, mark)?;
    Ok(Outcome::of(&report)?.written("predictions, triples and report", &options.folder()))
}
