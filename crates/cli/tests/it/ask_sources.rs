//! What `sporran ask` reads, where it keeps it, and how it tells places.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::common::{at_home, errors};

/// A home with the folder `notes`.
fn home() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "notes/tea.md", "# Tea\n\nTea is a drink of leaves.\n");
    write(folder.path(), "notes/well.txt", "The water of the well is tested once a month.\n");
    folder
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The standard output and the standard error of a successful call.
fn succeeded(mut command: Command) -> (String, String) {
    let output: Output = command.output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    (String::from_utf8(output.stdout.clone()).unwrap(), errors(&output))
}

fn call(folder: &Path, arguments: &[&str]) -> (String, String) {
    succeeded(at_home(folder, arguments))
}

/// The parts of the cached indexes of each source.
fn parts(home: &Path) -> Vec<Vec<String>> {
    let (listed, _) = call(home, &["indexes", "list", "--json"]);
    let names = |line: &str| -> Vec<String> {
        let value: Value = serde_json::from_str(line).unwrap();
        let parts = value["parts"].as_array().unwrap();
        parts.iter().map(|part| part["name"].as_str().unwrap().to_owned()).collect()
    };
    listed.lines().map(names).collect()
}

#[test]
fn folders_that_the_program_wrote_are_no_documents() {
    let home = home();
    let config = "workflow = \"answer\"\nname = \"own\"\n[tasks]\nfiles = [\"q.jsonl\"]\n[source]\npath = \"notes\"\n\
                  [retriever]\nkind = \"bm25\"\n";
    write(home.path(), "own.toml", config);
    write(
        home.path(),
        "q.jsonl",
        "{\"id\":\"1\",\"input\":\"Which drink is made of leaves?\",\"output\":[]}\n",
    );
    call(home.path(), &["run", "own.toml"]);
    assert!(home.path().join("runs/own/manifest.json").is_file() && home.path().join("indexes").is_dir());
    // A cache in the source, too. A user's folder of the same name is read.
    write(home.path(), "papers/runs/marathon.md", "A marathon of runs is 42 km long.\n");
    let ask = || {
        let mut command = at_home(home.path(), &["ask", ".", "how long is a marathon of runs?", "--json"]);
        command.env("XDG_CACHE_HOME", home.path().join("store"));
        succeeded(command)
    };
    for is_first in [true, false] {
        let (answer, messages) = ask();
        assert!(messages.contains("folders that Sporran wrote left out"), "{messages}");
        assert_eq!(messages.contains("./runs/own"), is_first, "{messages}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        for item in answer["evidence"].as_array().unwrap() {
            let file = item["file"].as_str().unwrap();
            assert!(
                !file.starts_with("./runs") && !file.starts_with("./indexes") && !file.starts_with("./store"),
                "{file}"
            );
        }
        assert_eq!(answer["evidence"][0]["file"], "./papers/runs/marathon.md");
    }
    // The run writes again, and nothing is read again.
    fs::remove_dir_all(home.path().join("runs")).unwrap();
    call(home.path(), &["run", "own.toml"]);
    assert!(!ask().1.contains("read documents"));
    let output = at_home(home.path(), &["ask", "runs", "what is tea?"]).output().unwrap();
    let messages = errors(&output);
    assert!(
        output.status.code() == Some(2)
            && messages.contains("left out 1 folder that Sporran wrote: runs/own"),
        "{messages}"
    );
}

