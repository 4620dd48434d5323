//! The sizes of the BiLSTM and the file with its settings.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::jsonl;
use sporran_transformers::LstmOptions;

use super::features::{PairFeatures, TAGS};
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
    Max,
    /// The mean of each value.
    #[default]
    Mean,
}

/// The pairs of mentions that are classified for a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pairing {
    /// Pairs of the property's types (Mesquita et al., 2019, table 2). For a property that KnowledgeNet does not have, pairs
    /// whose types at least one in twenty of its facts has. A pronoun has all types of its gazetteers.
    ByType,
    /// All pairs.
    #[default]
    All,
}

/// The treatment of the two directions of a pair of mentions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Directions {
    /// Each direction has its own probability.
    #[default]
    Independent,
    /// A symmetric property has the mean of both. Otherwise the less probable direction is removed.
    Joint,
}

/// The inputs and sizes of the BiLSTM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct BilstmShape {
    /// The hashed word table, trained from scratch. It is used without `relations.bilstm.vectors`.
    pub words: WordFeatures,
    /// The number of cells of each direction. A layer has the values of both.
    #[schemars(range(min = 1))]
    pub hidden: usize,
    /// The number of layers.
    #[schemars(range(min = 1), extend("x-unit" = "layers"))]
    pub layers: usize,
    /// The dropout of inputs, between layers, and of pooled states.
    #[schemars(range(min = 0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// The number of tokens before the first and after the second mention of a pair that are read. Without it the whole sentence
    /// is.
    #[schemars(extend("x-unit" = "tokens"))]
    pub around: Option<usize>,
    /// The pooling of hidden states: `max` or `mean`.
    pub pooling: Pooling,
    /// The pairs that are classified for a property: `by-type` or `all`.
    pub pairs: Pairing,
    /// Whether features 5 to 8 are inputs: confidences, distances and dependency paths of coreference. Features 7 and 8 also need
    /// `parses`.
    pub coreference: bool,
    /// Whether features 9 and 10 are joined to the output of the LSTM: the types of both links, and the properties of the
    /// knowledge base between them.
    pub knowledge: bool,
}

impl Default for BilstmShape {
    fn default() -> Self {
        Self {
            words: WordFeatures { buckets: 1 << 14, width: 32 },
            hidden: 250,
            layers: 2,
            dropout: 0.0,
            around: None,
            pooling: Pooling::Mean,
            pairs: Pairing::All,
            coreference: true,
            knowledge: true,
        }
    }
}

impl BilstmShape {
    /// Rejects sizes of 0 and wrong shares.
    ///
    /// # Errors
    /// The option's name and the expected value.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let counts = [
            ("words.buckets", self.words.buckets),
            ("words.width", self.words.width),
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

/// An encoder whose layers are inputs besides the words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderWords {
    /// The number of mixed layers, without the embeddings.
    pub layers: usize,
    /// The size of its hidden states.
    pub width: usize,
    /// How the states of a word's pieces become one. A model without it was trained on first pieces and is refused.
    pub pieces: Pieces,
}

/// How the states of a word's pieces become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pieces {
    /// Their mean.
    Mean,
}

/// The values of features 9 and 10, in the order of their inputs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KnownValues {
    /// Types of entities. Those of the subject come first, then those of the object.
    pub types: Vec<String>,
    /// Properties from the subject to the object.
    pub properties: Vec<String>,
}

impl KnownValues {
    /// The number of inputs.
    #[must_use]
    pub fn width(&self) -> usize {
        2 * self.types.len() + self.properties.len()
    }
}

/// The contents of the settings file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BilstmFile {
    /// The version of this file; 2.
    pub version: u32,
    /// Inputs and sizes.
    pub shape: BilstmShape,
    /// Whether features of dependency parses are inputs.
    pub parsed: bool,
    /// The size of the word vectors in the folder, if there are any. They replace the hashed word table.
    pub vectors: Option<usize>,
    /// The encoder in the folder `encoder`, if its layers are inputs.
    pub encoder: Option<EncoderWords>,
    /// The values of features 9 and 10; empty without them.
    pub known: KnownValues,
    /// How the two directions of a pair are decided.
    pub directions: Directions,
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
    pub const VERSION: u32 = 2;

    /// A model of a shape without vectors, encoder and knowledge, which reads all pairs. All thresholds are 0.5.
    #[must_use]
    pub fn new(shape: &BilstmShape, properties: &Properties) -> Self {
        let even = Thresholds::even(properties.len(), 0.5);
        Self {
            version: Self::VERSION,
            shape: BilstmShape { pairs: Pairing::All, ..shape.clone() },
            parsed: false,
            vectors: None,
            encoder: None,
            known: KnownValues::default(),
            directions: Directions::default(),
            kinds: Vec::new(),
            properties: properties.clone(),
            thresholds: even.clone(),
            link_thresholds: even,
        }
    }

    /// The same model for pairs of these types.
    #[must_use]
    pub fn with_kinds(mut self, kinds: Vec<Vec<(EntityType, EntityType)>>) -> Self {
        self.shape.pairs = if kinds.is_empty() { Pairing::All } else { Pairing::ByType };
        Self { kinds, ..self }
    }

    /// The features of a pair.
    pub(super) fn pair_features(&self) -> PairFeatures {
        PairFeatures { parsed: self.parsed, coreference: self.shape.coreference }
    }

    /// The size of a word's vector.
    pub(super) fn word_width(&self) -> usize {
        self.vectors.unwrap_or_else(|| self.shape.words.inputs())
    }

    /// The size of a token's vector without features of the pair: the word, the encoder's state, feature 1.
    pub(super) fn token_width(&self) -> usize {
        self.word_width() + self.encoder.as_ref().map_or(0, |words| words.width) + TAGS
    }

    /// The inputs of the last layer: the pooled states of the LSTM, then features 9 and 10.
    pub(super) fn joined_width(&self) -> usize {
        2 * self.shape.hidden + self.known.width()
    }

    /// Two outputs a property: its text, its links.
    pub(super) fn outputs(&self) -> usize {
        2 * self.properties.len()
    }

    pub(super) fn lstm(&self) -> LstmOptions {
        let BilstmShape { hidden, layers, dropout, .. } = self.shape;
        LstmOptions { inputs: self.token_width() + self.pair_features().width(), hidden, layers, dropout }
    }

    /// Reads the file of a folder.
    ///
    /// # Errors
    /// Read errors; [`Error::Model`] for another version or inconsistent parts.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(BILSTM);
        let wrong = |expected: String, found: String| {
            Err(Error::Model { what: path.display().to_string(), expected, found })
        };
        let version: AnyVersion = jsonl::read_json(&path)?;
        if version.version != Self::VERSION {
            return wrong(format!("version {}", Self::VERSION), version.version.to_string());
        }
        let file: Self = jsonl::read_json(&path)?;
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

/// The version of a file whose other fields are those of any version.
#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}
