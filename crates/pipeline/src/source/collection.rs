//! A source in the files of another system.

use std::path::Path;

use sporran_config::{Diagnostic, Document};
use sporran_kilt::{formats::Collection, hash_json};

use crate::{
    Error, Result,
    run_dir::inputs::{Inputs, SourcePages},
    source::options::SourceOptions,
};

/// The version of the documents of `passages`. 2: a passage without a title has none; its id is no title.
const PASSAGES_VERSION: u32 = 2;

/// The files of a collection, and the hash of their content.
pub(crate) fn pages(
    source: &SourceOptions,
    collection: Collection,
    inputs: &mut Inputs,
) -> Result<SourcePages> {
    let path = source.first_path();
    let hashes: Result<Vec<String>> = collection.files(path)?.iter().map(|file| inputs.file(file)).collect();
    let content = match collection {
        Collection::Passages => hash_json(&(collection, hashes?, PASSAGES_VERSION)),
        _ => hash_json(&(collection, hashes?)),
    };
    Ok(SourcePages { path: path.to_owned(), content, summary: None })
}

/// The total size in bytes of a file of pages, or of a collection.
pub(crate) fn size(path: &Path, format: Option<Collection>) -> Result<u64> {
    let files = match format {
        None => vec![path.to_owned()],
        Some(collection) => collection.files(path)?,
    };
    files.iter().map(|file| Ok(std::fs::metadata(file).map_err(Error::io(file, "open"))?.len())).sum()
}

/// Reports a missing collection, and options of other documents.
pub(crate) fn check(source: &SourceOptions, collection: Collection, document: &mut Document<'_>) {
    let SourceOptions { path, include, exclude, columns, strict, .. } = source;
    match path.single() {
        None => {
            let found = path.all().len();
            let message = format!("expected one file or folder of the collection, found {found} paths");
            document.report_key("source.path", message);
        }
        Some(path) if !path.exists() => {
            document.report_key("source.path", format!("no file or folder {}", path.display()));
        }
        Some(path) => {
            if let Err(error) = collection.files(path) {
                document.report_key("source.path", error.to_string());
            }
        }
    }
    let set = [
        ("include", !include.is_empty()),
        ("exclude", !exclude.is_empty()),
        ("columns", columns.is_some()),
        ("strict", *strict),
    ];
    for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
        document.report_key(&format!("source.{key}"), "has no effect; `format` is set".to_owned());
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
            let source = SourceOptions { format: Some(format), ..SourceOptions::new(path) };
            let pages = pages(&source, format, &mut Inputs::default()).unwrap();
            (pages.content, size(&pages.path, source.format).unwrap())
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
        let text = found(&format!("path = ['{path}', '{path}']\nformat = 'beir'\nstrict = true"));
        assert!(text.contains("expected one file or folder of the collection, found 2 paths"), "{text}");
        assert!(text.contains("source.strict") && text.contains("`format` is set"), "{text}");
        let text = found("path = 'nowhere'\nformat = 'bier'");
        assert!(text.contains("did you mean `beir`?") || text.contains("bier"), "{text}");
    }
}
