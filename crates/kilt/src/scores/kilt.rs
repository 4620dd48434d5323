//! A file of predictions against its gold file, as in KILT's `eval_downstream`.
//!
//! Cases that the public scorer does not define, here and in [`retrieval`](super::retrieval): a gold record
//! without any answer or output scores 0. A null answer is an empty one. A null field counts as missing, but
//! in a rank key it is the text `None`.

use std::path::Path;

use serde::Serialize;

use super::{
    PerRecord,
    aligned::{self, Aligned, Columns, Fault, Scoring},
    answer::{Answers, Buffers},
    depth::Depth,
    line::{Field, Line, Output},
    provenance::Evidence,
};
use crate::Result;

/// The report of [`evaluate`], with the keys and the order of KILT's scorer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Scores of the answers.
    pub downstream: Downstream,
    /// Scores of the answers with correct evidence.
    pub kilt: Combined,
    /// Scores of the evidence.
    pub retrieval: Retrieval,
}

/// Mean answer scores, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Downstream {
    /// Trimmed exact match.
    pub accuracy: f64,
    /// Exact match after normalisation.
    pub em: f64,
    /// F1 over words after normalisation.
    pub f1: f64,
    /// ROUGE-L.
    pub rougel: f64,
}

/// Mean answer scores over records with R-precision 1; other records count as 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Combined {
    /// Of accuracy.
    #[serde(rename = "KILT-accuracy")]
    pub accuracy: f64,
    /// Of exact match.
    #[serde(rename = "KILT-em")]
    pub em: f64,
    /// Of F1.
    #[serde(rename = "KILT-f1")]
    pub f1: f64,
    /// Of ROUGE-L.
    #[serde(rename = "KILT-rougel")]
    pub rougel: f64,
}

/// Mean page-level evidence scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Retrieval {
    /// R-precision.
    #[serde(rename = "Rprec")]
    pub r_precision: f64,
    /// Recall among the first 5 points of the rank.
    #[serde(rename = "recall@5")]
    pub recall_at_5: f64,
}

/// The result of [`evaluate`].
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The means.
    pub report: Report,
    /// The scores of each record, under the report's names.
    pub records: PerRecord,
    /// The number of predicted pages, compared with the 5 of recall@5.
    pub depth: Depth,
    /// Ids of predictions without a gold record; they are not scored.
    pub unknown: Vec<String>,
}

/// The number of values a record: its scores, and the number of predicted pages.
pub(super) const FIGURES: usize = DOWNSTREAM.len() + 1;
const DOWNSTREAM: [&str; 10] = [
    "accuracy",
    "em",
    "f1",
    "rougel",
    "KILT-accuracy",
    "KILT-em",
    "KILT-f1",
    "KILT-rougel",
    "Rprec",
    "recall@5",
];
/// The value that is no score: the number of different predicted items.
pub(super) const HELD: &str = "held";

/// Scores answers, and page-level evidence as in that scorer.
///
/// ```
/// use sporran_kilt::scores::kilt;
///
/// let folder = tempfile::tempdir()?;
/// let (gold, guess) = (folder.path().join("gold.jsonl"), folder.path().join("guess.jsonl"));
/// std::fs::write(&gold, r#"{"id": "q", "output": [{"answer": "Oslo", "provenance": [{"wikipedia_id": "1"}]}]}"#)?;
/// std::fs::write(&guess, r#"{"id": "q", "output": [{"answer": "oslo", "provenance": [{"wikipedia_id": "1"}]}]}"#)?;
///
/// let report = kilt::evaluate(&gold, &guess)?.report;
/// assert_eq!((report.downstream.accuracy, report.downstream.em, report.kilt.em), (0.0, 1.0, 1.0));
/// assert_eq!(report.retrieval.r_precision, 1.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A duplicate id in either file, a gold id without a prediction, a gold record without the field `output`, a prediction
/// without exactly one output with an `answer`, and read errors.
pub fn evaluate(gold: impl AsRef<Path>, guess: impl AsRef<Path>) -> Result<Evaluation> {
    let mut columns = Columns::new(false);
    let scoring = AnswerScoring::new(&mut columns);
    let Aligned { records, unknown } = aligned::score(gold.as_ref(), guess.as_ref(), &scoring, &columns)?;
    Ok(evaluation(&records, unknown))
}

/// The means of the values of [`AnswerScoring`].
pub(super) fn evaluation(figures: &PerRecord, unknown: Vec<String>) -> Evaluation {
    let scores = DOWNSTREAM.len();
    let depth = Depth::new(figures.at(scores), &[5]);
    let records = figures.select(0..scores, DOWNSTREAM.map(str::to_owned).into());
    let mean = |column| records.mean_at(column);
    let report = Report {
        downstream: Downstream { accuracy: mean(0), em: mean(1), f1: mean(2), rougel: mean(3) },
        kilt: Combined { accuracy: mean(4), em: mean(5), f1: mean(6), rougel: mean(7) },
        retrieval: Retrieval { r_precision: mean(8), recall_at_5: mean(9) },
    };
    Evaluation { report, records, depth, unknown }
}

pub(super) struct AnswerScoring {
    page: usize,
}

impl AnswerScoring {
    pub(super) fn new(columns: &mut Columns) -> Self {
        Self { page: columns.shared("wikipedia_id") }
    }
}

/// The outputs of a gold record.
pub(super) fn gold_outputs<'l, 'a>(
    line: &'l Line<'a>,
) -> Result<impl ExactSizeIterator<Item = Output<'l, 'a>> + Clone, Fault> {
    let missing = || ("output".to_owned(), "expected the gold outputs, found none".to_owned());
    line.outputs().ok_or_else(missing)
}

