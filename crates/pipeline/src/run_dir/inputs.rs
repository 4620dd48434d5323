//! Input files: their hashes, and the check that they do not change while they are used.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use sporran_documents::Summary;

use crate::{Error, Result};

/// Files up to this size are hashed twice, because the resolution of time stamps can hide a change.
const SMALL: u64 = 1 << 20;

/// Hashed input files.
///
/// A step hashes a file, then reads it again. [`Self::verify`] after the reading proves that both have the same bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    files: BTreeMap<PathBuf, Seen>,
    /// The pages of sources, by the hash of their options. Their files never change.
    sources: BTreeMap<String, SourcePages>,
}

/// The pages of a source.
#[derive(Clone, Debug)]
pub(crate) struct SourcePages {
    /// The knowledge source in KILT's layout.
    pub(crate) path: PathBuf,
    /// The hash of its content.
    pub(crate) content: String,
    /// What was read of documents; none for a file in KILT's layout.
    pub(crate) summary: Option<Summary>,
}

#[derive(Clone, Debug)]
struct Seen {
    stamp: Stamp,
    blake3: String,
}

/// The state of a file, which changes if the file is written to or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
    /// The inode, and the time of its last change, which programs cannot set.
    file: [i64; 3],
}

impl Stamp {
    fn of(path: &Path) -> Result<Self> {
        let about = fs::metadata(path).map_err(Error::io(path, "read"))?;
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt as _;
            [about.ino() as i64, about.ctime(), about.ctime_nsec()]
        };
        #[cfg(not(unix))]
        let file = [0; 3];
        Ok(Self { bytes: about.len(), modified: about.modified().ok(), file })
    }
}

impl Inputs {
    /// The BLAKE3 hash of a file's content. Caches hashes.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`sporran_kilt::Error::Changed`] if it changed since its first hash.
    pub(crate) fn file(&mut self, path: &Path) -> Result<String> {
        let stamp = Stamp::of(path)?;
        if let Some(seen) = self.files.get(path) {
            return if seen.stamp == stamp { Ok(seen.blake3.clone()) } else { Err(changed(path).into()) };
        }
        let blake3 = hash_file(path)?;
        if Stamp::of(path)? != stamp {
            return Err(changed(path).into());
        }
        self.files.insert(path.to_owned(), Seen { stamp, blake3: blake3.clone() });
        Ok(blake3)
    }

    /// The names and hashes of the files of a model's folder and its subfolders. If `path` is a file, its
    /// hash without a name. Excludes model cards and hidden files.
    ///
    /// # Errors
    /// Those of [`Self::file`].
    pub(crate) fn content(&mut self, path: &Path) -> Result<Vec<(String, String)>> {
        if path.is_file() {
            return Ok(vec![(String::new(), self.file(path)?)]);
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(path).map_err(Error::io(path, "open"))? {
            names.push(entry.map_err(Error::io(path, "read"))?.file_name());
        }
        names.sort();
        let mut hashes = Vec::new();
        for name in names.iter().filter(|name| !name.to_string_lossy().starts_with('.')) {
            let path = path.join(name);
            let name = name.to_string_lossy().into_owned();
            if path.is_dir() {
                let within = self.content(&path)?.into_iter();
                hashes.extend(within.map(|(file, hash)| (format!("{name}/{file}"), hash)));
            // A model card does not change the results of the model.
            } else if path.extension().is_none_or(|ending| ending != "toml" && ending != "md") {
                hashes.push((name, self.file(&path)?));
            }
        }
        Ok(hashes)
    }

    /// The pages of a source that [`keep_source`](Self::keep_source) got.
    pub(crate) fn source(&self, key: &str) -> Option<SourcePages> {
        self.sources.get(key).cloned()
    }

    /// Keeps the pages of a source, so that its files are listed once.
    pub(crate) fn keep_source(&mut self, key: String, pages: SourcePages) {
        self.sources.insert(key, pages);
    }

    /// The folders with the pages of documents.
    pub(crate) fn collections(&self) -> impl Iterator<Item = &Path> {
        let read = self.sources.values().filter(|pages| pages.summary.is_some());
        read.filter_map(|pages| pages.path.parent())
    }

    /// What was read of documents.
    pub(crate) fn documents(&self) -> Option<&Summary> {
        self.sources.values().find_map(|pages| pages.summary.as_ref())
    }

    /// All hashed files with their hashes.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = (PathBuf, String)> {
        self.files.iter().map(|(path, seen)| (path.clone(), seen.blake3.clone()))
    }

    /// Checks that no file has changed since its hash.
    ///
    /// # Errors
    /// [`sporran_kilt::Error::Changed`] with the first changed file.
    pub(crate) fn verify(&self) -> sporran_kilt::Result<()> {
        for (path, seen) in &self.files {
            let is_same = Stamp::of(path).is_ok_and(|stamp| stamp == seen.stamp)
                && (seen.stamp.bytes > SMALL || hash_file(path).is_ok_and(|hash| hash == seen.blake3));
            if !is_same {
                return Err(changed(path));
            }
        }
        Ok(())
    }
}

