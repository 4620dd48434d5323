//! Paths of the call: an error for a missing path also names the current folder.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::error::{Error, Result};

/// Checks that there is a file; `-` is standard input or output.
pub(crate) fn file(path: &Path) -> Result<()> {
    if path.as_os_str() == "-" {
        return Ok(());
    }
    if path.is_dir() {
        return Err(Error::Input(format!("expected a file, found the folder {}", path.display())));
    }
    exists("file", path)
}

/// Checks that there is a folder.
pub(crate) fn folder(path: &Path) -> Result<()> {
    if path.is_file() {
        return Err(Error::Input(format!("expected a folder, found the file {}", path.display())));
    }
    exists("folder", path)
}

/// Checks that there is a file or a folder; `-` is standard input.
pub(crate) fn file_or_folder(path: &Path) -> Result<()> {
    if path.as_os_str() == "-" { Ok(()) } else { exists("file or folder", path) }
}

/// Checks that a file to write is none of those to read, which the result would replace.
pub(crate) fn not_read<'a>(output: &Path, inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    // What does not exist yet is no input.
    let Ok(place) = output.canonicalize() else { return Ok(()) };
    if !place.is_file() {
        return Ok(());
    }
    match inputs.into_iter().find(|input| input.canonicalize().is_ok_and(|input| input == place)) {
        None => Ok(()),
        Some(input) => Err(Error::Usage(format!(
            "expected another file to write than {}, which is read",
            input.display()
        ))),
    }
}

fn exists(what: &str, path: &Path) -> Result<()> {
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(missing(what, path)),
        Err(source) => Err(Error::io(path, "look up")(source)),
    }
}

/// The error for a missing file or folder.
pub(crate) fn missing(what: &str, path: &Path) -> Error {
    let note = if path.is_absolute() { String::new() } else { format!("; {}", relative_to()) };
    Error::Input(format!("no {what} {}{note}", path.display()))
}

/// A note that relative paths start in the current folder.
pub(crate) fn relative_to() -> String {
    match env::current_dir() {
        Ok(folder) => format!("you are in {}; paths are relative to it", folder.display()),
        Err(_) => "the current folder no longer exists".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_not_written_over_one_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        std::fs::write(&a, "").unwrap();
        assert!(not_read(&b, [&a]).is_ok());
        let again = folder.path().join("../").join(folder.path().file_name().unwrap()).join("a");
        let message = not_read(&again, [&b, &a]).unwrap_err().to_string();
        assert!(
            message.contains("expected another file to write than") && message.ends_with("a, which is read")
        );
        assert!(not_read(Path::new("/dev/null"), [&PathBuf::from("/dev/null")]).is_ok());
    }

    #[test]
    fn an_error_for_a_missing_path_names_the_current_folder() {
        let here = env::current_dir().unwrap();
        let error = file(Path::new("no/such.json")).unwrap_err();
        let expected =
            format!("no file no/such.json; you are in {}; paths are relative to it", here.display());
        assert_eq!((error.to_string(), error.exit_code()), (expected, 2));
        assert_eq!(folder(Path::new("/no/such")).unwrap_err().to_string(), "no folder /no/such");
        assert!(file(&here).unwrap_err().to_string().starts_with("expected a file, found the folder"));
        assert!(file(Path::new("-")).is_ok() && file_or_folder(Path::new("-")).is_ok());
    }
}
