//! Rerankers without a training of their weights: word counts, and a copy of an encoder.

use std::{fs, path::Path};

use sporran_kilt::Error;

use super::GradedQuery;
use crate::{COUNTS, Result, Saved, TfIdf};

/// Counts the words of the texts, and writes a reranker that compares them.
pub(super) fn write_tfidf(queries: &[GradedQuery], titles_only: bool, model: &Path) -> Result<()> {
    let texts: Vec<String> = queries.iter().flat_map(GradedQuery::texts).collect();
    TfIdf::fit(texts.iter().map(String::as_str)).save(&model.join(COUNTS))?;
    Saved::TfIdf { titles_only }.write(model)
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
