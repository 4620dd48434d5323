//! Reading JSON files so that an error names the file, the field and the line.

use std::path::Path;

use serde::{
    Deserialize, Deserializer, Serializer,
    de::{DeserializeOwned, Error as _, SeqAccess, Visitor},
    ser::SerializeSeq,
};

use crate::error::{Error, Result};

/// The text of `path`, or `None` where there is no such file.
pub(crate) fn text(path: &Path) -> Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, "read")(error)),
    }
}

/// `text` as a `T`; `path` is for the error.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
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

/// Token ids that a config writes as one number, as a list, or as null.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TokenIds(pub(crate) Vec<u32>);

impl<'de> Deserialize<'de> for TokenIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize_ids(deserializer).map(Self)
    }
}

/// One token id, a list of them, or null for none.
pub(crate) fn deserialize_ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    struct Ids;
    impl<'de> Visitor<'de> for Ids {
        type Value = Vec<u32>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a token id, a list of token ids, or null")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Vec::new())
        }

        fn visit_u64<E: serde::de::Error>(self, id: u64) -> Result<Self::Value, E> {
            let id =
                u32::try_from(id).map_err(|_| E::custom(format!("the token id {id} is over 2^32 - 1")))?;
            Ok(vec![id])
        }

        fn visit_i64<E: serde::de::Error>(self, id: i64) -> Result<Self::Value, E> {
            let id = u64::try_from(id).map_err(|_| E::custom(format!("the token id {id} is negative")))?;
            self.visit_u64(id)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            let mut ids = Vec::new();
            while let Some(id) = seq.next_element::<u32>()? {
                ids.push(id);
            }
            if ids.is_empty() { Err(A::Error::custom("an empty list of token ids")) } else { Ok(ids) }
        }
    }
    deserializer.deserialize_any(Ids)
}

/// Writes what [`deserialize_ids`] reads: one id as a number, none as null.
pub(crate) fn serialize_ids<S: Serializer>(ids: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
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

    use super::{TokenIds, parse};

    fn ids(text: &str) -> crate::Result<Vec<u32>> {
        parse::<TokenIds>(Path::new("config.json"), text).map(|ids| ids.0)
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
