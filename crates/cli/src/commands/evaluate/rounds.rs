//! The options of significance tests.

use clap::Args;
use sporran_kilt::scores::significance;

/// Settings of the paired tests and the bootstrap intervals.
#[derive(Args)]
pub(crate) struct Rounds {
    /// Rounds of the significance tests
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    rounds: u32,
    /// Seed of the significance tests
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

impl Rounds {
    pub(crate) fn value(&self) -> significance::Rounds {
        significance::Rounds { count: self.rounds, seed: self.seed, ..Default::default() }
    }
}
