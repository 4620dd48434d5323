//! Messages of serde in plain words.
//!
//! serde names Rust's types and says first what it found. [`plain`] says first what was expected, in the words of the file.

/// The form of a text that serde read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON: its tables are objects.
    Json,
    /// TOML.
    Toml,
}

/// Types of Rust, and what a file has for them.
const TYPES: [(&str, &str); 28] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", WHOLE),
    ("u64", WHOLE),
    ("usize", WHOLE),
    ("i8", "a whole number"),
    ("i16", "a whole number"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("isize", "a whole number"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("a nonzero u32", COUNT),
    ("a nonzero u64", COUNT),
    ("a nonzero usize", COUNT),
    ("a boolean", "`true` or `false`"),
    ("a sequence", "a list"),
    ("sequence", "a list"),
    ("a borrowed string", "a string"),
    ("path string", "a string"),
    ("string", "a string"),
    ("variant identifier", "a string"),
    ("a character", "one character"),
    ("option", "a value"),
    ("any valid JSON value", "a value"),
    ("unit", "null"),
    ("null", "null"),
    ("a nonzero u16", COUNT),
];

const WHOLE: &str = "a whole number of at least 0";
const COUNT: &str = "a whole number of at least 1";

/// serde_json's messages about texts that are not JSON.
const SYNTAX: [(&str, &str); 10] = [
    ("EOF while parsing a list", "the text ends inside a list"),
    ("EOF while parsing an object", "the text ends inside an object"),
    ("EOF while parsing a string", "the text ends inside a string"),
    ("EOF while parsing a value", "expected a value, found the end of the text"),
    ("expected value", "expected a value"),
    ("expected ident", "expected `true`, `false` or `null`"),
    ("trailing characters", "expected the end after the value, found more text"),
    ("trailing comma", "expected a value after the comma"),
    ("key must be a string", "expected a name in quotes"),
    ("recursion limit exceeded", "expected fewer lists and objects in each other"),
];

/// serde's message without the names of Rust's types.
pub fn plain(message: &str, form: Form) -> String {
    if let Some((_, words)) = SYNTAX.iter().find(|(known, _)| *known == message) {
        return (*words).to_owned();
    }
    if message.starts_with("data did not match any variant of untagged enum ") {
        return "has none of the forms that are possible here".to_owned();
    }
    if let Some(rest) = message.strip_prefix("unknown variant ") {
        return format!("unknown value {rest}");
    }
    let both = |rest: &str| {
        // What was found can be a string with any content.
        let (found, expected) = rest.rsplit_once(", expected ")?;
        Some((found.to_owned(), expected.to_owned()))
    };
    let wrong = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    if let Some((found, expected)) = wrong.and_then(both) {
        let words = too_large(&found, &expected).unwrap_or_else(|| expected_in(&expected, form));
        return format!("expected {words}, found {}", found_in(&found, form));
    }
    if let Some((length, expected)) = message.strip_prefix("invalid length ").and_then(both) {
        // A list was taken as the fields of a struct in their order.
        let found = if is_struct(&expected) { "a list".to_owned() } else { format!("a list of {length}") };
        return format!("expected {}, found {found}", expected_in(&expected, form));
    }
    message.to_owned()
}

/// A message of serde_json in plain words, with its place in brackets if it has one. Other texts are unchanged.
pub fn plain_json(text: &str) -> String {
    let place = text.rsplit_once(" at line ").and_then(|(message, place)| {
        let (line, column) = place.split_once(" column ")?;
        Some((message, line.parse::<usize>().ok()?, column.parse::<usize>().ok()?))
    });
    match place {
        None => plain(text, Form::Json),
        // A value at the start of the text.
        Some((message, 0 | 1, 0)) => plain(message, Form::Json),
        Some((message, line, column)) => {
            format!("{} (line {line}, column {column})", plain(message, Form::Json))
        }
    }
}

/// What was expected in place of a whole number that is too large for its type.
fn too_large(found: &str, expected: &str) -> Option<String> {
    let found: i128 = found.strip_prefix("integer `")?.strip_suffix('`')?.parse().ok()?;
    let most: i128 = match expected {
        "u32" | "a nonzero u32" => u32::MAX.into(),
        "i8" => i8::MAX.into(),
        "i16" => i16::MAX.into(),
        "i32" => i32::MAX.into(),
        "i64" | "isize" => i64::MAX.into(),
        _ => return None,
    };
    (found > most).then(|| format!("a whole number of at most {most}"))
}

fn object(form: Form) -> &'static str {
    match form {
        Form::Json => "an object",
        Form::Toml => "a table",
    }
}

fn is_struct(expected: &str) -> bool {
    ["struct ", "internally tagged enum ", "adjacently tagged enum "]
        .iter()
        .any(|it| expected.starts_with(it))
}

