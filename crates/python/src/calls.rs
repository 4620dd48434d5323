//! How a call from Python computes: without the interpreter's lock, with Ctrl-C, and never after a fork.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use pyo3::{prelude::*, types::PyDict};
use sporran_pipeline::{Error, Event, Observer};

use crate::error::{Result, forked, panicked, raised};

/// The process that started the libraries' threads; 0 before that.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// The least time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Fails in a fork of the process that started the libraries' threads: they do not exist there, and a call would wait for ever.
fn check_process() -> Result<()> {
    let here = process::id();
    match OWNER.compare_exchange(0, here, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(()),
        Err(owner) if owner == here => Ok(()),
        Err(_) => Err(forked()),
    }
}

/// Computes without the interpreter's lock.
///
/// # Errors
/// The exception of the library's error; `ForkError` in a fork.
pub(crate) fn compute<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    work: impl FnOnce() -> std::result::Result<T, E> + Send,
) -> Result<T> {
    check_process()?;
    stoppable(py, work)?.map_err(raised)
}

/// Computes portion by portion, and looks for Ctrl-C between two of them.
///
/// # Errors
/// As [`compute`]; `KeyboardInterrupt`.
pub(crate) fn portions<I: Sync, T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    items: &[I],
    size: usize,
    work: impl Fn(&[I]) -> std::result::Result<Vec<T>, E> + Sync,
) -> Result<Vec<T>> {
    let mut results = Vec::with_capacity(items.len());
    for portion in items.chunks(size) {
        py.check_signals()?;
        results.extend(compute(py, || work(portion))?);
    }
    Ok(results)
}

/// Ends a call from within its work: unwinding drops locks and open files, as the end of the process would.
struct Stopped(PyErr);

/// Runs work without the interpreter's lock. Work that unwinds with [`Stopped`] ends with its exception, and a panic with
/// `WorkError`.
fn stoppable<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> Result<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(result) => Ok(result),
        Err(panic) => match panic.downcast::<Stopped>() {
            Ok(stopped) => Err(stopped.0),
            Err(panic) => Err(panicked(&*panic)),
        },
    }
}

/// Computes, and looks for Ctrl-C when the work calls its argument.
///
/// # Errors
/// As [`compute`]; `KeyboardInterrupt`.
pub(crate) fn watched<T: Send, E: Into<Error> + Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut()) -> std::result::Result<T, E> + Send,
) -> Result<T> {
    check_process()?;
    let worked = stoppable(py, || {
        let mut looked = Instant::now();
        work(&mut || {
            if looked.elapsed() < LOOK {
                return;
            }
            looked = Instant::now();
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                resume_unwind(Box::new(Stopped(error)));
            }
        })
    })?;
    worked.map_err(raised)
}

/// Runs work that reports its progress. `progress` is called with a dict of each event; an exception in it, and Ctrl-C, end the
/// work. What a run has finished stays, and the next run goes on from there.
///
/// # Errors
/// As [`compute`]; `KeyboardInterrupt`, and the exceptions of `progress`.
pub(crate) fn observed<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut Observer<'_>) -> std::result::Result<T, Error> + Send,
) -> Result<T> {
    check_process()?;
    let worked = stoppable(py, || {
        let mut looked = Instant::now();
        let mut observer = |event: Event| {
            let seen = if progress.is_some() || looked.elapsed() >= LOOK {
                looked = Instant::now();
                Python::attach(|py| {
                    py.check_signals()?;
                    progress.as_ref().map_or(Ok(()), |progress| tell(py, progress, &event))
                })
            } else {
                Ok(())
            };
            if let Err(error) = seen {
                resume_unwind(Box::new(Stopped(error)));
            }
        };
        work(&mut observer)
    })?;
    worked.map_err(raised)
}

/// Calls `progress` with an event as a dict, whose key `event` names it.
fn tell(py: Python<'_>, progress: &Py<PyAny>, event: &Event) -> PyResult<()> {
    let dict = PyDict::new(py);
    match event {
        Event::Folder { path } => {
            dict.set_item("event", "folder")?;
            dict.set_item("path", path)?;
        }
        Event::Begin { step, total, unit } => {
            dict.set_item("event", "begin")?;
            dict.set_item("step", step)?;
            dict.set_item("total", total)?;
            dict.set_item("unit", format!("{unit:?}").to_lowercase())?;
        }
        Event::Advance { done, note } => {
            dict.set_item("event", "advance")?;
            dict.set_item("done", done)?;
            dict.set_item("note", note)?;
        }
        Event::End => dict.set_item("event", "end")?,
        Event::Note { text } => {
            dict.set_item("event", "note")?;
            dict.set_item("text", text)?;
        }
        Event::Skip { step } => {
            dict.set_item("event", "skip")?;
            dict.set_item("step", step)?;
        }
        _ => return Ok(()),
    }
    progress.call1(py, (dict,)).map(drop)
}
