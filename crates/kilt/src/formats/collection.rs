//! Collections of documents in the files of other systems, which a passage store reads as they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Map;

use super::{Document, anserini, beir, elements, passages, psgs};
use crate::{
    Error, Id, Result,
    jsonl::{self, InputFile},
};

/// The documents of a file with their lines.
pub(crate) type Documents = Box<dyn Iterator<Item = Result<(u64, Document)>>>;

/// The format of a collection of documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// BEIR's `corpus.jsonl`, or the folder of a data set.
    Beir,
    /// Anserini's and Pyserini's `{id, contents}`: JSON lines, JSON arrays, or a folder of such files.
    Anserini,
    /// MS MARCO's `collection.tsv`, `id TAB text`, or its folder.
    Msmarco,
    /// DPR's `psgs_w100.tsv`, `id TAB text TAB title`, or its folder.
    PsgsTsv,
    /// JSON lines of `{id, title, text}`.
    Passages,
}

const ENDINGS: [&str; 3] = ["", ".gz", ".zst"];

impl Collection {
    /// The files of a collection at a path, in the order of their names.
    ///
    /// # Errors
    /// [`Error::Empty`] for a folder without such files; [`Error::Io`] for a folder that cannot be read.
    pub fn files(self, path: &Path) -> Result<Vec<PathBuf>> {
        if !path.is_dir() {
            return Ok(vec![path.to_owned()]);
        }
        let named = |name: &str| {
            ENDINGS.iter().map(|ending| path.join(format!("{name}{ending}"))).find(|path| path.is_file())
        };
        let files: Vec<PathBuf> = match self {
            Self::Beir => named("corpus.jsonl").into_iter().collect(),
            Self::Msmarco => named("collection.tsv").into_iter().collect(),
            Self::PsgsTsv => named("psgs_w100.tsv").into_iter().collect(),
            Self::Anserini | Self::Passages => {
                let mut files = Vec::new();
                below(path, &mut files)?;
                files.sort();
                files
            }
        };
        if files.is_empty() {
            return Err(Error::Empty { path: path.to_owned(), what: "file of the collection" });
        }
        Ok(files)
    }

    /// The field, or the column, of a document's id.
    pub(crate) fn id_field(self) -> &'static str {
        match self {
            Self::Beir => "_id",
            Self::Anserini | Self::Msmarco | Self::PsgsTsv | Self::Passages => "id",
        }
    }

    /// Whether each line of a file is a document.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read.
    pub(crate) fn has_lines(self, path: &Path) -> Result<bool> {
        match self {
            Self::Beir | Self::Msmarco | Self::Passages => Ok(true),
            Self::PsgsTsv => Ok(false),
            // An object or an array over several lines does not end on its first one.
            Self::Anserini => Ok(match jsonl::open(path)?.next_line() {
                Ok(Some((_, line))) => serde_json::from_slice::<anserini::Document>(line).is_ok(),
                _ => false,
            }),
        }
    }

    /// The document of a line, if [`has_lines`](Self::has_lines).
    ///
    /// # Errors
    /// [`Error::Record`] for a line of another form or without an id.
    pub(crate) fn document(self, path: &InputFile, line: u64, bytes: &[u8]) -> Result<Document> {
        let (field, document): (_, Document) = match self {
            Self::Beir => ("_id", jsonl::parse::<beir::Document>(path, line, bytes)?.into()),
            Self::Passages => ("id", jsonl::parse::<passages::Passage>(path, line, bytes)?.into()),
            Self::Anserini => ("id", jsonl::parse::<anserini::Document>(path, line, bytes)?.into()),
            Self::Msmarco | Self::PsgsTsv => ("id", row(path, line, jsonl::utf8(path, line, bytes)?)?),
        };
        if document.id.trim().is_empty() {
            return Err(Error::record(path, line, field, "expected an id, found an empty one"));
        }
        Ok(document)
    }

    /// The documents of a file with their lines. Ends after the first error.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be opened; an item is the error of a wrong document.
    pub(crate) fn documents(self, path: &Path) -> Result<Documents> {
        if self == Self::PsgsTsv {
            return Ok(Box::new(psgs::read(path)?));
        }
        if self == Self::Anserini && !self.has_lines(path)? {
            let records = elements::open(path)?.records::<anserini::Document>();
            let path = path.to_owned();
            return Ok(Box::new(super::until_error(records.map(move |record| {
                let (line, record) = record?;
                let document = Document::from(record);
                if document.id.trim().is_empty() {
                    return Err(Error::record(&path, line, "id", "expected an id, found an empty one"));
                }
                Ok((line, document))
            }))));
        }
        let mut reader = jsonl::open(path)?;
        let path = reader.file();
        Ok(Box::new(super::until_error(std::iter::from_fn(move || match reader.next_line() {
            Ok(None) => None,
            Ok(Some((line, bytes))) => {
                Some(self.document(&path, line, bytes).map(|document| (line, document)))
            }
            Err(error) => Some(Err(error)),
        }))))
    }
}

