//! Reading JSON files so that an error names the file, the field and the line.

use std::{borrow::Cow, path::Path};

use regex::{Captures, Regex};
use serde::{
    Deserialize, Deserializer, Serializer,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
    ser::SerializeSeq,
};

use crate::{
    error::{Error, Result},
    pointer,
};

/// The text of `path`, or `None` where there is no such file.
pub fn text(path: &Path) -> Result<Option<String>> {
    match std::fs::read(path) {
        Ok(bytes) => utf8(path, bytes).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, "read")(error)),
    }
}

/// The text of `path`, which must be there.
pub fn required(path: &Path) -> Result<String> {
    utf8(path, std::fs::read(path).map_err(Error::io(path, "read"))?)
}

fn utf8(path: &Path, bytes: Vec<u8>) -> Result<String> {
    pointer::check(path, &bytes)?;
    String::from_utf8(bytes)
        .map_err(|error| Error::Utf8 { path: path.into(), at: error.utf8_error().valid_up_to() })
}

/// What stands for a number without a bound: of the length of Python's `Infinity`, and greater than every number of a single precision.
pub const UNBOUNDED: f64 = 1.79e308;

/// The text with numbers in place of Python's `Infinity` and `-Infinity`, which JSON lacks, and null in place of `NaN`; also where
/// `transformers` writes an object with `__float__`. It is the text itself if it has none of them.
fn with_numbers(text: &str) -> Cow<'_, str> {
    if !["Infinity", "NaN"].iter().any(|name| text.contains(name)) {
        return text.into();
    }
    // Strings come first, so that words inside them stay.
    const PARTS: &str = r#"\{\s*"__float__"\s*:\s*"(-?Infinity|NaN)"\s*\}|"(?:[^"\\]|\\.)*"|-?Infinity|NaN"#;
    let Ok(parts) = Regex::new(PARTS) else { return text.into() };
    parts.replace_all(text, |found: &Captures<'_>| {
        match found.get(1).map_or(&found[0], |name| name.as_str()) {
            "NaN" => "null".to_owned(),
            "Infinity" => format!("{UNBOUNDED:e}"),
            "-Infinity" => format!("{:e}", -UNBOUNDED),
            string => string.to_owned(),
        }
    })
}

/// `text` as a `T`; `path` is for the error. Python's `Infinity` is [`UNBOUNDED`], and `NaN` is null.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    let text = &with_numbers(text);
    let mut json = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        // Where the JSON broke off inside an object, that object.
        let field = match error.path().to_string().trim_end_matches(['?', '.']) {
            "" => ".".to_owned(),
            field => field.to_owned(),
        };
        Error::Json { path: path.into(), field, source: error.into_inner() }
    })?;
    json.end().map_err(|source| Error::Json { path: path.into(), field: ".".into(), source })?;
    Ok(value)
}

/// Token ids that a config writes as one number, as a list, or as null; none of them is negative.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenIds(pub Vec<u32>);

impl<'de> Deserialize<'de> for TokenIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ids = signed_ids(deserializer)?;
        if let Some(id) = ids.iter().find(|id| **id < 0) {
            return Err(D::Error::custom(format!("the token id {id} is negative")));
        }
        Ok(Self(ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect()))
    }
}

/// A token id; null and negative numbers are none, as `transformers` has it where -1 stands for a token that does not exist.
pub fn deserialize_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    match deserialize_ids(deserializer)?.as_slice() {
        [] => Ok(None),
        [id] => Ok(Some(*id)),
        ids => Err(D::Error::custom(format!("expected one token id, found {}", ids.len()))),
    }
}

/// One token id, a list of them, or null for none; negative ones are left out, as no token has such an id.
pub fn deserialize_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    Ok(signed_ids(deserializer)?.into_iter().filter_map(|id| u32::try_from(id).ok()).collect())
}

