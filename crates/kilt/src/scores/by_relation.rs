//! The scores of each relation against its number of questions (Yao et al. 2023, figure 5).

use std::{collections::BTreeMap, fmt, path::PathBuf};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::answer_set::Scores;
use crate::{
    Error, Id, Result,
    korc::{Question, load},
};

/// The relations that are labelled on either side of the line.
const LABELLED: usize = 5;

/// A point of the figure: a relation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Relation {
    /// Its name, or else its id; an inverse relation starts with `Inv: `.
    pub relation: String,
    /// Its questions in all given files.
    pub questions: usize,
    /// Its scored answer sets.
    pub scored: usize,
    /// The mean P-ACC, 0 to 1.
    pub p_acc: f64,
    /// The mean P-F1, 0 to 1.
    pub p_f1: f64,
}

/// The line of least squares: `questions = intercept + slope * p_f1`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The questions at a P-F1 of 0.
    pub intercept: f64,
    /// The questions that a P-F1 of 1 adds.
    pub slope: f64,
}

impl Line {
    /// Fits a line to points of P-F1 and questions; `None` without two different values of P-F1.
    pub fn fit(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let shared: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        (spread > 0.0).then(|| {
            let slope = shared / spread;
            Self { intercept: mean_y - slope * mean_x, slope }
        })
    }

    /// The distance of a point above the line, in questions.
    pub fn residual(&self, (p_f1, questions): (f64, f64)) -> f64 {
        questions - (self.intercept + self.slope * p_f1)
    }
}

/// The figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The scored relations, those with most questions first.
    pub relations: Vec<Relation>,
    /// The line of least squares; none without two different values of P-F1.
    pub line: Option<Line>,
    /// The relations farthest above the line, five at most: many questions, and hard ones.
    pub many_and_hard: Vec<String>,
    /// The relations farthest below the line, five at most: few questions, and easy ones.
    pub few_and_easy: Vec<String>,
}

/// The relations of the questions of files, by the questions' ids.
#[derive(Clone, Debug, Default)]
pub struct Relations {
    by_id: FxHashMap<Id, String>,
    questions: BTreeMap<String, usize>,
}

impl Relations {
    /// Reads files in KoRC's layout.
    ///
    /// # Errors
    /// Read errors; [`Error::Record`] for a question without `relation`, and for an id that an earlier file has.
    pub fn read(files: &[PathBuf]) -> Result<Self> {
        let mut relations = Self::default();
        for path in files {
            for (at, question) in load(path)?.into_iter().enumerate() {
                relations
                    .add(question)
                    .map_err(|(field, message)| Error::record(path, 1, format!("[{at}].{field}"), message))?;
            }
        }
        Ok(relations)
    }

    fn add(&mut self, question: Question) -> std::result::Result<(), (&'static str, String)> {
        let Some(relation) = question.relation_label().map(str::to_owned) else {
            return Err(("relation", "expected the relation of the question, found none".to_owned()));
        };
        *self.questions.entry(relation.clone()).or_default() += 1;
        match self.by_id.insert(question.id.clone(), relation) {
            None => Ok(()),
            Some(_) => Err(("id", format!("expected an id that no other file has, found `{}`", question.id))),
        }
    }

    /// The scores of each relation. Systems may answer the same question, and then each of their scores counts.
    ///
    /// # Errors
    /// The id of the first scored set that no question has.
    pub fn scores(&self, records: &[(Id, Scores)]) -> std::result::Result<Report, Id> {
        let mut sums: BTreeMap<&str, (usize, Scores)> = BTreeMap::new();
        for (id, scores) in records {
            let relation = self.by_id.get(id).ok_or_else(|| id.clone())?;
            let (count, sum) = sums.entry(relation).or_default();
            *count += 1;
            sum.p_acc += scores.p_acc;
            sum.p_f1 += scores.p_f1;
        }
        let mut relations: Vec<Relation> = sums
            .into_iter()
            .map(|(relation, (scored, sum))| Relation {
                relation: relation.to_owned(),
                questions: self.questions.get(relation).copied().unwrap_or_default(),
                scored,
                p_acc: sum.p_acc / scored as f64,
                p_f1: sum.p_f1 / scored as f64,
            })
            .collect();
        // The sort is stable, so equal counts stay in alphabetical order.
        relations.sort_by_key(|relation| std::cmp::Reverse(relation.questions));
        let points: Vec<(f64, f64)> = relations.iter().map(|it| (it.p_f1, it.questions as f64)).collect();
        let line = Line::fit(&points);
        let mut report = Report { relations, line, many_and_hard: Vec::new(), few_and_easy: Vec::new() };
        if let Some(line) = line {
            let mut far: Vec<(f64, usize)> =
                points.iter().enumerate().map(|(at, point)| (line.residual(*point), at)).collect();
            far.sort_by(|a, b| b.0.total_cmp(&a.0));
            let name = |&(_, at): &(f64, usize)| report.relations[at].relation.clone();
            let above: Vec<String> = far.iter().filter(|it| it.0 > 0.0).take(LABELLED).map(name).collect();
            let below: Vec<String> =
                far.iter().rev().filter(|it| it.0 < 0.0).take(LABELLED).map(name).collect();
            report.many_and_hard = above;
            report.few_and_easy = below;
        }
        Ok(report)
    }
}

