//! The places of a user's files, by the XDG base directory specification, and the user's config.

use std::{
    env,
    path::{Path, PathBuf},
};

use sporran_pipeline::UserOptions;

use crate::error::{Error, Result};

/// The folder of this program in each base directory.
const NAME: &str = "sporran";

/// A base directory: an absolute path in `variable`, or else `below` the home folder. The specification says to ignore
/// relative paths.
fn base(variable: &str, below: &str) -> Option<PathBuf> {
    let set = env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(|| env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(below)))
}

/// The user's config; the defaults if there is none.
pub(crate) fn user() -> Result<UserOptions> {
    match base("XDG_CONFIG_HOME", ".config") {
        Some(folder) => Ok(UserOptions::load(&folder.join(NAME).join("config.toml"))?),
        None => Ok(UserOptions::default()),
    }
}

/// The folder of cached indexes.
pub(crate) fn cache(user: &UserOptions) -> Result<PathBuf> {
    let own = || base("XDG_CACHE_HOME", ".cache").map(|folder| folder.join(NAME).join("indexes"));
    let missing = || Error::Input("expected a folder for cached indexes in XDG_CACHE_HOME or HOME".into());
    user.cache.clone().or_else(own).ok_or_else(missing)
}

/// The file of the questions of earlier sessions.
pub(crate) fn history() -> Option<PathBuf> {
    base("XDG_STATE_HOME", ".local/state").map(|folder| folder.join(NAME).join("history"))
}

/// Memory in bytes by a field of `/proc/meminfo`, such as `MemAvailable`.
pub(crate) fn memory(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(Path::new("/proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}
