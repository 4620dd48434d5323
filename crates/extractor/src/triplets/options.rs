//! The training options of models that generate facts. The documentation of these types is the manual of the config file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_config::Document;
use sporran_training::{TrainingOptions, session::ShapeOptions};

use super::TripletOptions;
use crate::{
    model_check::{TRIPLETS, check_start},
    relations::{Properties, Property, Thresholds},
};

/// `[relations.seq2seq]`: an encoder-decoder that generates the facts of a sentence (REBEL; Huguet Cabot and
/// Navigli 2021), constrained to spans of the sentence and known relations. Training saves the keys below in
/// the model's folder. For other folders, such as released checkpoints, `sporran run` uses these keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TripletTraining {
    /// The folder of the initial BART or T5, whose tokenizer has the tokens `<triplet>`, `<subj>` and
    /// `<obj>`. Without it, training starts from a T5 with random weights.
    pub from: Option<PathBuf>,
    /// `[relations.seq2seq.shape]`: the sizes of a model with random weights. Its vocabulary is trained on
    /// the annotated documents.
    pub shape: ShapeOptions,
    /// The largest number of tokens of a sentence. Longer sentences are truncated.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: usize,
    /// The largest number of tokens to generate for a sentence, including the end token.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_written: usize,
    /// The number of beams. A fact's confidence is the share of the beams' probability that contains it.
    #[schemars(range(min = 1))]
    pub beams: usize,
    /// `[[relations.seq2seq.properties]]`: the names of properties in the generated text. Training takes its
    /// properties from the annotations. The default name of a property is in lower case, such as
    /// `place of birth` for `PLACE_OF_BIRTH`.
    pub properties: Vec<WrittenProperty>,
    /// `[relations.seq2seq.optimizer]`: epochs, batches, learning rate.
    pub optimizer: TrainingOptions,
}

/// `[[relations.seq2seq.properties]]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct WrittenProperty {
    /// The name of the property, such as `PLACE_OF_BIRTH`.
    pub name: String,
    /// The id of the property in KnowledgeNet's files. The default is its name. Training uses the id of the annotations.
    pub id: Option<String>,
    /// Whether the property is symmetric, such as spouses. Training takes this from the annotations.
    #[serde(default)]
    pub symmetric: bool,
    /// The relation names of the property in generated text. Training uses the first.
    pub relations: Vec<String>,
}

impl Default for TripletTraining {
    fn default() -> Self {
        Self {
            from: None,
            shape: ShapeOptions::default(),
            max_tokens: 256,
            max_written: 128,
            beams: 4,
            properties: Vec::new(),
            optimizer: TrainingOptions::default(),
        }
    }
}

impl TripletTraining {
    /// Reports wrong values and, before a training, a missing initial model. `key` is the path of the table.
    pub fn check(&self, key: &str, is_training: bool, document: &mut Document<'_>) {
        let key = |name: &str| format!("{key}.{name}");
        if let Some(from) = self.from.as_ref().filter(|_| is_training) {
            check_start(TRIPLETS, &key("from"), from, document);
        }
        let shape = &self.shape;
        for (name, value, least) in [
            ("max-tokens", self.max_tokens, 4),
            ("max-written", self.max_written, 8),
            ("beams", self.beams, 1),
            ("shape.d-model", shape.d_model, 1),
            ("shape.d-ff", shape.d_ff, 1),
            ("shape.d-kv", shape.d_kv, 1),
            ("shape.heads", shape.heads, 2),
            ("shape.encoder-layers", shape.encoder_layers, 1),
            ("shape.decoder-layers", shape.decoder_layers, 1),
        ] {
            if value < least {
                document.report_key(&key(name), format!("expected at least {least}, found {value}"));
            }
        }
        for (at, property) in self.properties.iter().enumerate() {
            if property.relations.iter().all(|relation| relation.trim().is_empty()) {
                let message = format!("expected at least one of `relations` for `{}`", property.name);
                document.report_key(&key("properties"), message);
            }
            if self.properties[..at].iter().any(|other| other.name == property.name) {
                document.report_key(&key("properties"), format!("found `{}` twice", property.name));
            }
        }
        if let Err(error) = self.optimizer.check() {
            document.report_key(&key("optimizer"), error.to_string());
        }
    }

    /// The options of a folder without a file of them; `None` if the config has no property.
    #[must_use]
    pub fn of_config(&self) -> Option<TripletOptions> {
        let property = |written: &WrittenProperty| Property {
            id: written.id.clone().unwrap_or_else(|| written.name.clone()),
            name: written.name.clone(),
            symmetric: written.symmetric,
        };
        let properties = Properties::new(self.properties.iter().map(property).collect());
        (!properties.is_empty()).then(|| self.of_properties(properties))
    }

    /// The options of a model with these properties.
    pub(super) fn of_properties(&self, properties: Properties) -> TripletOptions {
        let relations = |property: &Property| {
            let written = self.properties.iter().find(|written| written.name == property.name);
            match written {
                Some(written) => written.relations.clone(),
                None => vec![property.name.to_lowercase().replace('_', " ")],
            }
        };
        TripletOptions {
            version: TripletOptions::VERSION,
            relations: properties.all().iter().map(relations).collect(),
            thresholds: Thresholds::even(properties.len(), 0.5),
            properties,
            max_tokens: self.max_tokens,
            max_written: self.max_written,
            beams: self.beams,
        }
    }
}
