//! The passage store of a source, built once for its content and options.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
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
    source::{collection, documents, options::SourceOptions},
};

/// The hash of the inputs of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartHash {
    /// The part: `source`, `store`, `retriever`, `generator`.
    pub part: &'static str,
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

/// Opens the store of a source. Builds a missing store.
pub(crate) fn store(
    source: &SourceOptions,
    observe: &mut Observer<'_>,
    hashes: &mut Vec<PartHash>,
    inputs: &mut Inputs,
) -> Result<Arc<PassageStore>> {
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
        indexes,
    } = source;
    let pages = match format {
        Some(collection) => collection::pages(source, *collection, inputs)?,
        None => documents::pages(source, observe, inputs)?,
    };
    let SourcePages { path, content, .. } = pages;
    let redirects = redirects.as_deref().map(|path| inputs.file(path)).transpose()?;
    let split = source.splitting();
    let key = (sporran_kilt::store::VERSION, &content, &redirects, split);
    let (key, tokens) = match tokenizer {
        Some(folder) => {
            let tokenizer = Tokenizer::from_folder(folder)?;
            (hash_json(&(key, hash_json(&tokenizer.json()))), Some(token_ranges(tokenizer)))
        }
        None => (hash_json(&key), None),
    };
    hashes.push(PartHash { part: "source", path: source.first_path().to_owned(), blake3: content });
    let folder = indexes.join(format!("store-{}", &key[..12]));
    let step = "store passages";
    let store = if let Some(place) = vacant(&folder, step, observe)? {
        let build = BuildOptions { source: path.clone(), redirects: source.redirects.clone(), split };
        begin(observe, step, collection::size(&path, *format)?, Unit::Bytes);
        let place = unchanged(place, inputs);
        let mut report = |progress: Progress| advance(observe, progress.read);
        let store = match format {
            Some(collection) => {
                PassageStore::build_collection(*collection, &build, tokens, place, &mut report)?
            }
            None => PassageStore::build_with(&build, tokens, place, &mut report)?,
        };
        observe(Event::End);
        store
    } else {
        PassageStore::open(&folder)?
    };
    hashes.push(PartHash { part: "store", path: folder.clone(), blake3: store.hash().to_owned() });
    if let Some(hash) = store.metadata_hash().filter(|_| store.has_places()) {
        // Provenance has the places. A store of an earlier version of the program lacks them.
        hashes.push(PartHash { part: "places", path: folder, blake3: hash.to_owned() });
    }
    Ok(Arc::new(store))
}

/// Opens the passage store of a source. Reads documents and builds a missing store first.
///
/// # Errors
/// Errors of reading, and those of a source without pages.
pub fn passage_store(source: &SourceOptions, observe: &mut Observer<'_>) -> Result<Arc<PassageStore>> {
    store(source, observe, &mut Vec::new(), &mut Inputs::default())
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
