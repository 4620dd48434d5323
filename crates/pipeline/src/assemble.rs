//! From settings to working parts. This is the one place that matches on a stage's `kind`.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use sporran_generator::{FidGenerator, Generator, RagGenerator, Seq2SeqGenerator};
use sporran_kilt::{PassageId, PassageStore, store::BuildOptions};
use sporran_retriever::{
    Retriever,
    sparse::{self, Bm25, Build, TfIdf},
};

use crate::{
    Error, Result,
    observe::{Event, Observer, Unit, advance, begin},
    options::{GeneratorOptions, Options, RetrieverOptions, SourceOptions},
};

/// The parts of a run.
pub struct Assembly {
    /// The passages, where the config names a source.
    pub store: Option<Arc<PassageStore>>,
    /// Finds passages.
    pub retriever: Option<Box<dyn Retriever>>,
    /// Writes answers.
    pub generator: Option<Box<dyn Generator>>,
    /// What predictions depend on beside their inputs: one hash a part.
    pub hashes: Vec<PartHash>,
}

/// The hash of what a part was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartHash {
    /// The part: `source`, `store`, `retriever`, `generator`.
    pub part: &'static str,
    /// Where it lies.
    pub path: PathBuf,
    /// BLAKE3, in hexadecimal.
    pub blake3: String,
}

/// BLAKE3 of a file's content.
///
/// # Errors
/// [`Error::Io`] where it cannot be read.
pub(crate) fn hash_file(path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_mmap_rayon(path).map_err(Error::io(path, "read"))?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// BLAKE3 over a value's JSON.
pub(crate) fn hash_json(value: &impl Serialize) -> String {
    // Options are plain data, whose JSON cannot fail.
    blake3::hash(serde_json::to_string(value).unwrap_or_default().as_bytes()).to_hex().to_string()
}

/// Builds or opens what the config names: store, index, model.
///
/// # Errors
/// Whatever is wrong with the source, an index or a model, each error naming the file.
pub fn assemble(options: &Options, observe: &mut Observer<'_>) -> Result<Assembly> {
    let mut assembly = assemble_retrieval(options, observe)?;
    if let Some(generator) = &options.generator {
        let model = generator.model();
        let mut files = Vec::new();
        for entry in fs::read_dir(model).map_err(Error::io(model, "open"))? {
            let path = entry.map_err(Error::io(model, "read"))?.path();
            // A model's card says where it comes from and does not change what it writes.
            if path.is_file() && path.extension().is_some_and(|ending| ending != "toml" && ending != "md") {
                files.push(path);
            }
        }
        files.sort();
        let hashes: Result<Vec<String>> = files.iter().map(|path| hash_file(path)).collect();
        let blake3 = hash_json(&(generator, hashes?));
        assembly.hashes.push(PartHash { part: "generator", path: model.to_owned(), blake3 });
        assembly.generator = Some(match generator {
            GeneratorOptions::Seq2Seq(options) => Box::new(Seq2SeqGenerator::load(options)?),
            GeneratorOptions::Fid(options) => Box::new(FidGenerator::load(options)?),
            GeneratorOptions::RagSequence(options) => Box::new(RagGenerator::load_sequence(options)?),
            GeneratorOptions::RagToken(options) => Box::new(RagGenerator::load_token(options)?),
        });
    }
    Ok(assembly)
}

/// Builds or opens the store and the index only.
///
/// # Errors
/// As [`assemble`].
pub fn assemble_retrieval(options: &Options, observe: &mut Observer<'_>) -> Result<Assembly> {
    let mut assembly = Assembly { store: None, retriever: None, generator: None, hashes: Vec::new() };
    let Some(source) = &options.general.source else { return Ok(assembly) };
    let store = store(source, observe, &mut assembly.hashes)?;
    if let Some(retriever) = &options.retriever {
        let key = hash_json(&(retriever, store.hash()));
        let (kind, folder) = match retriever {
            RetrieverOptions::Bm25(_) => ("bm25", source.indexes.join(format!("bm25-{}", &key[..12]))),
            RetrieverOptions::TfIdf(_) => ("tfidf", source.indexes.join(format!("tfidf-{}", &key[..12]))),
        };
        assembly.hashes.push(PartHash { part: "retriever", path: folder.clone(), blake3: key });
        let mut index = Index { kind, folder: &folder, store: &store, observe };
        assembly.retriever = Some(match retriever {
            RetrieverOptions::Bm25(options) => Box::new(index.open_or_build(
                |folder, hash| Bm25::open(folder, hash),
                |passages, hash, folder, build| Bm25::build(options, passages, hash, folder, build),
            )?),
            RetrieverOptions::TfIdf(options) => Box::new(index.open_or_build(
                |folder, hash| TfIdf::open(folder, hash),
                |passages, hash, folder, build| TfIdf::build(options, passages, hash, folder, build),
            )?),
        });
    }
    assembly.store = Some(store);
    Ok(assembly)
}

/// Opens the store of a source, building it if it is not there.
fn store(
    source: &SourceOptions,
    observe: &mut Observer<'_>,
    hashes: &mut Vec<PartHash>,
) -> Result<Arc<PassageStore>> {
    let content = hash_file(&source.path)?;
    let redirects = source.redirects.as_deref().map(hash_file).transpose()?;
    let key = hash_json(&(sporran_kilt::store::VERSION, &content, &redirects, source.split));
    hashes.push(PartHash { part: "source", path: source.path.clone(), blake3: content });
    let folder = source.indexes.join(format!("store-{}", &key[..12]));
    let store = if folder.exists() {
        observe(Event::Skip { step: "store passages".into() });
        PassageStore::open(&folder)?
    } else {
        let build = BuildOptions {
            source: source.path.clone(),
            redirects: source.redirects.clone(),
            split: source.split,
        };
        let size = fs::metadata(&source.path).map_err(Error::io(&source.path, "open"))?.len();
        begin(observe, "store passages", size, Unit::Bytes);
        let store = PassageStore::build(&build, &folder, &mut |progress| advance(observe, progress.read))?;
        observe(Event::End);
        store
    };
    hashes.push(PartHash { part: "store", path: folder, blake3: store.hash().to_owned() });
    Ok(Arc::new(store))
}

/// An index of a store that is opened, or built first.
struct Index<'a, 'o> {
    kind: &'static str,
    folder: &'a Path,
    store: &'a PassageStore,
    observe: &'a mut Observer<'o>,
}

type Passages<'s> =
    Box<dyn Iterator<Item = Result<(PassageId, &'s str, String), std::convert::Infallible>> + 's>;

impl Index<'_, '_> {
    fn open_or_build<T>(
        &mut self,
        open: impl Fn(&Path, &str) -> sporran_retriever::Result<T>,
        build: impl FnOnce(Passages<'_>, &str, &Path, Build<'_>) -> sporran_retriever::Result<()>,
    ) -> Result<T> {
        let step = format!("index {}", self.kind);
        if self.folder.exists() {
            (self.observe)(Event::Skip { step });
        } else {
            let store = self.store;
            begin(self.observe, step, store.len() as u64, Unit::Passages);
            let passages = (0..store.len() as u32)
                .map(PassageId)
                .map(|id| Ok((id, store.page_title(store.page_of(id)), store.text(id))));
            let observe = &mut *self.observe;
            let mut progress = |progress| {
                if let sparse::Progress::Passages(done) = progress {
                    advance(observe, done);
                }
            };
            build(Box::new(passages), store.hash(), self.folder, Build::new(&mut progress))?;
            (self.observe)(Event::End);
        }
        Ok(open(self.folder, self.store.hash())?)
    }
}
