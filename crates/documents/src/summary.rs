//! What was read, and what could not be.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};
use sporran_kilt::{counted, printable_line};

/// The number of problems that a message lists.
const LISTED: usize = 20;
/// The number of left out folders that a message names.
const NAMED: usize = 5;

/// How much of a file is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Nothing is missing, but the reading had to guess.
    Note,
    /// A part of the file was not read.
    Partial,
    /// Nothing of the file was read.
    Unread,
}

/// A problem of a file or a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The file or the folder.
    pub file: String,
    /// The line of a table or of JSON lines, where the problem has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// How much is missing.
    pub severity: Severity,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of files, and pieces of them in messages, can have characters that a terminal obeys.
        f.write_str(&printable_line(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", printable_line(&self.message))
    }
}

/// The result of reading a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The number of files with pages.
    pub files: u64,
    /// The number of pages.
    pub pages: u64,
    /// The files of this reading that an earlier one had read and that have not changed since.
    pub unchanged: u64,
    /// The files that the earlier reading had and that are gone.
    pub removed: u64,
    /// The folders of the source that this program wrote, which are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub written: Vec<String>,
    /// The problems, by file.
    pub problems: Vec<Problem>,
}

impl Summary {
    /// The number of files and folders of which nothing was read.
    pub fn unread(&self) -> usize {
        self.files_with(Severity::Unread)
    }

    /// The number of files and folders with a problem that is at least so severe.
    fn files_with(&self, least: Severity) -> usize {
        let missing = self.problems.iter().filter(|problem| problem.severity >= least);
        missing.map(|problem| &problem.file).collect::<BTreeSet<_>>().len()
    }

    /// The number of files and folders of which a part was read.
    pub fn partial(&self) -> usize {
        self.incomplete().saturating_sub(self.unread())
    }

    /// The number of files and folders of which a part or nothing was read.
    pub fn incomplete(&self) -> usize {
        self.files_with(Severity::Partial)
    }

    /// Whether there is something to tell of each reading, although nothing is new.
    pub fn is_notable(&self) -> bool {
        self.incomplete() > 0 || !self.written.is_empty()
    }

    /// The summary with other names of files, for people who named the source in another way.
    #[must_use]
    pub fn named(mut self, name: impl Fn(&str) -> String) -> Self {
        self.problems.iter_mut().for_each(|problem| problem.file = name(&problem.file));
        self.written.iter_mut().for_each(|folder| *folder = name(folder));
        self
    }

    /// The problems as lines, worst first. At most the first 20 of them are listed.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.all_lines();
        let more = lines.len().saturating_sub(LISTED);
        lines.truncate(LISTED);
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines
    }

    /// All problems as lines, worst first.
    pub fn all_lines(&self) -> Vec<String> {
        let mut sorted: Vec<&Problem> = self.problems.iter().collect();
        sorted.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        sorted.into_iter().map(Problem::to_string).collect()
    }

    /// The problems that [`lines`](Self::lines) only counts.
    pub fn other_lines(&self) -> Vec<String> {
        self.all_lines().into_iter().skip(LISTED).collect()
    }

    /// Which folders are left out because this program wrote them, such as `left out 3 folders that Sporran wrote: runs/a,
    /// runs/b and 1 more`; `None` without any.
    pub fn left_out(&self) -> Option<String> {
        let shown: Vec<String> =
            self.written.iter().take(NAMED).map(|folder| printable_line(folder)).collect();
        let more = match self.written.len().saturating_sub(NAMED) {
            0 => String::new(),
            rest => format!(" and {rest} more"),
        };
        let count = counted(self.written.len() as u64, "folder");
        (!shown.is_empty())
            .then(|| format!("left out {count} that Sporran wrote: {}{more}", shown.join(", ")))
    }
}

impl fmt::Display for Summary {
    /// Such as `12 files, 40 pages; 3 unchanged, 1 removed; 2 not read; 1 read in part; 4 folders that Sporran wrote left out`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", counted(self.files, "file"), counted(self.pages, "page"))?;
        if self.unchanged + self.removed > 0 {
            write!(f, "; {} unchanged, {} removed", self.unchanged, self.removed)?;
        }
        if self.unread() > 0 {
            write!(f, "; {} not read", self.unread())?;
        }
        if self.partial() > 0 {
            write!(f, "; {} read in part", self.partial())?;
        }
        if !self.written.is_empty() {
            write!(f, "; {} that Sporran wrote left out", counted(self.written.len() as u64, "folder"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_problems_are_listed_first_and_the_rest_is_counted() {
        let problem = |at: usize, severity| Problem {
            file: format!("f{at}"),
            line: (at == 3).then_some(7),
            severity,
            message: "m".into(),
        };
        let mut summary = Summary { files: 2, pages: 5, ..Summary::default() };
        assert_eq!(summary.to_string(), "2 files, 5 pages");
        summary.problems = (0..22).map(|at| problem(at, Severity::Note)).collect();
        summary.problems.push(problem(3, Severity::Unread));
        summary.removed = 1;
        assert_eq!(summary.to_string(), "2 files, 5 pages; 0 unchanged, 1 removed; 1 not read");
        let lines = summary.lines();
        assert_eq!((lines.len(), lines[0].as_str(), lines[20].as_str()), (21, "f3:7: m", "and 3 more"));
        assert_eq!(
            (summary.all_lines().len(), summary.other_lines()),
            (23, vec!["f19: m".to_owned(), "f20: m".to_owned(), "f21: m".to_owned()])
        );
        // A part of one file is missing in two places.
        summary.problems.extend([2, 2].map(|at| problem(at, Severity::Partial)));
        summary.written = (0..6).map(|at| format!("runs/{at}")).collect();
        assert_eq!(
            summary.to_string(),
            "2 files, 5 pages; 0 unchanged, 1 removed; 1 not read; 1 read in part; 6 folders that Sporran wrote left out"
        );
        let left_out =
            "left out 6 folders that Sporran wrote: runs/0, runs/1, runs/2, runs/3, runs/4 and 1 more";
        assert_eq!(summary.left_out().as_deref(), Some(left_out));
        let one = Summary { files: 1, pages: 1, ..Summary::default() };
        assert_eq!((one.to_string().as_str(), one.left_out()), ("1 file, 1 page", None));
        let odd = Problem { file: "a\nb\u{1b}.md".into(), ..problem(0, Severity::Note) };
        assert_eq!(odd.to_string(), "a b\u{fffd}.md: m");
    }
}