/// The error of a changed file.
pub(crate) fn changed(path: &Path) -> sporran_kilt::Error {
    sporran_kilt::Error::Changed { path: path.to_owned() }
}

/// The BLAKE3 hash of a file's content.
///
/// # Errors
/// [`Error::Io`] if it cannot be read.
pub(crate) fn hash_file(path: &Path) -> Result<String> {
    // Not memory-mapped, because the whole file would count as memory of the process.
    let file = fs::File::open(path).map_err(Error::io(path, "read"))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(Error::io(path, "read"))?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_after_it_was_hashed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source.jsonl");
        let small = "a page\n".to_owned();
        for first in [small.clone(), "x".repeat(SMALL as usize + 1)] {
            fs::write(&path, &first).unwrap();
            let mut inputs = Inputs::default();
            let hash = inputs.file(&path).unwrap();
            assert_eq!(hash, blake3::hash(first.as_bytes()).to_hex().to_string());
            inputs.verify().unwrap();
            let times = fs::File::options().append(true).open(&path).unwrap();
            std::io::Write::write_all(&mut &times, b"more\n").unwrap();
            let error = inputs.verify().unwrap_err();
            assert!(error.is_input() && error.to_string().contains("source.jsonl: changed while"), "{error}");
            assert!(inputs.file(&path).is_err());
        }
        // Same length, within the resolution of time stamps.
        fs::write(&path, &small).unwrap();
        let before = fs::metadata(&path).unwrap().modified().unwrap();
        let mut inputs = Inputs::default();
        inputs.file(&path).unwrap();
        fs::write(&path, "b page\n").unwrap();
        fs::File::options().append(true).open(&path).unwrap().set_modified(before).unwrap();
        assert!(matches!(inputs.verify(), Err(sporran_kilt::Error::Changed { .. })));
        // Another file of the same name, and no file.
        fs::remove_file(&path).unwrap();
        assert!(matches!(inputs.verify(), Err(sporran_kilt::Error::Changed { .. })));
    }

    #[test]
    fn cards_and_hidden_files_are_no_part_of_a_model() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("config.json", "{}");
        fs::create_dir(folder.path().join("part")).unwrap();
        write("part/weights.bin", "w");
        let content = || Inputs::default().content(folder.path()).unwrap();
        let first = content();
        assert_eq!(first.len(), 2);
        write("README.md", "a card");
        write(".sporran-killed.bin", "half");
        fs::create_dir(folder.path().join(".unfinished-x")).unwrap();
        write(".unfinished-x/weights.bin", "half");
        assert_eq!(content(), first);
        write("part/weights.bin", "v");
        assert_ne!(content(), first);
        write("part/weights.bin", "w");
        assert_eq!(content(), first);
        // A renamed file changes the content.
        fs::rename(folder.path().join("config.json"), folder.path().join("config.json.off")).unwrap();
        assert_ne!(content(), first);
    }

    #[test]
    fn a_source_that_changes_while_its_store_is_built_leaves_no_store() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source.jsonl");
        let page = |id: u32| {
            format!(
                "{{\"wikipedia_id\":\"{id}\",\"wikipedia_title\":\"T{id}\",\"text\":[\"T{id}\\n\",\"words\\n\"]}}\n"
            )
        };
        fs::write(&source, page(1)).unwrap();
        let config = place.path().join("c.toml");
        let indexes = place.path().join("indexes");
        let text = format!(
            "workflow = 'answer'\nname = 'r'\n[tasks]\n[source]\npath = '{}'\nindexes = '{}'\n[retriever]\nkind = 'bm25'\n",
            source.display(),
            indexes.display()
        );
        fs::write(&config, text).unwrap();
        let options =
            <crate::workflows::answer::options::Options as crate::config::Config>::parse(&config, &[])
                .unwrap();
        // Between hash and read.
        let mut appended = false;
        let mut observe = |event: sporran_kilt::observe::Event| {
            if let sporran_kilt::observe::Event::Begin { step, .. } = event
                && step == "store passages"
                && !appended
            {
                appended = true;
                fs::write(&source, page(1) + &page(2)).unwrap();
            }
        };
        let error =
            crate::workflows::answer::assemble::assemble_retrieval(&options, &mut observe).err().unwrap();
        assert!(
            matches!(&error, Error::Kilt(sporran_kilt::Error::Changed { path }) if *path == source),
            "{error}"
        );
        let built = || fs::read_dir(&indexes).unwrap().count();
        assert_eq!(built(), 0);
        let again = crate::workflows::answer::assemble::assemble_retrieval(&options, &mut observe).unwrap();
        assert_eq!((again.store.unwrap().pages(), built()), (2, 2));
    }
}
