//! A finished run as people read it: its cost, its scores with intervals, and its predictions with what is right in them.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    time::SystemTime,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sporran_kilt::{
    Dataset, Id, Metric, Output, Provenance, Record, jsonl,
    scores::{
        kilt,
        significance::{Interval, Rounds, interval},
    },
};

use crate::{Error, Result, run_dir::folder::file_of_run, workflows::answer::heading};

/// The most predictions of a list.
const MOST: usize = 100;
/// The items of evidence that a prediction shows.
const SHOWN: usize = 10;
/// The bootstrap samples of an interval.
const ROUNDS: Rounds = Rounds { count: 1000, seed: 0, level: 0.95 };
/// From this score on an answer counts as right, where a score of 1 is rare: F1 and ROUGE-L.
const RIGHT: f64 = 0.5;

/// A finished run.
#[derive(Debug, Default)]
pub struct Review {
    folder: PathBuf,
    manifest: Manifest,
    files: Vec<File>,
    /// Every prediction, file by file.
    entries: Vec<Entry>,
    /// The files that it was read from, as they were.
    stamps: Vec<(PathBuf, Option<Stamp>)>,
}

/// The size of a file and the time of its last change.
type Stamp = (u64, SystemTime);

fn stamp(path: &Path) -> Option<Stamp> {
    let found = path.metadata().ok()?;
    Some((found.len(), found.modified().ok()?))
}

/// What people read of a manifest. All of it may be missing, because manifests of other versions are read as well.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Manifest {
    program: String,
    workflow: String,
    seed: Option<u64>,
    parts: Vec<Part>,
    tasks: Vec<Task>,
    endpoints: Vec<Endpoint>,
    seconds: Vec<Seconds>,
    peak_memory_bytes: u64,
    threads: usize,
    finished: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    part: String,
    blake3: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Task {
    input: PathBuf,
    predictions: PathBuf,
    tokens: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Seconds {
    seconds: f64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    cost: Option<f64>,
}

/// A file of predictions.
#[derive(Debug)]
struct File {
    /// The name of the predictions.
    name: String,
    dataset: Option<Dataset>,
    metric: Metric,
    predictions: PathBuf,
    gold: PathBuf,
    records: usize,
    scores: Option<Scores>,
}

/// A prediction: what filters need. The rest is read when it is shown.
#[derive(Debug)]
struct Entry {
    file: usize,
    id: String,
    input: String,
    answer: String,
    scored: Option<RecordScores>,
}

/// The scores of a prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RecordScores {
    /// The headline score of the answer, and whether it is right.
    answer: Option<(f64, bool)>,
    evidence: f64,
}

/// The scores of a file, each with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Scores {
    /// The headline score of the answers; `None` for predictions without answers.
    pub answer: Option<Score>,
    /// The headline score of the records whose R-precision is 1; others count as 0. `None` for predictions without answers.
    pub kilt: Option<Score>,
    /// R-precision over pages.
    #[serde(rename = "Rprec")]
    pub r_precision: Score,
    /// Recall at 5 over pages.
    #[serde(rename = "recall@5")]
    pub recall_at_5: Score,
}

/// A mean score from 0 to 1 with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Score {
    /// The mean.
    pub mean: f64,
    /// The lower end of the bootstrap interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl From<Interval> for Score {
    fn from(Interval { mean, low, high }: Interval) -> Self {
        Self { mean, low, high }
    }
}

/// The cost and the scores of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Overview {
    /// The workflow of its config.
    pub workflow: String,
    /// The program and its version.
    pub program: String,
    /// The seed.
    pub seed: Option<u64>,
    /// The number of predictions.
    pub records: usize,
    /// The number of tokens that generators wrote.
    pub tokens: u64,
    /// The time of all steps, in seconds.
    pub seconds: f64,
    /// The peak memory, in bytes.
    pub peak_memory_bytes: u64,
    /// The number of threads.
    pub threads: usize,
    /// The cost of endpoints, if they have prices.
    pub cost: Option<f64>,
    /// The end of the run, in seconds since 1970.
    pub finished: u64,
    /// The config with every default, as TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    /// Whether the run's folder has a page with its report.
    pub has_report: bool,
    /// The task files.
    pub files: Vec<FileReport>,
}

