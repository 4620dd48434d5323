//! Where a folder is built, and the folder while it is built.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use super::{Lock, make, put_back, replace};
use crate::{Error, Result};

/// A file of this name in an unfinished folder says that the next build goes on with it.
pub const JOURNAL: &str = "journal";

const BUILDING: &str = "building";
const REPLACED: &str = "replaced";
const LOCK: &str = "building.lock";
/// What stands for the lock on file systems that cannot lock files: see [`Lock::stand_in`].
const HELD: &str = "building.held";

/// What has to hold before a folder gets its name.
type Check = Box<dyn FnOnce() -> Result<()>>;

/// Where a folder is to be built.
///
/// A path is a place whose folder, if there is one, is replaced. [`vacant`](Self::vacant) gives a place that is empty.
pub struct Place {
    target: PathBuf,
    /// Held from the moment at which the place was found empty.
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
    /// The place `target` if nothing stands there. Where another process builds there, this one waits for it, and the
    /// log says so; none means that the folder is there, perhaps built by that process.
    ///
    /// # Errors
    /// [`Error::Io`] where the parent folder or the lock cannot be made.
    pub fn vacant(target: &Path) -> Result<Option<Self>> {
        if target.exists() {
            return Ok(None);
        }
        let lock = lock(target)?;
        restore_locked(target)?;
        if target.exists() {
            return Ok(None);
        }
        Ok(Some(Self { target: target.to_owned(), lock: Some(lock), check: None }))
    }

    /// The same place, where a folder gets its name only if `check` finds nothing wrong once all of it is written. Otherwise
    /// nothing of it is kept. With it, no kill leaves a finished folder that was made from something that changed
    /// meanwhile.
    #[must_use]
    pub fn checked(self, check: impl FnOnce() -> Result<()> + 'static) -> Self {
        Self { check: Some(Box::new(check)), ..self }
    }
}

/// A folder that gets its name when it is finished, and goes away if it is not.
pub struct Building {
    target: PathBuf,
    folder: PathBuf,
    check: Option<Check>,
    /// Whether the folder outlives this value: it has its name now, or the next build goes on with it.
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
    /// Starts an empty folder for a place, after waiting for a process that builds there. `is_ours` says whether a
    /// folder that stands there now may be replaced.
    ///
    /// # Errors
    /// [`Error::InTheWay`] where something else stands there, [`Error::Io`].
    pub fn create(place: Place, is_ours: impl Fn(&Path) -> bool) -> Result<Self> {
        let mut building = Self::prepare(place, is_ours)?;
        remove(&building.folder)?;
        building.stays = false;
        fs::create_dir(&building.folder).map_err(|error| Error::io(&building.folder, "create", error))?;
        Ok(building)
    }

    /// As [`create`](Self::create), but what an unfinished build with a [`JOURNAL`] left is still there, and what this one
    /// leaves will be.
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
        let folder = beside(&target, BUILDING).ok_or_else(in_the_way)?;
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
        if let Some(replaced) = beside(&target, REPLACED) {
            remove(&replaced)?;
        }
        remove_abandoned(parent(&target));
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

    /// Puts the folder in its place, instead of one that stands there now, and says where that is.
    ///
    /// # Errors
    /// What the place's check finds wrong, and then nothing of the folder is kept; [`Error::Io`] where the system refuses.
    pub fn finish(mut self) -> Result<PathBuf> {
        if let Some(check) = self.check.take() {
            check().inspect_err(|_| self.stays = false)?;
        }
        let in_the_way = || Error::InTheWay { path: self.target.clone() };
        let spare = beside(&self.target, REPLACED).ok_or_else(in_the_way)?;
        let has_replaced = replace(&self.folder, &self.target, &spare)
            .map_err(|error| Error::io(&self.target, "rename", error))?;
        self.stays = true;
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

/// What a build that is not finished keeps in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// The unfinished folder.
    pub path: PathBuf,
    /// Whether a process is at work on it.
    pub at_work: bool,
    /// Whether the next build of the same folder goes on with it, rather than removing it.
    pub goes_on: bool,
}

/// What unfinished builds keep in `parent`, sorted by path.
///
/// # Errors
/// [`Error::Io`] where the folder cannot be read.
pub fn leftovers(parent: &Path) -> Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).map_err(|error| Error::io(parent, "read", error))? {
        let path = entry.map_err(|error| Error::io(parent, "read", error))?.path();
        let Some(target) = target_of(&path, BUILDING).or_else(|| target_of(&path, REPLACED)) else {
            continue;
        };
        if path.is_dir() {
            let at_work = beside(&target, LOCK).is_some_and(|lock| Lock::is_held(&lock));
            found.push(Leftover { goes_on: path.join(JOURNAL).exists(), path, at_work });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Puts back the folder `target` that a kill took away while another was put in its place. Every opening of a folder that
/// can be replaced begins with this. What stands at `target` is left alone, and so is a missing folder that was not taken away.
pub fn restore(target: &Path) {
    if target.exists() || beside(target, REPLACED).is_none_or(|replaced| !replaced.is_dir()) {
        return;
    }
    // A process that builds here is between two renamings, and puts the new folder in the place.
    if let Err(error) = lock(target).and_then(|_lock| restore_locked(target)) {
        tracing::warn!("could not put back a folder that a killed process took away: {error}");
    }
}

/// As [`restore`], by whoever holds the lock.
fn restore_locked(target: &Path) -> Result<()> {
    let Some(replaced) = beside(target, REPLACED) else { return Ok(()) };
    if put_back(target, &replaced).map_err(|error| Error::io(target, "rename", error))? {
        tracing::warn!(folder = %target.display(), "put back what a killed process took away");
    }
    Ok(())
}

/// Removes what killed builds left in `parent`, and puts back what they took away. What cannot be removed stays and does no
/// harm.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(target) = target_of(&path, LOCK).or_else(|| target_of(&path, HELD)) else { continue };
        let Some(path) = beside(&target, LOCK) else { continue };
        // A file that another program made under such a name is left alone.
        if Lock::holder(&path).is_none() {
            continue;
        }
        let Some(lock) = Lock::take_abandoned(&path) else { continue };
        if let Err(error) = restore_locked(&target) {
            tracing::warn!("could not put back a folder that a killed process took away: {error}");
            continue;
        }
        for ending in [BUILDING, REPLACED] {
            let Some(folder) = beside(&target, ending).filter(|folder| folder.is_dir()) else { continue };
            if folder.join(JOURNAL).exists() {
                continue;
            }
            match remove(&folder) {
                Ok(()) => tracing::info!(folder = %folder.display(), "removed what a killed build left"),
                Err(error) => tracing::warn!("could not remove what a killed build left: {error}"),
            }
        }
        drop(lock);
    }
}

/// The lock of the folder `target`, whose parent is made if it is missing.
fn lock(target: &Path) -> Result<Lock> {
    let path = beside(target, LOCK).ok_or_else(|| Error::InTheWay { path: target.to_owned() })?;
    let parent = parent(target);
    make(parent)?;
    Lock::take(&path)
}

fn parent(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// `.NAME.ending` beside a folder; none for a path without a name, such as `/`.
fn beside(target: &Path, ending: &str) -> Option<PathBuf> {
    let name = target.file_name()?.to_str()?;
    Some(target.with_file_name(format!(".{name}.{ending}")))
}

/// The folder that `.NAME.ending` lies beside; none for a path of another form.
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

    /// What a kill of a build of `name` leaves: its lock and its folders with these files.
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
            // Between two renamings, where the system cannot exchange folders.
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
        // Nothing was taken away.
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
        // A build that goes on finds what was there, and leaves it.
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
