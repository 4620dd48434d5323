//! Calling the program as a user does.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The repository's root, where the bundled data and configs are.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program, to be run in `folder`.
pub(crate) fn sporran(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sporran"));
    command.current_dir(folder).args(arguments);
    command
}

/// Runs the program to its end.
pub(crate) fn call(folder: &Path, arguments: &[&str]) -> Output {
    sporran(folder, arguments).output().expect("the program starts")
}

/// What the program wrote to standard error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Writes a small world and a config that retrieves from it: three pages, two questions.
pub(crate) fn small_world(folder: &Path) {
    let pages = [
        r#"{"wikipedia_id":"1","wikipedia_title":"Berlin","text":["Berlin\n","Berlin is the capital of Germany.\n"]}"#,
        r#"{"wikipedia_id":"2","wikipedia_title":"Paris","text":["Paris\n","Paris is the capital of France.\n"]}"#,
        r#"{"wikipedia_id":"3","wikipedia_title":"Oslo","text":["Oslo\n","Oslo is the capital of Norway.\n"]}"#,
    ];
    std::fs::write(folder.join("pages.jsonl"), pages.join("\n")).unwrap();
    let task = [
        r#"{"id":"a","input":"capital of France","output":[{"answer":"Paris","provenance":[{"wikipedia_id":"2","title":"Paris"}]}]}"#,
        r#"{"id":"b","input":"capital of Norway","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"3","title":"Oslo"}]}]}"#,
    ];
    std::fs::write(folder.join("nq-dev-kilt.jsonl"), task.join("\n")).unwrap();
    let config = "name = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"nq-dev-kilt.jsonl\"]\n\
                  [retriever]\nkind = \"bm25\"\n";
    std::fs::write(folder.join("c.toml"), config).unwrap();
}
