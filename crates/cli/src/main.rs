//! The `sporran` program.

mod memory;

use std::{ffi::OsString, io, path::Path, process::ExitCode};

/// The first argument of the process that reads a PDF file for another one of this program.
const READ_DOCUMENT: &str = "read-pdf-for-parent";

#[global_allocator]
static ALLOCATOR: memory::Reporting = memory::Reporting;

fn main() -> ExitCode {
    // A write beyond the greatest size of a file, as `ulimit -f` sets it, is an error then. Otherwise it ends the process.
    // SAFETY: an ignored signal runs no code, and no thread has been started yet.
    #[cfg(unix)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
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
