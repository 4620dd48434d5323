//! `configs/expected.toml`: expected figures, with the commands that compute them.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sporran_kilt::jsonl;

use crate::error::{Error, Result};

/// All rows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    row: Vec<Row>,
}

/// Commands and the figures that they should print.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// The name for `sporran reproduce`.
    pub(super) name: String,
    /// What the commands run, in one sentence.
    pub(super) about: String,
    /// Its duration on two cores, in minutes.
    pub(super) minutes: f64,
    /// Arguments of this program, separated by blanks. `{runs}` is the row's own folder, and each key of `needs` in braces a path
    /// that the user gives.
    pub(super) commands: Vec<String>,
    /// Data that is not in the repository: a key, and a description of the data.
    #[serde(default)]
    pub(super) needs: BTreeMap<String, String>,
    /// The figures.
    pub(super) figures: Vec<Figure>,
}

/// A figure that a command prints.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    /// Its name.
    pub(super) measure: String,
    /// Which command prints it, counted from 1; the last one by default.
    #[serde(default)]
    command: Option<usize>,
    /// Its JSON pointer in the object that the command prints (RFC 6901).
    json: String,
    /// Its value.
    expected: f64,
    /// The greatest difference that is `OK`.
    tolerance: f64,
    /// The greatest difference that is `close`.
    close: f64,
}

/// How close a figure is to the expected one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Verdict {
    /// Within its tolerance.
    #[serde(rename = "OK")]
    Ok,
    /// Beyond the tolerance, but within `close`.
    #[serde(rename = "close")]
    Close,
    /// Neither.
    #[serde(rename = "FAIL")]
    Fail,
}

/// An expected figure with the one that was computed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reproduced {
    /// The row.
    pub(super) row: String,
    /// The figure's name.
    pub(super) measure: String,
    /// Its value in the table.
    pub(super) expected: f64,
    /// The figure that the command printed, if any.
    pub(super) found: Option<f64>,
    /// The greatest difference that is `OK`.
    pub(super) tolerance: f64,
    /// How close it is.
    pub(super) verdict: Verdict,
}

impl Row {
    /// The rows of a file.
    ///
    /// # Errors
    /// If the file cannot be read, a row is malformed, a name occurs twice or a figure names a missing command.
    pub(super) fn read(path: &Path) -> Result<Vec<Self>> {
        let text = jsonl::read_to_string(path)?;
        let table: Table =
            toml::from_str(&text).map_err(|error| Error::Input(format!("{}: {error}", path.display())))?;
        for (at, row) in table.row.iter().enumerate() {
            let wrong =
                |what: &str| Err(Error::Input(format!("{}: row `{}`: {what}", path.display(), row.name)));
            if table.row[..at].iter().any(|other| other.name == row.name) {
                return wrong("expected a unique name, found it twice");
            }
            if row.commands.is_empty() {
                return wrong("expected at least one command, found none");
            }
            for figure in &row.figures {
                if figure.command.is_some_and(|number| number == 0 || number > row.commands.len()) {
                    return wrong(&format!("`{}` names a command that does not exist", figure.measure));
                }
                if !(figure.tolerance >= 0.0 && figure.close >= figure.tolerance) {
                    return wrong(&format!("`{}`: expected 0 <= tolerance <= close", figure.measure));
                }
            }
        }
        Ok(table.row)
    }

    /// Compares the output of the commands with the figures.
    pub(super) fn compare(&self, printed: &[Value]) -> Vec<Reproduced> {
        let compared = |figure: &Figure| {
            let command = figure.command.unwrap_or(self.commands.len());
            let found = printed.get(command - 1).and_then(|value| value.pointer(&figure.json)?.as_f64());
            Reproduced {
                row: self.name.clone(),
                measure: figure.measure.clone(),
                expected: figure.expected,
                found,
                tolerance: figure.tolerance,
                verdict: figure.verdict(found),
            }
        };
        self.figures.iter().map(compared).collect()
    }
}

impl Figure {
    fn verdict(&self, found: Option<f64>) -> Verdict {
        // The decimal forms of a tolerance and of a difference that equals it round differently.
        const ROUNDING: f64 = 1e-9;
        match found.map(|found| (found - self.expected).abs()) {
            Some(difference) if difference <= self.tolerance + ROUNDING => Verdict::Ok,
            Some(difference) if difference <= self.close + ROUNDING => Verdict::Close,
            _ => Verdict::Fail,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
[[row]]
name = "a"
about = "one"
minutes = 1
commands = ["run x", "evaluate y"]
[[row.figures]]
measure = "F1"
json = "/scores/f1"
expected = 0.5
tolerance = 0.01
close = 0.03
[[row.figures]]
measure = "tasks"
command = 1
json = "/tasks"
expected = 11
tolerance = 0
close = 0
"#;

    fn read(text: &str) -> Result<Vec<Row>> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Row::read(file.path())
    }

    #[test]
    fn the_difference_decides_between_ok_close_and_fail() {
        let row = read(ROWS).unwrap().remove(0);
        let verdicts = |f1: f64| -> Vec<Verdict> {
            let printed = [serde_json::json!({"tasks": 11}), serde_json::json!({"scores": {"f1": f1}})];
            row.compare(&printed).iter().map(|figure| figure.verdict).collect()
        };
        assert_eq!(verdicts(0.51), [Verdict::Ok, Verdict::Ok]);
        assert_eq!(verdicts(0.47), [Verdict::Close, Verdict::Ok]);
        assert_eq!(verdicts(0.54), [Verdict::Fail, Verdict::Ok]);
        // A figure that was not printed is wrong.
        assert_eq!(row.compare(&[])[1].verdict, Verdict::Fail);
    }

    #[test]
    fn an_error_in_a_row_names_the_row_or_the_key() {
        for (from, to, message) in [
            ("command = 1", "command = 3", "`tasks` names a command"),
            ("close = 0.03", "close = 0.001", "tolerance <= close"),
            (r#"commands = ["run x", "evaluate y"]"#, "commands = []", "at least one command"),
            ("about", "abuot", "abuot"),
        ] {
            let error = read(&ROWS.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let error = read(&format!("{ROWS}{ROWS}")).unwrap_err().to_string();
        assert!(error.contains("row `a`: expected a unique name"), "{error}");
    }

    #[test]
    fn the_rows_of_the_repository_can_be_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/expected.toml");
        let rows = Row::read(&path).unwrap();
        assert!(rows.len() >= 4, "{}", rows.len());
    }
}
