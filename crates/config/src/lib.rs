//! Config files: reading, diagnostics and the manual.
//!
//! A [`Document`] is a config with its overrides. Options are read from its tables. Every mistake is reported with its line.
//! [`kinds!`] lists the kinds of a stage. [`schema`] and [`explain`] derive ranges and the manual from the types of the
//! options. [`words`] has the words of messages about values, for JSON as well.

pub mod explain;
mod kinds;
mod overrides;
mod read;
pub mod schema;
pub mod words;

use std::{
    borrow::Cow,
    fmt,
    path::{Path, PathBuf},
};

pub use kinds::{Check, FromTable, Kinds};
pub use overrides::{Override, Overrides};
#[doc(hidden)]
pub use schemars;
use schemars::Schema;
#[doc(hidden)]
pub use serde;
use serde::{Deserialize, de::DeserializeOwned};
use toml::{
    Spanned,
    de::{DeTable, DeValue, Deserializer},
};

/// One mistake in a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The config file, or the override with the mistake.
    pub origin: String,
    /// The line, counted from 1, or 0 for an override.
    pub line: usize,
    /// The path of the key, such as `retriever.k1`. Empty for the document.
    pub key: String,
    /// The expected and the found value.
    pub message: String,
}

impl Diagnostic {
    /// A mistake without a line, such as a missing table.
    pub fn of_config(key: &str, message: impl Into<String>) -> Self {
        Self { origin: "config".into(), line: 0, key: key.into(), message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        f.write_str(": ")?;
        if !self.key.is_empty() {
            write!(f, "`{}`: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

/// The text of a config with its overrides.
pub struct Text {
    path: PathBuf,
    file: String,
    /// Each override as TOML, and with its value as a string. Leading spaces move its spans after those of the file.
    overrides: Vec<Overlay>,
}

struct Overlay {
    start: usize,
    written: String,
    plain: String,
    quoted: String,
    /// Whether the key leaves the config.
    removes: bool,
}

impl Text {
    /// The text of a config with overrides. `key=value` sets a key; the value is TOML, or else a string without quotes. `~key`
    /// takes a key out of the config.
    pub fn new(path: &Path, file: String, overrides: &[String]) -> Self {
        let mut start = file.len();
        let overrides = overrides
            .iter()
            .map(|written| {
                start += 1;
                let blanks = " ".repeat(start);
                let removed = written.strip_prefix('~');
                let plain = match removed {
                    Some(key) => format!("{blanks}{key}=0"),
                    None => format!("{blanks}{written}"),
                };
                let (key, value) = written.split_once('=').unwrap_or((written, ""));
                let quoted = format!("{blanks}{key}={}", toml::Value::String(value.to_owned()));
                let made =
                    Overlay { start, written: written.clone(), plain, quoted, removes: removed.is_some() };
                start = made.plain.len().max(made.quoted.len());
                made
            })
            .collect();
        Self { path: path.to_owned(), file, overrides }
    }
}

/// Options whose values can have a secret by mistake. Messages do not repeat them.
const PRIVATE: [&str; 2] = ["api-key-env", "base-url"];

/// An override as messages show it.
fn shown(written: &str) -> Cow<'_, str> {
    let key = written.split_once('=').map_or(written, |(key, _)| key).trim();
    let name = key.rsplit('.').next().unwrap_or_default();
    if PRIVATE.contains(&name) { format!("{key}=..").into() } else { written.into() }
}

/// A table with its position in the text.
pub type Table<'t> = Spanned<DeTable<'t>>;

/// Takes the entries of these names out of a table, as a table of their own.
pub fn take_keys<'t>(table: &mut Table<'t>, names: &[&str]) -> Table<'t> {
    let mut taken = DeTable::new();
    for name in names {
        if let Some((key, value)) = table.get_mut().remove_entry(*name) {
            taken.insert(key, value);
        }
    }
    Spanned::new(table.span(), taken)
}

/// The error for a table that cannot be read. Its mistakes are in the [`Document`].
#[derive(Clone, Copy, Debug)]
pub struct Invalid;

/// The first key of every config, the name of its workflow.
pub const WORKFLOW: &str = "workflow";

/// A config as a tree of spanned keys and values, with the mistakes found so far.
#[derive(Clone)]
pub struct Document<'t> {
    text: &'t Text,
    root: Table<'t>,
    diagnostics: Vec<Diagnostic>,
    /// Keys with a reported mistake, and the likely meanings of misspelt keys. Further mistakes at them are consequences.
    suspects: Vec<String>,
    /// The value of the key `workflow`.
    workflow: String,
    /// Names that the table that is read next may have besides those of its type.
    taken: &'static [&'static str],
}