impl fmt::Display for Report {
    /// A row a relation, then the line and the labelled relations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<40}{:>10}{:>8}{:>8}{:>8}", "relation", "questions", "scored", "P-ACC", "P-F1")?;
        for Relation { relation, questions, scored, p_acc, p_f1 } in &self.relations {
            let (p_acc, p_f1) = (100.0 * p_acc, 100.0 * p_f1);
            write!(f, "\n{relation:<40}{questions:>10}{scored:>8}{p_acc:>8.1}{p_f1:>8.1}")?;
        }
        if let Some(Line { intercept, slope }) = self.line {
            write!(f, "\nquestions = {intercept:.2} + {slope:.2} * P-F1 (0 to 1)")?;
            write!(f, "\nmany questions, and hard ones: {}", self.many_and_hard.join(", "))?;
            write!(f, "\nfew questions, and easy ones: {}", self.few_and_easy.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn scores(id: &str, p_f1: f64) -> (Id, Scores) {
        (id.into(), Scores { p_acc: p_f1 / 2.0, p_f1 })
    }

    #[test]
    fn the_line_is_that_of_least_squares() {
        // The means are 0.5 and 4; the slope is (0.25 + 0.25) / 0.5 = 1, so the line is 3.5 + 1 * x.
        let line = Line::fit(&[(0.0, 3.5), (0.5, 4.0), (1.0, 4.5)]).unwrap();
        assert!((line.slope - 1.0).abs() < 1e-12 && (line.intercept - 3.5).abs() < 1e-12, "{line:?}");
        assert!((line.residual((1.0, 6.0)) - 1.5).abs() < 1e-12);
        assert_eq!((Line::fit(&[(0.5, 1.0), (0.5, 2.0)]), Line::fit(&[])), (None, None));
    }

    #[test]
    fn a_relation_counts_in_all_files_and_is_scored_where_it_is_answered() {
        let train = file(
            r#"[{"id":"t0","question":"q","relation":"P1","relation_label":"born"},{"id":"t1","question":"q","relation":"P1","relation_label":"born"},
                {"id":"t2","question":"q","relation":"Inv: P2"},{"id":"t3","question":"q","relation":"P3"}]"#,
        );
        let test = file(
            r#"[{"id":"a","question":"q","relation":"P1","relation_label":"born"},{"id":"b","question":"q","relation":"Inv: P2"}]"#,
        );
        let files = [train.path().to_owned(), test.path().to_owned()];
        let relations = Relations::read(&files).unwrap();
        // Two systems answer `a`.
        let records = [scores("a", 0.0), scores("b", 1.0), scores("a", 0.5)];
        let report = relations.scores(&records).unwrap();
        let found: Vec<(&str, usize, usize, f64, f64)> = report
            .relations
            .iter()
            .map(|it| (it.relation.as_str(), it.questions, it.scored, it.p_acc, it.p_f1))
            .collect();
        assert_eq!(found, [("born", 3, 2, 0.125, 0.25), ("Inv: P2", 2, 1, 0.5, 1.0)]);
        // Two points lie on their line.
        let line = report.line.unwrap();
        assert!((line.slope + 4.0 / 3.0).abs() < 1e-12, "{line:?}");
        assert_eq!(relations.scores(&[scores("none", 1.0)]).unwrap_err().text(), "none");
        let message = Relations::read(&[files[0].clone(), files[0].clone()]).unwrap_err().to_string();
        assert!(message.contains("[0].id") && message.contains("`t0`"), "{message}");
        let bare = file(r#"[{"id":"x","question":"q"}]"#);
        let message = Relations::read(&[bare.path().to_owned()]).unwrap_err().to_string();
        assert!(message.contains("[0].relation"), "{message}");
    }

    #[test]
    fn relations_far_from_the_line_are_labelled() {
        let text: Vec<String> = [("hard", 5), ("plain", 1), ("easy", 1), ("other", 3)]
            .iter()
            .flat_map(|&(name, count)| {
                (0..count)
                    .map(move |at| format!(r#"{{"id":"{name}{at}","question":"q","relation":"{name}"}}"#))
            })
            .collect();
        let file = file(&format!("[{}]", text.join(",")));
        let relations = Relations::read(&[file.path().to_owned()]).unwrap();
        let records =
            [scores("hard0", 0.0), scores("plain0", 0.0), scores("easy0", 1.0), scores("other0", 1.0)];
        let report = relations.scores(&records).unwrap();
        // The line goes through (0, 3) and (1, 2): 5 and 3 questions are above it, 1 and 1 below, by 2 and by 1.
        assert_eq!(report.many_and_hard, ["hard", "other"]);
        assert_eq!(report.few_and_easy, ["plain", "easy"]);
    }
}
