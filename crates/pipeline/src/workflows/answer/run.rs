//! The main job: task files in, predictions with provenance and their scores out.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Metric, Query, Record,
    formats::trec::RunLine,
    jsonl,
    scores::{retrieval, whole},
};

use crate::{
    Error, Result,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::{
        folder::{AnswerFile, Folder, ranking_of},
        inputs::{Inputs, hash_file},
        journal::Journal,
        key::StepKey,
        manifest::{Manifest, StepTime, TaskEntry, now, peak_memory_bytes},
    },
    source::store::PartHash,
    tasks::{
        files::{TaskFile, task_files},
        loader as tasks,
    },
    workflows::answer::{
        assemble::{Assembly, with_generator, without_generator},
        options::Options,
        overrides::overrides,
        report::{Report, Scores, TaskReport},
        system::{Answered, System},
    },
};

/// Queries that are answered and journalled together.
const CHUNK: usize = 128;

/// What is known of a task file's finished predictions: a step is skipped only if all of it agrees.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Done {
    key: String,
    predictions: String,
    ranking: Option<String>,
    records: usize,
    has_gold: bool,
}

/// A finished chunk in the journal.
#[derive(Serialize, Deserialize)]
struct Chunk {
    records: Vec<Record>,
    hits: Vec<Vec<(u32, f32)>>,
}

/// The options that no answer depends on, and those whose contents the hashes of the parts stand for: where things go, the
/// source, other task files, how models are trained.
const WITHOUT: [&str; 7] =
    ["output", "also", "source.path", "source.redirects", "source.indexes", "train", "encoder-training"];

impl Folder {
    fn predictions(&self, task: &TaskFile) -> PathBuf {
        self.root.join("predictions").join(&task.name)
    }

    fn ranking(&self, task: &TaskFile) -> PathBuf {
        self.root.join(ranking_of(Path::new(&task.name)))
    }

    fn of_task(&self, task: &TaskFile, ending: &str) -> PathBuf {
        self.work(&format!("{}.{ending}", task.name))
    }
}

/// Runs a config: builds what is missing, answers every task file, scores what has gold, writes the run's folder.
///
/// # Errors
/// Whatever is wrong with the config's files, the source, an index or a model; [`Error::Busy`] where another process
/// works in the run's folder. What was finished before the error is kept and is not done again.
pub fn run(options: &Options, observe: &mut Observer<'_>) -> Result<Report> {
    execute(options, "run", with_generator, observe)
}

/// Runs a config without its generator: rankings, and predictions that hold evidence only. They go to a folder of their
/// own, `NAME-retrieval`, so that they never stand in the place of a run's answers.
///
/// # Errors
/// As [`run`].
pub fn retrieve(options: &Options, observe: &mut Observer<'_>) -> Result<Report> {
    let mut options = Options { generator: None, ..options.clone() };
    options.general.name.push_str("-retrieval");
    execute(&options, "retrieve", without_generator, observe)
}

