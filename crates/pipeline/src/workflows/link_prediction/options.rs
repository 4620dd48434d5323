//! The options of embeddings and networks. The documentation of these types, of [`EmbeddingOptions`] and of
//! [`NetworkOptions`] is the manual of the config file.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::{Check, Document};
use sporran_kilt::{
    StagedFolder,
    jsonl::plain_json,
    kb::{KnowledgeBase, Part},
};
use sporran_reasoner::{
    embedding::{EmbeddingOptions, Storage},
    network::NetworkOptions,
};

use crate::{Result, config::Config};

/// A whole config of an embedding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LinksOptions {
    /// The name of the run's folder in `output`.
    pub name: String,
    /// The seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// The parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// The number format of the saved entity vectors: `f32` or `f16`.
    #[serde(default)]
    pub saved: Storage,
    /// `[data]`: the knowledge base.
    pub data: DataOptions,
    /// `[embedding]`: the model and its training.
    pub embedding: EmbeddingOptions,
    /// `[search]`: the search of hyperparameters.
    #[serde(default)]
    pub search: Option<SearchOptions>,
}

/// A whole config of a network over the graph of a knowledge base.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NetworkConfig {
    /// The name of the run's folder in `output`.
    pub name: String,
    /// The seed of all random choices.
    #[serde(default)]
    pub seed: u64,
    /// The parent folder of runs.
    #[serde(default = "crate::config::runs")]
    pub output: PathBuf,
    /// `[data]`: the knowledge base.
    pub data: DataOptions,
    /// `[network]`: the network and its training.
    pub network: NetworkOptions,
}

/// `[data]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DataOptions {
    /// A folder with `train.txt`, `valid.txt` and `test.txt` (or N-Triples, or Wikidata5M's files), or one file of triples.
    pub folder: PathBuf,
    /// For a knowledge base without a validation part: the share of the triples to hold out as one, drawn by `seed`. Every
    /// entity and relation keeps a training triple. The run's folder gets the knowledge base with its parts, `kb`, for
    /// `sporran evaluate links` and `sporran reason`.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub validation_share: f64,
    /// The same for the test part.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(range(min = 0, max = 1))]
    pub test_share: f64,
}

/// The default is left out of the keys of trainings.
fn is_zero(share: &f64) -> bool {
    *share == 0.0
}

/// `[search]`: trials with random settings from ranges. The first trial has the settings of the config. The
/// run's model is the best one on the validation part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SearchOptions {
    /// The number of trials, including the first.
    #[schemars(range(min = 1))]
    pub trials: usize,
    /// `[[search.range]]`
    pub range: Vec<RangeOptions>,
}

/// `[[search.range]]`: the range of a key: an interval, or a list of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RangeOptions {
    /// The key in `[embedding]`, such as `training.learning-rate`.
    pub key: String,
    /// The smallest number.
    pub low: Option<f64>,
    /// The largest number.
    pub high: Option<f64>,
    /// Whether the sampling is uniform in the logarithm.
    #[serde(default)]
    pub log: bool,
    /// The list of values, which have equal probability.
    #[serde(default)]
    pub among: Vec<serde_json::Value>,
}

impl Config for LinksOptions {
    const WORKFLOWS: &'static [&'static str] = &["link-prediction"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        self.data.check(document);
        Check::check(&self.embedding, "embedding", document);
        let Some(search) = &self.search else { return };
        for range in &search.range {
            if let Err(message) = range.check(self) {
                document.report_key("search.range", message);
            }
        }
    }
}

impl LinksOptions {
    /// The run's folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.output.join(&self.name)
    }
}

impl DataOptions {
    fn check(&self, document: &mut Document<'_>) {
        if !self.folder.exists() {
            let message = format!("no folder {}", self.folder.display());
            document.report_key("data.folder", message);
        }
        if self.validation_share + self.test_share >= 1.0 {
            let message =
                "expected a sum with `data.validation-share` below 1, to leave triples for the training";
            document.report_key("data.test-share", message.to_owned());
        }
    }

    fn holds_out(&self) -> bool {
        self.validation_share > 0.0 || self.test_share > 0.0
    }

    /// The knowledge base of a finished training, whose run has the folder `run`: its own if shares were held out.
    #[must_use]
    pub fn saved_in(&self, run: &Path) -> PathBuf {
        if self.holds_out() { run.join("kb") } else { self.folder.clone() }
    }

    /// Opens the knowledge base, and holds out the shares.
    ///
    /// # Errors
    /// Errors of files, and those of [`KnowledgeBase::hold_out`].
    pub(super) fn open(&self, seed: u64) -> Result<KnowledgeBase> {
        let mut kb = KnowledgeBase::open(&self.folder)?;
        if self.holds_out() {
            kb.hold_out(self.validation_share, self.test_share, seed)?;
        }
        for part in [Part::Valid, Part::Test] {
            let (unseen, all) = (kb.unseen(part), kb.triples(part).len());
            if unseen > 0 {
                tracing::warn!(
                    "{unseen} of the {all} triples of the part `{}` have an entity or a relation that no training triple has; they are \
                     ranked too, which lowers the scores",
                    part.name()
                );
            }
        }
        Ok(kb)
    }

