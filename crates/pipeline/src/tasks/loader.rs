//! Loads task files as queries or as training examples.

use rustc_hash::FxHashMap;
use sporran_kilt::{Error as KiltError, Example, Id, Query, Record, jsonl, triviaqa::Questions};

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
            "{}: {without_gold} of {} records have no `output`; the file is not scored",
            task.path.display(),
            queries.len()
        );
    }
    Ok(Loaded { queries, has_gold: without_gold == 0 })
}

/// Loads the queries of a task file with their gold outputs.
pub(crate) fn examples(task: &TaskFile) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    for_each(task, |record, query| {
        examples.push(Example { query, gold: record.output.unwrap_or_default() })
    })?;
    Ok(examples)
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

fn for_each(task: &TaskFile, mut each: impl FnMut(Record, Query)) -> Result<()> {
    let questions = if task.questions.is_empty() { None } else { Some(Questions::open(&task.questions)?) };
    let mut lines: FxHashMap<Id, u64> = FxHashMap::default();
    for record in jsonl::open(&task.path)?.numbered::<Record>().take(task.limit.unwrap_or(usize::MAX)) {
        let (line, mut record) = record?;
        if let Some(first) = lines.insert(record.id.clone(), line) {
            let id = record.id.to_string();
            return Err(KiltError::DuplicateId { path: task.path.clone(), line, first, id }.into());
        }
        if let (None, Some(questions)) = (&record.input, &questions) {
            record.input = questions.text(&record.id).map(str::to_owned);
        }
        let query = Query::from_record(&record, task.dataset)
            .map_err(|(field, message)| KiltError::record(&task.path, line, field, message))?;
        each(record, query);
    }
    if lines.is_empty() {
        return Err(KiltError::Empty { path: task.path.clone(), what: "record" }.into());
    }
    Ok(())
}
