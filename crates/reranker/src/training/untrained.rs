//! Rerankers without a training of their weights: word counts, and a copy of an encoder.

use std::{fs, path::Path};

use sporran_kilt::Error;

use super::GradedQuery;
use crate::{COUNTS, Result, Saved, TfIdf};

/// Counts the words of the texts, and writes a reranker that compares them. A text is a whole query or a passage.
pub(super) fn write_tfidf(queries: &[GradedQuery], titles_only: bool, model: &Path) -> Result<()> {
    write_counts(queries.iter().flat_map(GradedQuery::texts), titles_only, model)
}

/// The same; a text is a turn of a query or a passage (Eric et al., 2021, section 4.1).
pub(super) fn write_tfidf_of_turns(queries: &[GradedQuery], model: &Path) -> Result<()> {
    write_counts(queries.iter().flat_map(GradedQuery::turns_and_passages), false, model)
}

fn write_counts(texts: impl Iterator<Item = String>, titles_only: bool, model: &Path) -> Result<()> {
    let texts: Vec<String> = texts.collect();
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

#[cfg(test)]
mod tests {
    use sporran_kilt::{Passage, Query};

    use super::*;

    #[test]
    fn a_turn_is_a_text_of_its_own_only_where_turns_are_counted() {
        let passage = Passage { title: "Tea".into(), ..Passage::of_text("tea is hot") };
        let query = Query::of_text("q", "tea\nhot tea");
        let queries = [GradedQuery { query, passages: vec![passage], targets: vec![1.0] }];
        let folder = tempfile::tempdir().unwrap();
        let counted = || TfIdf::load(&folder.path().join(COUNTS)).unwrap();
        write_tfidf_of_turns(&queries, folder.path()).unwrap();
        assert_eq!(counted(), TfIdf::fit(["tea", "hot tea", "Tea tea is hot"]));
        write_tfidf(&queries, false, folder.path()).unwrap();
        assert_eq!(counted(), TfIdf::fit(["tea hot tea", "Tea tea is hot"]));
        assert_eq!(Saved::read(folder.path()).unwrap(), Saved::TfIdf { titles_only: false });
    }
}
