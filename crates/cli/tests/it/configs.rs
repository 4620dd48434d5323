//! `sporran config show` over the configs of this repository.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::common::{errors, root, sporran};
use sporran_pipeline::workflow_of;

/// Every config below a folder.
fn configs(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            configs(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
}

#[test]
fn what_is_shown_loads_as_the_same_config() {
    let root = root();
    let mut paths = Vec::new();
    configs(&root.join("configs"), &mut paths);
    assert!(paths.len() > 100, "{}", paths.len());
    let folder = tempfile::tempdir().unwrap();
    let again = folder.path().join("again.toml");
    let mut kinds = BTreeSet::new();
    for path in paths {
        let shown = sporran(&root, &["config", "show", path.to_str().unwrap()]).output().unwrap();
        if !shown.status.success() {
            // Data and models of others are not part of the repository, and some files are not configs by themselves.
            assert_eq!(shown.status.code(), Some(2), "{}", path.display());
            continue;
        }
        fs::write(&again, &shown.stdout).unwrap();
        let second = sporran(&root, &["config", "show", again.to_str().unwrap()]).output().unwrap();
        assert!(second.status.success(), "{}: {}", path.display(), errors(&second));
        assert_eq!(
            String::from_utf8_lossy(&shown.stdout),
            String::from_utf8_lossy(&second.stdout),
            "{}",
            path.display()
        );
        kinds.insert(workflow_of(&path, &[]).unwrap().name);
    }
    for kind in ["answer", "link-prediction", "kbqa", "kbqa-benchmark"] {
        assert!(kinds.contains(kind), "no config of kind {kind} was shown: {kinds:?}");
    }
}
