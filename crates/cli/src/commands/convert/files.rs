//! `sporran convert files`.

use std::{fmt::Write, path::PathBuf};

use clap::{Args, ValueHint};
use serde_json::json;
use sporran_kilt::formats::convert::{self, Format, Request};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran convert files`
#[derive(Args)]
#[command(after_help = after_help())]
pub(crate) struct Files {
    /// Format of the inputs
    #[arg(long, value_name = "FORMAT")]
    from: Format,
    /// Format of the output
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// Files, read in this order into one output; plain, .gz or .zst; `-` is standard input. A folder for `store`
    #[arg(required = true, value_name = "INPUT", value_hint = ValueHint::AnyPath)]
    inputs: Vec<PathBuf>,
    /// File to write; .gz and .zst compress; `-` is standard output. A folder for `beir`
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    output: PathBuf,
    /// Passage store of a run. Its documents are passages, by number or as `page#place`; with a tag that ends with `/pages` they
    /// are ids of pages
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: Option<PathBuf>,
    /// Run file with the passages retrieved for the records of a task file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    run: Option<PathBuf>,
    /// Page ids by title (fid) or by document (run): a JSON object, or lines of two columns. A file that can be read twice
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    mapping: Option<PathBuf>,
    /// TriviaQA's question files or their archive, to join with KILT's TriviaQA
    #[arg(long, value_name = "QUESTIONS", num_args = 1.., value_hint = ValueHint::FilePath)]
    triviaqa: Vec<PathBuf>,
}

impl Files {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { from, to, inputs, output, store, run, mapping, triviaqa } = self;
        inputs.iter().chain(&triviaqa).try_for_each(|path| paths::file_or_folder(path))?;
        store.as_deref().map_or(Ok(()), paths::folder)?;
        run.as_deref().map_or(Ok(()), paths::file)?;
        mapping.as_deref().map_or(Ok(()), paths::file_to_reread)?;
        paths::not_read(&output, inputs.iter().chain(&triviaqa).chain(&run).chain(&mapping))?;
        interrupt::keep(Kept::Output(output.clone()));
        let request = Request { from, to, inputs, output, store, run, mapping, triviaqa };
        let summary = convert::convert(&request)?;
        let text = format!(
            "{} written of {} read, {} left out, {} not found",
            summary.written, summary.read, summary.left_out, summary.unresolved
        );
        let counts = json!({
            "read": summary.read,
            "written": summary.written,
            "left_out": summary.left_out,
            "not_found": summary.unresolved,
        });
        Ok(Outcome::new(text, &counts)?.aside())
    }
}

fn after_help() -> String {
    let mut text = "Example:\n  \
        sporran convert files --from kilt --to topics --output nq.tsv \\\n    \
        examples/minikilt/kilt/nq-dev-kilt.jsonl\n\
        \n\
        Formats and their targets:\n\
        "
    .to_owned();
    for format in Format::all() {
        let targets: Vec<&str> = format.targets().map(Format::name).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {format:<17} {}", format.about());
        if !targets.is_empty() {
            let _ = writeln!(text, "  {:<17}   -> {}", "", targets.join(", "));
        }
    }
    text
}
