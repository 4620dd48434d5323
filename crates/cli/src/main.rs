//! The `sporran` program.

mod memory;

use std::{ffi::OsString, process::ExitCode};

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
    ExitCode::from(sporran_cli::run(&arguments))
}
