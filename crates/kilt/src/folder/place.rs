//! The path where a folder is built, and the folder during its build.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use super::{Lock, make, put_back, replace, sync};
use crate::{Error, Result};

/// An unfinished folder with a file of this name is resumed by the next build.
pub const JOURNAL: &str = "journal";

const BUILDING: &str = "building";
const REPLACED: &str = "replaced";
const LOCK: &str = "building.lock";
/// The ending of the file that replaces the lock on file systems without locks: see [`Lock::stand_in`].
const HELD: &str = "building.held";

/// The condition for a folder to get its name.
type Check = Box<dyn FnOnce() -> Result<()>>;

/// A path where a folder will be built.
///
/// A place from a path replaces an existing folder. [`vacant`](Self::vacant) returns a place without a
/// folder.
pub struct Place {
    target: PathBuf,
    /// Held since the path was found empty.
    lock: Option<Lock>,
    check: Option<Check>,
}

impl<P: AsRef<Path>> From<P> for Place {
    fn from(target: P) -> Self {
        Self { target: target.as_ref().to_owned(), lock: None, check: None }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("target", &self.target).finish_non_exhaustive()
    }
}

impl Place {
    /// The place `target` if nothing exists there. If another process builds there, this one waits for it,
    /// and the log reports that. None means that the folder exists, possibly built by that process.
    ///
    /// # Errors
    /// [`Error::Io`] if the parent folder or the lock cannot be created.
    pub fn vacant(target: &Path) -> Result<Option<Self>> {
        if target.exists() {
            // A process that was killed after its folder got the name leaves its lock.
            drop(
                sibling(target, LOCK)
                    .filter(|path| path.exists())
                    .and_then(|path| Lock::take_abandoned(&path)),
            );
            return Ok(None);
        }
        let lock = lock(target)?;
        restore_locked(target)?;
        if target.exists() {
            return Ok(None);
        }
        Ok(Some(Self { target: target.to_owned(), lock: Some(lock), check: None }))
    }

    /// The same place with a check that runs when the folder is complete. The folder gets its name only if
    /// `check` succeeds; otherwise it is removed. So no kill leaves a finished folder that was built from
    /// changed inputs.
    #[must_use]
    pub fn checked(self, check: impl FnOnce() -> Result<()> + 'static) -> Self {
        Self { check: Some(Box::new(check)), ..self }
    }
}

/// A folder during its build. It is renamed when it is finished, and removed if it is not.
pub struct Building {
    target: PathBuf,
    folder: PathBuf,
    check: Option<Check>,
    /// Whether to keep the folder when this value is dropped: it is finished, or the next build resumes it.
    stays: bool,
    /// Released last.
    _lock: Lock,
}

impl fmt::Debug for Building {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Building").field("folder", &self.folder).finish_non_exhaustive()
    }
}

impl Building {
    /// Starts an empty folder for a place, after waiting for a process that builds there. `is_ours` decides
    /// whether an existing folder may be replaced.
    ///
    /// # Errors
    /// [`Error::InTheWay`] if something else exists there, [`Error::Io`].
    pub fn create(place: Place, is_ours: impl Fn(&Path) -> bool) -> Result<Self> {
        let mut building = Self::prepare(place, is_ours)?;
        remove(&building.folder)?;
        building.stays = false;
        fs::create_dir(&building.folder).map_err(|error| Error::io(&building.folder, "create", error))?;
        Ok(building)
    }

    /// As [`create`](Self::create), but resumes an unfinished build with a [`JOURNAL`], and keeps the folder
    /// if this one is not finished.
    ///
    /// # Errors
    /// As for [`create`](Self::create).
    pub fn resume(place: Place, is_ours: impl Fn(&Path) -> bool) -> Result<Self> {
        let building = Self::prepare(place, is_ours)?;
        if !building.path(JOURNAL).exists() {
            remove(&building.folder)?;
        }
        fs::create_dir_all(&building.folder).map_err(|error| Error::io(&building.folder, "create", error))?;
        Ok(building)
    }

