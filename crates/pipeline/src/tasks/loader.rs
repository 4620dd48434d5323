//! Loads task files as queries or as training examples.

use std::{collections::BTreeSet, path::Path};

use rustc_hash::FxHashMap;
use sporran_kilt::{
    Error as KiltError, Example, Id, Output, Provenance, Query, Record, counted,
    formats::{anserini::Topic, judgements, queries as queries_of},
    jsonl,
    triviaqa::Questions,
};

use crate::{
    Error, Result,
    tasks::{
        files::{TaskFile, task_files},
        options::TasksOptions,
    },
};

/// The queries of a task file.
pub(crate) struct Loaded {
    /// The queries, in order.
    pub(crate) queries: Vec<Query>,
    /// Whether every record has gold outputs.
    pub(crate) has_gold: bool,
}

/// Loads the queries of a task file.
pub(crate) fn queries(task: &TaskFile) -> Result<Loaded> {
    let mut queries = Vec::new();
    let mut without_gold = 0;
    for_each(task, |record, query| {
        without_gold += usize::from(record.output.is_none());
        queries.push(query);
    })?;
    if without_gold > 0 && without_gold < queries.len() && task.gold.is_none() {
        tracing::warn!(
            "{}: {without_gold} of {} without `output`; the file is not scored",
            task.path.display(),
            counted(queries.len() as u64, "record")
        );
    }
    Ok(Loaded { queries, has_gold: without_gold == 0 })
}

/// The ids of the queries of a task file.
pub(crate) fn ids(task: &TaskFile) -> Result<BTreeSet<String>> {
    Ok(for_each(task, |_, _| {})?.into_keys().map(|id| id.text().into_owned()).collect())
}

/// Loads the queries of a task file with their gold outputs.
pub(crate) fn examples(task: &TaskFile) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    for_each(task, |record, query| {
        examples.push(Example { query, gold: record.output.unwrap_or_default() })
    })?;
    Ok(examples)
}

/// Reads every record of task files and of their files of gold answers without keeping it, so that a wrong one is reported before an
/// index is built or a model is loaded. In memory are the ids of one file.
///
/// # Errors
/// The errors of [`queries`]; [`KiltError::Record`] for a gold record without outputs or of another id.
pub(crate) fn check(tasks: &[TaskFile]) -> Result<()> {
    for task in tasks {
        let ids = for_each(task, |_, _| {})?;
        let Some(gold) = &task.gold else { continue };
        for record in jsonl::open(gold)?.numbered::<Record>().take(task.limit.unwrap_or(usize::MAX)) {
            let (line, record) = record?;
            let wrong =
                |field: &str, message: String| Err(KiltError::record(gold, line, field, message).into());
            if record.output.is_none() {
                return wrong("output", "expected the gold outputs, found none".to_owned());
            }
            if !ids.contains_key(&record.id) {
                let (id, path) = (record.id, task.path.display());
                return wrong("id", format!("expected the id of a record of {path}, found `{id}`"));
            }
        }
    }
    Ok(())
}

/// The query to explain: a record of the task files, or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// The record with this id.
    Record(&'a str),
    /// A text that is not in a task file.
    Text(&'a str),
}

impl Asked<'_> {
    /// The query.
    ///
    /// # Errors
    /// [`Error::Config`] without a record of this id; [`KiltError::Argument`] for a blank text.
    pub(crate) fn query(&self, tasks: &TasksOptions) -> Result<Query> {
        match self {
            Self::Record(id) => find(tasks, id),
            Self::Text(text) if text.trim().is_empty() => {
                Err(KiltError::Argument("expected a question, found a blank text".to_owned()).into())
            }
            Self::Text(text) => Ok(Query::of_text(TEXT, *text)),
        }
    }
}

/// The id of a query that is not from a task file.
const TEXT: &str = "question";

/// Finds the record with an id in the task files of a config.
///
/// # Errors
/// [`Error::Config`] without such a record.
fn find(tasks: &TasksOptions, id: &str) -> Result<Query> {
    for file in &task_files(tasks, "tasks")? {
        if let Some(query) = queries(file)?.queries.into_iter().find(|query| query.id.text() == id) {
            return Ok(query);
        }
    }
    Err(Error::Config(vec![sporran_config::Diagnostic {
        origin: "config".into(),
        line: 0,
        key: "tasks".into(),
        message: format!("no record with the id `{id}` in its files"),
    }]))
}

