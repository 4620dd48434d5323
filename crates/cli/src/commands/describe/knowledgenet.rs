//! Statistics of KnowledgeNet's files.

use std::path::PathBuf;

use serde_json::Value;
use sporran_kilt::statistics::knowledgenet;

use super::{Layout, has, outcome};
use crate::{error::Result, outcome::Outcome};

pub(super) const LAYOUT: Layout = Layout {
    name: "knowledgenet",
    about: "KnowledgeNet's documents: facts, sentences and relevant sentences by property (table 2)",
    detects,
    describe,
};

fn detects(first: &Value) -> bool {
    has(first, &["documentId", "passages"])
}

fn describe(files: &[PathBuf]) -> Result<Outcome> {
    outcome(&LAYOUT, &knowledgenet::of_documents(files)?)
}
