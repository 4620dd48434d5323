//! The `sporran` command of the package.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::{calls::compute, error::Result};

/// Runs the program with a command line, whose first value is the program's name. Gives its exit code.
#[pyfunction]
pub(crate) fn program(py: Python<'_>, arguments: Vec<OsString>) -> Result<u8> {
    compute(py, || Ok::<_, sporran_pipeline::Error>(sporran_cli::run(&arguments)))
}

/// The version of the package.
#[pyfunction]
pub(crate) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}
