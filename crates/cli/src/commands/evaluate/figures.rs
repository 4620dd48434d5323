//! Scores as a table of names and figures.

use std::path::Path;

use serde_json::Value;

use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

/// The figures of a report, and notes on how to read them.
pub(super) fn outcome(report: &Value, notes: &[String]) -> Result<Outcome> {
    let mut text = String::new();
    table(report, "", &mut text);
    let outcome = Outcome::new(text, report)?;
    Ok(notes.iter().fold(outcome, |outcome, note| outcome.with_line(format!("note: {note}"))))
}

pub(super) fn value(report: &impl serde::Serialize) -> Result<Value> {
    serde_json::to_value(report)
        .map_err(|error| Error::Stream { stream: "standard output", source: error.into() })
}

pub(super) fn insert(report: &mut Value, name: &str, part: Value) {
    if let Value::Object(report) = report {
        report.insert(name.into(), part);
    }
}

/// Checks that a file to score exists and does not belong to an unfinished run.
pub(super) fn check_scored(path: &Path) -> Result<()> {
    sporran_pipeline::check_finished(path)?;
    paths::file(path)
}

/// One line per figure, nested names joined by blanks.
fn table(report: &Value, path: &str, text: &mut String) {
    match report {
        Value::Object(map) => {
            for (name, value) in map {
                let path = if path.is_empty() { name.clone() } else { format!("{path} {name}") };
                table(value, &path, text);
            }
        }
        // A measure without data, or an empty list.
        Value::Null => text.push_str(&format!("{path:50} -\n")),
        Value::Array(list) if list.is_empty() => text.push_str(&format!("{path:50} -\n")),
        Value::Number(number) if number.is_f64() => {
            text.push_str(&format!("{path:50} {:.4}\n", number.as_f64().unwrap_or_default()));
        }
        Value::String(word) => text.push_str(&format!("{path:50} {word}\n")),
        other => text.push_str(&format!("{path:50} {other}\n")),
    }
}
