//! Settings of model folders that a config overrides.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A setting of a model's folder that the config overrides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    /// The folder's value.
    pub folder: String,
    /// The config's value.
    pub config: String,
}

/// Overrides by the path of the config's key, such as `retriever.max-tokens`.
pub type Overrides = BTreeMap<String, Override>;
