//! Texts as people read them in a terminal.

/// Whether a terminal or a viewer obeys a character instead of showing it: a control character, or one that turns the
/// direction of the text after it.
fn is_obeyed(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}') || turns(c)
}

/// Whether a character embeds, overrides or isolates a direction of text.
fn turns(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text with the sign for a missing character in place of what a terminal would obey: control characters, and those that
/// turn the direction of text. Blanks, ends of lines and marks of direction, which turn no other text, stay.
///
/// ```
/// assert_eq!(sporran_kilt::printable("a\u{1b}[2J\u{202e}b\n"), "a\u{fffd}[2J\u{fffd}b\n");
/// ```
#[must_use]
pub fn printable(text: &str) -> String {
    let is_kept = |c: char| matches!(c, '\n' | '\t');
    text.replace("\r\n", "\n").replace(|c: char| (c.is_control() && !is_kept(c)) || turns(c), "\u{fffd}")
}

/// A printable text on one line, with blanks in place of ends of lines.
///
/// ```
/// assert_eq!(sporran_kilt::printable_line("a\nb\u{7}.md"), "a b\u{fffd}.md");
/// ```
#[must_use]
pub fn printable_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// JSON with `\u` escapes in place of what a terminal would obey. Its values are the same. `json` is valid JSON, which has
/// these characters in strings only.
///
/// ```
/// assert_eq!(sporran_kilt::escaped_json("{\"a\":\"\u{9b}2J\u{202e}\"}"), r#"{"a":"\u009b2J\u202e"}"#);
/// ```
#[must_use]
pub fn escaped_json(json: &str) -> String {
    if !json.contains(|c: char| is_obeyed(c) && !c.is_ascii_whitespace()) {
        return json.to_owned();
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match is_obeyed(c) && !c.is_ascii_whitespace() {
            // All of them are in the basic plane.
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
    out
}

/// A number with its noun, such as `1 file` and `2 files`. Nouns have the plural in `s`, or in `ies` after a consonant.
///
/// ```
/// use sporran_kilt::counted;
///
/// assert_eq!([0, 1, 2].map(|n| counted(n, "file")), ["0 files", "1 file", "2 files"]);
/// assert_eq!([1, 2].map(|n| counted(n, "query")), ["1 query", "2 queries"]);
/// assert_eq!([counted(2, "day"), counted(2, "prefix")], ["2 days", "2 prefixes"]);
/// ```
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    match noun.strip_suffix('y') {
        _ if count == 1 => format!("1 {noun}"),
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{count} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) => format!("{count} {noun}es"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_json_has_the_same_value_and_nothing_that_a_terminal_obeys() {
        let text = "a\u{7f}b\u{9b}31m\u{202e}c\u{2066}d\u{200f}e\u{1b}\n\"ö";
        let json = serde_json::to_string(text).unwrap();
        let escaped = escaped_json(&json);
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
        assert!(!escaped.contains(is_obeyed), "{escaped}");
        let plain = serde_json::to_string_pretty(&["Zoë", "x\ty"]).unwrap();
        assert_eq!(escaped_json(&plain), plain);
    }

    #[test]
    fn marks_of_direction_stay_and_overrides_do_not() {
        assert_eq!(printable("\u{200f}א\u{202e}x\r\n"), "\u{200f}א\u{fffd}x\n");
    }
}
