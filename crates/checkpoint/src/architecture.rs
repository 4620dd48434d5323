//! The facts about an architecture that opening a folder needs. Each architecture states them next to its config.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    error::{Error, Result},
    parameters::Parameter,
    tokens::TokenFields,
};

/// How a `config.json` names its architecture.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ModelKind {
    /// The architecture's name.
    pub model_type: Option<String>,
    /// The classes of `transformers` that the weights were saved from, which tell a body from a body with a head.
    #[serde(default)]
    pub architectures: Option<Vec<String>>,
}

/// An embedding table and the other names of the same tensor in checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Embedding {
    /// The name of the table in the model.
    pub name: &'static str,
    /// Other names of the same values.
    pub others: &'static [&'static str],
    /// The head's name, where the config shares the table with the head.
    pub tied_head: Option<&'static str>,
}

fn too_large(field: String, expected: &str, found: impl ToString) -> Error {
    let (path, expected, found) = ("config.json".into(), expected.into(), found.to_string());
    Error::Config { path, field, expected, found }
}

/// The config of an architecture. The model's definition is the one list of its tensors; the rest says how
/// checkpoints may differ from that list.
pub trait Architecture {
    /// The `model_type` of a `config.json`.
    fn model_type(&self) -> &'static str;

    /// The class of `transformers` that a `config.json` names in `architectures`.
    fn class(&self) -> &'static str;

    /// Checks constraints beyond the fields' types.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) for a value that cannot be used.
    fn validate(&self) -> Result<()>;

    /// The fields that count layers, with their values.
    fn layers(&self) -> Vec<(&'static str, usize)>;

    /// The fields of the `config.json`, without those that name the architecture.
    fn fields(&self) -> Value;

    /// The text of the `config.json` that describes the model, to `transformers` too.
    fn to_json(&self) -> Value {
        let mut value = self.fields();
        if let Value::Object(fields) = &mut value {
            fields.insert("model_type".into(), json!(self.model_type()));
            fields.insert("architectures".into(), json!([self.class()]));
        }
        value
    }

    /// The tensors that the model is built from, in the order of its definition.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) where a value cannot be used.
    fn parameters(&self) -> Result<Vec<Parameter>>;

    /// Checks that no field is larger than any size that a model has, before products of sizes are made.
    ///
    /// # Errors
    /// [`Error::Config`] with the field.
    fn check_sizes(&self) -> Result<()> {
        const MOST: u64 = i32::MAX as u64;
        let Value::Object(fields) = self.fields() else { return Ok(()) };
        match fields.into_iter().find(|(_, value)| value.as_u64().is_some_and(|value| value > MOST)) {
            Some((field, value)) => Err(too_large(field, &format!("at most {MOST}"), value)),
            None => Ok(()),
        }
    }

    /// Checks that there are no more layers than a file has tensors, before anything is made for each layer.
    ///
    /// # Errors
    /// [`Error::Config`] with the field.
    fn check_layers(&self, tensors: usize) -> Result<()> {
        match self.layers().into_iter().find(|(_, layers)| *layers > tensors) {
            Some((field, layers)) => {
                let expected = format!("no more layers than the weights have tensors, {tensors}");
                Err(too_large(field.into(), &expected, layers))
            }
            None => Ok(()),
        }
    }

    /// The model's name for the tensor that a checkpoint calls `stored`.
    fn canonical(&self, stored: &str) -> String {
        stored.into()
    }

    /// The embedding table, where checkpoints may hold it under several names.
    fn embedding(&self) -> Option<Embedding> {
        None
    }

    /// Gives the model a separate head if the config ties the head to the embeddings.
    fn untie(&mut self) {}

    /// Makes the model what the weights are where its config may stand for several: a body alone, if its head is one of
    /// pre-training that the weights lack, since embedders often name the class of the model that they were tuned from; or one
    /// whose experts are stored together. `has` says whether the weights have a tensor, in the model's naming, whose name begins
    /// so. Returns whether the model has changed.
    fn adapt_to_weights(&mut self, _has: &dyn Fn(&str) -> bool) -> bool {
        false
    }

    /// Whether the parameter `name` is fresh where a checkpoint does not have it.
    fn is_optional(&self, _name: &str) -> bool {
        false
    }

    /// Whether checkpoints hold the tensor `name` (in the model's naming) though no computation uses it.
    fn is_ignorable(&self, _name: &str) -> bool {
        false
    }

    /// The default special tokens if neither JSON file of a folder names them; none for an architecture that does not
    /// generate.
    fn default_tokens(&self) -> Option<TokenFields> {
        None
    }
}
