//! The files of a source.

use std::fs;

use sporran_documents::{Severity, is_single_source, list};

use crate::{World, sources};

fn world() -> World {
    let world = World::new();
    for name in
        ["a.md", "b.txt", "drafts/c.md", "handbook/d.md", "handbook/deep/e.md", ".hidden.md", ".git/f.md"]
    {
        world.write(name, name);
    }
    world
}

#[test]
fn folders_are_read_with_their_folders_in_a_fixed_order() {
    let world = world();
    let listing = world.list();
    assert_eq!(sources(&listing), ["a.md", "b.txt", "drafts/c.md", "handbook/d.md", "handbook/deep/e.md"]);
    let file = &listing.files[3];
    assert_eq!(file.file, world.path("docs").join("handbook/d.md").display().to_string());
    assert_eq!((file.id.as_str(), file.bytes), ("handbook/d.md", 13));
    assert_eq!(file.blake3, blake3::hash(b"handbook/d.md").to_hex().to_string());
    assert!(listing.problems.is_empty());
}

#[test]
fn globs_and_ignore_files_leave_files_out() {
    let mut world = world();
    world.options.include = vec!["*.md".into()];
    world.options.exclude = vec!["drafts/".into()];
    assert_eq!(sources(&world.list()), ["a.md", "handbook/d.md", "handbook/deep/e.md"]);
    world.options.include = vec!["/handbook/**".into(), "*.txt".into()];
    assert_eq!(sources(&world.list()), ["b.txt", "handbook/d.md", "handbook/deep/e.md"]);
    world.options.exclude = vec!["handbook/*".into(), "!handbook/d.md".into()];
    assert_eq!(sources(&world.list()), ["b.txt", "handbook/d.md"]);
    (world.options.include, world.options.exclude) = (Vec::new(), Vec::new());
    world.write("handbook/.sporranignore", "deep/\n");
    world.write(".sporranignore", "*.txt\n/drafts\n");
    assert_eq!(sources(&world.list()), ["a.md", "handbook/d.md"]);
    world.options.ignore_file = String::new();
    assert_eq!(world.list().files.len(), 5);
    // A cache is left out, such as the responses of an endpoint, which are no evidence.
    world.write("drafts/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n# By a program.\n");
    world.write("handbook/CACHEDIR.TAG", "something else");
    // What this program wrote is counted.
    world.write("handbook/runs/a/manifest.json", "{\n  \"program\": \"sporran 0.2.0\"\n}");
    world.write("handbook/runs/a/predictions/nq.jsonl", "{}");
    world.write("handbook/indexes/bm25-0/header", "sporran-index 1 ab\n{}");
    let listing = world.list();
    let written =
        ["indexes/bm25-0", "runs/a"].map(|name| world.path("docs/handbook").join(name).display().to_string());
    assert_eq!(listing.written, written);
    let expected = ["a.md", "b.txt", "handbook/CACHEDIR.TAG", "handbook/d.md", "handbook/deep/e.md"];
    assert_eq!(sources(&listing), expected);
}

#[test]
fn several_paths_are_one_source_and_files_count_once() {
    let mut world = world();
    let (docs, other) = (world.path("docs"), world.path("other.txt"));
    fs::write(&other, "x").unwrap();
    world.options.paths = vec![docs.join("handbook"), other.clone(), docs.clone()];
    let listing = world.list();
    assert_eq!(sources(&listing), ["d.md", "deep/e.md", "other.txt", "a.md", "b.txt", "drafts/c.md"]);
    assert_eq!(listing.files[0].id, docs.join("handbook/d.md").display().to_string());
    // The folder of the indexes is no part of the source.
    world.options.paths = vec![docs.clone()];
    world.options.skip = vec![docs.join("handbook")];
    assert_eq!(sources(&world.list()), ["a.md", "b.txt", "drafts/c.md"]);
    world.options.paths = vec![world.path("nowhere")];
    assert!(list(&world.options, &mut |_| {}).unwrap_err().to_string().contains("nowhere"));
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_cycles_are_told() {
    use std::os::unix::fs::symlink;
    let world = World::new();
    world.write("a/one.md", "1");
    symlink(world.path("docs/a"), world.path("docs/a/loop")).unwrap();
    // A file that the folder has anyway is read once.
    symlink(world.path("docs/a/one.md"), world.path("docs/0.md")).unwrap();
    symlink(world.path("docs/a"), world.path("docs/2024")).unwrap();
    std::fs::write(world.path("elsewhere.md"), "2").unwrap();
    symlink(world.path("elsewhere.md"), world.path("docs/two.md")).unwrap();
    symlink(world.path("gone"), world.path("docs/broken.md")).unwrap();
    let pipe = world.path("docs/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let listing = world.list();
    assert_eq!(sources(&listing), ["a/one.md", "two.md"]);
    let found: Vec<(String, Severity)> = listing
        .problems
        .iter()
        .map(|problem| (problem.file.rsplit('/').next().unwrap().to_owned(), problem.severity))
        .collect();
    let (cycle, unread) = (Severity::Note, Severity::Unread);
    let expected = [("loop", cycle), ("loop", cycle), ("broken.md", unread), ("pipe", unread)];
    assert_eq!(found, expected.map(|(name, severity)| (name.to_owned(), severity)));
    assert_eq!(listing.problems[2].message, "is a link to a file that does not exist");
}

#[test]
fn only_files_in_kilts_layout_are_sources_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let page = r#"{"wikipedia_id":"1","wikipedia_title":"A","text":["A"]}"#;
    for (name, content, expected) in [
        ("a.jsonl", page, true),
        ("a.txt", page, true),
        ("b.jsonl", "{\"id\":1,\"text\":\"x\"}\n", false),
        ("c.jsonl", "{broken\n", false),
        ("c2.jsonl", "{\"wikipedia_id\": broken\n", true),
        ("d.json", "[{\"a\":1}]", false),
        ("e.json", "{\n \"a\": 1\n}", false),
        ("f.md", "# A", false),
        ("g.csv", "a,b", false),
        ("h.jsonl", "", true),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        assert_eq!(is_single_source(&path), expected, "{name}");
    }
    assert!(!is_single_source(folder.path()) && !is_single_source(&folder.path().join("none.jsonl")));
}