/// Reads the records of a task file. Returns the line of each id.
fn for_each(task: &TaskFile, mut each: impl FnMut(Record, Query)) -> Result<FxHashMap<Id, u64>> {
    let questions = if task.questions.is_empty() { None } else { Some(Questions::open(&task.questions)?) };
    let mut lines: FxHashMap<Id, u64> = FxHashMap::default();
    for record in records(task)?.take(task.limit.unwrap_or(usize::MAX)) {
        let (line, mut record) = record?;
        if let Some(first) = lines.insert(record.id.clone(), line) {
            let id = record.id.to_string();
            return Err(
                KiltError::DuplicateId { path: task.path.clone(), line, first, field: "id", id }.into()
            );
        }
        if let (None, Some(questions)) = (&record.input, &questions) {
            record.input = questions.text(&record.id).map(str::to_owned);
        }
        let query = Query::from_record(&record, task.dataset)
            .map_err(|(field, message)| KiltError::record(&task.path, line, field, message))?;
        each(record, query);
    }
    if let (true, Some(qrels)) = (lines.is_empty(), &task.qrels) {
        let message = format!(
            "{}: expected a query with judgements in {}, found none",
            task.path.display(),
            qrels.display()
        );
        return Err(KiltError::Argument(message).into());
    }
    if lines.is_empty() {
        return Err(KiltError::Empty { path: task.path.clone(), what: "record" }.into());
    }
    Ok(lines)
}

/// Records with their lines.
type Records = Box<dyn Iterator<Item = Result<(u64, Record), KiltError>>>;

/// The records of a task file with their lines. The gold outputs of judged queries are their relevant documents.
fn records(task: &TaskFile) -> Result<Records> {
    if !task.has_queries {
        return Ok(Box::new(jsonl::open(&task.path)?.numbered::<Record>()));
    }
    let judged = task.qrels.as_deref().map(relevant).transpose()?;
    let record = move |(line, topic): (u64, Topic)| {
        let output = match &judged {
            None => None,
            // Queries without judgements belong to other splits.
            Some(judged) => Some(judged.get(topic.id.trim())?.iter().map(|id| evidence(id)).collect()),
        };
        let (id, input) = (Id::Text(topic.id), Some(topic.text));
        Some((line, Record { id, input, output, meta: None, extra: Default::default() }))
    };
    let topics = queries_of::read(&task.path)?;
    Ok(Box::new(topics.filter_map(move |topic| topic.map(&record).transpose())))
}

/// The relevant documents of each judged query.
fn relevant(path: &Path) -> Result<FxHashMap<String, Vec<String>>> {
    let mut judged: FxHashMap<String, Vec<String>> = FxHashMap::default();
    for row in judgements::read(path)? {
        let (_, qrel) = row?;
        let documents = judged.entry(qrel.query).or_default();
        if qrel.relevance > 0 {
            documents.push(qrel.document);
        }
    }
    Ok(judged)
}

/// A document as a gold output.
fn evidence(document: &str) -> Output {
    let item = Provenance { wikipedia_id: Some(Id::from(document)), ..Provenance::default() };
    Output { provenance: Some(vec![item]), ..Output::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judged_queries_are_loaded_with_their_relevant_documents() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let lines = "{\"_id\":\"q 1\",\"text\":\"who?\"}\n{\"_id\":\"q2\",\"text\":\"where?\"}\n";
        std::fs::write(path("queries.jsonl"), lines).unwrap();
        let header = "query-id\tcorpus-id\tscore\n";
        std::fs::write(path("test.tsv"), format!("{header}q 1\td 2\t1\nq 1\td3\t0\nq3\td3\t1\n")).unwrap();
        let tasks = TasksOptions {
            queries: Some(path("queries.jsonl")),
            qrels: Some(path("test.tsv")),
            ..TasksOptions::default()
        };
        let file = &task_files(&tasks, "tasks").unwrap()[0];
        let found = examples(file).unwrap();
        assert_eq!((found.len(), found[0].query.text.as_str()), (1, "who?"));
        let pages: Vec<_> =
            found[0].gold.iter().map(|it| it.evidence()[0].wikipedia_id.clone().unwrap()).collect();
        assert_eq!(pages, [Id::from("d 2")]);
        assert!(queries(file).unwrap().has_gold);
        let all = TaskFile { qrels: None, ..file.clone() };
        assert_eq!((queries(&all).unwrap().queries.len(), queries(&all).unwrap().has_gold), (2, false));
        std::fs::write(path("test.tsv"), format!("{header}other\td\t1\n")).unwrap();
        let message = queries(file).err().unwrap().to_string();
        assert!(message.contains("expected a query with judgements in"), "{message}");
        std::fs::write(path("queries.jsonl"), "1\ta\n1\tb\n").unwrap();
        let message = queries(&all).err().unwrap().to_string();
        assert!(message.contains("queries.jsonl:2: field `id`: `1` stands on line 1 already"), "{message}");
    }
}
