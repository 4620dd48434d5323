//! TREC's runs against judgements: the figures of trec_eval under the names of the Python package `ir_measures`.
//!
//! Scores are compared as 32-bit floats, and documents with equal scores are ordered by descending id, bytewise, as in
//! trec_eval. The column of ranks does not count. A grade below 0 means a document that was not judged.

mod judgements;
mod measure;
mod run;

use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

use rayon::prelude::*;
use serde::Serialize;

pub use measure::RankingMeasure;

use self::{
    judgements::{JudgedQuery, Judgements},
    measure::JudgedRanking,
    run::Run,
};
use super::Measure;
use crate::{Error, Result};

/// How a run is scored.
#[derive(Clone, Debug)]
pub struct Options {
    /// The measures.
    pub measures: Vec<RankingMeasure>,
    /// Whether judged queries that the run lacks count 0, as with trec_eval's option `-c` and in `ir_measures`. Otherwise
    /// means are over the queries in both files.
    pub complete: bool,
    /// Whether documents with the id of their query are left out, as in BEIR.
    pub exclude_self: bool,
    /// The ids of the queries that count, such as those of a part of the queries; `None` for all judged queries.
    pub queries: Option<BTreeSet<String>>,
}

impl Options {
    /// Options over all judged queries, without those that the run lacks and with all documents.
    pub fn new(measures: Vec<RankingMeasure>) -> Self {
        Self { measures, complete: false, exclude_self: false, queries: None }
    }
}

/// The values of one query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueryValues {
    /// The query's id.
    pub query: String,
    /// A value for each measure, 0 to 1.
    pub values: Vec<f64>,
}

/// The result of [`evaluate`].
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The measures.
    pub measures: Vec<RankingMeasure>,
    /// The scored queries, in the order of the judgements.
    pub queries: Vec<QueryValues>,
    /// The judged queries that the run lacks, in the order of the judgements.
    pub missing: Vec<String>,
    /// The number of the run's queries without judgements. They do not count.
    pub unjudged: usize,
}

/// Scores a run. The judgements are those of TREC or BEIR; a file of BEIR has its header.
///
/// # Errors
/// [`Error::Record`] for a wrong line, for two grades of a document and for a document that stands twice in a ranking;
/// [`Error::Empty`] for a file without judgements; [`Error::Argument`] if no query of the run is judged; read errors.
pub fn evaluate(qrels: impl AsRef<Path>, run: impl AsRef<Path>, options: &Options) -> Result<Evaluation> {
    let path = run.as_ref();
    let judgements = Judgements::read(qrels.as_ref())?;
    let run = Run::read(path, &judgements, options.exclude_self)?;
    if run.unjudged > 0 && (0..judgements.queries.len()).all(|query| !run.has(query)) {
        let expected = judgements.queries.first().map(|query| query.id.as_str()).unwrap_or_default();
        return Err(Error::Argument(format!(
            "{}: expected queries of {}, such as `{expected}`; none of the run's {} queries is judged",
            path.display(),
            qrels.as_ref().display(),
            run.unjudged
        )));
    }
    let scored: Result<Vec<Option<QueryValues>>> = judgements
        .queries
        .par_iter()
        .enumerate()
        .map(|(place, query)| {
            if !options.counts(&query.id) || (!run.has(place) && !options.complete) {
                return Ok(None);
            }
            let ids = run.ranking(place, query, path)?;
            let found: Vec<(usize, i32)> =
                (1..).zip(&ids).filter_map(|(rank, id)| Some((rank, query.grade_of(id)?))).collect();
            let ranking = JudgedRanking { retrieved: ids.len(), found: &found, grades: &query.grades };
            let values = options.measures.iter().map(|measure| measure.value(ranking)).collect();
            Ok(Some(QueryValues { query: query.id.clone(), values }))
        })
        .collect();
    let counted = judgements.queries.iter().enumerate().filter(|(_, query)| options.counts(&query.id));
    let missing = counted.filter(|(place, _)| !run.has(*place)).map(|(_, query)| query.id.clone());
    Ok(Evaluation {
        measures: options.measures.clone(),
        queries: scored?.into_iter().flatten().collect(),
        missing: missing.collect(),
        unjudged: run.unjudged,
    })
}