/// The JSON files in a folder and its subfolders.
fn below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |source| Error::io(folder, "read", source);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        if path.is_dir() {
            below(&path, files)?;
        } else if [".json", ".jsonl"]
            .iter()
            .any(|form| ENDINGS.iter().any(|ending| name.ends_with(&format!("{form}{ending}"))))
        {
            files.push(path);
        }
    }
    Ok(())
}

/// A row of MS MARCO's `collection.tsv`.
fn row(path: &Path, line: u64, text: &str) -> Result<Document> {
    let columns: Vec<&str> = text.split('\t').collect();
    let &[id, text] = &columns[..] else {
        let message = format!("expected the 2 columns id, text, found {}", columns.len());
        return Err(Error::record(path, line, if columns.len() < 2 { "text" } else { "3" }, message));
    };
    let id = Id::from(id).text().into_owned();
    Ok(Document { id, title: String::new(), text: text.to_owned(), metadata: Map::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(collection: Collection, name: &str, text: &str) -> Result<Vec<(u64, String, String, String)>> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), text).unwrap();
        let mut found = Vec::new();
        for file in collection.files(folder.path())? {
            for document in collection.documents(&file)? {
                let (line, Document { id, title, text, .. }) = document?;
                found.push((line, id, title, text));
            }
        }
        Ok(found)
    }

    #[test]
    fn documents_of_every_format_are_read_without_a_title_too() {
        let document =
            |line: u64, id: &str, title: &str, text: &str| (line, id.into(), title.into(), text.into());
        let beir = "{\"_id\":\"d 1\",\"title\":\"T\",\"text\":\"x\"}\n\n{\"_id\":2,\"text\":\"y\"}\n";
        let expected = [document(1, "d 1", "T", "x"), document(3, "2", "", "y")];
        assert_eq!(read(Collection::Beir, "corpus.jsonl", beir).unwrap(), expected);
        let lines = "{\"id\":\"é\",\"contents\":\"only text\"}\n{\"id\":\"b\",\"contents\":\"T\\nx\"}\n";
        let expected = [document(1, "é", "", "only text"), document(2, "b", "T", "x")];
        assert_eq!(read(Collection::Anserini, "a.jsonl", lines).unwrap(), expected);
        let array = "[{\"id\":\"a\",\n\"contents\":\"x\"},\n{\"id\":\"b\",\"contents\":\"y\"}]";
        let expected = [document(1, "a", "", "x"), document(3, "b", "", "y")];
        assert_eq!(read(Collection::Anserini, "a.json", array).unwrap(), expected);
        assert_eq!(
            read(Collection::Msmarco, "collection.tsv", "0\ta \"b\n").unwrap(),
            [document(1, "0", "", "a \"b")]
        );
        let psgs = "id\ttext\ttitle\n1\t\"a \"\"b\"\"\"\tT\n";
        assert_eq!(
            read(Collection::PsgsTsv, "psgs_w100.tsv", psgs).unwrap(),
            [document(2, "1", "T", "a \"b\"")]
        );
        let passages = "{\"id\":\"p\",\"text\":\"x\"}\n";
        assert_eq!(read(Collection::Passages, "p.jsonl", passages).unwrap(), [document(1, "p", "", "x")]);
    }

    #[test]
    fn a_folder_of_json_files_is_read_by_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        for name in ["b.jsonl", "sub/c.json", "a.json", "notes.txt", ".hidden.json"] {
            fs::write(folder.path().join(name), "{\"id\":\"x\",\"contents\":\"y\"}").unwrap();
        }
        let files = Collection::Anserini.files(folder.path()).unwrap();
        let names: Vec<String> = files
            .iter()
            .map(|path| path.strip_prefix(folder.path()).unwrap().display().to_string())
            .collect();
        assert_eq!(names, ["a.json", "b.jsonl", "sub/c.json"]);
    }

    #[test]
    fn errors_name_file_line_and_field() {
        for (collection, name, text, expected) in [
            (
                Collection::Beir,
                "corpus.jsonl",
                "{\"_id\":\"a\",\"text\":\"x\"}\n{\"_id\":\" \",\"text\":\"x\"}",
                "corpus.jsonl:2: field `_id`: expected an id",
            ),
            (Collection::Beir, "corpus.jsonl", "{\"_id\":\"a\"}", "corpus.jsonl:1: missing field `text`"),
            (
                Collection::Msmarco,
                "collection.tsv",
                "1\ta\n2 b\n",
                "collection.tsv:2: field `text`: expected the 2 columns",
            ),
            (
                Collection::Msmarco,
                "collection.tsv",
                "1\ta\tb\n",
                "collection.tsv:1: field `3`: expected the 2 columns",
            ),
            (
                Collection::Anserini,
                "a.json",
                "[{\"id\":\"\",\"contents\":\"x\"}]",
                "a.json:1: field `id`: expected an id",
            ),
            (Collection::Beir, "other.jsonl", "", "expected at least one file of the collection, found none"),
        ] {
            let message = read(collection, name, text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message} lacks {expected}");
        }
    }
}
