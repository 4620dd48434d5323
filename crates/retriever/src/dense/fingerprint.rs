//! A hash of everything that affects vectors.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::json;
use sporran_checkpoint::Role;

use super::{DenseOptions, folder::settings};
use crate::{Error, Result};

/// Endings of files that affect the result: weights, configs, vocabularies. Cards, code and other formats of
/// the same weights do not.
const ENDINGS: [&str; 6] = ["bin", "json", "model", "pt", "safetensors", "txt"];

/// BLAKE3, in hexadecimal, over the weight and config files of the passage encoder and over the options that
/// affect passage vectors. The device and the batch size are excluded, because they affect only rounding. An
/// encoder for queries only is excluded too, so the index stays valid while that one is trained.
///
/// # Errors
/// [`Error::Io`] if a file cannot be read; [`Error::Transformers`] and [`Error::Option`] for a setting of a folder that
/// cannot be used.
pub(crate) fn encoder_hash(options: &DenseOptions) -> Result<String> {
    // Every option is listed, so a new one does not compile until it is handled.
    let DenseOptions {
        model,
        passage_model,
        pooling,
        dimensions,
        passage_template,
        // Read from the folder if the option is not given.
        similarity: _,
        max_tokens,
        precision,
        // Affects queries only.
        query_template: _,
        query_max_tokens: _,
        query_truncation: _,
        // Affects rounding only.
        device: _,
        batch_tokens: _,
        // Affects the index only: see `DenseOptions::key`.
        index: _,
    } = options;
    let (key, folder) = match passage_model {
        Some(folder) => ("passage-model", folder),
        None => ("model", model),
    };
    // Hashed by name in addition to the files, so that indexes of older versions without them are not
    // accepted.
    let prompt = match passage_template {
        None => settings(folder)?.map(|settings| settings.prompt(Role::Passage).to_owned()),
        Some(_) => None,
    };
    let key = json!({
        key: folder_hash(folder)?,
        "pooling": pooling,
        "dimensions": dimensions,
        "prompt": prompt,
        "passage-template": passage_template,
        "similarity": options.similarity()?,
        "max-tokens": max_tokens,
        "precision": precision,
    });
    Ok(blake3::hash(key.to_string().as_bytes()).to_hex().to_string())
}

/// BLAKE3 over the names and contents of a model's files, in its folder and the subfolders, because
/// sentence-transformers has one folder a layer.
fn folder_hash(folder: &Path) -> Result<String> {
    let mut names = Vec::new();
    for name in entries(folder)? {
        let path = folder.join(&name);
        if path.is_dir() {
            names.extend(entries(&path)?.into_iter().map(|inner| name.join(inner)));
        } else {
            names.push(name);
        }
    }
    names.sort();
    let mut hasher = blake3::Hasher::new();
    for name in names {
        let path = folder.join(&name);
        let ending = name.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if !ENDINGS.contains(&ending) || !path.is_file() {
            continue;
        }
        let mut content = blake3::Hasher::new();
        content.update_mmap_rayon(&path).map_err(Error::io(&path, "read"))?;
        let name = name.to_string_lossy();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(content.finalize().as_bytes());
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// The names in a folder that are not hidden.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "open"))? {
        let name = entry.map_err(Error::io(folder, "read"))?.file_name();
        if !name.to_string_lossy().starts_with('.') {
            names.push(PathBuf::from(name));
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dense::Similarity;

    #[test]
    fn what_changes_vectors_changes_the_hash_and_nothing_else_does() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("config.json", "{}");
        write("model.safetensors", "weights");
        fs::create_dir(folder.join("1_Pooling")).unwrap();
        write("1_Pooling/config.json", "{}");
        let options = DenseOptions::new(folder.into());
        let first = encoder_hash(&options).unwrap();
        write("README.md", "a card");
        write(".gitattributes", "");
        let same = DenseOptions { batch_tokens: 1, ..options.clone() };
        assert_eq!(encoder_hash(&same).unwrap(), first);
        write("1_Pooling/config.json", "{ }");
        let second = encoder_hash(&options).unwrap();
        let cosine = DenseOptions { similarity: Some(Similarity::Cosine), ..options.clone() };
        let towers = DenseOptions { passage_model: Some(folder.into()), ..options.clone() };
        let hashes = [first, second, encoder_hash(&cosine).unwrap(), encoder_hash(&towers).unwrap()];
        let queries = DenseOptions { model: folder.join("1_Pooling"), ..towers };
        assert_eq!(encoder_hash(&queries).unwrap(), hashes[3]);
        assert!(hashes.iter().enumerate().all(|(at, hash)| !hashes[..at].contains(hash)));
        let missing = DenseOptions::new(folder.join("none"));
        assert!(matches!(encoder_hash(&missing), Err(Error::Io { action: "open", .. })));
    }
}
