//! Paths of the call: an error for a missing path also names the current folder.

use std::{
    env,
    path::{Path, PathBuf},
};

use sporran_kilt::jsonl;

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

/// Checks that there is a file that can be read more than once: neither standard input nor a pipe.
pub(crate) fn file_to_reread(path: &Path) -> Result<()> {
    file(path)?;
    if jsonl::is_stream(path) && path != Path::new("/dev/null") {
        let message = format!("{}: expected a file, which is read twice; found a stream", path.display());
        return Err(Error::Input(message));
    }
    Ok(())
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

/// Checks that a file to write is not in one of the folders whose files are read, and is not itself one that is read: the next
/// reading would take it for one.
///
/// # Errors
/// [`Error::Usage`] for such a file.
pub(crate) fn not_within<'a>(
    output: &Path,
    sources: impl IntoIterator<Item = &'a PathBuf> + Clone,
) -> Result<()> {
    if output == Path::new("-") {
        return Ok(());
    }
    not_read(output, sources.clone())?;
    let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Folders that do not exist yet are made.
    let Some(place) = parent.ancestors().find_map(|folder| folder.canonicalize().ok()) else { return Ok(()) };
    let is_in = |source: &&PathBuf| {
        source.canonicalize().is_ok_and(|source| source.is_dir() && place.starts_with(source))
    };
    match sources.into_iter().find(is_in) {
        None => Ok(()),
        Some(source) => Err(Error::Usage(format!(
            "expected a file to write outside of {}, whose files are read; found {}",
            source.display(),
            output.display()
        ))),
    }
}

fn exists(what: &str, path: &Path) -> Result<()> {
    match path.try_exists() {
        Ok(true) => Ok(()),
        Ok(false) => Err(missing(what, path)),
        // Such as a link that leads to itself.
        Err(source) => Err(Error::Input(format!("{}: cannot be looked up: {source}", path.display()))),
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
    fn a_stream_is_no_file_that_is_read_twice() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(file_to_reread(file.path()).is_ok());
        assert!(file_to_reread(Path::new("-")).is_err());
        if cfg!(unix) {
            let message = file_to_reread(Path::new("/dev/zero")).unwrap_err().to_string();
            assert_eq!(message, "/dev/zero: expected a file, which is read twice; found a stream");
        }
    }

    #[test]
    fn a_file_is_not_written_among_those_that_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let (docs, page) = (folder.path().join("docs"), folder.path().join("page.txt"));
        std::fs::create_dir_all(docs.join("deep")).unwrap();
        std::fs::write(&page, "").unwrap();
        let sources = [docs.clone(), page.clone()];
        assert!(not_within(&folder.path().join("set.jsonl"), &sources).is_ok());
        assert!(not_within(Path::new("-"), &[PathBuf::from(".")]).is_ok());
        assert!(not_within(&docs.join("new/deep/set.jsonl"), &sources).is_err());
        let message = not_within(&docs.join("deep/set.jsonl"), &sources).unwrap_err().to_string();
        assert!(message.contains("docs, whose files are read; found"), "{message}");
        assert!(not_within(&page, &sources).unwrap_err().to_string().contains("which is read"));
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