/// One id, a list of them, or null for none.
fn signed_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<i64>, D::Error> {
    struct Ids;
    impl<'de> Visitor<'de> for Ids {
        type Value = Vec<i64>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a token id, a list of token ids, or null")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<Self::Value, E> {
            let id =
                u32::try_from(id).map_err(|_| E::custom(format!("the token id {id} is over 2^32 - 1")))?;
            Ok(vec![id.into()])
        }

        fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<Self::Value, E> {
            if id < 0 { Ok(vec![id]) } else { self.visit_u64(id.unsigned_abs()) }
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut ids = Vec::new();
            while let Some(id) = seq.next_element::<i64>()? {
                if id > i64::from(u32::MAX) {
                    return Err(A::Error::custom(format!("the token id {id} is over 2^32 - 1")));
                }
                ids.push(id);
            }
            if ids.is_empty() { Err(A::Error::custom("an empty list of token ids")) } else { Ok(ids) }
        }
    }
    deserializer.deserialize_any(Ids)
}

/// Writes the format that [`deserialize_ids`] reads: one id as a number, none as null.
pub fn serialize_ids<S: Serializer>(ids: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    match ids {
        [] => serializer.serialize_none(),
        [id] => serializer.serialize_u32(*id),
        ids => {
            let mut seq = serializer.serialize_seq(Some(ids.len()))?;
            for id in ids {
                seq.serialize_element(id)?;
            }
            seq.end()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde::Deserialize;

    use super::{TokenIds, deserialize_id, deserialize_ids, parse};

    fn ids(text: &str) -> crate::Result<Vec<u32>> {
        parse::<TokenIds>(Path::new("config.json"), text).map(|ids| ids.0)
    }

    #[test]
    fn bytes_that_are_no_text_are_named_by_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, b"{\"a\":\"\xff\"}").unwrap();
        let error = super::text(&path).unwrap_err().to_string();
        assert!(
            error.ends_with("config.json: expected text in UTF-8, found other bytes at offset 6"),
            "{error}"
        );
        assert_eq!(super::text(&folder.path().join("none")).unwrap(), None);
    }

    #[test]
    fn numbers_that_python_writes_and_json_lacks_are_read() {
        let read = |text: &str| parse::<serde_json::Value>(Path::new("config.json"), text);
        let text = r#"{"limit": [-Infinity, Infinity], "none": NaN, "name": "\"Infinity NaN", "NaN": 1,
                       "written": {"__float__": "Infinity"}}"#;
        let most = super::UNBOUNDED;
        let expected = serde_json::json!({
            "limit": [-most, most], "none": null, "name": "\"Infinity NaN", "NaN": 1, "written": most
        });
        assert_eq!(read(text).unwrap(), expected);
        assert_eq!(most as f32, f32::INFINITY);
        let error = read("{\n\"a\": Infinite}").unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("line 2"));
    }

    #[test]
    fn a_negative_id_is_no_token() {
        #[derive(Debug, Default, PartialEq, Deserialize)]
        struct Fields {
            #[serde(deserialize_with = "deserialize_id")]
            pad: Option<u32>,
            #[serde(deserialize_with = "deserialize_ids")]
            eos: Vec<u32>,
        }
        let read = |text: &str| parse::<Fields>(Path::new("config.json"), text);
        let fields = |pad, eos: &[u32]| Fields { pad, eos: eos.to_vec() };
        assert_eq!(read(r#"{"pad": -1, "eos": [5, -1, 7]}"#).unwrap(), fields(None, &[5, 7]));
        assert_eq!(read(r#"{"pad": 3, "eos": -1}"#).unwrap(), fields(Some(3), &[]));
        assert_eq!(read(r#"{"pad": null, "eos": null}"#).unwrap(), fields(None, &[]));
        assert_eq!(read(r#"{"pad": [4], "eos": 2}"#).unwrap(), fields(Some(4), &[2]));
        for wrong in [r#"{"pad": [4, 5], "eos": 2}"#, r#"{"pad": 0, "eos": "</s>"}"#] {
            assert!(read(wrong).unwrap_err().to_string().contains("config.json: field `"), "{wrong}");
        }
    }

    #[test]
    fn token_ids_are_a_number_a_list_or_null() {
        assert_eq!(ids("1").unwrap(), [1]);
        assert_eq!(ids("[1, 5]").unwrap(), [1, 5]);
        assert_eq!(ids("null").unwrap(), [0u32; 0]);
        for wrong in ["-1", "[]", "\"1\"", "4294967296", "1 2"] {
            assert!(ids(wrong).is_err(), "{wrong}");
        }
    }
}
