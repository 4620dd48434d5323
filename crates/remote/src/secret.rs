//! The key of an endpoint.

use std::fmt;

use serde_json::Value;
use ureq::http::HeaderValue;

use crate::{Error, Result};

/// A key. It is never printed or written.
#[derive(Clone)]
pub(crate) struct Secret(String);

/// The replacement of a key.
const HIDDEN: &str = "[key]";
/// Shorter keys, such as `none`, are placeholders for servers that read none. They are not hidden, because they can be words.
const SHORTEST: usize = 8;

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

/// Checks the name of a variable. Only capitals, digits and `_` are accepted, because keys have other characters.
///
/// # Errors
/// What was expected and found, without the text itself, which may be a key.
pub(crate) fn check_variable(name: &str) -> Result<(), (&'static str, String)> {
    let fits = |(at, c): (usize, char)| c.is_ascii_uppercase() || c == '_' || (at > 0 && c.is_ascii_digit());
    if !name.is_empty() && name.len() <= 64 && name.chars().enumerate().all(fits) {
        return Ok(());
    }
    let expected = "the name of an environment variable, in capitals, such as `OPENAI_API_KEY`; the key itself does not belong into a config";
    Err((expected, format!("{} characters that are no such name", name.chars().count())))
}

impl Secret {
    /// The key in an environment variable.
    ///
    /// # Errors
    /// [`Error::Option`] for a name that may be a key, and [`Error::Variable`] for a variable without a usable key.
    pub(crate) fn of_variable(name: &str) -> Result<Self> {
        check_variable(name).map_err(|(expected, found)| Error::Option {
            option: "api-key-env",
            expected,
            found,
        })?;
        let wrong = |found| Error::Variable { variable: name.to_owned(), found };
        let value = match std::env::var(name) {
            Ok(value) => value,
            Err(std::env::VarError::NotPresent) => return Err(wrong("no such variable")),
            Err(std::env::VarError::NotUnicode(_)) => return Err(wrong("text that is not UTF-8")),
        };
        Self::new(&value).map_err(wrong)
    }

    fn new(value: &str) -> Result<Self, &'static str> {
        let value = value.trim();
        if value.is_empty() {
            return Err("nothing in it");
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("characters that a header cannot have");
        }
        Ok(Self(value.to_owned()))
    }

    /// The value of the header `Authorization`, which no log shows.
    pub(crate) fn header(&self) -> HeaderValue {
        // `new` accepts only characters of headers.
        let value = HeaderValue::from_str(&format!("Bearer {}", self.0));
        let mut value = value.unwrap_or(HeaderValue::from_static("Bearer"));
        value.set_sensitive(true);
        value
    }

    /// A text with the key replaced, also in the form that it has in an address.
    pub(crate) fn hide(&self, text: &str) -> String {
        if self.0.len() < SHORTEST {
            return text.to_owned();
        }
        let text = text.replace(&self.0, HIDDEN);
        let encode = |byte: u8| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        };
        let encoded: String = self.0.bytes().map(encode).collect();
        if encoded == self.0 { text } else { text.replace(&encoded, HIDDEN) }
    }

    /// Hides the key in all texts of a value, names of fields included.
    pub(crate) fn hide_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in(item)),
            Value::Object(fields) => {
                let old = std::mem::take(fields);
                for (name, mut value) in old {
                    self.hide_in(&mut value);
                    fields.insert(self.hide(&name), value);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A text that grows, without the key and without an end that the key can begin with.
    pub(crate) fn settled(&self, text: &str) -> String {
        let text = self.hide(text);
        if self.0.len() < SHORTEST {
            return text;
        }
        // A key is ASCII, so its parts end at characters.
        let most = (self.0.len() - 1).min(text.len());
        let held = (1..=most).rev().find(|&length| text.as_bytes().ends_with(&self.0.as_bytes()[..length]));
        text[..text.len() - held.unwrap_or(0)].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "sk-test/1234567890";

    #[test]
    fn a_key_is_hidden_wherever_it_stands() {
        let secret = Secret::new(&format!(" {KEY}\n")).unwrap();
        assert_eq!(secret.header().to_str().unwrap(), format!("Bearer {KEY}"));
        assert!(!format!("{:?}", secret.header()).contains(KEY));
        assert_eq!(format!("{secret:?}"), "[key]");
        assert_eq!(secret.hide(&format!("a {KEY}{KEY} b")), "a [key][key] b");
        assert_eq!(secret.hide("x=sk-test%2F1234567890"), "x=[key]");
        let mut value = json!({ "a": [format!("<{KEY}>"), 1], KEY: null });
        secret.hide_in(&mut value);
        assert_eq!(value, json!({ "a": ["<[key]>", 1], "[key]": null }));
        // A placeholder can be a word of an answer.
        assert_eq!(Secret::new("none").unwrap().hide("none of them"), "none of them");
    }

    #[test]
    fn the_beginning_of_a_key_waits_for_its_end() {
        let secret = Secret::new(KEY).unwrap();
        assert_eq!(secret.settled("the key is sk-te"), "the key is ");
        assert_eq!(secret.settled(&format!("the key is {KEY}.")), "the key is [key].");
        assert_eq!(secret.settled("é is"), "é i");
        assert_eq!(secret.settled("é is "), "é is ");
    }

    #[test]
    fn a_key_in_place_of_a_variables_name_is_refused_and_not_repeated() {
        check_variable("OPENAI_API_KEY").unwrap();
        for name in ["sk-abc", "hf_AbC", "", "1A", "A B", "a"] {
            let (_, found) = check_variable(name).unwrap_err();
            assert!(name.is_empty() || !found.contains(name) || name == "a", "{found}");
        }
        for value in ["", "  ", "a\nb", "é"] {
            assert!(Secret::new(value).is_err());
        }
        let error = Secret::of_variable("SPORRAN_NO_SUCH_VARIABLE").unwrap_err();
        assert!(error.to_string().ends_with("SPORRAN_NO_SUCH_VARIABLE, found no such variable"), "{error}");
    }
}
