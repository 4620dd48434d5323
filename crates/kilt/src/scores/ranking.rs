//! Scores of ranked candidates, as in trec_eval; WOW++'s knowledge selection reports them.
//!
//! `map_norm@k` is not from trec_eval: it divides average precision over the first k by min(relevant, k)
//! instead of by all relevant candidates. So a ranking that starts with k relevant ones scores 1. The WOW++
//! paper (Eric et al. 2021, table 3) does not define its MAP@k. Its MAP@5 exceeds its MAP@10 in most rows,
//! which is impossible for `map@k`. `ndcg_graded@k` is not trec_eval's either, whose gains are whole numbers.
//!
//! Candidates are ordered by descending score. trec_eval keeps scores as 32-bit floats, so scores that are
//! equal there are ties. Ties are broken by descending id, bytewise.

use std::{borrow::Cow, fmt, path::Path};

use serde::{Deserialize, Serialize};

use super::Measure;
use crate::{Error, Id, Result, counted, jsonl};

/// The smallest confidence of a relevant candidate of WOW++.
pub const RELEVANT: f64 = 0.6;

/// A query with its candidates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// Unique in its file.
    pub id: Id,
    /// In any order, with ids that differ.
    pub candidates: Vec<Candidate>,
}

/// A ranked item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Unique in its query.
    pub id: Id,
    /// The annotators' confidence that it is relevant, 0 to 1.
    pub confidence: f64,
    /// The system's score; greater is better.
    pub score: f64,
}

/// The scores of one query, or their means as [`Measure`]s; each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scores<T = f64> {
    /// 1 if the first candidate is relevant.
    #[serde(rename = "mrr@1")]
    pub mrr_at_1: T,
    /// 1 / rank of the first relevant candidate, if it is among the first 5.
    #[serde(rename = "mrr@5")]
    pub mrr_at_5: T,
    /// trec_eval's `map_cut_5`: average precision over the first 5, divided by all relevant candidates.
    #[serde(rename = "map@5")]
    pub map_at_5: T,
    /// trec_eval's `map_cut_10`.
    #[serde(rename = "map@10")]
    pub map_at_10: T,
    /// Average precision over the first 5, divided by min(relevant, 5).
    #[serde(rename = "map_norm@5")]
    pub map_norm_at_5: T,
    /// Average precision over the first 10, divided by min(relevant, 10).
    #[serde(rename = "map_norm@10")]
    pub map_norm_at_10: T,
    /// trec_eval's `ndcg_cut_5`, with gain 1 for a relevant candidate.
    #[serde(rename = "ndcg@5")]
    pub ndcg_at_5: T,
    /// trec_eval's `ndcg_cut_10`.
    #[serde(rename = "ndcg@10")]
    pub ndcg_at_10: T,
    /// As `ndcg_cut_5`, where every candidate gains its confidence.
    #[serde(rename = "ndcg_graded@5")]
    pub ndcg_graded_at_5: T,
    /// As `ndcg_cut_10`, where every candidate gains its confidence.
    #[serde(rename = "ndcg_graded@10")]
    pub ndcg_graded_at_10: T,
    /// 1 / rank of the first relevant candidate.
    pub recip_rank: T,
}

impl<T: Copy> Scores<T> {
    /// The scores under their names.
    pub fn named(&self) -> [(&'static str, T); 11] {
        [
            ("mrr@1", self.mrr_at_1),
            ("mrr@5", self.mrr_at_5),
            ("map@5", self.map_at_5),
            ("map@10", self.map_at_10),
            ("map_norm@5", self.map_norm_at_5),
            ("map_norm@10", self.map_norm_at_10),
            ("ndcg@5", self.ndcg_at_5),
            ("ndcg@10", self.ndcg_at_10),
            ("ndcg_graded@5", self.ndcg_graded_at_5),
            ("ndcg_graded@10", self.ndcg_graded_at_10),
            ("recip_rank", self.recip_rank),
        ]
    }
}

/// Means over the queries that have a relevant candidate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The means; no values if no query has a relevant candidate.
    #[serde(flatten)]
    pub scores: Scores<Measure>,
    /// Queries in the file.
    pub queries: usize,
    /// Those of them that have a relevant candidate.
    pub queries_with_relevant: usize,
}

