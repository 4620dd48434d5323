//! Statistics of KoRC's files.

use std::path::PathBuf;

use serde_json::Value;
use sporran_kilt::statistics::korc;

use super::{Layout, has, outcome};
use crate::{error::Result, outcome::Outcome};

pub(super) const LAYOUT: Layout = Layout {
    name: "korc",
    about: "KoRC's files, a split each: sizes (table 1), trigram prefixes of questions (figure 3)",
    detects,
    describe,
};

fn detects(first: &Value) -> bool {
    has(first, &["id", "question"]) && (has(first, &["context"]) || has(first, &["text"]))
}

fn describe(files: &[PathBuf]) -> Result<Outcome> {
    outcome(&LAYOUT, &korc::of_files(files)?)
}
