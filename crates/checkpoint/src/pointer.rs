//! Pointers of git-lfs: short texts that stand in a repository for large files.

use std::path::Path;

use crate::error::{Error, Result};

/// How such a text begins, by the specification of git-lfs.
const BEGINNING: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Checks that the content of the file `path`, of which `bytes` is the beginning, is not a pointer.
///
/// # Errors
/// [`Error::Pointer`] with the size that the file should have.
pub(crate) fn check(path: &Path, bytes: &[u8]) -> Result<()> {
    if !bytes.starts_with(BEGINNING) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(1024)]);
    let size = text.lines().find_map(|line| line.strip_prefix("size ")?.trim().parse().ok());
    Err(Error::Pointer { path: path.into(), size })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::check;

    #[test]
    fn a_pointer_is_told_with_the_size_of_its_file() {
        let text = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 440473133\n";
        let error = check(Path::new("m/model.safetensors"), text.as_bytes()).unwrap_err().to_string();
        assert!(
            error.starts_with("m/model.safetensors: expected the file's content (440473133 bytes)"),
            "{error}"
        );
        assert!(error.contains("git lfs pull"), "{error}");
        let without = check(Path::new("m"), b"version https://git-lfs.github.com/spec/v1\n").unwrap_err();
        assert!(without.to_string().starts_with("m: expected the file's content, found"), "{without}");
        check(Path::new("m"), b"version 2").unwrap();
        check(Path::new("m"), b"").unwrap();
    }
}
