//! The date that templates are given.

use minijinja::{Error, ErrorKind};

/// `strftime_now` of a template: 26 July 2024, a Friday, at midnight, by Python's format codes.
///
/// # Errors
/// For a code that this does not know.
pub(super) fn strftime(format: String) -> Result<String, Error> {
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let code = characters.next();
        let part = match code {
            // Without a leading zero or space.
            Some('-') => match characters.next() {
                Some('d') => "26",
                Some('m') => "7",
                Some('y') => "24",
                Some('j') => "208",
                Some('H' | 'M' | 'S') => "0",
                Some('I') => "12",
                other => return Err(unknown(&format!("-{}", other.map_or(String::new(), String::from)))),
            },
            Some('Y' | 'G') => "2024",
            Some('y') => "24",
            Some('m') => "07",
            Some('B') => "July",
            Some('b' | 'h') => "Jul",
            Some('d' | 'e') => "26",
            Some('j') => "208",
            Some('A') => "Friday",
            Some('a') => "Fri",
            Some('u' | 'w') => "5",
            Some('V' | 'W') => "30",
            Some('U') => "29",
            Some('H' | 'M' | 'S') => "00",
            Some('I') => "12",
            Some('p') => "AM",
            Some('f') => "000000",
            Some('F') => "2024-07-26",
            Some('D' | 'x') => "07/26/24",
            Some('T' | 'X') => "00:00:00",
            Some('R') => "00:00",
            Some('c') => "Fri Jul 26 00:00:00 2024",
            // A time without a zone.
            Some('z' | 'Z') => "",
            Some('n') => "\n",
            Some('t') => "\t",
            Some('%') => "%",
            other => return Err(unknown(&other.map_or(String::new(), String::from))),
        };
        text.push_str(part);
    }
    Ok(text)
}

fn unknown(code: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("strftime_now: expected a known format code, found `%{code}`"),
    )
}