impl<'t> Document<'t> {
    /// Parses a config and applies the overrides. Syntax errors become diagnostics.
    pub fn parse(text: &'t Text) -> Self {
        let (root, errors) = DeTable::parse_recoverable(&text.file);
        let mut document = Self {
            text,
            root,
            diagnostics: Vec::new(),
            suspects: Vec::new(),
            workflow: String::new(),
            taken: &[],
        };
        for error in errors {
            document.report(error.span().map_or(0, |span| span.start), String::new(), error.message());
        }
        for over in &text.overrides {
            let parsed = DeTable::parse(&over.plain).or_else(|error| {
                let has_value = over.written.contains('=') && !over.removes;
                if has_value { DeTable::parse(&over.quoted) } else { Err(error) }
            });
            match parsed {
                Ok(table) if over.removes => {
                    if !remove(document.root.get_mut(), table.get_ref()) {
                        let key = over.written[1..].trim().to_owned();
                        document.report(over.start, key, "the config has no such key");
                    }
                }
                Ok(table) => merge(document.root.get_mut(), table.into_inner()),
                Err(error) => document.report(over.start, String::new(), error.message()),
            }
        }
        document
    }

    fn report(&mut self, at: usize, key: String, message: impl Into<String>) {
        let Text { path, file, overrides } = self.text;
        let (origin, line) = match overrides.iter().rev().find(|over| at >= over.start) {
            Some(over) => (format!("override `{}`", shown(&over.written)), 0),
            None => {
                let before = &file.as_bytes()[..at.min(file.len())];
                (path.display().to_string(), before.iter().filter(|&&byte| byte == b'\n').count() + 1)
            }
        };
        self.diagnostics.push(Diagnostic { origin, line, key, message: message.into().trim().to_owned() });
    }

    /// Adds a mistake at a key, or at the nearest existing table that would contain it. Omits consequences of a reported mistake:
    /// those at the same key, and those at its table with a message about the key.
    pub fn report_key(&mut self, key: &str, message: impl Into<String>) {
        let message = message.into();
        let names = |suspect: &str| {
            let name = suspect.rsplit('.').next().unwrap_or(suspect);
            message.contains(&format!("`{name}`")) || message.starts_with(&format!("{name}:"))
        };
        let follows = |suspect: &String| {
            is_at_or_below(key, suspect) || (is_at_or_below(suspect, key) && names(suspect))
        };
        if !self.suspects.iter().any(follows) {
            self.report(self.start_of(key), key.to_owned(), message);
        }
    }

    /// Reports a folder that is neither a model nor an adapter.
    pub fn check_checkpoint(&mut self, key: &str, folder: &Path) {
        let is_adapter =
            !folder.join("config.json").is_file() && folder.join("adapter_config.json").is_file();
        let file = if is_adapter { "adapter_config.json" } else { "config.json" };
        self.check_folder(key, folder, file);
    }

    /// Reports a folder that is not an encoder. Models of sentence-transformers can have the encoder in a subfolder.
    pub fn check_encoder(&mut self, key: &str, folder: &Path) {
        if !folder.join("modules.json").is_file() {
            self.check_checkpoint(key, folder);
        }
    }

    /// Reports a folder that does not exist or has no file of the given name.
    pub fn check_folder(&mut self, key: &str, folder: &Path, file: &str) {
        if !folder.exists() {
            let is_file = folder.extension().is_some_and(|extension| extension == "gguf");
            let kind = if is_file { "file" } else { "folder" };
            self.report_key(key, format!("no {kind} {}", folder.display()));
        } else if !folder.join(file).is_file() {
            self.report_key(key, format!("no file {file} in {}", folder.display()));
        }
    }