impl Report {
    /// The scores of rankings in memory; `threshold` is the smallest confidence of a relevant candidate.
    pub fn of(rankings: &[Ranked], threshold: f64) -> Self {
        let scores: Vec<Scores> =
            rankings.iter().filter_map(|ranked| score(&ranked.candidates, threshold)).collect();
        Self::new(scores.iter(), rankings.len())
    }

    fn new<'a>(records: impl Iterator<Item = &'a Scores> + Clone, queries: usize) -> Self {
        let of = |score: fn(&Scores) -> f64| Measure::mean(records.clone().map(score));
        let scores = Scores {
            mrr_at_1: of(|scores| scores.mrr_at_1),
            mrr_at_5: of(|scores| scores.mrr_at_5),
            map_at_5: of(|scores| scores.map_at_5),
            map_at_10: of(|scores| scores.map_at_10),
            map_norm_at_5: of(|scores| scores.map_norm_at_5),
            map_norm_at_10: of(|scores| scores.map_norm_at_10),
            ndcg_at_5: of(|scores| scores.ndcg_at_5),
            ndcg_at_10: of(|scores| scores.ndcg_at_10),
            ndcg_graded_at_5: of(|scores| scores.ndcg_graded_at_5),
            ndcg_graded_at_10: of(|scores| scores.ndcg_graded_at_10),
            recip_rank: of(|scores| scores.recip_rank),
        };
        Self { scores, queries, queries_with_relevant: records.count() }
    }
}

impl fmt::Display for Report {
    /// One line of names and means.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, mean) in self.scores.named() {
            write!(f, "{name} {mean:.3}, ")?;
        }
        write!(
            f,
            "over {} of {} with a relevant candidate",
            self.queries_with_relevant,
            counted(self.queries as u64, "query")
        )
    }
}

/// The result of [`evaluate`].
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The means.
    pub report: Report,
    /// The scores of each query with a relevant candidate, in the file's order.
    pub records: Vec<(Id, Scores)>,
}

/// Scores candidates; `None` if no confidence reaches `threshold`.
///
/// ```
/// use sporran_kilt::scores::ranking::{Candidate, RELEVANT, score};
///
/// let candidate = |id: &str, confidence, score| Candidate { id: id.into(), confidence, score };
/// let candidates = [candidate("a", 0.2, 3.5), candidate("b", 0.9, 1.5)];
/// let scores = score(&candidates, RELEVANT).unwrap();
/// assert_eq!((scores.mrr_at_1, scores.mrr_at_5), (0.0, 0.5));
/// ```
pub fn score(candidates: &[Candidate], threshold: f64) -> Option<Scores> {
    let mut order: Vec<(f32, Cow<'_, str>, f64)> = candidates
        .iter()
        .map(|candidate| (candidate.score as f32, candidate.id.text(), candidate.confidence))
        .collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| b.1.as_bytes().cmp(a.1.as_bytes())));
    let graded: Vec<f64> = order.into_iter().map(|(_, _, confidence)| confidence).collect();
    let relevant: Vec<bool> = graded.iter().map(|confidence| *confidence >= threshold).collect();
    let total = relevant.iter().filter(|&&relevant| relevant).count();
    let first = relevant.iter().position(|&relevant| relevant)? + 1;
    let gains: Vec<f64> = relevant.iter().map(|relevant| f64::from(u8::from(*relevant))).collect();
    let reciprocal = |k: usize| if first <= k { 1.0 / first as f64 } else { 0.0 };
    Some(Scores {
        mrr_at_1: reciprocal(1),
        mrr_at_5: reciprocal(5),
        map_at_5: precisions(&relevant, 5) / total as f64,
        map_at_10: precisions(&relevant, 10) / total as f64,
        map_norm_at_5: precisions(&relevant, 5) / total.min(5) as f64,
        map_norm_at_10: precisions(&relevant, 10) / total.min(10) as f64,
        ndcg_at_5: ndcg(&gains, 5),
        ndcg_at_10: ndcg(&gains, 10),
        ndcg_graded_at_5: ndcg(&graded, 5),
        ndcg_graded_at_10: ndcg(&graded, 10),
        recip_rank: reciprocal(usize::MAX),
    })
}

