//! The sizes of systems: parameters and indexes, beside table 5 of the KILT paper.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sporran_checkpoint::weight_types;

/// The size of a run's system, as far as its files are still in place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The number of parameters in the weights files that the run read. `None` without weights, and if a file is missing or
    /// is not in safetensors' format.
    pub parameters: Option<u64>,
    /// The bytes of its indexes. `None` without an index, and if one is missing.
    pub index_bytes: Option<u64>,
}

/// A published row of table 5. Numbers are rounded as in the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PublishedSize {
    /// The name of the system.
    pub system: &'static str,
    /// The number of trainable parameters.
    pub parameters: &'static str,
    /// The number of parameters that are not trained.
    pub fixed: Option<&'static str>,
    /// The number of values in its index.
    pub index: Option<&'static str>,
}

const fn row(
    system: &'static str,
    parameters: &'static str,
    fixed: Option<&'static str>,
    index: Option<&'static str>,
) -> PublishedSize {
    PublishedSize { system, parameters, fixed, index }
}

/// Table 5 of the paper.
pub(super) const PUBLISHED: &[PublishedSize] = &[
    row("Trans MemNet", "15.5M", None, None),
    row("BERT (base)", "110M", None, None),
    row("NSMN", "199M", Some("93M"), None),
    row("T5 (base)", "220M", None, None),
    row("DPR", "220M", None, Some("15B")),
    row("BERT (large)", "340M", None, None),
    row("BART (large)", "406M", None, None),
    row("RAG", "626M", None, Some("15B")),
    row("BLINK", "680M", None, Some("6B")),
];

/// A part of a run, in its manifest.
#[derive(Debug, Deserialize)]
pub(super) struct Part {
    part: String,
    path: PathBuf,
}

/// The endings of weights files whose tensors are not counted.
const OTHER_WEIGHTS: [&str; 5] = ["bin", "gguf", "pt", "pth", "ckpt"];

impl Size {
    /// The size of the system whose run read `inputs` and had these parts.
    pub(super) fn of(inputs: &BTreeMap<PathBuf, String>, parts: &[Part]) -> Self {
        let ending = |path: &Path, endings: &[&str]| {
            path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known))
        };
        let mut weights = inputs.keys().filter(|path| ending(path, &["safetensors"])).peekable();
        let is_known = weights.peek().is_some() && !inputs.keys().any(|path| ending(path, &OTHER_WEIGHTS));
        let count =
            |path: &PathBuf| Some(weight_types(path).ok()?.values().map(|&count| count as u64).sum::<u64>());
        let mut indexes = parts.iter().filter(|part| part.part == "retriever").peekable();
        let has_index = indexes.peek().is_some();
        Self {
            parameters: is_known.then(|| weights.map(count).sum::<Option<u64>>()).flatten(),
            index_bytes: has_index
                .then(|| indexes.map(|part| bytes(&part.path)).sum::<Option<u64>>())
                .flatten(),
        }
    }
}

/// The bytes of a file, or of all files of a folder.
fn bytes(path: &Path) -> Option<u64> {
    let data = fs::metadata(path).ok()?;
    if !data.is_dir() {
        return Some(data.len());
    }
    fs::read_dir(path).ok()?.map(|entry| bytes(&entry.ok()?.path())).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model.safetensors");
        // Two tensors of 6 and 3 parameters.
        let header = r#"{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"F16","shape":[3],"data_offsets":[24,30]}}"#;
        let mut file = (header.len() as u64).to_le_bytes().to_vec();
        file.extend(header.as_bytes());
        file.extend([0; 30]);
        fs::write(&model, file).unwrap();
        let index = folder.path().join("index");
        fs::create_dir_all(index.join("part")).unwrap();
        fs::write(index.join("a"), [0; 7]).unwrap();
        fs::write(index.join("part/b"), [0; 5]).unwrap();
        let mut inputs = BTreeMap::from([(model, String::new()), ("tasks.jsonl".into(), String::new())]);
        let part = |part: &str, path: &Path| Part { part: part.into(), path: path.to_owned() };
        let parts = [part("store", folder.path()), part("retriever", &index)];
        assert_eq!(Size::of(&inputs, &parts), Size { parameters: Some(9), index_bytes: Some(12) });
        let gone = [part("retriever", &folder.path().join("none"))];
        assert_eq!(Size::of(&inputs, &gone).index_bytes, None);
        inputs.insert("models/other.gguf".into(), String::new());
        assert_eq!(Size::of(&inputs, &[]), Size::default());
        assert_eq!(Size::of(&BTreeMap::new(), &[]), Size::default());
    }
}
