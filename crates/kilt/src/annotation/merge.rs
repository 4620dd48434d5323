//! Adds the passages that annotators accepted to the records of a task file.

use std::{fmt, path::PathBuf};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;
use serde_json::json;

use super::votes::{Subject, Vote, Votes};
use crate::{
    Error, Output, Provenance, Record, Result, counted,
    jsonl::{self, Writer},
    scores::Measure,
};

/// The parameters of a merge.
#[derive(Clone, Debug)]
pub struct MergeRequest {
    /// The task file.
    pub tasks: PathBuf,
    /// The annotated sheets.
    pub sheets: Vec<PathBuf>,
    /// The number of votes `yes` that accept a passage; 2 of 3 in the paper.
    pub min_votes: usize,
    /// Whether records stay whose passages were all rejected. The paper leaves them out.
    pub keep_rejected: bool,
    /// The task file to write.
    pub output: PathBuf,
}

/// The counts of a merge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MergeSummary {
    /// Records read.
    pub records: u64,
    /// Records with a vote.
    pub annotated: u64,
    /// Passages with a vote.
    pub passages: u64,
    /// Passages that were accepted.
    pub accepted: u64,
    /// Accepted passages that are new evidence of their records.
    pub added: u64,
    /// Annotated records of which no passage was accepted.
    pub rejected: u64,
    /// Records written.
    pub written: u64,
    /// The mean number of pages in the evidence of annotated records that were written.
    pub mean_pages: Measure,
}

impl fmt::Display for MergeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, annotated, passages, accepted, added, rejected, written, mean_pages } = self;
        writeln!(
            f,
            "{written} of {} written, {annotated} annotated, {rejected} of them rejected",
            counted(*records, "record")
        )?;
        writeln!(f, "{accepted} of {} accepted, {added} of them new", counted(*passages, "passage"))?;
        write!(f, "{mean_pages:.2} pages an annotated record")
    }
}

/// Writes the records of a task file with each accepted passage as a further output that has evidence only. A passage in
/// which single evidence of the record starts is not added again. `meta` of an added item has the numbers of votes and the
/// words that accepting annotators marked (`evidence_span`). The file appears at the end.
///
/// # Errors
/// Read and write errors; [`Error::Record`] with file, line and field for a vote other than `yes` and `no`, a second vote of an
/// annotator on a passage, and a row about a record that the task file lacks; [`Error::Argument`] for a number of votes that no
/// passage can have.
pub fn merge(request: &MergeRequest) -> Result<MergeSummary> {
    let Votes { annotators, subjects } = Votes::read(&request.sheets)?;
    if request.min_votes == 0 || request.min_votes > annotators.len() {
        let message = format!(
            "votes: expected a number from 1 to {}, the number of annotators, found {}",
            annotators.len(),
            request.min_votes
        );
        return Err(Error::Argument(message));
    }
    let mut by_id: FxHashMap<&str, Vec<&Subject>> = FxHashMap::default();
    for subject in &subjects {
        by_id.entry(&subject.id).or_default().push(subject);
    }
    let mut summary = MergeSummary::default();
    let (mut pages, mut counted) = (0, 0);
    let mut writer = Writer::create(&request.output)?;
    let mut seen: FxHashMap<String, u64> = FxHashMap::default();
    for record in jsonl::open(&request.tasks)?.numbered::<Record>() {
        let (line, mut record) = record?;
        let id = record.id.text().into_owned();
        if let Some(first) = seen.insert(id.clone(), line) {
            return Err(Error::DuplicateId { path: request.tasks.clone(), line, first, field: "id", id });
        }
        summary.records += 1;
        let voted = by_id.get(id.as_str()).into_iter().flatten();
        let voted: Vec<&Subject> = voted.copied().filter(|subject| !subject.votes.is_empty()).collect();
        if voted.is_empty() {
            summary.written += 1;
            writer.record(&record)?;
            continue;
        }
        let accepted: Vec<&Subject> =
            voted.iter().copied().filter(|subject| accepting(subject).count() >= request.min_votes).collect();
        summary.annotated += 1;
        summary.passages += voted.len() as u64;
        summary.accepted += accepted.len() as u64;
        summary.added += accepted.iter().filter(|subject| add(&mut record, subject)).count() as u64;
        if accepted.is_empty() {
            summary.rejected += 1;
            if !request.keep_rejected {
                continue;
            }
        }
        let items = record.outputs().iter().flat_map(|output| output.evidence());
        let ids: FxHashSet<_> = items.filter_map(|item| item.wikipedia_id.as_ref()).collect();
        (pages, counted) = (pages + ids.len(), counted + 1);
        summary.written += 1;
        writer.record(&record)?;
    }
    if let Some(subject) = subjects.iter().find(|subject| !seen.contains_key(&subject.id)) {
        let (sheet, line) = subject.origin;
        let message = format!("expected a record of {}, found `{}`", request.tasks.display(), subject.id);
        return Err(Error::record(&request.sheets[sheet], line, "id", message));
    }
    summary.mean_pages = Measure::share(pages, counted);
    writer.finish()?;
    Ok(summary)
}

/// The votes that accept a passage.
fn accepting(subject: &Subject) -> impl Iterator<Item = &Vote> {
    subject.votes.iter().filter(|vote| vote.label == "yes")
}

