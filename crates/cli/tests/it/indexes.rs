//! Stores and indexes: concurrent builds, builds that were killed, and damaged files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use crate::common::{errors, json, root, sporran};

const WORDS: [&str; 8] = ["river", "king", "song", "city", "war", "harbour", "bridge", "mountain"];

fn tasks() -> PathBuf {
    root().join("examples/minikilt/kilt/nq-dev-kilt.jsonl")
}

/// Writes pages, and a config that needs a store, an index of names and a BM25 index.
fn write_inputs(folder: &Path, pages: usize) {
    let word = |at: usize| WORDS[at * 7 % 13 % WORDS.len()];
    let text: String = (0..pages)
        .map(|id| {
            let title = format!("{} {id}", word(id));
            let text: Vec<&str> = (0..60).map(|at| word(id * 31 + at * at)).collect();
            let page = serde_json::json!({"wikipedia_id": id.to_string(), "wikipedia_title": title,
                "text": [title, text.join(" ")]});
            format!("{page}\n")
        })
        .collect();
    fs::write(folder.join("pages.jsonl"), text).unwrap();
    fs::write(
        folder.join("c.toml"),
        format!(
            "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = ['{}']\nlimit = 2\n\
             [retriever]\nkind = \"entity\"\n[retriever.context]\nkind = \"bm25\"\n",
            tasks().display()
        ),
    )
    .unwrap();
}

/// All files below `indexes` without the stamps. `indexes` itself must hold folders only.
fn built(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for index in fs::read_dir(folder.join("indexes")).unwrap() {
        let index = index.unwrap();
        for file in fs::read_dir(index.path()).unwrap() {
            let file = file.unwrap();
            if file.file_name() != "verified" {
                let name = Path::new(&index.file_name()).join(file.file_name());
                found.insert(name, fs::read(file.path()).unwrap());
            }
        }
    }
    found
}

fn index(folder: &Path) -> Child {
    sporran(folder, &["--threads", "1", "index", "c.toml"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn success(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    errors(&output)
}

#[test]
fn concurrent_processes_build_an_index_once() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), 2500);
    success(index(folder.path()));
    let expected = built(folder.path());
    let kinds: Vec<_> = expected.keys().filter(|path| path.ends_with("header")).collect();
    assert_eq!(kinds.len(), 2, "names and words: {kinds:?}");
    let mut waited = 0;
    for _ in 0..4 {
        fs::remove_dir_all(folder.path().join("indexes")).unwrap();
        let both = [index(folder.path()), index(folder.path()), index(folder.path())];
        let messages: String = both.map(success).concat();
        waited += messages.matches("waiting for it").count();
        // One process builds each of the three parts; the other two skip it.
        assert_eq!(messages.matches("up to date, skipped").count(), 6, "{messages}");
        assert!(built(folder.path()) == expected);
    }
    assert!(waited > 0, "no process waited for another");
}

#[test]
fn the_next_build_removes_what_a_kill_left() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), 2500);
    success(index(folder.path()));
    let expected = built(folder.path());
    fs::remove_dir_all(folder.path().join("indexes")).unwrap();
    let mut kills = 0;
    for milliseconds in [15, 30, 60, 90, 130, 180, 240] {
        let mut child = index(folder.path());
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        kills += usize::from(!child.wait().unwrap().success());
    }
    assert!(kills > 1, "the builds were too short to be killed");
    // The worst moments: a complete folder before its renaming, and an empty lock file.
    let indexes = folder.path().join("indexes");
    fs::create_dir_all(indexes.join(".store-0123456789ab.building")).unwrap();
    fs::write(indexes.join(".store-0123456789ab.building/store.json"), "{}").unwrap();
    fs::write(indexes.join(".store-0123456789ab.building.lock"), "").unwrap();
    // The last part may be complete by now; it is removed so that something has to be built.
    for index in fs::read_dir(&indexes).unwrap().map(|entry| entry.unwrap()) {
        if index.file_name().to_string_lossy().starts_with("bm25-") {
            fs::remove_dir_all(index.path()).unwrap();
        }
    }
    success(index(folder.path()));
    assert!(built(folder.path()) == expected);
}

#[test]
fn other_links_give_another_index_of_names() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), 30);
    let path = folder.path().join("pages.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let names = || -> Vec<String> {
        success(index(folder.path()));
        let entries = fs::read_dir(folder.path().join("indexes")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("names-")).collect()
    };
    assert_eq!(names().len(), 1);
    // The store does not hold links, and its content is the same.
    let link = r#""anchors":[{"text":"the stream","href":"https://en.wikipedia.org/wiki/river_0"}],"text":"#;
    fs::write(&path, text.replacen(r#""text":"#, link, 1)).unwrap();
    assert_eq!(names().len(), 2);
    assert_eq!(names().len(), 2);
}

#[test]
fn a_flipped_bit_is_an_error_in_every_verb_and_doctor_names_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path(), 300);
    success(index(folder.path()));
    let record = fs::read_to_string(tasks()).unwrap();
    let record: serde_json::Value = serde_json::from_str(record.lines().next().unwrap()).unwrap();
    let id = record["id"].as_str().unwrap().to_owned();
    let whole = json(folder.path(), &["doctor", "--verify", "--json"]);
    assert_eq!((whole["damaged"].as_u64(), whole["verified"].as_array().unwrap().len()), (Some(0), 3));
    let verbs: [&[&str]; 4] = [
        &["index", "c.toml"],
        &["retrieve", "c.toml"],
        &["run", "c.toml"],
        &["explain", "c.toml", "--id", &id],
    ];
    let mut seen = 0;
    for (name, bytes) in built(folder.path()) {
        let path = folder.path().join("indexes").join(&name);
        let is_header = name.ends_with("header") || name.ends_with("store.json");
        if bytes.is_empty() || is_header {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[bytes.len() / 2] ^= 1;
        fs::write(&path, damaged).unwrap();
        for verb in &verbs {
            let output = sporran(folder.path(), &[&["-q"], *verb].concat()).output().unwrap();
            let message = errors(&output);
            assert_eq!(output.status.code(), Some(2), "{verb:?} {}: {message}", name.display());
            let named = message.contains(&name.display().to_string());
            assert!(
                named && message.contains("checksum") && message.contains("delete the folder"),
                "{message}"
            );
        }
        let output = sporran(folder.path(), &["doctor", "--verify", "indexes", "--json"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["damaged"], 1);
        let wrong: Vec<_> =
            found["verified"].as_array().unwrap().iter().filter(|one| !one["damage"].is_null()).collect();
        let index = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(wrong[0]["path"], format!("indexes/{index}"));
        let shown = sporran(folder.path(), &["doctor", "--verify"]).output().unwrap();
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert!(
            shown.status.code() == Some(2)
                && text.contains("DAMAGED")
                && text.contains("3 verified, 1 damaged"),
            "{text}"
        );
        fs::write(&path, &bytes).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 14, "seven files of the store, one of the names, six of the words");
    // The action that the error recommends works.
    let words = fs::read_dir(folder.path().join("indexes")).unwrap().map(|entry| entry.unwrap().path());
    let words = words.into_iter().find(|path| path.to_string_lossy().contains("bm25-")).unwrap();
    fs::write(words.join("norms"), "").unwrap();
    fs::remove_dir_all(&words).unwrap();
    success(index(folder.path()));
    json(folder.path(), &["doctor", "--verify", ".", "--json"]);

    let missing = sporran(folder.path(), &["doctor", "--verify", "nowhere"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(errors(&missing).contains("no folder nowhere; you are in"), "{}", errors(&missing));
}
