//! The configs of KILT's baselines: nothing is wrong with them but that models and data are to be fetched first.

use std::path::{Path, PathBuf};

use sporran_pipeline::{Config, Options};

fn configs(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            configs(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "toml") {
            found.push(path);
        }
    }
    found.sort();
}

#[test]
fn every_config_of_a_baseline_lacks_files_at_most() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/kilt");
    let mut found = Vec::new();
    configs(&folder, &mut found);
    assert!(found.len() > 15, "{found:?}");
    for config in found {
        for fault in Options::mistakes(&config, &[]).unwrap() {
            let absent = ["no file ", "no folder ", "holds no task file"];
            assert!(absent.iter().any(|message| fault.message.contains(message)), "{fault}");
        }
        // The run's folder is named after the file, so that no two rows share one.
        let name = Options::parse(&config, &[]).map(|options| options.general.name);
        let stem = config.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            name.as_ref().is_ok_and(|name| name.contains(stem.trim_start_matches("train-"))),
            "{name:?} {stem}"
        );
    }
}
