//! Statistics of mappings.

use std::path::PathBuf;

use serde_json::Value;
use sporran_kilt::statistics::mappings;

use super::{Layout, has, outcome};
use crate::{error::Result, outcome::Outcome};

pub(super) const LAYOUT: Layout = Layout {
    name: "mapping",
    about: "summaries that `convert map --json` prints: BLEU and the share that is discarded (figure 5)",
    detects,
    describe,
};

fn detects(first: &Value) -> bool {
    has(first, &["outputs_below", "histogram"])
}

fn describe(files: &[PathBuf]) -> Result<Outcome> {
    outcome(&LAYOUT, &mappings::of_mappings(files)?)
}
