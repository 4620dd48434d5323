//! Errors of the libraries as Python's exceptions, whose classes are in `sporran.errors`.

use std::any::Any;

use pyo3::{PyErr, import_exception};
use sporran_pipeline::Error;

import_exception!(sporran.errors, BusyError);
import_exception!(sporran.errors, ConfigError);
import_exception!(sporran.errors, ForkError);
import_exception!(sporran.errors, InputError);
import_exception!(sporran.errors, WorkError);

/// The result of a call from Python.
pub(crate) type Result<T, E = PyErr> = std::result::Result<T, E>;

/// The exception of a library's error: its message with all causes.
pub(crate) fn raised(error: impl Into<Error>) -> PyErr {
    let error = error.into();
    let text = sporran_kilt::with_causes(&error);
    match error {
        Error::Busy { .. } => BusyError::new_err(text),
        Error::Config(_) => ConfigError::new_err(text),
        _ if error.is_input() => InputError::new_err(text),
        _ => WorkError::new_err(text),
    }
}

/// The exception for an argument that cannot be used.
pub(crate) fn argument(name: &str, expected: &str, found: impl std::fmt::Display) -> PyErr {
    InputError::new_err(format!("{name}: expected {expected}, found {found}"))
}

/// The exception for a process that was forked after the library's threads had started.
pub(crate) fn forked() -> PyErr {
    ForkError::new_err(
        "this process was forked after sporran had started its threads, which a fork does not copy; start it with \
         multiprocessing's method `spawn` or `forkserver`, or fork before the first call",
    )
}

/// The exception for a fault of the library, with its message.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let message =
        panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
    WorkError::new_err(format!("sporran has a fault: {}", message.unwrap_or("a panic without a message")))
}