/// A task file of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct FileReport {
    /// The name of the predictions.
    pub file: String,
    /// The dataset, by the name of the file.
    pub dataset: Option<&'static str>,
    /// The headline score: `accuracy`, `em`, `f1` or `rougel`.
    pub metric: &'static str,
    /// The number of predictions.
    pub records: usize,
    /// The scores, if there are gold answers.
    pub scores: Option<Scores>,
}

/// Which predictions to show.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ExampleFilter {
    /// The name of a file of predictions.
    pub file: Option<String>,
    /// What the answer is to be.
    pub answer: Option<Verdict>,
    /// What the evidence is to be.
    pub evidence: Option<Verdict>,
    /// Words of the input, the answer or the id.
    pub text: Option<String>,
    /// The number of predictions to leave out.
    pub offset: usize,
    /// The largest number of predictions; 20 by default, 100 at most.
    pub limit: Option<usize>,
}

/// What a filter asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Right.
    Right,
    /// Wrong.
    Wrong,
}

/// Some predictions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Examples {
    /// The number of predictions that pass the filter.
    pub total: usize,
    /// The predictions, in the order of their files.
    pub examples: Vec<Example>,
}

/// A prediction with gold answers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Example {
    /// The name of the file.
    pub file: String,
    /// The dataset, by the name of the file.
    pub dataset: Option<&'static str>,
    /// The id of the record.
    pub id: String,
    /// The input.
    pub input: String,
    /// The predicted answer.
    pub answer: String,
    /// The gold answers.
    pub gold: Vec<String>,
    /// The headline score of the answer.
    pub answer_score: Option<f64>,
    /// Whether the answer is right: a score of 1, or of at least 0.5 for F1 and ROUGE-L.
    pub answer_right: Option<bool>,
    /// The R-precision of the evidence.
    pub evidence_score: Option<f64>,
    /// Whether the R-precision is 1.
    pub evidence_right: Option<bool>,
    /// The predicted evidence, best first.
    pub provenance: Vec<EvidenceItem>,
    /// The gold evidence.
    pub gold_provenance: Vec<EvidenceItem>,
}

/// An item of evidence.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct EvidenceItem {
    /// The id of the page.
    pub document: String,
    /// The title of the page.
    pub title: String,
    /// The section.
    pub section: String,
    /// The paragraph in which it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paragraph: Option<i64>,
    /// The first character in that paragraph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<i64>,
    /// Whether the page of a predicted item is one of the gold evidence.
    pub is_gold: bool,
}

impl EvidenceItem {
    fn new(item: &Provenance, gold: &HashSet<String>) -> Self {
        let document = item.wikipedia_id.as_ref().map(|id| id.text().into_owned()).unwrap_or_default();
        let number = |id: &Option<Id>| id.as_ref().and_then(Id::number);
        Self {
            title: item.title.clone().unwrap_or_default(),
            section: item.section.as_deref().map(heading).unwrap_or_default().to_owned(),
            paragraph: number(&item.start_paragraph_id),
            start: number(&item.start_character),
            is_gold: gold.contains(&document),
            document,
        }
    }
}

impl Review {
    /// Reads a run: its manifest, its predictions, and the scores of those whose task files are still there.
    ///
    /// # Errors
    /// [`Error::Unfinished`] for an unfinished run; [`Error::NotARun`] for a folder without a manifest; errors of its files. A task file without gold answers is no error.
    pub fn open(folder: &Path) -> Result<Self> {
        let manifest = file_of_run(folder, "manifest.json")?;
        // Before it is read: a change meanwhile is a change.
        let known = stamp(&manifest);
        let mut review = Self::of(folder, jsonl::read_json(&manifest)?)?;
        review.stamps.push((manifest, known));
        Ok(review)
    }

