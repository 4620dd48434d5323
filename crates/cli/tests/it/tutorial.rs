//! `docs/getting-started.md` and the README: their commands run, and print what the page shows.

use std::{env, fs, path::Path, process::Command};

use crate::common::{errors, root};

/// A fenced block of a page.
struct Block {
    /// The word after the fence.
    kind: String,
    text: String,
    /// The number of its first line, from 1.
    line: usize,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (number, line) in page.lines().enumerate() {
        if let Some(kind) = line.strip_prefix("```") {
            is_open = !is_open;
            if is_open {
                blocks.push(Block { kind: kind.to_owned(), text: String::new(), line: number + 2 });
            }
        } else if let Some(block) = blocks.last_mut().filter(|_| is_open) {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    assert!(!is_open, "expected a fence that closes");
    blocks
}

/// Starts the output of a block of commands.
const MARK: char = '\u{1e}';

/// The standard output of each block of commands. All blocks run in one shell, in an empty folder.
fn outputs(commands: &[&Block]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut script = String::new();
    for block in commands {
        script.push_str(&format!("printf '{MARK}'\n{}", block.text));
    }
    let program = Path::new(env!("CARGO_BIN_EXE_sporran")).parent().unwrap();
    let path = env::join_paths(
        std::iter::once(program.to_owned()).chain(env::split_paths(&env::var_os("PATH").unwrap())),
    );
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(folder.path())
        .env("PATH", path.unwrap())
        .env("HOME", folder.path().join("home"))
        .env("HF_HUB_OFFLINE", "1")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("XDG_STATE_HOME")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let found: Vec<String> = text.split(MARK).skip(1).map(str::to_owned).collect();
    let last = commands[found.len().saturating_sub(1)].line;
    assert!(output.status.success(), "the commands at line {last} failed: {}", errors(&output));
    found
}

/// A text without blanks at the ends of its lines.
fn trimmed(text: &str) -> String {
    text.trim_end().lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The commands in blocks `sh` run. Those in blocks `bash` need a network or a build, and do not. A block `text` has the
/// standard output of the commands before it.
#[test]
fn the_commands_of_the_tutorial_print_what_it_shows() {
    let page = fs::read_to_string(root().join("docs/getting-started.md")).unwrap();
    let blocks = blocks(&page);
    let commands: Vec<&Block> = blocks.iter().filter(|block| block.kind == "sh").collect();
    let found = outputs(&commands);
    assert_eq!(found.len(), commands.len());
    let mut compared = 0;
    for (block, found) in commands.iter().zip(&found) {
        let after = blocks.iter().filter(|other| other.line > block.line);
        let Some(shown) = after.take_while(|other| other.kind != "sh").find(|other| other.kind == "text")
        else {
            continue;
        };
        compared += 1;
        assert_eq!(trimmed(found), trimmed(&shown.text), "docs/getting-started.md:{}", shown.line);
    }
    assert!(compared >= 5, "{compared}");
}

/// The README's answer is of the tutorial's notes.
#[test]
fn the_answer_in_the_readme_is_printed() {
    let [tutorial, readme] = ["docs/getting-started.md", "README.md"]
        .map(|path| blocks(&fs::read_to_string(root().join(path)).unwrap()));
    let notes = tutorial.iter().find(|block| block.kind == "sh").unwrap();
    let asks = |block: &&Block| block.kind == "sh" && block.text.starts_with("sporran ask notes ");
    let ask = readme.iter().find(asks).unwrap();
    let shown = readme.iter().find(|block| block.line > ask.line && block.kind == "text").unwrap();
    let found = outputs(&[notes, ask]);
    assert_eq!(trimmed(&found[1]), trimmed(&shown.text), "README.md:{}", shown.line);
}