impl Scoring for AnswerScoring {
    type Gold = (Answers, Evidence);
    type Buffers = Buffers;

    fn names(&self) -> Vec<String> {
        DOWNSTREAM.into_iter().chain([HELD]).map(str::to_owned).collect()
    }

    fn gold(&self, line: &Line<'_>, buffers: &mut Buffers) -> Result<Self::Gold, Fault> {
        let outputs = gold_outputs(line)?;
        let answers = Answers::new_in(outputs.clone().filter_map(|output| output.answer.text()), buffers);
        let rows = outputs.filter_map(|output| output.provenance);
        Ok((answers, Evidence::from_rows(rows, &[self.page])))
    }

    fn score(
        &self,
        (answers, evidence): &Self::Gold,
        guess: &Line<'_>,
        buffers: &mut Buffers,
        row: &mut [f64],
    ) -> Result<(), Fault> {
        let mut outputs = guess.outputs().into_iter().flatten();
        let (Some(output), None) = (outputs.next(), outputs.next()) else {
            let found = guess.outputs().map_or(0, |outputs| outputs.len());
            return Err(("output".into(), format!("expected exactly one output, found {found}")));
        };
        if *output.answer == Field::Missing {
            return Err(("output[0].answer".into(), "expected an answer, found none".into()));
        }
        let scores = answers.score_in(output.answer.text().unwrap_or_default(), buffers);
        let rank = evidence.rank_rows(output.provenance, &[self.page]);
        let scores = [scores.accuracy, scores.em, scores.f1, scores.rougel];
        let combined = scores.map(|score| if rank.r_precision == 1.0 { score } else { 0.0 });
        let figures =
            scores.into_iter().chain(combined).chain([rank.r_precision, rank.recall(5), rank.held as f64]);
        row.iter_mut().zip(figures).for_each(|(place, figure)| *place = figure);
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::scores) fn files(
        gold: &str,
        guess: &str,
    ) -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("gold.jsonl"), folder.path().join("guess.jsonl")];
        std::fs::write(&paths[0], gold).unwrap();
        std::fs::write(&paths[1], guess).unwrap();
        let [gold, guess] = paths;
        (folder, gold, guess)
    }

    pub(in crate::scores) const GOLD: &str = r#"{"id": 1, "input": "who is in Rome?", "output": [{"answer": "Ann", "provenance": [{"wikipedia_id": 5, "title": "Rome"}]}]}
{"id": " b ", "input": "x", "output": [{"answer": "Bob"}, {"provenance": [{"wikipedia_id": "6", "title": "Oslo"}, {"wikipedia_id": "7"}]}]}
"#;

    #[test]
    fn answers_count_for_kilt_where_the_pages_are_right() {
        let guess = r#"{"id": "b", "output": [{"answer": " Bob", "provenance": [{"wikipedia_id": "7"}, {"wikipedia_id": 8}]}]}
{"id": "zz", "output": []}
{"id": "1", "output": [{"answer": "Ann", "provenance": [{"wikipedia_id": "5"}]}]}
"#;
        let (_folder, gold, guess) = files(GOLD, guess);
        let evaluation = evaluate(gold, guess).unwrap();
        assert_eq!(evaluation.unknown, ["zz"]);
        assert_eq!(evaluation.report.downstream.accuracy, 1.0);
        assert_eq!(evaluation.report.kilt.accuracy, 0.5);
        // 1 for the first; 1 of the 2 pages for the second.
        assert_eq!(evaluation.report.retrieval.r_precision, 0.75);
        assert_eq!(evaluation.records.ids(), ["1", "b"]);
        assert_eq!(evaluation.records.column("Rprec").unwrap(), [1.0, 0.5]);
        assert_eq!(evaluation.depth, Depth { min: 1, max: 2, beyond: vec![5] });
        assert_eq!(evaluation.records.column(HELD), None);
        let json = serde_json::to_string(&evaluation.report).unwrap();
        let start = r#"{"downstream":{"accuracy":1.0,"em":1.0,"f1":1.0,"rougel":"#;
        assert!(json.starts_with(start), "{json}");
        assert!(json.ends_with(r#""retrieval":{"Rprec":0.75,"recall@5":0.5}}"#), "{json}");
    }

    #[test]
    fn every_fault_of_the_files_is_named() {
        let one = r#"{"id": 1, "output": [{"answer": "Ann"}]}"#;
        let b = r#"{"id": "b", "output": [{"answer": "Ann"}]}"#;
        let cases = [
            (GOLD.to_owned(), one.to_owned(), "no prediction for id `b` (1 of the gold ids have none)"),
            (
                GOLD.to_owned(),
                format!("{one}\n{b}\n{one}"),
                "guess.jsonl:3: field `id`: `1` stands on line 1 already",
            ),
            (
                format!("{GOLD}{{\"id\": \"1\", \"output\": []}}"),
                one.to_owned(),
                "gold.jsonl:3: field `id`: `1` stands on line 1",
            ),
            (
                GOLD.to_owned(),
                format!("{one}\n{{\"id\": \"b\", \"output\": []}}"),
                "expected exactly one output, found 0",
            ),
            (
                GOLD.to_owned(),
                r#"{"id": "b", "output": [{}]}"#.to_owned(),
                "field `output[0].answer`: expected an answer",
            ),
            (
                r#"{"id": 1, "input": "q"}"#.to_owned(),
                one.to_owned(),
                "gold.jsonl:1: field `output`: expected the gold",
            ),
            ("\n".to_owned(), one.to_owned(), "expected at least one gold record"),
        ];
        for (gold, guess, expected) in cases {
            let (_folder, gold, guess) = files(&gold, &guess);
            let message = evaluate(gold, guess).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
