//! Numbers of a config that are texts or lists in some files.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

/// A number, or the length of a text such as `LLLG`: all but the last of so many layers are local.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => match text.strip_suffix('G') {
            Some(local) if local.bytes().all(|kind| kind == b'L') => Ok(Some(text.len())),
            _ => Err(D::Error::custom(format!("expected a number or a text such as `LLLG`, found `{text}`"))),
        },
        other => usize::deserialize(other).map(Some).map_err(D::Error::custom),
    }
}

/// A number, or a list that has it for each layer.
pub(super) fn same_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    let each = match Value::deserialize(deserializer)? {
        Value::Array(each) => each,
        one => vec![one],
    };
    match each.split_first() {
        Some((first, others)) if others.iter().all(|other| other == first) => {
            Option::<usize>::deserialize(first).map_err(D::Error::custom)
        }
        _ => Err(D::Error::custom("expected one number for all layers, found a list of different ones")),
    }
}
