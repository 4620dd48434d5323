//! Integration tests of this crate, in one program so that it is linked once.

mod bad_input;
mod changes;
mod folder;
mod formats;
mod make;
mod places;

use std::{
    fs,
    path::{Path, PathBuf},
};

use sporran_documents::{Collection, Listing, Options, Result, list};
use sporran_kilt::{PassageId, PassageSplit, PassageStore, store::BuildOptions};

/// A folder with a source `docs` and with indexes.
struct World {
    folder: tempfile::TempDir,
    options: Options,
    strict: bool,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let docs = folder.path().join("docs");
        fs::create_dir(&docs).unwrap();
        let options =
            Options { paths: vec![docs], ignore_file: ".sporranignore".into(), ..Options::default() };
        Self { folder, options, strict: false }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file of the source.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path("docs").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path("docs").join(name)).unwrap();
    }

    fn list(&self) -> Listing {
        list(&self.options, &mut |_| {}).unwrap()
    }

    fn collect_in(&self, indexes: &str) -> Result<Collection> {
        let indexes = self.path(indexes);
        Collection::open_or_build(&self.list(), &self.options, self.strict, &indexes, &mut |_| {})
    }

    fn collect(&self) -> Result<Collection> {
        self.collect_in("indexes")
    }

    fn store(&self, collection: &Collection, split: PassageSplit) -> PassageStore {
        let build = BuildOptions { source: collection.pages(), redirects: None, split };
        PassageStore::build(&build, self.path("store"), &mut |_| {}).unwrap()
    }

    /// Each passage as `place: text`, without the folder of the source.
    fn passages(&self, split: PassageSplit) -> Vec<String> {
        let store = self.store(&self.collect().unwrap(), split);
        let start = format!("{}/", self.path("docs").display());
        let passages = (0..store.len() as u32).map(|id| store.passage(PassageId(id)));
        passages.map(|passage| format!("{}: {}", passage.place(), passage.text).replace(&start, "")).collect()
    }

    /// The ids and the first paragraphs of the pages.
    fn rows(&self) -> Vec<String> {
        let pages = zstd::decode_all(&read(&self.collect().unwrap().pages())[..]).unwrap();
        let page = |line: &str| {
            let page: sporran_kilt::Page = serde_json::from_str(line).unwrap();
            format!("{}: {}", page.wikipedia_id.text(), page.text[1])
        };
        String::from_utf8(pages).unwrap().lines().map(page).collect()
    }

    /// The problems as `file:line: message`, without the folder of the source.
    fn problems(&self) -> Vec<String> {
        let start = format!("{}/", self.path("docs").display());
        let collection = self.collect().unwrap();
        collection.summary().problems.iter().map(|found| found.to_string().replace(&start, "")).collect()
    }
}

/// The sources of the pages of a store.
fn sources(listing: &Listing) -> Vec<&str> {
    listing.files.iter().map(|file| file.source.as_str()).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap()
}
