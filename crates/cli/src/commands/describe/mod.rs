//! `sporran describe`: one file per layout.

mod kilt;
mod knowledgenet;
mod korc;
mod mapping;
mod wowpp;

use std::{
    fmt::{Display, Write},
    path::{Path, PathBuf},
};

use clap::{Args, ValueHint};
use serde::Serialize;
use serde_json::Value;
use sporran_kilt::{formats::elements, jsonl};

use crate::{
    error::{Error, Result},
    outcome::Outcome,
    paths,
};

/// A layout whose statistics are known.
struct Layout {
    /// The name after `--layout`.
    name: &'static str,
    /// What its files are, for the help.
    about: &'static str,
    /// Whether a file has this layout, by its first value: an element of the array, a line, or the whole object.
    detects: fn(&Value) -> bool,
    /// The statistics of files.
    describe: fn(&[PathBuf]) -> Result<Outcome>,
}

/// All layouts. The first one that detects a file's first value is that of the file.
const LAYOUTS: &[Layout] =
    &[kilt::LAYOUT, mapping::LAYOUT, wowpp::LAYOUT, knowledgenet::LAYOUT, korc::LAYOUT];

/// `sporran describe`
#[derive(Args)]
#[command(after_help = after_help())]
pub(crate) struct Describe {
    /// Files of one layout; plain, .gz or .zst
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Layout of the files; detected from their content by default
    #[arg(long, value_name = "LAYOUT", value_parser = layout)]
    layout: Option<&'static Layout>,
}

impl Describe {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { files, layout } = self;
        files.iter().try_for_each(|path| paths::file(path))?;
        let layout = layout.map_or_else(|| detected(&files), Ok)?;
        (layout.describe)(&files)
    }
}

fn layout(name: &str) -> Result<&'static Layout, String> {
    let found = LAYOUTS.iter().find(|layout| layout.name == name);
    found.ok_or_else(|| format!("expected one of {}, found `{name}`", names()))
}

fn names() -> String {
    let names: Vec<String> = LAYOUTS.iter().map(|layout| format!("`{}`", layout.name)).collect();
    names.join(", ")
}

/// The layout that all files with records have.
fn detected(files: &[PathBuf]) -> Result<&'static Layout> {
    let mut known: Option<(&Path, &'static Layout)> = None;
    for path in files {
        let Some(layout) = layout_of(path)? else { continue };
        match known {
            Some((first, other)) if other.name != layout.name => {
                return Err(Error::Input(format!(
                    "expected files of one layout, found `{}` in {} and `{}` in {}",
                    other.name,
                    first.display(),
                    layout.name,
                    path.display()
                )));
            }
            _ => known = Some((path, layout)),
        }
    }
    // clap requires a file.
    let empty = || sporran_kilt::Error::Empty { path: files[0].clone(), what: "record" }.into();
    known.map(|(_, layout)| layout).ok_or_else(empty)
}

/// The layout of a file; `None` for a file without records, such as a split that a builder left empty.
fn layout_of(path: &Path) -> Result<Option<&'static Layout>> {
    if jsonl::is_stream(path) && path != Path::new("/dev/null") {
        let shown =
            if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() };
        return Err(Error::Usage(format!(
            "{shown}: a stream is read once; name its layout with --layout: {}",
            names()
        )));
    }
    let first = match elements::open(path)?.records::<Value>().next() {
        Some(Ok((_, first))) => first,
        Some(Err(error)) => return Err(error.into()),
        None => return Ok(None),
    };
    LAYOUTS.iter().find(|layout| (layout.detects)(&first)).map(Some).ok_or_else(|| {
        Error::Input(format!(
            "{}: its first value has no layout that is known; name the layout with --layout: {}",
            path.display(),
            names()
        ))
    })
}

/// A report under the name of its layout.
#[derive(Serialize)]
struct Named<'a, T> {
    layout: &'static str,
    #[serde(flatten)]
    report: &'a T,
}

/// The outcome of a report, which `--json` prints with the key `layout` first.
fn outcome<T: Display + Serialize>(layout: &Layout, report: &T) -> Result<Outcome> {
    Outcome::new(report, &Named { layout: layout.name, report })
}

/// Whether a value is an object that has all these keys.
fn has(value: &Value, keys: &[&str]) -> bool {
    keys.iter().all(|key| value.get(key).is_some())
}

fn after_help() -> String {
    let mut text =
        "Example: sporran describe examples/minikilt/kilt/fever-dev-kilt.jsonl\n\nLayouts:\n".to_owned();
    for layout in LAYOUTS {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<13} {}", layout.name, layout.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_layout_is_that_of_the_first_value() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let gold = write("gold.jsonl", "{\"id\":1,\"input\":\"q\",\"output\":[]}\n{\"id\":2}\n");
        assert_eq!(detected(&[gold.clone(), gold.clone()]).unwrap().name, "kilt");
        let summary = write("summary.json", "{\"read\":1,\"outputs_below\":0,\"histogram\":[]}");
        assert_eq!(detected(std::slice::from_ref(&summary)).unwrap().name, "mapping");
        let message = detected(&[gold.clone(), summary]).err().unwrap().to_string();
        assert!(message.contains("expected files of one layout, found `kilt` in"), "{message}");
        // KILT's test file of TriviaQA has ids alone.
        assert_eq!(
            detected(&[gold.clone(), write("ids.jsonl", "{\"id\":\"tc_1\"}\n")]).unwrap().name,
            "kilt"
        );
        let message =
            |name: &str, text: &str| detected(&[gold.clone(), write(name, text)]).err().unwrap().to_string();
        let other = message("other.json", "{\"x\":1}");
        assert!(other.contains("other.json") && other.contains("--layout: `kilt`"), "{other}");
        assert!(message("table.tsv", "a\tb\n").contains("table.tsv:1"));
        let message = detected(&[write("empty", "\n")]).err().unwrap().to_string();
        assert!(message.contains("empty: expected at least one record"), "{message}");
        assert!(detected(&["-".into()]).err().unwrap().to_string().contains("standard input"));
        if cfg!(unix) {
            let message = detected(&["/dev/zero".into()]).err().unwrap().to_string();
            assert!(message.starts_with("/dev/zero: a stream is read once; name its layout"), "{message}");
        }
    }

    #[test]
    fn a_layout_is_named_once_and_found_by_its_name() {
        for known in LAYOUTS {
            assert_eq!(LAYOUTS.iter().filter(|other| other.name == known.name).count(), 1);
            assert_eq!(layout(known.name).unwrap().about, known.about);
        }
        assert!(layout("none").err().unwrap().contains("`kilt`"));
        assert!(has(&json!({"a": 1, "b": null}), &["a", "b"]) && !has(&json!({"a": 1}), &["b"]));
    }
}