impl Options {
    fn counts(&self, query: &String) -> bool {
        self.queries.as_ref().is_none_or(|ids| ids.contains(query))
    }
}

/// Judged queries, for the scores of rankings in memory.
pub struct JudgedQueries(Judgements);

impl JudgedQueries {
    /// Reads a file of TREC's or BEIR's judgements.
    ///
    /// # Errors
    /// Those of the judgements in [`evaluate`].
    pub fn read(qrels: impl AsRef<Path>) -> Result<Self> {
        Judgements::read(qrels.as_ref()).map(Self)
    }

    /// As [`evaluate`], for rankings by query: ids of documents, best first, each once.
    pub fn evaluate(&self, rankings: &HashMap<String, Vec<String>>, options: &Options) -> Evaluation {
        let (mut queries, mut missing) = (Vec::new(), Vec::new());
        let is_kept = |query: &str, document: &&str| !options.exclude_self || *document != query;
        for JudgedQuery { id, .. } in self.0.queries.iter().filter(|query| options.counts(&query.id)) {
            let ids = rankings.get(id).map(Vec::as_slice).unwrap_or_default().iter().map(String::as_str);
            let is_missing = ids.len() == 0;
            let ids: Vec<&str> = ids.filter(|document| is_kept(id, document)).collect();
            if is_missing {
                missing.push(id.clone());
            }
            if !is_missing || options.complete {
                let value = |measure| self.value(measure, id, ids.iter().copied()).unwrap_or_default();
                queries.push(QueryValues {
                    query: id.clone(),
                    values: options.measures.iter().map(value).collect(),
                });
            }
        }
        let unjudged = rankings.keys().filter(|query| self.0.query(query).is_none()).count();
        Evaluation { measures: options.measures.clone(), queries, missing, unjudged }
    }

    /// The value of a query's ranking, 0 to 1; `None` for a query without judgements. `documents` are ids, best first,
    /// each once.
    pub fn value<'d>(
        &self,
        measure: &RankingMeasure,
        query: &str,
        documents: impl IntoIterator<Item = &'d str>,
    ) -> Option<f64> {
        let query = self.0.query(query)?;
        let mut retrieved = 0;
        let mut found = Vec::new();
        for (rank, document) in (1..).zip(documents) {
            retrieved = rank;
            found.extend(query.grade_of(document).map(|grade| (rank, grade)));
        }
        Some(measure.value(JudgedRanking { retrieved, found: &found, grades: &query.grades }))
    }
}

/// A measure's name, and its values for all queries in two runs.
pub type Paired<'a> = (&'a str, Vec<f64>, Vec<f64>);

impl Evaluation {
    /// The mean of each measure over the scored queries; no value without queries.
    pub fn means(&self) -> Vec<(&str, Measure)> {
        let mean = |at: usize| Measure::mean(self.queries.iter().map(|query| query.values[at]));
        self.measures.iter().enumerate().map(|(at, measure)| (measure.name(), mean(at))).collect()
    }