fn execute(
    options: &Options,
    command: &'static str,
    assemble: impl FnOnce(&Options, Inputs, &mut Observer<'_>) -> Result<Assembly>,
    observe: &mut Observer<'_>,
) -> Result<Report> {
    let files = task_files(&options.general.tasks, "tasks")?;
    let folder = Folder::open(options.general.output.join(&options.general.name))?;
    let config = options.to_toml()?;
    let mut times = Vec::new();
    let start = Instant::now();
    let mut inputs = Inputs::default();
    let key = options_key(options)?.read(&mut inputs)?;
    let assembly = assemble(options, inputs, observe)?;
    let key = with_parts(key, &assembly.hashes);
    let overrides = overrides(options)?;
    let system = System::new(options.clone(), assembly);
    times.push(StepTime { step: "assemble".into(), seconds: start.elapsed().as_secs_f64() });

    let answers = files.iter().map(|task| {
        let ranking = system.assembly.retriever.is_some().then(|| ranking_of(Path::new(&task.name)));
        let paths = std::iter::once(Path::new("predictions").join(&task.name)).chain(ranking).collect();
        AnswerFile { name: task.name.clone(), paths }
    });
    let mut mark = folder.begin_answers(command, answers.collect())?;
    // Behind the mark: what stands beside predictions is the config that made them, or the mark says that they are not made yet.
    jsonl::write(folder.root.join("config.toml"), config.as_bytes())?;
    let (mut entries, mut reports) = (Vec::new(), Vec::new());
    for task in &files {
        let start = Instant::now();
        let answering = Answering { system: &system, key: &key, folder: &folder, task };
        let (entry, done) = answering.complete(observe)?;
        mark.done(&task.name)?;
        times.push(StepTime { step: task.name.clone(), seconds: start.elapsed().as_secs_f64() });
        reports.push(score(options, &folder, task, &done)?);
        entries.push(entry);
    }
    let report = Report::new(&options.general.name, reports, system.assembly.recalls.clone());
    let write_json = |name: &str, value: &serde_json::Value| {
        jsonl::write(folder.root.join(name), format!("{value:#}\n").as_bytes())
    };
    let json = |value: serde_json::Result<serde_json::Value>| {
        value.map_err(|error| Error::io(&folder.root, "write")(error.into()))
    };
    write_json("report.json", &json(serde_json::to_value(&report))?)?;
    jsonl::write(folder.root.join("report.html"), report.html().as_bytes())?;
    let manifest = Manifest {
        program: concat!("sporran ", env!("CARGO_PKG_VERSION")).to_owned(),
        name: options.general.name.clone(),
        seed: options.general.seed,
        config: blake3::hash(config.as_bytes()).to_hex().to_string(),
        parts: system.assembly.hashes.clone(),
        overrides,
        tasks: entries,
        seconds: times,
        peak_memory_bytes: peak_memory_bytes(),
        threads: rayon::current_num_threads(),
        finished: now(),
    };
    write_json("manifest.json", &json(serde_json::to_value(&manifest))?)?;
    mark.finish()?;
    Ok(report)
}

/// What answers depend on of a config.
fn options_key(options: &impl Serialize) -> Result<StepKey> {
    // Of `[tasks]` each file is a step by itself.
    Ok(StepKey::new("answer", options)?.without(&WITHOUT).without(&["tasks"]))
}

fn with_parts(key: StepKey, parts: &[PartHash]) -> StepKey {
    let named = |key: StepKey, (at, part): (usize, &PartHash)| {
        key.input(&format!("parts[{at}] {}", part.part), part.blake3.as_str())
    };
    parts.iter().enumerate().fold(key, named)
}

/// One task file's way through the pipeline.
struct Answering<'a> {
    system: &'a System,
    key: &'a StepKey,
    folder: &'a Folder,
    task: &'a TaskFile,
}

