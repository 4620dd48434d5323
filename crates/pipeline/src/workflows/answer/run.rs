//! Runs a config: answers task files, and writes predictions with provenance and scores.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_kilt::{
    Hit, Metric, PassageId, Query, Record,
    folder::Shard,
    formats::trec::{RunLine, pages_tag},
    jsonl,
    observe::Observer,
    scores::{retrieval, whole},
};

use crate::{
    Error, Result,
    review::{Review, page},
    run_dir::{
        folder::{AnswerFile, RunDir, ranking_of},
        inputs::Inputs,
        journal::Journal,
        key::StepKey,
        manifest::{Account, TaskEntry},
        step::{Chunks, FileStep, FileWork, Finished},
    },
    source::store::PartHash,
    tasks::{
        files::{TaskFile, task_files},
        loader as tasks,
    },
    workflows::answer::{
        assemble::{Assembly, with_generator, without_generator},
        evidence::run_documents,
        judged::RankingOptions,
        options::{Options, RunDocuments},
        overrides::overrides,
        report::{Report, Scores, TaskReport},
        system::{Answered, System},
    },
};

/// The version of rankings in TREC's format. 2: documents are pages or passages by the ids of pages; scores fall strictly.
/// 3: the scores of pages are those of `evidence.page-score`.
const RANKING_VERSION: u32 = 3;

/// The number of queries in a chunk of the journal.
pub(super) const CHUNK: usize = 128;

/// The summary of an answered task file.
#[derive(Serialize, Deserialize)]
pub(super) struct Summary {
    /// Whether every record has gold outputs.
    pub(super) has_gold: bool,
    /// All records of the file.
    #[serde(default)]
    pub(super) of: usize,
}

/// The records of a task file that a shard answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) shard: Shard,
    /// Shards have whole units of so many records.
    pub(super) unit: usize,
}

/// A finished chunk in the journal.
#[derive(Serialize, Deserialize)]
pub(super) struct Chunk {
    records: Vec<Record>,
    hits: Vec<Vec<(u32, f32)>>,
}

/// Options that do not change an answer: output folders, other configs, training; and the source, because the
/// key has the hashes of its parts.
const WITHOUT: [&str; 7] =
    ["output", "then", "source.path", "source.redirects", "source.indexes", "train", "encoder-training"];

/// The output files of a task file, relative to the run's folder: the predictions, and with a retriever the ranking.
pub(super) fn paths_of(task: &TaskFile, options: &Options) -> Vec<PathBuf> {
    let has_retriever = options.retriever.is_some() && options.general.source.is_some();
    let ranking = has_retriever.then(|| ranking_of(Path::new(&task.name)));
    std::iter::once(Path::new("predictions").join(&task.name)).chain(ranking).collect()
}

/// A task file as a file of answers.
pub(super) fn answer_file(task: &TaskFile, options: &Options) -> AnswerFile {
    AnswerFile { name: task.name.clone(), paths: paths_of(task, options) }
}

/// Runs a config: builds missing indexes, answers all task files, scores those with gold answers, and writes the run's folder.
///
/// ```
/// use std::fs;
///
/// use sporran_pipeline::{Config, Options, run};
///
/// let folder = tempfile::tempdir()?;
/// let path = |name: &str| folder.path().join(name);
/// let page = r#"{"wikipedia_id": "1", "wikipedia_title": "Oslo", "text": ["Oslo", "Oslo is the capital of Norway."]}"#;
/// fs::write(path("source.jsonl"), page)?;
/// let question = r#"{"id": "q", "input": "What is the capital of Norway?",
///     "output": [{"answer": "Oslo", "provenance": [{"wikipedia_id": "1", "title": "Oslo"}]}]}"#;
/// fs::write(path("nq-dev-kilt.jsonl"), question.replace('\n', " "))?;
///
/// // Without a generator, predictions hold evidence only.
/// let config = format!(
///     "workflow = 'answer'
///     name = 'example'
///     output = '{root}/runs'
///     [source]
///     path = '{root}/source.jsonl'
///     indexes = '{root}/indexes'
///     [tasks]
///     files = ['{root}/nq-dev-kilt.jsonl']
///     [retriever]
///     kind = 'bm25'",
///     root = folder.path().display()
/// );
/// fs::write(path("example.toml"), config)?;
///
/// let options = Options::load(&path("example.toml"), &[])?;
/// let report = run(&options, &mut |_event| {})?;
/// assert_eq!(report.tasks[0].scores.unwrap().r_precision, 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Errors of the config's files, the source, an index or a model; [`Error::Busy`] if another process uses
/// the run's folder. A later run reuses the work that was finished before the error.
pub fn run(options: &Options, observe: &mut Observer<'_>) -> Result<Report> {
    execute(options, "run", with_generator, observe)
}

