//! A source in the files of another system.

use std::path::Path;

use sporran_config::{Diagnostic, Document};
use sporran_kilt::{formats::Collection, hash_json};

use crate::{Error, Result, run_dir::inputs::Inputs, source::options::SourceOptions};

/// The hash of the content of a collection: of its format and its files.
pub(crate) fn content(collection: Collection, path: &Path, inputs: &mut Inputs) -> Result<String> {
    let hashes: Result<Vec<String>> = collection.files(path)?.iter().map(|file| inputs.file(file)).collect();
    Ok(hash_json(&(collection, hashes?)))
}

/// The total size of a file or of a collection in bytes.
pub(crate) fn size(collection: Option<Collection>, path: &Path) -> Result<u64> {
    let files = match collection {
        None => vec![path.to_owned()],
        Some(collection) => collection.files(path)?,
    };
    files.iter().map(|file| Ok(std::fs::metadata(file).map_err(Error::io(file, "open"))?.len())).sum()
}

/// Reports a missing collection.
pub(crate) fn check(source: &SourceOptions, collection: Collection, document: &mut Document<'_>) {
    match source.path.single() {
        None => {
            let message = "expected one path with `format`, found several".to_owned();
            document.report_key("source.path", message);
        }
        Some(path) if path.exists() => {
            if let Err(error) = collection.files(path) {
                document.report_key("source.path", error.to_string());
            }
        }
        Some(_) => {}
    }
    if source.columns.is_some() {
        document.report_key("source.columns", "has no effect with `format`".to_owned());
    }
}

/// The error of a part that needs a knowledge source in KILT's layout.
pub(crate) fn needs_pages(collection: Collection, part: &str) -> Error {
    let name = serde_json::to_value(collection).ok();
    let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or_default();
    let message = format!("expected no format: {part} needs pages in KILT's layout, found `{name}`");
    Error::Config(vec![Diagnostic::of_config("source.format", message)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, mistakes};
    use crate::workflows::answer::options::Options;

    #[test]
    fn the_hash_is_that_of_the_collections_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("corpus.jsonl", "{\"_id\":\"1\",\"text\":\"x\"}\n");
        let hash = |format| {
            let path = folder.path().join(if format == Collection::Beir { "" } else { "corpus.jsonl" });
            let content = content(format, &path, &mut Inputs::default()).unwrap();
            (content, size(Some(format), &path).unwrap())
        };
        let first = hash(Collection::Beir);
        write("queries.jsonl", "{}");
        assert_eq!((hash(Collection::Beir), first.1), (first.clone(), 23));
        assert_ne!(hash(Collection::Passages).0, first.0);
    }

    #[test]
    fn a_missing_collection_is_reported() {
        let config = |source: &str| {
            format!(
                "workflow = 'answer'\nname = 'r'\n[retriever]\nkind = 'bm25'\n[tasks]\nfiles = []\n[source]\n{source}"
            )
        };
        let found = |source: &str| mistakes(&config(source), &[], Options::load);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        let text = found(&format!("path = '{path}'\nformat = 'beir'"));
        assert!(
            text.contains("source.path") && text.contains("expected at least one file of the collection"),
            "{text}"
        );
        let text = found("path = 'nowhere'\nformat = 'bier'");
        assert!(text.contains("did you mean `beir`?") || text.contains("bier"), "{text}");
    }
}
