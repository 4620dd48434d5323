//! `sporran convert gold`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_kilt::{counted, formats::gold};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran convert gold`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran convert gold --wowpp wow++/train.json --output train-gold.json wizard/train.json\n\
        \n\
        The dialogues get the fields `gold_sentence` and `response`, from the conversation with the same turns.")]
pub(crate) struct Gold {
    /// Dialogues in WOW++'s layout
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    wowpp: PathBuf,
    /// Wizard of Wikipedia's files, in their published layout; plain, .gz or .zst
    #[arg(required = true, value_name = "WOW", value_hint = ValueHint::FilePath)]
    inputs: Vec<PathBuf>,
    /// File to write; .gz and .zst compress
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Gold {
    pub(crate) fn run(self) -> Result<Outcome> {
        let Self { wowpp, inputs, output } = self;
        paths::file(&wowpp)?;
        inputs.iter().try_for_each(|path| paths::file(path))?;
        paths::not_read(&output, inputs.iter().chain([&wowpp]))?;
        interrupt::keep(Kept::Output(output.clone()));
        let summary = gold::add_gold(&wowpp, &inputs, &output)?;
        let text = format!(
            "{}, {} found, {} with a gold sentence, {} of them among the annotated sentences",
            counted(summary.dialogues as u64, "dialogue"),
            summary.found,
            summary.with_gold,
            summary.among_candidates
        );
        Ok(Outcome::new(text, &summary)?.aside())
    }
}
