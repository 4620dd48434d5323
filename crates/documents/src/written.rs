//! Folders that this program wrote.

use std::{fs, io::Read, path::Path};

/// The largest part of a file that is read to see who wrote it, in bytes.
const HEAD: u64 = 64;
/// Files that describe a folder of this program, each with what it starts with, white space left out.
///
/// | file | folder |
/// |---|---|
/// | `manifest.json`, `training-manifest.json` | a run, a training |
/// | `shard.json` | a part of a run |
/// | `store.json`, `documents.json`, `header` | a passage store, the pages of documents, an index |
const DESCRIPTIONS: [(&str, &str); 6] = [
    ("manifest.json", "{\"program\":\"sporran"),
    ("training-manifest.json", "{\"program\":\"sporran"),
    ("shard.json", "{\"format\":\"sporran-"),
    ("store.json", "{\"format\":\"sporran-"),
    ("documents.json", "{\"format\":\"sporran-"),
    ("header", "sporran-index"),
];
/// The folder of a run with the file that a process locks, and those that mark its work as unfinished.
const WORK: [&str; 4] =
    ["work/lock", "work/answers.unfinished", "work/training.unfinished", "work/written.json"];

/// Whether this program wrote a folder: a run, a training, a store, an index, the cached indexes of a
/// source, or an imported model.
pub(crate) fn is_written(folder: &Path) -> bool {
    let is_described = DESCRIPTIONS.iter().any(|(name, start)| starts_with(&folder.join(name), start));
    is_described || is_unfinished_run(folder) || is_cached(folder) || is_model(folder)
}

/// Whether a folder is that of a run without a manifest: it was killed, or runs now.
fn is_unfinished_run(folder: &Path) -> bool {
    folder.join("config.toml").is_file() && WORK.iter().any(|file| folder.join(file).is_file())
}

/// Whether a folder has the indexes of a source in a cache: its description, and the folder of a store.
fn is_cached(folder: &Path) -> bool {
    starts_with(&folder.join("source.json"), "{\"sources\":[")
}

/// Whether a folder is an imported model, with its card.
fn is_model(folder: &Path) -> bool {
    folder.join("model.toml").is_file() && folder.join("config.json").is_file()
}

/// Whether the text of a file starts so, without its white space.
fn starts_with(path: &Path, start: &str) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(HEAD).read_to_end(&mut head));
    head.retain(|byte| !byte.is_ascii_whitespace());
    read.is_ok() && head.starts_with(start.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_known_by_their_descriptions() {
        let place = tempfile::tempdir().unwrap();
        let of = |name: &str, files: &[(&str, &str)]| {
            let folder = place.path().join(name);
            for (file, text) in files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            is_written(&folder)
        };
        assert!(of("run", &[("manifest.json", "{\n  \"program\": \"sporran 0.1.0\",\n")]));
        assert!(of("shard", &[("shard.json", "{\"format\": \"sporran-shard\"}")]));
        assert!(of("store-1", &[("store.json", "{\"format\":\"sporran-passages\"}")]));
        assert!(of("bm25-1", &[("header", "sporran-index 3 ab\n{}")]));
        assert!(of("killed", &[("config.toml", ""), ("work/lock", "1")]));
        assert!(of("notes-1", &[("source.json", "{\"sources\":[\"/notes\"]}")]));
        assert!(of("model", &[("model.toml", ""), ("config.json", "{}")]));
        // Folders of people and of other programs.
        assert!(!of("app", &[("manifest.json", "{\"name\": \"app\"}"), ("config.toml", "")]));
        assert!(!of("office", &[("work/lock", ""), ("header", "Dear Sir")]));
        assert!(!of("empty", &[]));
    }
}
