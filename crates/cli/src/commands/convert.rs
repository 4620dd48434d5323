//! `sporran convert`: one format into another.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use sporran_kilt::{
    PassageStore, Split,
    formats::convert::{self, Format, Request},
    mapping::{Layout, MapRequest, map_evidence},
    synthesis::synthesise,
};
use sporran_pipeline::{Config, korc};

use super::{print, print_json};
use crate::{
    error::{Error, Result},
    progress::Progress,
};

/// What `train` and `run` say of a config with `[documents]`.
pub(super) const QUESTIONS_ARE_BUILT: &str =
    "a config with `[documents]` builds questions: `sporran convert --korc CONFIG`";

/// Turn files of one format into another.
#[derive(Debug, clap::Args)]
#[command(after_help = formats())]
pub(crate) struct Convert {
    /// Format of the inputs.
    #[arg(long, value_name = "FORMAT", required_unless_present_any = ["map", "korc", "queries"])]
    from: Option<Format>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", required_unless_present_any = ["map", "korc", "queries"])]
    to: Option<Format>,
    /// Map a dataset's own evidence onto the pages of `--store` and write KILT records: `fever`, `popqa`, or `evidence`,
    /// lines of {id, input, answers, evidence: [{title, text}]}; alternative sets are lists of their own,
    /// [[{title, text}]], and become an output each.
    #[arg(long, value_name = "LAYOUT", conflicts_with_all = ["from", "to", "run", "mapping", "triviaqa"],
          requires_all = ["store", "split"])]
    map: Option<Layout>,
    /// The part that is mapped: `train`, `dev` or `test`. The latter two lose each output that lacks a page or has a span
    /// below `--least-bleu`.
    #[arg(long, value_name = "PART", requires = "map", value_parser = split)]
    split: Option<Split>,
    /// The least BLEU of every span of an output in `dev` and `test`.
    #[arg(long, value_name = "BLEU", default_value_t = 0.5, requires = "map")]
    least_bleu: f64,
    /// Make up so many queries about the pages of `--store`, to train retrievers and rerankers on: parts of sentences, of two
    /// pages, comparisons and small talk, as KILT records with their pages as evidence.
    #[arg(long, value_name = "COUNT", requires = "store", value_parser = clap::value_parser!(u64).range(1..),
          conflicts_with_all = ["from", "to", "map", "run", "mapping", "triviaqa", "inputs"])]
    queries: Option<u64>,
    /// What the queries are drawn from.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, requires = "queries")]
    seed: u64,
    /// Files, read in this order into one output; plain, .gz or .zst, `-` is standard input. A folder for `store`.
    #[arg(required_unless_present_any = ["korc", "queries"], value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// File to write; .gz and .zst compress, `-` is standard output. A folder for `beir`.
    #[arg(long, value_name = "PATH", required_unless_present = "korc")]
    output: Option<PathBuf>,
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
    /// Build a benchmark in KoRC's layout as a config says, in the place of converting; inputs are `key=value` then.
    #[arg(long, value_name = "CONFIG",
          conflicts_with_all = ["from", "to", "map", "queries", "output", "store", "run", "mapping", "triviaqa"])]
    korc: Option<PathBuf>,
    /// Print the figures of what was built as one JSON object.
    #[arg(long, requires = "korc")]
    json: bool,
}

impl Convert {
    /// Converts and says what came of it.
    pub(crate) fn run(mut self, quiet: bool) -> Result<()> {
        if let Some(config) = self.korc.take() {
            return self.build(&config, quiet);
        }
        let summary = self.convert()?;
        if !quiet {
            eprintln!("{summary}");
        }
        Ok(())
    }

    fn build(self, config: &Path, quiet: bool) -> Result<()> {
        let overrides: Vec<String> = self.inputs.iter().map(|input| input.display().to_string()).collect();
        let options = korc::BuildConfig::load(config, &overrides)?;
        let mut progress = Progress::new(quiet);
        let statistics = korc::build(&options, &mut |event| progress.event(event))?;
        if self.json { print_json(&statistics) } else { print(&told(&statistics)) }
    }

    fn convert(self) -> Result<String> {
        let Self { from, to, map, split, least_bleu, inputs, output, store, run, mapping, triviaqa, .. } =
            self;
        let Some(output) = output else {
            return Err(Error::Usage("expected `--output`".into()));
        };
        if let (Some(count), Some(store)) = (self.queries, &store) {
            let made = synthesise(&PassageStore::open(store)?, count, self.seed, &output)?;
            return Ok(format!(
                "{count} queries: {} parts of a page, {} of two pages, {} comparisons, {} dialogues",
                made.cloze, made.bridge, made.comparison, made.dialogue
            ));
        }
        match (from, to, map, split, &store) {
            (_, _, Some(layout), Some(split), Some(store)) => {
                let store = PassageStore::open(store)?;
                let request = MapRequest { layout, inputs, output, split, least: least_bleu };
                Ok(map_evidence(&request, &store)?.to_string())
            }
            (Some(from), Some(to), ..) => {
                let request = Request { from, to, inputs, output, store, run, mapping, triviaqa };
                let summary = convert::convert(&request)?;
                Ok(format!(
                    "{} written of {} read, {} left out, {} not found",
                    summary.written, summary.read, summary.left_out, summary.unresolved
                ))
            }
            _ => {
                Err(Error::Usage("expected `--from` and `--to`, `--map`, `--store` and `--split`, or `--queries` and `--store`".into()))
            }
        }
    }
}

/// What was built, as a table.
fn told(statistics: &korc::Statistics) -> String {
    let korc::Statistics { documents, mentions, document_relations, rules, triples, splits } = statistics;
    let mut text = format!(
        "{documents} documents, {mentions} mentions, {document_relations} relations in documents\n\
         {rules} rules in chains, {triples} triples left in the knowledge base\n\
         {:<16}{:>10}{:>10}{:>10}{:>8}{:>9}{:>7}{:>10}\n",
        "split", "documents", "relations", "questions", "words", "answers", "hops", "in text"
    );
    for split in splits {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:<16}{:>10}{:>10}{:>10}{:>8.1}{:>9.2}{:>7.2}{:>10.2}",
            split.split,
            split.documents,
            split.relations,
            split.questions,
            split.words,
            split.answers,
            split.hops,
            split.hops_in_document
        );
    }
    text
}

fn split(text: &str) -> Result<Split, String> {
    match text {
        "train" => Ok(Split::Train),
        "dev" => Ok(Split::Dev),
        "test" => Ok(Split::Test),
        other => Err(format!("expected `train`, `dev` or `test`, found `{other}`")),
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
