//! Temporary folders with an input in them.

use std::{fs, path::Path};

/// Calls `read` with the path of a file of this name and content.
pub(crate) fn with_file(name: &str, bytes: &[u8], read: impl FnOnce(&Path)) {
    with_files(&[(name, bytes)], |folder| read(&folder.join(name)));
}

/// Calls `read` with a folder of these files. Nothing is read where the system has no room for them.
pub(crate) fn with_files(files: &[(&str, &[u8])], read: impl FnOnce(&Path)) {
    let Ok(folder) = tempfile::tempdir() else { return };
    let written = files.iter().all(|(name, bytes)| fs::write(folder.path().join(name), bytes).is_ok());
    if written {
        read(folder.path());
    }
}

/// Two parts of an input, divided by its first line break.
pub(crate) fn halves(bytes: &[u8]) -> (&[u8], &[u8]) {
    let at = bytes.windows(2).position(|two| two == b"\n\n").unwrap_or(bytes.len());
    (&bytes[..at], bytes.get(at + 2..).unwrap_or_default())
}
