//! A lock that one process at a time holds, as a file.
//!
//! The system locks the file and releases it when the process ends, however it ends. Where the file system cannot lock, a
//! second file stands for the lock, since only one process can create it. A killed process leaves that file. The next
//! process on the same machine sees that the one before does not live any more, and takes the lock over.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How the text in a lock's file begins; the number of the process follows.
const MAGIC: &str = "sporran build, process ";
/// How its second line begins; when the process started follows, and the machine.
const STARTED: &str = "started ";

/// How often a file that the system cannot lock is looked at.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the log says that this process still waits.
const REMINDER: Duration = Duration::from_secs(60);

/// Asks the system for the lock of an open file.
type TryLock = fn(&File) -> Result<(), TryLockError>;

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    /// Open as long as the lock is held.
    file: File,
    /// Whether the file outlives the lock.
    stays: bool,
}

impl Lock {
    /// Takes the lock at `path`, and waits for a process that holds it; the log says so. The file goes away with the lock.
    ///
    /// Where the file system has no locks, a file that only one process can create stands for it, with a warning.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be made.
    pub(super) fn take(path: &Path) -> Result<Self> {
        // Who waits never comes back with nothing.
        loop {
            if let Some(lock) = Self::acquire(path, true, false, File::try_lock)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock at `path`; none where another process holds it. The file stays when the lock is released.
    ///
    /// Where the file system has no locks, a second file that only one process can create stands for the lock, with a
    /// warning. It is removed with the lock. If its process was killed on this machine, it is taken over.
    ///
    /// # Errors
    /// [`Error::Io`] where the file cannot be made.
    pub fn try_take(path: &Path) -> Result<Option<Self>> {
        Self::acquire(path, false, true, File::try_lock)
    }

    fn acquire(path: &Path, waits: bool, stays: bool, try_lock: TryLock) -> Result<Option<Self>> {
        let mut last = None;
        loop {
            let mut file = open(path, true)?;
            let mut locked = try_lock(&file);
            if waits && matches!(locked, Err(TryLockError::WouldBlock)) {
                say_that_it_waits(path, "", &mut last);
                locked = file.lock().map_err(TryLockError::Error);
            }
            match locked {
                // The holder before may have removed the file between the opening and the locking.
                Ok(()) if is_at(&file, path) => {
                    write_holder(&mut file).map_err(|error| Error::io(path, "write", error))?;
                    return Ok(Some(Self { path: path.to_owned(), file, stays }));
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => {
                    tracing::warn!(
                        file = %path.display(), %error,
                        "the file system cannot lock files; a file that only one process can create stands for the lock"
                    );
                    if !stays {
                        let _ = fs::remove_file(path);
                    }
                    return Self::create(path, waits);
                }
            }
        }
    }

    /// Takes the lock at `path` if a file is there that no process holds.
    pub(super) fn take_abandoned(path: &Path) -> Option<Self> {
        let stand_in = Self::stand_in(path);
        if stand_in.exists() {
            return if remove_stale(&stand_in) { Self::create(path, false).ok().flatten() } else { None };
        }
        let file = open(path, false).ok()?;
        file.try_lock().ok()?;
        is_at(&file, path).then(|| Self { path: path.to_owned(), file, stays: false })
    }

    /// Whether a process holds the lock at `path`.
    pub fn is_held(path: &Path) -> bool {
        let stand_in = Self::stand_in(path);
        if stand_in.exists() {
            return !is_stale(&stand_in);
        }
        // To ask for a lock of this kind, some file systems want to be able to write.
        let file =
            open(path, false).or_else(|_| File::open(path).map_err(|error| Error::io(path, "open", error)));
        file.is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// The number of the process that holds the lock at `path`, or that held it last; `unknown` where the file does not say
    /// it. None for a file that is not a lock's.
    pub fn holder(path: &Path) -> Option<String> {
        let text = fs::read_to_string(Self::stand_in(path)).or_else(|_| fs::read_to_string(path)).ok()?;
        // A process that was killed at once leaves an empty file.
        if text.is_empty() {
            return Some("unknown".to_owned());
        }
        text.lines().next()?.strip_prefix(MAGIC).map(|process| process.trim().to_owned())
    }

    /// The file that stands for the lock where the system has none.
    pub(super) fn stand_in(path: &Path) -> PathBuf {
        path.with_extension("held")
    }

    /// Takes the lock by making a file that only one process can make; none where it is there and this process does not
    /// wait.
    fn create(path: &Path, waits: bool) -> Result<Option<Self>> {
        let path = Self::stand_in(path);
        let mut last = None;
        loop {
            match File::options().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // Dropped, and the file with it, where the disk is full.
                    let mut lock = Self { path: path.clone(), file, stays: false };
                    write_holder(&mut lock.file).map_err(|error| Error::io(&path, "write", error))?;
                    return Ok(Some(lock));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::io(&path, "create", error)),
            }
            if remove_stale(&path) {
                continue;
            }
            if !waits {
                tracing::warn!(
                    "{}: if the process that made this file was killed, delete it",
                    path.display()
                );
                return Ok(None);
            }
            say_that_it_waits(&path, "; if that process was killed, delete this file", &mut last);
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is still held, so that it is never another process's.
        if !self.stays
            && is_at(&self.file, &self.path)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(file = %self.path.display(), %error, "could not remove the file of a lock");
        }
    }
}

/// Says on the log that this process waits for another, once and then at times.
fn say_that_it_waits(path: &Path, advice: &str, last: &mut Option<Instant>) {
    if last.is_none_or(|at| at.elapsed() >= REMINDER) {
        tracing::warn!(
            "{}: another process is at work (process {}); waiting for it{advice}",
            path.display(),
            Lock::holder(path).unwrap_or_else(|| "unknown".into())
        );
        *last = Some(Instant::now());
    }
}

/// What a lock's file says of a process that started at `start`, on this machine where it can be named.
fn text(process: u32, start: Option<&str>, machine: Option<&str>) -> String {
    let mut text = format!("{MAGIC}{process}\n");
    if let (Some(start), Some(machine)) = (start, machine) {
        text.push_str(&format!("{STARTED}{start} on {machine}\n"));
    }
    text
}

fn write_holder(file: &mut File) -> io::Result<()> {
    let process = std::process::id();
    file.set_len(0)?;
    file.write_all(text(process, start_of(process).as_deref(), machine().as_deref()).as_bytes())
}

/// Whether the process that a file names ran on this machine and does not live any more. Where that is not known for
/// certain, it is taken to live.
fn is_stale(path: &Path) -> bool {
    let Ok(text) = fs::read_to_string(path) else { return false };
    let mut lines = text.lines();
    let process = lines.next().and_then(|line| line.strip_prefix(MAGIC)?.trim().parse().ok());
    let started = lines.next().and_then(|line| line.strip_prefix(STARTED)?.split_once(" on "));
    let (Some(process), Some((start, place))) = (process, started) else { return false };
    machine().is_some_and(|machine| machine == place) && !lives(process, start)
}

/// Removes the file of a process that does not live any more; whether that was done.
fn remove_stale(path: &Path) -> bool {
    if !is_stale(path) {
        return false;
    }
    // One process at a time: between another's look and its removal, the file could be that of a process that lives.
    let guard = path.with_extension("held-by-none");
    if File::options().write(true).create_new(true).open(&guard).is_err() {
        return false;
    }
    let removed = is_stale(path) && {
        tracing::warn!(
            file = %path.display(),
            "the process that held this lock ({}) does not live any more; the lock is taken over",
            Lock::holder(path).unwrap_or_else(|| "unknown".into())
        );
        fs::remove_file(path).is_ok()
    };
    let _ = fs::remove_file(&guard);
    removed
}

/// What names this machine since it was started, and those processes of it that see each other by their numbers; none
/// where the system does not say it.
#[cfg(target_os = "linux")]
fn machine() -> Option<String> {
    let read = |name: &str| fs::read_to_string(name).ok().map(|text| text.trim().to_owned());
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let (name, start) = (read("/proc/sys/kernel/hostname")?, read("/proc/sys/kernel/random/boot_id")?);
    Some(format!("{name} {start} {}", namespace.display()))
}

/// When a process of this machine started, as the system counts; none for one that is not there.
#[cfg(target_os = "linux")]
fn start_of(process: u32) -> Option<String> {
    let about = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name that may hold blanks and brackets; the 22nd is the start.
    about.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// Whether a process lives that started then.
#[cfg(target_os = "linux")]
fn lives(process: u32, start: &str) -> bool {
    match start_of(process) {
        Some(found) => found == start,
        // Some systems hide the processes of other users there.
        None => i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw).is_some_and(|process| {
            rustix::process::test_kill_process(process) != Err(rustix::io::Errno::SRCH)
        }),
    }
}

#[cfg(not(target_os = "linux"))]
fn machine() -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn start_of(_process: u32) -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn lives(_process: u32, _start: &str) -> bool {
    true
}

fn open(path: &Path, create: bool) -> Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(create).truncate(false);
    options.open(path).map_err(|error| Error::io(path, "open", error))
}

/// Whether `path` still names this open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(open), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Whether `path` still names this open file: here a file that is open cannot be removed.
#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// How many threads hold a lock at the same time, at most, where each takes it `rounds` times.
    fn most_holders(take: impl Fn() -> Lock + Sync, release: impl Fn(Lock) + Sync, rounds: usize) -> usize {
        let (holders, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let lock = take();
                        most.fetch_max(holders.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::SeqCst);
                        release(lock);
                    }
                });
            }
        });
        most.into_inner()
    }

    /// A file system that cannot lock.
    fn cannot(_: &File) -> Result<(), TryLockError> {
        Err(TryLockError::Error(io::ErrorKind::Unsupported.into()))
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn one_at_a_time_holds_a_lock_and_its_file_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".index.building.lock");
        assert_eq!(most_holders(|| Lock::take(&path).unwrap(), drop, 200), 1);
        // The stand-in of file systems without locks does the same.
        let take = || Lock::acquire(&path, true, false, cannot).unwrap().unwrap();
        assert_eq!(most_holders(take, drop, 2), 1);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn the_file_of_a_killed_process_is_taken_over_and_a_held_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".index.building.lock");
        assert!(Lock::take_abandoned(&path).is_none());
        fs::write(&path, format!("{MAGIC}4711\n")).unwrap();
        assert_eq!(Lock::holder(&path).unwrap(), "4711");
        assert!(!Lock::is_held(&path));
        drop(Lock::take_abandoned(&path).unwrap());
        assert!(!path.exists());
        let held = Lock::take(&path).unwrap();
        assert_eq!(Lock::holder(&path).unwrap(), std::process::id().to_string());
        assert!(Lock::take_abandoned(&path).is_none() && Lock::is_held(&path));
        assert!(Lock::try_take(&path).unwrap().is_none());
        drop(held);
        fs::write(&path, "years of work").unwrap();
        assert_eq!(Lock::holder(&path), None);
    }

    #[test]
    fn without_locks_of_the_system_a_second_process_still_finds_the_lock_taken() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let take = || Lock::acquire(&path, false, true, cannot).unwrap();
        let held = take().unwrap();
        assert!(take().is_none() && Lock::is_held(&path) && Lock::take_abandoned(&path).is_none());
        assert_eq!(Lock::holder(&path).unwrap(), std::process::id().to_string());
        assert_eq!(names(folder.path()), ["lock", "lock.held"]);
        drop(held);
        assert!(!Lock::is_held(&path));
        assert_eq!(names(folder.path()), ["lock"]);
        assert!(take().is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn without_locks_of_the_system_the_lock_of_a_dead_process_is_taken_over_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let stand_in = Lock::stand_in(&path);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let (own, here) = (std::process::id(), machine().unwrap());
        let start = start_of(own).unwrap();
        let other = format!("{here} elsewhere");
        for (process, start, machine, is_taken) in [
            (dead, "1", &here, true),
            // The number was given to a new process.
            (own, "1", &here, true),
            (own, start.as_str(), &here, false),
            (dead, "1", &other, false),
        ] {
            fs::write(&stand_in, text(process, Some(start), Some(machine))).unwrap();
            assert_eq!(Lock::is_held(&path), !is_taken, "{process} {start} {machine}");
            let taken = Lock::acquire(&path, false, true, cannot).unwrap();
            assert_eq!(taken.is_some(), is_taken, "{process} {start} {machine}");
            drop(taken);
            assert_eq!(stand_in.exists(), !is_taken);
            assert_eq!(Lock::take_abandoned(&path).is_some(), is_taken);
        }
        // A process that was killed before it wrote its name, and one that did not know its start.
        for unknown in [String::new(), text(dead, None, None)] {
            fs::write(&stand_in, unknown).unwrap();
            assert!(Lock::acquire(&path, false, true, cannot).unwrap().is_none());
        }
        fs::remove_file(&stand_in).unwrap();
        // Of several that see a dead process, one takes over.
        let die = |lock: Lock| {
            fs::write(&lock.path, text(dead, Some("1"), Some(&here))).unwrap();
            std::mem::forget(lock);
        };
        let take = || Lock::acquire(&path, true, true, cannot).unwrap().unwrap();
        assert_eq!(most_holders(take, die, 8), 1);
    }
}
