//! Ctrl-C: the program prints what is kept and how to continue, removes its half-written files, and ends with exit code 130.

use std::{
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use sporran_kilt::{counted, jsonl, observe::Event};

use crate::outcome::stderr;

/// The exit code of a program that an interrupt ended: 128 and the number of the signal.
const CODE: u8 = 130;

/// What an interrupt leaves.
#[derive(Clone, Debug, Default)]
pub(crate) enum Kept {
    /// Nothing.
    #[default]
    Nothing,
    /// A folder whose finished parts the same command reuses.
    Folder(PathBuf),
    /// The answers to the lines that were read.
    Lines,
    /// Nothing: this output is written at the end, all at once.
    Output(PathBuf),
}

/// Ends what runs.
type StopWith = Box<dyn FnOnce() + Send>;

static KEPT: Mutex<Kept> = Mutex::new(Kept::Nothing);
/// What the first interrupt calls instead of ending the program.
static STOP: Mutex<Option<StopWith>> = Mutex::new(None);
/// Lines of standard input whose answers are printed.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

/// Whether the work saves what it has if it is stopped at an event.
static SAVES: AtomicBool = AtomicBool::new(false);
/// Whether the next event of the work stops it.
static STOPS_AT_EVENT: AtomicBool = AtomicBool::new(false);

/// What an interrupt unwinds with.
pub(crate) struct Interrupted;

/// Starts to handle Ctrl-C.
pub(crate) fn install() {
    let handle = || {
        if let Some(stop) = STOP.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return stop();
        }
        process::exit(i32::from(end()));
    };
    if let Err(error) = ctrlc::set_handler(handle) {
        tracing::warn!("Ctrl-C ends the program without a message: {error}");
    }
}

/// Prints what an interrupt leaves, and returns the exit code.
pub(crate) fn end() -> u8 {
    let kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Kept::Output(path) = &kept {
        remove_half_written(path);
    }
    stderr(&format!("\ninterrupted: {}\n", kept.advice(ANSWERED.load(Ordering::Relaxed))));
    CODE
}

/// Follows the events of the work: while it saves what it has if it is stopped, an interrupt stops it at the next event.
pub(crate) fn follow(event: &Event) {
    match event {
        Event::SavesIfStopped => {
            SAVES.store(true, Ordering::Relaxed);
            stop_with(|| {
                stderr("\na checkpoint is written after this step; press Ctrl-C again to end without it\n");
                STOPS_AT_EVENT.store(true, Ordering::Relaxed);
            });
        }
        Event::Begin { .. } | Event::End if SAVES.swap(false, Ordering::Relaxed) => {
            STOP.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        _ => {}
    }
    if STOPS_AT_EVENT.load(Ordering::Relaxed) {
        resume_unwind(Box::new(Interrupted));
    }
}

/// Sets what an interrupt leaves from now on.
pub(crate) fn keep(kept: Kept) {
    *KEPT.lock().unwrap_or_else(PoisonError::into_inner) = kept;
}

/// Sets what the next interrupt calls instead of ending the program. The one after it ends the program.
pub(crate) fn stop_with(stop: impl FnOnce() + Send + 'static) {
    *STOP.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(stop));
}

/// Counts lines of standard input whose answers are printed.
pub(crate) fn answered(lines: usize) {
    ANSWERED.fetch_add(lines as u64, Ordering::Relaxed);
}

impl Kept {
    fn advice(&self, answered: u64) -> String {
        match self {
            Self::Nothing => "nothing was written".to_owned(),
            Self::Folder(folder) if !sporran_pipeline::continues(folder) => {
                format!("{} has no checkpoint yet; the same command begins again", folder.display())
            }
            Self::Folder(folder) => {
                format!(
                    "{} keeps the finished parts; run the same command again to continue",
                    folder.display()
                )
            }
            Self::Lines => {
                format!("{} answered; continue with line {}", counted(answered, "line"), answered + 1)
            }
            Self::Output(path) if path.as_os_str() == "-" => {
                "standard output is incomplete; run the same command again".to_owned()
            }
            Self::Output(path) => {
                format!("{} was not written; run the same command again", path.display())
            }
        }
    }
}

/// Removes this process's temporary files in the folder of an output, and in the output if it is a folder.
fn remove_half_written(output: &Path) {
    let folder = output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let own = jsonl::temporary_prefix();
    let entries = [folder, output].into_iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&own) {
            // The message that follows is true either way: the output itself was not written.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_written_files_of_this_process_alone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.jsonl");
        let mut writer = jsonl::Writer::create(&output).unwrap();
        writer.line(b"{}").unwrap();
        fs::write(folder.path().join(".sporran-x"), "another process").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        remove_half_written(&output);
        let left = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().file_name();
        assert_eq!(left, ".sporran-x");
    }

    #[test]
    fn advice_names_the_line_to_continue_with() {
        assert!(Kept::Lines.advice(7).ends_with("continue with line 8"));
        assert!(Kept::Folder("runs/a".into()).advice(0).starts_with("runs/a keeps"));
    }
}
