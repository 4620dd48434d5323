//! The error for a setting of a `config.json`.

use std::path::PathBuf;

use sporran_checkpoint::Error;

/// The error for a field that was read, and whose value no model here has. The caller's file is a `config.json`.
pub(crate) fn wrong(field: &str, expected: &str, found: &str) -> Error {
    Error::Config {
        path: PathBuf::from("config.json"),
        field: field.into(),
        expected: expected.into(),
        found: found.into(),
    }
}
