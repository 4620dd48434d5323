//! The weight files of a folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::file::WeightFile;
use crate::{
    error::{Error, Result},
    json::{self, parse},
};

/// A weights file, and the index of its shards where there are some.
struct Layout {
    single: &'static str,
    index: &'static str,
}

/// In the order in which `transformers` looks for them.
const LAYOUTS: [Layout; 2] = [
    Layout { single: "model.safetensors", index: "model.safetensors.index.json" },
    Layout { single: "pytorch_model.bin", index: "pytorch_model.bin.index.json" },
];

/// The files that the index names.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Maps the weights of `folder`, and returns the path of the file that lists them.
pub(crate) fn open_weights(folder: &Path) -> Result<(Vec<WeightFile>, PathBuf)> {
    for layout in LAYOUTS {
        let single = folder.join(layout.single);
        if single.exists() {
            return Ok((vec![WeightFile::open(&single, layout.single)?], single));
        }
        let path = folder.join(layout.index);
        let Some(text) = json::text(&path)? else { continue };
        let index: Index = parse(&path, &text)?;
        let shards: BTreeSet<&String> = index.weight_map.values().collect();
        let open = |shard: &String| {
            if Path::new(shard).file_name().is_none_or(|name| name != shard.as_str()) {
                return Err(Error::Config {
                    path: path.clone(),
                    field: "weight_map".into(),
                    expected: "file names".into(),
                    found: format!("`{shard}`"),
                });
            }
            let file = folder.join(shard);
            if !file.exists() {
                let tensors = index.weight_map.values().filter(|name| *name == shard).count();
                let (path, shard, all) = (path.clone(), shard.clone(), index.weight_map.len());
                return Err(Error::MissingShard { path, shard, tensors, all });
            }
            WeightFile::open(&file, layout.index)
        };
        return Ok((shards.into_iter().map(open).collect::<Result<_>>()?, path));
    }
    let expected = "model.safetensors or model.safetensors.index.json, or pytorch_model.bin or pytorch_model.bin.index.json";
    let adapter = folder.join("adapter_config.json");
    if adapter.is_file() {
        let problem = "expected the weights of a model, found an adapter; merge it with its base model by `sporran models \
                       import`";
        return Err(Error::Adapter { path: adapter, problem: problem.into() });
    }
    Err(Error::MissingFile { folder: folder.into(), expected })
}
