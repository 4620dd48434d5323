//! The options of significance tests.

use clap::Args;
use sporran_kilt::scores::significance;

use crate::error::{Error, Result};

/// Settings of the paired tests and the bootstrap intervals.
#[derive(Args)]
pub(crate) struct Rounds {
    /// Rounds of the significance tests [default: 10000]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Seed of the significance tests [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl Rounds {
    pub(crate) fn value(&self) -> significance::Rounds {
        let usual = significance::Rounds::default();
        let (count, seed) = (self.rounds.unwrap_or(usual.count), self.seed.unwrap_or(usual.seed));
        significance::Rounds { count, seed, ..usual }
    }

    /// Checks that the options are not given where nothing is tested.
    pub(super) fn check_unused(&self) -> Result<()> {
        match (self.rounds, self.seed) {
            (None, None) => Ok(()),
            (Some(_), _) => Err(Error::Usage("--rounds: expected --against, which is tested".into())),
            _ => Err(Error::Usage("--seed: expected --against, which is tested".into())),
        }
    }
}
