//! Reading a PDF file in a process of its own, which can fail, run too long or need too much memory without harm.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

use crate::{Document, pdf};
use sporran_kilt::counted;

/// The longest time for a file.
const LONGEST: Duration = Duration::from_secs(120);
/// The largest address space of the process, in bytes.
#[cfg(target_os = "linux")]
const MEMORY: u64 = 4 << 30;
/// The largest answer of the process, in bytes.
const ANSWER: u64 = 2 << 30;

static PROGRAM: OnceLock<(PathBuf, Vec<OsString>)> = OnceLock::new();

/// Sets the program that reads PDF files for this process from now on: it is called with `arguments` and the path of a
/// file, and has to call [`serve`]. Without a program, this process reads them itself. Only the first call has an effect.
pub fn isolate(program: PathBuf, arguments: Vec<OsString>) {
    PROGRAM.get_or_init(|| (program, arguments));
}

/// Reads a PDF file and writes its text as JSON, for the process that called [`isolate`]. Limits the memory of this process.
///
/// # Errors
/// Errors of reading and writing. A file that is no PDF is part of the answer.
pub fn serve(path: &Path, output: &mut dyn Write) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        setrlimit(Resource::As, Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) })?;
    }
    let answer = pdf::read(fs::read(path)?);
    serde_json::to_writer(&mut *output, &answer)?;
    output.flush()
}

/// Why there is no document.
pub(crate) struct Failure {
    pub(crate) message: String,
    /// Whether another attempt can succeed.
    pub(crate) is_transient: bool,
}

/// The document of a PDF file, read by the program of [`isolate`]; `None` if there is none.
pub(crate) fn read(path: &Path) -> Option<Result<Document, Failure>> {
    let (program, arguments) = PROGRAM.get()?;
    Some(run(program, arguments, path, LONGEST))
}

fn run(program: &Path, arguments: &[OsString], path: &Path, longest: Duration) -> Result<Document, Failure> {
    let lasting = |message: String| Failure { message, is_transient: false };
    let passing = |message: String| Failure { message, is_transient: true };
    let mut child = Command::new(program)
        .args(arguments)
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| passing(format!("the process that reads PDF files cannot start: {error}")))?;
    let Some(output) = child.stdout.take() else {
        return Err(passing("no output of the process".to_owned()));
    };
    let (sender, receiver) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut answer = Vec::new();
        let read = output.take(ANSWER).read_to_end(&mut answer);
        // The receiver is gone after the longest time.
        let _ = sender.send(read.map(|_| answer));
    });
    let answer = receiver.recv_timeout(longest);
    if answer.is_err() {
        let _ = child.kill();
    }
    let status = child.wait();
    let _ = reader.join();
    let answer = match answer {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(passing(format!("the text cannot be taken over: {error}"))),
        Err(_) => {
            return Err(passing(format!(
                "reading took longer than {}",
                counted(longest.as_secs(), "second")
            )));
        }
    };
    match serde_json::from_slice::<Result<Document, String>>(&answer) {
        Ok(document) => document.map_err(lasting),
        Err(_) => {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            Err(lasting(format!("the reader of PDF files failed on this file ({status})")))
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, longest: Duration) -> Result<Document, Failure> {
        let arguments = ["-c".into(), script.into(), "sh".into()];
        run(Path::new("/bin/sh"), &arguments, Path::new("a file.pdf"), longest)
    }

    #[test]
    fn a_process_that_fails_or_hangs_is_told() {
        let long = Duration::from_secs(60);
        let answer = r#"{"Ok":{"title":"T","blocks":[],"metadata":{},"notes":[],"missing":[]}}"#;
        let document = shell(&format!("printf '%s' '{answer}'"), long).ok().unwrap();
        assert_eq!(document.title.as_deref(), Some("T"));
        let failed = |script: &str, longest| {
            shell(script, longest).err().map(|found| (found.message, found.is_transient)).unwrap()
        };
        assert_eq!(failed(r#"printf '{"Err":"is %s"}' "$1""#, long), ("is a file.pdf".to_owned(), false));
        let (message, is_transient) = failed("kill -9 $$", long);
        assert!(message.contains("failed on this file (signal: 9") && !is_transient, "{message}");
        let (message, is_transient) = failed("exec sleep 100", Duration::from_millis(200));
        assert!(message.starts_with("reading took longer") && is_transient, "{message}");
        assert!(
            run(Path::new("/no/program"), &[], Path::new("x"), long).is_err_and(|found| found.is_transient)
        );
    }
}
