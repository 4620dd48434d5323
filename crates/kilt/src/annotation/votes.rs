//! The votes of several annotators on the same passages.

use std::path::PathBuf;

use rustc_hash::FxHashMap;

use super::sheet::{self, Place};
use crate::{Error, Result};

/// A vote on a passage.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Vote {
    /// The index of the annotator.
    pub(super) annotator: usize,
    /// `yes` or `no`.
    pub(super) label: String,
    /// The words of the passage that the annotator marked.
    pub(super) span: Option<String>,
    /// The index of the sheet, and the line in it.
    pub(super) origin: (usize, u64),
}

/// A passage that annotators saw.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    /// The record's id.
    pub(super) id: String,
    pub(super) place: Place,
    pub(super) title: String,
    pub(super) section: String,
    pub(super) votes: Vec<Vote>,
    /// The first row of the passage: the index of the sheet, and the line in it.
    pub(super) origin: (usize, u64),
}

/// The votes of all sheets. An annotator is a value of the field `annotator`, or a sheet.
pub(super) struct Votes {
    pub(super) annotators: Vec<String>,
    /// In the order of the first rows.
    pub(super) subjects: Vec<Subject>,
}

impl Votes {
    /// Reads sheets.
    ///
    /// # Errors
    /// Those of [`sheet::read`]; [`Error::Empty`] for a sheet without rows; [`Error::Record`] for a vote other than `yes` and `no` and for a second
    /// vote of an annotator on a passage.
    pub(super) fn read(sheets: &[PathBuf]) -> Result<Self> {
        let mut annotators: Vec<String> = Vec::new();
        let mut subjects: Vec<Subject> = Vec::new();
        let mut known: FxHashMap<(String, Place), usize> = FxHashMap::default();
        let mut numbers: FxHashMap<String, usize> = FxHashMap::default();
        for (number, path) in sheets.iter().enumerate() {
            let mut count = 0;
            for row in sheet::read(path)? {
                let (line, row) = row?;
                count += 1;
                let (id, place, origin) = (row.id.text().into_owned(), row.place(), (number, line));
                let at = *known.entry((id.clone(), place.clone())).or_insert_with(|| {
                    let (title, section) = (row.title.clone(), row.section.clone());
                    subjects.push(Subject { id, place, title, section, votes: Vec::new(), origin });
                    subjects.len() - 1
                });
                let Some(label) = row.vote else { continue };
                if label != "yes" && label != "no" {
                    let message = format!("expected `yes` or `no`, found `{label}`");
                    return Err(Error::record(path, line, "vote", message));
                }
                let name = row.annotator.unwrap_or_else(|| path.display().to_string());
                let annotator = *numbers.entry(name).or_insert_with_key(|name| {
                    annotators.push(name.clone());
                    annotators.len() - 1
                });
                let votes = &mut subjects[at].votes;
                if let Some(earlier) = votes.iter().find(|vote| vote.annotator == annotator) {
                    let (sheet, first) = earlier.origin;
                    let message = format!(
                        "expected one vote of `{}` on a passage, found another on line {first} of {}",
                        annotators[annotator],
                        sheets[sheet].display()
                    );
                    return Err(Error::record(path, line, "vote", message));
                }
                votes.push(Vote { annotator, label, span: row.span, origin });
            }
            if count == 0 {
                return Err(Error::Empty { path: path.clone(), what: "row" });
            }
        }
        Ok(Self { annotators, subjects })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use crate::annotation::sheet::{Row, SheetWriter};

    /// Writes a sheet.
    pub(in crate::annotation) fn written(folder: &Path, name: &str, rows: &[Row]) -> PathBuf {
        let path = folder.join(name);
        let mut writer = SheetWriter::create(&path).unwrap();
        rows.iter().for_each(|row| writer.row(row).unwrap());
        writer.finish().unwrap();
        path
    }

    #[test]
    fn an_annotator_is_a_name_or_a_sheet() {
        use crate::annotation::sheet::tests::row;
        let folder = tempfile::tempdir().unwrap();
        let named = |id: &str, name: &str, vote| Row { annotator: Some(name.into()), ..row(id, "1", vote) };
        let first = written(
            folder.path(),
            "a.jsonl",
            &[named("q", "Ann", Some("yes")), named("q", "Ben", Some("no")), named("r", "Ben", None)],
        );
        let second = written(folder.path(), "b.csv", &[row("q", "1", Some("yes"))]);
        let votes = Votes::read(&[first.clone(), second.clone()]).unwrap();
        assert_eq!(votes.annotators, ["Ann".to_owned(), "Ben".into(), second.display().to_string()]);
        let of: Vec<(&str, usize)> =
            votes.subjects.iter().map(|subject| (subject.id.as_str(), subject.votes.len())).collect();
        assert_eq!(of, [("q", 3), ("r", 0)]);
        let other = written(folder.path(), "d.csv", &[row("q", "1", Some("maybe"))]);
        let message = Votes::read(std::slice::from_ref(&other)).err().unwrap().to_string();
        assert!(
            message.ends_with("d.csv:2: field `vote`: expected `yes` or `no`, found `maybe`"),
            "{message}"
        );
        let twice = written(folder.path(), "c.jsonl", &[named("q", "Ben", Some("yes"))]);
        let message = Votes::read(&[first, twice]).err().unwrap().to_string();
        assert!(message.contains("c.jsonl:1: field `vote`: expected one vote of `Ben`"), "{message}");
        assert!(message.contains("line 2 of ") && message.contains("a.jsonl"), "{message}");
        let empty = written(folder.path(), "d.csv", &[]);
        assert!(matches!(Votes::read(&[empty]), Err(Error::Empty { .. })));
    }
}