    /// A run in a folder, with its manifest as JSON.
    ///
    /// # Errors
    /// Errors of its files.
    pub(crate) fn of(folder: &Path, manifest: Value) -> Result<Self> {
        let manifest: Manifest = serde_json::from_value(manifest)
            .map_err(|error| Error::io(&folder.join("manifest.json"), "read")(error.into()))?;
        let (mut files, mut entries) = (Vec::new(), Vec::new());
        let config = folder.join("config.toml");
        let mut stamps = vec![(config.clone(), stamp(&config))];
        for Task { input, predictions, .. } in &manifest.tasks {
            // The name is from the run's own manifest; it must stay inside the run's folder.
            let is_inside =
                predictions.is_relative() && predictions.components().all(|part| part.as_os_str() != "..");
            let predictions = folder.join(predictions);
            if !is_inside || !predictions.is_file() {
                continue;
            }
            let file =
                predictions.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let dataset = Dataset::of_file_name(&file);
            let metric = dataset.map_or(Metric::Accuracy, Dataset::metric);
            // A run of the first records of a task file keeps their gold answers.
            let first = folder.join("work").join(format!("{file}.gold.jsonl"));
            let gold = if first.is_file() { first } else { input.clone() };
            stamps.extend([input, &gold, &predictions].map(|path| (path.clone(), stamp(path))));
            let scored = score_file(&gold, &predictions, metric);
            let number = files.len();
            let before = entries.len();
            let inputs = inputs(input);
            for record in jsonl::open(&predictions)?.records::<Record>() {
                let record = record?;
                let id = record.id.text().into_owned();
                let input = record.input.clone().or_else(|| inputs.get(&id).cloned()).unwrap_or_default();
                let answer =
                    record.outputs().first().and_then(|output| output.answer.clone()).unwrap_or_default();
                let scored = scored.as_ref().and_then(|(_, found)| found.get(&id).copied());
                entries.push(Entry { file: number, id, input, answer, scored });
            }
            let mut scores = scored.map(|(scores, _)| scores);
            if entries[before..].iter().all(|entry| entry.answer.is_empty()) {
                // A run without a generator has evidence alone.
                scores = scores.map(|scores| Scores { answer: None, kilt: None, ..scores });
                entries[before..]
                    .iter_mut()
                    .filter_map(|entry| entry.scored.as_mut())
                    .for_each(|scored| scored.answer = None);
            }
            files.push(File {
                name: file,
                dataset,
                metric,
                predictions,
                gold,
                records: entries.len() - before,
                scores,
            });
        }
        Ok(Self { folder: folder.to_owned(), manifest, files, entries, stamps })
    }

