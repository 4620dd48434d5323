//! `sporran config show` and `config check` over the configs of this repository.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::common::{errors, root, sporran};
use sporran_pipeline::{registry::WORKFLOWS, workflow_of};

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
fn the_output_of_config_show_loads_as_the_same_config() {
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
            // Some configs need data or models that are not in the repository, and some files are not complete configs.
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

/// Checks a config of the workflow `answer` that ends with these lines, and returns its mistakes.
fn mistakes(folder: &Path, stages: &str) -> String {
    fs::write(folder.join("pages.jsonl"), "{}").unwrap();
    fs::write(folder.join("tasks.jsonl"), "{}").unwrap();
    let general = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"tasks.jsonl\"]\n";
    fs::write(folder.join("c.toml"), format!("{general}{stages}")).unwrap();
    let output = sporran(folder, &["config", "check", "c.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{stages}");
    errors(&output)
}

#[test]
fn config_check_finds_values_out_of_range() {
    let folder = tempfile::tempdir().unwrap();
    let bm25 = mistakes(folder.path(), "[retriever]\nkind = \"bm25\"\nb = 40\nk1 = -3\n");
    for expected in ["c.toml:9: `retriever.b`", "c.toml:10: `retriever.k1`", "found 40", "found -3"] {
        assert!(bm25.contains(expected), "{expected}: {bm25}");
    }
    let generator = "[retriever]\nkind = \"bm25\"\n[generator]\nkind = \"seq2seq\"\nmodel = \"none\"\n\
                     [generator.generation]\ntop-p = 95\nnum-beams = 0\n";
    let generator = mistakes(folder.path(), generator);
    for expected in ["`generator.generation.top-p`", "`generator.generation.num-beams`", "no folder none"] {
        assert!(generator.contains(expected), "{expected}: {generator}");
    }
    let train = "[generator]\nkind = \"seq2seq\"\nmodel = \"m\"\n[train]\nmodel = \"m\"\n\
                 examples.files = [\"tasks.jsonl\"]\noptimizer.learning-rate = 3\n";
    let train = mistakes(folder.path(), train);
    assert!(train.contains("`train.optimizer.learning-rate`") && train.contains("found 3"), "{train}");
}

#[test]
fn the_only_mistakes_of_a_starter_config_are_missing_files() {
    for workflow in WORKFLOWS {
        let folder = tempfile::tempdir().unwrap();
        let output = sporran(folder.path(), &["init", workflow.name, "c.toml"]).output().unwrap();
        assert!(output.status.success(), "{}: {}", workflow.name, errors(&output));
        let output = sporran(folder.path(), &["config", "check", "c.toml"]).output().unwrap();
        let mistakes = errors(&output);
        for line in mistakes.lines().filter(|line| line.contains("c.toml:")) {
            let is_missing =
                line.contains("no file") || line.contains("no folder") || line.contains("has neither");
            assert!(is_missing, "{}: {line}", workflow.name);
        }
        let again = sporran(folder.path(), &["init", workflow.name, "c.toml"]).output().unwrap();
        assert_eq!(again.status.code(), Some(2));
        assert!(errors(&again).contains("c.toml exists"), "{}", errors(&again));
    }
}

#[test]
fn sixteen_thousand_unknown_keys_give_one_list() {
    let folder = tempfile::tempdir().unwrap();
    let keys: String = (0..16_000).map(|number| format!("key-{number} = 1\n")).collect();
    let listed = mistakes(folder.path(), &format!("[retriever]\nkind = \"bm25\"\n{keys}"));
    assert!(listed.contains("`retriever.key-0`: unknown field"), "{}", &listed[..400]);
    assert!(listed.contains("more unknown keys"), "{}", &listed[listed.len() - 400..]);
}
