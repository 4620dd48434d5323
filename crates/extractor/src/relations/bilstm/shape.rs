//! The sizes of the BiLSTM and what stands beside its weights.

use std::path::Path;

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

/// The file of a model's folder that says what it is.
pub const BILSTM: &str = "bilstm.json";

/// How the states of a pair's tokens become one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// The greatest of each value.
    #[default]
    Max,
    /// The mean of each value.
    Mean,
}

/// Which pairs of mentions are asked for a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Those whose types are the types of one in twenty of the property's facts at least.
    ByType,
    /// All.
    #[default]
    All,
}

/// What the BiLSTM reads of a sentence, and its sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BilstmShape {
    /// The table of words and their parts, which are learned from nothing. An encoder takes its place.
    pub words: WordFeatures,
    /// The width that an encoder's states are projected to.
    pub projected: usize,
    /// The width of each feature that is embedded.
    pub width: usize,
    /// Cells of each direction.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// The share of inputs, of states between layers and of pooled states that training drops.
    pub dropout: f64,
    /// Tokens that are read before the first and after the second mention of a pair.
    pub around: usize,
    /// How the states of the tokens become one vector: `max` or `mean`.
    pub pooling: Pooling,
    /// Which pairs are asked for a property: `by-type` or `all`.
    pub pairs: Pairing,
    /// Whether it is read how a mention is put (a name, a pronoun), beside the type of its chain.
    pub enriched_types: bool,
    /// Whether the types of what names may mean are read, and the properties that a knowledge base has between that.
    pub knowledge: bool,
    /// Whether it is read how sure and how far coreference is, and how sure links are.
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
    /// The width of a word's vector.
    pub(super) fn word_width(&self, encoder: bool) -> usize {
        if encoder { self.projected } else { self.words.inputs() }
    }

    /// The width of what a token says by itself, whatever pair is asked for.
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

    /// Refuses sizes of 0 and shares that are none.
    ///
    /// # Errors
    /// With the option's name and what was expected.
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

/// The encoder whose layers stand in the place of learned words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderWords {
    /// Its layers that are mixed, the embeddings among them.
    pub layers: usize,
    /// The width of its states.
    pub width: usize,
}

/// What a folder of this model has beside its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BilstmFile {
    /// The layout of this file; 1.
    pub version: u32,
    /// What it reads, and its sizes.
    pub shape: BilstmShape,
    /// The encoder in the folder `encoder`, where words are its states.
    pub encoder: Option<EncoderWords>,
    /// For each property the types of subjects and objects that it is asked of; empty where that is all.
    pub kinds: Vec<Vec<(EntityType, EntityType)>>,
    /// What may hold.
    pub properties: Properties,
    /// The probability from which a property counts as stated.
    pub thresholds: Thresholds,
    /// The probability from which its links are told.
    pub link_thresholds: Thresholds,
}

impl BilstmFile {
    /// The layout that is written.
    pub const VERSION: u32 = 1;

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// Those of reading, and [`Error::Model`] where it is of another layout or its parts do not fit each other.
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
    /// Where the disk refuses.
    pub fn save(&self, folder: &Path) -> Result<()> {
        Ok(jsonl::write(folder.join(BILSTM), &self.bytes())?)
    }

    /// What the file holds.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // A struct of strings and finite numbers always has a form in JSON.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }
}