    /// Saves a knowledge base with parts of its own in the run's folder. Its files number entities in another order, and
    /// later runs open them, so the result is that of the files.
    ///
    /// # Errors
    /// Errors of files.
    pub(super) fn saved(&self, kb: KnowledgeBase, run: &Path) -> Result<KnowledgeBase> {
        if !self.holds_out() {
            return Ok(kb);
        }
        let folder = run.join("kb");
        let staged = StagedFolder::create(&folder)?;
        kb.save(&staged.path())?;
        staged.commit()?;
        Ok(KnowledgeBase::open(&folder)?)
    }
}

impl Config for NetworkConfig {
    const WORKFLOWS: &'static [&'static str] = &["graph-network"];

    fn read(document: &mut Document<'_>) -> Option<Self> {
        document.read_root(&[])
    }

    fn check(&self, document: &mut Document<'_>) {
        self.data.check(document);
        Check::check(&self.network, "network", document);
    }
}

impl RangeOptions {
    fn check(&self, options: &LinksOptions) -> Result<(), String> {
        let key = &self.key;
        let values = match (self.low, self.high, self.among.as_slice()) {
            (Some(low), Some(high), []) => {
                if !(low < high && (!self.log || low > 0.0)) {
                    return Err(format!("`{key}`: expected `low` below `high`, and above 0 with `log`"));
                }
                vec![serde_json::json!(low), serde_json::json!(high)]
            }
            (None, None, [_, ..]) => self.among.clone(),
            _ => return Err(format!("`{key}`: expected either `low` and `high` or `among`")),
        };
        for value in values {
            self.set(&options.embedding, value)?;
        }
        Ok(())
    }

    /// The options with another value of the key.
    pub(super) fn set(
        &self,
        options: &EmbeddingOptions,
        value: serde_json::Value,
    ) -> Result<EmbeddingOptions, String> {
        let mut json = serde_json::to_value(options).map_err(|error| error.to_string())?;
        let mut place = &mut json;
        for part in self.key.split('.') {
            let Some(table) = place.as_object_mut() else {
                return Err(format!("`{}`: `{part}` is not in a table", self.key));
            };
            place = table.entry(part).or_insert(serde_json::Value::Null);
        }
        // Rounds a sampled number for an integer key.
        *place = match value.as_f64() {
            Some(number) if place.is_u64() => serde_json::json!(number.round() as u64),
            _ => value,
        };
        let changed: EmbeddingOptions = serde_json::from_value(json)
            .map_err(|error| format!("`{}`: {}", self.key, plain_json(&error.to_string())))?;
        match changed.mistakes().into_iter().next() {
            Some((key, message)) => Err(format!("`{key}`: {message}")),
            None => Ok(changed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::workflows::registry::workflow_of;

    fn load(text: &str, overrides: &[&str]) -> Result<LinksOptions> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, text.replace("HERE", &folder.path().display().to_string())).unwrap();
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        LinksOptions::load(&path, &overrides)
    }

    const CONFIG: &str = "workflow = \"link-prediction\"\nname = \"e\"\n[data]\nfolder = \"HERE\"\n[embedding]\nmodel = \"complex\"\ndim = 8\n\
                          [embedding.training]\nlearning-rate = 0.5\n";

    #[test]
    fn every_mistake_is_reported_with_its_key() {
        assert!(load(CONFIG, &[]).is_ok());
        let cases = [
            ("embedding.dim=7", "`embedding.dim`: expected an even number, found 7"),
            ("embedding.training.learning-rate=0", "`embedding.training.learning-rate`"),
            ("embedding.modell=1", "did you mean `model`?"),
            ("data.folder=nowhere", "`data.folder`: no folder nowhere"),
            ("data.validation-share=1.5", "`data.validation-share`"),
            ("search={trials=2,range=[{key=\"dim\",among=[7]}]}", "expected an even number"),
            ("search={trials=2,range=[{key=\"training.learning-rat\",low=1,high=2}]}", "learning-rat"),
            ("search={trials=2,range=[{key=\"dim\",low=4}]}", "either `low` and `high` or `among`"),
        ];
        for (wrong, expected) in cases {
            let message = load(CONFIG, &[wrong]).unwrap_err().to_string();
            assert!(message.contains(expected), "{wrong}: {message}");
        }
    }

    #[test]
    fn every_committed_config_is_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/kge");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                let overrides = ["data.folder=.".into()];
                let name = match workflow_of(&path, &overrides).unwrap().name {
                    "graph-network" => NetworkConfig::load(&path, &overrides).unwrap().name,
                    _ => LinksOptions::load(&path, &overrides).unwrap().name,
                };
                assert_eq!(path.file_stem().unwrap().to_str(), Some(name.as_str()));
                seen += 1;
            }
        }
        assert_eq!(seen, 31);
    }
}
