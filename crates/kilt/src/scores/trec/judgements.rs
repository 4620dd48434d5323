//! The judgements of a file, by query and document.

use std::{borrow::Cow, path::Path};

use rustc_hash::FxHashMap;

use crate::{
    Error, Result,
    formats::{judgements, trec},
};

/// The judged documents of one query.
#[derive(Default)]
pub(super) struct JudgedQuery {
    /// The query's id.
    pub(super) id: String,
    /// The grade and the line of each document.
    documents: FxHashMap<Box<str>, (i32, u64)>,
    /// The grades, highest first.
    pub(super) grades: Vec<i32>,
}

/// All judged queries, in the file's order.
pub(super) struct Judgements {
    pub(super) queries: Vec<JudgedQuery>,
    places: FxHashMap<String, usize>,
}

impl Judgements {
    /// Reads a file of TREC's or BEIR's judgements.
    ///
    /// # Errors
    /// Those of [`judgements::read`]; [`Error::Record`] for two grades of one document; [`Error::Empty`].
    pub(super) fn read(path: &Path) -> Result<Self> {
        let mut all = Self { queries: Vec::new(), places: FxHashMap::default() };
        for row in judgements::read(path)? {
            let (line, qrel) = row?;
            let place = match all.places.get(&qrel.query) {
                Some(&place) => place,
                None => {
                    all.places.insert(qrel.query.clone(), all.queries.len());
                    all.queries.push(JudgedQuery { id: qrel.query, ..JudgedQuery::default() });
                    all.queries.len() - 1
                }
            };
            let query = &mut all.queries[place];
            match query.documents.get(qrel.document.as_str()) {
                // A repeated judgement changes nothing.
                Some(&(grade, _)) if grade == qrel.relevance => {}
                Some(&(grade, first)) => {
                    let message = format!(
                        "expected one judgement of `{}` for `{}`, found {grade} on line {first} and {}",
                        qrel.document, query.id, qrel.relevance
                    );
                    return Err(Error::record(path, line, "document", message));
                }
                None => {
                    query.documents.insert(qrel.document.into_boxed_str(), (qrel.relevance, line));
                    query.grades.push(qrel.relevance);
                }
            }
        }
        if all.queries.is_empty() {
            return Err(Error::Empty { path: path.to_owned(), what: "judgement" });
        }
        for query in &mut all.queries {
            query.grades.sort_unstable_by(|a, b| b.cmp(a));
        }
        Ok(all)
    }

    /// A query by its id.
    pub(super) fn query(&self, id: &str) -> Option<&JudgedQuery> {
        self.places.get(id).map(|&place| &self.queries[place])
    }

    /// The place of a query in `queries`, by its id as a column of a run.
    pub(super) fn place(&self, column: &[u8]) -> Option<usize> {
        let column = std::str::from_utf8(column).ok()?;
        self.places.get(&*id(column, |id| self.places.contains_key(id))).copied()
    }
}

impl JudgedQuery {
    /// The grade of a document by its id.
    pub(super) fn grade_of(&self, id: &str) -> Option<i32> {
        self.documents.get(id).map(|&(grade, _)| grade)
    }

    /// The id of a document in a column of a run.
    pub(super) fn document<'c>(&self, column: &'c str) -> Cow<'c, str> {
        id(column, |id| self.documents.contains_key(id))
    }
}

/// The id in a column: the column as it is where a judgement names it, since other programs write `%` as such, otherwise with its
/// percent codes decoded.
fn id(column: &str, judged: impl Fn(&str) -> bool) -> Cow<'_, str> {
    if !column.contains('%') || judged(column) { Cow::Borrowed(column) } else { trec::decoded(column) }
}
