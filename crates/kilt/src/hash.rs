//! Hashes of options.

use serde::Serialize;

/// BLAKE3, in hexadecimal, of a value's JSON.
pub fn hash_json(value: &impl Serialize) -> String {
    // Keys and hashes are plain data, which always has a JSON form.
    blake3::hash(serde_json::to_string(value).unwrap_or_default().as_bytes()).to_hex().to_string()
}
