//! `sporran reproduce`.

mod expected;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::{Args, ValueHint};
use serde_json::{Value, json};
use sporran_kernels::Isa;

use self::expected::{Reproduced, Row, Verdict};
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome, stderr},
    paths,
};

/// The file in a folder that holds the results of a row, which the next call may remove.
const MARK: &str = ".sporran-reproduce";

/// `sporran reproduce`
#[derive(Args)]
#[command(after_help = "Examples:\n  sporran reproduce\n  sporran reproduce quickstart-kbp")]
pub(crate) struct Reproduce {
    /// Names of rows; without a name, lists the rows
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Path of data that a row needs and that is not in the repository, such as `data=codex-s`
    #[arg(long = "set", value_name = "KEY=PATH")]
    set: Vec<String>,
    /// File of rows
    #[arg(long, default_value = "configs/expected.toml", value_name = "FILE", value_hint = ValueHint::FilePath)]
    expected: PathBuf,
    /// Folder of the runs, one subfolder per row; earlier results of a row are removed first
    #[arg(long, default_value = "runs/reproduce", value_name = "DIR", value_hint = ValueHint::DirPath)]
    runs: PathBuf,
    /// Continue from earlier results instead of removing them
    #[arg(long)]
    resume: bool,
}

impl Reproduce {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        paths::file(&self.expected)?;
        let rows = Row::read(&self.expected)?;
        if self.names.is_empty() {
            let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
            return Outcome::new(list(&rows), &json!({ "rows": names }));
        }
        let chosen = self.names.iter().map(|name| {
            rows.iter().find(|row| &row.name == name).ok_or_else(|| {
                let known: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
                let file = self.expected.display();
                Error::Input(format!("{file}: expected a row's name ({}), found `{name}`", known.join(", ")))
            })
        });
        let chosen: Vec<&Row> = chosen.collect::<Result<_>>()?;
        let paths = self.paths()?;
        // The data of every row is checked before the first row runs.
        for row in &chosen {
            check_needs(row, &paths)?;
        }
        interrupt::keep(Kept::Folder(self.runs.clone()));
        let mut figures = Vec::new();
        for row in chosen {
            let found = self.row(row, paths.clone(), context.quiet)?;
            if !context.json {
                context.print(Outcome::text(table(&found)))?;
            }
            figures.extend(found);
        }
        let count = figures.iter().filter(|figure| figure.verdict == Verdict::Fail).count();
        let failure = (count > 0).then_some(Error::NotReproduced { count, of: figures.len() });
        Ok(Outcome::new("", &json!({ "figures": figures }))?.failing(failure))
    }

    fn paths(&self) -> Result<BTreeMap<String, String>> {
        let pair = |text: &String| {
            let pair = text.split_once('=').map(|(key, path)| (key.to_owned(), path.to_owned()));
            pair.ok_or_else(|| Error::Usage(format!("--set: expected KEY=PATH, found `{text}`")))
        };
        self.set.iter().map(pair).collect()
    }

    fn row(&self, row: &Row, mut paths: BTreeMap<String, String>, quiet: bool) -> Result<Vec<Reproduced>> {
        let runs = self.runs.join(&row.name);
        let mark = runs.join(MARK);
        if runs.exists() && !mark.is_file() {
            let message = format!(
                "expected a folder that `reproduce` made, found another one, {}; remove it, or name another place with --runs",
                runs.display()
            );
            return Err(Error::Input(message));
        }
        if !self.resume && runs.exists() {
            fs::remove_dir_all(&runs).map_err(Error::io(&runs, "remove"))?;
        }
        fs::create_dir_all(&runs).map_err(Error::io(&runs, "create"))?;
        fs::write(&mark, "").map_err(Error::io(&mark, "write"))?;
        paths.insert("runs".into(), runs.display().to_string());
        let mut printed = Vec::new();
        for command in &row.commands {
            let arguments: Vec<String> =
                command.split_whitespace().map(|word| filled(word, &paths)).collect();
            if !quiet {
                stderr(&format!("$ sporran {}\n", arguments.join(" ")));
            }
            printed.push(call(&arguments, quiet)?);
        }
        Ok(row.compare(&printed))
    }
}

/// A word of a command, with each key in braces replaced by its path.
fn filled(word: &str, paths: &BTreeMap<String, String>) -> String {
    paths.iter().fold(word.to_owned(), |word, (key, path)| word.replace(&format!("{{{key}}}"), path))
}

fn check_needs(row: &Row, paths: &BTreeMap<String, String>) -> Result<()> {
    for (key, what) in &row.needs {
        match paths.get(key) {
            None => {
                return Err(Error::Input(format!(
                    "row `{}` needs {what}: give its path as `--set {key}=PATH`",
                    row.name
                )));
            }
            Some(path) if !Path::new(path).exists() => {
                return Err(paths::missing(&format!("{what} (--set {key})"), Path::new(path)));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Runs this program and returns the JSON that it prints: one object, or an array of several.
fn call(arguments: &[String], quiet: bool) -> Result<Value> {
    let program = env::current_exe().map_err(Error::io("sporran", "look up"))?;
    let mut command = Command::new(&program);
    command.args(arguments).arg("--json").stdin(Stdio::null()).stderr(Stdio::inherit());
    command.args(["--threads", &rayon::current_num_threads().to_string()]);
    command.args(["--isa", &Isa::detected().to_string()]);
    if quiet {
        command.arg("--quiet");
    }
    let output = command.output().map_err(Error::io(&program, "start"))?;
    let shown = format!("sporran {}", arguments.join(" "));
    if !output.status.success() {
        let code = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
        return Err(Error::Command { command: shown, code });
    }
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let mut values: Vec<Value> = values
        .collect::<Result<_, _>>()
        .map_err(|error| Error::Input(format!("{shown}: expected JSON on standard output: {error}")))?;
    Ok(if values.len() == 1 { values.remove(0) } else { Value::Array(values) })
}

fn list(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let line = |row: &Row| {
        let needs: Vec<String> =
            row.needs.iter().map(|(key, what)| format!("; needs {what} (--set {key}=PATH)")).collect();
        format!("{:width$}  {} (about {} min{})\n", row.name, row.about, row.minutes, needs.concat())
    };
    rows.iter().map(line).collect()
}

fn table(figures: &[Reproduced]) -> String {
    let line = |figure: &Reproduced| {
        let found = figure.found.map_or_else(|| "-".to_owned(), |found| format!("{found:.4}"));
        let verdict = match figure.verdict {
            Verdict::Ok => "OK",
            Verdict::Close => "close",
            Verdict::Fail => "FAIL",
        };
        format!(
            "{verdict:5}  {}: {}: {found} (expected {:.4}, tolerance {})\n",
            figure.row, figure.measure, figure.expected, figure.tolerance
        )
    };
    figures.iter().map(line).collect()
}
