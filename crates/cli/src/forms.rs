//! Command forms of earlier versions, and the forms that replace them.

use crate::error::Error;

/// Flags of the old `evaluate` that chose a scorer, with the scorer, and whether the flag's value is now an argument.
const SCORERS: [(&str, &str, bool); 6] = [
    ("--ranking", "ranking", true),
    ("--answer-sets", "answer-sets", true),
    ("--agreement", "agreement", true),
    ("--links", "links", true),
    ("--knowledgenet", "facts", false),
    ("--docred", "relations", false),
];

/// The error for a call in an old form, with the new form; `None` for any other call.
pub(crate) fn old_form(arguments: &[String]) -> Option<Error> {
    let verb = arguments.iter().position(|argument| argument == "evaluate" || argument == "convert")?;
    let (before, rest) = (&arguments[..verb], &arguments[verb + 1..]);
    // In the new form a subcommand comes first; a flag there means the old form.
    if !rest.first().is_some_and(|first| first.starts_with('-')) && arguments[verb] == "evaluate" {
        return None;
    }
    let (what, rest) = match arguments[verb].as_str() {
        "evaluate" => evaluate(rest)?,
        _ => convert(rest)?,
    };
    let new: Vec<String> =
        before.iter().chain([&arguments[verb], &what]).chain(&rest).map(|word| quoted(word)).collect();
    Some(Error::OldForm {
        old: format!("sporran {}", arguments[verb]),
        new: format!("sporran {}", new.join(" ")),
    })
}

fn evaluate(rest: &[String]) -> Option<(String, Vec<String>)> {
    for (flag, what, has_value) in SCORERS {
        if let Some((mut rest, value)) = without(rest, flag, has_value) {
            rest.splice(0..0, value);
            return Some((what.to_owned(), rest));
        }
    }
    has(rest, "--gold").then(|| ("kilt".to_owned(), rest.to_vec()))
}

fn convert(rest: &[String]) -> Option<(String, Vec<String>)> {
    if ["files", "map", "queries", "korc"].iter().any(|what| rest.first().is_some_and(|first| first == what))
    {
        return None;
    }
    if let Some((mut rest, config)) = without(rest, "--korc", true) {
        rest.splice(0..0, config);
        return Some(("korc".to_owned(), rest));
    }
    for (flag, what, renamed) in [("--map", "map", "--from"), ("--queries", "queries", "--count")] {
        if let Some((mut rest, value)) = without(rest, flag, true) {
            rest.splice(0..0, [renamed.to_owned()].into_iter().chain(value));
            return Some((what.to_owned(), rest));
        }
    }
    has(rest, "--from").then(|| ("files".to_owned(), rest.to_vec()))
}

fn has(arguments: &[String], flag: &str) -> bool {
    arguments.iter().any(|argument| argument == flag || argument.starts_with(&format!("{flag}=")))
}

/// The arguments without a flag, and the flag's value; `None` if the flag is missing.
fn without(arguments: &[String], flag: &str, has_value: bool) -> Option<(Vec<String>, Option<String>)> {
    let mut rest = arguments.to_vec();
    let index = rest.iter().position(|argument| {
        argument == flag || argument.strip_prefix(flag).is_some_and(|tail| tail.starts_with('='))
    })?;
    let found = rest.remove(index);
    let value = match found.split_once('=') {
        Some((_, value)) => Some(value.to_owned()),
        None if has_value && index < rest.len() => Some(rest.remove(index)),
        None => None,
    };
    Some((rest, value))
}

/// An argument, quoted for a shell.
fn quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn new_form(old: &str) -> Option<String> {
        let arguments: Vec<String> = old.split_whitespace().map(str::to_owned).collect();
        match old_form(&arguments)? {
            Error::OldForm { new, .. } => Some(new),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_new_form_of_every_old_form_parses() {
        for (old, new) in [
            ("evaluate --gold G --guess P --json", "evaluate kilt --gold G --guess P --json"),
            ("-q evaluate --guess P --whole --gold=G", "-q evaluate kilt --guess P --whole --gold=G"),
            ("evaluate --ranking R --threshold 0.5", "evaluate ranking R --threshold 0.5"),
            ("evaluate --json --answer-sets=A", "evaluate answer-sets A --json"),
            (
                "evaluate --knowledgenet --gold G --guess P --fold 4",
                "evaluate facts --gold G --guess P --fold 4",
            ),
            (
                "evaluate --gold G --docred --guess P --known K",
                "evaluate relations --gold G --guess P --known K",
            ),
            ("evaluate --links M --kb D --classification", "evaluate links M --kb D --classification"),
            ("evaluate --agreement F", "evaluate agreement F"),
            (
                "convert --from kilt --to topics --output o i",
                "convert files --from kilt --to topics --output o i",
            ),
            (
                "convert i --from=kilt --to topics --output o",
                "convert files i --from=kilt --to topics --output o",
            ),
            (
                "convert --map fever --store S --split dev --output o i",
                "convert map --from fever --store S --split dev --output o i",
            ),
            ("convert --queries 6 --store S --output o", "convert queries --count 6 --store S --output o"),
            ("convert --korc c.toml rules.batches=4", "convert korc c.toml rules.batches=4"),
        ] {
            let found = new_form(old).unwrap_or_else(|| panic!("{old} has no new form"));
            assert_eq!(found, format!("sporran {new}"));
            let matches = crate::Cli::command().try_get_matches_from(found.split_whitespace());
            assert!(matches.is_ok(), "{new}: {}", matches.unwrap_err());
        }
    }

    #[test]
    fn other_calls_have_no_new_form() {
        for call in
            ["run c.toml", "evaluate kilt --gold G", "evaluate", "evaluate --json", "convert files --from x"]
        {
            assert_eq!(new_form(call), None, "{call}");
        }
    }

    #[test]
    fn arguments_are_quoted_for_a_shell() {
        let quote = |text: &str| quoted(text);
        assert_eq!(quote("runs/a-1.jsonl"), "runs/a-1.jsonl");
        assert_eq!(quote("it's {id}"), r"'it'\''s {id}'");
    }
}
