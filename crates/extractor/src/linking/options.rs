//! The options of linkers. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;

use super::{AliasTable, Linker, NamesOptions};
use crate::Result;

/// Options of the linker.
///
/// A candidate entity of a name has the weight `count * exp(-6 * (1 - similarity) + context * fit)`. `count`
/// is the frequency of the name for the entity. `similarity` compares the name with the entity's name. `fit`
/// is the tf-idf cosine of the text and the entity's description. If some candidates have facts with
/// confidently linked entities of the document, the others are weighted by `exp(-coherence)`. A link's
/// confidence is its entity's share of all weights and `unknown`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LinkerOptions {
    /// Links with a lower confidence, 0 to 1, are withheld.
    #[schemars(range(min = 0, max = 1))]
    pub threshold: f32,
    /// The weight of the entity's fit with the text.
    #[schemars(range(min = 0, max = 100))]
    pub context: f32,
    /// A pseudo-count for meanings outside of the knowledge base, added to the counted ones.
    #[schemars(range(min = 0, max = 100))]
    pub unknown: f32,
    /// The weight of a fact between an entity and others in the document.
    #[schemars(range(min = 0, max = 100))]
    pub coherence: f32,
    /// The smallest similarity, 0 to 1, of a known name that replaces an unknown one. 1 switches this off and
    /// saves an index over the words of all names.
    #[schemars(range(min = 0, max = 1))]
    pub similarity: f32,
}

impl Default for LinkerOptions {
    fn default() -> Self {
        Self { threshold: 0.4, context: 6.0, unknown: 0.1, coherence: 1.0, similarity: 0.3 }
    }
}

/// `[linker]`: the table of names, and the thresholds of links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinkingOptions {
    /// The file of the table of names. Training writes it, and `sporran run` reads it.
    pub aliases: PathBuf,
    /// `[linker.decision]`: the thresholds of links.
    #[serde(default)]
    pub decision: LinkerOptions,
    /// `[[linker.names]]`: sources of names in training, in addition to the links of `[annotations]`.
    #[serde(default)]
    pub names: Vec<NamesOptions>,
    /// The types of entities, an input of `[relations.bilstm]`: a JSON object of ids with lists of types.
    pub types: Option<PathBuf>,
    /// The folder or file of a knowledge base. Its relations between two linked mentions are an input of
    /// `[relations.bilstm]`.
    pub facts: Option<PathBuf>,
    /// Whether a mention without a link takes one from outside its coreference chain. It takes that with the greatest
    /// product of the link's confidence and the confidence that the mention belongs to the other chain (Mesquita et al.,
    /// 2019, Baseline 4).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside_links: bool,
}

impl LinkingOptions {
    /// Reports missing files, without loading a table. `key` is the path of the table.
    pub fn check(&self, key: &str, document: &mut Document<'_>) {
        for (name, path) in [("types", &self.types), ("facts", &self.facts)] {
            if let Some(path) = path.as_ref().filter(|path| !path.exists()) {
                document.report_key(&format!("{key}.{name}"), format!("no file {}", path.display()));
            }
        }
    }

    /// Opens the linker with the table of names that training wrote.
    ///
    /// # Errors
    /// Errors of reading the table or the facts.
    pub fn open(&self) -> Result<Linker> {
        self.with_table(AliasTable::load(&self.aliases)?)
    }

    /// Opens the linker with another table of names.
    ///
    /// # Errors
    /// Errors of reading the facts.
    pub fn with_table(&self, table: AliasTable) -> Result<Linker> {
        let linker = Linker::open(table, &self.decision, self.facts.as_deref())?;
        Ok(linker.with_outside_links(self.outside_links))
    }
}

/// `[linker]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NamedEntities {
    /// `[[linker.names]]`: the sources of names of entities.
    pub names: Vec<NamesOptions>,
    /// `[linker.decision]`: the weights of candidates, and the thresholds of links.
    #[serde(default)]
    pub decision: LinkerOptions,
    /// The folder or file of a knowledge base. A candidate is more likely if it has facts with other entities of the text.
    pub facts: Option<PathBuf>,
}

impl NamedEntities {
    /// Reports missing tables and files, without reading a name. `key` is the path of the table.
    pub fn check(&self, key: &str, document: &mut Document<'_>) {
        let key = |name: &str| format!("{key}.{name}");
        if self.names.is_empty() {
            document.report_key(&key("names"), "expected at least one `[[linker.names]]`");
        }
        for (at, names) in self.names.iter().enumerate().filter(|(_, names)| !names.file.exists()) {
            let key = key(&format!("names[{at}].file"));
            document.report_key(&key, format!("no file or folder {}", names.file.display()));
        }
        if let Some(path) = self.facts.as_ref().filter(|path| !path.exists()) {
            document.report_key(&key("facts"), format!("no file or folder {}", path.display()));
        }
    }

    /// Builds the table of names and opens the linker.
    ///
    /// # Errors
    /// Errors of reading the names or the facts.
    pub fn open(&self) -> Result<Linker> {
        Linker::open(AliasTable::build([], &self.names)?, &self.decision, self.facts.as_deref())
    }
}