    fn prepare(place: Place, is_ours: impl Fn(&Path) -> bool) -> Result<Self> {
        let Place { target, lock: held, check } = place;
        let in_the_way = || Error::InTheWay { path: target.clone() };
        let folder = sibling(&target, BUILDING).ok_or_else(in_the_way)?;
        let lock = match held {
            Some(lock) => lock,
            None => lock(&target)?,
        };
        restore_locked(&target)?;
        if target.exists() && !is_ours(&target) {
            let mut entries = fs::read_dir(&target).map_err(|_| in_the_way())?;
            if entries.next().is_some() {
                return Err(in_the_way());
            }
        }
        if let Some(replaced) = sibling(&target, REPLACED) {
            remove(&replaced)?;
        }
        clear_abandoned(parent(&target));
        Ok(Self { target, folder, check, stays: true, _lock: lock })
    }

    /// The folder while it is built.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Moves the folder to its path, replaces an existing one, and returns the path. The caller has flushed the files to disk; the
    /// names are on disk afterwards.
    ///
    /// # Errors
    /// Errors of the place's check, which remove the folder; [`Error::Io`] if the system refuses.
    pub fn finish(mut self) -> Result<PathBuf> {
        if let Some(check) = self.check.take() {
            check().inspect_err(|_| self.stays = false)?;
        }
        let in_the_way = || Error::InTheWay { path: self.target.clone() };
        let spare = sibling(&self.target, REPLACED).ok_or_else(in_the_way)?;
        sync(&self.folder)?;
        let has_replaced = replace(&self.folder, &self.target, &spare)
            .map_err(|error| Error::io(&self.target, "rename", error))?;
        self.stays = true;
        sync(parent(&self.target))?;
        if has_replaced {
            remove(&self.folder)?;
        }
        Ok(self.target.clone())
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        if !self.stays
            && let Err(error) = remove(&self.folder)
        {
            tracing::warn!("could not remove an unfinished folder: {error}");
        }
    }
}

/// An unfinished build in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The unfinished folder.
    pub path: PathBuf,
    /// Whether a process is working on it.
    pub at_work: bool,
    /// Whether the next build of the same folder resumes it instead of removing it.
    pub goes_on: bool,
}

/// The unfinished builds in `parent`, sorted by path.
///
/// # Errors
/// [`Error::Io`] if the folder cannot be read.
pub fn leftovers(parent: &Path) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).map_err(|error| Error::io(parent, "read", error))? {
        let path = entry.map_err(|error| Error::io(parent, "read", error))?.path();
        let Some(target) = target_of(&path, BUILDING).or_else(|| target_of(&path, REPLACED)) else {
            continue;
        };
        if path.is_dir() {
            let at_work = sibling(&target, LOCK).is_some_and(|lock| Lock::is_held(&lock));
            found.push(Leftover { goes_on: path.join(JOURNAL).exists(), path, at_work });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Restores the folder `target` if a kill interrupted its replacement. Call this before opening a folder that
/// can be replaced. An existing `target` is left alone, as is a missing folder without a backup.
pub fn restore(target: &Path) {
    if target.exists() || sibling(target, REPLACED).is_none_or(|replaced| !replaced.is_dir()) {
        return;
    }
    // A process that builds here is between two renames and finishes the replacement.
    if let Err(error) = lock(target).and_then(|_lock| restore_locked(target)) {
        tracing::warn!("could not restore a folder after a killed replacement: {error}");
    }
}

/// As [`restore`], for the holder of the lock.
fn restore_locked(target: &Path) -> Result<()> {
    let Some(replaced) = sibling(target, REPLACED) else { return Ok(()) };
    if put_back(target, &replaced).map_err(|error| Error::io(target, "rename", error))? {
        tracing::warn!(folder = %target.display(), "restored a folder after a killed replacement");
    }
    Ok(())
}

/// Removes leftovers of killed builds in `parent`, and restores folders that they were replacing. Files that
/// cannot be removed stay, because they are harmless. Builds in the same folder do so first.
pub fn clear_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(target) = target_of(&path, LOCK).or_else(|| target_of(&path, HELD)) else { continue };
        let Some(path) = sibling(&target, LOCK) else { continue };
        // Another program's file with such a name is left alone.
        if Lock::holder(&path).is_none() {
            continue;
        }
        let Some(lock) = Lock::take_abandoned(&path) else { continue };
        if let Err(error) = restore_locked(&target) {
            tracing::warn!("could not restore a folder after a killed replacement: {error}");
            continue;
        }
        for ending in [BUILDING, REPLACED] {
            let Some(folder) = sibling(&target, ending).filter(|folder| folder.is_dir()) else { continue };
            if folder.join(JOURNAL).exists() {
                continue;
            }
            match remove(&folder) {
                Ok(()) => {
                    tracing::info!(folder = %folder.display(), "removed the leftovers of a killed build")
                }
                Err(error) => tracing::warn!("could not remove the leftovers of a killed build: {error}"),
            }
        }
        drop(lock);
    }
}

