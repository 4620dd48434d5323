//! `sporran report`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use serde::Serialize;
use sporran_kilt::jsonl;
use sporran_pipeline::{Form, RunKind, compare_facts, compare_questions, compare_runs, kind_of_runs};

use super::evaluate::Rounds;
use crate::{
    error::{Error, Result},
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
    paths,
};

/// `sporran report`
#[derive(Args)]
#[command(
    after_help = "Example: sporran report runs/quickstart runs/bm25 --form markdown --output report.md"
)]
pub(crate) struct ReportRuns {
    /// Folders of finished runs; the others are compared with the first. Runs over KoRC's questions or KnowledgeNet's documents get the tables of their papers
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    runs: Vec<PathBuf>,
    /// Format: text, markdown, latex, csv or html [default: that of the name of --output, else text]
    #[arg(long, value_name = "FORM")]
    form: Option<Form>,
    /// File to write; standard output by default
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    #[command(flatten)]
    rounds: Rounds,
}

/// The format for the ending of a file's name.
fn form_of(path: &Path) -> Option<Form> {
    match path.extension()?.to_str()? {
        "md" => Some(Form::Markdown),
        "tex" => Some(Form::Latex),
        "csv" => Some(Form::Csv),
        "html" | "htm" => Some(Form::Html),
        _ => None,
    }
}

impl ReportRuns {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        if context.json && (self.form.is_some() || self.output.is_some()) {
            return Err(Error::Usage("--json: cannot be combined with --form or --output".into()));
        }
        for run in &self.runs {
            paths::folder(run)?;
        }
        let named = self.output.as_deref().and_then(form_of);
        if let Some(output) = &self.output {
            // A page or a table may stand beside the run's own files.
            let ending = output.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
            if ["json", "jsonl", "toml", "trec"].contains(&ending) {
                paths::not_within(output, &self.runs)?;
            }
        }
        let form = self.form.or(named).unwrap_or(Form::Text);
        match kind_of_runs(&self.runs)? {
            RunKind::Answers => {
                let comparison = compare_runs(&self.runs, self.rounds.value())?;
                if form == Form::Csv {
                    comparison.notes.iter().for_each(|note| tracing::warn!("{note}"));
                }
                self.finish(comparison.write(form), &comparison)
            }
            RunKind::Questions => {
                let comparison = compare_questions(&self.runs)?;
                self.finish(comparison.write(form), &comparison)
            }
            RunKind::Facts => {
                let comparison = compare_facts(&self.runs)?;
                self.finish(comparison.write(form), &comparison)
            }
        }
    }

    /// Writes the text into the file, or gives it with the comparison.
    fn finish(&self, text: String, comparison: &impl Serialize) -> Result<Outcome> {
        match &self.output {
            Some(path) => {
                interrupt::keep(Kept::Output(path.clone()));
                jsonl::write(path, text.as_bytes())?;
                Ok(Outcome::default())
            }
            None => Outcome::new(text, comparison),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_output_gives_the_format() {
        for (name, form) in [
            ("a.md", Some(Form::Markdown)),
            ("a.tex", Some(Form::Latex)),
            ("a.csv", Some(Form::Csv)),
            ("a.b.html", Some(Form::Html)),
            ("a.txt", None),
            ("html", None),
        ] {
            assert_eq!(form_of(Path::new(name)), form, "{name}");
        }
    }
}