    /// Whether the files of the run are those that were read. Another run may have been written into the folder.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.stamps.iter().all(|(path, known)| stamp(path) == *known)
    }

    /// The workflow of its config.
    #[must_use]
    pub fn workflow(&self) -> &str {
        &self.manifest.workflow
    }

    /// The number of predictions.
    #[must_use]
    pub fn records(&self) -> usize {
        self.entries.len()
    }

    /// The BLAKE3 hash of the passage store that it retrieved from.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        let store = self.manifest.parts.iter().find(|part| part.part == "store");
        store.map(|part| part.blake3.as_str())
    }

    /// The cost and the scores.
    #[must_use]
    pub fn overview(&self) -> Overview {
        let manifest = &self.manifest;
        let file = |file: &File| FileReport {
            file: file.name.clone(),
            dataset: file.dataset.map(Dataset::stem),
            metric: file.metric.key(),
            records: file.records,
            scores: file.scores,
        };
        let costs: Vec<f64> = manifest.endpoints.iter().filter_map(|endpoint| endpoint.cost).collect();
        Overview {
            workflow: manifest.workflow.clone(),
            program: manifest.program.clone(),
            seed: manifest.seed,
            records: self.entries.len(),
            tokens: manifest.tasks.iter().map(|task| task.tokens).sum(),
            seconds: manifest.seconds.iter().map(|step| step.seconds).sum(),
            peak_memory_bytes: manifest.peak_memory_bytes,
            threads: manifest.threads,
            cost: (!costs.is_empty()).then(|| costs.iter().sum()),
            finished: manifest.finished,
            config: jsonl::read_to_string(self.folder.join("config.toml")).ok(),
            has_report: self.report_page().is_file(),
            files: self.files.iter().map(file).collect(),
        }
    }

    /// The path of the page of its report.
    #[must_use]
    pub fn report_page(&self) -> PathBuf {
        self.folder.join("report.html")
    }

    /// The predictions that pass a filter, with their evidence.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Argument`] for a file that the run lacks, and errors of predictions that can no longer be read.
    pub fn examples(&self, filter: &ExampleFilter) -> Result<Examples> {
        let wanted = match filter.file.as_deref().filter(|name| !name.is_empty()) {
            None => None,
            Some(name) => {
                let found = self.files.iter().position(|file| file.name == name);
                Some(found.ok_or_else(|| {
                    let names: Vec<&str> = self.files.iter().map(|file| file.name.as_str()).collect();
                    let message = format!("there is no file `{name}`; there are `{}`", names.join("`, `"));
                    sporran_kilt::Error::Argument(message)
                })?)
            }
        };
        let text = filter.text.as_deref().unwrap_or_default().trim().to_lowercase();
        let is = |wanted: Option<Verdict>, found: Option<bool>| match wanted {
            None => true,
            Some(Verdict::Right) => found == Some(true),
            Some(Verdict::Wrong) => found == Some(false),
        };
        let passes = |entry: &&Entry| {
            let scored = entry.scored;
            wanted.is_none_or(|file| entry.file == file)
                && is(filter.answer, scored.and_then(|scored| scored.answer).map(|(_, is_right)| is_right))
                && is(filter.evidence, scored.map(|scored| scored.evidence >= 1.0))
                && (text.is_empty()
                    || [&entry.input, &entry.answer, &entry.id]
                        .iter()
                        .any(|part| part.to_lowercase().contains(&text)))
        };
        let found: Vec<&Entry> = self.entries.iter().filter(passes).collect();
        let shown = found.iter().skip(filter.offset).take(filter.limit.unwrap_or(20).min(MOST)).copied();
        let examples = self.read(&shown.collect::<Vec<_>>())?;
        Ok(Examples { total: found.len(), examples })
    }

    /// The whole predictions of entries.
    fn read(&self, entries: &[&Entry]) -> Result<Vec<Example>> {
        let mut records: HashMap<(usize, String), (Vec<Output>, Vec<Output>)> = HashMap::new();
        for (number, file) in self.files.iter().enumerate() {
            let ids: HashSet<&str> =
                entries.iter().filter(|entry| entry.file == number).map(|entry| entry.id.as_str()).collect();
            if ids.is_empty() {
                continue;
            }
            let mut gold = if file.scores.is_some() { outputs(&file.gold, &ids)? } else { HashMap::new() };
            for (id, predicted) in outputs(&file.predictions, &ids)? {
                let gold = gold.remove(&id).unwrap_or_default();
                records.insert((number, id), (predicted, gold));
            }
        }
        let example = |entry: &&Entry| {
            let (predicted, gold) = records.remove(&(entry.file, entry.id.clone())).unwrap_or_default();
            let file = &self.files[entry.file];
            let gold_items: Vec<&Provenance> = gold.iter().flat_map(Output::evidence).collect();
            let pages =
                gold_items.iter().filter_map(|item| Some(item.wikipedia_id.as_ref()?.text().into_owned()));
            let pages: HashSet<String> = pages.collect();
            let predicted = predicted.iter().flat_map(Output::evidence).take(SHOWN);
            let none = HashSet::new();
            let answer = entry.scored.and_then(|scored| scored.answer);
            Example {
                file: file.name.clone(),
                dataset: file.dataset.map(Dataset::stem),
                id: entry.id.clone(),
                input: entry.input.clone(),
                answer: entry.answer.clone(),
                gold: gold.iter().filter_map(|output| output.answer.clone()).collect(),
                answer_score: answer.map(|(score, _)| score),
                answer_right: answer.map(|(_, is_right)| is_right),
                evidence_score: entry.scored.map(|scored| scored.evidence),
                evidence_right: entry.scored.map(|scored| scored.evidence >= 1.0),
                provenance: predicted.map(|item| EvidenceItem::new(item, &pages)).collect(),
                gold_provenance: gold_items.into_iter().map(|item| EvidenceItem::new(item, &none)).collect(),
            }
        };
        Ok(entries.iter().map(example).collect())
    }
}

/// The outputs of some records of a file.
fn outputs(path: &Path, ids: &HashSet<&str>) -> Result<HashMap<String, Vec<Output>>> {
    let mut found = HashMap::new();
    for record in jsonl::open(path)?.records::<Record>() {
        let record = record?;
        let id = record.id.text().into_owned();
        if ids.contains(id.as_str()) {
            found.insert(id, record.output.unwrap_or_default());
            if found.len() == ids.len() {
                break;
            }
        }
    }
    Ok(found)
}

