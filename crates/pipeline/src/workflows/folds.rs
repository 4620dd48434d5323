//! Annotated documents of some of KnowledgeNet's folds.

use std::{collections::BTreeSet, path::Path};

use sporran_config::Diagnostic;
use sporran_kilt::{Error as FileError, knowledgenet};

use crate::{Error, Result};

/// The documents of a file in KnowledgeNet's layout whose folds are among `folds`; those of all folds if there are none. `key` is
/// the option with the folds.
///
/// # Errors
/// Errors of the file; [`Error::Config`] for a file with documents of other folds only.
pub(super) fn documents_of(path: &Path, folds: &[i64], key: &str) -> Result<Vec<knowledgenet::Document>> {
    let (mut taken, mut others) = (Vec::new(), BTreeSet::new());
    for document in knowledgenet::annotated(path)? {
        let document = document?;
        if folds.is_empty() || folds.contains(&document.fold) {
            taken.push(document);
        } else {
            others.insert(document.fold);
        }
    }
    match (taken.is_empty(), others.is_empty()) {
        (false, _) => Ok(taken),
        (true, true) => Err(FileError::Empty { path: path.to_owned(), what: "document" }.into()),
        (true, false) => {
            let path = path.display();
            let message =
                format!("expected documents of the folds {folds:?} in {path}, found those of {others:?}");
            Err(Error::Config(vec![Diagnostic::of_config(key, message)]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_documents_of_the_folds_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k.json");
        let document = |fold: i64| {
            format!(r#"{{"fold":{fold},"documentId":"d{fold}","documentText":"","passages":[]}}"#)
        };
        std::fs::write(&path, format!("{}\n{}\n", document(1), document(4))).unwrap();
        let read = |folds: &[i64]| documents_of(&path, folds, "annotations.folds");
        assert_eq!([read(&[]).unwrap().len(), read(&[4]).unwrap().len()], [2, 1]);
        let error = read(&[2, 3]).unwrap_err();
        let expected = format!(
            "config: `annotations.folds`: expected documents of the folds [2, 3] in {}, found those of {{1, 4}}",
            path.display()
        );
        assert_eq!(error.to_string(), expected);
        std::fs::write(&path, "").unwrap();
        assert!(read(&[]).unwrap_err().to_string().contains("expected at least one document"));
    }
}
