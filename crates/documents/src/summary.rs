//! What was read, and what could not be.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

/// The number of problems that a message lists.
const LISTED: usize = 20;

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
        // Names of files can have characters that a terminal obeys.
        write!(f, "{}", self.file.replace(char::is_control, "\u{fffd}"))?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
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
    /// The problems, by file.
    pub problems: Vec<Problem>,
}

impl Summary {
    /// The number of files and folders of which nothing was read.
    pub fn unread(&self) -> usize {
        self.problems.iter().filter(|problem| problem.severity == Severity::Unread).count()
    }

    /// The number of files and folders of which a part or nothing was read.
    pub fn incomplete(&self) -> usize {
        let missing = self.problems.iter().filter(|problem| problem.severity >= Severity::Partial);
        missing.map(|problem| &problem.file).collect::<BTreeSet<_>>().len()
    }

    /// The problems as lines, worst first. At most the first 20 of them are listed.
    pub fn lines(&self) -> Vec<String> {
        let mut sorted: Vec<&Problem> = self.problems.iter().collect();
        sorted.sort_by_key(|problem| std::cmp::Reverse(problem.severity));
        let mut lines: Vec<String> = sorted.iter().take(LISTED).map(|problem| problem.to_string()).collect();
        if sorted.len() > LISTED {
            lines.push(format!("and {} more", sorted.len() - LISTED));
        }
        lines
    }
}

impl fmt::Display for Summary {
    /// Such as `12 files, 40 pages; 3 unchanged, 1 removed; 2 not read`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} files, {} pages", self.files, self.pages)?;
        if self.unchanged + self.removed > 0 {
            write!(f, "; {} unchanged, {} removed", self.unchanged, self.removed)?;
        }
        if self.unread() > 0 {
            write!(f, "; {} not read", self.unread())?;
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
        let odd = Problem { file: "a\nb\u{1b}.md".into(), ..problem(0, Severity::Note) };
        assert_eq!(odd.to_string(), "a\u{fffd}b\u{fffd}.md: m");
    }
}
