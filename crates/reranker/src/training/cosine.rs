//! The vectors of a frozen encoder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sporran_kilt::{Error, observe::Observer};

use super::{
    RerankerSession, RerankerTrainingKind,
    similarities::{WeightedSimilarities, write_similarities},
};
use crate::{Result, Saved};

/// `kind = "cosine"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EncoderOptions {
    /// The model's folder: a model of sentence-transformers, or an encoder, whose hidden states are averaged.
    pub from: PathBuf,
    /// The largest number of tokens of a text. A longer dialogue loses its beginning.
    #[schemars(range(min = 1), extend("x-unit" = "tokens"))]
    pub max_tokens: Option<usize>,
}

impl RerankerTrainingKind for EncoderOptions {
    fn from(&self) -> Option<&Path> {
        Some(&self.from)
    }

    fn train(&self, session: &RerankerSession<'_>, _: &mut Observer<'_>) -> Result<u64> {
        let similarities = write_similarities(session, &self.from, self.max_tokens)?;
        if similarities.is_empty() {
            write_cosine(&self.from, self.max_tokens, session.model)?;
            return Ok(0);
        }
        let parts = WeightedSimilarities::train(similarities, session)?.parts().collect();
        Saved::Combined { parts }.write(session.model)?;
        Ok(0)
    }
}

/// Copies the folder of an encoder, so that the reranker does not depend on it.
pub(super) fn write_cosine(from: &Path, max_tokens: Option<usize>, model: &Path) -> Result<()> {
    copy(from, model)?;
    Saved::Cosine { max_tokens }.write(model)
}

/// Copies the files of a model's folder and of its folders with a `config.json`.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).map_err(|error| Error::io(to, "create", error))?;
    for entry in fs::read_dir(from).map_err(|error| Error::io(from, "read", error))? {
        let entry = entry.map_err(|error| Error::io(from, "read", error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_hidden = name.to_string_lossy().starts_with('.');
        if path.is_dir() && path.join("config.json").is_file() {
            copy(&path, &to.join(&name))?;
        } else if path.is_file() && !is_hidden {
            fs::copy(&path, to.join(&name)).map_err(|error| Error::io(&path, "copy", error))?;
        }
    }
    Ok(())
}