/// Runs a config without its generator. Writes rankings and predictions with only evidence to the folder
/// `NAME-retrieval`, so that they do not replace the answers of a run.
///
/// # Errors
/// Those of [`run`].
pub fn retrieve(options: &Options, observe: &mut Observer<'_>) -> Result<Report> {
    execute(&of_retrieval(options), "retrieve", without_generator, observe)
}

/// The options of a run without its generator.
pub(super) fn of_retrieval(options: &Options) -> Options {
    let mut options = Options { generator: None, ..options.clone() };
    options.general.name.push_str("-retrieval");
    options
}

fn execute(
    options: &Options,
    command: &'static str,
    assemble: impl FnOnce(&Options, Inputs, &mut Observer<'_>) -> Result<Assembly>,
    observe: &mut Observer<'_>,
) -> Result<Report> {
    let files = task_files(&options.general.tasks, "tasks")?;
    tasks::check(&files)?;
    let folder = RunDir::open(options.general.output.join(&options.general.name))?;
    let mut account = Account::begin(options)?;
    let mut inputs = Inputs::default();
    let key = options_key(options)?.read(&mut inputs)?;
    account.read(&inputs);
    let assembly = assemble(options, inputs, observe)?;
    let key = with_parts(key, &assembly.hashes);
    account.parts(&assembly.hashes);
    account.overrides(overrides(options)?);
    let system = System::new(options.clone(), assembly);
    account.took("assemble");

    let answers = files.iter().map(|task| answer_file(task, options));
    let mut mark = folder.begin_answers(command, answers.collect())?;
    // After the mark, so that the config matches the predictions, or the mark shows that they are missing.
    folder.write_config(options)?;
    let mut reports = Vec::new();
    for task in &files {
        let mut inputs = Inputs::default();
        let content = inputs.file(&task.path)?;
        let key = task_key(key.clone(), task, &content, &mut inputs)?;
        let outputs = paths_of(task, options);
        let title = format!("answer {}", task.name);
        let step = FileStep { title, name: &task.name, key, outputs: outputs.clone(), inputs: &inputs };
        let mut work = Answering::new(&system, task, None);
        let finished = folder.complete(step, &mut work, observe)?;
        mark.done(&task.name)?;
        account.read(&inputs);
        let entry = TaskEntry::new(&task.path, content, outputs, &finished);
        account.answered(TaskEntry { tokens: work.tokens, ..entry });
        account.took(task.name.as_str());
        reports.push(score(options, &folder, task, &finished)?);
        account.took(format!("score {}", task.name));
    }
    let report = Report::new(&options.general.name, reports, system.assembly.recalls.clone());
    finish_report(&folder, &report, &account)?;
    account.finish(&folder, mark)?;
    Ok(report)
}

/// Writes the report as JSON and as a page.
pub(super) fn finish_report(folder: &RunDir, report: &Report, account: &Account) -> Result<()> {
    let json = |value: serde_json::Result<serde_json::Value>| {
        value.map_err(|error| Error::io(&folder.root, "write")(error.into()))
    };
    let value = json(serde_json::to_value(report))?;
    jsonl::write(folder.root.join("report.json"), format!("{value:#}\n").as_bytes())?;
    let review = Review::of(&folder.root, json(serde_json::to_value(account.so_far()))?)?;
    Ok(jsonl::write(folder.root.join("report.html"), report.html(page(&review)?).as_bytes())?)
}

/// The key of the options that change answers.
pub(super) fn options_key(options: &impl Serialize) -> Result<StepKey> {
    // Each file of `[tasks]` is a separate step.
    Ok(StepKey::new("answer", options)?.without(&WITHOUT).without(&["tasks"]))
}

pub(super) fn with_parts(key: StepKey, parts: &[PartHash]) -> StepKey {
    let named = |key: StepKey, (at, part): (usize, &PartHash)| {
        key.input(&format!("parts[{at}] {}", part.part), part.blake3.as_str())
    };
    parts.iter().enumerate().fold(key, named)
}

/// The answering of one task file.
pub(super) struct Answering<'a> {
    system: &'a System,
    task: &'a TaskFile,
    /// The records to answer; all without a part.
    part: Option<Part>,
    /// Loaded if there is something to answer.
    queries: Vec<Query>,
    has_gold: bool,
    /// All records of the file.
    of: usize,
    /// The number of tokens that this process generated.
    pub(super) tokens: usize,
}

