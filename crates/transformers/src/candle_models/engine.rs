//! The engine of a decoder-only model.

use std::{fmt, path::Path, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_checkpoint::{Error, GgufFile, ModelKind, Result, find_gguf, json};

use super::gguf::FILES;
use crate::{
    architectures::{
        ModelConfig,
        llama::Gguf,
        registry::{candle_only_names, is_candle_type},
    },
    checkpoint::CONFIG,
};

/// The engine of a decoder-only model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Engine {
    /// `packed` for the architectures that it has, `candle` for others.
    #[default]
    Auto,
    /// Sporran's own: batches without padding, beams, `int8`.
    Packed,
    /// The crate `candle-transformers`: more architectures, and GGUF files whose weights stay quantised. One sequence at a
    /// time, by greedy search or sampling.
    Candle,
}

impl Engine {
    /// The names, for errors.
    const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("packed", Self::Packed), ("candle", Self::Candle)];

    /// Whether the model of a folder or a GGUF file is opened by candle.
    ///
    /// # Errors
    /// Those of the settings; with `auto`, [`Error::Config`] for an architecture that no engine has, with those that there
    /// are.
    pub fn is_candle(self, model: &Path) -> Result<bool> {
        match self {
            Self::Packed => return Ok(false),
            Self::Candle => return Ok(true),
            Self::Auto => {}
        }
        let (unknown, found, is_known, known) = match find_gguf(model)? {
            Some(path) => {
                let name = GgufFile::open(&path)?.fields().text("general.architecture")?.to_owned();
                let known: Vec<String> = FILES.iter().map(|(known, ..)| format!("`{known}`")).collect();
                let is_known = FILES.iter().any(|(known, ..)| *known == name);
                (Gguf::open(&path).err(), name, is_known, known.join(", "))
            }
            None => {
                let path = model.join(CONFIG);
                let Some(text) = json::text(&path)? else { return Ok(false) };
                let name = json::parse::<ModelKind>(&path, &text)?.model_type.unwrap_or_default();
                let is_known = is_candle_type(&name);
                (ModelConfig::from_json(&path, &text).err(), name, is_known, candle_only_names())
            }
        };
        let Some(Error::Config { path, field, expected, found: named }) = unknown else { return Ok(false) };
        if !matches!(field.as_str(), "model_type" | "general.architecture") {
            return Ok(false);
        }
        if is_known {
            return Ok(true);
        }
        if named != "none" && named != format!("`{found}`") {
            // Another error about it, such as that of a model of two parts.
            return Ok(false);
        }
        let expected = format!("{expected}; or, with the engine `candle`, {known}");
        Err(Error::Config { path, field, expected, found: named })
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.into_iter().find(|(name, _)| *name == text);
        found
            .map(|(_, engine)| engine)
            .ok_or_else(|| format!("expected `auto`, `packed` or `candle`, found `{text}`"))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(_, engine)| engine == self);
        formatter.write_str(name.map_or("auto", |(name, _)| name))
    }
}