impl Answering<'_> {
    fn complete(&self, observe: &mut Observer<'_>) -> Result<(TaskEntry, Done)> {
        let Self { folder, task, .. } = self;
        let mut inputs = Inputs::default();
        let input_blake3 = inputs.file(&task.path)?;
        let key = self.key(&input_blake3, &mut inputs)?.digest();
        let (predictions, ranking) = (folder.predictions(task), folder.ranking(task));
        let entry = |done: &Done, reused, answered, tokens| TaskEntry {
            input: task.path.clone(),
            input_blake3: input_blake3.clone(),
            predictions: predictions.strip_prefix(&folder.root).unwrap_or(&predictions).to_owned(),
            predictions_blake3: done.predictions.clone(),
            records: done.records,
            answered,
            tokens,
            reused,
        };
        let path = folder.of_task(task, "done.json");
        if let Ok(done) = jsonl::read_json::<Done>(&path)
            && done.key == key
            && hash_file(&predictions).is_ok_and(|hash| hash == done.predictions)
            && done.ranking.as_ref().is_none_or(|known| hash_file(&ranking).is_ok_and(|hash| hash == *known))
        {
            observe(Event::Skip { step: format!("answer {}", task.name) });
            return Ok((entry(&done, true, 0, 0), done));
        }

        let loaded = tasks::queries(task)?;
        inputs.verify()?;
        let mut journal = Journal::open(&folder.of_task(task, "journal"), &key, Some(loaded.queries.len()))?;
        let chunks: Vec<&[Query]> = loaded.queries.chunks(CHUNK).collect();
        begin(observe, format!("answer {}", task.name), loaded.queries.len() as u64, Unit::Records);
        advance(observe, journal.records() as u64);
        let (mut answered, mut tokens) = (0, 0);
        for chunk in chunks.iter().skip(journal.chunks()) {
            let (made, written) = self.answer(chunk)?;
            journal.push(&made, chunk.len())?;
            answered += chunk.len();
            tokens += written;
            advance(observe, journal.records() as u64);
        }
        self.write(&journal, &loaded.queries)?;
        observe(Event::End);
        let done = Done {
            key,
            predictions: hash_file(&predictions)?,
            ranking: if self.system.assembly.retriever.is_some() { Some(hash_file(&ranking)?) } else { None },
            records: loaded.queries.len(),
            has_gold: loaded.has_gold,
        };
        let bytes = serde_json::to_vec(&done).map_err(|error| Error::io(&path, "write")(error.into()))?;
        jsonl::write(&path, &bytes)?;
        journal.remove()?;
        Ok((entry(&done, false, answered, tokens), done))
    }

    /// All that the predictions depend on.
    fn key(&self, input: &str, inputs: &mut Inputs) -> Result<StepKey> {
        let TaskFile { path: _, name, dataset, gold: _, questions, limit } = self.task;
        let mut key = self.key.clone().input("program", env!("CARGO_PKG_VERSION"));
        key = key.input("chunk", CHUNK.to_string()).input("file", name.as_str()).input("content", input);
        key = key.input("dataset", format!("{dataset:?}")).input("limit", format!("{limit:?}"));
        for (at, path) in questions.iter().enumerate() {
            key = key.input(&format!("questions[{at}]"), inputs.file(path)?);
        }
        Ok(key)
    }

    /// The answers to a chunk of queries, and the tokens that were written for them.
    fn answer(&self, queries: &[Query]) -> Result<(Chunk, usize)> {
        let mut chunk = Chunk { records: Vec::with_capacity(queries.len()), hits: Vec::new() };
        let mut written = 0;
        for Answered { prediction, hits, tokens } in self.system.answer(queries)? {
            written += tokens;
            chunk.records.push(prediction.into_record(None));
            chunk.hits.push(hits.iter().map(|hit| (hit.passage.0, hit.score)).collect());
        }
        Ok((chunk, written))
    }

    /// Turns the complete journal into the predictions and the ranking.
    fn write(&self, journal: &Journal, queries: &[Query]) -> Result<()> {
        let mut predictions = jsonl::Writer::create(self.folder.predictions(self.task))?;
        let mut ranking = match self.system.assembly.retriever {
            Some(_) => Some(jsonl::Writer::create(self.folder.ranking(self.task))?),
            None => None,
        };
        let tag = &self.system.options.general.name;
        let mut queries = queries.iter();
        journal.read(|chunk: Chunk| {
            for (record, hits) in chunk.records.iter().zip(&chunk.hits) {
                predictions.record(record)?;
                if let (Some(ranking), Some(query)) = (&mut ranking, queries.next()) {
                    for (rank, (passage, score)) in hits.iter().enumerate() {
                        let line = RunLine {
                            query: query.id.text().into_owned(),
                            document: passage.to_string(),
                            rank: rank as u32 + 1,
                            score: f64::from(*score),
                            tag: tag.clone(),
                        };
                        ranking.line(line.line().as_bytes())?;
                    }
                }
            }
            Ok(())
        })?;
        predictions.finish()?;
        ranking.map_or(Ok(()), |ranking| ranking.finish().map_err(Error::from))
    }
}

