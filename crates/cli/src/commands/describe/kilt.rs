//! Statistics of KILT's task files.

use std::path::PathBuf;

use serde_json::Value;
use sporran_kilt::statistics::records;

use super::{Layout, has, outcome};
use crate::{error::Result, outcome::Outcome};

pub(super) const LAYOUT: Layout = Layout {
    name: "kilt",
    about: "KILT's task files: sizes, averages, pages by datasets, BLEU (table 6, figures 2 and 5)",
    detects,
    describe,
};

fn detects(first: &Value) -> bool {
    // KILT's test file of TriviaQA has ids alone.
    let is_id = first.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key("id"));
    is_id || has(first, &["id", "output"]) || has(first, &["id", "input"])
}

fn describe(files: &[PathBuf]) -> Result<Outcome> {
    outcome(&LAYOUT, &records::of_records(files)?)
}
