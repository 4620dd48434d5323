//! Files that cannot be read are told, and the others are read.

use std::fs;

use sporran_documents::Error;
use sporran_kilt::PassageSplit;

use crate::World;

fn utf16(text: &str) -> Vec<u8> {
    std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

#[test]
fn what_cannot_be_read_is_told_by_file_and_the_rest_is_read() {
    let world = World::new();
    world.write("a.txt", "Good.");
    world.write("empty.md", "");
    world.write("blank.md", "\n \n");
    world.write("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0");
    world.write("latin.txt", b"Caf\xe9 cr\xe8me, s'il vous pla\xeet.");
    world.write("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0");
    world.write("open.csv", "a,b\n1,2\n3,\"4\n");
    world.write("rows.jsonl", "{\"a\":\"x\"}\n{broken\n{\"a\":\"y\"}\n");
    world.write("wide.txt", utf16("Zoë sang."));
    world.write("wide.csv", utf16("a,b\nZoë,1\n"));
    world.write("cut.txt.gz", [0x1f, 0x8b, 8, 0, 0, 0]);
    fs::create_dir(world.path("docs/nothing")).unwrap();
    let found: Vec<String> = world
        .passages(PassageSplit::Page)
        .iter()
        .map(|passage| passage.rsplit(": ").next().unwrap().to_owned())
        .collect();
    assert_eq!(found, ["Good.", "Café crème, s'il vous plaît.", "2", "x", "y", "1", "Zoë sang."]);
    let problems = world.problems();
    let expected = [
        "blank.md: has no text",
        "cut.txt.gz: the compressed file is damaged",
        "empty.md: is empty",
        "image.png: expected text, found a binary file",
        "latin.txt: is not UTF-8; it was read as windows-1252",
        "old.doc: expected a format that can be read, found an encrypted document, or one of Microsoft Office before 2007",
        "open.csv:3: expected a quote that ends the cell, found none; nothing after it was read",
        "rows.jsonl:2: expected a JSON object",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
    let summary = world.collect().unwrap().summary().clone();
    assert_eq!((summary.files, summary.pages, summary.unread()), (6, 7, 4));
}

#[test]
fn strict_sources_and_sources_without_pages_are_errors() {
    let mut world = World::new();
    let nothing = |world: &World| {
        let error = world.collect().unwrap_err();
        assert!(error.is_input() && matches!(error, Error::Nothing { .. }), "{error}");
        error.to_string()
    };
    assert!(nothing(&world).ends_with("docs: no files were found"));
    world.write("image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0");
    assert!(nothing(&world).contains("image.png: expected text, found a binary file"));
    assert!(
        !world.path("indexes").exists()
            || fs::read_dir(world.path("indexes")).unwrap().flatten().all(|entry| !entry.path().is_dir())
    );
    world.write("a.txt", "Good.");
    world.collect().unwrap();
    world.strict = true;
    let error = world.collect().unwrap_err();
    assert!(error.is_input() && matches!(error, Error::Strict { .. }), "{error}");
    assert!(
        error.to_string().starts_with("`strict` is set, and 1 file could not be read whole:\n"),
        "{error}"
    );
    world.remove("image.png");
    world.write("latin.txt", b"Caf\xe9");
    world.collect().unwrap();
    // The other records of a file are no excuse for one that is missing.
    world.write("records.jsonl", b"{\"text\": \"a\"}\n{\"text\n{\"text\": \"c\"}\n");
    let error = world.collect().unwrap_err();
    assert!(error.is_input() && error.to_string().contains("records.jsonl:2: "), "{error}");
    world.strict = false;
    world.collect().unwrap();
}

#[cfg(unix)]
#[test]
fn files_without_permission_are_told() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    world.write("a.txt", "Good.");
    world.write("secret.txt", "Hidden.");
    let path = world.path("docs/secret.txt");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o0)).unwrap();
    // The system's administrator reads everything.
    let is_readable = fs::read(&path).is_ok();
    let problems = world.problems();
    assert_eq!(problems.len(), usize::from(!is_readable), "{problems:?}");
    assert!(problems.iter().all(|problem| problem.starts_with("secret.txt: reading failed: ")));
}
