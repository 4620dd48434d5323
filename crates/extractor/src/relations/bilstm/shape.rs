//! The sizes of the BiLSTM and the file with its settings.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::LstmOptions;

use super::layout;
use crate::{
    EntityType,
    error::{Error, Result},
    relations::{Properties, Thresholds},
    tagger::WordFeatures,
};

/// The file of a model's folder with its settings.
pub const BILSTM: &str = "bilstm.json";

/// The pooling of a pair's hidden states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The maximum of each value.
    #[default]
    Max,
    /// The mean of each value.
    Mean,
}

/// The pairs of mentions that are classified for a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Pairs whose types cover at least one in twenty of the property's facts.
    ByType,
    /// All pairs.
    #[default]
    All,
}

/// The inputs and sizes of the BiLSTM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BilstmShape {
    /// The hashed word table, trained from scratch. An encoder replaces it.
    pub words: WordFeatures,
    /// The size that an encoder's hidden states are projected to.
    #[schemars(range(min = 1))]
    pub projected: usize,
    /// The size of each embedded feature.
    #[schemars(range(min = 1))]
    pub width: usize,
    /// The hidden size of each direction.
    #[schemars(range(min = 1))]
    pub hidden: usize,
    /// The number of layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The dropout of inputs, between layers, and of pooled states.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The number of context tokens before the first and after the second mention of a pair.
    #[schemars(extend("x-unit" = "tokens"))]
    pub around: usize,
    /// The pooling of hidden states: `max` or `mean`.
    pub pooling: Pooling,
    /// The pairs that are classified for a property: `by-type` or `all`.
    pub pairs: Pairing,
    /// Whether the form of a mention (a name, a pronoun) is an input, in addition to the type of its chain.
    pub enriched_types: bool,
    /// Whether the types of possible entities, and the knowledge base's properties between them, are inputs.
    pub knowledge: bool,
    /// Whether the confidences of coreference and links, and the distance of coreference, are inputs.
    pub confidence: bool,
}

impl Default for BilstmShape {
    fn default() -> Self {
        Self {
            words: WordFeatures { buckets: 1 << 14, width: 32 },
            projected: 96,
            width: 8,
            hidden: 500,
            layers: 2,
            dropout: 0.4,
            around: 8,
            pooling: Pooling::Max,
            pairs: Pairing::All,
            enriched_types: true,
            knowledge: true,
            confidence: true,
        }
    }
}

impl BilstmShape {
    /// The size of a word's vector.
    pub(super) fn word_width(&self, encoder: bool) -> usize {
        if encoder { self.projected } else { self.words.inputs() }
    }

    /// The size of a token's vector without features of the pair.
    pub(super) fn token_width(&self, encoder: bool) -> usize {
        self.word_width(encoder) + layout::TOKEN_SLOTS * self.width + layout::TOKEN_NUMBERS
    }

    pub(super) fn lstm(&self, encoder: bool) -> LstmOptions {
        let pair = layout::PAIR_SLOTS * self.width + layout::PAIR_NUMBERS;
        LstmOptions {
            inputs: self.token_width(encoder) + pair,
            hidden: self.hidden,
            layers: self.layers,
            dropout: self.dropout,
        }
    }

    /// Rejects sizes of 0 and wrong shares.
    ///
    /// # Errors
    /// The option's name and the expected value.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let counts = [
            ("words.buckets", self.words.buckets),
            ("words.width", self.words.width),
            ("projected", self.projected),
            ("width", self.width),
            ("hidden", self.hidden),
            ("layers", self.layers),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err((name, "expected at least 1, found 0".into()));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(("dropout", format!("expected a number from 0 to below 1, found {}", self.dropout)));
        }
        Ok(())
    }
}

/// The encoder whose hidden states replace the word table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderWords {
    /// The number of mixed layers, embeddings included.
    pub layers: usize,
    /// The size of its hidden states.
    pub width: usize,
}

/// The contents of the settings file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BilstmFile {
    /// The version of this file; 1.
    pub version: u32,
    /// Inputs and sizes.
    pub shape: BilstmShape,
    /// The encoder in the folder `encoder`, if words are its hidden states.
    pub encoder: Option<EncoderWords>,
    /// For each property the types of subjects and objects that are classified; empty for all.
    pub kinds: Vec<Vec<(EntityType, EntityType)>>,
    /// The possible properties.
    pub properties: Properties,
    /// A property is predicted from this probability on.
    pub thresholds: Thresholds,
    /// The links of a property are included from this probability on.
    pub link_thresholds: Thresholds,
}

impl BilstmFile {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] for another version or inconsistent parts.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(BILSTM);
        let file: Self = jsonl::read_json(&path)?;
        let wrong = |expected: String, found: String| {
            Err(Error::Model { what: path.display().to_string(), expected, found })
        };
        if file.version != Self::VERSION {
            return wrong(format!("version {}", Self::VERSION), file.version.to_string());
        }
        let labels = file.properties.len();
        let counts = [file.thresholds.all().len(), file.link_thresholds.all().len()];
        let typed = file.shape.pairs == Pairing::ByType;
        if labels == 0 || counts != [labels; 2] || file.kinds.len() != if typed { labels } else { 0 } {
            let expected =
                format!("{labels} thresholds of facts and of links, and types for each if by type");
            return wrong(expected, format!("{counts:?} and {}", file.kinds.len()));
        }
        if let Err((name, message)) = file.shape.check() {
            return wrong(format!("a usable `shape.{name}`"), message);
        }
        Ok(file)
    }

    /// Writes the file into a folder.
    ///
    /// # Errors
    /// Write errors.
    pub fn save(&self, folder: &Path) -> Result<()> {
        Ok(jsonl::write(folder.join(BILSTM), &self.bytes())?)
    }

    /// The contents of the file.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // Structs of strings and finite numbers are always valid JSON.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }
}