    /// Reports files that do not exist.
    pub fn check_files(&mut self, key: &str, files: &[PathBuf]) {
        for path in files.iter().filter(|path| !path.is_file()) {
            self.report_key(key, format!("no file {}", path.display()));
        }
    }

    /// Reports input files that do not exist, and files with the same name without extension. Outputs are named after inputs.
    pub fn check_inputs(&mut self, key: &str, files: &[PathBuf]) {
        self.check_files(key, files);
        for (at, path) in files.iter().enumerate() {
            if files[..at].iter().any(|other| other.file_stem() == path.file_stem()) {
                let message = format!("expected files of different names, found {} again", path.display());
                self.report_key(key, message);
            }
        }
    }

    fn start_of(&self, key: &str) -> usize {
        let mut table = self.root.get_ref();
        let mut at = 0;
        for part in key.split('.') {
            let (name, index) = part.split_once('[').unwrap_or((part, ""));
            let Some((found, mut value)) = table.get_key_value(name) else { break };
            at = found.span().start;
            if let DeValue::Array(elements) = value.get_ref()
                && let Some(element) =
                    index.trim_end_matches(']').parse().ok().and_then(|at: usize| elements.get(at))
            {
                at = element.span().start;
                value = element;
            }
            match value.get_ref() {
                DeValue::Table(inner) => table = inner,
                _ => break,
            }
        }
        at
    }

    /// Takes the table `name` out of the table at the path `key`. `None` if it does not exist.
    fn take(&mut self, key: &str, name: &str, table: &mut Table<'t>) -> Result<Option<Table<'t>>, Invalid> {
        let Some((written, value)) = table.get_mut().remove_entry(name) else { return Ok(None) };
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(inner) => Ok(Some(Spanned::new(span, inner))),
            other => {
                let path = join(key, name);
                let message = format!("expected a table `[{path}]`, found a {}", other.type_str());
                self.report(written.span().start, path, message);
                Err(Invalid)
            }
        }
    }

