//! The options of coreference. The documentation of this type is the manual of the config file.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Rules, TypedCoreference};
use crate::{
    Coreference, Result,
    tagger::{Computing, Tagger},
};

/// The coreference resolver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CoreferenceKind {
    /// No coreference: each mention is its own chain.
    #[default]
    None,
    /// Rules over names, pronouns and descriptions.
    Rules,
}

impl CoreferenceKind {
    /// Opens the resolver; `None` for [`CoreferenceKind::None`]. `types` is the folder of a tagger whose types replace
    /// those of the mentions.
    ///
    /// # Errors
    /// Errors of the tagger's files.
    pub fn open(self, types: Option<&Path>) -> Result<Option<Box<dyn Coreference>>> {
        let coreference: Box<dyn Coreference> = match self {
            Self::None => return Ok(None),
            Self::Rules => Box::new(Rules),
        };
        Ok(Some(match types {
            Some(folder) => {
                let finder = Box::new(Tagger::open(folder, Computing::default())?);
                Box::new(TypedCoreference { coreference, finder })
            }
            None => coreference,
        }))
    }
}
