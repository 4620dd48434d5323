//! KoRC's P-ACC and P-F1: a set of predicted answers against a set of gold answers.
//!
//! Predictions are matched to gold answers by least total edit distance. Equal pairs and shared tokens of the
//! matched pairs count. A penalty for different sizes of the sets applies to both values. The 0.001 in the
//! denominators is from the public scorer. Two empty sets score 1, as they do there.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{assignment::assign, is_space, mean};
use crate::{Error, Id, Result, jsonl};

/// Keeps the denominators above 0, as in the public scorer.
const MARGIN: f64 = 0.001;

/// A line of answer sets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct AnswerSet {
    /// Unique in its file.
    pub id: Id,
    /// The gold answers.
    pub answers: Vec<String>,
    /// The predicted answers.
    pub predictions: Vec<String>,
}

/// The scores of one answer set, or their means; each 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Scores {
    /// Equal pairs over pairs, times the penalty.
    pub p_acc: f64,
    /// F1 over the tokens of the pairs, times the penalty.
    pub p_f1: f64,
}

/// White-space tokens. The published figures use GPT-2's tokens instead.
pub fn words(text: &str) -> Vec<String> {
    text.split(is_space).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Scores one set.
///
/// `tokens` splits a text. A predicted token counts if it occurs anywhere in the matched gold answer.
///
/// ```
/// use sporran_kilt::scores::answer_set::{score, words};
///
/// let scores = score(&["Oslo", "Bergen city"], &["Bergen", "Oslo"], words);
/// assert!((scores.p_acc - 0.5).abs() < 1e-3);
/// ```
pub fn score<T: PartialEq>(
    predictions: &[impl AsRef<str>],
    answers: &[impl AsRef<str>],
    tokens: impl Fn(&str) -> Vec<T>,
) -> Scores {
    let characters =
        |texts: &[&str]| -> Vec<Vec<char>> { texts.iter().map(|text| text.chars().collect()).collect() };
    let predictions: Vec<&str> = predictions.iter().map(AsRef::as_ref).collect();
    let answers: Vec<&str> = answers.iter().map(AsRef::as_ref).collect();
    if predictions.is_empty() {
        return if answers.iter().all(|answer| answer.is_empty()) && answers.len() < 2 {
            Scores { p_acc: 1.0, p_f1: 1.0 }
        } else {
            Scores::default()
        };
    }
    if answers.is_empty() {
        return Scores::default();
    }
    let (rows, columns) = (characters(&predictions), characters(&answers));
    let cost: Vec<i64> =
        rows.iter().flat_map(|row| columns.iter().map(|column| edit_distance(row, column))).collect();
    let pairs = assign(&cost, rows.len(), columns.len());
    let (mut equal, mut shared, mut predicted, mut gold) = (0usize, 0usize, 0usize, 0usize);
    for &(row, column) in &pairs {
        equal += usize::from(predictions[row] == answers[column]);
        let (ours, theirs) = (tokens(predictions[row]), tokens(answers[column]));
        predicted += ours.len();
        gold += theirs.len();
        shared += ours.iter().filter(|token| theirs.contains(token)).count();
    }
    let few = predictions.len().min(answers.len()) as f64;
    let penalty = few / predictions.len().max(answers.len()) as f64;
    let precision = shared as f64 / (predicted as f64 + MARGIN);
    let recall = shared as f64 / (gold as f64 + MARGIN);
    let f1 = if precision + recall == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) };
    Scores { p_acc: equal as f64 / (pairs.len() as f64 + MARGIN) * penalty, p_f1: f1 * penalty }
}

/// Levenshtein's distance over Unicode scalar values.
fn edit_distance(a: &[char], b: &[char]) -> i64 {
    let mut row: Vec<i64> = (0..=b.len() as i64).collect();
    for (i, left) in a.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i as i64 + 1);
        for (j, right) in b.iter().enumerate() {
            let replaced = corner + i64::from(left != right);
            corner = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

/// The result of [`evaluate`].
#[derive(Clone, Debug)]
pub struct Evaluation {
    /// The means.
    pub report: Scores,
    /// The scores of each set, in the file's order.
    pub records: Vec<(Id, Scores)>,
}

/// Scores a file of [`AnswerSet`] lines.
///
/// # Errors
/// [`Error::DuplicateId`], [`Error::Empty`] for a file without lines, and read errors.
pub fn evaluate<T: PartialEq>(path: impl AsRef<Path>, tokens: impl Fn(&str) -> Vec<T>) -> Result<Evaluation> {
    let path = path.as_ref();
    let mut records: Vec<(Id, Scores)> = Vec::new();
    let mut seen = rustc_hash::FxHashMap::default();
    for line in jsonl::open(path)?.numbered::<AnswerSet>() {
        let (line, set) = line?;
        if let Some(first) = seen.insert(set.id.clone(), line) {
            return Err(Error::DuplicateId {
                path: path.to_owned(),
                line,
                first,
                field: "id",
                id: set.id.to_string(),
            });
        }
        records.push((set.id, score(&set.predictions, &set.answers, &tokens)));
    }
    if records.is_empty() {
        return Err(Error::Empty { path: path.to_owned(), what: "answer set" });
    }
    Ok(Evaluation { report: means(&records), records })
}

/// The means of scores; 0 of none.
pub fn means(records: &[(Id, Scores)]) -> Scores {
    Scores {
        p_acc: mean(records.iter().map(|(_, scores)| scores.p_acc)),
        p_f1: mean(records.iter().map(|(_, scores)| scores.p_f1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_sets_fall_short_of_1_by_the_margin_alone() {
        let scores = score(&["New York", "Rome"], &["Rome", "New York"], words);
        assert_eq!(scores.p_acc, 2.0 / 2.001);
        assert_eq!(scores.p_f1, 2.0 * (3.0 / 3.001) * (3.0 / 3.001) / (3.0 / 3.001 + 3.0 / 3.001));
    }

    #[test]
    fn sets_of_other_sizes_pay_a_penalty() {
        // One pair of one prediction and two gold answers: half.
        assert_eq!(score(&["Rome"], &["Oslo", "Rome"], words).p_acc, 1.0 / 1.001 * 0.5);
        assert_eq!(score(&["Oslo", "Rome"], &["Rome"], words).p_acc, 1.0 / 1.001 * 0.5);
    }

    #[test]
    fn no_prediction_scores_zero_unless_no_answer_is_expected() {
        let none: [&str; 0] = [];
        assert_eq!(score(&none, &["Rome"], words), Scores::default());
        assert_eq!(score(&none, &none, words), Scores { p_acc: 1.0, p_f1: 1.0 });
        assert_eq!(score(&["Rome"], &none, words), Scores::default());
    }

    #[test]
    fn edit_distance_counts_characters() {
        let distance =
            |a: &str, b: &str| edit_distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>());
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "äö"), 2);
        assert_eq!(distance("äö", "aö"), 1);
    }

    #[test]
    fn duplicate_ids_are_named_with_both_lines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = r#"{"id": 1, "answers": ["a"], "predictions": []}"#;
        std::fs::write(file.path(), format!("{line}\n{line}\n")).unwrap();
        assert!(matches!(evaluate(file.path(), words), Err(Error::DuplicateId { line: 2, first: 1, .. })));
    }
}
