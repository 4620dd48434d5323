//! The shape of a neural semantic matching network, as its `config.json` has it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, Result, json};

/// The `model_type` in the `config.json` of a matching network.
pub const NSMN: &str = "nsmn";

/// The shape of a matching network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NsmnConfig {
    /// `nsmn`.
    pub model_type: String,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Width of a token's vector.
    pub embedding_size: usize,
    /// Cells of each direction of both LSTMs.
    pub hidden_size: usize,
    /// Width of the layers between them and before the labels.
    pub projection_size: usize,
    /// Share of the values before the labels that training drops.
    pub dropout: f64,
    /// Tokens of a text, at most.
    pub max_length: usize,
    /// The labels' names.
    pub labels: Vec<String>,
}

impl NsmnConfig {
    /// Reads the `config.json` of a folder.
    ///
    /// # Errors
    /// [`Error::Architecture`] where it is that of another model; those of reading a file.
    pub fn open(folder: &Path) -> Result<Self> {
        let path = folder.join("config.json");
        if Self::names(folder)? {
            let text = json::text(&path)?.unwrap_or_default();
            return json::parse(&path, &text);
        }
        Err(Error::Architecture { path, expected: NSMN, found: "another model".into() })
    }

    /// Checks the sizes against the number of values in the weights of `folder`, before anything of those sizes is made.
    pub(super) fn check(&self, folder: &Path, values: usize) -> Result<()> {
        let inputs = self.embedding_size.saturating_add(1);
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("embedding_size", self.embedding_size),
            ("hidden_size", self.hidden_size),
            ("projection_size", self.projection_size),
            ("max_length", self.max_length.saturating_sub(i32::MAX as usize)),
        ];
        let tables = [
            ("vocab_size", self.vocab_size.saturating_mul(self.embedding_size)),
            ("hidden_size", self.hidden_size.saturating_mul(inputs)),
            ("projection_size", self.projection_size.saturating_mul(self.hidden_size)),
        ];
        // Single sizes first, so that the error names the field that is wrong.
        for (field, needed) in sizes.into_iter().chain(tables) {
            if needed > values {
                return Err(Error::Config {
                    path: folder.join("config.json"),
                    field: field.into(),
                    expected: format!("a size that fits the weights, which have {values} values"),
                    found: format!("one that needs {needed}"),
                });
            }
        }
        Ok(())
    }

    /// Whether a folder's `config.json` is that of a matching network.
    ///
    /// # Errors
    /// Those of reading a file.
    pub fn names(folder: &Path) -> Result<bool> {
        is_of_type(folder, NSMN)
    }
}

/// Whether a folder's `config.json` has this `model_type`.
pub(super) fn is_of_type(folder: &Path, name: &str) -> Result<bool> {
    #[derive(Deserialize)]
    struct Kind {
        model_type: Option<String>,
    }
    let path = folder.join("config.json");
    let Some(text) = json::text(&path)? else { return Ok(false) };
    let kind: Kind = json::parse(&path, &text)?;
    Ok(kind.model_type.as_deref() == Some(name))
}