    /// The values of both on the same queries, by measure.
    ///
    /// # Errors
    /// [`Error::Argument`] if the scored queries differ; those of `complete` evaluations never do.
    pub fn paired(&self, other: &Self) -> Result<Vec<Paired<'_>>> {
        let same = self.queries.len() == other.queries.len()
            && self.queries.iter().zip(&other.queries).all(|(mine, their)| mine.query == their.query);
        if !same {
            let lacks = |one: &Self, other: &Self| {
                let ids = one.queries.iter().map(|query| &query.query);
                ids.filter(|id| other.missing.contains(id)).min().cloned()
            };
            let id = lacks(self, other).or_else(|| lacks(other, self)).unwrap_or_default();
            return Err(Error::Argument(format!(
                "runs: expected the same queries in both, found `{id}` in one of them; with `complete`, missing \
                 queries count 0"
            )));
        }
        let column = |of: &Self, at: usize| of.queries.iter().map(|query| query.values[at]).collect();
        let columns = self.measures.iter().enumerate();
        Ok(columns.map(|(at, measure)| (measure.name(), column(self, at), column(other, at))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QRELS: &str = "q1 0 a 1\nq1 0 b 0\nq2 0 a 2\nq3 0 c 1\n";

    fn scored(qrels: &str, run: &str, names: &str, complete: bool) -> Result<Evaluation> {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("q.txt"), qrels).unwrap();
        std::fs::write(path("r.trec"), run).unwrap();
        let measures = RankingMeasure::list(names).unwrap();
        let options = Options { complete, ..Options::new(measures) };
        evaluate(path("q.txt"), path("r.trec"), &options)
    }

    fn mean(found: &Evaluation, at: usize) -> Option<f64> {
        found.means()[at].1.value()
    }

    #[test]
    fn lines_stand_in_any_order_and_ranks_do_not_count() {
        let run = "q1 Q0 b 1 0.5 t\nq2 Q0 b 1 3 t\nq1 Q0 a 9 2.5 t\r\n\nq2 Q0 a 1 2 t\nq3\tQ0\tc\t1\t1e3\tt";
        let found = scored(QRELS, run, "RR,P@1", false).unwrap();
        let values: Vec<_> =
            found.queries.iter().map(|query| (query.query.as_str(), query.values[0])).collect();
        assert_eq!(values, [("q1", 1.0), ("q2", 0.5), ("q3", 1.0)]);
        assert_eq!((found.missing.len(), found.unjudged), (0, 0));
        assert_eq!(mean(&found, 1), Some(2.0 / 3.0));
    }

    #[test]
    fn equal_scores_are_ordered_by_descending_id_as_32_bit_floats() {
        let rank = |run: &str| 1.0 / mean(&scored("q 0 b 1\n", run, "RR", false).unwrap(), 0).unwrap();
        assert_eq!(rank("q Q0 b 1 1 t\nq Q0 c 2 1 t\nq Q0 a 3 1 t\n"), 2.0);
        // Both are 1 in 32 bits.
        assert_eq!(rank("q Q0 b 1 1.00000001 t\nq Q0 c 2 1 t\n"), 2.0);
        assert_eq!(rank("q Q0 b 1 1.001 t\nq Q0 c 2 1 t\n"), 1.0);
        assert_eq!(rank("q Q0 b 1 0.0 t\nq Q0 c 2 -0.0 t\n"), 2.0);
        assert_eq!(rank("q Q0 b 1 inf t\nq Q0 c 2 1e300 t\nq Q0 d 1 -inf t\n"), 2.0);
        // Bytewise: `é` follows all letters of ASCII.
        assert_eq!(rank("q Q0 b 1 1 t\nq Q0 é 2 1 t\nq Q0 B 2 1 t\n"), 2.0);
    }

    #[test]
    fn missing_queries_are_named_and_count_0_if_all_are_to_count() {
        let run = "q2 Q0 a 1 1 t\nother Q0 a 1 1 t\nother Q0 b 1 0 t\n";
        let found = scored(QRELS, run, "AP", false).unwrap();
        assert_eq!((mean(&found, 0), found.unjudged), (Some(1.0), 1));
        assert_eq!(found.missing, ["q1", "q3"]);
        let found = scored(QRELS, run, "AP", true).unwrap();
        assert_eq!((mean(&found, 0), found.queries.len()), (Some(1.0 / 3.0), 3));
        assert_eq!(found.missing, ["q1", "q3"]);
        assert_eq!(mean(&scored(QRELS, "", "AP", true).unwrap(), 0), Some(0.0));
        assert_eq!(mean(&scored(QRELS, "", "AP", false).unwrap(), 0), None);
    }

    #[test]
    fn only_the_given_queries_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("q.txt"), QRELS).unwrap();
        std::fs::write(path("r.trec"), "q1 Q0 a 1 1 t\nq3 Q0 b 1 1 t\n").unwrap();
        // q2 has no ranking and counts 0; q3 is not in the set.
        let queries = Some(["q1", "q2", "other"].map(str::to_owned).into());
        let measures = RankingMeasure::list("RR").unwrap();
        let options = Options { complete: true, queries, ..Options::new(measures) };
        let found = evaluate(path("q.txt"), path("r.trec"), &options).unwrap();
        assert_eq!((mean(&found, 0), found.queries.len()), (Some(0.5), 2));
        assert_eq!(found.missing, ["q2"]);
    }

    #[test]
    fn rankings_in_memory_have_the_values_of_their_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("q.txt"), "q 0 a 1\nq 0 b 2\nq 0 c 0\nq 0 d%20e 1\nr 0 a 1\n").unwrap();
        let lines = ["x 1 4", "d%20e 2 3", "c 3 2", "b 4 1"].map(|line| format!("q Q0 {line} t\n")).concat();
        std::fs::write(path("r.trec"), lines + "p Q0 x 1 1 t\n").unwrap();
        let judged = JudgedQueries::read(path("q.txt")).unwrap();
        let rankings = [("q", ["x", "d e", "c", "b"]), ("p", ["x", "y", "z", "p"])];
        let rankings =
            rankings.map(|(query, ids)| (query.to_owned(), ids.map(str::to_owned).to_vec())).into();
        let measures = RankingMeasure::list("nDCG@10, Rprec, AP, SetP, Bpref, RR, R@2").unwrap();
        for (complete, exclude_self) in [(false, false), (true, false), (false, true)] {
            let options = Options { complete, exclude_self, ..Options::new(measures.clone()) };
            let found = judged.evaluate(&rankings, &options);
            let of_file = evaluate(path("q.txt"), path("r.trec"), &options).unwrap();
            assert_eq!((&found.queries, &found.missing), (&of_file.queries, &of_file.missing));
            assert_eq!(found.unjudged, of_file.unjudged);
        }
        // One of three relevant documents in the first three.
        let measures = RankingMeasure::list("Rprec").unwrap();
        assert_eq!(judged.value(&measures[0], "q", ["x", "d e", "c", "b"]), Some(1.0 / 3.0));
        assert_eq!(judged.value(&measures[0], "other", ["a"]), None);
    }

    #[test]
    fn ids_are_those_of_the_judgements_percent_codes_decoded() {
        let qrels = "query-id\tcorpus-id\tscore\nq 1\tdoc é 1\t1\n";
        let found = scored(qrels, "q%201 Q0 doc%20é%201 1 1 t\n", "P@1", false).unwrap();
        assert_eq!((found.queries[0].query.as_str(), found.queries[0].values[0]), ("q 1", 1.0));
        // An id that is no code stays.
        assert_eq!(mean(&scored("q 0 100% 1\n", "q Q0 100% 1 1 t\n", "P@1", false).unwrap(), 0), Some(1.0));
    }

    #[test]
    fn ids_that_judgements_name_with_percent_codes_stay() {
        // BEIR's ids may be addresses, and other programs write them into runs as they are.
        let qrels = "query-id\tcorpus-id\tscore\nq%201\thttp://x/a%20b\t1\n";
        let found = scored(qrels, "q%201 Q0 http://x/a%20b 1 1 t\n", "P@1", false).unwrap();
        assert_eq!((found.queries[0].query.as_str(), found.queries[0].values[0]), ("q%201", 1.0));
        // Our own runs encode the `%` too.
        let found = scored(qrels, "q%25201 Q0 http://x/a%2520b 1 1 t\n", "P@1", false).unwrap();
        assert_eq!(found.queries[0].values[0], 1.0);
        // Two spellings of one document count once.
        let run = "q%201 Q0 http://x/a%20b 1 2 t\nq%201 Q0 http://x/a%2520b 2 1 t\n";
        let message = scored(qrels, run, "nDCG@10", false).unwrap_err().to_string();
        assert!(
            message.contains("r.trec:2") && message.contains("found `http://x/a%20b` on line 1"),
            "{message}"
        );
    }

    #[test]
    fn a_run_in_another_encoding_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("q.txt"), "q 0 caf\u{e9} 1\n").unwrap();
        std::fs::write(path("r.trec"), b"q Q0 a 1 2 t\nq Q0 caf\xe9 2 1 t\n").unwrap();
        let options = Options::new(RankingMeasure::list("P@1").unwrap());
        let message = evaluate(path("q.txt"), path("r.trec"), &options).unwrap_err().to_string();
        assert!(message.contains("r.trec:2: field `document`: expected UTF-8"), "{message}");
    }

    #[test]
    fn a_document_with_its_querys_id_can_be_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("q.txt"), "a 0 b 1\n").unwrap();
        std::fs::write(path("r.trec"), "a Q0 a 1 2 t\na Q0 b 2 1 t\n").unwrap();
        let measures = RankingMeasure::list("P@1").unwrap();
        let value = |exclude_self| {
            let options = Options { exclude_self, ..Options::new(measures.clone()) };
            mean(&evaluate(path("q.txt"), path("r.trec"), &options).unwrap(), 0)
        };
        assert_eq!((value(false), value(true)), (Some(0.0), Some(1.0)));
        // A query that finds itself alone has found nothing, but it is not missing.
        std::fs::write(path("q.txt"), "a 0 b 1\nc 0 d 1\n").unwrap();
        std::fs::write(path("r.trec"), "a Q0 a 1 3 t\nc Q0 d 1 1 t\n").unwrap();
        assert_eq!(value(true), Some(0.5));
    }

    #[test]
    fn two_runs_are_paired_by_query() {
        let one = scored(QRELS, "q1 Q0 a 1 1 t\nq2 Q0 b 1 1 t\n", "P@1,RR", false).unwrap();
        let other = scored(QRELS, "q2 Q0 a 1 1 t\nq1 Q0 b 1 2 t\nq1 Q0 a 1 1 t\n", "P@1,RR", false).unwrap();
        let columns = one.paired(&other).unwrap();
        assert_eq!(columns[0], ("P@1", vec![1.0, 0.0], vec![0.0, 1.0]));
        assert_eq!(columns[1], ("RR", vec![1.0, 0.0], vec![0.5, 1.0]));
        let fewer = scored(QRELS, "q2 Q0 a 1 1 t\n", "P@1,RR", false).unwrap();
        let message = one.paired(&fewer).unwrap_err().to_string();
        assert!(message.contains("found `q1` in one of them"), "{message}");
    }

    #[test]
    fn errors_name_file_line_and_field() {
        let good = "q1 Q0 a 1 1.0 t\n";
        for (qrels, run, expected) in [
            (QRELS, "q1 Q0 b 2 0.5\n", "r.trec:2: field `tag`: expected the 6 columns"),
            (QRELS, "q1 Q0 b 2 0.5 t u\n", "r.trec:2: field `7`: expected the 6 columns"),
            (QRELS, "q1 Q0 b 2 high t\n", "r.trec:2: field `score`: expected a number, found `high`"),
            (QRELS, "q1 Q0 b 2 nan t\n", "r.trec:2: field `score`: expected a number, found `nan`"),
            (
                QRELS,
                "q2 Q0 a 1 1 t\nq1 Q0 a 2 0.5 t\n",
                "r.trec:3: field `document`: expected each document once for `q1`, found `a` on line 1",
            ),
            ("\n", "", "q.txt: expected at least one judgement, found none"),
            ("q1 0 a\n", "", "q.txt:1: field `relevance`: expected the 4 columns"),
            (
                "q1 0 a 1\nq1 0 b 1\nq1 0 a 2\n",
                "",
                "q.txt:3: field `document`: expected one judgement of `a`",
            ),
            ("Q 0 a 1\n", "", "such as `Q`; none of the run's 1 queries is judged"),
        ] {
            let message = scored(qrels, &format!("{good}{run}"), "AP", false).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
        // A judgement that stands twice changes nothing.
        assert!(scored("q1 0 a 1\nq1 0 a 1\n", good, "AP", false).is_ok());
    }
}
