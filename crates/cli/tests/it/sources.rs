//! Folders of documents as sources: what cannot be read is told, and the exit code says whether anything was read.

use std::{fs, path::Path};

use crate::{
    common::{errors, json, sporran},
    make::pdf,
};

/// A folder with documents and a config.
fn world(source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("docs")).unwrap();
    let config = format!(
        "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"docs\"\n{source}\n[tasks]\nfiles = [\"q.jsonl\"]\n[retriever]\nkind = \"bm25\"\n"
    );
    fs::write(folder.path().join("c.toml"), config).unwrap();
    fs::write(folder.path().join("q.jsonl"), "{\"id\":\"a\",\"input\":\"Where is tea boiled?\"}\n").unwrap();
    folder
}

fn write(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    fs::write(folder.join("docs").join(name), content).unwrap();
}

#[test]
fn pages_of_documents_are_indexed_and_the_others_are_told() {
    let folder = world("split = \"paragraph\"");
    write(folder.path(), "a.md", "# Tea\n\nTea is boiled in water.\n");
    // A process of the same program reads these.
    write(folder.path(), "b.pdf", pdf(&[&[(18, "Milk"), (11, "It is white.")], &[(11, "Cows give it.")]]));
    write(folder.path(), "c.pdf", b"%PDF-1.4\nnothing");
    write(folder.path(), "d.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0");
    let report = json(folder.path(), &["index", "c.toml", "--json"]);
    let documents = &report["documents"];
    assert_eq!((&report["passages"], &documents["files"]), (&3.into(), &2.into()), "{report}");
    let problems: Vec<&str> = documents["problems"]
        .as_array()
        .unwrap()
        .iter()
        .map(|found| found["file"].as_str().unwrap())
        .collect();
    assert_eq!(problems, ["docs/c.pdf", "docs/d.png"]);
    let output = sporran(folder.path(), &["index", "c.toml"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("2 files, 2 pages; 2 not read\n  docs/c.pdf: "), "{text}");
    let output = sporran(folder.path(), &["-q", "retrieve", "c.toml"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let prediction = fs::read_to_string(folder.path().join("runs/r-retrieval/predictions/q.jsonl")).unwrap();
    let prediction: serde_json::Value = serde_json::from_str(&prediction).unwrap();
    let item = &prediction["output"][0]["provenance"][0];
    assert_eq!(
        (&item["file"], &item["line"], &item["wikipedia_id"]),
        (&"docs/a.md".into(), &3.into(), &"a.md".into())
    );
    let output = sporran(folder.path(), &["doctor", "--verify", "indexes"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("documents-"), "{}", errors(&output));
    let plan = json(folder.path(), &["index", "c.toml", "--plan", "--json"]);
    assert_eq!((&plan["pages"], &plan["passages"]), (&2.into(), &3.into()));
}

#[test]
fn nothing_readable_and_strict_end_with_code_2() {
    let folder = world("strict = true");
    write(folder.path(), "d.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0");
    write(folder.path(), "a.txt", "Tea.");
    let failed = |expected: &str| {
        let output = sporran(folder.path(), &["-q", "index", "c.toml"]).output().unwrap();
        let message = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
    };
    failed("1 file could not be read");
    fs::remove_file(folder.path().join("docs/a.txt")).unwrap();
    failed("docs/d.png: expected text, found a binary file");
    fs::remove_file(folder.path().join("docs/d.png")).unwrap();
    failed("no page could be read from docs: no files were found");
    fs::remove_dir(folder.path().join("docs")).unwrap();
    failed("no file or folder docs");
}
