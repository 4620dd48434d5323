//! The passage store of a source, built once for its content and options.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use sporran_checkpoint::{PlacedToken, Tokenizer};
use sporran_kilt::{
    PassageStore,
    folder::Place,
    hash_json,
    observe::{Event, Observer, Unit, advance, begin},
    passage::TokenRanges,
    store::{BuildOptions, Progress},
};

use crate::{
    Result,
    run_dir::inputs::{Inputs, SourcePages},
    source::{cache, collection, documents, options::SourceOptions, parts::ShardParts},
};

/// The hash of the inputs of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHash {
    /// The part: `source`, `store`, `retriever`, `generator`.
    pub part: Cow<'static, str>,
    /// The path of the part.
    pub path: PathBuf,
    /// The BLAKE3 hash, in hexadecimal.
    pub blake3: String,
}

/// The place of a missing folder; `None` if the folder exists, perhaps after waiting for another process to build it.
pub(crate) fn vacant(folder: &Path, step: &str, observe: &mut Observer<'_>) -> Result<Option<Place>> {
    let place = Place::vacant(folder)?;
    if place.is_none() {
        observe(Event::Skip { step: step.to_owned() });
    }
    Ok(place)
}

/// The hashes of a source, and how its pages are split.
pub(crate) struct Described {
    /// The file of pages, or the collection.
    pub(crate) path: PathBuf,
    /// The hash of its content.
    pub(crate) content: String,
    /// The hash of the redirects.
    pub(crate) redirects: Option<String>,
    /// The tokenizer of a split by tokens.
    pub(crate) tokens: Option<Arc<TokenRanges>>,
    /// The hash of all that the store depends on.
    pub(crate) key: String,
}

impl Described {
    /// The name of the store's folder in the folder of indexes.
    pub(crate) fn folder_name(&self) -> String {
        format!("store-{}", &self.key[..12])
    }
}

/// Hashes a source. Reads documents first.
pub(crate) fn describe(
    source: &SourceOptions,
    observe: &mut Observer<'_>,
    inputs: &mut Inputs,
) -> Result<Described> {
    // Destructuring makes a new option a compile error here.
    // The hash of the content covers the other options.
    let SourceOptions {
        path: _,
        format,
        include: _,
        exclude: _,
        ignore_file: _,
        columns: _,
        strict: _,
        redirects,
        split: _,
        size: _,
        overlap: _,
        tokenizer,
        indexes: _,
        shown: _,
    } = source;
    let pages = match format {
        Some(collection) => collection::pages(source, *collection, inputs)?,
        None => documents::pages(source, observe, inputs)?,
    };
    let SourcePages { path, content, .. } = pages;
    let redirects = redirects.as_deref().map(|path| inputs.file(path)).transpose()?;
    let key = (sporran_kilt::store::VERSION, &content, &redirects, source.splitting());
    let (key, tokens) = match tokenizer {
        Some(folder) => {
            let tokenizer = Tokenizer::from_folder(folder)?;
            (hash_json(&(key, hash_json(&tokenizer.json()))), Some(token_ranges(tokenizer)))
        }
        None => (hash_json(&key), None),
    };
    Ok(Described { path, content, redirects, tokens, key })
}

/// Opens the store of a source. Builds a missing store.
pub(crate) fn store(
    source: &SourceOptions,
    observe: &mut Observer<'_>,
    hashes: &mut Vec<PartHash>,
    inputs: &mut Inputs,
) -> Result<Arc<PassageStore>> {
    store_of(source, None, observe, hashes, inputs)
}

/// As [`store`]. Merges a missing store out of the stores of parts, if there are any.
pub(crate) fn store_of(
    source: &SourceOptions,
    parts: Option<&ShardParts>,
    observe: &mut Observer<'_>,
    hashes: &mut Vec<PartHash>,
    inputs: &mut Inputs,
) -> Result<Arc<PassageStore>> {
    let described = describe(source, observe, inputs)?;
    let folder = source.indexes.join(described.folder_name());
    let Described { path, content, tokens, .. } = described;
    let format = &source.format;
    let split = source.splitting();
    hashes.push(PartHash { part: "source".into(), path: source.first_path().to_owned(), blake3: content });
    let step = "store passages";
    let store = if let Some(place) = vacant(&folder, step, observe)? {
        let build = BuildOptions { source: path.clone(), redirects: source.redirects.clone(), split };
        let stores = parts.map(ShardParts::stores).filter(|stores| !stores.is_empty());
        let size = match stores {
            Some(stores) => stores.iter().map(PassageStore::bytes).sum(),
            None => collection::size(&path, *format)?,
        };
        begin(observe, step, size, Unit::Bytes);
        let place = unchanged(place, inputs);
        let mut report = |progress: Progress| advance(observe, progress.read);
        let store = match (stores, format) {
            (Some(stores), _) => PassageStore::merge(stores, *format, &build, place, &mut report)?,
            (None, Some(collection)) => {
                PassageStore::build_collection(*collection, &build, tokens, place, &mut report)?
            }
            (None, None) => PassageStore::build_with(&build, tokens, place, &mut report)?,
        };
        observe(Event::End);
        store
    } else {
        PassageStore::open(&folder)?
    };
    hashes.push(PartHash { part: "store".into(), path: folder.clone(), blake3: store.hash().to_owned() });
    if let Some(hash) = store.metadata_hash().filter(|_| store.has_places()) {
        // Provenance has the places. A store of an earlier version of the program lacks them.
        hashes.push(PartHash { part: "places".into(), path: folder, blake3: hash.to_owned() });
    }
    Ok(Arc::new(store.with_sources(source.names())))
}

/// Opens the passage store of files and folders in a cache: `source` names a folder of the cache for its indexes, and
/// `sources` are the paths. Reads documents and builds a missing store first. The cache's list has the folder from then on.
///
/// # Errors
/// Errors of reading, and those of a source without pages.
pub fn cached_store(
    source: &SourceOptions,
    sources: &[PathBuf],
    observe: &mut Observer<'_>,
) -> Result<Arc<PassageStore>> {
    let store = store(source, observe, &mut Vec::new(), &mut Inputs::default())?;
    cache::note((store.folder(), store.hash()), sources)?;
    Ok(store)
}

/// The byte ranges of a text's tokens. A text that cannot be split has none.
fn token_ranges(tokenizer: Tokenizer) -> Arc<TokenRanges> {
    Arc::new(move |text: &str| {
        let bytes: Vec<u32> =
            text.char_indices().map(|(at, _)| at as u32).chain([text.len() as u32]).collect();
        let tokens = tokenizer.encode_places(text).unwrap_or_default();
        let place = |token: PlacedToken| token.place.map(|place| (bytes[place.start], bytes[place.end]));
        tokens.into_iter().filter_map(place).collect()
    })
}

/// A place whose folder gets its name only if no input has changed since its hash, because the name has that hash.
pub(crate) fn unchanged(place: Place, inputs: &Inputs) -> Place {
    let inputs = inputs.clone();
    place.checked(move || inputs.verify())
}