    /// Takes a required table out of the table at the path `key`.
    pub fn take_table_of(
        &mut self,
        key: &str,
        name: &str,
        table: &mut Table<'t>,
    ) -> Result<Table<'t>, Invalid> {
        let start = table.span().start;
        self.take(key, name, table)?.ok_or_else(|| {
            self.report(start, join(key, name), "is missing");
            Invalid
        })
    }

    /// Takes a required array of tables out of the table at the path `key`.
    pub fn take_tables(
        &mut self,
        key: &str,
        name: &str,
        table: &mut Table<'t>,
    ) -> Result<Vec<Table<'t>>, Invalid> {
        let path = join(key, name);
        let Some((written, value)) = table.get_mut().remove_entry(name) else {
            self.report(table.span().start, path, "is missing");
            return Err(Invalid);
        };
        let start = written.span().start;
        let DeValue::Array(items) = value.into_inner() else {
            self.report(start, path.clone(), format!("expected tables `[[{path}]]`"));
            return Err(Invalid);
        };
        let mut tables = Vec::with_capacity(items.len());
        for item in items {
            let span = item.span();
            match item.into_inner() {
                DeValue::Table(inner) => tables.push(Spanned::new(span, inner)),
                other => {
                    self.report(
                        span.start,
                        path.clone(),
                        format!("expected a table, found a {}", other.type_str()),
                    );
                    return Err(Invalid);
                }
            }
        }
        Ok(tables)
    }

    /// Reads the stage `key`; `None` if the config has no such table.
    ///
    /// # Errors
    /// [`Invalid`] if the table is wrong.
    pub fn read_stage<K: Kinds>(&mut self, key: &str) -> Result<Option<K>, Invalid> {
        let table = self.take_stage(key)?;
        table.map(|table| K::from_stage(self, key, table)).transpose()
    }

    /// Reads the stage `key`, which the config must have.
    ///
    /// # Errors
    /// [`Invalid`] if the table is wrong or missing.
    pub fn require_stage<K: Kinds>(&mut self, key: &str) -> Result<K, Invalid> {
        self.read_stage(key)?.ok_or_else(|| {
            self.report_key(key, "is missing");
            Invalid
        })
    }

    /// Names the tables that were taken out of the stage that is read next, for the messages about its unknown keys.
    pub fn name_taken(&mut self, names: &'static [&'static str]) {
        self.taken = names;
    }

    /// Takes the `kind` out of the table at the path `key`.
    pub fn take_kind(&mut self, key: &str, table: &mut Table<'t>, kinds: &[&str]) -> Result<String, Invalid> {
        let start = table.span().start;
        let one_of = || kinds.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ");
        let Some((name, value)) = table.get_mut().remove_entry("kind") else {
            self.report(start, format!("{key}.kind"), format!("is missing; expected one of {}", one_of()));
            return Err(Invalid);
        };
        let start = name.span().start;
        let message = match value.get_ref().as_str() {
            Some(kind) if kinds.contains(&kind) => return Ok(kind.to_owned()),
            Some(kind) => {
                let near = nearest(kind, kinds.iter().copied())
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                format!("unknown kind `{kind}`, expected one of {}{near}", one_of())
            }
            None => format!("expected a string, one of {}", one_of()),
        };
        self.report(start, format!("{key}.kind"), message);
        Err(Invalid)
    }

    /// Takes the table of a stage out of the root. `None` if the config does not have the stage.
    pub fn take_stage(&mut self, key: &str) -> Result<Option<Table<'t>>, Invalid> {
        let mut root = std::mem::replace(&mut self.root, Spanned::new(0..0, DeTable::new()));
        let taken = self.take("", key, &mut root);
        self.root = root;
        taken
    }

    /// Omits further mistakes at a key and in its table, because a mistake was reported there.
    pub fn suspect(&mut self, key: &str) {
        self.suspects.push(key.to_owned());
    }

    /// The value of the key `workflow`. `None` if it is missing or not a string.
    pub fn workflow(&self) -> Option<&str> {
        self.root.get_ref().get(WORKFLOW)?.get_ref().as_str()
    }

    /// The values of the config without `workflow`. `None` if a value cannot be represented.
    pub fn values(&self) -> Option<toml::Table> {
        let mut values = toml::Table::deserialize(Deserializer::from(self.root.clone())).ok()?;
        values.remove(WORKFLOW);
        Some(values)
    }

    /// The strings of an array at the root.
    pub fn strings(&self, key: &str) -> Vec<String> {
        let items = self.root.get_ref().get(key).and_then(|value| match value.get_ref() {
            DeValue::Array(items) => Some(items),
            _ => None,
        });
        let strings = items.into_iter().flat_map(|items| items.iter());
        strings.filter_map(|item| item.get_ref().as_str().map(str::to_owned)).collect()
    }

    /// Takes the key `workflow` out of the root. Reports a value that is not one of `names`.
    pub fn take_workflow(&mut self, names: &[&str]) -> bool {
        let Some((key, value)) = self.root.get_mut().remove_entry(WORKFLOW) else {
            let message = format!("is missing; add the line `workflow = \"{}\"` at the top", names[0]);
            self.report(0, WORKFLOW.to_owned(), message);
            return false;
        };
        let one_of = || names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        let message = match value.get_ref().as_str() {
            Some(name) if names.contains(&name) => {
                self.workflow = name.to_owned();
                return true;
            }
            Some(name) => {
                let near = nearest(name, names.iter().copied());
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                format!("expected {}, found `{name}`{near}", one_of())
            }
            None => format!("expected {}, found a {}", one_of(), value.get_ref().type_str()),
        };
        self.report(key.span().start, WORKFLOW.to_owned(), message);
        false
    }

    /// Reports a table that belongs to another workflow, or that is missing in this one.
    pub fn check_workflow_table(&mut self, table: &str, workflow: &str) {
        let (has, is) = (self.has(table), self.workflow == workflow);
        if has && !is {
            self.report_key(table, format!("belongs to `workflow = \"{workflow}\"`"));
        } else if is && !has {
            self.report_key(table, format!("is missing; `workflow = \"{workflow}\"` needs it"));
        }
    }

    /// Whether the root has a key.
    pub fn has(&self, key: &str) -> bool {
        self.root.get_ref().contains_key(key)
    }

    /// Restores the entries of an earlier copy. Keeps the mistakes.
    pub fn restore(&mut self, written: Self) {
        self.root = written.root;
    }

    /// Reads the remaining root as `T`. `stages` are known tables, for suggestions in messages.
    pub fn read_root<T: DeserializeOwned>(&mut self, stages: &[&str]) -> Option<T> {
        let root = self.root.clone();
        self.read("", root, stages)
    }

    /// Adds to the message about an unknown key the options of other tables that have its name or a similar one. `schema` is that
    /// of the whole config.
    pub fn suggest_elsewhere(&mut self, schema: &Schema) {
        let is_open = |it: &&mut Diagnostic| {
            it.message.starts_with("unknown field ") && !it.message.contains("; did you mean ")
        };
        let mut open = self.diagnostics.iter_mut().filter(is_open).peekable();
        if open.peek().is_none() {
            return;
        }
        let config = toml::Table::deserialize(Deserializer::from(self.root.clone())).unwrap_or_default();
        let paths = explain::paths(schema, &config);
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        for diagnostic in open {
            let wrong = last(&diagnostic.key);
            let names: Vec<String> = paths.iter().map(|path| last(path)).collect();
            let Some(near) = nearest_above(0.85, &wrong, names.iter().map(String::as_str)) else { continue };
            let meant = paths.iter().filter(|path| last(path) == near).take(MOST_SUGGESTIONS);
            let meant: Vec<String> = meant.map(|path| format!("`{path}`")).collect();
            diagnostic.message.push_str(&format!("; did you mean {}?", meant.join(" or ")));
        }
    }

    /// All mistakes, in the order of the document.
    pub fn into_diagnostics(mut self) -> Vec<Diagnostic> {
        self.diagnostics.sort_by_key(|diagnostic| (diagnostic.line == 0, diagnostic.line));
        self.diagnostics
    }
}

