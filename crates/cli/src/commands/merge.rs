//! `sporran merge`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use sporran_pipeline::shards;

use super::{index::indexed, run::with_then};
use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
};

/// `sporran merge`
#[derive(Args)]
#[command(after_help = "Example: sporran merge runs/quickstart.shard-*\n\n\
                  The shards are those of one command and one config. All of their files are compared with their checksums first. \
                  A merge that was killed can be repeated.")]
pub(crate) struct Merge {
    /// The shards' folders, or folders with shards in them, such as the `output` of their config
    #[arg(required = true, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    folders: Vec<PathBuf>,
    /// Folder of the result: the parent folder of the run, or of the indexes. The default is that of the shards' config
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    output: Option<PathBuf>,
}

impl Merge {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let set = shards::find_shards(&self.folders)?;
        let output = self.output.as_deref();
        if let Some(output) = output {
            interrupt::keep(Kept::Folder(output.to_owned()));
        }
        match set.first().1.verb.as_str() {
            "index" | "embed" => indexed(&shards::merge_indexes(&set, output, &mut context.observer())?),
            _ => with_then(shards::merge_runs(&set, output, &mut context.observer())?, context),
        }
    }
}
