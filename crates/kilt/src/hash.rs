//! Hashes of options and ids.

use serde::Serialize;

/// BLAKE3, in hexadecimal, of a value's JSON.
pub fn hash_json(value: &impl Serialize) -> String {
    // Keys and hashes are plain data, which always has a JSON form.
    blake3::hash(serde_json::to_string(value).unwrap_or_default().as_bytes()).to_hex().to_string()
}

/// 128 bits of BLAKE3 of an id: what is kept of each of many ids to find one that comes again.
#[must_use]
pub fn hash_id(id: &str) -> u128 {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&blake3::hash(id.as_bytes()).as_bytes()[..16]);
    u128::from_le_bytes(bytes)
}
