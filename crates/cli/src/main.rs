//! The `sporran` program.

use std::{ffi::OsString, io, path::Path, process::ExitCode};

/// The first argument of the process that reads a PDF file for another one of this program.
const READ_DOCUMENT: &str = "read-pdf-for-parent";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let [_, verb, path] = &arguments[..]
        && verb == READ_DOCUMENT
    {
        let done = sporran_documents::child::serve(Path::new(path), &mut io::stdout().lock());
        return ExitCode::from(u8::from(done.is_err()));
    }
    if let Ok(program) = std::env::current_exe() {
        sporran_documents::child::isolate(program, vec![READ_DOCUMENT.into()]);
    }
    ExitCode::from(sporran_cli::run(&arguments))
}