/// Scores a task file's predictions if there is gold.
fn score(options: &Options, folder: &Folder, task: &TaskFile, done: &Done) -> Result<TaskReport> {
    let metric = task.dataset.map_or(Metric::Accuracy, |dataset| dataset.metric());
    let gold = match &task.gold {
        Some(path) => Some(path.clone()),
        None => done.has_gold.then(|| task.path.clone()),
    };
    let gold = match (gold, task.limit) {
        (Some(path), Some(limit)) => Some(first_records(&path, limit, &folder.of_task(task, "gold.jsonl"))?),
        (gold, _) => gold,
    };
    let mut report = TaskReport {
        file: task.name.clone(),
        dataset: task.dataset,
        records: done.records,
        metric,
        scores: None,
        recall: BTreeMap::new(),
        depth: None,
    };
    let Some(gold) = gold else { return Ok(report) };
    let ks: Vec<usize> =
        [5].into_iter().chain(options.general.evaluation.recall_at.iter().copied()).collect();
    let evidence = retrieval::Options { ks, ..retrieval::Options::default() };
    let found = whole::evaluate(&gold, folder.predictions(task), &evidence)?;
    let own = found.answers.report;
    let (answer, kilt) = match metric {
        Metric::Accuracy => (own.downstream.accuracy, own.kilt.accuracy),
        Metric::ExactMatch => (own.downstream.em, own.kilt.em),
        Metric::F1 => (own.downstream.f1, own.kilt.f1),
        Metric::RougeL => (own.downstream.rougel, own.kilt.rougel),
    };
    let answers = options.generator.is_some();
    report.scores = Some(Scores {
        answer: answers.then_some(answer),
        kilt: answers.then_some(kilt),
        r_precision: own.retrieval.r_precision,
        recall_at_5: own.retrieval.recall_at_5,
    });
    // One kind of evidence was asked for: pages.
    if let Some((pages, _)) = found.evidence.reports.first() {
        let at = |depth: &usize| Some((*depth, pages.score(&format!("recall@{depth}"))?));
        report.recall = options.general.evaluation.recall_at.iter().filter_map(at).collect();
    }
    report.depth = found.evidence.depths.into_iter().next();
    Ok(report)
}

/// The first records of a gold file, for a run that answers those only.
fn first_records(gold: &Path, limit: usize, to: &Path) -> Result<PathBuf> {
    let mut writer = jsonl::Writer::create(to)?;
    for line in jsonl::open(gold)?.lines().take(limit) {
        writer.line(line?.1.as_bytes())?;
    }
    writer.finish()?;
    Ok(to.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::load::Config, run_dir::key::tests::assert_complete};

    #[test]
    fn every_option_of_a_run_is_in_its_key_but_those_that_change_no_answer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let text = r#"
            workflow = "retriever-training"
            name = "r"
            also = ["other.toml"]
            [source]
            path = "pages.jsonl"
            redirects = "redirects.tsv"
            [pages]
            file = "pages.txt"
            [tasks]
            folder = "tasks"
            split = "dev"
            limit = 3
            [query]
            mention-marks = ["a", "b"]
            [train]
            model = "made"
            [train.examples]
            files = ["a.jsonl"]
            [encoder-training]
            kind = "bi-encoder"
            from = "from"
            model = "encoder"
            [retriever]
            kind = "hybrid"
            [[retriever.parts]]
            kind = "bm25"
            [[retriever.parts]]
            kind = "dense"
            model = "encoder"
            query-template = "{text}"
            max-tokens = 32
            [retriever.parts.index]
            kind = "hnsw"
            [reranker]
            kind = "cross-encoder"
            model = "reranker"
            [generator]
            kind = "causal"
            model = "causal"
            [generator.demonstrations]
            files = ["shown.jsonl"]
        "#;
        std::fs::write(&path, text).unwrap();
        let options = Options::parse(&path, &[]).unwrap();
        let tree = toml::Value::try_from(&options).unwrap();
        let exempt: Vec<&str> = WITHOUT.iter().copied().chain(["tasks"]).collect();
        assert_complete(&tree, |tree| options_key(tree).unwrap(), &exempt);
    }
}