fn expected_in(expected: &str, form: Form) -> String {
    if let Some((_, words)) = TYPES.iter().find(|(known, _)| *known == expected) {
        return (*words).to_owned();
    }
    if is_struct(expected) || matches!(expected, "a map" | "map" | "table") {
        return object(form).to_owned();
    }
    if expected.starts_with("enum ") || matches!(expected, "string or map" | "string or table") {
        return format!("a string or {}", object(form));
    }
    let counted = ["a tuple of size ", "an array of length "].iter().find_map(|it| expected.strip_prefix(it));
    let fields = || expected.strip_prefix("tuple struct ")?.split(" with ").nth(1)?.split(' ').next();
    match counted.or_else(fields) {
        Some(count) => format!("a list of {count}"),
        None if expected.starts_with("tuple struct ") => "a list".to_owned(),
        None => expected.to_owned(),
    }
}

fn found_in(found: &str, form: Form) -> String {
    let number = ["integer `", "floating point `"].iter().find_map(|it| found.strip_prefix(it));
    let bare = number.map(|number| format!("the number {number}"));
    let bare = bare.or_else(|| found.strip_prefix("boolean `").map(str::to_owned));
    match (bare, found) {
        (Some(bare), _) => bare.trim_end_matches('`').to_owned(),
        (None, "sequence") => "a list".to_owned(),
        (None, "map") => object(form).to_owned(),
        (None, "unit value" | "Option value") => "null".to_owned(),
        (None, text) if text.starts_with("string \"") => format!("the {text}"),
        (None, other) => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[allow(dead_code, reason = "only the errors are of interest")]
    struct Inner {
        count: u32,
        pair: Option<(f32, f32)>,
        names: Option<Vec<String>>,
        map: Option<BTreeMap<String, bool>>,
        either: Option<Either>,
        choice: Option<Choice>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[allow(dead_code, reason = "only the errors are of interest")]
    enum Either {
        Text(String),
        Number(i64),
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Choice {
        First,
    }

    /// The message without its place.
    fn json(text: &str) -> String {
        let message = plain_json(&serde_json::from_str::<Inner>(text).unwrap_err().to_string());
        message.split(" (line ").next().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_place_of_an_error_is_in_brackets() {
        let error = serde_json::from_str::<Inner>("{\n\"count\": true}").unwrap_err();
        let expected = "expected a whole number of at least 0, found true (line 2, column 13)";
        assert_eq!(plain_json(&error.to_string()), expected);
        assert_eq!(plain_json("no file x"), "no file x");
    }

    #[test]
    fn no_message_names_a_type_of_rust() {
        for (text, expected) in [
            ("[]", "expected an object, found a list"),
            ("\"x, expected u32\"", "expected an object, found the string \"x, expected u32\""),
            ("3", "expected an object, found the number 3"),
            (r#"{"count": -1}"#, "expected a whole number of at least 0, found the number -1"),
            (
                r#"{"count": 5000000000}"#,
                "expected a whole number of at most 4294967295, found the number 5000000000",
            ),
            (r#"{"count": "a"}"#, "expected a whole number of at least 0, found the string \"a\""),
            (r#"{"count": null}"#, "expected a whole number of at least 0, found null"),
            (r#"{"count": 1.5}"#, "expected a whole number of at least 0, found the number 1.5"),
            (r#"{"pair": [1]}"#, "expected a list of 2, found a list of 1"),
            (r#"{"pair": {}}"#, "expected a list of 2, found an object"),
            (r#"{"names": {}}"#, "expected a list, found an object"),
            (r#"{"names": [true]}"#, "expected a string, found true"),
            (r#"{"map": []}"#, "expected an object, found a list"),
            (r#"{"map": {"a": 1}}"#, "expected `true` or `false`, found the number 1"),
            (r#"{"either": []}"#, "has none of the forms that are possible here"),
            (r#"{"choice": "second"}"#, "unknown value `second`, expected `first`"),
            (r#"{"choice": 3}"#, "expected a value"),
            ("{}", "missing field `count`"),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn texts_that_are_not_json_have_plain_messages() {
        for (text, expected) in [
            ("", "expected a value, found the end of the text"),
            ("{", "the text ends inside an object"),
            (r#"{"names": ["a""#, "the text ends inside a list"),
            (r#"{"names": ["a"#, "the text ends inside a string"),
            (r#"{"count": }"#, "expected a value"),
            (r#"{"names": nul}"#, "expected `true`, `false` or `null`"),
            (r#"{"count": 1} 2"#, "expected the end after the value, found more text"),
            (r#"{"names": ["a",]}"#, "expected a value after the comma"),
            ("{3: 1}", "expected a name in quotes"),
            (r#"{"count" 1}"#, "expected `:`"),
        ] {
            assert_eq!(json(text), expected, "{text}");
        }
    }

    #[test]
    fn a_table_of_toml_is_a_table() {
        let error = toml::from_str::<Inner>("count = {}\n").unwrap_err();
        assert_eq!(
            plain(error.message(), Form::Toml),
            "expected a whole number of at least 0, found a table"
        );
        let error = toml::from_str::<Inner>("count = 1\nmap = 3\n").unwrap_err();
        assert_eq!(plain(error.message(), Form::Toml), "expected a table, found the number 3");
    }
}
