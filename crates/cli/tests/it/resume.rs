//! A killed run resumes and writes the same bytes.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::common::{errors, root, sporran};

/// The outputs that must be the same after kills.
fn outputs(run: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for part in ["predictions", "retrieval"] {
        for entry in fs::read_dir(run.join(part)).unwrap() {
            let path = entry.unwrap().path();
            found.insert(path.strip_prefix(run).unwrap().to_owned(), fs::read(&path).unwrap());
        }
    }
    found.insert("report.json".into(), fs::read(run.join("report.json")).unwrap());
    found
}

/// The task files in a run's manifest.
fn tasks(run: &Path) -> Vec<serde_json::Value> {
    let manifest = fs::read(run.join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    manifest["tasks"].as_array().unwrap().clone()
}

#[test]
fn a_killed_run_resumes_and_writes_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let config = root().join("configs/quickstart.toml");
    let overrides = |output: &str, indexes: &str| {
        vec![format!("output={output}"), format!("source.indexes={indexes}"), "tasks.limit=150".to_owned()]
    };
    let place = |name: &str| folder.path().join(name).display().to_string();
    let arguments = |overrides: &[String]| -> Vec<String> {
        let mut all = vec!["-q".to_owned(), "run".to_owned(), config.display().to_string()];
        all.extend(overrides.iter().cloned());
        all
    };
    let strs = |all: &[String]| -> Vec<String> { all.to_vec() };

    let whole = arguments(&overrides(&place("whole"), &place("indexes")));
    let output =
        sporran(&root(), &strs(&whole).iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let expected = outputs(&folder.path().join("whole/quickstart"));
    assert_eq!(expected.len(), 23, "eleven predictions, eleven rankings, one report");
    // The manifest's costs are those of this call.
    let all = tasks(&folder.path().join("whole/quickstart"));
    assert!(all.iter().all(|task| task["answered"] == task["records"]), "{all:?}");
    assert!(all.iter().any(|task| task["tokens"].as_u64() > Some(0)), "{all:?}");

    let killed = arguments(&overrides(&place("killed"), &place("killed-indexes")));
    let killed: Vec<&str> = killed.iter().map(String::as_str).collect();
    let mut kills = 0;
    for milliseconds in [20u64, 60, 120, 250, 400, 700, 1000, 1500, 2200, 3000] {
        let mut child = sporran(&root(), &killed).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        // SIGKILL leaves the program no time to clean up.
        child.kill().unwrap();
        kills += usize::from(!child.wait().unwrap().success());
    }
    assert!(kills >= 3, "the run was too short to be killed: {kills}");
    // The leftover of a kill before a temporary file is renamed.
    let leftover = folder.path().join("killed/quickstart/predictions/.sporran-killed");
    fs::create_dir_all(leftover.parent().unwrap()).unwrap();
    fs::write(&leftover, "half").unwrap();
    let output = sporran(&root(), &killed).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let found = outputs(&folder.path().join("killed/quickstart"));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    let other: Vec<_> = found.iter().filter(|(path, bytes)| expected[*path] != **bytes).collect();
    assert!(other.is_empty(), "{:?}", other.iter().map(|(path, _)| path).collect::<Vec<_>>());

    // Another call reuses everything.
    let output = sporran(&root(), &killed).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let tasks = tasks(&folder.path().join("killed/quickstart"));
    assert!(tasks.iter().all(|task| task["reused"] == true && task["answered"] == 0), "{tasks:?}");
}
