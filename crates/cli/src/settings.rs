//! The places of a user's files, by the XDG base directory specification, and the user's config.

use std::{
    env,
    path::{Path, PathBuf},
};

use sporran_kilt::printable_line;
use sporran_pipeline::{Diagnostic, UserOptions, workflows::answer::AskOptions};
use tempfile::TempDir;

use crate::{
    commands::models,
    error::{Error, Result},
    outcome::{Context, stderr},
};

/// The folder of this program in each base directory.
const NAME: &str = "sporran";

/// A base directory: an absolute path in `variable`, or else `below` the home folder. The specification says to ignore
/// relative paths.
fn base(variable: &str, below: &str) -> Option<PathBuf> {
    let set = env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    set.or_else(|| env::home_dir().filter(|home| home.is_absolute()).map(|home| home.join(below)))
}

/// The file of the user's config.
fn user_file() -> Option<PathBuf> {
    base("XDG_CONFIG_HOME", ".config").map(|folder| folder.join(NAME).join("config.toml"))
}

/// The user's config; the defaults if there is none.
pub(crate) fn user() -> Result<UserOptions> {
    match user_file() {
        Some(file) => Ok(UserOptions::load(&file, env::home_dir().as_deref())?),
        None => Ok(UserOptions::default()),
    }
}

/// The keys of the user's config that name a model, each with the option that overrides it.
const MODELS: [(&str, &str); 4] =
    [("model", "--model"), ("llm", "--llm"), ("embedder", "--embed"), ("reranker", "--rerank")];

/// An error of a call that takes these keys of the user's config: a mistake of their models is reported with the file, the line
/// and the key. Other errors are unchanged.
pub(crate) fn blame(error: Error, keys: &[&str]) -> Error {
    let Some(file) = user_file() else { return error };
    let mistakes = match error {
        Error::Pipeline(error) => match *error {
            sporran_pipeline::Error::Config(mistakes) => mistakes,
            other => return other.into(),
        },
        other => return other,
    };
    let of_user = |found: Diagnostic| {
        let known = MODELS.iter().find(|(key, option)| found.key == *option && keys.contains(key));
        let own = known.and_then(|(key, _)| UserOptions::mistake(&file, key, &found.message).ok());
        own.unwrap_or(found)
    };
    sporran_pipeline::Error::Config(mistakes.into_iter().map(of_user).collect()).into()
}

/// The folder of the model that an option names, or else a key of the user's config.
///
/// # Errors
/// Those of [`models::resolve`], with the file and the key of the user's config for a model of it.
pub(crate) fn resolve(
    option: Option<&Path>,
    own: Option<&Path>,
    key: &str,
    context: &Context,
) -> Result<Option<PathBuf>> {
    if let Some(model) = option {
        return models::resolve(model, context.quiet).map(Some);
    }
    let found = own.map(|model| models::resolve(model, context.quiet)).transpose();
    found.map_err(|error| match user_file() {
        Some(file) if error.exit_code() == 2 => match UserOptions::mistake(&file, key, &error.text()) {
            Ok(mistake) => sporran_pipeline::Error::Config(vec![mistake]).into(),
            Err(_) => error,
        },
        _ => error,
    })
}

/// The folder of cached indexes.
pub(crate) fn cache(user: &UserOptions) -> Result<PathBuf> {
    let own = || base("XDG_CACHE_HOME", ".cache").map(|folder| folder.join(NAME).join("indexes"));
    let missing = || Error::Input("expected a folder for cached indexes in XDG_CACHE_HOME or HOME".into());
    user.cache.clone().or_else(own).ok_or_else(missing)
}

/// Does something with the cache of the options. If the cache may only be read, and lacks what is needed, a temporary folder is
/// the cache; it is removed when the second value is dropped.
///
/// # Errors
/// Those of `work`.
pub(crate) fn with_cache<T>(
    options: AskOptions,
    context: &Context,
    mut work: impl FnMut(&AskOptions) -> Result<T>,
) -> Result<(T, Option<TempDir>)> {
    let error = match work(&options) {
        Ok(done) => return Ok((done, None)),
        Err(error) => error,
    };
    if options.config().is_some() {
        return Err(error);
    }
    let spare = spare_cache(error, &options.cache, context)?;
    let options = AskOptions { cache: spare.path().to_owned(), ..options };
    Ok((work(&options)?, Some(spare)))
}

/// A temporary folder as the cache, if an error says that the cache may only be read.
///
/// # Errors
/// The error, if it has another cause, and a system without temporary folders.
pub(crate) fn spare_cache(error: Error, cache: &Path, context: &Context) -> Result<TempDir> {
    let cache = cache.display().to_string();
    if !error.is_unwritable() || !error.text().contains(&cache) {
        return Err(error);
    }
    let spare = tempfile::tempdir().map_err(Error::io(env::temp_dir(), "create a folder"))?;
    if !context.quiet {
        stderr(&format!(
            "{}: this folder may only be read, and lacks indexes of these files; they are built for this call in a \
             temporary folder\n",
            printable_line(&cache)
        ));
    }
    Ok(spare)
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
