//! A source in the files of another system.

use std::path::Path;

use sporran_config::{Diagnostic, Document};
use sporran_kilt::{formats::Collection, hash_json};

use crate::{Error, Result, run_dir::inputs::Inputs, source::options::SourceOptions};

/// The hash of the content of a source: of its file, or of the files of its collection.
pub(crate) fn content(source: &SourceOptions, inputs: &mut Inputs) -> Result<String> {
    let Some(collection) = source.format else { return inputs.file(&source.path) };
    let hashes: Result<Vec<String>> =
        collection.files(&source.path)?.iter().map(|file| inputs.file(file)).collect();
    Ok(hash_json(&(collection, hashes?)))
}

/// The total size of a source in bytes.
pub(crate) fn size(source: &SourceOptions) -> Result<u64> {
    let files = match source.format {
        None => vec![source.path.clone()],
        Some(collection) => collection.files(&source.path)?,
    };
    files.iter().map(|file| Ok(std::fs::metadata(file).map_err(Error::io(file, "open"))?.len())).sum()
}

/// Reports a missing source.
pub(crate) fn check(source: &SourceOptions, document: &mut Document<'_>) {
    let SourceOptions { path, format, .. } = source;
    match format {
        None if !path.is_file() => document.report_key("source.path", missing(path, path.is_dir())),
        Some(_) if !path.exists() => {
            document.report_key("source.path", format!("no file or folder {}", path.display()));
        }
        Some(collection) => {
            if let Err(error) = collection.files(path) {
                document.report_key("source.path", error.to_string());
            }
        }
        None => {}
    }
}

fn missing(path: &Path, is_folder: bool) -> String {
    let hint = if is_folder { "; a folder needs `format`, such as `beir`" } else { "" };
    format!("no file {}{hint}", path.display())
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
            let source = SourceOptions {
                path,
                format: Some(format),
                redirects: None,
                split: Default::default(),
                indexes: "indexes".into(),
            };
            (content(&source, &mut Inputs::default()).unwrap(), size(&source).unwrap())
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
        let text = found(&format!("path = '{path}'"));
        assert!(text.contains("a folder needs `format`, such as `beir`"), "{text}");
        let text = found("path = 'nowhere'\nformat = 'bier'");
        assert!(text.contains("did you mean `beir`?") || text.contains("bier"), "{text}");
    }
}