#[cfg(unix)]
#[test]
fn all_names_of_a_source_share_its_indexes() {
    let home = home();
    std::os::unix::fs::symlink(home.path().join("notes"), home.path().join("link")).unwrap();
    write(home.path(), "other/notes/milk.md", "# Milk\n\nMilk is a drink of cows.\n");
    let absolute = home.path().join("notes").display().to_string();
    let names = ["notes", "notes/", "./notes", "other/../notes", "link", &absolute];
    let (_, messages) = call(home.path(), &["ask", "other/notes", "which drink?"]);
    assert!(messages.contains("1 file, 1 page"), "{messages}");
    let mut before = Vec::new();
    for name in names {
        let (shown, messages) =
            call(home.path(), &["ask", name, "what is tea?", "--filter", "file=*/tea.md"]);
        assert_eq!(messages.contains("read 2 files, 2 pages"), before.is_empty(), "{name}: {messages}");
        let prefix = name.strip_prefix("./").unwrap_or(name).trim_end_matches('/');
        assert!(shown.contains(&format!("[1] {prefix}/tea.md, line 3")), "{name}: {shown}");
        let (_, problem) =
            call(home.path(), &["ask", name, "what is tea?", "--filter", &format!("file={prefix}/tea.md")]);
        assert!(!problem.contains("read 2 files"), "{problem}");
        let now = parts(home.path());
        assert!(before.is_empty() || before == now, "{name}: {before:?} {now:?}");
        before = now;
    }
    // The other folder of this name has its own store, and the documents of each are there once.
    assert!(before.len() == 2 && before.iter().all(|parts| parts.len() == 3), "{before:?}");
    write(home.path(), "notes/well.txt", "The well is dry.\n");
    for (name, is_read) in [(absolute.as_str(), true), ("link", false), ("other/notes", false)] {
        let (_, messages) = call(home.path(), &["ask", name, "is the well dry?"]);
        assert_eq!(messages.contains("read 2 files"), is_read, "{name}: {messages}");
    }
    assert!(parts(home.path()).iter().all(|parts| parts.len() == 3));
}

#[test]
fn what_is_missing_is_told_each_time() {
    let home = home();
    write(home.path(), "notes/rows.jsonl", "{\"a\":\"x\"}\n{broken\n");
    for is_first in [true, false] {
        let (_, messages) = call(home.path(), &["ask", "notes", "what is tea?"]);
        assert!(messages.contains("3 files, 3 pages; 1 read in part"), "{messages}");
        assert_eq!(messages.contains("notes/rows.jsonl:2: expected a JSON object"), is_first, "{messages}");
    }
    for _ in 0..2 {
        let output = at_home(home.path(), &["ask", "notes", "what is tea?", "--strict"]).output().unwrap();
        let messages = errors(&output);
        assert!(
            output.status.code() == Some(2)
                && messages.contains("1 file could not be read whole:\n  notes/rows"),
            "{messages}"
        );
    }
    write(home.path(), "a.png", "\u{0}\u{1}");
    let output = at_home(home.path(), &["ask", "a.png", "what is tea?"]).output().unwrap();
    let messages = errors(&output);
    assert!(output.status.code() == Some(2) && messages.matches("a.png").count() == 1, "{messages}");
}

/// Runs a call as a user without rights, if this is the administrator's process.
#[cfg(unix)]
fn as_nobody(folder: &Path, arguments: &[&str]) -> Output {
    use std::os::unix::process::CommandExt as _;
    let own = fs::metadata("/proc/self").map(|about| std::os::unix::fs::MetadataExt::uid(&about));
    let mut command = at_home(folder, arguments);
    if own.is_ok_and(|user| user == 0) {
        command.uid(65534).gid(65534);
    }
    command.output().unwrap()
}

#[cfg(unix)]
#[test]
fn a_cache_that_may_only_be_read_serves_what_it_has() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = home();
    let set = |mode: u32| {
        let folders = walk(&home.path().join("cache"));
        folders.iter().for_each(|path| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap());
    };
    call(home.path(), &["ask", "notes", "what is tea?"]);
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    set(0o555);
    let absolute = home.path().join("notes").display().to_string();
    for name in ["notes", &absolute] {
        let output = as_nobody(home.path(), &["ask", name, "what is tea?"]);
        let messages = errors(&output);
        assert!(
            output.status.success()
                && !messages.contains("read documents")
                && !messages.contains("may only be read"),
            "{messages}"
        );
    }
    write(home.path(), "notes/tea.md", "# Tea\n\nTea is a hot drink of leaves.\n");
    let output = as_nobody(home.path(), &["ask", "notes", "is tea a hot drink?"]);
    let messages = errors(&output);
    assert!(
        output.status.success()
            && messages.contains("may only be read")
            && messages.contains("temporary folder"),
        "{messages}"
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains(">>>Tea is a hot drink of leaves.<<<"));
    // Its standard input is empty.
    let output = as_nobody(home.path(), &["mcp", "notes"]);
    let messages = errors(&output);
    assert!(output.status.success() && messages.contains("may only be read"), "{messages}");
    set(0o755);
}