/// Adds an accepted passage, unless single evidence of the record starts in it.
fn add(record: &mut Record, subject: &Subject) -> bool {
    let is_known = record.outputs().iter().any(|output| match output.evidence() {
        [item] => subject.place.holds(item),
        _ => false,
    });
    if is_known {
        return false;
    }
    let mut spans: Vec<&str> = Vec::new();
    for span in accepting(subject).filter_map(|vote| vote.span.as_deref()) {
        if !spans.contains(&span) {
            spans.push(span);
        }
    }
    let votes = json!({ "yes": accepting(subject).count(), "all": subject.votes.len() });
    let item = Provenance {
        title: Some(subject.title.clone()),
        section: Some(subject.section.clone()),
        meta: Some(json!({ "votes": votes, "evidence_span": spans })),
        ..subject.place.provenance()
    };
    let output = Output { provenance: Some(vec![item]), ..Output::default() };
    record.output.get_or_insert_default().push(output);
    true
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::annotation::{
        sheet::{Row, tests::row},
        votes::tests::written,
    };

    const TASKS: &str = r#"{"id":"a","input":"x","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"1","start_paragraph_id":1,"start_character":3}]}]}
{"id":"b","input":"y","output":[{"answer":"Bergen"}],"split":"dev"}
{"id":"c","input":"z","output":[{"answer":"Narvik"}]}
"#;

    /// Three annotators. Of a, page 1 has three votes and page 2 two of three; of b, page 3 has one of three.
    fn request(folder: &Path) -> MergeRequest {
        let tasks = folder.join("tasks.jsonl");
        std::fs::write(&tasks, TASKS).unwrap();
        let sheet = |name: &str, votes: [&str; 3]| {
            let span = (votes[1] == "yes").then(|| "the capital".to_owned());
            let rows = [
                row("a", "1", Some(votes[0])),
                Row { span, ..row("a", "2", Some(votes[1])) },
                row("b", "3", Some(votes[2])),
            ];
            written(folder, name, &rows)
        };
        MergeRequest {
            tasks,
            sheets: vec![
                sheet("1.csv", ["yes", "yes", "no"]),
                sheet("2.csv", ["yes", "no", "yes"]),
                sheet("3.jsonl", ["yes", "yes", "no"]),
            ],
            min_votes: 2,
            keep_rejected: false,
            output: folder.join("merged.jsonl"),
        }
    }

    fn records(request: &MergeRequest) -> Vec<Record> {
        jsonl::open(&request.output).unwrap().records().map(Result::unwrap).collect()
    }

    #[test]
    fn two_of_three_votes_accept_a_passage() {
        let folder = tempfile::tempdir().unwrap();
        let request = request(folder.path());
        let summary = merge(&request).unwrap();
        let expected = MergeSummary {
            records: 3,
            annotated: 2,
            passages: 3,
            accepted: 2,
            added: 1,
            rejected: 1,
            written: 2,
            mean_pages: 2.0.into(),
        };
        assert_eq!(summary, expected);
        let records = records(&request);
        let ids: Vec<String> = records.iter().map(|record| record.id.to_string()).collect();
        // Of b, no passage was accepted; c was not annotated.
        assert_eq!(ids, ["a", "c"]);
        // Page 1's evidence was known.
        assert_eq!(records[0].outputs().len(), 2);
        let added = serde_json::to_value(&records[0].outputs()[1]).unwrap();
        let expected = json!({"provenance": [{
            "wikipedia_id": "2", "title": "T", "section": "Section::::Abstract.",
            "start_paragraph_id": 1, "start_character": 0, "end_paragraph_id": 1, "end_character": 20,
            "meta": {"votes": {"yes": 2, "all": 3}, "evidence_span": ["the capital"]},
        }]});
        assert_eq!(added, expected);
    }

    #[test]
    fn the_number_of_votes_and_rejected_records_are_options() {
        let folder = tempfile::tempdir().unwrap();
        let mut request = request(folder.path());
        request.keep_rejected = true;
        assert_eq!(merge(&request).unwrap().written, 3);
        assert_eq!(serde_json::to_value(&records(&request)[1]).unwrap()["split"], "dev");
        request.min_votes = 1;
        let summary = merge(&request).unwrap();
        assert_eq!((summary.accepted, summary.added, summary.rejected), (3, 2, 0));
        request.min_votes = 3;
        assert_eq!(merge(&request).unwrap().accepted, 1);
        request.min_votes = 4;
        assert!(merge(&request).unwrap_err().to_string().contains("from 1 to 3"));
    }

    #[test]
    fn wrong_sheets_are_named_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut request = request(folder.path());
        let sheet = request.sheets[0].clone();
        for (rows, expected) in [
            (
                vec![row("a", "1", Some("maybe"))],
                "1.csv:2: field `vote`: expected `yes` or `no`, found `maybe`",
            ),
            (vec![row("zz", "1", Some("yes"))], "1.csv:2: field `id`: expected a record of"),
        ] {
            written(folder.path(), "1.csv", &rows);
            // CSV rows of this text have two lines each; the header is the first.
            let message = merge(&request).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
            assert!(!request.output.exists());
        }
        request.sheets = vec![sheet];
        request.min_votes = 1;
        std::fs::write(&request.tasks, format!("{TASKS}{TASKS}")).unwrap();
        written(folder.path(), "1.csv", &[row("a", "1", Some("yes"))]);
        assert!(merge(&request).unwrap_err().to_string().contains("tasks.jsonl:4: field `id`"));
    }
}
