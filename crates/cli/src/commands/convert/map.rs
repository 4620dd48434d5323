//! `sporran convert map`.

use std::{fmt::Write, path::PathBuf};

use clap::{Args, ValueHint};
use sporran_kilt::{
    PassageStore, Split,
    mapping::{LEAST_BLEU, Layout, LayoutOptions, MapRequest, map_evidence},
};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran convert map`
#[derive(Args)]
#[command(after_help = after_help())]
pub(crate) struct Map {
    /// Layout of the inputs; see the list below
    #[arg(long, value_name = "LAYOUT")]
    from: Layout,
    /// Passage store in which pages are looked up by title
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    store: PathBuf,
    /// Split to map: `train`, `dev` or `test`. Evidence that lacks a page or a text or has a span below --min-bleu is left out, in
    /// `dev` and `test` with its answer
    #[arg(long, value_name = "SPLIT", value_parser = split)]
    split: Split,
    /// Minimum BLEU of every span of evidence
    #[arg(long, alias = "least-bleu", value_name = "BLEU", default_value_t = LEAST_BLEU)]
    min_bleu: f64,
    /// Files, read in this order into one output; plain, .gz or .zst; `-` is standard input
    #[arg(required = true, value_name = "INPUT", value_hint = ValueHint::FilePath)]
    inputs: Vec<PathBuf>,
    /// File to write; .gz and .zst compress; `-` is standard output
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    #[command(flatten)]
    options: OptionArgs,
}

/// Options of single layouts.
#[derive(Args)]
struct OptionArgs {
    /// Seed of random splits and samples (wned, trex, zsre, hyperlinks); 0 by default
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Texts that the inputs refer to: FEVER's wiki-pages, the RawText folder of WNED (fever, wned)
    #[arg(long, value_name = "PATH", num_args = 1.., value_hint = ValueHint::AnyPath)]
    texts: Vec<PathBuf>,
    /// Tables of labels and aliases, as those of Wikidata5M (trex)
    #[arg(long, value_name = "FILE", num_args = 1.., value_hint = ValueHint::FilePath)]
    names: Vec<PathBuf>,
    /// The topics of each split, `topic_splits.json` (wow)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    topics: Option<PathBuf>,
    /// Largest number of sentences of a fact (trex); 20 by default
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    max_sentences: Option<usize>,
    /// Least number of facts of a relation (trex); 1000 by default
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    min_facts: Option<usize>,
    /// Number of records in each of `dev` and `test` (trex); 5000 by default
    #[arg(long, value_name = "N")]
    held_out: Option<usize>,
    /// Share of the links that is used, above 0 and at most 1 (hyperlinks); all by default
    #[arg(long, value_name = "SHARE")]
    share: Option<f64>,
}

impl Map {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { from: layout, store, split, min_bleu: least, inputs, output, options } = self;
        let OptionArgs { seed, texts, names, topics, max_sentences, min_facts, held_out, share } = options;
        paths::folder(&store)?;
        inputs.iter().chain(&names).chain(&topics).try_for_each(|path| paths::file(path))?;
        texts.iter().try_for_each(|path| paths::file_or_folder(path))?;
        interrupt::keep(Kept::Output(output.clone()));
        let store = PassageStore::open(&store)?;
        let options = LayoutOptions { seed, texts, names, topics, max_sentences, min_facts, held_out, share };
        let request = MapRequest { layout, options, inputs, output, split, least };
        let mapped = map_evidence(&request, &store)?;
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

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("expected a number of at least 1, found `{text}`")),
    }
}

fn after_help() -> String {
    let mut text = "Examples:\n  \
        sporran convert map --from fever --store indexes/store-KEY --split dev \\\n    \
        --output fever-dev.jsonl paper_dev.jsonl\n  \
        sporran convert map --from trex --store indexes/store-KEY --split train \\\n    \
        --output trex-train-kilt.jsonl re-nlg_0-10000.json \\\n    \
        --names wikidata5m_entity.txt wikidata5m_relation.txt\n\
        \n\
        Layouts:\n"
        .to_owned();
    for layout in Layout::all() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<10}  {}", layout.name(), layout.about());
    }
    text
}