/// A folder and those in it.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = vec![folder.to_owned()];
    for entry in fs::read_dir(folder).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
        found.extend(walk(&entry.path()));
    }
    found
}

#[test]
fn places_are_those_of_the_line_or_the_row_with_the_answer() {
    let home = home();
    let list =
        "Boiler: serviced in May 2021\nRoof: new slate\nWindows: painted white\nCellar: damp in winter\n";
    write(home.path(), "notes/house.txt", list);
    write(
        home.path(),
        "notes/server.md",
        "# Server\n\n```toml\nport = 8080\ntimeout = 30\nhost = \"pluto\"\n```\n",
    );
    write(
        home.path(),
        "notes/prices.md",
        "# Prices\n\n| item | cost |\n|---|---|\n| saddle | 40 |\n| bridle | 25 |\n",
    );
    for (question, place, marked) in [
        ("which part is damp in winter?", "notes/house.txt, line 4", ">>>Cellar: damp in winter<<<"),
        ("what is the timeout?", "notes/server.md, line 5, Server", ">>>timeout = 30<<<"),
        ("what is the cost of a bridle?", "notes/prices.md, line 6, Prices", ">>>bridle | 25<<<"),
    ] {
        let (shown, _) = call(home.path(), &["ask", "notes", question]);
        let first = shown.split("\n[2]").next().unwrap();
        assert!(
            first.contains(place) || first.contains(&place.replace(", Server", "").replace(", Prices", "")),
            "{shown}"
        );
        assert!(first.contains(marked), "{shown}");
    }
}

#[test]
fn json_and_text_have_nothing_that_a_terminal_obeys() {
    let home = home();
    write(home.path(), "notes/odd.md", "The gnome says \u{9b}31m and \u{202e}drawkcab.\n");
    let (shown, _) = call(home.path(), &["ask", "notes", "what does the gnome say?", "--json"]);
    assert!(
        shown.contains("\\u009b31m and \\u202edrawkcab") && !shown.contains(['\u{9b}', '\u{202e}']),
        "{shown}"
    );
    let answer: Value = serde_json::from_str(&shown).unwrap();
    assert!(answer["evidence"][0]["text"].as_str().unwrap().contains("\u{202e}drawkcab"));
    let (shown, _) = call(home.path(), &["ask", "notes", "what does the gnome say?"]);
    assert!(shown.contains("\u{fffd}drawkcab") && !shown.contains(['\u{9b}', '\u{202e}']), "{shown}");
}

#[test]
fn responses_are_part_of_the_cache_and_a_tilde_is_the_home() {
    let home = home();
    write(home.path(), "config/sporran/config.toml", "cache = \"~/cc\"\n");
    let (_, messages) = call(home.path(), &["ask", "notes", "what is tea?"]);
    assert!(messages.contains(&home.path().join("cc/notes-").display().to_string()), "{messages}");
    write(home.path(), "cc/responses/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    write(home.path(), "cc/responses/ab/cd.json", &"x".repeat(3000));
    let (listed, _) = call(home.path(), &["indexes", "list"]);
    assert!(listed.contains("responses") && listed.contains("3.0 KiB  responses of `--llm`"), "{listed}");
    call(home.path(), &["indexes", "remove", "--all"]);
    assert!(!home.path().join("cc/responses").exists() && home.path().join("notes").is_dir());
}
