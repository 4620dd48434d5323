//! `sporran convert sentences`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde_json::json;
use sporran_kilt::{counted, trex};

use crate::{
    error::Result,
    interrupt::{self, Kept},
    outcome::Outcome,
    paths,
};

/// `sporran convert sentences`
#[derive(Args)]
#[command(after_help = "Example:\n  \
        sporran convert sentences --properties properties.json --output to-annotate.json re-nlg_0-10000.json\n\
        \n\
        A property is `{\"propertyId\": \"15\", \"propertyName\": \"DATE_OF_BIRTH\", \"wikidata\": [\"P569\"], \"keywords\": [\"born\"]}`.\n\
        A sentence is fetched for it by an aligned fact of Wikidata or by a keyword (Mesquita et al., 2019, section 3.1).")]
pub(crate) struct Sentences {
    /// Files of T-REx; plain, .gz or .zst
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// The properties: a JSON array, or JSON lines
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    properties: PathBuf,
    /// Wikidata's properties with `id`, `label` and `aliases`, whose names become keywords
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    names: Option<PathBuf>,
    /// File to write in KnowledgeNet's layout; .gz and .zst compress; `-` is standard output
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    output: PathBuf,
}

impl Sentences {
    pub(crate) fn run(self) -> Result<Outcome> {
        for path in self.files.iter().chain([&self.properties]).chain(&self.names) {
            paths::file(path)?;
        }
        paths::not_read(&self.output, self.files.iter().chain([&self.properties]).chain(&self.names))?;
        let properties = trex::properties(&self.properties, self.names.as_deref())?;
        interrupt::keep(Kept::Output(self.output.clone()));
        let (counts, documents) = trex::fetch(&properties, &self.files, &self.output)?;
        let mut text = counted(documents, "document");
        for (name, counts) in &counts {
            let trex::FetchedCounts { sentences, aligned, keyword } = counts;
            text.push_str(&format!(
                "\n{name}: {}, {aligned} by alignment, {keyword} by keyword",
                counted(*sentences, "sentence")
            ));
        }
        Ok(Outcome::new(text, &json!({"documents": documents, "properties": counts}))?.aside())
    }
}
