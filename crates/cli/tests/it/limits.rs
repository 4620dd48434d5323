//! Limits of the system and of the options: each ends in a clear error, and nothing is half-written.

use std::{
    fs::{self, File},
    path::Path,
};

use crate::common::{errors, sporran};

/// A file of zeros without a line break, which takes no room on the disk.
fn zeros(path: &Path, mebibytes: u64) {
    File::create(path).unwrap().set_len(mebibytes << 20).unwrap();
}

#[test]
fn a_line_beyond_the_limit_is_refused_by_its_number() {
    let folder = tempfile::tempdir().unwrap();
    zeros(&folder.path().join("a.jsonl"), 3);
    for (limit, expected) in [
        ("2", "a.jsonl:1: expected at most 2097152 bytes in a line, found more; --max-line raises the limit"),
        ("4", "a.jsonl:1: not JSON: expected a value"),
    ] {
        let arguments = ["evaluate", "ranking", "a.jsonl", "--max-line", limit];
        let output = sporran(folder.path(), &arguments).output().unwrap();
        let message = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{message}");
    }
    let output = sporran(folder.path(), &["describe", "a.jsonl", "--max-line", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("--max-line"), "{}", errors(&output));
}

#[test]
fn a_zstd_window_beyond_the_limit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // A frame whose header names a window of 256 MiB, with one plain block.
    let text = b"{\"id\": 1, \"output\": []}\n";
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (28 - 10) << 3];
    frame.extend([((text.len() << 3) | 1) as u8, 0, 0]);
    frame.extend(text);
    fs::write(folder.path().join("a.jsonl.zst"), frame).unwrap();
    let output =
        sporran(folder.path(), &["describe", "a.jsonl.zst", "--max-window", "128"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    let expected =
        "a.jsonl.zst: expected a zstd window of at most 128 MiB, found a longer one; --max-window raises";
    assert!(errors(&output).contains(expected), "{}", errors(&output));
    let output =
        sporran(folder.path(), &["describe", "a.jsonl.zst", "--max-window", "256"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

/// Runs the program under a limit of the shell's `ulimit`.
#[cfg(target_os = "linux")]
fn limited(folder: &Path, limit: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let program = sporran(folder, arguments);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
    shell.arg(program.get_program()).args(program.get_args()).current_dir(folder);
    let output = shell.output().unwrap();
    (output.status.code(), errors(&output))
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_beyond_the_systems_limit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let page = |at: usize| {
        let text = format!("Word {at}. ").repeat(100);
        format!("{{\"wikipedia_id\":\"{at}\",\"wikipedia_title\":\"T{at}\",\"text\":[\"{text}\"]}}\n")
    };
    fs::write(folder.path().join("pages.jsonl"), (0..100).map(page).collect::<String>()).unwrap();
    fs::write(folder.path().join("nq-dev-kilt.jsonl"), "{\"id\":\"a\",\"input\":\"Word 3\"}\n").unwrap();
    let config = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"nq-dev-kilt.jsonl\"]\n\
                  [retriever]\nkind = \"bm25\"\n";
    fs::write(folder.path().join("c.toml"), config).unwrap();
    let call = ["-q", "retrieve", "c.toml"];
    // 8 KiB, less than the texts of the pages.
    let (code, message) = limited(folder.path(), "-f 16", &call);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("write failed") && message.contains("File too large"), "{message}");
    let left: Vec<_> = fs::read_dir(folder.path().join("indexes"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!folder.path().join("runs/r-retrieval/report.json").exists());
    let output = sporran(folder.path(), &call).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_ends_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    zeros(&folder.path().join("a.jsonl"), 900);
    let arguments = ["--threads", "1", "evaluate", "ranking", "a.jsonl"];
    let (code, message) = limited(folder.path(), "-v 800000", &arguments);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("error: memory ended: "), "{message}");
}
