//! Golden bytes: every workflow and every bundled model runs over small inputs. The hash of each written file is compared with
//! `golden/expected.tsv`. `scripts/golden` runs the test; `scripts/golden record` writes the file.
//!
//! All commands run with AVX2 instructions and two threads, so that machines with wider instructions round the same way. candle's
//! products use AVX-512 if the machine has it: `golden/expected-avx2.tsv` has the hashes that differ on machines without it.

use std::{
    collections::BTreeMap,
    env,
    fmt::Write as _,
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
};

use crate::common::{errors, root, sporran};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Cases {
    case: Vec<Case>,
}

/// Commands, and the outputs that must not change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Case {
    name: String,
    /// Arguments of the program, separated by blanks.
    commands: Vec<String>,
    /// Standard input of the last command.
    #[serde(default)]
    stdin: String,
    /// Files, and folders of files, that the commands write.
    #[serde(default)]
    files: Vec<PathBuf>,
}

/// Files that hold versions, machines or times.
const LEFT_OUT: [&str; 2] = ["model.toml", "manifest.json"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// A folder with links to the bundled data and models under the paths that configs use.
fn workspace() -> tempfile::TempDir {
    let workspace = tempfile::tempdir().unwrap();
    let links = [
        ("configs", root().join("configs")),
        ("examples", root().join("examples")),
        ("models", root().join("models")),
        ("tiny", root().join("crates/transformers/tests/data/encoders")),
        ("data", folder().join("data")),
    ];
    for (name, path) in links {
        symlink(path.canonicalize().unwrap(), workspace.path().join(name)).unwrap();
    }
    crate::common::encoder::encoder(
        workspace.path(),
        "who wrote the book song film king queen was born in lives she",
    );
    workspace
}

/// Runs one command and returns its standard output.
fn run(workspace: &Path, command: &str, stdin: &str) -> Vec<u8> {
    let fixed = ["--quiet", "--isa", "avx2", "--threads", "2"];
    let arguments: Vec<&str> = fixed.into_iter().chain(command.split_whitespace()).collect();
    let mut child = sporran(workspace, &arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "sporran {command}: {}", errors(&output));
    output.stdout
}

/// The files at or below a path, in the order of their names.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_path_buf()];
    }
    let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().flat_map(|path| files(path)).collect()
}

fn hash(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

/// The hashes of a case: one for each file, or one for the output of the last command if the case lists no files.
fn outcome(workspace: &Path, case: &Case) -> Vec<(String, String)> {
    let (last, first) = case.commands.split_last().expect("a case has commands");
    for command in first {
        run(workspace, command, "");
    }
    let printed = run(workspace, last, &case.stdin);
    if case.files.is_empty() {
        return vec![("standard output".to_owned(), hash(&printed))];
    }
    let paths = case.files.iter().flat_map(|path| files(&workspace.join(path)));
    let kept = paths.filter(|path| !LEFT_OUT.iter().any(|name| path.ends_with(name)));
    let named = kept.map(|path| {
        let name = path.strip_prefix(workspace).unwrap().to_str().unwrap().to_owned();
        (name, hash(&fs::read(&path).unwrap()))
    });
    named.collect()
}

/// The hashes of files by case, as machines with AVX-512 write them, and those that differ on machines without it. A `-` in place
/// of a hash: no such machine has recorded the file since its bytes changed, and it is not compared there.
const EXPECTED: [&str; 2] = ["expected.tsv", "expected-avx2.tsv"];

const UNKNOWN: &str = "-";

/// The hashes that this machine should compute.
fn expected() -> BTreeMap<(String, String), String> {
    let mut hashes = table(EXPECTED[0]);
    if !has_avx512() {
        hashes.extend(table(EXPECTED[1]));
    }
    hashes
}

fn table(name: &str) -> BTreeMap<(String, String), String> {
    let text = fs::read_to_string(folder().join(name)).unwrap_or_default();
    let row = |line: &str| {
        let mut cells = line.split('\t').map(str::to_owned);
        let mut cell = || cells.next().expect("three columns");
        ((cell(), cell()), cell())
    };
    text.lines().map(row).collect()
}

#[test]
fn every_workflow_writes_the_recorded_bytes() {
    if !cfg!(target_arch = "x86_64") || !has_avx2() {
        eprintln!("NOT COMPARED: the golden bytes are those of AVX2, which this machine lacks");
        return;
    }
    let cases = fs::read_to_string(folder().join("cases.toml")).unwrap();
    let cases: Cases = toml::from_str(&cases).unwrap();
    let only = env::var("SPORRAN_GOLDEN_ONLY").unwrap_or_default();
    let (mut recorded, mut rows) = (expected(), Vec::new());
    let (workspace, mut wrong, mut unknown) = (workspace(), Vec::new(), 0);
    for case in &cases.case {
        let needed = only.is_empty() || case.name.starts_with(&only);
        if !needed {
            continue;
        }
        let started = std::time::Instant::now();
        for (file, found) in outcome(workspace.path(), case) {
            rows.push(((case.name.clone(), file.clone()), found.clone()));
            match recorded.remove(&(case.name.clone(), file.clone())) {
                Some(hash) if hash == found => {}
                Some(hash) if hash == UNKNOWN => unknown += 1,
                Some(_) => wrong.push(format!("{}: {file}: other bytes", case.name)),
                None => wrong.push(format!("{}: {file}: not recorded", case.name)),
            }
        }
        eprintln!("{}: {:.1} s", case.name, started.elapsed().as_secs_f64());
    }
    if env::var("SPORRAN_GOLDEN").is_ok_and(|what| what == "record") {
        assert!(only.is_empty(), "SPORRAN_GOLDEN_ONLY would record a part");
        let name = EXPECTED[usize::from(!has_avx512())];
        if !has_avx512() {
            let wide = table(EXPECTED[0]);
            rows.retain(|(file, hash)| wide.get(file) != Some(hash));
        }
        let mut text = String::new();
        for ((case, file), hash) in rows {
            let _ = writeln!(text, "{case}\t{file}\t{hash}");
        }
        fs::write(folder().join(name), text).unwrap();
        return;
    }
    if unknown > 0 {
        eprintln!("NOT COMPARED: {unknown} files have no recorded bytes for machines like this one");
    }
    if only.is_empty() {
        wrong.extend(recorded.into_keys().map(|(case, file)| format!("{case}: {file}: no longer written")));
    }
    assert!(
        wrong.is_empty(),
        "{} files differ from crates/cli/tests/golden/expected.tsv; if the change is intended, run \
         `scripts/golden record`:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}
