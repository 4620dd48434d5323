//! `sporran convert`: one format into another.

use std::{fmt::Write, path::PathBuf};

use sporran_kilt::{
    Error,
    formats::convert::{self, Format, Request, Summary},
};

/// Turn files of one format into another.
#[derive(Debug, clap::Args)]
#[command(after_help = formats())]
pub(crate) struct Convert {
    /// Format of the inputs.
    #[arg(long, value_name = "FORMAT")]
    from: Format,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT")]
    to: Format,
    /// Files, read in this order into one output; plain, .gz or .zst, `-` is standard input. A folder for `store`.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// File to write; .gz and .zst compress, `-` is standard output. A folder for `beir`.
    #[arg(long, value_name = "PATH")]
    output: PathBuf,
    /// Passage store that the documents of a run are numbers in, or whose titles lead to pages.
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Run that found passages for the records of a task file.
    #[arg(long, value_name = "FILE")]
    run: Option<PathBuf>,
    /// Page ids by title (fid) or by document (run): a JSON object, or lines of two columns.
    #[arg(long, value_name = "FILE")]
    mapping: Option<PathBuf>,
    /// TriviaQA's question files or their archive, to be joined with KILT's TriviaQA.
    #[arg(long, value_name = "QUESTIONS", num_args = 1..)]
    triviaqa: Vec<PathBuf>,
}

impl Convert {
    /// Converts and says what came of it.
    pub(crate) fn run(self) -> Result<Summary, Error> {
        let Self { from, to, inputs, output, store, run, mapping, triviaqa } = self;
        convert::convert(&Request { from, to, inputs, output, store, run, mapping, triviaqa })
    }
}

fn formats() -> String {
    let mut text = "Formats, and what they become:\n".to_owned();
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
