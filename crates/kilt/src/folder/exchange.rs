//! Replaces a folder so that a kill loses neither the old one nor the new one.

use std::{fs, io, path::Path};

/// Moves the folder `new` to `target`. Returns whether there was a previous folder, which is at `new`
/// afterwards. `spare` is a free path on the same disk.
///
/// Linux exchanges two folders in one step on most file systems. Elsewhere the old folder is at `spare` for a
/// moment, where [`put_back`] finds it after a kill.
///
/// # Errors
/// If the system refuses; then the previous folder is unchanged.
pub(crate) fn replace(new: &Path, target: &Path, spare: &Path) -> io::Result<bool> {
    if !target.exists() {
        return fs::rename(new, target).map(|()| false);
    }
    if exchange(new, target) {
        return Ok(true);
    }
    in_steps(new, target, spare).map(|()| true)
}

/// Exchanges two folders by three renames.
fn in_steps(new: &Path, target: &Path, spare: &Path) -> io::Result<()> {
    fs::rename(target, spare)?;
    if let Err(error) = fs::rename(new, target) {
        put_back(target, spare)?;
        return Err(error);
    }
    fs::rename(spare, new)
}

/// Restores a folder after a kill between the renames of [`replace`]; returns whether there was one.
///
/// # Errors
/// If the system refuses.
pub(crate) fn put_back(target: &Path, spare: &Path) -> io::Result<bool> {
    let is_lost = !target.exists() && spare.is_dir();
    if is_lost {
        fs::rename(spare, target)?;
    }
    Ok(is_lost)
}

/// Exchanges two folders in one step; returns whether the system supports it.
#[cfg(target_os = "linux")]
fn exchange(one: &Path, two: &Path) -> bool {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn exchange(_one: &Path, _two: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_change_places_in_one_step_or_in_three() {
        let place = tempfile::tempdir().unwrap();
        let [new, target, spare] = ["new", "target", "spare"].map(|name| place.path().join(name));
        let write = |folder: &Path, text: &str| {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("f"), text).unwrap();
        };
        let text = |folder: &Path| fs::read_to_string(folder.join("f")).unwrap_or_default();
        write(&new, "1");
        assert!(!replace(&new, &target, &spare).unwrap());
        assert_eq!((text(&target), new.exists()), ("1".into(), false));
        write(&new, "2");
        assert!(replace(&new, &target, &spare).unwrap());
        assert_eq!((text(&target), text(&new)), ("2".into(), "1".into()));
        in_steps(&new, &target, &spare).unwrap();
        assert_eq!((text(&target), text(&new), spare.exists()), ("1".into(), "2".into(), false));
        #[cfg(target_os = "linux")]
        {
            assert!(exchange(&new, &target));
            assert_eq!((text(&target), text(&new)), ("2".into(), "1".into()));
            assert!(!exchange(&new, &spare));
        }
        // Without a new folder, the existing one stays.
        assert!(in_steps(&spare.join("none"), &target, &spare).is_err());
        assert!(target.exists() && !spare.exists());
    }

    #[test]
    fn what_a_kill_took_away_comes_back_and_nothing_is_overwritten() {
        let place = tempfile::tempdir().unwrap();
        let [target, spare] = ["target", "spare"].map(|name| place.path().join(name));
        assert!(!put_back(&target, &spare).unwrap());
        fs::create_dir(&spare).unwrap();
        assert!(put_back(&target, &spare).unwrap());
        assert!(target.exists() && !spare.exists());
        fs::create_dir(&spare).unwrap();
        assert!(!put_back(&target, &spare).unwrap() && spare.exists());
    }
}