/// The inputs of a task file; none if it is no file of records.
fn inputs(path: &Path) -> HashMap<String, String> {
    let Ok(reader) = jsonl::open(path) else { return HashMap::new() };
    let records = reader.records::<Record>().map_while(std::result::Result::ok);
    records.filter_map(|record| Some((record.id.text().into_owned(), record.input?))).collect()
}

/// The scores of predictions, and of each record; `None` without gold answers.
fn score_file(
    gold: &Path,
    predictions: &Path,
    metric: Metric,
) -> Option<(Scores, HashMap<String, RecordScores>)> {
    let found =
        kilt::evaluate(gold, predictions).inspect_err(|error| tracing::debug!("no scores: {error}")).ok()?;
    let column = |name: &str| found.records.column(name);
    let (answers, evidence) = (column(metric.key())?, column("Rprec")?);
    let score = |values: &[f64]| interval(values, ROUNDS).map(Score::from).ok();
    let scores = Scores {
        answer: Some(score(&answers)?),
        kilt: Some(score(&column(&format!("KILT-{}", metric.key()))?)?),
        r_precision: score(&evidence)?,
        recall_at_5: score(&column("recall@5")?)?,
    };
    let least = match metric {
        Metric::Accuracy | Metric::ExactMatch => 1.0,
        Metric::F1 | Metric::RougeL => RIGHT,
    };
    let scored =
        |(answer, evidence): (f64, f64)| RecordScores { answer: Some((answer, answer >= least)), evidence };
    let scored = answers.into_iter().zip(evidence).map(scored);
    Some((scores, found.records.ids().iter().cloned().zip(scored).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of three records: right with right evidence, right with wrong evidence, wrong with right evidence.
    fn run() -> (tempfile::TempDir, Review) {
        let folder = tempfile::tempdir().unwrap();
        let gold = folder.path().join("nq-dev-kilt.jsonl");
        let item = |page: &str| serde_json::json!({"wikipedia_id": page, "title": format!("Page {page}")});
        let line = |id: &str, input: Option<&str>, answer: &str, page: &str| {
            let mut record =
                serde_json::json!({"id": id, "output": [{"answer": answer, "provenance": [item(page)]}]});
            if let Some(input) = input {
                record["input"] = input.into();
            }
            format!("{record}\n")
        };
        let golds = [("1", "Where is Oslo?", "Norway"), ("2", "Who?", "Ann"), ("3", "When?", "1900")];
        std::fs::write(&gold, golds.map(|(id, input, answer)| line(id, Some(input), answer, "7")).concat())
            .unwrap();
        std::fs::create_dir(folder.path().join("predictions")).unwrap();
        let predicted = [("3", "1800", "7"), ("1", "norway", "7"), ("2", "Ann", "8")];
        let text = predicted.map(|(id, answer, page)| line(id, None, answer, page)).concat();
        std::fs::write(folder.path().join("predictions/nq-dev-kilt.jsonl"), text).unwrap();
        let task =
            |predictions: &str| serde_json::json!({"input": gold, "predictions": predictions, "tokens": 4});
        let manifest = serde_json::json!({
            "workflow": "answer",
            "tasks": [task("predictions/nq-dev-kilt.jsonl"), task("../outside.jsonl"), task("predictions/none.jsonl")],
            "seconds": [{"step": "a", "seconds": 1.5}, {"step": "b", "seconds": 2.0}],
            "endpoints": [{"cost": 0.25}, {"cost": null}],
        });
        std::fs::write(folder.path().join("manifest.json"), manifest.to_string()).unwrap();
        let run = Review::open(folder.path()).unwrap();
        (folder, run)
    }

    fn ids(run: &Review, filter: &ExampleFilter) -> Vec<String> {
        run.examples(filter).unwrap().examples.into_iter().map(|example| example.id).collect()
    }

    #[test]
    fn a_run_that_was_written_again_is_no_longer_current() {
        let (folder, review) = run();
        assert!(review.is_current());
        let predictions = review.files[0].predictions.clone();
        let text = std::fs::read_to_string(&predictions).unwrap();
        std::fs::write(&predictions, format!("{text}\n")).unwrap();
        assert!(!review.is_current());
        std::fs::remove_file(&predictions).unwrap();
        assert!(!review.is_current());
        drop(folder);
    }

    #[test]
    fn predictions_are_filtered_by_what_is_right_in_them() {
        let (_folder, run) = run();
        let all = ExampleFilter::default();
        assert_eq!(ids(&run, &all), ["3", "1", "2"]);
        let answer = |verdict| ExampleFilter { answer: Some(verdict), ..all.clone() };
        assert_eq!(
            (ids(&run, &answer(Verdict::Right)), ids(&run, &answer(Verdict::Wrong))),
            (vec!["1".into(), "2".into()], vec!["3".to_owned()])
        );
        let evidence = ExampleFilter { evidence: Some(Verdict::Wrong), ..all.clone() };
        assert_eq!(ids(&run, &evidence), ["2"]);
        let both = ExampleFilter { evidence: Some(Verdict::Right), ..answer(Verdict::Right) };
        assert_eq!(ids(&run, &both), ["1"]);
        let text = ExampleFilter { text: Some("OSLO".into()), ..all.clone() };
        assert_eq!(ids(&run, &text), ["1"]);
        let second = ExampleFilter { offset: 1, limit: Some(1), ..all.clone() };
        assert_eq!((run.examples(&second).unwrap().total, ids(&run, &second)), (3, vec!["1".to_owned()]));
        let stray = ExampleFilter { file: Some("../x".into()), ..all };
        assert_eq!(
            run.examples(&stray).unwrap_err().to_string(),
            "there is no file `../x`; there are `nq-dev-kilt.jsonl`"
        );
    }

    #[test]
    fn an_example_has_its_gold_answers_and_evidence() {
        let (_folder, run) = run();
        let example = run
            .examples(&ExampleFilter { offset: 1, ..ExampleFilter::default() })
            .unwrap()
            .examples
            .remove(0);
        assert_eq!((example.input.as_str(), example.answer.as_str()), ("Where is Oslo?", "norway"));
        assert_eq!((example.gold, example.answer_score), (vec!["Norway".to_owned()], Some(1.0)));
        assert!(example.provenance[0].is_gold);
        assert_eq!(
            (example.gold_provenance[0].document.as_str(), example.gold_provenance[0].title.as_str()),
            ("7", "Page 7")
        );
    }

    #[test]
    fn a_report_has_scores_with_intervals_and_cost() {
        let (folder, run) = run();
        let report = run.overview();
        assert_eq!((report.records, report.tokens, report.seconds, report.cost), (3, 12, 3.5, Some(0.25)));
        assert_eq!(report.files.len(), 1);
        let scores = report.files[0].scores.unwrap();
        let (answer, kilt) = (scores.answer.unwrap(), scores.kilt.unwrap());
        assert!((answer.mean - 2.0 / 3.0).abs() < 1e-9 && (kilt.mean - 1.0 / 3.0).abs() < 1e-9);
        assert!(answer.low < answer.mean && answer.mean < answer.high);
        assert!(!report.has_report && report.config.is_none());
        // Without the gold file the predictions are shown, without scores.
        std::fs::remove_file(folder.path().join("nq-dev-kilt.jsonl")).unwrap();
        let bare = Review::open(folder.path()).unwrap();
        assert!(bare.overview().files[0].scores.is_none());
        let wrong = ExampleFilter { answer: Some(Verdict::Wrong), ..ExampleFilter::default() };
        assert_eq!((ids(&bare, &ExampleFilter::default()).len(), ids(&bare, &wrong).len()), (3, 0));
    }

    #[test]
    fn predictions_without_answers_are_judged_by_their_evidence() {
        let (folder, _) = run();
        let predictions = folder.path().join("predictions/nq-dev-kilt.jsonl");
        let text = std::fs::read_to_string(&predictions).unwrap();
        let text = ["1800", "norway", "Ann"].iter().fold(text, |text, answer| text.replace(answer, ""));
        std::fs::write(&predictions, text).unwrap();
        let run = Review::open(folder.path()).unwrap();
        let scores = run.overview().files[0].scores.unwrap();
        assert!(scores.answer.is_none() && scores.kilt.is_none() && scores.r_precision.mean > 0.5);
        let wrong = |answer, evidence| ExampleFilter { answer, evidence, ..ExampleFilter::default() };
        assert!(ids(&run, &wrong(Some(Verdict::Wrong), None)).is_empty());
        assert_eq!(ids(&run, &wrong(None, Some(Verdict::Wrong))), ["2"]);
    }

    #[test]
    fn a_folder_that_is_no_run_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Review::open(folder.path()).unwrap_err().to_string().contains("manifest.json"));
    }
}