/// Applies `over` to `base`. Tables are merged, all other values are replaced.
fn merge<'t>(base: &mut DeTable<'t>, over: DeTable<'t>) {
    for (key, value) in over {
        match (base.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut), value.get_ref()) {
            (Some(DeValue::Table(inner)), DeValue::Table(_)) => {
                if let DeValue::Table(table) = value.into_inner() {
                    merge(inner, table);
                }
            }
            _ => {
                base.remove(key.get_ref().as_ref());
                base.insert(key, value);
            }
        }
    }
}

/// Takes the keys of `names` out of `base`. False if one is not there.
fn remove(base: &mut DeTable<'_>, names: &DeTable<'_>) -> bool {
    names.iter().all(|(key, value)| {
        let key = key.get_ref().as_ref();
        match (value.get_ref(), base.get_mut(key).map(Spanned::get_mut)) {
            (DeValue::Table(names), Some(DeValue::Table(inner))) => remove(inner, names),
            (DeValue::Table(_), _) => false,
            _ => base.remove(key).is_some(),
        }
    })
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Whether a key is the other key or is in its table.
fn is_at_or_below(key: &str, other: &str) -> bool {
    key.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The largest number of options of other tables that a message suggests.
const MOST_SUGGESTIONS: usize = 3;

/// The name that is most similar to `wrong`, if any is similar enough.
fn nearest<'n>(wrong: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    nearest_above(0.7, wrong, names)
}

/// The name that is most similar to `wrong`, if its similarity is above `least` or it differs in one letter.
fn nearest_above<'n>(least: f64, wrong: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let is_near = |name: &str| name.len() > 1 && wrong.len() > 1 && strsim::levenshtein(wrong, name) <= 1;
    names
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(similarity, name)| *similarity > least || is_near(name))
        .max_by(|a, b| a.0.total_cmp(&b.0).then(b.1.cmp(a.1)))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests;