impl<'a> Answering<'a> {
    /// The answering of a task file, or of a part of it.
    pub(super) fn new(system: &'a System, task: &'a TaskFile, part: Option<Part>) -> Self {
        Self { system, task, part, queries: Vec::new(), has_gold: false, of: 0, tokens: 0 }
    }
}

/// The key of the predictions of a task file.
pub(super) fn task_key(key: StepKey, task: &TaskFile, content: &str, inputs: &mut Inputs) -> Result<StepKey> {
    let TaskFile { path: _, name: _, dataset, gold: _, questions, has_queries: _, qrels, limit } = task;
    let mut key = key.input("chunk", CHUNK.to_string()).input("content", content);
    key = key.input("ranking", RANKING_VERSION.to_string());
    if let Some(qrels) = qrels {
        // The queries that are used.
        key = key.input("qrels", inputs.file(qrels)?);
    }
    key = key.input("dataset", format!("{dataset:?}")).input("limit", format!("{limit:?}"));
    for (at, path) in questions.iter().enumerate() {
        key = key.input(&format!("questions[{at}]"), inputs.file(path)?);
    }
    Ok(key)
}

/// The answers to a chunk of queries, and the number of generated tokens.
fn answer(system: &System, queries: &[Query]) -> Result<(Chunk, usize)> {
    let mut chunk = Chunk { records: Vec::with_capacity(queries.len()), hits: Vec::new() };
    let mut written = 0;
    for Answered { prediction, hits, tokens } in system.answer(queries)? {
        written += tokens;
        chunk.records.push(prediction.into_record(None));
        chunk.hits.push(hits.iter().map(|hit| (hit.passage.0, hit.score)).collect());
    }
    Ok((chunk, written))
}