/// The lock of the folder `target`. A missing parent is created.
fn lock(target: &Path) -> Result<Lock> {
    let path = sibling(target, LOCK).ok_or_else(|| Error::InTheWay { path: target.to_owned() })?;
    let parent = parent(target);
    make(parent)?;
    Lock::take(&path)
}

fn parent(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path `.NAME.ending` next to a folder; none for a path without a name, such as `/`.
fn sibling(target: &Path, ending: &str) -> Option<PathBuf> {
    let name = target.file_name()?.to_str()?;
    Some(target.with_file_name(format!(".{name}.{ending}")))
}

/// The folder that `.NAME.ending` belongs to; none for another form of path.
fn target_of(path: &Path, ending: &str) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let name = name.strip_prefix('.')?.strip_suffix(ending)?.strip_suffix('.')?;
    (!name.is_empty()).then(|| path.with_file_name(name))
}

/// Removes a folder if it is there.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(folder, "remove", error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ours(folder: &Path) -> bool {
        folder.join("header").exists()
    }

    fn create(target: &Path) -> Result<Building> {
        Building::create(target.into(), is_ours)
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_folder_is_there_whole_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("new/index");
        // The second time, the first is replaced.
        for content in ["1", "2"] {
            let building = create(&target).unwrap();
            assert_eq!(target.exists(), content == "2");
            fs::write(building.path("header"), content).unwrap();
            building.finish().unwrap();
            assert_eq!(fs::read_to_string(target.join("header")).unwrap(), content);
            assert_eq!(names(&place.path().join("new")), ["index"]);
        }
        let unfinished = create(&target).unwrap();
        fs::write(unfinished.path("header"), "3").unwrap();
        drop(unfinished);
        assert_eq!(fs::read_to_string(target.join("header")).unwrap(), "2");
        assert_eq!(names(&place.path().join("new")), ["index"]);
    }

    #[test]
    fn a_folder_of_another_kind_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let thesis = place.path().join("thesis");
        fs::create_dir(&thesis).unwrap();
        drop(create(&thesis).unwrap());
        fs::write(thesis.join("thesis.tex"), "years of work").unwrap();
        assert!(matches!(create(&thesis), Err(Error::InTheWay { .. })));
        assert!(matches!(create(Path::new("/")), Err(Error::InTheWay { .. })));
        assert_eq!(names(place.path()), ["thesis"]);
        assert_eq!(names(&thesis), ["thesis.tex"]);
    }

    #[test]
    fn one_of_many_threads_builds_and_the_others_find_the_folder() {
        let place = tempfile::tempdir().unwrap();
        for round in 0..40 {
            let target = place.path().join(format!("index-{round}"));
            let built: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let Some(vacant) = Place::vacant(&target).unwrap() else {
                                assert_eq!(fs::read_to_string(target.join("header")).unwrap(), "whole");
                                return 0;
                            };
                            let building = Building::create(vacant, is_ours).unwrap();
                            fs::write(building.path("header"), "half").unwrap();
                            std::thread::yield_now();
                            fs::write(building.path("header"), "whole").unwrap();
                            building.finish().unwrap();
                            1
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).sum()
            });
            assert_eq!(built, 1);
            assert!(Place::vacant(&target).unwrap().is_none());
        }
        assert!(names(place.path()).iter().all(|name| name.starts_with("index-")));
    }

    /// The leftovers of a killed build of `name`: its lock and its folders with these files.
    fn killed(parent: &Path, name: &str, files: &[(&str, &str)]) {
        fs::write(parent.join(format!(".{name}.building.lock")), "sporran build, process 1\n").unwrap();
        for (ending, file) in files {
            let folder = parent.join(format!(".{name}.{ending}"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), "half").unwrap();
        }
    }

    #[test]
    fn a_kill_in_any_moment_of_a_replacement_loses_neither_folder() {
        let text = |folder: &Path| fs::read_to_string(folder.join("header")).unwrap_or_default();
        let opens: [fn(&Path); 4] = [
            |target| restore(target),
            |target| assert!(Place::vacant(target).unwrap().is_none()),
            |target| drop(create(target).unwrap()),
            // A build of something else in the same folder.
            |target| drop(create(&target.with_file_name("other")).unwrap()),
        ];
        for open in opens {
            let place = tempfile::tempdir().unwrap();
            let (parent, target) = (place.path(), place.path().join("index"));
            // Between two renames, if the system cannot exchange folders.
            killed(parent, "index", &[("building", "header"), ("replaced", "header")]);
            fs::write(parent.join(".index.replaced/header"), "old").unwrap();
            open(&target);
            assert_eq!(text(&target), "old");
            assert!(!parent.join(".index.replaced").exists());
            drop(create(&target).unwrap());
            assert_eq!((names(parent), text(&target).as_str()), (vec!["index".to_owned()], "old"));
        }
        // After an exchange, before the old folder was removed: no build resumes from it.
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("index");
        fs::create_dir(&target).unwrap();
        fs::write(target.join("header"), "new").unwrap();
        killed(place.path(), "index", &[("building", "header")]);
        let building = Building::resume((&target).into(), is_ours).unwrap();
        assert_eq!((names(building.folder()), text(&target).as_str()), (Vec::new(), "new"));
        // Without a backup.
        restore(&place.path().join("none"));
        assert!(!place.path().join("none").exists());
    }

    #[test]
    fn a_folder_whose_check_fails_gets_no_name_and_nothing_of_it_stays() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("index");
        let changed = || Err(Error::Changed { path: "source".into() });
        let begins: [fn(Place) -> Result<Building>; 2] =
            [|place| Building::create(place, is_ours), |place| Building::resume(place, is_ours)];
        for begin in begins {
            let building = begin(Place::from(&target).checked(changed)).unwrap();
            fs::write(building.path("header"), "of another source").unwrap();
            fs::write(building.path(JOURNAL), "").unwrap();
            assert!(matches!(building.finish(), Err(Error::Changed { .. })));
            assert_eq!(names(place.path()), [""; 0]);
        }
        let building = Building::create(Place::from(&target).checked(|| Ok(())), is_ours).unwrap();
        building.finish().unwrap();
        assert!(target.exists());
    }

    #[test]
    fn what_killed_builds_left_goes_away_with_the_next_build_and_nothing_else_does() {
        let place = tempfile::tempdir().unwrap();
        let parent = place.path();
        let at_work = create(&parent.join("names")).unwrap();
        killed(parent, "store", &[("building", "text.bin"), ("replaced", "text.bin")]);
        fs::create_dir(parent.join("store")).unwrap();
        killed(parent, "bm25", &[]);
        killed(parent, "dense", &[("building", JOURNAL)]);
        killed(parent, "index", &[("building", "old"), ("replaced", "header")]);
        fs::create_dir(parent.join("index")).unwrap();
        fs::write(parent.join(".mail.building.lock"), "another program's").unwrap();
        fs::create_dir(parent.join(".mail.building")).unwrap();

        let found = leftovers(parent).unwrap();
        let of = |name: &str| found.iter().find(|leftover| leftover.path.ends_with(name)).unwrap();
        assert_eq!(found.len(), 7);
        assert!(of(".names.building").at_work && !of(".store.building").at_work);
        assert!(of(".dense.building").goes_on && !of(".store.replaced").goes_on);

        let building = create(&parent.join("index")).unwrap();
        assert!(names(building.folder()).is_empty());
        drop(building);
        assert_eq!(
            names(parent),
            [
                ".dense.building",
                ".mail.building",
                ".mail.building.lock",
                ".names.building",
                ".names.building.lock",
                "index",
                "store"
            ]
        );
        drop(at_work);
        // A resumed build finds the existing files and keeps them.
        for _ in 0..2 {
            let building = Building::resume((&parent.join("dense")).into(), is_ours).unwrap();
            assert_eq!(names(building.folder()), [JOURNAL]);
        }
        assert_eq!(
            names(parent),
            [".dense.building", ".mail.building", ".mail.building.lock", "index", "store"]
        );
    }
}