fn precisions(relevant: &[bool], k: usize) -> f64 {
    let mut found = 0usize;
    let mut sum = 0.0;
    for (at, _) in relevant.iter().take(k).enumerate().filter(|(_, relevant)| **relevant) {
        found += 1;
        sum += found as f64 / (at + 1) as f64;
    }
    sum
}

/// The discounted cumulative gain of the first `k` places, divided by that of the best order; 0 if nothing gains.
fn ndcg(gains: &[f64], k: usize) -> f64 {
    let sum = |gains: &[f64]| {
        let places = gains.iter().take(k).enumerate();
        // Not the -0 of an empty sum.
        places.map(|(at, gain)| gain / ((at + 2) as f64).log2()).fold(0.0, |sum, share| sum + share)
    };
    let mut best = gains.to_vec();
    best.sort_unstable_by(|a, b| b.total_cmp(a));
    let ideal = sum(&best);
    if ideal > 0.0 { sum(gains) / ideal } else { 0.0 }
}

/// A score's name, and its values for all queries in both files.
pub type Paired = (&'static str, Vec<f64>, Vec<f64>);

impl Evaluation {
    /// The values of both on the same queries, by score.
    ///
    /// # Errors
    /// [`Error::Argument`] if the queries with a relevant candidate differ.
    pub fn paired(&self, other: &Self) -> Result<Vec<Paired>> {
        let theirs: rustc_hash::FxHashMap<&Id, &Scores> =
            other.records.iter().map(|(id, scores)| (id, scores)).collect();
        if theirs.len() != self.records.len() {
            return Err(Error::Argument(format!(
                "rankings: expected the same queries with a relevant candidate, found {} and {} of them",
                self.records.len(),
                theirs.len()
            )));
        }
        let mut columns: Vec<Paired> =
            Scores::<f64>::default().named().map(|(name, _)| (name, Vec::new(), Vec::new())).into();
        for (id, mine) in &self.records {
            let Some(their) = theirs.get(id) else {
                return Err(Error::Argument(format!(
                    "rankings: expected a relevant candidate of query `{id}` in both, found one"
                )));
            };
            for ((column, (_, mine)), (_, their)) in columns.iter_mut().zip(mine.named()).zip(their.named()) {
                column.1.push(mine);
                column.2.push(their);
            }
        }
        Ok(columns)
    }
}

/// Scores a file of [`Ranked`] lines.
///
/// # Errors
/// [`Error::DuplicateId`]; [`Error::Record`] for two candidates of one id, which trec_eval refuses too;
/// [`Error::Empty`] for a file without lines; and read errors.
pub fn evaluate(path: impl AsRef<Path>, threshold: f64) -> Result<Evaluation> {
    let path = path.as_ref();
    let mut records: Vec<(Id, Scores)> = Vec::new();
    let mut seen = rustc_hash::FxHashMap::default();
    for line in jsonl::open(path)?.numbered::<Ranked>() {
        let (line, query) = line?;
        if let Some(first) = seen.insert(query.id.clone(), line) {
            return Err(Error::DuplicateId {
                path: path.to_owned(),
                line,
                first,
                field: "id",
                id: query.id.to_string(),
            });
        }
        let mut ids: Vec<Cow<'_, str>> =
            query.candidates.iter().map(|candidate| candidate.id.text()).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            let message = format!("expected candidates with different ids, found `{}` twice", pair[0]);
            return Err(Error::record(path, line, "candidates", message));
        }
        if let Some(scores) = score(&query.candidates, threshold) {
            records.push((query.id, scores));
        }
    }
    if seen.is_empty() {
        return Err(Error::Empty { path: path.to_owned(), what: "query" });
    }
    let report = Report::new(records.iter().map(|(_, scores)| scores), seen.len());
    Ok(Evaluation { report, records })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(list: &[(&str, f64, f64)]) -> Vec<Candidate> {
        list.iter().map(|&(id, confidence, score)| Candidate { id: id.into(), confidence, score }).collect()
    }

    #[test]
    fn ties_go_to_the_greater_id() {
        let tied = candidates(&[("a", 1.0, 2.0), ("b", 0.0, 2.0), ("c", 0.0, 1.0)]);
        assert_eq!(score(&tied, 0.6).unwrap().recip_rank, 0.5);
        // Equal as 32-bit floats.
        let close = candidates(&[("a", 1.0, 1.000_000_01), ("b", 0.0, 1.0)]);
        assert_eq!(score(&close, 0.6).unwrap().recip_rank, 0.5);
    }

    #[test]
    fn precision_and_gain_are_cut_at_k() {
        // Relevant at places 2 and 6 of 6, and the threshold counts.
        let list = candidates(&[
            ("1", 0.5, 6.0),
            ("2", 0.6, 5.0),
            ("3", 0.0, 4.0),
            ("4", 0.0, 3.0),
            ("5", 0.0, 2.0),
            ("6", 1.0, 1.0),
        ]);
        let scores = score(&list, 0.6).unwrap();
        assert_eq!((scores.mrr_at_1, scores.mrr_at_5), (0.0, 0.5));
        assert_eq!(scores.map_at_5, 0.5 / 2.0);
        assert_eq!(scores.map_at_10, (0.5 + 2.0 / 6.0) / 2.0);
        // Both are divided by the two relevant ones.
        assert_eq!((scores.map_norm_at_5, scores.map_norm_at_10), (scores.map_at_5, scores.map_at_10));
        let ideal = 1.0 + 1.0 / 3f64.log2();
        assert_eq!(scores.ndcg_at_5, (1.0 / 3f64.log2()) / ideal);
        assert_eq!(scores.ndcg_at_10, (1.0 / 3f64.log2() + 1.0 / 7f64.log2()) / ideal);
    }

    /// Twelve candidates in this order, relevant where a character is `1`.
    fn ordered(relevant: &str) -> Scores {
        let confidence = |mark: char| if mark == '1' { 1.0 } else { 0.0 };
        let list: Vec<Candidate> = (0u32..)
            .zip(relevant.chars())
            .map(|(at, mark)| Candidate {
                id: at.to_string().as_str().into(),
                confidence: confidence(mark),
                score: -f64::from(at),
            })
            .collect();
        score(&list, 0.6).unwrap()
    }

    #[test]
    fn the_normalised_average_precision_is_divided_by_what_fits_in_k() {
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} is not {b}");
        // Seven relevant ones, the first five of which lead: all of the first 5, 5 of 7 relevant ones.
        let scores = ordered("111110000011");
        close(scores.map_norm_at_5, 1.0);
        close(scores.map_at_5, 5.0 / 7.0);
        close(scores.map_norm_at_10, 5.0 / 7.0);
        // Relevant at 1, 3, 6, 7, 8 and 12: six of them.
        let scores = ordered("101001110001");
        let first = 1.0 + 2.0 / 3.0;
        let ten = first + 3.0 / 6.0 + 4.0 / 7.0 + 5.0 / 8.0;
        close(scores.map_norm_at_5, first / 5.0);
        close(scores.map_at_5, first / 6.0);
        close(scores.map_norm_at_10, ten / 6.0);
        close(scores.map_at_10, ten / 6.0);
        // Unlike map@k, it can fall with k.
        let scores = ordered("111110000000000111");
        assert!(scores.map_norm_at_5 > scores.map_norm_at_10 && scores.map_at_5 == scores.map_at_10);
    }

    #[test]
    fn the_normalised_average_precision_is_never_below_trec_evals() {
        for marks in 1u32..1 << 12 {
            let text: String = (0..12).map(|at| if marks >> at & 1 == 1 { '1' } else { '0' }).collect();
            let scores = ordered(&text);
            let relevant = marks.count_ones();
            for (k, norm, plain) in
                [(5, scores.map_norm_at_5, scores.map_at_5), (10, scores.map_norm_at_10, scores.map_at_10)]
            {
                assert!(
                    norm >= plain && (relevant > k || norm == plain) && norm <= 1.0 + 1e-12,
                    "{text} {k}"
                );
            }
        }
    }

    #[test]
    fn queries_without_a_relevant_candidate_are_counted_but_not_scored() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines = r#"{"id": 1, "candidates": [{"id": "x", "confidence": 0.1, "score": 1}]}
{"id": 2, "candidates": [{"id": "x", "confidence": 0.9, "score": 1}]}
{"id": 3, "candidates": []}
"#;
        std::fs::write(file.path(), lines).unwrap();
        let report = evaluate(file.path(), RELEVANT).unwrap().report;
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(
            json,
            r#"{"mrr@1":1.0,"mrr@5":1.0,"map@5":1.0,"map@10":1.0,"map_norm@5":1.0,"map_norm@10":1.0,"ndcg@5":1.0,"ndcg@10":1.0,"ndcg_graded@5":1.0,"ndcg_graded@10":1.0,"recip_rank":1.0,"queries":3,"queries_with_relevant":1}"#
        );
    }

    #[test]
    fn without_a_scored_query_there_are_no_means() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            r#"{"id": 1, "candidates": [{"id": "x", "confidence": 0.1, "score": 1}]}"#,
        )
        .unwrap();
        let report = evaluate(file.path(), RELEVANT).unwrap().report;
        assert!(report.scores.named().iter().all(|(_, mean)| mean.value().is_none()));
        let json = serde_json::to_value(report).unwrap();
        assert_eq!((&json["map_norm@5"], &json["queries"]), (&serde_json::Value::Null, &1.into()));
        assert!(report.to_string().contains("map_norm@5 -, "), "{report}");
    }

    #[test]
    fn two_rankings_are_paired_by_their_queries() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |lines: &[(u32, f64)]| {
            let line = |(id, score): &(u32, f64)| {
                format!(
                    r#"{{"id": {id}, "candidates": [{{"id": "x", "confidence": 1, "score": {score}}}, {{"id": "y", "confidence": 0, "score": 0}}]}}"#
                )
            };
            std::fs::write(file.path(), lines.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
            evaluate(file.path(), RELEVANT).unwrap()
        };
        let one = read(&[(1, 1.0), (2, -1.0)]);
        let other = read(&[(2, 1.0), (1, 1.0)]);
        let columns = one.paired(&other).unwrap();
        // Query 1, then query 2: the first file's order.
        assert_eq!(columns[0], ("mrr@1", vec![1.0, 0.0], vec![1.0, 1.0]));
        assert_eq!((columns[10].0, &columns[10].1), ("recip_rank", &vec![1.0, 0.5]));
        assert!(one.paired(&read(&[(1, 1.0)])).unwrap_err().to_string().contains("2 and 1"));
        assert!(one.paired(&read(&[(1, 1.0), (3, 1.0)])).unwrap_err().to_string().contains("`2`"));
    }

    #[test]
    fn two_candidates_of_one_id_are_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let candidate = r#"{"id": "x", "confidence": 0.1, "score": 1}"#;
        std::fs::write(file.path(), format!(r#"{{"id": 1, "candidates": [{candidate}, {candidate}]}}"#))
            .unwrap();
        let message = evaluate(file.path(), RELEVANT).unwrap_err().to_string();
        assert!(message.contains("field `candidates`") && message.contains("`x` twice"), "{message}");
    }
}
