//! `sporran convert map`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::{
    PassageStore, Split,
    mapping::{Layout, MapRequest, map_evidence},
};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran convert map`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran convert map --from fever --store indexes/store-KEY --split dev \\\n    \
        --output fever-dev.jsonl paper_dev.jsonl\n\
        \n\
        A line of `evidence` is {\"id\", \"input\", \"answers\", \"evidence\": [{\"title\", \"text\"}]}.\n\
        Alternative sets of evidence are lists, [[{\"title\", \"text\"}]]; each gives one output.")]
pub(crate) struct Map {
    /// Layout of the inputs: `fever`, `popqa` or `evidence`
    #[arg(long, value_name = "LAYOUT")]
    from: Layout,
    /// Passage store in which pages are looked up by title
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: PathBuf,
    /// Split to map: `train`, `dev` or `test`. In `dev` and `test`, outputs that lack a page or have a span below
    /// --min-bleu are left out
    #[arg(long, value_name = "SPLIT", value_parser = split)]
    split: Split,
    /// Minimum BLEU of every span of an output in `dev` and `test`
    #[arg(long, alias = "least-bleu", value_name = "BLEU", default_value_t = 0.5)]
    min_bleu: f64,
    /// Files, read in this order into one output; plain, .gz or .zst; `-` is standard input
    #[arg(required = true, value_name = "INPUT", value_hint = ValueHint::FilePath)]
    inputs: Vec<PathBuf>,
    /// File to write; .gz and .zst compress; `-` is standard output
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Map {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { from: layout, store, split, min_bleu: least, inputs, output } = self;
        paths::folder(&store)?;
        inputs.iter().try_for_each(|path| paths::file(path))?;
        interrupt::keep(Kept::Output(output.clone()));
        let store = PassageStore::open(&store)?;
        let mapped = map_evidence(&MapRequest { layout, inputs, output, split, least }, &store)?;
        Ok(Outcome::new(&mapped, &mapped)?.aside())
    }
}

fn split(text: &str) -> Result<Split, String> {
    match text {
        "train" => Ok(Split::Train),
        "dev" => Ok(Split::Dev),
        "test" => Ok(Split::Test),
        other => Err(format!("expected `train`, `dev` or `test`, found `{other}`")),
    }
}
