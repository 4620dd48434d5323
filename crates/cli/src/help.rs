//! Help by groups of verbs, and the manual generated from it.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command, builder::StyledStr};

/// The verbs by purpose; each is listed once.
const GROUPS: [(&str, &[&str]); 7] = [
    ("Run", &["ask", "serve", "mcp", "run", "populate", "reason"]),
    (
        "Search and answer",
        &["index", "indexes", "merge", "retrieve", "explain", "embed", "rerank", "generate"],
    ),
    ("Train", &["train", "tune"]),
    ("Evaluate", &["eval-set", "evaluate", "report", "compare", "reproduce", "submit"]),
    ("Data", &["convert", "describe", "annotate"]),
    ("Models", &["models"]),
    ("Tools", &["init", "config", "doctor", "completions", "man"]),
];

/// The program's help with its verbs in groups.
pub(crate) fn grouped(command: Command) -> Command {
    let header = command.get_styles().get_header();
    let name = command.get_styles().get_literal();
    let mut template = StyledStr::new();
    // Writing to a string cannot fail.
    let _ = write!(template, "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n");
    for (group, verbs) in GROUPS {
        let _ = write!(template, "\n{header}{group}:{header:#}\n");
        for verb in verbs.iter().filter_map(|verb| command.find_subcommand(verb)) {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {name}{:<13}{name:#}{about}", verb.get_name());
        }
    }
    // `{all-args}` would list the verbs again, without groups.
    let _ = write!(template, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

/// `docs/cli.md`: every verb with its arguments and an example.
pub(crate) fn manual(command: &Command) -> String {
    let mut text = "# Command line\n\n\
         `sporran docs cli` generates this page from the program. Do not edit it.\n\n\
         Exit code 0: done. 1: the work failed. 2: the call, the config or an input was wrong. 130: Ctrl-C.\n\n\
         Every command takes these options:\n\n"
        .to_owned();
    let is_global = |argument: &&Arg| argument.is_global_set();
    table(&mut text, command.get_arguments().filter(is_global));
    for (group, verbs) in GROUPS {
        let _ = write!(text, "\n## {group}\n");
        for verb in verbs.iter().filter_map(|verb| command.find_subcommand(verb)) {
            section(&mut text, verb, "sporran", 3);
        }
    }
    text
}

fn section(text: &mut String, command: &Command, parent: &str, depth: usize) {
    let name = format!("{parent} {}", command.get_name());
    let _ = write!(text, "\n{} {name}\n\n", "#".repeat(depth));
    let about = command.get_long_about().or_else(|| command.get_about());
    let _ = writeln!(text, "{}", about.map(ToString::to_string).unwrap_or_default());
    let subcommands: Vec<&Command> =
        command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
    if subcommands.is_empty() {
        let usage = command.clone().bin_name(&name).render_usage().to_string();
        let _ = write!(text, "\n```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim_end());
        let own = |argument: &&Arg| {
            !argument.is_global_set()
                && !argument.is_hide_set()
                && !matches!(argument.get_id().as_str(), "help" | "version")
        };
        if command.get_arguments().any(|argument| own(&argument)) {
            text.push('\n');
            table(text, command.get_arguments().filter(own));
        }
    }
    if let Some(after) = command.get_after_help() {
        let _ = write!(text, "\n```text\n{}\n```\n", after.to_string().trim_end());
    }
    for subcommand in subcommands.into_iter().filter(|command| command.get_name() != "help") {
        section(text, subcommand, &name, depth + 1);
    }
}

fn table<'a>(text: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    text.push_str("| argument | meaning | default |\n|---|---|---|\n");
    for argument in arguments {
        let help = argument.get_long_help().or_else(|| argument.get_help());
        let mut help = help.map(ToString::to_string).unwrap_or_default();
        let values: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|_| takes_value(argument))
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() {
            help.push_str(&format!(": {}", values.join(", ")));
        }
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .filter(|_| takes_value(argument) && !argument.is_hide_default_value_set())
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .chain(argument.is_required_set().then(|| "required".to_owned()))
            .collect();
        let cell = |text: &str| text.replace('|', "\\|").replace('\n', " ");
        let _ = writeln!(text, "| `{}` | {} | {} |", cell(&form(argument)), cell(&help), defaults.join(", "));
    }
}

fn takes_value(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Set | ArgAction::Append)
}

/// How an argument is written, such as `-o, --output FILE`.
fn form(argument: &Arg) -> String {
    let value = || {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    if argument.is_positional() {
        return value();
    }
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let names = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    if takes_value(argument) { format!("{names} {}", value()) } else { names }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        path::{Path, PathBuf},
    };

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Every command without subcommands, with the words that call it.
    fn leaves(command: &Command, name: &str, found: &mut Vec<(String, Command)>) {
        let mut subcommands = command.get_subcommands().filter(|command| !command.is_hide_set()).peekable();
        if subcommands.peek().is_none() {
            found.push((name.to_owned(), command.clone()));
        }
        for subcommand in subcommands {
            leaves(subcommand, &format!("{name} {}", subcommand.get_name()), found);
        }
    }

    #[test]
    fn every_verb_is_in_one_group() {
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
        let unique: BTreeSet<&str> = listed.iter().copied().collect();
        let command = Cli::command();
        let verbs: BTreeSet<&str> =
            command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
        assert_eq!((listed.len(), &unique), (verbs.len(), &verbs));
    }

    #[test]
    fn the_example_of_every_command_parses() {
        let mut found = Vec::new();
        leaves(&Cli::command(), "sporran", &mut found);
        assert!(found.len() > 25, "{}", found.len());
        for (name, command) in found {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            // A shell joins lines at a backslash.
            let after = after.replace("\\\n", " ");
            let example = after
                .lines()
                .map(str::trim)
                .find(|line| line.contains(&name))
                .unwrap_or_else(|| panic!("{name}: expected an example in its help, found {after:?}"));
            let start = example.find(&name).unwrap_or_default();
            // Redirections are no arguments.
            let call = example[start..].split(['<', '>', '|']).next().unwrap_or_default();
            let parsed = Cli::command().try_get_matches_from(call.split_whitespace());
            assert!(parsed.is_ok(), "{call}: {}", parsed.unwrap_err());
        }
    }

    #[test]
    fn help_lists_the_groups_and_each_verb_once() {
        let text = grouped(Cli::command()).render_help().to_string();
        for (group, verbs) in GROUPS {
            assert!(text.contains(&format!("\n{group}:\n")), "{group}: {text}");
            for verb in verbs {
                assert_eq!(text.matches(&format!("\n  {verb} ")).count(), 1, "{verb}: {text}");
            }
        }
    }

    /// The Markdown files below a folder.
    fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pages(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "md") {
                found.push(path);
            }
        }
    }

    fn in_papers(path: &Path) -> bool {
        path.parent().is_some_and(|folder| folder.ends_with("docs/papers"))
    }

    #[test]
    fn every_command_in_the_manuals_parses() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut found = vec![root.join("README.md")];
        ["docs", "configs", "examples"].iter().for_each(|folder| pages(&root.join(folder), &mut found));
        let mut calls = 0;
        for path in found.iter().filter(|path| !path.ends_with("docs/cli.md")) {
            let text = fs::read_to_string(path).unwrap().replace("\\\n", " ");
            // Every second part is a code block. Only blocks that begin with `sh` hold commands.
            let blocks = text.split("```").skip(1).step_by(2).filter(|block| block.starts_with("sh\n"));
            // The third cells of the tables in docs/papers have commands as inline code.
            let rows = text.lines().filter(|line| in_papers(path) && line.starts_with("| "));
            let cells = rows.filter_map(|row| row.split(" | ").nth(2));
            let inline = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
            for line in blocks.flat_map(str::lines).chain(inline) {
                let line = line.replacen("cargo run --release --", "sporran", 1);
                // Redirections and comments are no arguments.
                let call = line.split(['<', '>', '|', '#', ';', '&']).next().unwrap_or_default();
                // Two dots mean more arguments.
                if !call.starts_with("sporran ") || call.contains(" ..") {
                    continue;
                }
                calls += 1;
                let parsed = Cli::command().try_get_matches_from(call.split_whitespace());
                let accepted = parsed.as_ref().map_or_else(|error| !error.use_stderr(), |_| true);
                assert!(accepted, "{}: {call}: {}", path.display(), parsed.unwrap_err());
            }
        }
        assert!(calls > 20, "{calls}");
    }

    #[test]
    fn the_manual_names_every_command_and_option() {
        let command = Cli::command();
        let text = manual(&command);
        let mut found = Vec::new();
        leaves(&command, "sporran", &mut found);
        for (name, command) in found {
            assert!(text.contains(&format!("# {name}\n")), "{name}");
            for long in command.get_arguments().filter_map(Arg::get_long) {
                assert!(text.contains(&format!("--{long}")), "{name} --{long}");
            }
        }
    }
}
