//! The passage store of a source, built once for its content and options.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use sporran_kilt::{
    PassageStore,
    folder::Place,
    hash_json,
    observe::{Event, Observer, Unit, advance, begin},
    store::{BuildOptions, Progress},
};

use crate::{
    Result,
    run_dir::inputs::Inputs,
    source::{collection, options::SourceOptions},
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
    let SourceOptions { path, format, redirects, split, indexes } = source;
    // The hash of a collection has its format.
    let content = collection::content(source, inputs)?;
    let redirects = redirects.as_deref().map(|path| inputs.file(path)).transpose()?;
    let key = hash_json(&(sporran_kilt::store::VERSION, &content, &redirects, split));
    hashes.push(PartHash { part: "source", path: path.clone(), blake3: content });
    let folder = indexes.join(format!("store-{}", &key[..12]));
    let step = "store passages";
    let store = if let Some(place) = vacant(&folder, step, observe)? {
        let build = BuildOptions {
            source: source.path.clone(),
            redirects: source.redirects.clone(),
            split: source.split,
        };
        begin(observe, step, collection::size(source)?, Unit::Bytes);
        let place = unchanged(place, inputs);
        let mut report = |progress: Progress| advance(observe, progress.read);
        let store = match format {
            None => PassageStore::build(&build, place, &mut report)?,
            Some(collection) => PassageStore::build_collection(*collection, &build, place, &mut report)?,
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

/// A place whose folder gets its name only if no input has changed since its hash, because the name has that hash.
pub(crate) fn unchanged(place: Place, inputs: &Inputs) -> Place {
    let inputs = inputs.clone();
    place.checked(move || inputs.verify())
}
