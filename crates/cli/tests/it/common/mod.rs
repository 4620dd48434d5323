//! Calling the program as a user does.

pub(crate) mod encoder;

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// The repository's root, where the bundled data and configs are.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command that runs the program in `folder`, without the config of whoever runs the tests.
pub(crate) fn sporran(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sporran"));
    command.current_dir(folder).args(arguments);
    command.env("XDG_CONFIG_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-config"));
    command
}

/// A command that runs the program in `folder`, with all of a user's files below it.
pub(crate) fn at_home(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = sporran(folder, arguments);
    for (variable, place) in
        [("XDG_CACHE_HOME", "cache"), ("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state")]
    {
        command.env(variable, folder.join(place));
    }
    command.env("HOME", folder).stdin(Stdio::null());
    command
}

/// The program's standard error.
pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The JSON object that a successful call prints.
pub(crate) fn json(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let output = sporran(folder, arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Sends Ctrl-C and gives the exit code and the errors.
pub(crate) fn interrupt(child: Child) -> (Option<i32>, String) {
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), errors(&output))
}
