//! `sporran convert korc`.

use clap::Args;
use sporran_pipeline::{Config, kbqa};

use crate::{
    commands::ConfigArgs,
    error::Result,
    interrupt::{self, Kept},
    outcome::{Context, Outcome},
};

/// `sporran convert korc`
#[derive(Args)]
#[command(after_help = "Example: sporran convert korc configs/korc/minikilt.toml")]
pub(crate) struct Korc {
    #[command(flatten)]
    config: ConfigArgs,
}

impl Korc {
    pub(crate) fn run(self, context: &Context) -> Result<Outcome> {
        let (path, overrides) = self.config.parts()?;
        let options = kbqa::BuildConfig::load(path, overrides)?;
        interrupt::keep(Kept::Folder(options.output.clone()));
        Outcome::of(&kbqa::build(&options, &mut context.observer())?)
    }
}
