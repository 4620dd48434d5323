//! The passage store of a source, built once for its content and options.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::Serialize;
use sporran_kilt::{PassageStore, folder::Place, hash_json, store::BuildOptions};

use crate::{
    Error, Result,
    observe::{Event, Observer, Unit, advance, begin},
    run_dir::inputs::Inputs,
    source::options::SourceOptions,
};

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

/// The place of a folder that is not there yet; none where it is, perhaps built by a process that this one waited for.
pub(crate) fn vacant(folder: &Path, step: &str, observe: &mut Observer<'_>) -> Result<Option<Place>> {
    let place = Place::vacant(folder)?;
    if place.is_none() {
        observe(Event::Skip { step: step.to_owned() });
    }
    Ok(place)
}

/// Opens the store of a source, building it if it is not there.
pub(crate) fn store(
    source: &SourceOptions,
    observe: &mut Observer<'_>,
    hashes: &mut Vec<PartHash>,
    inputs: &mut Inputs,
) -> Result<Arc<PassageStore>> {
    // Each option has its say here, or none: a new one does not compile.
    let SourceOptions { path, redirects, split, indexes } = source;
    let content = inputs.file(path)?;
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
        let size = fs::metadata(&source.path).map_err(Error::io(&source.path, "open"))?.len();
        begin(observe, step, size, Unit::Bytes);
        let place = unchanged(place, inputs);
        let store = PassageStore::build(&build, place, &mut |progress| advance(observe, progress.read))?;
        observe(Event::End);
        store
    } else {
        PassageStore::open(&folder)?
    };
    hashes.push(PartHash { part: "store", path: folder, blake3: store.hash().to_owned() });
    Ok(Arc::new(store))
}

/// A place whose folder gets its name only if no input changed since it was hashed: the name says what it was made from.
pub(crate) fn unchanged(place: Place, inputs: &Inputs) -> Place {
    let inputs = inputs.clone();
    place.checked(move || inputs.verify())
}
