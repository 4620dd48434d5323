//! Records whose evidence has few words of their answers. The KILT paper annotates such records of ELI5 again.

use std::{fmt, path::PathBuf};

use serde::Serialize;

use super::passages::{AnswerWords, passage_of};
use crate::{
    Dataset, Error, Example, Id, PassageStore, Query, Record, Result, counted, evidence,
    jsonl::{self, Writer},
    scores::rouge_l,
};

/// The parameters of a review.
#[derive(Clone, Debug)]
pub struct ReviewRequest {
    /// The task file.
    pub tasks: PathBuf,
    /// Records below this ROUGE-L are listed; 0.15 in the paper.
    pub below: f64,
    /// The list to write, as JSON lines.
    pub output: PathBuf,
}

/// The counts of a review.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ReviewSummary {
    /// Records read.
    pub records: u64,
    /// Records without answers or evidence, which have no score.
    pub unscored: u64,
    /// Records that are listed.
    pub listed: u64,
}

impl fmt::Display for ReviewSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, unscored, listed } = self;
        write!(
            f,
            "{listed} of {} listed, {unscored} without answers or evidence",
            counted(*records, "record")
        )
    }
}

/// A record to review.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a Id,
    input: &'a str,
    /// The highest ROUGE-L of an item of evidence and an answer.
    rouge_l: f64,
    answers: Vec<&'a str>,
    evidence: Vec<Text<'a>>,
}

/// The text of an item of evidence.
#[derive(Serialize)]
struct Text<'a> {
    wikipedia_id: &'a Id,
    title: String,
    text: String,
}

/// Lists the records with a low ROUGE-L between evidence and answers. A record's score is the highest of all pairs of an item and an
/// answer. The text of an item is its span; for a whole page it is the passage of highest overlap with an answer.
///
/// # Errors
/// [`Error::Argument`] for a limit outside 0 to 1; read and write errors; [`Error::Record`] for an item whose page or paragraph
/// the store lacks.
pub fn review(request: &ReviewRequest, store: &PassageStore) -> Result<ReviewSummary> {
    if !(0.0..=1.0).contains(&request.below) {
        let message = format!("ROUGE-L: expected a number from 0 to 1, found {}", request.below);
        return Err(Error::Argument(message));
    }
    let dataset = request.tasks.file_name().and_then(|name| Dataset::of_file_name(&name.to_string_lossy()));
    let mut summary = ReviewSummary::default();
    let mut writer = Writer::create(&request.output)?;
    for record in jsonl::open(&request.tasks)?.numbered::<Record>() {
        let (line, record) = record?;
        summary.records += 1;
        let query = Query::from_record(&record, dataset)
            .map_err(|(field, message)| Error::record(&request.tasks, line, field, message))?;
        let example = Example { query, gold: record.output.unwrap_or_default() };
        let answers = example.answers();
        let words = AnswerWords::new(answers.iter().copied());
        let mut texts = Vec::new();
        for (output, gold) in example.gold.iter().enumerate() {
            for (at, item) in gold.evidence().iter().enumerate() {
                let passage = passage_of(item, &words, store).map_err(|(field, message)| {
                    let field = format!("output[{output}].provenance[{at}].{field}");
                    Error::record(&request.tasks, line, field, message)
                })?;
                let text = evidence::span(item, store).unwrap_or(passage.text);
                // `passage_of` found the page by its id.
                texts.extend(item.wikipedia_id.as_ref().map(|id| Text {
                    wikipedia_id: id,
                    title: passage.title,
                    text,
                }));
            }
        }
        if answers.is_empty() || texts.is_empty() {
            summary.unscored += 1;
            continue;
        }
        let pairs = texts.iter().flat_map(|text| answers.iter().map(|answer| rouge_l(&text.text, answer)));
        let highest = pairs.fold(0.0, f64::max);
        if highest < request.below {
            summary.listed += 1;
            let (id, input) = (&example.query.id, example.query.text.as_str());
            writer.record(&Line { id, input, rouge_l: highest, answers, evidence: texts })?;
        }
    }
    if summary.records == 0 {
        return Err(Error::Empty { path: request.tasks.clone(), what: "record" });
    }
    store.sound()?;
    writer.finish()?;
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{PassageSplit, annotation::passages::tests::store};

    #[test]
    fn records_below_the_limit_are_listed_with_their_texts() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Paragraph);
        let span = r#"{"wikipedia_id":"1","start_paragraph_id":2,"start_character":0,"end_paragraph_id":2,"end_character":20}"#;
        let lines = [
            // All of the four words of the span, which is the answer.
            format!(
                r#"{{"id":"a","input":"q","output":[{{"answer":"Its capital is Oslo."}},{{"provenance":[{span}]}}]}}"#
            ),
            // No common word.
            format!(
                r#"{{"id":"b","input":"q","output":[{{"answer":"Ships sail"}},{{"provenance":[{span}]}}]}}"#
            ),
            // The whole page: its passage with the answer's word.
            r#"{"id":"c","input":"q","output":[{"answer":"Bergen","provenance":[{"wikipedia_id":"1"}]}]}"#
                .to_owned(),
            r#"{"id":"d","input":"q","output":[{"answer":"Bergen"}]}"#.to_owned(),
        ];
        let tasks = folder.path().join("eli5-dev-kilt.jsonl");
        std::fs::write(&tasks, lines.join("\n")).unwrap();
        let mut request = ReviewRequest { tasks, below: 0.15, output: folder.path().join("review.jsonl") };
        let summary = review(&request, &store).unwrap();
        assert_eq!(summary, ReviewSummary { records: 4, unscored: 1, listed: 1 });
        let found: Value = jsonl::read_json(&request.output).unwrap();
        let evidence = json!([{"wikipedia_id": "1", "title": "Norway", "text": "Its capital is Oslo."}]);
        let expected =
            json!({"id": "b", "input": "q", "rouge_l": 0.0, "answers": ["Ships sail"], "evidence": evidence});
        assert_eq!(found, expected);
        request.below = 2.0;
        assert!(review(&request, &store).unwrap_err().to_string().contains("found 2"));
    }

    #[test]
    fn evidence_outside_of_the_store_names_its_field() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path(), PassageSplit::Paragraph);
        let tasks = folder.path().join("tasks.jsonl");
        let line =
            r#"{"id":"a","input":"q","output":[{"answer":"x"},{"provenance":[{"wikipedia_id":"77"}]}]}"#;
        std::fs::write(&tasks, line).unwrap();
        let request = ReviewRequest { tasks, below: 0.15, output: folder.path().join("review.jsonl") };
        let message = review(&request, &store).unwrap_err().to_string();
        let expected =
            "tasks.jsonl:1: field `output[1].provenance[0].wikipedia_id`: expected a page of the store";
        assert!(message.contains(expected), "{message}");
        assert!(!request.output.exists());
    }
}