impl FileWork for Answering<'_> {
    type Chunk = Chunk;
    type Summary = Summary;

    fn load(&mut self) -> Result<Option<usize>> {
        let loaded = tasks::queries(self.task)?;
        (self.queries, self.has_gold) = (loaded.queries, loaded.has_gold);
        self.of = self.queries.len();
        if let Some(Part { shard, unit }) = self.part {
            let range = shard.range(self.of, unit);
            self.queries.truncate(range.end);
            self.queries.drain(..range.start);
        }
        Ok(Some(self.queries.len()))
    }

    fn make(&mut self, chunks: &mut Chunks<'_, Chunk>) -> Result<()> {
        for portion in self.queries.chunks(CHUNK) {
            chunks.add(portion.len(), || {
                let (made, written) = answer(self.system, portion)?;
                self.tokens += written;
                Ok(made)
            })?;
        }
        Ok(())
    }

    /// Writes the predictions and the ranking from the complete journal.
    fn write(&mut self, root: &Path, journal: &Journal) -> Result<Summary> {
        let mut writers = Vec::new();
        for path in paths_of(self.task, &self.system.options) {
            writers.push(jsonl::Writer::create(root.join(path))?);
        }
        let general = &self.system.options.general;
        let tag = match general.evidence.run_documents {
            RunDocuments::Page => pages_tag(&general.name),
            RunDocuments::Passage => general.name.clone(),
        };
        let mut queries = self.queries.iter();
        journal.read(|chunk: Chunk| {
            for (record, hits) in chunk.records.iter().zip(&chunk.hits) {
                writers[0].record(record)?;
                let store = self.system.assembly.store.as_deref();
                let (Some(ranking), Some(query), Some(store)) = (writers.get_mut(1), queries.next(), store)
                else {
                    continue;
                };
                let hits: Vec<Hit> =
                    hits.iter().map(|&(passage, score)| Hit { passage: PassageId(passage), score }).collect();
                for (rank, (document, score)) in (1..).zip(run_documents(store, &hits, &general.evidence)) {
                    let query = query.id.text().into_owned();
                    let (score, tag) = (f64::from(score), tag.clone());
                    ranking.line(RunLine { query, document, rank, score, tag }.line().as_bytes())?;
                }
            }
            Ok(())
        })?;
        writers.into_iter().try_for_each(jsonl::Writer::finish)?;
        Ok(Summary { has_gold: self.has_gold, of: self.of })
    }
}

/// Scores the predictions of a task file with gold answers.
pub(super) fn score(
    options: &Options,
    folder: &RunDir,
    task: &TaskFile,
    done: &Finished<Summary>,
) -> Result<TaskReport> {
    let metric = task.dataset.map_or(Metric::Accuracy, |dataset| dataset.metric());
    let gold = match &task.gold {
        Some(path) => Some(path.clone()),
        None => done.summary.has_gold.then(|| task.path.clone()),
    };
    let first = format!("{}.gold.jsonl", task.name);
    let gold = match (gold, task.limit) {
        (Some(path), Some(limit)) => Some(first_records(&path, limit, &folder.work(&first))?),
        (gold, _) => {
            // Of an earlier run with a limit; reports would take it for the gold answers of this run.
            folder.remove_work(&first)?;
            gold
        }
    };
    let mut report = TaskReport {
        file: task.name.clone(),
        dataset: task.dataset,
        records: done.records,
        metric,
        scores: None,
        recall: BTreeMap::new(),
        measures: BTreeMap::new(),
        depth: None,
    };
    if let Some(qrels) = &task.qrels {
        if options.retriever.is_some() {
            let ranking = folder.root.join(ranking_of(Path::new(&task.name)));
            let found = RankingOptions::of(&options.general).evaluate(task, qrels, &ranking)?;
            let means = found.means().into_iter();
            report.measures =
                means.filter_map(|(name, mean)| Some((name.to_owned(), mean.value()?))).collect();
        }
        return Ok(report);
    }
    let Some(gold) = gold else { return Ok(report) };
    let ks: Vec<usize> =
        [5].into_iter().chain(options.general.evaluation.recall_at.iter().copied()).collect();
    let evidence = retrieval::Options { ks, ..retrieval::Options::default() };
    let found = whole::evaluate(&gold, folder.root.join("predictions").join(&task.name), &evidence)?;
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
    // The options have one kind of evidence: pages.
    if let Some((pages, _)) = found.evidence.reports.first() {
        let at = |depth: &usize| Some((*depth, pages.score(&format!("recall@{depth}"))?));
        report.recall = options.general.evaluation.recall_at.iter().filter_map(at).collect();
    }
    report.depth = found.evidence.depths.into_iter().next();
    Ok(report)
}

/// Copies the first records of a gold file, for a run with a limit.
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
    use crate::{config::Config, run_dir::key::tests::assert_complete};

    #[test]
    fn every_option_of_a_run_is_in_its_key_but_those_that_change_no_answer() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("c.toml");
        let text = r#"
            workflow = "retriever-training"
            name = "r"
            then = ["other.toml"]
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
